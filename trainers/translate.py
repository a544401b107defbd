"""Translates standard input to standard output.

    python -m trainers.translate --workdir=DIR < source.txt > translation.txt

It writes one line for each input line, in order; blank lines stay blank. On a
terminal each line is answered at once. With --alignments, ' ||| ' and the links
of words follow each translation: 1-0 means that the first target word
translates the second source word.

    python -m trainers.translate --workdir=DIR --document --format=html \
        < page.html > translated.html

With --document it reads one document, finds its sentences, and writes the same
document with translated sentences: white space, line ends, markup, placeholders
such as %s or {name}, and addresses stay. It needs the extra `documents`.

    python -m trainers.translate --workdir=DIR --input=mono.de.gz --output=DIR
    python -m trainers.translate --output=DIR --collect=mono.en.gz

With --input it translates a file in shards. If stopped or killed, rerun the
same command to resume; start it several times, also on other machines that
share --output, to go faster. --collect checks the shards and joins them.
"""

import dataclasses
import importlib.util

from keras_transformer.commands import flags
from keras_transformer.commands.flags import CommandError
from keras_transformer.commands.startup import end_on_interrupt, load
from keras_transformer.config import DecodingConfig
from keras_transformer.documents import FORMATS, WITH_TRANSLATIONS
from keras_transformer.fields import GIVEN, Fields, check_options, hp
from trainers.run.options import (
    LanguageOptions,
    ShortlistOptions,
    TranslatorOptions,
)


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    document: bool = hp(
        False, "Translate standard input as one document, not line by line."
    )
    format: str = hp(
        "text",
        "Format of the document.",
        choices=FORMATS,
        needs={"document": True},
    )
    document_map: str = hp(
        "",
        "File to write: a JSON object for each sentence of the document, with"
        " its source and its translation.",
        needs={"document": True},
    )
    retranslate: bool = hp(
        False,
        "Also replace existing translations.",
        needs={"document": True, "format": WITH_TRANSLATIONS},
    )
    charset: str = hp(
        "",
        "Charset of the document. By default its byte order mark, then what it"
        " declares, else UTF-8.",
        needs={"document": True},
    )
    n_best: int = hp(
        0,
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'. 0 writes only the best one.",
        low=0,
        needs={"document": False},
    )
    alignments: bool = hp(
        False,
        "After each translation write ' ||| ' and the links of its words:"
        " source-target, from 0, by the attention of --alignment_layer.",
        needs={"document": False},
    )
    prefix_file: str | None = hp(
        None,
        "File with one line per input line: the required beginning of its"
        " translation, or a blank line.",
        needs={"document": False},
    )


@dataclasses.dataclass(frozen=True)
class BulkOptions(Fields):
    """A file in shards."""

    input: str = hp(
        "",
        "File to translate instead of standard input: text or .gz.",
        needs={"output": GIVEN},
        excludes={"document": True, "prefix_file": GIVEN},
    )
    output: str = hp("", "Directory of its shards, new or to continue.")
    shard_lines: int = hp(
        100_000,
        "Lines of a shard, which are lost if the command is killed. Its text is"
        " in memory.",
        low=1,
        high=10**9,
        needs={"input": GIVEN},
    )
    seed: int = hp(
        0,
        "With sampling: seed; the samples depend on it and on the shard.",
        low=0,
        high=2**32 - 1,
        needs={"input": GIVEN},
    )
    runner: str = hp(
        "",
        "Translate the shards as a pipeline of Apache Beam (extra beam) on this"
        " runner, options included: 'FlinkRunner --flink_master=HOST:8081'.",
        needs={"input": GIVEN},
    )
    collect: str = hp(
        "",
        "File to write, text or .gz: the translations of all shards of --output"
        ", in the order of the input.",
        needs={"output": GIVEN},
    )


def check_collection(given: dict) -> None:
    """Refuses options that have no effect with --collect, or need it.

    Args:
        given: The values on the command line, by name.

    Raises:
        CommandError: There is one.
    """
    used = {name: value for name, value in given.items() if value}
    others = sorted(used.keys() - {"collect", "output"})
    if "collect" in used and others:
        received = ", ".join(f"{name}={used[name]!r}" for name in others)
        raise CommandError(
            f"collect excludes {', '.join(others)}. Received: {received}"
        )
    if "output" in used and not used.keys() & {"input", "collect"}:
        raise CommandError(
            "output needs input or collect. Received:"
            f" output={used['output']!r}"
        )


def check_beam() -> None:
    """Raises CommandError if the extra `beam` is not installed."""
    if importlib.util.find_spec("apache_beam") is None:
        raise CommandError(
            f"runner needs the extra 'beam': {flags.how_to_install('beam')}"
        )


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.translate"):
        arguments = flags.parse(
            argv,
            __doc__,
            TranslatorOptions,
            ShortlistOptions,
            LanguageOptions,
            Options,
            BulkOptions,
            DecodingConfig,
        )
        options = arguments.build(Options)
        bulk = arguments.build(BulkOptions)
        check_collection(arguments.given)
        with flags.user_errors():
            check_options(options, bulk)
        if bulk.collect:
            load("trainers.translating.collection").run(
                bulk.output, bulk.collect
            )
            return
        translator = arguments.build(TranslatorOptions)
        if not bulk.input:
            flags.check_streams("stdin", "stdout")
        translator.prepare_process()
        names: tuple[str, ...] = ("n_best", "alignments")
        if options.document:
            work = load("trainers.translating.documents")
            names = ("format", "document_map", "retranslate", "charset")
        elif bulk.input:
            names += ("input", "output", "shard_lines", "seed")
            if bulk.runner:
                check_beam()
                work = load("trainers.translating.pipeline")
                names += ("runner",)
            else:
                work = load("trainers.translating.shards")
        else:
            work = load("trainers.translating.lines")
            names += ("prefix_file",)
        values = dataclasses.asdict(options) | dataclasses.asdict(bulk)
        work.run(arguments, **{name: values[name] for name in names})


def script() -> None:
    """Runs the command in a process of its own: `kt-translate`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
