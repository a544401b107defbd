"""The work of `kt-translate-corpus`: translating the shards of a plan.

Python code can call `translate_file`.
"""

import contextlib
import dataclasses
import hashlib
import io
import os
import pathlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator

import tqdm

from keras_transformer.base.files import sha256_of
from keras_transformer.commands import flags
from keras_transformer.commands.startup import backend_name
from keras_transformer.storage.checkpoints import ENDING
from keras_transformer.storage.workdir import TOKENIZER_SUMS
from keras_transformer.translation import engines
from trainers.run.resuming import run_errors
from trainers.translating.lines import (
    CHUNK,
    open_translator,
    read_lines,
    translate_lines,
)
from trainers.translating.options import TranslatorChoice
from trainers.translating.plan import (
    NOTES,
    TRANSLATION,
    Plan,
    Shard,
    check_paths,
    listed,
    open_plan,
)

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

METER = "{n:,} of {total:,} lines, {rate_fmt}, {remaining} left"


def run(
    choice: TranslatorChoice, input: str, output: str, **options: typing.Any
) -> None:
    """Translates a file, together with other processes on the same plan."""
    with flags.user_errors():
        check_paths(pathlib.Path(output), pathlib.Path(input))
        search = choice.read_search()
        search.check_number(options["n_best"] or 1, "n_best")
        search.check_seed(options["seed"] or None)
    plan = translate_file(open_translator(choice), input, output, **options)
    tell_state(plan)


def translate_file(
    translator: "Translator",
    input: str | os.PathLike,
    output: str | os.PathLike,
    **options: typing.Any,
) -> Plan:
    """Translates a file, text or .gz, into a directory, or resumes that.

    `plan.py` describes the directory, `make_settings` the options. Skips shards
    that are finished or that other processes are translating: see
    `Plan.unfinished` and `Plan.check_shards`.

    Raises CommandError if input, output or an option is wrong; RunError if the
    disk is full or the model's logits are not finite.
    """
    plan = open_for(translator, input, output, **options)
    with run_errors(plan.path):
        translate_shards(plan, translator)
    return plan


def open_for(
    translator: "Translator",
    input: str | os.PathLike,
    output: str | os.PathLike,
    **options: typing.Any,
) -> Plan:
    """Opens a translator's plan. Arguments and errors: see `translate_file`."""
    with flags.user_errors(), run_errors(output):
        settings = make_settings(translator, **options)
        return open_plan(output, input, settings)


def make_settings(
    translator: "Translator",
    *,
    shard_lines: int,
    n_best: int = 0,
    alignments: bool = False,
    seed: int = 0,
    confidence: bool = False,
) -> dict[str, typing.Any]:
    """Returns the settings of a plan: all that determines the translations.

    A shard has `shard_lines` lines. `confidence` adds the probability of each
    translation, as its last column; `n_best` must be 1. The other options are
    as in `OutputOptions`. Raises ValueError if the search does not allow
    `n_best` or `seed`, or if the model is not calibrated.
    """
    translator.decoding.check_number(n_best or 1, "n_best")
    translator.decoding.check_seed(seed or None)
    by_keras = engines.find_engine(translator.engine).NEEDS_KERAS
    of_shortlist = {}
    if translator.shortlist is not None:
        of_shortlist = {
            "shortlist_sha256": translator.shortlist.sha256,
            # Threads decide which sentences form a batch, and all sentences of
            # a batch share the tokens of its shortlist.
            "num_threads": translator.num_threads,
        }
    of_confidence = {}
    if confidence:
        of_confidence["confidence"] = translator.assessor().calibration.measured
    of_ensemble = {}
    if len(translator.models) > 1:
        of_ensemble["other_models"] = [
            {
                **dataclasses.asdict(model.config),
                "checkpoint_sha256": sha256_of(prefix + ENDING),
            }
            for model, prefix in zip(
                translator.models[1:], translator.checkpoints[1:], strict=True
            )
        ]
    return {
        **dataclasses.asdict(translator.model.config),
        **dataclasses.asdict(translator.decoding),
        **{
            TOKENIZER_SUMS[name]: side.sha256
            for name, side in translator.tokenizer.files.items()
        },
        "checkpoint_sha256": sha256_of(f"{translator.checkpoint}{ENDING}"),
        "direction": translator.direction and [*translator.direction],
        **of_shortlist,
        **of_ensemble,
        **of_confidence,
        **translator.terminology.sums,
        "max_source_length": translator.max_source_length,
        "precision": translator.model.dtype,
        "jit_compile": bool(translator.jit_compile),
        "backend": backend_name() if by_keras else translator.engine,
        "shard_lines": shard_lines,
        "n_best": n_best,
        "alignments": alignments,
        "seed": seed,
    }


