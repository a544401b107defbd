"""The pieces that a document consists of, in order.

A piece is a text, which stays as it is, a `Block`, or a sentence.
"""

import typing
from collections.abc import Callable, Iterator, Sequence

from keras_transformer.translation.alignment import SpanLink

# The translation, or None, and the links of each sentence, in order.
Written = Iterator[tuple[str | None, Sequence[SpanLink]]]


class Writer(typing.Protocol):
    """A piece that is written with translations: a `Block` or a sentence."""

    pieces: "list[Piece]"

    def write(self, written: Written) -> str:
        """Returns the text, with the next translations from `written`."""


Piece: typing.TypeAlias = str | Writer


class Left(str):
    """Text for readers that is not translated, with a reason such as "code"."""

    reason: str

    def __new__(cls, text: str, reason: str) -> "Left":
        """Makes a text with its reason."""
        left = super().__new__(cls, text)
        left.reason = reason
        return left


class Label(str):
    """A text with a replacement, for when its sentence is translated.

    Outside of sentences, it is replaced when any other piece has changed.
    """

    translated: str

    def __new__(cls, text: str, translated: str) -> "Label":
        """Makes a text with its replacement."""
        label = super().__new__(cls, text)
        label.translated = translated
        return label


def declared(code: str, target: str) -> str:
    """Returns the code that a translation declares instead of `code`.

    >>> declared("de-AT", "de"), declared("en", "de"), declared("de", "de_AT")
    ('de-AT', 'de', 'de_AT')
    """
    variant, wanted = (c.lower().replace("_", "-") for c in (code, target))
    return code if f"{variant}-".startswith(f"{wanted}-") else target


class Block:
    """Pieces that are written together.

    Args:
        pieces: The pieces.
        finish: Makes the block's text from the written pieces, joined.
        source: The original text, if its lines differ from the pieces' lines.
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
        """Returns the text, with the next translations from `written`."""
        return self._finish("".join(write(self.pieces, written)))


class Checked(Block):
    """A block that stays if a program could not use its translation.

    Args:
        pieces, finish, source: As in `Block`.
        fits: Returns whether the written pieces, joined, can be used.
        text: The text that the block translates.

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
        """Returns the block's text, or `source` if the translation is unfit.

        Also returns `source` if no sentence has a translation.
        """
        given: list[str | None] = []

        def noted() -> Written:
            for one in written:
                given.append(one[0])
                yield one

        text = "".join(write(self.pieces, noted()))
        stays = bool(given) and given.count(None) == len(given)
        self.is_refused = not (stays or self._fits(text))
        if stays or self.is_refused:
            return self.source or ""
        return self._finish(text)


def write(pieces: Sequence[Piece], written: Written) -> list[str]:
    """Returns the text of each piece."""
    return [
        piece if isinstance(piece, str) else piece.write(written)
        for piece in pieces
    ]


def joined(pieces: Sequence[Piece]) -> Piece:
    """Joins pieces into one: a text if all are plain texts, else a `Block`."""
    texts = [piece for piece in pieces if type(piece) is str]
    return "".join(texts) if len(texts) == len(pieces) else Block(pieces)
