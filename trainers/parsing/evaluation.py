"""Implements `kt-parse-evaluate`: measures the F1 of a parser's trees."""

import json
import time
import typing
from collections.abc import Mapping

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.storage.workdir import WorkDirectory
from trainers.datasets.constituency import Node, leaves, retag, write_tree
from trainers.datasets.linearization import repair
from trainers.datasets.trees import TreeFiles, make_pair, read_split_trees
from trainers.parsing.metric import ParsingMetric
from trainers.parsing.parser_config import TreesConfig
from trainers.parsing.text import check_is_parser, load_parser
from trainers.translating.options import TranslatorOptions


def read_references(data: TreeFiles, files: tuple[str, ...]) -> list[Node]:
    """Reads the reference trees: `files`, by default the test trees of `data`.

    Raises ValueError if there are no trees, or they cannot be read.
    """
    if files:
        data = TreeFiles(train_trees=files, test_trees=files)
    trees = list(read_split_trees(data, "test"))
    expect(trees, "--trees=FILE with trees", f"trees={','.join(files)!r}")
    return trees


def write_outputs(
    path: str, sequences: list[str], references: list[Node]
) -> None:
    """Writes the parser's trees, one per line, with the reference's tags."""
    lines = []
    for sequence, reference in zip(sequences, references, strict=True):
        words = leaves(reference)
        tree = repair(sequence, [leaf.word for leaf in words])
        lines.append(write_tree(retag(tree, [leaf.tag for leaf in words])))
    write_atomically(path, "".join(line + "\n" for line in lines))


def run(
    options: TranslatorOptions,
    search: Mapping[str, typing.Any],
    trees: tuple[str, ...],
    output: str | None,
) -> None:
    """Parses the sentences of reference trees, and prints the scores as JSON.

    `trees` are files, by default the test trees of the parser's data. `output`
    is a file for the parser's trees, or None.
    """
    workdir = WorkDirectory(options.workdir)
    with flags.user_errors():
        check_is_parser(workdir)
        data = workdir.read_section("data", TreesConfig)
        references = read_references(data, trees)
        if output:
            flags.check_output(output, trees or data.test_trees)
    parser = load_parser(options, search)
    pairs = [make_pair(tree) for tree in references]
    started = time.monotonic()
    sequences = parser.translate([sentence for sentence, _ in pairs])
    seconds = time.monotonic() - started
    if output:
        with flags.user_errors():
            write_outputs(output, sequences, references)
    result = ParsingMetric().measure(sequences, [tree for _, tree in pairs])
    flags.show(json.dumps({**result, "seconds": round(seconds, 3)}))
