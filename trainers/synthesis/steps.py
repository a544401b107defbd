"""The steps of a plan, one after the other: the work of `trainers.synthesize`.

NAME.en.gz, NAME.de.gz    the pairs of a step
NAME/record.json          its settings and counts; written last
NAME/backward.txt         the lines that models of a direction translate
NAME/backward_1/ ...      translations of the first of these models, as
                          `trainers/bulk/plan.py` describes them
report.json               all counts, and the command of the training
"""

import collections
import contextlib
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

import keras
import numpy as np

from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.data import cleaning
from keras_transformer.data.pairs import (
    find_file,
    read_lines,
    read_parallel_files,
    with_single_spaces,
)
from keras_transformer.data.shards import read_json
from keras_transformer.decoding.rules import length_penalty
from keras_transformer.workdir import WorkDirectory
from trainers.bulk.collection import new_file
from trainers.bulk.translation import translate_file
from trainers.preparing.folder import describe_file, run_errors, write_json
from trainers.run.config import DataConfig
from trainers.run.inheritance import UNKNOWN_LANGUAGES
from trainers.run.translating import CHUNK, load_translator
from trainers.synthesis.pairs import (
    FILLER,
    REASONS,
    PairFilter,
    add_noise,
)

SHARD_LINES = 10_000  # of which a killed command translates some again
MIXED_EPOCHS = 10  # with back-translations, if the user does not change it


def run(plan, arguments):
    """Makes the pairs of all steps that are not there yet.

    Args:
        plan: The `Plan`.
        arguments: The command line, with options of translators.
    """
    output = pathlib.Path(plan.corpus.output)
    with flags.user_errors():
        check_directions(plan)
        originals = read_parallel_files(
            list(plan.corpus.train_files), *plan.corpus.languages
        )
    with run_errors(output):
        records = {
            step.options.name: make_step(plan, step, originals, arguments)
            for step in plan.steps
        }
        command = training_command(plan, originals.sizes, records)
        report = {"steps": records, "command": command}
        write_json(output / "report.json", report)
    flags.show(*table(records), "To train on them, with your other flags:")
    flags.show(shlex.join(command))


def check_directions(plan):
    """Each model must translate from and into the languages of the plan."""
    for number, step in enumerate(plan.steps, 1):
        for direction, _, workdir in step.options.models:
            expected = languages_of(plan, direction)
            data = WorkDirectory(workdir).read_section("data", DataConfig)
            found = data.source_language, data.target_language
            if found not in (expected, UNKNOWN_LANGUAGES):
                raise ValueError(
                    f"step {number}: {direction} must be models from"
                    f" {' to '.join(expected)}. Received: {workdir}, from"
                    f" {' to '.join(found)}"
                )


def languages_of(plan, direction):
    """The languages that a model of a direction translates from and into."""
    order = 1 if direction == "forward" else -1
    return plan.corpus.languages[::order]


def make_step(plan, step, originals, arguments):
    """The record of a step, whose pairs are made unless they are there."""
    name = step.options.name
    folder = pathlib.Path(plan.corpus.output) / name
    record, settings = folder / "record.json", settings_of(plan, step)
    files = [
        folder.with_name(f"{name}.{language}.gz")
        for language in plan.corpus.languages
    ]
    if all(path.exists() for path in (record, *files)):
        before = read_json(record)
        if before["settings"] == settings:
            flags.show(f"{name} is finished already")
            return before
    start = time.monotonic()
    flags.show(f"{name}: {step.options.kind}")
    parts = list(translate(plan, step, folder, arguments))
    record.unlink(missing_ok=True)
    counts = write_pairs(
        step, parts, PairFilter(plan.filters, originals), files
    )
    minutes = round((time.monotonic() - start) / 60, 2)
    made = {**counts, "minutes": minutes, "settings": settings}
    write_json(record, made)
    return made


def settings_of(plan, step):
    """All that determines the pairs of a step: values by name."""
    paths = [
        find_file(prefix, language)
        for prefix in plan.corpus.train_files
        for language in plan.corpus.languages
    ]
    values = {
        **dataclasses.asdict(step.options),
        **step.decoding,
        "filters": dataclasses.asdict(plan.filters),
        "files": [describe_file(path) for path in (*paths, *step.options.text)],
    }
    return json.loads(json.dumps(values))  # tuples are lists on disk


class Part(typing.NamedTuple):
    """What a model translated: lines, the files of their translations."""

    is_forward: bool
    lines: pathlib.Path
    translations: list[pathlib.Path]
    tokenizer: typing.Any
    decoding: DecodingConfig

    def rows(self):
        """Yields source, target, and the score of the translation."""
        with contextlib.ExitStack() as stack:
            files = (
                stack.enter_context(open(path, encoding="utf-8", newline="\n"))
                for path in self.translations
            )
            outputs = itertools.chain.from_iterable(files)
            for line, output in zip(
                read_lines(self.lines), outputs, strict=True
            ):
                _, _, rest = output.partition(" ||| ")  # its number
                text, _, score = rest.rpartition(" ||| ")
                pair = [line, with_single_spaces(text)]
                yield *pair[:: 1 if self.is_forward else -1], float(score)

    def chunks(self):
        """Yields pairs, and what `PairFilter.judge` needs with them."""
        rows = self.rows()
        while chunk := list(itertools.islice(rows, CHUNK)):
            *sides, scores = zip(*chunk, strict=True)
            tokenizers = [self.tokenizer.source, self.tokenizer.target]
            if not self.is_forward:
                tokenizers.reverse()
            lengths = np.array(
                [
                    [len(ids) for ids in tokenizer.to_ids(side)]
                    for tokenizer, side in zip(tokenizers, sides, strict=True)
                ]
            )
            tokens = lengths[int(self.is_forward)]  # of the translations
            penalty = length_penalty(self.decoding, tokens)
            log_probs = scores * keras.ops.convert_to_numpy(penalty) / tokens
            yield list(zip(*sides, strict=True)), lengths, log_probs


