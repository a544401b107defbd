"""Implements `kt-parse-text`: parses sentences."""

import itertools
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping

from absl import logging

from keras_transformer.commands import flags
from keras_transformer.storage.workdir import WorkDirectory
from trainers.datasets.constituency import write_tree
from trainers.datasets.linearization import is_tree, repair
from trainers.parsing.words import escape_brackets, split_words
from trainers.translating.lines import (
    CHUNK,
    open_translator,
    read_input,
    translate_lines,
    write_lines,
)
from trainers.translating.options import TranslatorChoice, TranslatorOptions

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator


def check_is_parser(workdir: WorkDirectory) -> None:
    """Raises ValueError unless `kt-parse` made the work directory."""
    data = None
    if workdir.config_path.exists():
        data = workdir.read_config().get("data")
    if not isinstance(data, dict) or "train_trees" not in data:
        raise ValueError(
            "expected a work directory made by kt-parse."
            f" Received: workdir={str(workdir.path)!r}"
        )


def load_parser(
    options: TranslatorOptions, search: Mapping[str, typing.Any]
) -> "Translator":
    """Opens a parser, which translates sentences to linear trees."""
    with flags.user_errors():
        check_is_parser(WorkDirectory(options.workdir))
    return open_translator(TranslatorChoice(options, search))


def parse_sentences(
    translator: "Translator", sentences: Iterable[list[str]], chunk_size: int
) -> Iterator[str]:
    """Yields a tree for each sentence, or "" for one without words.

    A sentence is a list of words. `chunk_size` sentences are parsed together.
    Repairs outputs that are not trees, and logs their number. Raises RunError
    if the model's logits are not finite.
    """
    sentences, given = itertools.tee(sentences)
    sequences = translate_lines(translator, map(" ".join, given), chunk_size)
    num_trees = num_repaired = 0
    for words, sequence in zip(sentences, sequences, strict=True):
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


def run(
    options: TranslatorOptions,
    search: Mapping[str, typing.Any],
    tokenized: bool,
) -> None:
    """Parses the lines of standard input and prints the trees.

    If `tokenized`, lines are split at spaces only.
    """
    lines = read_input()
    translator = load_parser(options, search)
    chunk_size = 1 if sys.stdin.isatty() else CHUNK
    sentences: Iterable[list[str]] = map(split_words, lines)
    if tokenized:
        sentences = (escape_brackets(line.split()) for line in lines)
    trees = parse_sentences(translator, sentences, chunk_size)
    write_lines(trees, sys.stdout.buffer)
