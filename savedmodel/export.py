"""Exports the translator of a work directory to run without this package.

    kt-export --workdir=DIR --format=FORMAT --output=DIR
    kt-export --workdir=runs/mine --format=saved_model \\
        --output=exports/mine
    kt-export --workdir=runs/mine --format=ctranslate2 \\
        --precision=int8 --output=exports/fast

Before the output appears under its name, a separate process runs it, and its
translations are compared with the translator's (--verify). A failed export
leaves no files. Search flags override the work directory's options. Exports are
made and verified on the CPU, which leaves GPUs to other processes.
"""

import contextlib
import dataclasses
import errno
import importlib.metadata
import itertools
import json
import logging.handlers
import os
import pathlib
import random
import sys
import typing

from absl import logging as absl_logging

import keras_transformer
from keras_transformer.base.fields import names_of
from keras_transformer.base.files import sums_of, with_checksum
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import (
    DecodingConfig,
    SearchConfig,
    TransformerConfig,
)
from keras_transformer.storage import box, card
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.vocabulary import BOS, EOS, PAD, SPECIAL_IDS, UNK
from savedmodel import publishing, verify
from savedmodel.formats import (
    FORMATS,
    Export,
    ExportOptions,
    check_model,
    check_requirements,
    describe,
    load_exporter,
    missing,
)

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

# Sentences of random pieces: their number, and the most pieces in one. "quick"
# ones are so short that the translator compiles one program for all.
WARM_UP = 8, 20
SAMPLES = {"quick": (2, 5), "full": (30, 20)}
# A sentence without tokens, and text that vocabularies treat differently.
OTHER_SAMPLES = ("", "\x85 ß\u3000>>x<< C:\\x ''☃☃ ä日本 ")
# Errors of the disk, and those caused by other processes in the same directory.
DISK_ERRORS = (*flags.DISK_ERRORS, errno.EEXIST, errno.ENOTEMPTY)
NO_ARGUMENTS = flags.Arguments({})


class SearchOptions(SearchConfig):
    """The search. Defaults: the options of the work directory."""


class Source(typing.NamedTuple):
    """A translator to export, and its origin."""

    translator: "Translator"
    warnings: list[str]  # lines that say why checkpoints were skipped
    # Source and target as in the work directory; a multilingual model has
    # several, separated by commas.
    languages: tuple[str | None, str | None]


def export(
    source: Source, options: ExportOptions, directory: pathlib.Path
) -> verify.Comparison | None:
    """Writes an export into an empty directory and verifies it.

    Returns the comparison, which passed. Returns None, with a warning, if no
    installed package runs the format, or `options.verify` is "none".

    Raises CommandError if the format does not support the model, and
    ExportError if the export does not translate as the translator does.
    """
    sentences = sentences_of(source.translator, options)
    description = write(source, options, directory)
    comparison = None
    if options.verify == "none":
        absl_logging.warning("not verified: verify=none")
    elif lacking := missing(FORMATS[options.format].verified_with):
        absl_logging.warning(
            "not verified: no module %s to run the export with",
            " or ".join(lacking),
        )
    else:
        # A shortlist depends on the batch, and the export has other batches.
        translator = source.translator.without_shortlist()
        comparison = verify.compare(
            translator, directory, sentences, options.verify == "full"
        )
        if not comparison.passed:
            raise verify.ExportError(
                f"a wrong export: verification {comparison}"
            )
    description["verification"] = str(comparison or "none")
    write_description(directory, description)
    return comparison


def write(
    source: Source, options: ExportOptions, directory: pathlib.Path
) -> dict:
    """Writes an export without verifying it. Returns its description.

    Raises CommandError if the format does not support the model.
    """
    translator = source.translator
    if len(translator.models) > 1:
        raise flags.CommandError(
            f"an export has one model. Received: {len(translator.models)}"
        )
    check_model(
        options.format,
        translator.model.config,
        translator.decoding,
        translator.languages.language_tokens,
    )
    description = make_description(source, options)
    examples = make_examples(translator, *WARM_UP)
    load_exporter(options.format).write(
        Export(translator, directory, options, description, examples)
    )
    card.write(WorkDirectory(options.workdir), directory, **metadata(options))
    description["sha256"] = sums_of(directory)
    write_description(directory, description)
    return description


