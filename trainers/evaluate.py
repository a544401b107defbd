"""Measures a translator on sentence pairs: BLEU, chrF and TER by sacreBLEU.

    python -m trainers.evaluate --workdir=DIR --test_files=PREFIX[,PREFIX...]
    python -m trainers.evaluate --workdir=DIR --test_set=wmt14/full

Without either, the test pairs of the data set that the model was trained on are
used, if it has any. The last line is a JSON object. With --compare, a table of
the differences between systems and of their significance stands before it.
"""

import dataclasses
import json
import os
import pathlib
import time

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.startup import load_tensorflow
from trainers.config import DataConfig, TrainingConfig, same_field
from trainers.test_sets import (
    TestOptions,
    check_lines,
    read_references,
    read_text,
)
from trainers.translate import TranslatorOptions, load_translator


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The measurement."""

    output: str | None = hp(
        None, "File to write the translations to; left out: none."
    )
    bleu_tokenizer: str = same_field(TrainingConfig, "bleu_tokenizer")
    moses_prefixes: str | None = hp(
        None,
        "For BLEU of tokenized text: one of Moses' files nonbreaking_prefix.*;"
        " left out: built-in abbreviations of English, German and French.",
    )
    compare: tuple[str, ...] = hp(
        (),
        "Other systems, separated by commas: files of their translations, or"
        " work directories, which translate as --workdir does.",
    )


def read_systems(paths, sources, data):
    """The translations of the systems to compare with, by path.

    Args:
        paths: Of files or work directories.
        sources: The sentences that they translate.
        data: The `DataConfig` of the work directory that is measured.

    Returns:
        A dictionary; a work directory, which has yet to translate, has None.

    Raises:
        ValueError: A file has another number of lines, or a work directory
            has other languages; or a system is named twice.
        OSError: A file cannot be read.
    """
    from keras_transformer.workdir import WorkDirectory  # see `main`

    if len(set(paths)) < len(paths):
        raise ValueError(
            "compare must name each system once. Received:"
            f" compare={','.join(paths)!r}"
        )
    systems: dict[str, list[str] | None] = {}
    for path in paths:
        if os.path.isdir(path):
            its = WorkDirectory(path).read_section("data", DataConfig)
            for name in ("source_language", "target_language"):
                if getattr(its, name) != getattr(data, name):
                    raise ValueError(
                        f"{path}: {name} must be {getattr(data, name)!r}, that"
                        " of the system it is compared with. Received:"
                        f" {name}={getattr(its, name)!r}"
                    )
            systems[path] = None
        else:
            systems[path] = read_text(path)
            check_lines(path, systems[path], sources)
    return systems


def check_output(path):
    """Finds out before the work whether a file can be written.

    Raises:
        ValueError: It is a directory, or there is none for it, or it may not be
            written.
    """
    directory = os.path.dirname(path) or "."
    target = path if os.path.exists(path) else directory
    if os.path.isdir(path) or not os.path.isdir(directory):
        problem = "is no file in a directory that exists"
    elif not os.access(target, os.W_OK):
        problem = "cannot be written"
    else:
        return
    raise ValueError(f"output={path!r} {problem}")


def write_output(path, lines):
    """Writes translations; a regular file appears when it is complete."""
    from keras_transformer.workdir import write_atomically  # see `main`

    text = "".join(line + "\n" for line in lines)
    if os.path.exists(path) and not os.path.isfile(path):  # /dev/stderr
        pathlib.Path(path).write_text(text, encoding="utf-8")
    else:
        write_atomically(os.path.realpath(path), text)


def show_comparison(name, systems, arguments, sources, references, metric):
    """Prints the table of systems; returns what the JSON says of them.

    Args:
        name: Of the baseline.
        systems: Translations by path, the baseline's among them; None: of a
            work directory, which translates now.
        arguments: The command line.
        sources, references: The test set.
        metric: The `TranslationMetric`.
    """
    from trainers import comparison  # see `main`

    for path, outputs in systems.items():
        if outputs is None:
            other = load_translator(arguments, path)
            systems[path] = other.translate(sources)
    metrics = metric.metrics()
    result = comparison.compare(
        [comparison.System(*system) for system in systems.items()],
        references,
        metrics,
    )
    print(*comparison.table(result, list(metrics)), sep="\n")
    return result


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.evaluate"):
        arguments = flags.parse(
            argv,
            __doc__,
            TranslatorOptions,
            TestOptions,
            Options,
            DecodingConfig,
        )
        arguments.build(Options)  # refused now, if it is wrong
        test = arguments.build(TestOptions)
        path = arguments.build(TranslatorOptions).workdir
        load_tensorflow()
        # Imported here, since they import TensorFlow, which takes seconds:
        # wrong flags are refused, and help is shown, before.
        from keras_transformer.workdir import WorkDirectory
        from trainers.evaluation import TranslationMetric

        workdir = WorkDirectory(path)
        with flags.user_errors():
            training = workdir.read_section("training", TrainingConfig)
            data = workdir.read_section("data", DataConfig)
        options = arguments.build(
            Options, bleu_tokenizer=training.bleu_tokenizer
        )
        with flags.user_errors():
            metric = TranslationMetric(
                data.target_language,
                options.bleu_tokenizer,
                options.moses_prefixes,
            )
            sources, references = read_references(data, test)
            systems = read_systems((path, *options.compare), sources, data)
            if options.output:
                check_output(options.output)
        translator = load_translator(arguments)
        started = time.monotonic()
        systems[path] = translations = translator.translate(sources)
        seconds = time.monotonic() - started
        if options.output:
            with flags.user_errors():
                write_output(options.output, translations)
        result = metric.measure(translations, *references)
        if options.compare:
            result["compare"] = show_comparison(
                path, systems, arguments, sources, references, metric
            )
    print(json.dumps({**result, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main()