def translate(plan, step, folder, arguments):
    """Yields the `Part` of each model, translated unless it is there."""
    for direction, number, workdir in step.options.models:
        source, _ = languages_of(plan, direction)
        lines = folder / f"{direction}.txt"
        write_distinct_lines(
            step.options.text
            or [
                find_file(prefix, source) for prefix in plan.corpus.train_files
            ],
            lines,
        )
        given = {**arguments.given, **step.decoding, "workdir": workdir}
        translator = load_translator(flags.Arguments(given))
        shards = translate_file(
            translator,
            lines,
            folder / f"{direction}_{number}",
            shard_lines=SHARD_LINES,
            n_best=1,
            seed=zlib.crc32(folder.name.encode()),
        )
        with flags.user_errors():
            translations = shards.check_shards()
        yield Part(
            direction == "forward",
            lines,
            translations,
            translator.tokenizer,
            translator.decoding,
        )


def write_distinct_lines(paths, target):
    """Writes each line of some files once, blank ones not at all."""

    def read():
        return itertools.chain.from_iterable(
            read_lines(pathlib.Path(path)) for path in paths
        )

    hashes = cleaning.hash_pairs((line, "") for line in read())
    is_new = cleaning.find_new(hashes, np.empty(0, "<u8"))
    number = 0
    with new_file(target) as file:
        for line in filter(None, itertools.compress(read(), is_new)):
            file.write(f"{line}\n".encode())
            number += 1
    flags.show(f"{target}: {number:,} distinct lines of {len(hashes):,}")


def write_pairs(step, parts, pair_filter, paths):
    """Writes the pairs that are left; the counts of a record."""
    found = [
        (
            pair_filter.judge(pairs, *numbers),
            numbers[0],
            cleaning.hash_pairs(pairs),
        )
        for part in parts
        for pairs, *numbers in part.chunks()
    ]
    reasons, lengths, hashes = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*found, strict=True)
    )
    pair_filter.judge_duplicates(reasons, hashes)
    keep = reasons == cleaning.KEPT
    if not keep.any():
        raise flags.CommandError(f"step {step.options.name}: no pair is left")
    rows = itertools.chain.from_iterable(part.rows() for part in parts)
    with new_file(paths[0]) as sources, new_file(paths[1]) as targets:
        for number, (source, target, _) in enumerate(rows):
            if not keep[number]:
                continue
            if step.options.search == "noised_beam":
                seed = f"{step.options.name} {number}"
                source = add_noise(source, random.Random(seed))
            sources.write(f"{step.tag} {source}\n".lstrip().encode())
            targets.write(f"{target}\n".encode())
    dropped = collections.Counter(reasons[~keep].tolist())
    source_tokens, target_tokens = lengths[:, keep].sum(axis=1).tolist()
    return {
        "made": len(keep),
        "dropped": {name: dropped[name] for name in REASONS if dropped[name]},
        "kept": int(keep.sum()),
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
    }


def training_command(plan, sizes, records):
    """The arguments of a command that trains on the pairs of all steps.

    Distilled corpora take the place of the original ones. As many pairs of
    back-translations as of the rest are mixed in, but not in the last epochs.

    Args:
        plan: The `Plan`.
        sizes: Pairs of each original corpus.
        records: The records of the steps, by name.
    """
    corpora = {
        "original": dict(zip(plan.corpus.train_files, sizes, strict=True))
    }
    for step in plan.steps:
        prefix = os.path.join(plan.corpus.output, step.options.name)
        kept = records[step.options.name]["kept"]
        corpora.setdefault(step.options.kind, {})[prefix] = kept
    back = corpora.pop("back_translation", {})
    if "distillation" in corpora:
        del corpora["original"]
    rest = {
        prefix: n for group in corpora.values() for prefix, n in group.items()
    }
    source, target = plan.corpus.languages
    command = [
        "python",
        "-m",
        "trainers.wmt",
        "--workdir=DIR",
        "--dataset=files",
    ]
    command += [f"--source_language={source}", f"--target_language={target}"]
    command += [f"--train_files={','.join([*rest, *back])}"]
    if back:
        share = max(1, sum(rest.values()) // len(back))
        last = ", ".join(
            f"{prefix} {number}" for prefix, number in rest.items()
        )
        first = ", ".join([last, *(f"{prefix} {share}" for prefix in back)])
        command += [f"--mixture={first}, until {MIXED_EPOCHS}; {last}"]
    symbols = {step.tag for step in plan.steps}
    if any(step.options.search == "noised_beam" for step in plan.steps):
        symbols.add(FILLER)
    if symbols := sorted(filter(None, symbols)):
        command += [f"--vocabulary_symbols={','.join(symbols)}"]
    return command


def table(records):
    """The counts of each step, as lines."""
    width = max(len("step"), *map(len, records))
    columns = ("made", "kept", "source tokens", "target tokens", "minutes")
    lines = [f"{'step':<{width}}" + "".join(f"{name:>15}" for name in columns)]
    for name, record in records.items():
        kept = record["kept"]
        cells = [f"{record['made']:,}", f"{kept:,}"]
        cells += [
            f"{record[f'{side}_tokens'] / kept:.1f} a line"
            for side in ("source", "target")
        ]
        cells.append(f"{record['minutes']:.1f}")
        lines.append(f"{name:<{width}}" + "".join(f"{c:>15}" for c in cells))
        lines += [
            f"{'':<{width}}{-number:>15,} with {REASONS[reason]} ({reason})"
            for reason, number in record["dropped"].items()
        ]
    return lines
