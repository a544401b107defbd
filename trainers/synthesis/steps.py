"""Runs the steps of a plan for `kt-synthesize`.

NAME.en.gz, NAME.de.gz    the pairs of a step
NAME/record.json          the step's settings and counts; written last
NAME/backward.txt         the lines that the models of a direction translate
NAME/backward_1/ ...      translations of the first of these models, as
                          `trainers/translating/plan.py` describes
report.json               all counts, and the command for training
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
import shlex
import time
import typing
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from keras_transformer.base.files import read_checked_json, with_checksum
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.data.files.pairs import (
    Pairs,
    read_aligned_files,
    read_lines,
    with_single_spaces,
)
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from trainers.preparing import cleaning
from trainers.run.inheritance import UNKNOWN_LANGUAGES
from trainers.run.resuming import describe_file, run_errors, write_json
from trainers.synthesis.pairs import FILLER, REASONS, PairFilter, add_noise
from trainers.synthesis.plan import KINDS, Plan, Step, StepOptions
from trainers.translating.collection import new_text_file
from trainers.translating.lines import CHUNK, open_translator
from trainers.translating.options import (
    LanguageOptions,
    SearchDeviceOptions,
    TranslatorChoice,
    split_workdirs,
)
from trainers.translating.shards import translate_file

ORDERS = {"forward": 1, "backward": -1}  # source and target, or reversed
FORMAT_VERSION = 1  # of a step's record
SHARD_LINES = 10_000  # a killed command translates unfinished shards again
MIXED_EPOCHS = 10  # with back-translations, in the command for training
Record = dict[str, typing.Any]  # a step's settings and counts, as JSON


def run(plan: Plan, options: SearchDeviceOptions) -> None:
    """Runs the unfinished steps, and shows counts and a training command."""
    corpus = plan.corpus
    with flags.user_errors():
        check_directions(plan, options)
        originals = read_aligned_files(corpus.train_files, *corpus.languages)
    records = {}
    with run_errors(corpus.output):
        for step in plan.steps:
            name = step.options.name
            records[name] = make_step(plan, step, originals, options)
        command = training_command(plan, originals.sizes, records)
        report = {"steps": records, "command": command}
        write_json(os.path.join(corpus.output, "report.json"), report)
    flags.show(*table(records), "", shlex.join(command))


def check_directions(plan: Plan, options: SearchDeviceOptions) -> None:
    """Raises ValueError if a model is missing or has other languages."""
    for step in plan.steps:
        for direction, _, paths in step.options.models:
            expected = plan.corpus.languages[:: ORDERS[direction]]
            workdirs = split_workdirs(paths)
            options.check_engine(workdirs, shortlist=False)
            for workdir in workdirs:
                choice = choose_model(options, step, workdir, expected)
                choice.check()
                found = choice.read_direction()
                expect(
                    found in (expected, UNKNOWN_LANGUAGES),
                    f"{direction} models that translate"
                    f" {' to '.join(expected)}",
                    f"{workdir}, which translates {' to '.join(found)}",
                    where=f"step {step.options.name}",
                )
            if plan.filters.min_confidence is not None:
                choice = choose_model(options, step, paths, expected)
                open_translator(choice).assessor()  # which it must have


def choose_model(
    options: SearchDeviceOptions,
    step: Step,
    workdir: str,
    languages: Sequence[str],
) -> TranslatorChoice:
    """Chooses a step's translator, with languages if it is multilingual."""
    there = options.of_workdir(workdir)
    own = WorkDirectory(there.workdirs[0]).read_languages()
    chosen = LanguageOptions()
    if own.direction() is None:
        chosen = LanguageOptions(*languages)
    return TranslatorChoice(there, step.decoding, chosen)


def make_step(
    plan: Plan, step: Step, originals: Pairs, options: SearchDeviceOptions
) -> Record:
    """Makes a step's pairs unless they exist. Returns the step's record."""
    folder = pathlib.Path(plan.corpus.output, step.options.name)
    record, settings = folder / "record.json", settings_of(plan, step)
    files = [
        folder.with_name(f"{folder.name}.{language}.gz")
        for language in plan.corpus.languages
    ]
    if all(path.exists() for path in (record, *files)):
        with flags.user_errors():
            before = read_checked_json(record, FORMAT_VERSION)
        if before["settings"] == settings:
            flags.show(f"{folder} is finished already")
            return before
    start = time.monotonic()
    parts = [
        translate(plan, step, folder, model, options)
        for model in step.options.models
    ]
    record.unlink(missing_ok=True)
    pair_filter = PairFilter(
        plan.filters, originals, are_replaced=are_replaced(plan)
    )
    counts = write_pairs(step.options, parts, pair_filter, files)
    counts["minutes"] = round((time.monotonic() - start) / 60, 2)
    counts |= {"settings": settings, "format_version": FORMAT_VERSION}
    made = with_checksum(counts)
    write_json(record, made)
    return made


