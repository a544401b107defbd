"""The work of `trainers.evaluate`: scores of translations, and comparisons."""

import itertools
import json
import os
import time

from keras_transformer.commands import flags
from keras_transformer.data.pairs import find_file
from keras_transformer.files import write_atomically
from keras_transformer.metrics import make_metric
from keras_transformer.workdir import WorkDirectory
from trainers.run.config import TrainingConfig
from trainers.run.options import MetricOptions, TestOptions, TranslatorOptions
from trainers.scoring import comparison
from trainers.scoring.test_sets import check_lines, read_references, read_text
from trainers.translating.lines import load_translator, read_data


def open_metric(arguments, workdir, data):
    """The metric of a command line with `MetricOptions`.

    Raises:
        ValueError: The tokenizer cannot be used.
    """
    training = workdir.read_section("training", TrainingConfig)
    options = arguments.build(
        MetricOptions, bleu_tokenizer=training.bleu_tokenizer
    )
    return make_metric(data.directions, options.bleu_tokenizer)


def read_systems(arguments, paths, sources, data):
    """The translations of the systems to compare, by path.

    A work directory, which has not translated yet, has None.

    Raises:
        ValueError: A file has another number of lines, a work directory has
            other languages, or a system is named twice.
        OSError: A file cannot be read.
    """
    if len(set(paths)) < len(paths):
        raise ValueError(
            "compare must name each system once. Received:"
            f" compare={','.join(paths)!r}"
        )
    systems: dict[str, list[str] | None] = {}
    for path in paths:
        if os.path.isdir(path):
            its = read_data(arguments, WorkDirectory(path))
            for name in ("source_language", "target_language"):
                if getattr(its, name) != getattr(data, name):
                    raise ValueError(
                        f"{path}: {name} must be {getattr(data, name)!r}, as in"
                        " the system it is compared with. Received:"
                        f" {name}={getattr(its, name)!r}"
                    )
            systems[path] = None
        else:
            systems[path] = read_text(path)
            check_lines(path, systems[path], sources)
    return systems


def files_read(data, test, others):
    """The files that the command reads, which no output may replace.

    Raises:
        FileNotFoundError: One is missing.
    """
    prefixes = test.test_files or (() if test.test_set else data.test_files)
    pairs = [
        find_file(prefix, language)
        for prefix in prefixes
        for language in (data.source_language, data.target_language)
    ]
    return [*pairs, *others]


def show_comparison(systems, arguments, sources, references, metric):
    """Shows the table of systems; returns their part of the JSON object.

    A work directory, which has None in the result of `read_systems`, translates
    now.
    """
    for path, outputs in systems.items():
        if outputs is None:
            other = load_translator(arguments, path)
            systems[path] = other.translate(sources)
    metrics = metric.metrics()
    result = comparison.compare(systems, references, metrics)
    flags.show(*comparison.table(result, list(metrics)))
    return result


def run(
    arguments: flags.Arguments, output: str | None, compare: tuple[str, ...]
) -> None:
    """Translates the test set, and shows the scores."""
    path = arguments.build(TranslatorOptions).workdir
    test = arguments.build(TestOptions)
    workdir = WorkDirectory(path)
    with flags.user_errors():
        data = read_data(arguments, workdir)
        if compare and data.tags:
            raise ValueError(
                "compare needs target_language, one of"
                f" {', '.join(data.tags)}. Received: no target_language"
            )
        directions = [data.into(language) for language in data.tags] or [data]
        by_tag = open_metric(arguments, workdir, data).by_tag
        tests = [read_references(one, test) for one in directions]
        systems = read_systems(arguments, (path, *compare), tests[0][0], data)
        if output:
            for one in directions:
                flags.check_output(output, files_read(one, test, compare))
    translator = load_translator(arguments)
    translators = [
        translator.with_source_tags([tag]) for tag in data.tags.values()
    ] or [translator]
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
        metric.measure(translations, *references)
        for metric, translations, (_, references) in zip(
            by_tag.values(), outputs, tests, strict=True
        )
    ]
    result = results[0]
    if data.tags:
        result = {
            "bleu": sum(one["bleu"] for one in results) / len(results),
            "directions": dict(zip(data.tags, results, strict=True)),
        }
    if compare:
        sources, references = tests[0]
        systems[path] = outputs[0]
        result["compare"] = show_comparison(
            systems, arguments, sources, references, by_tag[""]
        )
    flags.show(json.dumps({**result, "seconds": round(seconds, 3)}))
