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
"""

import dataclasses

from keras_transformer.commands import flags
from keras_transformer.commands.startup import (
    choose_backend,
    end_on_interrupt,
    load,
    prepare_search,
)
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.translation.documents import FORMATS, WITH_TRANSLATIONS
from trainers.run.options import TranslatorOptions


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
        option_of=("document", True),
    )
    document_map: str = hp(
        "",
        "File to write: a JSON object for each sentence of the document, with"
        " its source and its translation.",
        option_of=("document", True),
    )
    retranslate: bool = hp(
        False,
        "In xliff and po, translate again what has a translation.",
        option_of=("document", True),
    )
    n_best: int = hp(
        0,
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'. 0 writes only the best one.",
        low=0,
        option_of=("document", False),
    )
    alignments: bool = hp(
        False,
        "After each translation write ' ||| ' and the links of its words:"
        " source-target, from 0, by the attention of --alignment_layer.",
        option_of=("document", False),
    )
    prefix_file: str | None = hp(
        None,
        "File with one line per input line: the required beginning of its"
        " translation, or a blank line.",
        option_of=("document", False),
    )

    def __post_init__(self):
        super().__post_init__()
        if self.retranslate and self.format not in WITH_TRANSLATIONS:
            raise ValueError(
                "retranslate is an option of"
                f" format={' or '.join(WITH_TRANSLATIONS)}."
                f" Received: format={self.format}"
            )


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.translate"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, Options, DecodingConfig
        )
        options = arguments.build(Options)
        flags.check_streams("stdin", "stdout")
        translator = arguments.build(TranslatorOptions)
        choose_backend(translator.backend, translator.device)
        prepare_search(translator.jit_compile)
        if options.document:
            work = load("trainers.run.documents")
            names = ("format", "document_map", "retranslate")
        else:
            work = load("trainers.run.translating")
            names = ("n_best", "prefix_file", "alignments")
        work.run(arguments, **{name: getattr(options, name) for name in names})


if __name__ == "__main__":
    end_on_interrupt()
    main()