def are_replaced(plan: Plan) -> bool:
    """Returns whether distilled pairs replace the original ones."""
    return any(step.options.kind == "distillation" for step in plan.steps)


def settings_of(plan: Plan, step: Step) -> Record:
    """Returns the settings that determine the pairs of a step, as JSON."""
    files: list[str | os.PathLike] = list(step.options.text)
    files += sum(plan.corpus.find_files().values(), [])
    settings = {
        **dataclasses.asdict(step.options),
        **step.decoding,
        "filters": dataclasses.asdict(plan.filters),
        "are_replaced": are_replaced(plan),
        "files": list(map(describe_file, files)),
    }
    return json.loads(json.dumps(settings))


def translate(
    plan: Plan,
    step: Step,
    folder: pathlib.Path,
    model: tuple[str, int, str],
    options: SearchDeviceOptions,
) -> "Part":
    """Translates the lines of a step with a model of `StepOptions.models`.

    Finished shards are not translated again.
    """
    direction, number, workdir = model
    order = ORDERS[direction]
    lines = folder / f"{direction}.txt"
    if number == 1:  # the direction's other models translate the same lines
        files = list(map(pathlib.Path, step.options.text))
        if step.options.kind != "back_translation":
            language = plan.corpus.languages[::order][0]
            files = plan.corpus.find_files()[language] + files
        with flags.user_errors():
            write_distinct_lines(files, lines)
    choice = choose_model(
        options, step, workdir, plan.corpus.languages[::order]
    )
    translator = open_translator(choice)
    shards = translate_file(
        translator,
        lines,
        folder / f"{direction}_{number}",
        shard_lines=SHARD_LINES,
        n_best=1,
        seed=_seed(folder.name) if translator.decoding.sampling else 0,
        confidence=plan.filters.min_confidence is not None,
    )
    with flags.user_errors():
        paths = shards.check_shards()
    return Part(
        *(order, lines, paths, translator.tokenizer, translator.decoding),
        has_confidence=plan.filters.min_confidence is not None,
    )


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())


def write_distinct_lines(
    paths: Sequence[pathlib.Path], target: pathlib.Path
) -> None:
    """Writes the distinct lines of files, without blank ones."""

    def read() -> Iterator[str]:
        for path in paths:
            yield from read_lines(path)

    hashes = cleaning.hash_pairs((line, "") for line in read())
    is_new = cleaning.find_new(hashes, np.empty(0, "<u8"))
    number = 0
    with new_text_file(target) as file:
        for line in filter(None, itertools.compress(read(), is_new)):
            file.write(f"{line}\n".encode())
            number += 1
        expect(number, "lines", f"none in {paths[0]}")
    flags.show(f"{target}: {number:,} distinct lines of {len(hashes):,}")


class Part(typing.NamedTuple):
    """The translations of a model.

    `order` is 1 if the lines are sources of pairs, -1 if they are targets.
    """

    order: int
    lines: pathlib.Path
    translations: list[pathlib.Path]
    tokenizer: Tokenizer | TokenizerPair
    decoding: DecodingConfig
    has_confidence: bool

    def rows(self) -> Iterator[tuple[tuple[str, str], float, float]]:
        """Yields pairs of source and target, with the translation's score.

        Also yields its probability, 1 if it is unknown.
        """
        outputs = itertools.chain.from_iterable(
            path.read_bytes().decode().split("\n")[:-1]
            for path in self.translations
        )
        for line, output in zip(read_lines(self.lines), outputs, strict=True):
            _, _, rest = output.partition(" ||| ")  # its number
            chance = "1"
            if self.has_confidence:
                rest, _, chance = rest.rpartition(" ||| ")
            text, _, score = rest.rpartition(" ||| ")
            pair = line, with_single_spaces(text)
            pair = pair if self.order > 0 else pair[::-1]
            yield pair, float(score), float(chance)

    def chunks(
        self,
    ) -> Iterator[
        tuple[tuple[tuple[str, str], ...], np.ndarray, np.ndarray, np.ndarray]
    ]:
        """Yields chunks of pairs, with the other arguments of `judge`.

        Lengths are int `[2, pairs]`, in tokens. Log-probabilities are float
        `[pairs]`, means over the tokens of a translation.
        """
        rows = self.rows()
        sides = (self.tokenizer.source, self.tokenizer.target)[:: self.order]
        while chunk := list(itertools.islice(rows, CHUNK)):
            pairs, scores, chances = zip(*chunk, strict=True)
            lengths = [
                [len(ids) for ids in side.to_ids(lines)]
                for side, lines in zip(
                    sides, zip(*pairs, strict=True), strict=True
                )
            ]
            tokens = np.array(lengths[:: self.order][1])  # of translations
            penalties = [self.decoding.penalty(int(n)) for n in tokens]
            totals = np.array(scores) * np.array(penalties)
            yield pairs, np.array(lengths), totals / tokens, np.array(chances)


