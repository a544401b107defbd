"""The work of `kt-evaluate`: scoring translations and comparing systems."""

import dataclasses
import itertools
import json
import os
import time
import typing
from collections.abc import Sequence

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.data.files.pairs import find_file
from keras_transformer.data.languages import prefixes_with, shortened
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.metrics import (
    TranslationMetric,
    make_metric,
    sentence_chrf,
)
from keras_transformer.translation.results import warn_of_notes
from trainers.datasets.dataset import find_dataset, to_translate
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig
from trainers.scoring import comparison
from trainers.scoring.options import MetricOptions, TestOptions
from trainers.scoring.score_command import parse_command, run_command
from trainers.scoring.test_sets import (
    check_lines,
    read_data,
    read_pairs,
    read_references,
    read_text,
)
from trainers.translating.lines import open_translator, search
from trainers.translating.options import TranslatorChoice

# The translations of each system, by its path; None if they are not made yet.
Systems = dict[str, list[str] | None]


class Direction(typing.NamedTuple):
    """The test pairs of one direction."""

    languages: tuple[str, str]
    data: DataConfig
    sources: list[str]
    references: list[list[str]]  # a list for each reference
    metric: TranslationMetric


def bleu_tokenizer_of(workdir: str, options: MetricOptions) -> str:
    """Returns sacreBLEU's tokenizer from the options, else from training."""
    training = WorkDirectory(workdir).read_section("training", TrainingConfig)
    return options.bleu_tokenizer or training.bleu_tokenizer


def read_directions(
    data: DataConfig, test: TestOptions, tokenizer: str
) -> list[Direction]:
    """Reads the test pairs of each direction.

    Of several directions, only those that have test files are read.
    """
    pairs = data.pairs
    if len(pairs) > 1 and not test.test_set:
        files = test.test_files or data.test_files
        pairs = data.pairs_in(*files) or pairs[:1]
    found = []
    for pair in pairs:
        own = data.of_direction(*pair)
        rows = read_references(own, _with_files_of(test, pair, data.pairs))
        metric = TranslationMetric(pair[1], tokenizer)
        found.append(Direction(pair, own, *rows, metric))
    return found


def check_single(directions: Sequence[Direction], option: str) -> None:
    """Raises ValueError if there are several directions; `option` needs one."""
    if len(directions) > 1:
        pairs = [one.languages for one in directions]
        needed, among = "target_language", [target for _, target in pairs]
        if len(dict(pairs)) > 1:  # several sources
            needed, among = f"source_language and {needed}", _names(pairs)
        raise ValueError(
            f"{option} needs {needed}, one of {shortened(among)}, if there are"
            f" several directions. Received: {len(pairs)}"
        )


def _with_files_of(
    test: TestOptions, pair: tuple[str, str], pairs: Sequence[tuple[str, str]]
) -> TestOptions:
    """Leaves out the test files that lack one of a pair's languages.

    `pairs` are the model's directions. If there is only one, all files are
    kept. Raises OSError if a file has none of the directions.
    """
    if len(pairs) == 1:
        return test
    for prefix in test.test_files:
        if not any(prefixes_with([prefix], *codes) for codes in pairs):
            for code in pair:
                find_file(prefix, code)  # the error names the file
    files = prefixes_with(test.test_files, *pair)
    return dataclasses.replace(test, test_files=files or test.test_files)


def read_systems(
    choice: TranslatorChoice, compare: Sequence[str], direction: Direction
) -> Systems:
    """Reads the translations of the systems to compare; None for models.

    The first of `compare` is the baseline and comes first, then the model of
    `choice`. An element is a file of translations or a work directory.

    Raises ValueError if a path is repeated, if a file does not have one line
    per test pair, or if a model has other languages.
    """
    paths = *compare[:1], choice.options.workdir, *compare[1:]
    expect(
        len(set(paths)) == len(paths),
        "each system once in compare",
        compare=",".join(paths),
    )
    systems: Systems = dict.fromkeys(paths)
    for path in compare:
        if not os.path.isdir(path):
            lines = systems[path] = read_text(path)
            check_lines(path, lines, direction.sources)
            continue
        its = read_data(path, choice.languages)
        for name in ("source_language", "target_language"):
            language = getattr(its, name)
            expect(
                language == getattr(direction.data, name),
                f"the {name} of the system it is compared with,"
                f" {getattr(direction.data, name)!r}",
                f"{name}={language!r}",
                where=path,
            )
        choice.at(path).check()
    return systems


def files_read(
    data: DataConfig, test: TestOptions, others: Sequence[str]
) -> list[typing.Any]:
    """Lists the files that the command reads, which no output may overwrite."""
    if test.test_set:
        return [*others]
    if test.test_files:
        data = data.with_files(test.test_files)
    return [*find_dataset(data.dataset).find_files(data, "test"), *others]


