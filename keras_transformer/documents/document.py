"""A document as its sentences and everything that stays as it is."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence

from keras_transformer.documents.sentences import Sentence
from keras_transformer.translation.alignment import SpanLink


class Block:
    """Pieces of a document that are written together.

    Args:
        pieces: Texts, which stay as they are, `Sentence`s and `Block`s.
        finish: From the written pieces, joined, to the text of the block.
    """

    def __init__(
        self,
        pieces: Sequence["str | Sentence | Block"],
        finish: Callable[[str], str] = str,
    ):
        self.pieces = list(pieces)
        self._finish = finish

    def walk(self) -> Iterator[Sentence]:
        """Yields the sentences in order."""
        for piece in self.pieces:
            if isinstance(piece, Block):
                yield from piece.walk()
            elif isinstance(piece, Sentence):
                yield piece

    def write(self, written: Iterator[str]) -> str:
        """The block's text, with what is written for each of its sentences."""
        parts = []
        for piece in self.pieces:
            if isinstance(piece, Block):
                piece = piece.write(written)
            elif isinstance(piece, Sentence):
                piece = next(written)
            parts.append(piece)
        return self._finish("".join(parts))


class Document:
    """A document whose sentences can be replaced by their translations.

    Args:
        pieces: As of a `Block`.
    """

    def __init__(self, pieces: Sequence[str | Sentence | Block]):
        self._block = Block(pieces)
        self._sentences = list(self._block.walk())

    @property
    def sentences(self) -> list[str]:
        """The text of each sentence, as the model reads it."""
        return [sentence.text for sentence in self._sentences]

    @property
    def needs_alignment(self) -> list[bool]:
        """Whether each sentence has markup, which follows the alignment."""
        return [sentence.needs_alignment for sentence in self._sentences]

    def texts_before(self) -> list[str]:
        """What stands before each sentence."""
        mark = uuid.uuid4().hex  # no text has it
        return self._block.write(itertools.repeat(mark)).split(mark)[:-1]

    def hide_placeholders(self, translations: Sequence[str]) -> list[int]:
        """Takes placeholders that a translation lost out of their sentence.

        They become markup: the sentence has another text now, which must be
        translated again, and needs an alignment.

        Args:
            translations: One for each sentence.

        Returns:
            The indices of the sentences that changed.
        """
        hidden = [
            i
            for i, translation in enumerate(translations)
            if not self._sentences[i].keeps_placeholders(translation)
        ]
        for i in hidden:
            self._sentences[i] = self._sentences[i].without_placeholders()
        return hidden

    def write(
        self,
        translations: Sequence[str],
        alignments: Sequence[Sequence[SpanLink]] = (),
    ) -> str:
        """The document with its sentences translated.

        A sentence whose translation is its text stays as it is written.

        Args:
            translations: One for each sentence.
            alignments: The `SpanLink`s of each sentence that needs an
                alignment, from `Translator.align_spans`. By default markup
                keeps its relative position.

        Raises:
            ValueError: There are not as many translations as sentences.
        """
        if len(translations) != len(self._sentences):
            raise ValueError(
                "expected one translation for each sentence."
                f" Received: {len(translations)} and {len(self._sentences)}"
            )
        links = iter(alignments)
        return self._block.write(
            sentence.write(
                translation,
                next(links, ()) if sentence.needs_alignment else (),
            )
            for sentence, translation in zip(
                self._sentences, translations, strict=True
            )
        )
