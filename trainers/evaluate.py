"""Measures a translator on sentence pairs: BLEU, chrF and TER by sacreBLEU.

    python -m trainers.evaluate --workdir=DIR --test_files=PREFIX[,PREFIX...]
    python -m trainers.evaluate --workdir=DIR --test_set=wmt14/full
    python -m trainers.evaluate --workdir=DIR --tune [--save]

Without either, the test pairs of the data set that the model was trained on are
used, if it has any. The last line is a JSON object. With --compare, a table of
the differences between systems and of their significance stands before it.

With --tune, beam size and length penalty are chosen by the score of the
validation pairs; with --save, the work directory keeps them.
"""

import dataclasses
import json
import os
import time
import typing
from collections.abc import Callable, Sequence

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, check_values, hp
from trainers.run.config import DataConfig, TrainingConfig, same_field
from trainers.scoring.test_sets import (
    TestOptions,
    check_lines,
    read_references,
    read_text,
)
from trainers.translate import (
    TranslatorOptions,
    load_tensorflow_for,
    load_translator,
)

LENGTH_PENALTIES = tuple(tenths / 10 for tenths in range(0, 21, 2))


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
        " work directories, which translate as --workdir does; if --checkpoint"
        " is a path, with the first checkpoint of averaged, best, latest.",
    )
    tune: bool = hp(
        False,
        "Choose beam_size and length_penalty by the score of the validation"
        " pairs, those of the training or of --valid_files.",
    )
    beam_sizes: tuple[str, ...] = hp(
        (), "With tune: beam sizes to try; left out: that of the search."
    )
    length_penalties: tuple[str, ...] = hp(
        (), "With tune: length penalties to try; left out: 0, 0.2, ... 2."
    )
    valid_files: tuple[str, ...] = hp(
        (), "With tune: prefixes of other validation pairs."
    )
    save: bool = hp(
        False, "With tune: make the choice the work directory's default."
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("beam_sizes", "length_penalties", "valid_files", "save"):
            value = getattr(self, name)
            if value and not self.tune:
                raise ValueError(
                    f"{name} needs tune. Received: {name}={value}, no tune"
                )
        for name in ("output", "compare"):
            value = getattr(self, name)
            if value and self.tune:
                raise ValueError(
                    "with tune, validation pairs are translated with many"
                    f" options: {name} needs one. Received: {name}={value!r}"
                )
        self.tuning_grid()

    def tuning_grid(self) -> tuple[list[int], list[float]]:
        """Beam sizes and length penalties to try, as numbers.

        Raises:
            ValueError: One is no number, or none that a search can have.
        """
        beam_sizes = read_numbers("beam_sizes", self.beam_sizes, int)
        for beam_size in beam_sizes:
            check_values(DecodingConfig, beam_size=beam_size)
        penalties = read_numbers(
            "length_penalties", self.length_penalties, float
        )
        for length_penalty in penalties:
            check_values(DecodingConfig, length_penalty=length_penalty)
        return beam_sizes, penalties or list(LENGTH_PENALTIES)


Number = typing.TypeVar("Number", int, float)


def read_numbers(
    name: str, texts: Sequence[str], kind: Callable[[str], Number]
) -> list[Number]:
    """The numbers of a flag that is a list.

    Raises:
        ValueError: One of them is no number of that kind.
    """
    try:
        return [kind(text) for text in texts]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(
            f"{name} must be {what}, separated by commas."
            f" Received: {name}={','.join(texts)!r}"
        ) from None


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


def files_read(data, test, options):
    """The files of a test set and of systems, which no output may replace.

    Args:
        data: The `DataConfig` of the work directory.
        test: The `TestOptions`.
        options: The `Options`.

    Raises:
        FileNotFoundError: One is missing.
    """
    from keras_transformer.data.pairs import find_file  # see `main`

    prefixes = test.test_files or (() if test.test_set else data.test_files)
    pairs = [
        find_file(prefix, language)
        for prefix in prefixes
        for language in (data.source_language, data.target_language)
    ]
    others = [options.moses_prefixes] if options.moses_prefixes else []
    return [*pairs, *options.compare, *others]


def show_comparison(name, systems, arguments, sources, references, metric):
    """Shows the table of systems; returns what the JSON says of them.

    Args:
        name: Of the baseline.
        systems: Translations by path, the baseline's among them; None: of a
            work directory, which translates now.
        arguments: The command line.
        sources, references: The test set.
        metric: The `TranslationMetric`.
    """
    from trainers.scoring import comparison  # see `main`

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
    flags.show(*comparison.table(result, list(metrics)))
    return result


def read_valid_pairs(data, valid_files):
    """The validation pairs of a work directory, or those of other files.

    Raises:
        ValueError: There are none, or they cannot be read.
        OSError: Likewise.
    """
    from trainers.run.corpora import read_split  # see `main`

    if valid_files:
        data = dataclasses.replace(
            data,
            dataset="files",
            train_files=valid_files,
            valid_files=valid_files,
        )
    pairs = list(read_split(data, "valid"))
    if not pairs:
        raise ValueError("expected --valid_files=PREFIX. Received: none")
    return pairs


def tune(arguments, options, data, metric, workdir):
    """Chooses the options of the search; what the last line says of it.

    Args:
        arguments: The command line.
        options: The `Options`.
        data: The `DataConfig` of the work directory.
        metric: The `TranslationMetric`.
        workdir: The `WorkDirectory`.
    """
    from trainers.scoring import tuning  # see `main`

    with flags.user_errors():
        pairs = read_valid_pairs(data, options.valid_files)
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    translator = load_translator(arguments)
    if translator.decoding.sampling:
        raise flags.CommandError(
            "tune needs a search, whose output is the same every time."
            " Received: sampling=True"
        )
    beam_sizes, length_penalties = options.tuning_grid()
    trials = tuning.try_options(
        translator,
        sources,
        lambda outputs: metric.score(outputs, references),
        beam_sizes or [translator.decoding.beam_size],
        length_penalties,
    )
    flags.show(*tuning.table(trials, metric.label))
    best = tuning.best_of(trials)
    own = (translator.decoding.beam_size, translator.decoding.length_penalty)
    [before] = [trial for trial in trials if trial[:2] == own]
    if options.save:
        kept = workdir.read_section("decoding", DecodingConfig)
        with flags.user_errors():
            tuning.save_decoding(workdir, tuning.changed(kept, best))

    def spelled(trial):
        return {
            "beam_size": trial.beam_size,
            "length_penalty": trial.length_penalty,
            metric.key: trial.score,
        }

    return {
        **spelled(best),
        "before": spelled(before),
        "saved": options.save,
        "sentences": len(sources),
    }


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
        given = arguments.build(Options)  # refused now, if it is wrong
        test = arguments.build(TestOptions)
        if given.tune and (test.test_files or test.test_set):
            raise flags.CommandError(
                "tune chooses by validation pairs, not by those of a test:"
                " expected --valid_files, or none. Received:"
                f" test_files={','.join(test.test_files)!r},"
                f" test_set={test.test_set!r}"
            )
        flags.check_streams("stdout")
        path = load_tensorflow_for(arguments).workdir
        # Imported here, since they import TensorFlow, which takes seconds:
        # wrong flags are refused, and help is shown, before.
        from keras_transformer.workdir import WorkDirectory, write_atomically
        from trainers.scoring.metrics import TranslationMetric

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
        started = time.monotonic()
        if options.tune:
            result = tune(arguments, options, data, metric, workdir)
            seconds = time.monotonic() - started
            flags.show(json.dumps({**result, "seconds": round(seconds, 3)}))
            return
        with flags.user_errors():
            sources, references = read_references(data, test)
            systems = read_systems((path, *options.compare), sources, data)
            if options.output:
                read = files_read(data, test, options)
                flags.check_output(options.output, read)
        translator = load_translator(arguments)
        started = time.monotonic()
        systems[path] = translations = translator.translate(sources)
        seconds = time.monotonic() - started
        if options.output:
            with flags.user_errors():
                lines = "".join(line + "\n" for line in translations)
                write_atomically(options.output, lines)
        result = metric.measure(translations, *references)
        if options.compare:
            result["compare"] = show_comparison(
                path, systems, arguments, sources, references, metric
            )
        flags.show(json.dumps({**result, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main()
