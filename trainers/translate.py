"""Translates standard input to standard output, line by line.

    python -m trainers.translate --workdir=DIR < source.txt > translation.txt

One line goes out for each line that comes in, in order; blank lines stay blank.
On a terminal each line is answered at once.
"""

import dataclasses
import itertools
import os
import sys

from absl import logging

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.translator import Translator
from keras_transformer.workdir import WorkDirectory

CHUNK = 4096  # lines read, sorted and translated together


@dataclasses.dataclass(frozen=True)
class TranslatorOptions(Fields):
    """The translator."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path; left out: the first of these that"
        " there is.",
    )
    max_source_length: int | None = hp(
        None,
        "Longest source in tokens, end mark included, before it is cut; left"
        " out: the longest in training.",
        low=2,
    )
    jit_compile: bool = hp(
        False, "Compile with XLA: slow at first, fast with many sentences."
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.workdir:
            raise ValueError("expected --workdir=DIR. Received: no workdir")


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    n_best: int = hp(
        0,
        "Lines 'number ||| translation ||| score' for each line, best first;"
        " 0: the best translation alone.",
        low=0,
    )


def load_translator(arguments):
    """The `Translator` of a command line with `TranslatorOptions`.

    Decoding is as the work directory says, but for what was given.
    """
    options = arguments.build(TranslatorOptions)
    with flags.user_errors():
        workdir = WorkDirectory(options.workdir)
        before = workdir.read_section("decoding", DecodingConfig)
        decoding = arguments.build(DecodingConfig, **dataclasses.asdict(before))
        others = {"jit_compile": options.jit_compile}
        if options.max_source_length is not None:
            others["max_source_length"] = options.max_source_length
        return Translator.load(
            options.workdir, decoding, options.checkpoint, **others
        )


def read_lines(file):
    """Lines of a binary file as `str`, without their ends.

    What is not UTF-8 becomes U+FFFD, with a warning.
    """
    for number, line in enumerate(file, 1):
        line = line.removesuffix(b"\n")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            logging.warning(
                "line %d is not UTF-8 (%s, byte %d of the line)",
                number,
                error.reason,
                error.start + 1,
            )
            yield line.decode("utf-8", "replace")


def translate_lines(translator, lines, chunk_size, n_best=0):
    """Yields the output lines for input lines, chunk by chunk.

    Args:
        translator: The `Translator`.
        lines: Iterable of `str`.
        chunk_size: Lines translated together.
        n_best: As the flag.
    """
    lines, done = iter(lines), 0
    while chunk := list(itertools.islice(lines, chunk_size)):
        results = translator.n_best(chunk, first_line=done + 1)
        for number, hypotheses in enumerate(results, done + 1):
            if not n_best:
                yield hypotheses[0][0]
            for text, score in hypotheses[:n_best]:
                yield f"{number} ||| {text} ||| {score:.6f}"
        done += len(chunk)


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.translate"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, Options, DecodingConfig
        )
        options = arguments.build(Options)
        translator = load_translator(arguments)
        decoding = translator.decoding
        num_found = 1 if decoding.sampling else decoding.beam_size
        if options.n_best > num_found:
            raise flags.CommandError(
                "n_best must be at most beam_size. Received:"
                f" n_best={options.n_best},"
                f" beam_size={decoding.beam_size},"
                f" sampling={decoding.sampling}"
            )
    chunk_size = 1 if sys.stdin.isatty() else CHUNK
    lines = read_lines(sys.stdin.buffer)
    output = sys.stdout.buffer
    try:
        for line in translate_lines(
            translator, lines, chunk_size, options.n_best
        ):
            output.write(line.encode("utf-8") + b"\n")
            if chunk_size == 1:
                output.flush()
        output.flush()
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
