"""The work of `trainers.parse_text`: from sentences to trees."""

import collections
import sys
from collections.abc import Callable, Iterable, Iterator

from absl import logging

from keras_transformer.commands import flags
from keras_transformer.translator import Translator
from keras_transformer.workdir import WorkDirectory
from trainers.parsing.linearization import is_tree, repair
from trainers.parsing.trees import write_tree
from trainers.parsing.words import escape_brackets, split_words
from trainers.run.options import TranslatorOptions
from trainers.run.translating import (
    CHUNK,
    load_translator,
    read_lines,
    translate_lines,
    write_lines,
)


def check_is_parser(workdir: WorkDirectory) -> None:
    """Raises ValueError unless a parser was trained in a work directory."""
    data = None
    if workdir.config_path.exists():
        data = workdir.read_config().get("data")
    if not isinstance(data, dict) or "train_trees" not in data:
        raise ValueError(
            "expected a work directory made by trainers.parse."
            f" Received: workdir={str(workdir.path)!r}"
        )


def load_parser(arguments: flags.Arguments) -> Translator:
    """The `Translator` of a command line, from sentences to linear trees."""
    workdir = arguments.build(TranslatorOptions).workdir
    with flags.user_errors():
        check_is_parser(WorkDirectory(workdir))
    return load_translator(arguments)


def parse_lines(
    translator: Translator,
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
            "%d of %d trees are repaired: the model's output was not a tree"
            " over the words",
            num_repaired,
            num_trees,
        )


def run(arguments: flags.Arguments, tokenized: bool) -> None:
    """Parses standard input.

    Args:
        arguments: The command line.
        tokenized: As the flag.
    """
    translator = load_parser(arguments)
    split = _split_tokenized if tokenized else split_words
    chunk_size = 1 if sys.stdin.isatty() else CHUNK
    lines = read_lines(sys.stdin.buffer)
    trees = parse_lines(translator, lines, chunk_size, split)
    write_lines(trees, sys.stdout.buffer)


def _split_tokenized(line):
    """The words of a line that separates them by spaces."""
    return escape_brackets(line.split())
