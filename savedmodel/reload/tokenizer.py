"""Reads the vocabulary beside a model, to encode sentences and decode ids."""

import pathlib
import re
from collections.abc import Callable, Iterable

from .case_marks import TITLE, mark, restore
from .sentences import ASCII_SPACES, EOS, PAD, UNK, Languages, Sentence, text_of
from .signs import has_bytes

END_OF_TABLE = "<end of table>"  # see `Vocabulary`
END_OF_TABLE_WITH_CODES = "<end of table with codes>"
SEGMENTS = ".segments.model"  # the suffix of the model that segments


class Vocabulary:
    """A SentencePiece model, with a table of ids if it was imported.

    The pieces before `END_OF_TABLE` or `END_OF_TABLE_WITH_CODES` are the table,
    which has the id of each segment. `*.segments.model` beside the file makes
    the segments, and lacks the pieces that only the table has. A language code
    that begins a text, such as `>>fra<<`, is one segment; but with
    `END_OF_TABLE_WITH_CODES`, only if it is such a piece. With case marks, text
    is segmented as `mark` returns it.
    """

    def __init__(self, path: pathlib.Path):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(
            model_file=str(path)
        )
        # With case marks it segments normalized, marked text.
        self.has_case_marks = self.processor.piece_to_id(TITLE) != UNK
        self.segmenter = self.processor
        if path.with_suffix(SEGMENTS).exists():
            self.segmenter = sentencepiece.SentencePieceProcessor(
                model_file=str(path.with_suffix(SEGMENTS))
            )
        self.table = self.codes = None
        for last in (END_OF_TABLE, END_OF_TABLE_WITH_CODES):
            end = self.processor.piece_to_id(last)
            if end == UNK:
                continue
            ids = range(UNK + 1, end)
            pieces = self.processor.id_to_piece(list(ids))
            self.table = dict(zip(pieces, ids, strict=True))
            if last == END_OF_TABLE_WITH_CODES:
                self.codes = {
                    piece
                    for piece, id in self.table.items()
                    if self.processor.is_unused(id)
                    or self.processor.is_control(id)
                }

    def encode(self, sentence: str) -> list[int]:
        """Returns the ids of a sentence, without EOS."""
        if self.table is None:
            if self.has_case_marks:
                sentence = mark(self.processor.normalize(sentence))
            return self.segmenter.encode(sentence)
        [(code, rest)] = re.findall(r"(?s)\A(>>.*?<<)?(.*)\Z", sentence)
        if self.codes is not None and code not in self.codes:
            code, rest = "", sentence
        segments = self.segmenter.encode(rest, out_type=str)
        if code:
            segments.insert(0, code)
        return [self.table.get(segment, UNK) for segment in segments]

    def knows(self, text: str) -> bool:
        """Tells whether the vocabulary can write a text."""
        return UNK not in self.encode(text) and not has_bytes(
            text, self.encode, self.processor.is_byte
        )

    def decode(self, ids: list[int]) -> str:
        """Converts ids, without PAD and EOS, to text."""
        text = self.processor.decode(ids)
        if self.has_case_marks:
            text = restore(text)
        return text.strip(ASCII_SPACES)


def load_vocabularies(directory: pathlib.Path) -> list[Vocabulary]:
    """Loads the vocabularies of source and target, which may be the same."""
    path = directory / "tokenizer.model"
    if path.exists():
        return [Vocabulary(path)] * 2
    return [
        Vocabulary(directory / f"{side}_tokenizer.model")
        for side in ("source", "target")
    ]


def load_tokenizer(
    directory: pathlib.Path, description: dict
) -> tuple[
    Callable[[Sentence], tuple[list[int], bool]],
    Callable[[Iterable[int]], str],
    Callable[[str], bool],
]:
    """Returns functions that encode a sentence, decode ids, and know a text.

    The first returns ids, with EOS and the description's language tokens, and
    whether they were truncated.
    """
    sources, targets = load_vocabularies(directory)
    languages = Languages(description)

    def encode(sentence: Sentence) -> tuple[list[int], bool]:
        ids = sources.encode(text_of(sentence))
        if not ids:
            return [EOS], False
        before, after = (
            languages.tokens(sentence, place) for place in ("before", "after")
        )
        ids = before + ids
        longest = description["max_source_length"] - 1 - len(after)
        truncated = len(ids) > longest
        return (ids[:longest] if truncated else ids) + [EOS] + after, truncated

    def decode(ids: Iterable[int]) -> str:
        return targets.decode([int(i) for i in ids if i not in (PAD, EOS)])

    return encode, decode, sources.knows
