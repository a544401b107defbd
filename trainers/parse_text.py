"""Parses standard input to standard output, one sentence a line.

    python -m trainers.parse_text --workdir=DIR < sentences.txt > trees.txt

One tree goes out for each line that comes in, in order, in the format of the
Penn Treebank; blank lines stay blank. Words are tagged XX, but for punctuation.
On a terminal each line is answered at once.
"""

import collections
import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Iterator

from absl import logging

from keras_transformer import flags
from keras_transformer.fields import Fields, hp
from trainers.interrupts import ended_by_interrupt
from trainers.parsing.config import ParserDecoding
from trainers.parsing.linearization import is_tree, repair
from trainers.parsing.trees import write_tree
from trainers.parsing.words import escape_brackets, split_words
from trainers.translate import (
    CHUNK,
    TranslatorOptions,
    load_tensorflow_for,
    load_translator,
    read_lines,
    translate_lines,
    write_lines,
)

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator
    from keras_transformer.workdir import WorkDirectory

COMMAND = "trainers.parse_text"


@dataclasses.dataclass(frozen=True)
class ParserOptions(TranslatorOptions):
    """The parser."""

    workdir: str = hp("", "Directory that trainers.parse made. Required.")


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The input."""

    tokenized: bool = hp(
        False,
        "The words of a line are separated by spaces, as in the Penn Treebank;"
        " left out: lines are text.",
    )


def check_is_parser(workdir: "WorkDirectory") -> None:
    """Raises ValueError if another task was trained in a work directory."""
    data = None
    if workdir.config_path.exists():
        data = workdir.read_config().get("data")
    if not isinstance(data, dict) or "train_trees" not in data:
        raise ValueError(
            "expected a work directory made by trainers.parse."
            f" Received: workdir={str(workdir.path)!r}"
        )


def load_parser(arguments: flags.Arguments) -> "Translator":
    """The `Translator` of a command line, from sentences to linear trees."""
    # Here, so that Ctrl-C and wrong flags need not wait for TensorFlow.
    options = load_tensorflow_for(arguments)
    from keras_transformer.workdir import WorkDirectory

    with flags.user_errors():
        check_is_parser(WorkDirectory(options.workdir))
    return load_translator(arguments)


def parse_lines(
    translator: "Translator",
    lines: Iterable[str],
    chunk_size: int,
    split: Callable[[str], list[str]],
) -> Iterator[str]:
    """Yields a tree for each line, blank for a blank one.

    Args:
        translator: The `Translator`, from sentences to linear trees.
        lines: Iterable of `str`.
        chunk_size: Lines parsed together.
        split: Function of a line that returns its words.

    Raises:
        RunError: The model's logits are not finite.
    """
    pending: collections.deque[list[str]] = collections.deque()

    def sentences():
        for line in lines:
            pending.append(split(line))
            yield " ".join(pending[-1])

    num_trees = num_repaired = 0
    for sequence in translate_lines(translator, sentences(), chunk_size):
        words = pending.popleft()
        if words:
            num_trees += 1
            num_repaired += not is_tree(sequence, len(words))
        yield write_tree(repair(sequence, words)) if words else ""
    if num_repaired:
        logging.warning(
            "%d of %d trees are repaired: the model's output was no tree over"
            " the words",
            num_repaired,
            num_trees,
        )


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status(COMMAND), ended_by_interrupt(COMMAND):
        arguments = flags.parse(
            argv, __doc__, ParserOptions, Options, ParserDecoding
        )
        options = arguments.build(Options)
        flags.check_streams("stdin", "stdout")
        translator = load_parser(arguments)
        split = split_words
        if options.tokenized:
            split = _split_tokenized
        chunk_size = 1 if sys.stdin.isatty() else CHUNK
        lines = read_lines(sys.stdin.buffer)
        trees = parse_lines(translator, lines, chunk_size, split)
        write_lines(trees, sys.stdout.buffer)


def _split_tokenized(line):
    """The words of a line that has them separated by spaces."""
    return escape_brackets(line.split())


if __name__ == "__main__":
    main()