def show_comparison(
    systems: Systems, choice: TranslatorChoice, direction: Direction
) -> dict[str, typing.Any]:
    """Translates with the models among `systems`, and shows the table.

    Returns the `compare` part of the JSON object.
    """
    found = {}
    for path, outputs in systems.items():
        if outputs is None:
            translator = open_translator(choice.at(path))
            outputs = translator.translate(direction.sources)
        found[path] = outputs
    metrics = direction.metric.metrics()
    result = comparison.compare(found, direction.references, metrics)
    flags.show(*comparison.table(result, list(metrics)))
    return result


def measure(
    directions: Sequence[Direction],
    outputs: Sequence[list[str]],
    names: Sequence[str],
) -> dict[str, typing.Any]:
    """Scores the outputs of each direction.

    With several directions, returns the mean BLEU and the scores by name.
    """
    results = [
        one.metric.measure(translations, *one.references)
        for one, translations in zip(directions, outputs, strict=True)
    ]
    if len(results) == 1:
        return results[0]
    return {
        "bleu": sum(float(one["bleu"]) for one in results) / len(results),
        "directions": dict(zip(names, results, strict=True)),
    }


def run(
    choice: TranslatorChoice,
    test: TestOptions,
    metric: MetricOptions,
    references: tuple[str, ...],
    output: str | None,
    compare: tuple[str, ...],
    score_command: str | None,
    confidence: bool,
    confidence_plot: str | None,
) -> None:
    """Translates the test set and shows the scores."""
    path = choice.options.workdirs[0]
    with flags.user_errors():
        command = parse_command(score_command) if score_command else []
        data = read_data(path, choice.languages)
        choice.read_search().check_one_output()
        tokenizer = bleu_tokenizer_of(path, metric)
        directions = read_directions(data, test, tokenizer)
        if compare or command:
            check_single(directions, "compare" if compare else "score_command")
        if confidence_plot:
            flags.check_output(confidence_plot)
        for file in references:
            check_single(directions, "references")
            stream = read_text(file)
            check_lines(file, stream, directions[0].sources)
            directions[0].references.append(stream)
        systems = read_systems(choice, compare, directions[0])
        if output:
            for one in directions:
                own = _with_files_of(test, one.languages, data.pairs)
                read = files_read(one.data, own, compare + references)
                flags.check_output(output, read)
    translator = open_translator(choice._replace(languages=None))
    into = [translator.with_languages(*one.languages) for one in directions]
    with flags.user_errors():
        assessors: list = [
            its.assessor() if confidence else None for its in into
        ]
        if confidence_plot:
            assessors[0].check_figure(confidence_plot)
    started = time.monotonic()
    outputs: list[list[str]] = []
    assessed: list = []
    for its, assessor, one in zip(into, assessors, directions, strict=True):
        found, assessments = search(its, one.sources, assessor)
        warn_of_notes(found)
        outputs.append([translation.texts[0] for translation in found])
        assessed += assessments
    seconds = time.monotonic() - started
    if output:
        with flags.user_errors():
            lines = itertools.chain.from_iterable(outputs)
            write_atomically(output, "".join(f"{line}\n" for line in lines))
    codes = [one.languages for one in directions]
    names = [target for _, target in codes] if data.tags else _names(codes)
    result = measure(directions, outputs, names)
    if compare:
        systems[choice.options.workdir] = outputs[0]
        result["compare"] = show_comparison(systems, choice, directions[0])
    if confidence:
        report = assessors[0].report(assessed, _chrf(directions, outputs))
        flags.show(*report.table())
        if confidence_plot:
            report.save(confidence_plot)
        result["confidence"] = report.values
    result["seconds"] = round(seconds, 3)
    try:
        if command:
            result["score_command"] = run_command(
                command,
                source=directions[0].sources,
                output=outputs[0],
                reference=directions[0].references[0],
            )
            result["score_command_signature"] = score_command
    finally:  # the other scores are shown even if the program fails
        flags.show(json.dumps(result))


def calibrate(choice: TranslatorChoice, test: TestOptions) -> None:
    """Fits the confidence of a model, and writes it to its work directory.

    The pairs are the test files, by default the validation pairs of the data.
    """
    path = choice.options.workdirs[0]
    with flags.user_errors():
        expect(
            not WorkDirectory(path).read_package(),
            "a work directory that may be written with calibrate",
            "a packed model",
            where=path,
        )
        expect(not test.test_set, "calibrate with test_files", test.test_set)
        data = read_data(path, choice.languages)
        files = test.test_files or data.valid_files
        metric = make_metric(data.directions_in(*files), "auto")
        found = read_pairs(data, "valid", test.test_files)
        groups = to_translate(data, metric.by_direction, found)
    pairs = [pair for group in groups.values() for pair in group]
    translator = open_translator(choice._replace(languages=None))
    with flags.user_errors():
        flags.show(json.dumps(translator.calibrate(pairs).measured))


def _chrf(directions, outputs):
    """Computes the chrF of each sentence with its first reference."""
    return [
        sentence_chrf(output, reference)
        for one, translations in zip(directions, outputs, strict=True)
        for output, reference in zip(
            translations, one.references[0], strict=True
        )
    ]


def _names(pairs):
    return ["-".join(pair) for pair in pairs]