def make_description(source: Source, options: ExportOptions) -> dict:
    """Returns the contents of `export.json`, for programs that run exports."""
    translator = source.translator
    source_language, target_language = source.languages
    directions = load("savedmodel.search").Directions(translator)
    ids = itertools.chain(
        *(by_code.items() for by_code in directions.ids.values())
    )
    return {
        "format": options.format,
        "precision": options.precision,
        "source_language": source_language,
        "target_language": target_language,
        # Which language's token is in each place, and the ids of all tokens.
        "language_places": directions.places,
        "language_ids": dict(ids),
        # Relative to the work directory, which may be moved.
        "checkpoint": os.path.relpath(
            translator.checkpoint or "", options.workdir
        ),
        "checkpoint_warnings": source.warnings,
        "max_source_length": translator.max_source_length,
        "max_positions": translator.model.config.position_limit,
        "vocab_size": translator.tokenizer.target.vocab_size,
        "source_vocab_size": translator.tokenizer.source.vocab_size,
        # Whether text is marked, as in `reload`, before it is segmented.
        "case_marks": translator.tokenizer.source.has_case_marks,
        "special_ids": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        "decoding": search_of(translator.decoding),
        "versions": versions(options.format),
    }


def metadata(options: ExportOptions) -> dict[str, typing.Any]:
    """Returns what only an export knows of the metadata in a model card."""
    libraries = {"huggingface": "transformers", "packed": "keras_transformer"}
    if options.format in libraries:
        return {"library_name": libraries[options.format]}
    return {"tags": [options.format]}


def write_description(directory: pathlib.Path, description: dict) -> None:
    """Writes `export.json` with a checksum."""
    path = directory / publishing.DESCRIPTION
    text = json.dumps(with_checksum(description), indent=2)
    path.write_text(text + "\n")


def versions(format_name: str) -> dict[str, str]:
    """Returns the versions of the packages that make an export, by name."""
    modules = importlib.metadata.packages_distributions()
    packages = {"keras_transformer": keras_transformer.__version__}
    for module in (
        "keras",
        "tensorflow",
        "tensorflow_text",
        *FORMATS[format_name].requirements,
    ):
        for name in modules[module][:1]:
            packages[name] = importlib.metadata.version(name)
    return packages


def sentences_of(translator: "Translator", options: ExportOptions) -> list[str]:
    """Returns the sentences that an export is verified with."""
    if options.verify == "none":
        return []
    if options.verify_text:
        return verify.read_sentences(options.verify_text)
    return [
        *OTHER_SAMPLES,
        *make_examples(translator, *SAMPLES[options.verify]),
    ]


def make_examples(
    translator: "Translator", number: int, longest: int
) -> list[str]:
    """Makes `number` sentences of at most `longest` random pieces each."""
    rng = random.Random(1)
    tokenizer = translator.tokenizer.source
    longest = min(longest, translator.max_source_length - 1)
    ids = range(len(SPECIAL_IDS), tokenizer.vocab_size)
    rows = [rng.choices(ids, k=rng.randint(1, longest)) for _ in range(number)]
    return tokenizer.to_strings(rows)


def load_source(
    options: ExportOptions, arguments: flags.Arguments = NO_ARGUMENTS
) -> Source:
    """Loads the translator to export. `arguments` has the search flags."""
    workdir = WorkDirectory(options.workdir)
    decoding = check_source(workdir, options, arguments)
    translators = load("keras_transformer.translator")
    others: dict[str, typing.Any] = {}
    if FORMATS[options.format].holds_shortlist:
        others["shortlist"] = workdir.shortlist_path.exists()
    if options.max_source_length is not None:
        others["max_source_length"] = options.max_source_length
    with recorded_warnings() as warnings:
        translator = translators.Translator.load(
            options.workdir, decoding, options.checkpoint, **others
        )
    found = workdir.read_languages()
    languages = found.source_language or None, found.target_language or None
    return Source(translator, warnings, languages)