def write_pairs(
    options: StepOptions,
    parts: Sequence[Part],
    pair_filter: PairFilter,
    paths: Sequence[pathlib.Path],
) -> Record:
    """Writes the pairs that pass the filter. Returns the counts for a record.

    Raises CommandError if no pair is left.
    """
    found = [
        (
            pair_filter.judge(pairs, lengths, log_probs, chances),
            cleaning.hash_pairs(pairs),
            lengths,
        )
        for part in parts
        for pairs, lengths, log_probs, chances in part.chunks()
    ]
    reasons, hashes, lengths = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*found, strict=True)
    )
    pair_filter.judge_duplicates(reasons, hashes)
    keep = reasons == cleaning.KEPT
    if not keep.any():
        raise flags.CommandError(f"step {options.name}: no pair is left")
    rows = itertools.chain.from_iterable(part.rows() for part in parts)
    with new_text_file(paths[0]) as sources, new_text_file(paths[1]) as targets:
        for number, ((source, target), *_) in enumerate(rows):
            if not keep[number]:
                continue
            if options.search == "noised_beam":
                generator = random.Random(f"{options.name} {number}")
                source = add_noise(source, generator)
            sources.write(f"{options.tag} {source}\n".lstrip().encode())
            targets.write(f"{target}\n".encode())
    dropped = collections.Counter(reasons.tolist())
    source_tokens, target_tokens = lengths[:, keep].sum(axis=1).tolist()
    return {
        "made": len(keep),
        "dropped": {name: dropped[name] for name in REASONS if dropped[name]},
        "kept": int(keep.sum()),
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
    }


def training_command(
    plan: Plan, sizes: Sequence[int], records: Mapping[str, Record]
) -> list[str]:
    """Returns a command that trains on all steps' pairs, as a list of words.

    Distilled corpora replace the original ones, which have `sizes` pairs. Until
    the last stage, about half of the pairs are back-translations.
    """
    corpora: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for step in plan.steps:
        prefix = os.path.join(plan.corpus.output, step.options.name)
        kept = records[step.options.name]["kept"]
        corpora[step.options.kind][prefix] = kept
    originals = dict(zip(plan.corpus.train_files, sizes, strict=True))
    rest = corpora["distillation"] or originals
    rest |= corpora["diversification"]
    back = corpora["back_translation"]
    languages = zip(("source", "target"), plan.corpus.languages, strict=True)
    command = ["kt-train", "--workdir=DIR"]
    command += ["--dataset=files", f"--train_files={','.join([*rest, *back])}"]
    command += [f"--{side}_language={language}" for side, language in languages]
    if back:
        share = max(1, sum(rest.values()) // len(back))
        back = {prefix: min(kept, share) for prefix, kept in back.items()}
        first, last = (
            ", ".join(f"{prefix} {number}" for prefix, number in mixed.items())
            for mixed in (rest | back, rest)
        )
        command += [f"--mixture={first}, until {MIXED_EPOCHS}; {last}"]
    symbols = {step.options.tag for step in plan.steps} - {""}
    if any(step.options.search == "noised_beam" for step in plan.steps):
        symbols.add(FILLER)
    if symbols:
        command += [f"--vocabulary_symbols={','.join(sorted(symbols))}"]
    return command


def table(records: Mapping[str, Record]) -> list[str]:
    """Formats the counts of each step as lines."""
    lines: list[str] = []
    for name, record in records.items():
        kept = record["kept"]
        tokens = [
            record[f"{side}_tokens"] / kept for side in ("source", "target")
        ]
        lines += [
            f"{name}: {record['minutes']:.1f} minutes",
            f"{record['made']:>15,} translations",
            *(
                f"{-number:>15,} with {REASONS[reason]} ({reason})"
                for reason, number in record["dropped"].items()
            ),
            f"{kept:>15,} pairs kept, {tokens[0]:.1f} source and"
            f" {tokens[1]:.1f} target tokens a line",
        ]
    return lines
