"""Joins shards: the work of `kt-translate-corpus --collect`."""

import contextlib
import gzip
import os
import pathlib
import shutil
import typing
from collections.abc import Iterator

from keras_transformer.commands import flags
from keras_transformer.files import new_file
from trainers.translating.plan import read_plan


def run(output: str, collect: str) -> None:
    """Writes the translations of all shards in `output` to a file, in order."""
    with flags.user_errors():
        plan, target = read_plan(output), pathlib.Path(collect)
        real = pathlib.Path(os.path.realpath(target))
        if real.is_relative_to(os.path.realpath(output)):
            raise ValueError(
                "collect must not be in output. Received:"
                f" collect={collect!r}, output={output!r}"
            )
        flags.check_output(collect)
        paths = plan.check_shards()
        if plan.is_input(target):
            raise ValueError(
                f"collect must not be the input. Received: collect={collect!r}"
            )
        join(paths, target)
    records = [plan.read_record(shard) for shard in plan.shards]
    flags.show(
        f"{collect}: {sum(record['lines'] for record in records):,} lines of"
        f" {len(records)} shards, with"
        f" {sum(record['notes'] for record in records)} notes"
    )


def join(paths: list[pathlib.Path], target: pathlib.Path) -> None:
    """Writes files, one after the other, to one that appears when complete."""
    with new_text_file(target) as file:
        for path in paths:
            with open(path, "rb") as part:
                shutil.copyfileobj(part, file)


@contextlib.contextmanager
def new_text_file(
    path: pathlib.Path,
) -> Iterator[typing.BinaryIO | gzip.GzipFile]:
    """A `new_file`, compressed if its name ends in .gz."""
    with new_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        # Without a time, which would differ.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
            yield zipped
