"""A document, divided into its sentences and text that stays as it is."""

import collections
import typing
from collections.abc import Callable, Iterator, Sequence

import regex

from keras_transformer.documents.charsets import text_of
from keras_transformer.documents.pieces import Checked, Left, write
from keras_transformer.documents.sentences import Sentence
from keras_transformer.translation.alignment import SpanLink

REFUSED = "with placeholders or marks that the translation would change"
LINE_END = regex.compile(r"\r\n|[\r\n]")


class Unread(typing.NamedTuple):
    """A text that is not translated, with its first line and the reason."""

    line: int
    reason: str
    text: str


class Document:
    """A document whose sentences can be replaced by their translations.

    Args:
        pieces: The document's pieces, in order; see the module `pieces`.
        finish: Makes the document's bytes from the text of each piece. Also
            returns their charset, "" if they are binary.

    Attributes:
        lines: The line number of each sentence, from 1.
        left: The `Unread` texts. After writing, also the texts whose
            translation could not be used.
    """

    def __init__(
        self,
        pieces: Sequence[typing.Any],
        finish: Callable[[list[str]], tuple[bytes, str]],
    ):
        self._pieces = pieces
        self._finish = finish
        self._sentences: list[Sentence] = []
        self._before: list[list[str]] = [[]]
        self.lines: list[int] = []
        self.left: list[Unread] = []
        self._checked: list[tuple[int, Checked]] = []
        self._walk(pieces, 1)

    def _walk(self, pieces, line, inside=False):
        """Collects sentences and left texts. Returns the line after them."""
        for piece in pieces:
            source = getattr(piece, "source", None)
            if isinstance(piece, str):
                source = piece
                if isinstance(piece, Left):
                    self.left.append(Unread(line, piece.reason, str(piece)))
                if not inside:
                    self._before[-1].append(piece)
                after = line
            else:
                is_sentence = isinstance(piece, Sentence)
                if isinstance(piece, Checked):
                    self._checked.append((line, piece))
                if is_sentence:
                    self._sentences.append(piece)
                    self._before.append([])
                    self.lines.append(line)
                after = self._walk(piece.pieces, line, inside or is_sentence)
            if source is not None:
                after = line + len(LINE_END.findall(source))
            line = after
        return line

    @property
    def sentences(self) -> list[str]:
        """The text of each sentence, as the model reads it."""
        return [sentence.text for sentence in self._sentences]

    @property
    def needs_alignment(self) -> list[bool]:
        """Whether each sentence has markup, which the alignment places."""
        return [sentence.needs_alignment for sentence in self._sentences]

    def texts_before(self) -> list[str]:
        """Returns the text between each sentence and the one before it."""
        return ["".join(parts) for parts in self._before[:-1]]

    def hide_placeholders(self, translations: Sequence[str]) -> list[int]:
        """Turns placeholders into markup where a translation lost any.

        Returns the indices of these sentences. Their text has changed, so they
        must be translated again, and aligned.
        """
        hidden = [
            i
            for i, translation in enumerate(translations)
            if not self._sentences[i].keeps_placeholders(translation)
        ]
        for i in hidden:
            self._sentences[i].hide_placeholders()
        return hidden

    def show_placeholders(self) -> None:
        """Undoes `hide_placeholders`, for another translation."""
        for sentence in self._sentences:
            sentence.show_placeholders()

    def write_bytes(
        self,
        translations: Sequence[str | None],
        alignments: Sequence[Sequence[SpanLink]] = (),
    ) -> tuple[bytes, str]:
        """Returns the translated document's bytes and charset ("" if binary).

        A sentence that equals its translation, or has None, keeps its original
        form.
        `alignments` are the `SpanLink`s from `Translator.align_spans`, for each
        sentence that `needs_alignment`. Without them, markup keeps its relative
        position. Raises ValueError unless each sentence has a translation.
        """
        if len(translations) != len(self._sentences):
            raise ValueError(
                "expected one translation for each sentence."
                f" Received: {len(translations)} and {len(self._sentences)}"
            )
        links = iter(alignments)
        written: Iterator = (
            (translation, next(links, ()) if needs_alignment else ())
            for translation, needs_alignment in zip(
                translations, self.needs_alignment, strict=True
            )
        )
        texts = write(self._pieces, written)
        self.left = [u for u in self.left if u.reason != REFUSED] + [
            Unread(line, REFUSED, block.text)
            for line, block in self._checked
            if block.is_refused
        ]
        return self._finish(texts)

    def write(
        self,
        translations: Sequence[str | None],
        alignments: Sequence[Sequence[SpanLink]] = (),
    ) -> str:
        """Returns `write_bytes` as text. Raises ValueError if it is binary."""
        return text_of(*self.write_bytes(translations, alignments))

    def summary(self) -> str:
        """Counts the texts that are left for each reason, with the first lines.

        For example "left: 2 code (lines 3, 8), 1 math (line 9)", or "" if no
        text is left.
        """
        found = collections.defaultdict(list)
        for unread in self.left:
            found[unread.reason].append(unread.line)
        parts = []
        for reason, lines in found.items():
            first = sorted(set(lines))
            shown = ", ".join(
                [*map(str, first[:3]), *["..."] * (len(first) > 3)]
            )
            word = "lines" if len(first) > 1 else "line"
            parts.append(f"{len(lines)} {reason} ({word} {shown})")
        return f"left: {', '.join(parts)}" if parts else ""
