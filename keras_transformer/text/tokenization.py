"""Strings to ids and back: SentencePiece on lists, without TensorFlow.

One byte-pair vocabulary serves both languages, as in sec. 5.1 of the paper, or
each language has its own. `graph_tokenization.py` has the same functions as
TensorFlow operations, for exported models, which read and write strings.
"""

import bisect
import functools
import hashlib
import itertools
import os
import pathlib
import re
import typing
from collections.abc import Iterable, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2

from keras_transformer.base.files import write_atomically
from keras_transformer.text.case_marks import (
    END,
    MARKS,
    capitalize,
    mark,
    remove_marks,
)
from keras_transformer.text.vocabulary import (
    BOS,
    EOS,
    LANGUAGE_CODE,
    NORMALIZATIONS,
    PAD,
    SPACE,
    SPECIAL_IDS,
    UNK,
)
from keras_transformer.text.vocabulary_training import ID_NAMES, train_model

if typing.TYPE_CHECKING:
    import tensorflow as tf

# A control piece. The pieces before it are a table of ids that came with the
# model; the pieces after it take part in the segmentation, but have no id.
END_OF_TABLE = "<end of table>"
# The same, where `>>fra<<` is a language code only if the table has it.
END_OF_TABLE_WITH_CODES = "<end of table with codes>"
ASCII_SPACES = " \t\n\v\f\r"  # removed by `tf.strings.strip`
# Pattern for the pieces of tags; see `keras_transformer.data.languages`.
TAG_PIECE = SPACE + r"<2[^\s<>]+>"
# A normalization that changes nothing.
AS_IT_IS = sentencepiece_model_pb2.NormalizerSpec(
    name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False
)
# The vocabulary files beside a model: one, or one for each language.
SHARED_FILE = "tokenizer.model"
PAIR_FILES = ("source_tokenizer.model", "target_tokenizer.model")


class Token(typing.NamedTuple):
    """A token of a string, and its position."""

    id: int  # its id; never `EOS`
    text: str  # the text that it covers, as written, without white space
    # Index of its word, as `str.split` finds words; the number of words if only
    # white space follows.
    word: int
    begin: int  # index of the first character of `text` in the string


