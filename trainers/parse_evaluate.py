"""Measures a parser on trees: labeled bracketing F1, counted as EVALB does.

    python -m trainers.parse_evaluate --workdir=DIR --trees=FILE[,FILE...]

Without --trees, the test trees of the data that the parser was trained on are
used, if it has any. The last line is a JSON object.
"""

import dataclasses
import json
import time
import typing

from keras_transformer import flags
from keras_transformer.fields import Fields, hp
from trainers.parse_text import ParserOptions, check_is_parser, load_parser
from trainers.parsing.config import ParserDecoding, TreesConfig
from trainers.parsing.linearization import repair
from trainers.parsing.trees import leaves, retag, write_tree
from trainers.translate import load_tensorflow_for

if typing.TYPE_CHECKING:
    from trainers.parsing.trees import Node


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The trees."""

    trees: tuple[str, ...] = hp(
        (),
        "Files of trees in the format of the Penn Treebank, or their .gz,"
        " separated by commas.",
    )
    output: str | None = hp(
        None,
        "File to write the parser's trees to, for EVALB: the words have the"
        " tags of the reference. Left out: none.",
    )


def read_references(data: TreesConfig, files: tuple[str, ...]) -> "list[Node]":
    """The trees to measure on.

    Args:
        data: The `TreesConfig` of the work directory.
        files: Files of trees; none: the test trees of the work directory.

    Raises:
        ValueError: There are none, or they cannot be read.
    """
    from trainers.parsing.corpus import read_split_trees  # see `main`

    if files:
        data = TreesConfig(train_trees=files, test_trees=files)
    trees = list(read_split_trees(data, "test"))
    if not trees:
        raise ValueError(
            "expected --trees=FILE with trees. Received:"
            f" trees={','.join(files)!r}"
        )
    return trees


def write_outputs(
    path: str, sequences: list[str], references: "list[Node]"
) -> None:
    """Writes the parser's trees, one a line, with the reference's tags."""
    from keras_transformer.workdir import write_atomically  # see `main`

    lines = []
    for sequence, reference in zip(sequences, references, strict=True):
        words = leaves(reference)
        tree = repair(sequence, [leaf.word for leaf in words])
        lines.append(write_tree(retag(tree, [leaf.tag for leaf in words])))
    write_atomically(path, "".join(line + "\n" for line in lines))


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.parse_evaluate"):
        arguments = flags.parse(
            argv, __doc__, ParserOptions, Options, ParserDecoding
        )
        options = arguments.build(Options)
        flags.check_streams("stdout")
        path = load_tensorflow_for(arguments).workdir
        # Imported here, since they import TensorFlow, which takes seconds:
        # wrong flags are refused, and help is shown, before.
        from keras_transformer.workdir import WorkDirectory
        from trainers.parsing.corpus import make_pair
        from trainers.parsing.metric import ParsingMetric

        with flags.user_errors():
            workdir = WorkDirectory(path)
            check_is_parser(workdir)
            data = workdir.read_section("data", TreesConfig)
            references = read_references(data, options.trees)
            if options.output:
                read = options.trees or data.test_trees
                flags.check_output(options.output, read)
        parser = load_parser(arguments)
        pairs = [make_pair(tree) for tree in references]
        started = time.monotonic()
        sequences = parser.translate([sentence for sentence, _ in pairs])
        seconds = time.monotonic() - started
        if options.output:
            with flags.user_errors():
                write_outputs(options.output, sequences, references)
        result = ParsingMetric().measure(sequences, [tree for _, tree in pairs])
        flags.show(json.dumps({**result, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main()