def translate_shards(plan: Plan, translator: "Translator") -> None:
    """Translates the shards that no process has finished or is translating."""
    with _progress_bar(plan) as bar:

        def report(done: int) -> None:
            """Updates the bar; `done` counts lines of the current shard."""
            bar.update(plan.finished_lines + done - bar.n)

        found = True
        while found:  # a process may have died meanwhile
            found = False
            for shard in plan.unfinished():
                with plan.claim(shard) as is_free:
                    if is_free:
                        translate_shard(plan, shard, translator, report)
                        report(0)
                        notes = plan.read_record(shard)["notes"]
                        with bar.external_write_mode():
                            flags.show(f"{shard.name}: {notes} notes; {bar}")
                        found = True
    plan.remove_leftovers()


@contextlib.contextmanager
def _progress_bar(plan):
    """Makes a progress bar for all shards, hidden without a terminal."""
    with contextlib.ExitStack() as stack:
        file = sys.stderr
        if file is None or not file.isatty():
            file = stack.enter_context(open(os.devnull, "w"))
        yield stack.enter_context(
            tqdm.tqdm(
                file=file,
                total=plan.lines,
                initial=plan.finished_lines,
                unit=" lines",
                bar_format=METER,
            )
        )


def translate_shard(
    plan: Plan,
    shard: Shard,
    translator: "Translator",
    report: Callable[[int], None] = lambda done: None,
) -> None:
    """Translates a shard, without claiming it.

    `report` is called with the number of lines translated so far.
    """
    notes: list[str] = []

    def warn(message: str, *values: typing.Any) -> None:
        notes.append(message % values)

    settings, first = plan.settings, shard.first_line
    translator = translator.with_seed(settings["seed"])
    source = io.BytesIO(plan.read(shard))
    lines = read_lines(source, str(plan.source), first, warn)
    outputs = translate_lines(
        translator,
        _reported(lines, report),
        CHUNK,
        translator.decoding.count_outputs(settings["n_best"]),
        alignments=settings["alignments"],
        first=first,
        warn=warn,
        assessor=translator.assessor() if "confidence" in settings else None,
    )
    with plan.publish(shard) as directory:
        record = _write(outputs, directory / TRANSLATION)
        if notes:
            _write(notes, directory / NOTES)
        plan.write_record(shard, directory, **record, notes=len(notes))


def _reported(lines: Iterable[str], report) -> Iterator[str]:
    """Yields lines. Before each chunk, reports the number of lines so far."""
    for number, line in enumerate(lines):
        if number % CHUNK == 0:
            report(number)
        yield line


def _write(lines, path):
    """Writes lines to disk. Returns their number and SHA-256 for a record."""
    digest, number = hashlib.sha256(), 0
    with open(path, "wb") as file:
        for line in lines:
            data = line.encode() + b"\n"
            file.write(data)
            digest.update(data)
            number += 1
        file.flush()
        os.fsync(file.fileno())
    return {"lines": number, "sha256": digest.hexdigest()}


def tell_state(plan: Plan) -> None:
    """Shows that all shards are finished, or which others are translating."""
    left = [shard.name for shard in plan.unfinished()]
    if left:
        flags.show(f"{plan.path}: others are translating {listed(left)}")
        return
    notes = sum(plan.read_record(shard)["notes"] for shard in plan.shards)
    flags.show(
        f"{plan.path}: {plan.lines:,} lines in {len(plan.shards)} shards are"
        f" finished, with {notes} notes ({plan.path}/*/{NOTES})"
    )
