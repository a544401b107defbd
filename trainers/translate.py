"""Translates standard input to standard output, line by line.

    python -m trainers.translate --workdir=DIR < source.txt > translation.txt

One line goes out for each line that comes in, in order; blank lines stay blank.
On a terminal each line is answered at once. With --alignments, ' ||| ' and the
links of words follow each translation: 1-0 says that the second source word is
translated by the first target word.
"""

import contextlib
import dataclasses
import itertools
import sys
import typing
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer import flags
from keras_transformer.config import (
    CHECKPOINT_KINDS,
    PRECISIONS,
    DecodingConfig,
)
from keras_transformer.fields import Fields, hp
from keras_transformer.startup import (
    load_tensorflow,
    prepare_search,
)
from trainers.interrupts import ended_by_interrupt

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

COMMAND = "trainers.translate"
CHUNK = 4096  # lines read, sorted and translated together


@dataclasses.dataclass(frozen=True)
class TranslatorOptions(Fields):
    """The translator."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path; left out: the first of these that"
        " exists.",
    )
    max_source_length: int | None = hp(
        None,
        "Longest source in tokens, EOS included; a longer one is truncated."
        " Left out: the longest in training.",
        low=2,
    )
    precision: str = hp(
        "float32",
        "Of weights and products: bfloat16 is faster where the processor"
        " computes in it; some translations then differ.",
        choices=PRECISIONS,
    )
    jit_compile: bool = hp(
        False, "Compile with XLA: slow at first, fast with many sentences."
    )
    workers: int | None = hp(
        None,
        "Batches that are translated at the same time; left out: one for each"
        " CPU core, or 1 with a GPU.",
        low=1,
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
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'; 0: only the best translation.",
        low=0,
    )
    alignments: bool = hp(
        False,
        "After each translation write ' ||| ' and which words translate each"
        " other: source-target, from 0, by the attention of --alignment_layer.",
    )
    prefix_file: str | None = hp(
        None,
        "File with a line for each input line: what its translation must begin"
        " with; a blank line leaves it free.",
    )


def load_tensorflow_for(
    arguments: flags.Arguments, searches: bool = True
) -> TranslatorOptions:
    """Imports TensorFlow as the `TranslatorOptions` of a command line want it.

    Args:
        arguments: The command line.
        searches: Whether the command translates; else it scores or aligns
            whole batches, whose operations are worth dividing.

    Returns:
        The options.
    """
    options = arguments.build(TranslatorOptions)
    if searches:
        prepare_search(options.jit_compile)
    load_tensorflow()
    return options


def load_translator(
    arguments: flags.Arguments, other: str | None = None
) -> "Translator":
    """The `Translator` of a command line with `TranslatorOptions`.

    Decoding is as the work directory says, but for what was given.

    Args:
        arguments: The command line.
        other: Another work directory than the command line's, with a checkpoint
            of the same kind; if that is a path, with its first choice. None:
            the command line's.
    """
    # Here, so that Ctrl-C and wrong flags need not wait for TensorFlow.
    options = load_tensorflow_for(arguments)
    from keras_transformer.translator import Translator
    from keras_transformer.workdir import WorkDirectory
    from trainers.run.strategies import count_searches

    if other is not None:
        kind = options.checkpoint
        if kind not in CHECKPOINT_KINDS:  # a path, of the command line's own
            kind = None
        options = dataclasses.replace(options, workdir=other, checkpoint=kind)
    with flags.user_errors():
        workdir = WorkDirectory(options.workdir)
        before = workdir.read_section("decoding", DecodingConfig)
        decoding = arguments.build(DecodingConfig, **dataclasses.asdict(before))
        others = {
            "jit_compile": options.jit_compile,
            "workers": options.workers or count_searches(),
        }
        if options.max_source_length is not None:
            others["max_source_length"] = options.max_source_length
        return Translator.load(
            options.workdir,
            decoding,
            options.checkpoint,
            precision=options.precision,
            **others,
        )


def read_lines(
    file: typing.BinaryIO, name: str = "standard input"
) -> Iterator[str]:
    """Lines of a binary file as `str`, without their ends.

    What is not UTF-8 becomes U+FFFD, with a warning.

    Args:
        file: The file.
        name: What errors call it.

    Raises:
        RunError: The file cannot be read.
    """
    lines = iter(file)
    for number in itertools.count(1):
        try:
            line = next(lines)
        except StopIteration:
            return
        except OSError as error:
            raise flags.RunError(f"{name}: {error.strerror}") from error
        line = line.removesuffix(b"\n")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            logging.warning(
                "%sline %d is not UTF-8 (%s, byte %d of the line)",
                "" if name == "standard input" else f"{name}, ",
                number,
                error.reason,
                error.start + 1,
            )
            yield line.decode("utf-8", "replace")


def translate_lines(
    translator: "Translator",
    lines: Iterable[str],
    chunk_size: int,
    n_best: int = 0,
    prefixes: Iterable[str] | None = None,
    alignments: bool = False,
) -> Iterator[str]:
    """Yields the output lines for input lines, chunk by chunk.

    Args:
        translator: The `Translator`.
        lines: Iterable of `str`.
        chunk_size: Lines translated together.
        n_best: As the flag.
        prefixes: What each translation must begin with; None: all are free.
        alignments: As the flag.

    Raises:
        RunError: The model's logits are not finite.
        CommandError: There are not as many prefixes as lines.
    """
    lines, done = iter(lines), 0
    forced = None if prefixes is None else iter(prefixes)
    while chunk := list(itertools.islice(lines, chunk_size)):
        begins = None
        if forced is not None:
            begins = list(itertools.islice(forced, len(chunk)))
            if len(begins) < len(chunk):
                raise _wrong_number(f"only {done + len(begins)}")
        try:
            results = translator.search(chunk, begins, num_best=n_best or 1)
        except FloatingPointError as error:
            raise flags.RunError(str(error)) from error
        ends = _alignments(translator, chunk, results) if alignments else None
        for number, found in enumerate(results, done + 1):
            for note in found.notes:
                logging.warning("line %d %s", number, note)
            for text, score in zip(found.texts, found.scores, strict=True):
                columns = [str(number), text, f"{score:.6f}"]
                if not n_best:
                    columns = [text]
                if ends is not None:
                    columns.append(next(ends))
                yield " ||| ".join(columns)
        done += len(chunk)
    if forced is not None and next(forced, None) is not None:
        raise _wrong_number(f"more than {done}")


def _alignments(translator, lines, results):
    """Yields the alignment of each hypothesis of each line, as text."""
    pairs = [
        (line, text)
        for line, found in zip(lines, results, strict=True)
        for text in found.texts
    ]
    for alignment in translator.align(pairs):
        yield pharaoh(alignment.links)


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links of words as files of alignments have them.

    >>> pharaoh([(0, 1), (2, 0)])
    '0-1 2-0'
    """
    return " ".join(f"{source}-{target}" for source, target in links)


