"""Constituency trees, and the bracketed files of the Penn Treebank.

    (TOP (S (NP (NNP Anna)) (VP (VBD slept)) (. .)))

No function here recurses, as a model may nest brackets as deeply as its output
is long.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator

from keras_transformer.data.files.pairs import read_lines

TOP = "TOP"  # label of the root
# Labels of the root in treebanks and parsers; "" in the files of the WSJ.
ROOT_LABELS = (TOP, "", "ROOT", "S1", "VROOT")
TRACE = "-NONE-"  # tag of a trace


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A word with its part-of-speech tag."""

    tag: str
    word: str


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A constituent: a label, and its children, from left to right."""

    label: str
    children: "tuple[Part, ...]"


Part = Node | Leaf


def walk(tree: Node) -> Iterator[tuple[str, Part]]:
    """Yields the parts of a tree in the order in which they are written.

    A part is `("open", node)`, `("leaf", leaf)` or `("close", node)`.

    >>> tree = Node("NP", (Leaf("DT", "the"), Leaf("NN", "cat")))
    >>> [event for event, _ in walk(tree)]
    ['open', 'leaf', 'leaf', 'close']
    """
    yield "open", tree
    stack = [(tree, iter(tree.children))]
    while stack:
        node, children = stack[-1]
        child = next(children, None)
        if child is None:
            yield "close", node
            stack.pop()
        elif isinstance(child, Leaf):
            yield "leaf", child
        else:
            yield "open", child
            stack.append((child, iter(child.children)))


class TreeBuilder:
    """A tree that is built from left to right, from an open root.

    Attributes:
        open_labels: Labels of the open constituents, the root first.
    """

    def __init__(self) -> None:
        self.open_labels = [TOP]
        self._children: list[list[Part]] = [[]]

    def open(self, label: str) -> None:
        """Opens a constituent inside the innermost open one."""
        self.open_labels.append(label)
        self._children.append([])

    def add(self, child: Part) -> None:
        """Adds a child to the innermost open constituent."""
        self._children[-1].append(child)

    def close(self) -> None:
        """Closes the innermost constituent, and drops it if it is empty."""
        label, children = self.open_labels.pop(), self._children.pop()
        if children:
            self.add(Node(label, tuple(children)))

    def reopen(self) -> None:
        """Reopens the last child of the innermost constituent if a node."""
        last = self._children[-1][-1] if self._children[-1] else None
        if isinstance(last, Node):
            self._children[-1].pop()
            self.open_labels.append(last.label)
            self._children.append(list(last.children))

    def finish(self) -> Node:
        """Closes all constituents and returns the tree."""
        while len(self.open_labels) > 1:
            self.close()
        return Node(TOP, tuple(self._children[0]))


def leaves(tree: Node) -> list[Leaf]:
    """Returns the leaves of a tree, from left to right."""
    return [part for _, part in walk(tree) if isinstance(part, Leaf)]


def write_tree(tree: Node) -> str:
    """Formats a tree as one line.

    >>> write_tree(Node("NP", (Leaf("DT", "the"), Leaf("NN", "cat"))))
    '(NP (DT the) (NN cat))'
    """
    parts = []
    for event, part in walk(tree):
        if isinstance(part, Leaf):
            parts.append(f" ({part.tag} {part.word})")
        else:
            parts.append(f" ({part.label}" if event == "open" else ")")
    return "".join(parts).lstrip()


# Reading


def read_trees(path: str | os.PathLike) -> Iterator[Node]:
    """Yields the trees of a file, which may be `.gz`, as `parse_trees` does.

    Raises ValueError, with the line, if the file is not UTF-8 or is not in the
    Penn Treebank's format; OSError if it cannot be read.
    """
    path = pathlib.Path(path)
    return parse_trees(read_lines(path), str(path))


def parse_trees(lines: Iterable[str], path: str) -> Iterator[Node]:
    """Yields the trees of lines in the Penn Treebank's format.

    A tree may have several lines, and a line several trees. The root of every
    tree is `TOP`: it replaces an outermost label in `ROOT_LABELS` or a missing
    one, and is added above any other. Nothing else is changed: see `strip`.

    Raises ValueError, with `path` and the line's number, if the lines are not
    in this format.
    """
    brackets: list[list[Part | str]] = []  # the contents of open brackets
    number = begin = 0
    for number, line in enumerate(lines, 1):
        for token in _TOKENS.findall(line):
            if token == "(":
                begin = begin if brackets else number
                brackets.append([])
            elif not brackets:
                raise ValueError(
                    f"{path}, line {number}: expected a tree, which begins"
                    f" with '('. Received: {token!r}"
                )
            elif token != ")":
                brackets[-1].append(token)
            else:
                contents = brackets.pop()
                try:
                    part = _close_bracket(contents, not brackets)
                except ValueError as error:
                    raise ValueError(
                        f"{path}, line {number}: {error}"
                    ) from None
                if brackets:
                    brackets[-1].append(part)
                elif isinstance(part, Node) and part.label in ROOT_LABELS:
                    yield Node(TOP, part.children)
                else:
                    yield Node(TOP, (part,))
    if brackets:
        raise ValueError(
            f"{path}, line {begin}: expected a tree. Received: one whose"
            f" brackets are still open in line {number}, the last"
        )


_TOKENS = re.compile(r"[()]|[^\s()]+")


def _close_bracket(contents: list[Part | str], is_outermost: bool) -> Part:
    """Makes a node or a leaf from a bracket's contents."""
    label, *others = contents or [""]
    if is_outermost and not isinstance(label, str):
        label, others = "", contents
    children = [part for part in others if not isinstance(part, str)]
    if isinstance(label, str) and others:
        if len(children) == len(others):
            return Node(label, tuple(children))
        if len(others) == 1 and isinstance(others[0], str):
            return Leaf(label, others[0])
    shown = (part if isinstance(part, str) else "(...)" for part in contents)
    raise ValueError(
        "expected '(TAG WORD)', or '(LABEL', constituents and ')'; only the"
        f" outermost bracket may have no label. Received: '({' '.join(shown)})'"
    )


def strip(tree: Node) -> Node:
    """Strips a tree to what parsers are trained and scored on.

    Removes traces, and constituents that contain only traces. Removes functions
    from labels: NP-SBJ and NP=2 become NP. The root is left without children if
    all words are traces.
    """

    def without_trace(leaf: Leaf) -> Leaf | None:
        return None if leaf.tag == TRACE else leaf

    def without_function(label: str) -> str:
        return re.split("[-=]", label)[0] or label

    return _rebuild(tree, without_trace, without_function)


def retag(tree: Node, tags: Iterable[str]) -> Node:
    """Returns a tree with other tags of its words, given from left to right."""
    remaining = iter(tags)
    return _rebuild(tree, lambda leaf: Leaf(next(remaining), leaf.word), str)


def _rebuild(
    tree: Node,
    change_leaf: Callable[[Leaf], Leaf | None],
    change_label: Callable[[str], str],
) -> Node:
    """Copies a tree with changed labels and leaves, without those now None."""
    builder = TreeBuilder()
    for event, part in list(walk(tree))[1:-1]:  # without the root
        if event == "close":
            builder.close()
        elif isinstance(part, Node):
            builder.open(change_label(part.label))
        elif leaf := change_leaf(part):
            builder.add(leaf)
    return builder.finish()
