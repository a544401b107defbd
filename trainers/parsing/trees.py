"""Constituency trees, and the bracketed files of the Penn Treebank.

    (TOP (S (NP (NNP Anna)) (VP (VBD slept)) (. .)))

Nothing here recurses: a model may nest brackets as deep as its output is long.
"""

import dataclasses
import gzip
import os
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator

TOP = "TOP"  # label of the root
# Labels of the root in treebanks and parsers; "" as in the files of the WSJ.
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
    children: "tuple[Node | Leaf, ...]"


def walk(tree: Node) -> Iterator[tuple[str, Node | Leaf]]:
    """Yields the parts of a tree in the order in which it is written.

    Yields:
        `("open", node)`, `("leaf", leaf)` and `("close", node)`.

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
    """Builds a tree from its beginning to its end; begins with the root open.

    Attributes:
        open_labels: Labels of the constituents that are open, the root first.
    """

    def __init__(self) -> None:
        self.open_labels = [TOP]
        self._children: list[list[Node | Leaf]] = [[]]

    def open(self, label: str) -> None:
        """Opens a constituent in the innermost one that is open."""
        self.open_labels.append(label)
        self._children.append([])

    def add(self, child: Node | Leaf) -> None:
        """Adds to the innermost constituent that is open."""
        self._children[-1].append(child)

    def close(self) -> None:
        """Closes the innermost constituent; an empty one vanishes."""
        label, children = self.open_labels.pop(), self._children.pop()
        if children:
            self.add(Node(label, tuple(children)))

    def reopen(self) -> None:
        """Opens the last constituent of the innermost one again, if any."""
        last = self._children[-1][-1] if self._children[-1] else None
        if isinstance(last, Node):
            self._children[-1].pop()
            self.open_labels.append(last.label)
            self._children.append(list(last.children))

    def finish(self) -> Node:
        """The tree; open constituents are closed."""
        while len(self.open_labels) > 1:
            self.close()
        return Node(TOP, tuple(self._children[0]))


def leaves(tree: Node) -> list[Leaf]:
    """The words of a tree with their tags, from left to right."""
    return [part for _, part in walk(tree) if isinstance(part, Leaf)]


def write_tree(tree: Node) -> str:
    """A tree in one line.

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
    """The trees of a file in the format of the Penn Treebank, or of its `.gz`.

    A tree may have several lines, and a line several trees. The outermost
    bracket may have no label; whichever of `ROOT_LABELS` it has, and also if it
    has another, the tree's root is `TOP`. Nothing else is changed: see `strip`.

    Args:
        path: The file.

    Yields:
        Each tree.

    Raises:
        ValueError: The file is not UTF-8, or no such trees: with its line.
    """
    path = pathlib.Path(path)
    reader = _TreeReader()
    number = 0
    for number, line in enumerate(_read_lines(path), 1):
        for token in _TOKENS.findall(line):
            try:
                tree = reader.read(token, number)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            if tree is not None:
                yield tree
    if reader.is_open:
        raise ValueError(
            f"{path}, line {reader.first_line}: expected a tree."
            f" Received: one whose brackets are still open in line {number},"
            " the last"
        )


_TOKENS = re.compile(r"[()]|[^\s()]+")


def _read_lines(path: pathlib.Path) -> Iterator[str]:
    """The lines of a file, compressed or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    with opener(path, "rb") as file:
        try:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8"
                f" ({error.reason}, byte {error.start + 1} of the line)"
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: corrupt gzip file ({error})") from error


class _TreeReader:
    """Takes the tokens of a file, and gives its trees."""

    def __init__(self) -> None:
        self.first_line = 0  # where the tree at hand begins
        # Of each open bracket: its label, None until it is known, and its
        # nodes, or the word of a leaf.
        self._labels: list[str | None] = []
        self._parts: list[list[Node | Leaf | str]] = []

    @property
    def is_open(self) -> bool:
        """Whether a tree has begun and not ended."""
        return bool(self._labels)

    def read(self, token: str, line: int) -> Node | None:
        """Takes a token; the tree, if this token ends it.

        Raises:
            ValueError: No tree has this token here.
        """
        if token == "(":
            if not self._labels:
                self.first_line = line
            self._open()
        elif token == ")":
            return self._close()
        elif not self._labels:
            raise ValueError(
                f"expected a tree, which begins with '('. Received: {token!r}"
            )
        elif self._labels[-1] is None and not self._parts[-1]:
            self._labels[-1] = token
        elif self._parts[-1] or self._labels[-1] is None:
            raise ValueError(
                "expected one word, or constituents in brackets, after a label."
                f" Received: {token!r} in a bracket that has more"
            )
        else:
            self._parts[-1].append(token)
        return None

    def _open(self) -> None:
        """A bracket opens."""
        if self._labels:
            if self._labels[-1] is None and len(self._labels) > 1:
                raise ValueError(
                    "expected a label after '('; only the outermost bracket may"
                    " have none. Received: '(('"
                )
            if self._parts[-1] and isinstance(self._parts[-1][0], str):
                raise ValueError(
                    "expected ')' after a word."
                    f" Received: '(' after {self._parts[-1][0]!r}"
                )
        self._labels.append(None)
        self._parts.append([])

    def _close(self) -> Node | None:
        """A bracket closes; the tree, if it was the outermost."""
        if not self._labels:
            raise ValueError("expected '('. Received: ')' without it")
        label, parts = self._labels.pop() or "", self._parts.pop()
        if not parts:
            raise ValueError(
                "expected a word or constituents in a bracket."
                f" Received: '({label})'"
            )
        word, *_ = parts
        part = (
            Leaf(label, word)
            if isinstance(word, str)
            else Node(label, tuple(p for p in parts if not isinstance(p, str)))
        )
        if self._labels:
            self._parts[-1].append(part)
            return None
        if isinstance(part, Node) and part.label in ROOT_LABELS:
            return Node(TOP, part.children)
        return Node(TOP, (part,))


def strip(tree: Node) -> Node:
    """A tree as parsers are trained and scored on it.

    Traces vanish with the constituents that have nothing else, and labels lose
    their functions: NP-SBJ and NP=2 become NP.

    Args:
        tree: A tree of `read_trees`.

    Returns:
        The tree; without children if it had nothing but traces.
    """
    builder = TreeBuilder()
    events = list(walk(tree))[1:-1]  # without the root, which stays
    for event, part in events:
        if isinstance(part, Leaf):
            if part.tag != TRACE:
                builder.add(part)
        elif event == "open":
            builder.open(re.split("[-=]", part.label)[0] or part.label)
        else:
            builder.close()
    return builder.finish()


def retag(tree: Node, tags: Iterable[str]) -> Node:
    """A tree with other tags of its words, given from left to right."""
    builder = TreeBuilder()
    remaining = iter(tags)
    for event, part in list(walk(tree))[1:-1]:
        if isinstance(part, Leaf):
            builder.add(Leaf(next(remaining), part.word))
        elif event == "open":
            builder.open(part.label)
        else:
            builder.close()
    return builder.finish()