def _wrong_number(received):
    return flags.CommandError(
        "prefix_file must have a line for each input line."
        f" Received: {received} lines"
    )


def write_lines(lines: Iterable[str], file: typing.BinaryIO) -> None:
    """Writes lines to a binary file, each at once.

    If nobody reads on, as with `| head`, it ends as if all were written.

    Raises:
        RunError: The device is full, or the like.
    """
    with flags.output_errors(file):
        for line in lines:
            file.write(line.encode("utf-8") + b"\n")
            file.flush()


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(flags.exit_status(COMMAND))
        stack.enter_context(ended_by_interrupt(COMMAND))
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, Options, DecodingConfig
        )
        options = arguments.build(Options)
        prefixes = None
        if options.prefix_file:
            with flags.user_errors():
                file = stack.enter_context(open(options.prefix_file, "rb"))
            prefixes = read_lines(file, options.prefix_file)
        flags.check_streams("stdin", "stdout")
        lines: Iterable[str] = read_lines(sys.stdin.buffer)
        if prefixes is not None and not sys.stdin.isatty():
            # Counted before any line is translated; a terminal is answered.
            lines, given = list(lines), list(prefixes)
            if len(lines) != len(given):
                raise _wrong_number(
                    f"{len(given)} lines for {len(lines)} input"
                )
            prefixes = iter(given)
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
        outputs = translate_lines(
            translator,
            lines,
            chunk_size,
            options.n_best,
            prefixes,
            options.alignments,
        )
        write_lines(outputs, sys.stdout.buffer)


if __name__ == "__main__":
    main()