def check_source(
    workdir: WorkDirectory, options: ExportOptions, arguments: flags.Arguments
) -> DecodingConfig:
    """Checks that a work directory can be exported. Returns the search options.

    It imports no framework, so errors are raised early.
    """
    workdir.check_package()
    config = workdir.read_section("model", TransformerConfig)
    card.read_card(workdir)
    before = workdir.read_section("decoding", DecodingConfig)
    if before.sampling:
        absl_logging.warning(
            "%s: 'decoding' says sampling=true; an export searches",
            workdir.config_path,
        )
    search = arguments.build(SearchOptions, **search_of(before))
    decoding = DecodingConfig(**vars(search))
    tokens = workdir.read_languages().language_tokens
    check_model(options.format, config, decoding, tokens)
    workdir.check_translator(
        decoding, options.checkpoint, options.max_source_length
    )
    return decoding


def search_of(decoding: DecodingConfig) -> dict[str, typing.Any]:
    """Returns the options of a search by name, without those of sampling."""
    return {name: getattr(decoding, name) for name in names_of(SearchConfig)}


@contextlib.contextmanager
def recorded_warnings() -> typing.Iterator[list[str]]:
    """Records logged warnings, which still appear. Fills the list on exit."""
    lines: list[str] = []
    recorder = logging.handlers.BufferingHandler(sys.maxsize)
    recorder.setLevel(logging.WARNING)
    absl_logging.get_absl_logger().addHandler(recorder)
    try:
        yield lines
    finally:
        absl_logging.get_absl_logger().removeHandler(recorder)
        lines += [record.getMessage() for record in recorder.buffer]


@contextlib.contextmanager
def disk_errors(target: pathlib.Path) -> typing.Iterator[None]:
    """Turns errors of a full or failing disk into a RunError with the path."""
    try:
        yield
    except Exception as error:
        reason: typing.Any = error
        if getattr(error, "errno", None) not in DISK_ERRORS:
            # TensorFlow's message begins with the name of a node.
            reason = os.strerror(errno.ENOSPC)
            if reason not in str(error):
                raise
        raise flags.RunError(f"cannot write {target}: {reason}") from error


def list_files(directory: pathlib.Path) -> list[str]:
    """Returns lines with the size and name of each file, largest first."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    files.sort(key=lambda path: (-path.stat().st_size, path.name))
    return [
        f"{path.stat().st_size:>12,} bytes  {path.relative_to(directory)}"
        for path in files
    ]


@flags.command(
    "kt-export", f"{__doc__}\n{describe()}", ExportOptions, SearchOptions
)
def main(arguments: flags.Arguments) -> None:
    options = arguments.build(ExportOptions)
    if not options.workdir:
        with flags.user_errors():
            path = box.choose(options.source_language, options.target_language)
        languages = dict.fromkeys(("source_language", "target_language"))
        options = dataclasses.replace(options, workdir=path, **languages)
    verify.hide_gpus()
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_errors(options.target))
        with flags.user_errors():
            check_requirements(options.format)
            if options.verify_text:
                verify.read_sentences(options.verify_text)
            directory = stack.enter_context(
                publishing.published(options.target, options.overwrite)
            )
            source = load_source(options, arguments)
        comparison = export(source, options, directory)
    flags.show(
        f"{options.target}: {options.format}, {options.precision},"
        f" from {source.translator.checkpoint}",
        *list_files(options.target),
    )
    if comparison is not None:
        verdict = str(comparison).removeprefix("passed")
        flags.show(f"verified{verdict} (--verify={options.verify})")


if __name__ == "__main__":
    main()
