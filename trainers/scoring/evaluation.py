"""The work of `kt-evaluate`: scores of translations, and comparisons."""

import dataclasses
import itertools
import json
import os
import time
import typing
from collections.abc import Mapping, Sequence

from keras_transformer.commands import flags
from keras_transformer.data.languages import prefixes_with, shortened
from keras_transformer.data.pairs import find_file
from keras_transformer.files import write_atomically
from keras_transformer.metrics import TranslationMetric
from keras_transformer.workdir import WorkDirectory
from trainers.datasets.dataset import find_dataset
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig
from trainers.scoring import comparison
from trainers.scoring.options import MetricOptions, TestOptions
from trainers.scoring.score_command import parse_command, run_command
from trainers.scoring.test_sets import (
    check_lines,
    read_data,
    read_references,
    read_text,
)
from trainers.translating.lines import check_one_output, open_translator
from trainers.translating.options import LanguageOptions, TranslatorChoice


def bleu_tokenizer_of(workdir: str, options: MetricOptions) -> str:
    """The tokenizer of the options, else of the training."""
    training = WorkDirectory(workdir).read_section("training", TrainingConfig)
    return options.bleu_tokenizer or training.bleu_tokenizer


def read_systems(
    paths: Sequence[str],
    languages: LanguageOptions | None,
    sources: Sequence[str],
    data: DataConfig,
) -> dict[str, list[str] | None]:
    """The translations of the systems to compare, by path.

    A work directory, which has not translated yet, has None. The first path is
    the system's, or its models'. Lines and languages must be the
    sources', names distinct.
    """
    if len(set(paths)) < len(paths):
        raise ValueError(
            "compare must name each system once. Received:"
            f" compare={','.join(paths)!r}"
        )
    systems: dict[str, list[str] | None] = {paths[0]: None}
    for path in paths[1:]:
        if os.path.isdir(path):
            its = read_data(path, languages)
            for name in ("source_language", "target_language"):
                if getattr(its, name) != getattr(data, name):
                    raise ValueError(
                        f"{path}: {name} must be {getattr(data, name)!r}, as in"
                        " the system it is compared with. Received:"
                        f" {name}={getattr(its, name)!r}"
                    )
            systems[path] = None
        else:
            lines = systems[path] = read_text(path)
            check_lines(path, lines, sources)
    return systems


def files_read(
    data: DataConfig, test: TestOptions, others: Sequence[str]
) -> list[typing.Any]:
    """The files that the command reads, which no output may replace."""
    if test.test_files:
        data = data.with_files(test.test_files)
    if test.test_set:
        return [*others]
    return [*find_dataset(data.dataset).find_files(data, "test"), *others]


def show_comparison(
    systems: Mapping[str, list[str] | None],
    choice: TranslatorChoice,
    sources: list[str],
    references: Sequence[Sequence[str]],
    metric: TranslationMetric,
) -> dict[str, typing.Any]:
    """Shows the table of systems; returns their part of the JSON object.

    A work directory, which has None in the result of `read_systems`, translates
    now.
    """
    found = {}
    for path, outputs in systems.items():
        if outputs is None:
            outputs = open_translator(choice.at(path)).translate(sources)
        found[path] = outputs
    metrics = metric.metrics()
    result = comparison.compare(found, references, metrics)
    flags.show(*comparison.table(result, list(metrics)))
    return result


def _with_files_of(
    test: TestOptions, pair: tuple[str, str], pairs: Sequence[tuple[str, str]]
) -> TestOptions:
    """The test set without the files that lack one of two languages.

    A file that has no direction of the model is an error, and any missing file
    if the model has a single direction.
    """
    if len(pairs) == 1:
        return test
    for prefix in test.test_files:
        if not any(prefixes_with([prefix], *codes) for codes in pairs):
            for code in pair:
                find_file(prefix, code)  # the error names the file
    files = prefixes_with(test.test_files, *pair)
    return dataclasses.replace(test, test_files=files or test.test_files)


def run(
    choice: TranslatorChoice,
    test: TestOptions,
    metric: MetricOptions,
    output: str | None,
    compare: tuple[str, ...],
    score_command: str | None,
) -> None:
    """Translates the test set, and shows the scores."""
    path, languages = choice.options.workdir, choice.languages
    first = choice.options.workdirs[0]
    with flags.user_errors():
        command = parse_command(score_command) if score_command else []
        data = read_data(first, languages)
        check_one_output(choice.read_search())
        codes = data.pairs
        if data.language_tokens and not test.test_set:  # those with files
            files = test.test_files or data.test_files
            codes = data.pairs_in(*files) or codes[:1]
        if (compare or command) and len(codes) > 1:
            needed, among = "target_language", [pair[1] for pair in codes]
            if len(dict(codes)) > 1:  # several sources
                needed = f"source_language and {needed}"
                among = ["-".join(pair) for pair in codes]
            raise ValueError(
                f"{'compare' if compare else 'score_command'} needs {needed},"
                f" one of {shortened(among)}, if there are several directions."
                f" Received: {len(codes)}"
            )
        directions = [data.of_direction(*pair) for pair in codes]
        tokenizer = bleu_tokenizer_of(first, metric)
        metrics = [TranslationMetric(target, tokenizer) for _, target in codes]
        tests = [
            read_references(one, _with_files_of(test, pair, data.pairs))
            for one, pair in zip(directions, codes, strict=True)
        ]
        systems = read_systems((path, *compare), languages, tests[0][0], data)
        for other in compare:
            if systems[other] is None:
                choice.at(other).check()
        if output:
            for one in directions:
                flags.check_output(output, files_read(one, test, compare))
    translator = open_translator(choice._replace(languages=None))
    translators = [translator.with_languages(*pair) for pair in codes]
    started = time.monotonic()
    outputs = [
        into.translate(sources)
        for into, (sources, _) in zip(translators, tests, strict=True)
    ]
    seconds = time.monotonic() - started
    if output:
        with flags.user_errors():
            lines = itertools.chain.from_iterable(outputs)
            write_atomically(output, "".join(f"{line}\n" for line in lines))
    results = [
        one.measure(translations, *references)
        for one, translations, (_, references) in zip(
            metrics, outputs, tests, strict=True
        )
    ]
    result: dict[str, typing.Any] = results[0]
    if len(codes) > 1:
        names = data.tags or ["-".join(pair) for pair in codes]
        result = {
            "bleu": sum(float(one["bleu"]) for one in results) / len(results),
            "directions": dict(zip(names, results, strict=True)),
        }
    if compare:
        sources, references = tests[0]
        systems[path] = outputs[0]
        result["compare"] = show_comparison(
            systems, choice, sources, references, metrics[0]
        )
    result["seconds"] = round(seconds, 3)
    try:
        if command:
            sources, (reference, *_) = tests[0]
            result["score_command"] = run_command(
                command, source=sources, output=outputs[0], reference=reference
            )
            result["score_command_signature"] = score_command
    finally:  # a program that fails takes no other score away
        flags.show(json.dumps(result))