class Tokenizer:
    """A SentencePiece vocabulary, usually of byte pairs and for two languages.

    `decode(encode(strings))` is `strings` with each run of white space replaced
    by one space and compatibility characters by plain ones (Unicode NFKC: a
    ligature becomes its letters); case and spelling stay. A character that is
    not in the vocabulary becomes ` ⁇ `.

    `to_ids` and `to_strings` work on lists and need no TensorFlow. `encode` and
    `decode` return tensors and may be part of a graph.

    Vocabularies of other systems, which `kt-import` reads, have a table of ids
    apart from the model: see `has_table`.

    A vocabulary with the pieces of `case_marks` is for lower-case text with
    these marks. Strings are normalized, then marked, then segmented. Decoding
    restores capital letters.

    Args:
        model_bytes: A serialized SentencePiece model, as in `tokenizer.model`.
            Its ids of PAD, BOS, EOS and UNK are 0, 1, 2 and 3.

    Attributes:
        model_bytes: The serialized model.
        vocab_size: Number of tokens V, including special tokens.
        has_table: Whether the pieces up to `END_OF_TABLE` or
            `END_OF_TABLE_WITH_CODES` are a table of V ids. If so, the id of a
            segment of text is its id in the table, or `UNK`. A language code at
            the beginning of a string, such as `>>fra<<`, is then a segment of
            its own: see `codes`.
        has_case_marks: Whether the vocabulary has the pieces of `case_marks`.

    Raises:
        ValueError: The bytes are not such a model.

    >>> tokenizer = Tokenizer.train(["a rose is a rose"], vocab_size=17)
    >>> tokenizer.encode(["a rose"])
    <tf.RaggedTensor [[5, 8, 2]]>
    >>> tokenizer.decode([[5, 8, 2]]).numpy()[0]
    b'a rose'
    """

    def __reduce__(self):
        return type(self), (self.model_bytes,)

    def __init__(self, model_bytes: bytes):
        self.model_bytes = bytes(model_bytes)
        processor = self._processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(self.model_bytes)
        except RuntimeError as error:
            raise ValueError(
                "model_bytes must be a SentencePiece model."
                f" Received: {len(model_bytes)} bytes"
            ) from error
        special_ids = tuple(getattr(processor, name)() for name in ID_NAMES)
        if special_ids != SPECIAL_IDS:
            raise ValueError(
                "The ids of PAD, BOS, EOS and UNK must be"
                f" {SPECIAL_IDS}. Received: {special_ids}"
            )
        end = processor.piece_to_id(END_OF_TABLE)
        self._takes_any_code = end != UNK
        if end == UNK:
            end = processor.piece_to_id(END_OF_TABLE_WITH_CODES)
        self.has_table = end != UNK
        self.vocab_size = end if self.has_table else processor.get_piece_size()
        marks = processor.piece_to_id(list(MARKS))
        self.has_case_marks = not self.has_table and UNK not in marks

    @functools.cached_property
    def _segmenter(self):
        """The SentencePiece processor of `segmenting_bytes`."""
        model = self.segmenting_bytes
        if model is self.model_bytes:
            return self._processor
        return sentencepiece.SentencePieceProcessor(model_proto=model)

    @functools.cached_property
    def segmenting_bytes(self) -> bytes:
        """The SentencePiece model that segments strings.

        With a table, this model lacks the pieces that only the table has:
        implementations of SentencePiece differ in the segments and errors that
        such pieces cause. With case marks, it does not normalize, and reads
        text from `normalize`. Otherwise it is `model_bytes`.
        """
        complete, model = self._proto(), self._proto()
        if self.has_case_marks:
            model.normalizer_spec.CopyFrom(AS_IT_IS)
            return model.SerializeToString(deterministic=True)
        if not self.has_table:
            return self.model_bytes
        del model.pieces[:]
        model.pieces.extend(
            piece
            for id, piece in enumerate(complete.pieces)
            if id in SPECIAL_IDS
            or id > self.vocab_size
            or piece.type not in (piece.UNUSED, piece.CONTROL)
        )
        model.trainer_spec.vocab_size = len(model.pieces)
        return model.SerializeToString(deterministic=True)

    @property
    def normalizing_bytes(self) -> bytes:
        """A SentencePiece model whose segments, joined, are normalized text.

        Unlike `model_bytes`, it writes no character as bytes.
        """
        model = self._proto()
        model.trainer_spec.byte_fallback = False
        for piece in model.pieces:
            if piece.type == piece.BYTE:
                piece.type = piece.UNUSED
        return model.SerializeToString(deterministic=True)

    @property
    def training_options(self) -> dict[str, typing.Any]:
        """Options of `train` that the vocabulary was made with, by name."""
        model = self._proto()
        return {
            "case_marks": self.has_case_marks,
            "byte_fallback": model.trainer_spec.byte_fallback,
            "split_digits": model.trainer_spec.split_digits,
            "normalization": model.normalizer_spec.name,
        }

    @property
    def id_dtype(self) -> str:
        """The smallest dtype for the ids of a corpus: uint16 or int32."""
        return "uint16" if self.vocab_size <= 2**16 else "int32"

    @property
    def sha256(self) -> str:
        """The SHA-256 of the model, in hexadecimal digits."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    @property
    def source(self) -> "Tokenizer":
        """The tokenizer of the source language: itself."""
        return self

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of the target language: itself."""
        return self

    @property
    def files(self) -> dict[str, "Tokenizer"]:
        """This tokenizer, by its file name in a model's directory."""
        return {SHARED_FILE: self}

    @property
    def pieces(self) -> list[str]:
        """The vocabulary as a list of `str`: the piece of id i at index i."""
        return self._processor.id_to_piece(list(range(self.vocab_size)))

    def is_byte(self, id: int) -> bool:
        """Returns whether a token is a byte, of a vocabulary that has them."""
        return self._processor.is_byte(id)

    def find(self, piece: str) -> int | None:
        """Returns the id of a piece, or None if the vocabulary lacks it."""
        id = self._processor.piece_to_id(piece)
        return None if id == UNK or id >= self.vocab_size else id

    @functools.cached_property
    def mark_ids(self) -> dict[str, int]:
        """The id of each of `case_marks.MARKS`; empty without case marks."""
        if not self.has_case_marks:
            return {}
        ids = self._processor.piece_to_id(list(MARKS))
        return dict(zip(MARKS, ids, strict=True))

    def find_missing(self, symbols: Sequence[str]) -> list[str]:
        """Finds the symbols that are not one token."""
        pieces = set(self.pieces)
        return [symbol for symbol in symbols if SPACE + symbol not in pieces]

    @functools.cached_property
    def model_type(self) -> str:
        """SentencePiece's algorithm: `bpe`, `unigram`, `word` or `char`."""
        trainer = self._proto().trainer_spec
        return trainer.ModelType.Name(trainer.model_type).lower()

    def is_trained_for(self, vocab_size: int) -> bool:
        """Returns whether the vocabulary was trained for this size.

        A vocabulary that was trained with `at_most` may be smaller.
        """
        is_smaller = not self._proto().trainer_spec.hard_vocab_limit
        return self.vocab_size == vocab_size or (
            is_smaller and self.vocab_size < vocab_size
        )

    @functools.cached_property
    def without_tags(self) -> "Tokenizer":
        """A tokenizer with the same ids that reads a tag `<2fr>` as plain text.

        It is this tokenizer if the vocabulary has no tags.
        """
        model = self._proto()
        tags = [p for p in model.pieces if re.fullmatch(TAG_PIECE, p.piece)]
        for piece in tags:
            piece.type = piece.UNUSED  # SentencePiece segments it as text
        if not tags:
            return self
        return Tokenizer(model.SerializeToString(deterministic=True))

    @functools.cached_property
    def inside_words(self) -> "Tokenizer":
        """A tokenizer with the same ids that adds no space before a string."""
        model = self._proto()
        model.normalizer_spec.add_dummy_prefix = False
        return Tokenizer(model.SerializeToString(deterministic=True))

    @property
    def entries(self) -> list[tuple[str, float, str]]:
        """Piece, score and type (`NORMAL`, `CONTROL`, ...) of each id."""
        return [
            (entry.piece, entry.score, entry.Type.Name(entry.type))
            for entry in self._proto().pieces
        ]

    def _proto(self):
        return sentencepiece_model_pb2.ModelProto.FromString(self.model_bytes)

    def normalize(self, strings: list[str]) -> list[str]:
        """Normalizes strings for segmentation: NFKC, `\u2581` for a space."""
        strings = self._processor.normalize(strings)
        return list(map(mark, strings)) if self.has_case_marks else strings

    def encode(self, strings: typing.Any) -> "tf.RaggedTensor":
        """Encodes strings like `to_ids`, as a ragged tensor, also in a graph.

        Args:
            strings: List of `str`, or string tensor `[N]`.

        Returns:
            Ragged int32 `[N, (tokens)]`; the row of an empty string is `[EOS]`.

        Raises:
            ValueError: `strings` does not have exactly one axis.
        """
        from keras_transformer.text import graph_tokenization

        return graph_tokenization.encode(self, strings)

    def decode(self, ids: typing.Any) -> "tf.Tensor":
        """Decodes ids like `to_strings`, as a string tensor, also in a graph.

        Args:
            ids: Integers `[N, T]`: a tensor, a ragged tensor, or a list of
                lists.

        Returns:
            String tensor `[N]`.
        """
        from keras_transformer.text import graph_tokenization

        return graph_tokenization.decode(self, ids)

    def to_ids(self, strings: Sequence[str]) -> list[list[int]]:
        """Encodes strings; every row ends with `EOS`, none begins with `BOS`.

        Args:
            strings: List of `str`.

        Returns:
            A list of ids for each string; `[EOS]` for an empty one.

        Raises:
            ValueError: A string has a lone surrogate, which UTF-8 cannot
                encode.
        """
        for string in strings:
            try:
                string.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    "strings must be valid in UTF-8, without lone surrogates."
                    f" Received: {string!r}"
                ) from error
        # One call per string: a call for a list starts a thread every time.
        if not self.has_table:
            if self.has_case_marks:
                strings = self.normalize(list(strings))
            encode = functools.partial(self._segmenter.encode, add_eos=True)
            return list(map(encode, strings))
        rows = []
        for code, text in map(self._split_code, strings):
            segments = self._segmenter.encode(text, out_type=str)
            rows.append([code, *segments] if code else segments)
        return [[*(self.table.get(s, UNK) for s in row), EOS] for row in rows]

    def to_prefixes(self, strings: Sequence[str]) -> list[list[int]]:
        """Encodes beginnings of longer strings: `to_ids` without `EOS`.

        A region of capitals at the end has no `END`, so that it may continue.
        """
        end = self.mark_ids.get(END)
        rows = [row[:-1] for row in self.to_ids(strings)]
        return [row[:-1] if row[-1:] == [end] else row for row in rows]

    def to_strings(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Decodes ids up to their first `EOS`, without `PAD` and `BOS`.

        ASCII white space at both ends is removed.

        Args:
            ids: A list of ids for each string.

        Returns:
            A string for each list.
        """
        strings = []
        for row in ids:
            row = [int(id) for id in row]
            length = row.index(EOS) if EOS in row else len(row)
            row = [id for id in row[:length] if id not in (PAD, BOS)]
            text = self._processor.decode(row)
            if self.has_case_marks:
                text = remove_marks(capitalize(text))
            # Implementations of SentencePiece leave different spaces.
            strings.append(text.strip(ASCII_SPACES))
        return strings

    def parts(self, ids: Sequence[int]) -> list[str]:
        """Returns the text, with spaces, that each token adds to the string."""
        decoded = self._processor.decode(
            list(map(int, ids)), out_type="serialized_proto"
        )
        text = sentencepiece_pb2.SentencePieceText.FromString(decoded)
        parts = [piece.surface for piece in text.pieces]
        if not self.has_case_marks:
            return parts
        text = capitalize("".join(parts))
        ends = itertools.accumulate(map(len, parts))
        parts = [
            remove_marks(text[end - len(part) : end])
            for part, end in zip(parts, ends, strict=True)
        ]
        first = next((i for i, part in enumerate(parts) if part), -1)
        # A space may be after a mark.
        return [p.lstrip() if i == first else p for i, p in enumerate(parts)]

    @functools.cached_property
    def table(self) -> dict[str, int]:
        """The id of each subword, without the special tokens."""
        first = len(SPECIAL_IDS)
        return {p: id for id, p in enumerate(self.pieces[first:], first)}

    @functools.cached_property
    def codes(self) -> list[str] | None:
        """Language codes that are segments of their own; None for all codes.

        With `END_OF_TABLE`, all codes are, as in Marian models of Hugging Face.
        With `END_OF_TABLE_WITH_CODES`, only those are that the table has and
        the model does not know.
        """
        if self._takes_any_code:
            return None
        processor = self._processor
        return [
            piece
            for piece, id in self.table.items()
            if re.fullmatch(">>.*<<", piece)
            and (processor.is_unused(id) or processor.is_control(id))
        ]

    def _split_code(self, string: str) -> tuple[str, str]:
        """Splits a string into its language code, or "", and the rest."""
        found = self.has_table and re.fullmatch(LANGUAGE_CODE, string)
        if found and (self.codes is None or found[1] in self.codes):
            return found[1], found[2]
        return "", string

    def tokens(self, strings: Sequence[str]) -> list[list[Token]]:
        """Returns the tokens that `encode` finds, with their words.

        Args:
            strings: List of `str`.

        Returns:
            A list of `Token` for each string, without `EOS`.
        """
        find = self._tokens_of
        if self.has_case_marks:
            find = self._marked_tokens_of
        return [find(string) for string in strings]

    def _tokens_of(self, string: str) -> list[Token]:
        code, text = self._split_code(string)
        encoded = self._segmenter.encode(text, out_type="serialized_proto")
        pieces = sentencepiece_pb2.SentencePieceText.FromString(encoded).pieces
        word_ends, size, read = [], 0, 0  # pieces have positions in bytes
        for found in re.finditer(r"\S+", string):
            size += len(string[read : found.end()].encode())
            read = found.end()
            word_ends.append(size)
        tokens, start, data = [], 0, string.encode()
        if code:
            tokens.append(Token(self.table.get(code, UNK), code, 0, 0))
            start = len(code.encode())
        for piece in pieces:
            id = piece.id
            if self.has_table:
                id = self.table.get(piece.piece, UNK)
            # White space is at the beginning of a piece: its word is the next.
            word = bisect.bisect(word_ends, start + piece.begin)
            begin = len(data[: start + piece.begin].decode(errors="ignore"))
            begin += len(piece.surface) - len(piece.surface.lstrip())
            tokens.append(Token(id, piece.surface.strip(), word, begin))
        return tokens

    def _marked_tokens_of(self, string: str) -> list[Token]:
        """Returns the `Token`s of one string with case marks.

        `END` has the position of the character before it, other marks that of
        the letter after them. The text of a mark is empty.
        """
        normalized, starts = self._processor.normalize(string, True)
        encoded = self._segmenter.encode(
            mark(normalized), out_type="serialized_proto"
        )
        pieces = sentencepiece_pb2.SentencePieceText.FromString(encoded).pieces
        word_ends = [found.end() for found in re.finditer(r"\S+", string)]
        tokens, at = [], 0  # a character of the normalized string
        for piece in pieces:
            if piece.piece in MARKS:
                begin, text = starts[at - (piece.piece == END)], ""
                if piece.piece != END and normalized[at] == SPACE:
                    begin = starts[at + 1]
            else:
                # The last byte of a character has its surface.
                end = at + len(piece.surface)
                text = string[starts[at] : starts[end]]
                begin = starts[at] + len(text) - len(text.lstrip())
                at = end
            word = bisect.bisect(word_ends, begin)
            tokens.append(Token(piece.id, text.strip(), word, begin))
        return tokens

    def save(self, path: str | os.PathLike) -> None:
        """Writes the model to a file atomically."""
        write_atomically(path, self.model_bytes)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Loads a file that `save` or SentencePiece wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is not a SentencePiece model, or has other ids
                for the special tokens.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"No tokenizer model: {path}")
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        max_lines: int = 10_000_000,
        symbols: Sequence[str] = (),
        case_marks: bool = False,
        controls: Sequence[str] = (),
        at_most: bool = False,
        byte_fallback: bool = False,
        split_digits: bool = False,
        normalization: str = NORMALIZATIONS[0],
    ) -> "Tokenizer":
        """Learns a byte-pair vocabulary with every character of the corpus.

        The same lines give the same vocabulary.

        Args:
            lines: Iterable of `str`, in both languages, read once.
            vocab_size: Number of tokens V, including special tokens.
            max_lines: Number of lines that are sampled from a larger corpus,
                so that it fits into memory.
            symbols: Words, such as `"(NP"`, that become one token each,
                including the space before them, whatever their frequency. A
                longer word that begins with a symbol becomes several tokens.
            case_marks: Whether the vocabulary is for lower-case text with the
                marks of `case_marks`.
            controls: Tokens that no text has, such as `"__de__"`.
            at_most: Whether a corpus with fewer pieces than `vocab_size` gives
                a smaller vocabulary instead of an error.
            byte_fallback: Whether the vocabulary has 256 bytes, which write all
                other characters. The rarest of the corpus are not in it.
            split_digits: Whether each digit is a token.
            normalization: SentencePiece's name of a normalization. Those of NMT
                keep zero-width non-joiners and spaces that the corpus has in
                scripts that need them.

        Raises:
            ValueError: The corpus is empty, has more characters than
                `vocab_size`, or gives fewer pieces without `at_most`. Or a
                symbol has a capital letter, with case marks. Or the
                normalization is unknown, or removes case that is marked.
            TypeError: `lines` is a string, such as a path, or an item of
                `lines` is not a string.
        """
        options = symbols, case_marks, controls, at_most
        more = byte_fallback, split_digits, normalization
        return cls(train_model(lines, vocab_size, max_lines, *options, *more))


class TokenizerPair(typing.NamedTuple):
    """A tokenizer for each language, if the two do not share a vocabulary.

    Everything that takes a `Tokenizer` for both languages also takes a pair:
    it uses `tokenizer.source` and `tokenizer.target`. A single `Tokenizer`
    returns itself for both.

    Attributes:
        source: The `Tokenizer` of the source language.
        target: The `Tokenizer` of the target language.
    """

    source: Tokenizer
    target: Tokenizer

    @property
    def files(self) -> dict[str, Tokenizer]:
        """Both tokenizers, by their file names in a model's directory."""
        return dict(zip(PAIR_FILES, self, strict=True))


def save_tokenizer(
    tokenizer: Tokenizer | TokenizerPair, directory: str | os.PathLike
) -> None:
    """Writes the file or files of a vocabulary into a directory."""
    for name, of_side in tokenizer.files.items():
        of_side.save(pathlib.Path(directory) / name)


def load_tokenizer(directory: str | os.PathLike) -> Tokenizer | TokenizerPair:
    """Loads the tokenizer or pair that `save_tokenizer` wrote.

    Raises FileNotFoundError if a file is missing. Raises ValueError if a file
    is invalid, or if the directory has both a tokenizer and a pair.
    """
    directory = pathlib.Path(directory)
    paths = [directory / name for name in PAIR_FILES]
    if not any(path.exists() for path in paths):
        return Tokenizer.load(directory / SHARED_FILE)
    if (directory / SHARED_FILE).exists():
        raise ValueError(
            f"{directory}: expected {SHARED_FILE}, or {PAIR_FILES[0]} and"
            f" {PAIR_FILES[1]}. Received: both"
        )
    return TokenizerPair(*map(Tokenizer.load, paths))
