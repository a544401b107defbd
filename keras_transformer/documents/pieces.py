"""The pieces that a document consists of, in order.

A piece is a text, which stays as it is, a `Block`, or a sentence.
"""

import typing
from collections.abc import Callable, Iterator, Sequence

from keras_transformer.translation.alignment import SpanLink

# The translation, if there is one, and the links of each sentence, in order.
Written = Iterator[tuple[str | None, Sequence[SpanLink]]]


class Writer(typing.Protocol):
    """What is written with translations: a `Block`, or a sentence."""

    pieces: "list[Piece]"

    def write(self, written: Written) -> str:
        """Returns the text, with what is written for each of its sentences."""


Piece: typing.TypeAlias = str | Writer


class Left(str):
    """Text for readers that is not translated, with the reason: "code"."""

    reason: str

    def __new__(cls, text: str, reason: str) -> "Left":
        """Makes a text with its reason."""
        left = super().__new__(cls, text)
        left.reason = reason
        return left


class Label(str):
    """What stays, or, in a sentence that is translated, another text."""

    translated: str

    def __new__(cls, text: str, translated: str) -> "Label":
        """Makes a text with another one."""
        label = super().__new__(cls, text)
        label.translated = translated
        return label


class Block:
    """Pieces that are written together.

    Args:
        pieces: The pieces.
        finish: From the written pieces, joined, to the text of the block.
        source: The original text, to count lines, if not the pieces.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        finish: Callable[[str], str] = str,
        source: str | None = None,
    ):
        self.pieces = list(pieces)
        self.source = source
        self._finish = finish

    def write(self, written: Written) -> str:
        """Returns the text, with what is written for each of its sentences."""
        return self._finish("".join(write(self.pieces, written)))


class Checked(Block):
    """A block that stays if a program could not use its translation.

    Args:
        pieces, finish, source: As in `Block`.
        fits: Whether the written pieces, joined, can be used.
        text: What the block translates.

    Attributes:
        is_refused: Whether the last translation was not used.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        finish: Callable[[str], str],
        source: str,
        fits: Callable[[str], bool],
        text: str,
    ):
        super().__init__(pieces, finish, source)
        self._fits, self.text, self.is_refused = fits, text, False

    def write(self, written: Written) -> str:
        """Returns the block's text, or `source` if the translation misfits."""
        text = "".join(write(self.pieces, written))
        self.is_refused = not self._fits(text)
        return (self.source or "") if self.is_refused else self._finish(text)


def write(pieces: Sequence[Piece], written: Written) -> list[str]:
    """Returns the text of each piece."""
    return [
        piece if isinstance(piece, str) else piece.write(written)
        for piece in pieces
    ]


def joined(pieces: Sequence[Piece]) -> Piece:
    """Makes one piece: a text if all are texts without a reason."""
    texts = [piece for piece in pieces if type(piece) is str]
    return "".join(texts) if len(texts) == len(pieces) else Block(pieces)
