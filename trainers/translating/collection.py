"""The work of `kt-translate-corpus --collect`: joining shards."""

import contextlib
import gzip
import os
import pathlib
import shutil
import typing
from collections.abc import Iterator

from keras_transformer.base.files import new_file
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from trainers.translating.plan import read_plan


def run(output: str, collect: str) -> None:
    """Joins the translations of all shards, in order, into the file `collect`.

    Raises CommandError if a shard is missing or corrupt, or if `collect` is in
    `output` or is the input.
    """
    with flags.user_errors():
        plan, target = read_plan(output), pathlib.Path(collect)
        real = pathlib.Path(os.path.realpath(target))
        outside = not real.is_relative_to(os.path.realpath(output))
        expect(outside, "collect outside output", f"{collect=}, {output=}")
        flags.check_output(collect)
        paths = plan.check_shards()
        another = not plan.is_input(target)
        expect(another, "collect other than the input", f"{collect=}")
        with new_text_file(target) as file:
            for path in paths:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, file)
    records = [plan.read_record(shard) for shard in plan.shards]
    lines, notes = (
        sum(r[name] for r in records) for name in ("lines", "notes")
    )
    flags.show(
        f"{collect}: {lines:,} lines of {len(records)} shards, with {notes}"
        " notes"
    )


@contextlib.contextmanager
def new_text_file(
    path: pathlib.Path,
) -> Iterator[typing.BinaryIO | gzip.GzipFile]:
    """Opens a `new_file`, and compresses it if its name ends in .gz."""
    with new_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        # Without a time stamp, equal text gives an equal file.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
            yield zipped
