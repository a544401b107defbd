"""Translates standard input to standard output, line by line.

    python -m trainers.translate --workdir=DIR < source.txt > translation.txt

It writes one line for each input line, in order; blank lines stay blank. On a
terminal each line is answered at once. With --alignments, ' ||| ' and the links
of words follow each translation: 1-0 means that the first target word
translates the second source word.
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
from trainers.run.options import TranslatorOptions


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    n_best: int = hp(
        0,
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'. 0 writes only the best one.",
        low=0,
    )
    alignments: bool = hp(
        False,
        "After each translation write ' ||| ' and the links of its words:"
        " source-target, from 0, by the attention of --alignment_layer.",
    )
    prefix_file: str | None = hp(
        None,
        "File with one line per input line: the required beginning of its"
        " translation, or a blank line.",
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
        load("trainers.run.translating").run(
            arguments, **dataclasses.asdict(options)
        )


if __name__ == "__main__":
    end_on_interrupt()
    main()
