"""Strings to ids and back, in the TensorFlow graph or without it.

One byte-pair vocabulary serves both languages, as in sec. 5.1 of the paper; or
each has its own. SentencePiece trains it. In a graph TensorFlow Text applies
it, so that an exported model takes and gives strings; for lists of strings
SentencePiece itself does, which is far quicker for a few of them.
"""

import bisect
import functools
import hashlib
import io
import os
import pathlib
import re
import threading
import typing
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2

from keras_transformer.vocabulary import BOS, EOS, PAD, SPECIAL_IDS, UNK

SPACE = "\u2581"  # how SentencePiece writes the space before a word
# A piece that is no text. Pieces before it are a table of ids that was given
# with the model; those after it segment text as well, but have no id there.
END_OF_TABLE = "<end of table>"
# The same, where `>>fra<<` is a language code only if the table has it.
END_OF_TABLE_WITH_CODES = "<end of table with codes>"
# What a source line of a multilingual model may begin with: ">>fra<< Hello".
LANGUAGE_CODE = r"(?s)(>>.*?<<)(.*)"
MOST_FINGERPRINTS = 2**63 - 1
ASCII_SPACES = " \t\n\v\f\r"  # what `tf.strings.strip` takes away
# Threads that make the same operation at once would drop each other's model.
_ONE_AT_A_TIME = threading.Lock()
# The files of a vocabulary beside a model: one, or one for each language.
SHARED_FILE = "tokenizer.model"
PAIR_FILES = ("source_tokenizer.model", "target_tokenizer.model")


class Token(typing.NamedTuple):
    """A token of a string, and where it stands.

    Attributes:
        id: Its id; not that of `EOS`.
        text: What it stands for, as written, without white space.
        word: Index of the word, as `str.split` finds words, that it is part of;
            as many as there are words if only white space follows.
    """

    id: int
    text: str
    word: int


class Tokenizer(tf.Module):
    """A SentencePiece vocabulary, usually of byte pairs and for two languages.

    `decode(encode(strings))` is `strings` with runs of white space made one
    space and compatibility characters made plain (Unicode NFKC: a ligature
    becomes its letters); case and spelling stay. A character the vocabulary
    does not have becomes ` ⁇ `.

    Vocabularies of other systems, which `trainers.import_model` reads, have a
    table of ids apart from the model: see `has_table`.

    Args:
        model_bytes: A serialized SentencePiece model, as in `tokenizer.model`.
            Its ids of PAD, BOS, EOS and UNK are 0, 1, 2 and 3.

    Attributes:
        model_bytes: As given.
        vocab_size: Number of tokens V, special ones included.
        has_table: Whether the pieces up to `END_OF_TABLE` or
            `END_OF_TABLE_WITH_CODES` are a table of V ids. Then a segment of
            text has the id that the table has for it, or `UNK`; and a language
            code at the beginning of a string, such as `>>fra<<`, is a segment
            of its own: with the first end every code, as in Marian models of
            Hugging Face; with the second those codes that the table has and
            the model does not know.

    Raises:
        ValueError: The bytes are no such model.

    >>> tokenizer = Tokenizer.train(["a rose is a rose"], vocab_size=17)
    >>> tokenizer.encode(["a rose"])
    <tf.RaggedTensor [[5, 8, 2]]>
    >>> tokenizer.decode([[5, 8, 2]]).numpy()[0]
    b'a rose'
    """

    def __init__(self, model_bytes: bytes):
        super().__init__(name="tokenizer")
        self.model_bytes = bytes(model_bytes)
        processor = self._processor
        special_ids = (
            processor.pad_id(),
            processor.bos_id(),
            processor.eos_id(),
            processor.unk_id(),
        )
        if special_ids != SPECIAL_IDS:
            raise ValueError(
                "The ids of PAD, BOS, EOS and UNK must be"
                f" {SPECIAL_IDS}. Received: {special_ids}"
            )
        end = processor.piece_to_id(END_OF_TABLE)
        self._has_any_code = end != UNK
        if end == UNK:
            end = processor.piece_to_id(END_OF_TABLE_WITH_CODES)
        self.has_table = end != UNK
        self.vocab_size = end if self.has_table else processor.get_piece_size()

    @functools.cached_property
    def _processor(self):
        """The model as SentencePiece's own object: all pieces, by id."""
        return _load_processor(self.model_bytes)

    @functools.cached_property
    def _segmenter(self):
        """The model that strings are segmented with."""
        if self.has_table:
            return _load_processor(self.segmenting_bytes)
        return self._processor

    @functools.cached_property
    def segmenting_bytes(self) -> bytes:
        """The SentencePiece model that strings are segmented with.

        Pieces that only the table has are not in it: implementations of
        SentencePiece differ in the segments and errors that such pieces cause.
        Without a table it is `model_bytes`.
        """
        if not self.has_table:
            return self.model_bytes
        model = self._proto()
        kind = sentencepiece_model_pb2.ModelProto.SentencePiece
        pieces = [
            kind.FromString(piece.SerializeToString())
            for id, piece in enumerate(model.pieces)
            if id in SPECIAL_IDS
            or id > self.vocab_size
            or piece.type not in (kind.UNUSED, kind.CONTROL)
        ]
        del model.pieces[:]
        model.pieces.extend(pieces)
        model.trainer_spec.vocab_size = len(pieces)
        return model.SerializeToString(deterministic=True)

    @property
    def source(self) -> "Tokenizer":
        """That of the source language: itself, as for both languages."""
        return self

    @property
    def target(self) -> "Tokenizer":
        """That of the target language: itself."""
        return self

    @property
    def files(self) -> dict[str, "Tokenizer"]:
        """Itself, by the name of its file in a directory of a model."""
        return {SHARED_FILE: self}

    @property
    def pieces(self) -> list[str]:
        """The vocabulary as a list of `str`: the piece of id i at index i."""
        return self._processor.id_to_piece(list(range(self.vocab_size)))

    def find_missing(self, symbols: Sequence[str]) -> list[str]:
        """Those of some words that have no token of their own."""
        pieces = set(self.pieces)
        return [symbol for symbol in symbols if SPACE + symbol not in pieces]

    @functools.cached_property
    def model_type(self) -> str:
        """SentencePiece's algorithm: `bpe`, `unigram`, `word` or `char`."""
        trainer = self._proto().trainer_spec
        return trainer.ModelType.Name(trainer.model_type).lower()

    @property
    def entries(self) -> list[tuple[str, float, str]]:
        """Piece, score and type (`NORMAL`, `CONTROL`, ...) of each id."""
        return [
            (entry.piece, entry.score, entry.Type.Name(entry.type))
            for entry in self._proto().pieces
        ]

    def _proto(self):
        """The model as its protocol buffer."""
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(self.model_bytes)
        return model

    def normalize(self, strings: list[str]) -> list[str]:
        """Strings as they are segmented: NFKC, and `\u2581` for a space."""
        return self._processor.normalize(strings)

    def encode(self, strings: list[str] | tf.Tensor) -> tf.RaggedTensor:
        """Ids of strings; every row ends with `EOS`, none begins with `BOS`.

        Args:
            strings: List of `str`, or string tensor `[N]`.

        Returns:
            Ragged int32 `[N, (tokens)]`; the row of an empty string is `[EOS]`.

        Raises:
            ValueError: `strings` has not one axis.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        if strings.shape.rank != 1:
            raise ValueError(
                "strings must be a list or a tensor of one axis."
                f" Received: strings.shape={strings.shape}"
            )
        if self.has_table:
            return self._look_up_segments(strings)
        return _operations(self.model_bytes, tf.int32).tokenize(strings)

    def _look_up_segments(self, strings):
        """`encode` where segments have the ids of a table."""
        has_code = tf.strings.regex_full_match(strings, LANGUAGE_CODE)
        codes = tf.strings.regex_replace(strings, LANGUAGE_CODE, r"\1")
        texts = tf.strings.regex_replace(strings, LANGUAGE_CODE, r"\2")
        if not self._has_any_code:
            known = tf.constant(self._codes, tf.string, [len(self._codes)])
            has_code &= tf.reduce_any(codes[:, None] == known, axis=1)
        segments = _operations(self.segmenting_bytes, tf.string).tokenize(
            tf.where(has_code, texts, strings)
        )
        codes = tf.ragged.boolean_mask(codes[:, None], has_code[:, None])
        segments = tf.concat([codes, segments], axis=1)
        ids = segments.with_flat_values(
            self._ids_in_table(segments.flat_values)
        )
        ends = tf.fill((tf.shape(strings)[0], 1), EOS)
        return tf.concat([ids, ends], axis=1)

    def _ids_in_table(self, segments):
        """Ids of segments, as a graph: string [N] -> int32 [N].

        A table of TensorFlow would be a resource, which whoever saves the graph
        would have to own: so segments are found by their fingerprints.
        """
        fingerprints, ids = self._fingerprints
        sought = tf.strings.to_hash_bucket_fast(segments, MOST_FINGERPRINTS)
        places = tf.searchsorted(fingerprints, sought)
        places = tf.minimum(places, len(ids) - 1)
        found = tf.gather(fingerprints, places) == sought
        return tf.where(found, tf.gather(ids, places), UNK)

    @functools.cached_property
    def _fingerprints(self):
        """Fingerprints of the table's subwords, sorted, and their ids."""
        with tf.init_scope():  # numbers, though a graph is being made
            fingerprints = tf.strings.to_hash_bucket_fast(
                list(self._table), MOST_FINGERPRINTS
            ).numpy()
        order = np.argsort(fingerprints)
        ids = np.fromiter(self._table.values(), np.int32)
        return fingerprints[order], ids[order]

    @functools.cached_property
    def _table(self):
        """Ids of the table's subwords, but for those that are no text."""
        first = len(SPECIAL_IDS)
        return {p: id for id, p in enumerate(self.pieces[first:], first)}

    @functools.cached_property
    def _codes(self):
        """Language codes of the table that the model does not know itself."""
        processor = self._processor
        return [
            piece
            for piece, id in self._table.items()
            if re.fullmatch(">>.*<<", piece)
            and (processor.is_unused(id) or processor.is_control(id))
        ]

    def to_ids(self, strings: Sequence[str]) -> list[list[int]]:
        """`encode` as lists, without TensorFlow: far quicker for a few strings.

        Args:
            strings: List of `str`.

        Returns:
            A list of ids for each string; each ends with `EOS`.

        Raises:
            ValueError: A string cannot be written in UTF-8.
        """
        _check_unicode(strings)
        if self.has_table:
            rows = self._segments_in_table(strings)
        else:
            rows = self._segmenter.encode(list(strings), num_threads=1)
        return [[*row, EOS] for row in rows]

    def _segments_in_table(self, strings):
        """`to_ids` where segments have the ids of a table, without `EOS`."""
        codes, texts = self._split_codes(strings)
        found = self._segmenter.encode(texts, out_type=str, num_threads=1)
        return [
            [
                self._table.get(segment, UNK)
                for segment in [*([code] if code else []), *segments]
            ]
            for code, segments in zip(codes, found, strict=True)
        ]

    def _split_codes(self, strings):
        """The language code of each string, "" if it has none; and the rest."""
        if not self.has_table:
            return [""] * len(strings), list(strings)
        found = [re.fullmatch(LANGUAGE_CODE, string) for string in strings]
        codes = [code[1] if code else "" for code in found]
        if not self._has_any_code:
            codes = [code if code in self._codes else "" for code in codes]
        return codes, [
            string[len(code) :]
            for string, code in zip(strings, codes, strict=True)
        ]

    def to_strings(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of lists, without TensorFlow: far quicker for a few of them.

        Args:
            ids: A list of ids for each string.

        Returns:
            As many strings.
        """
        rows = []
        for row in ids:
            row = [int(id) for id in row]
            length = row.index(EOS) if EOS in row else len(row)
            rows.append([id for id in row[:length] if id not in (PAD, BOS)])
        strings = self._processor.decode(rows, num_threads=1) if rows else []
        return [string.strip(ASCII_SPACES) for string in strings]

    def decode(
        self, ids: tf.Tensor | tf.RaggedTensor | list[list[int]]
    ) -> tf.Tensor:
        """Strings of ids, each up to its first `EOS`, without `PAD` and `BOS`.

        ASCII white space at both ends is left out.

        Args:
            ids: Integers `[N, T]`: a tensor, a ragged tensor, or a list of
                lists.

        Returns:
            String tensor `[N]`.
        """
        if isinstance(ids, (list, tuple)):
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD)
        ids = tf.cast(ids, tf.int32)
        ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
        keep = ~ended & (ids != PAD) & (ids != BOS)
        ids = tf.ragged.boolean_mask(ids, keep)
        strings = _operations(self.model_bytes, tf.int32).detokenize(ids)
        # Implementations of SentencePiece differ in the spaces that they leave.
        return tf.strings.strip(strings)

    def tokens(self, strings: Sequence[str]) -> list[list[Token]]:
        """The tokens that `encode` finds, and which words they belong to.

        Args:
            strings: List of `str`.

        Returns:
            For each string a list of `Token`, `EOS` left out.
        """
        codes, texts = self._split_codes(strings)
        encoded = self._segmenter.encode(texts, out_type="serialized_proto")
        return [
            self._tokens_of(string, code, _pieces_in(proto))
            for string, code, proto in zip(strings, codes, encoded, strict=True)
        ]

    def _tokens_of(self, string, code, pieces):
        """`Token`s of a string from its pieces.

        Args:
            string: The string.
            code: The language code that it begins with; or "".
            pieces: Those of the rest; positions are those of UTF-8 bytes.
        """
        ends, position = [], 0
        for word in string.split():
            position = string.index(word, position) + len(word)
            ends.append(len(string[:position].encode("utf-8")))
        tokens, start = [], 0
        if code:
            tokens.append(Token(self._table.get(code, UNK), code, 0))
            start = len(code.encode("utf-8"))
        for piece in pieces:
            id = piece.id
            if self.has_table:
                id = self._table.get(piece.piece, UNK)
            # White space is at the beginning of a piece: its word is the next.
            word = bisect.bisect(ends, start + piece.begin)
            tokens.append(Token(id, piece.surface.strip(), word))
        return tokens

    def save(self, path: str | os.PathLike) -> None:
        """Writes the model to a file, which appears when it is complete."""
        path = pathlib.Path(path)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            unfinished.write_bytes(self.model_bytes)
            os.replace(unfinished, path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            if error.errno and not error.filename:  # as of a full disk
                error.filename = str(path)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """The tokenizer in a file that `save` or SentencePiece wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is no SentencePiece model, or one with other ids of
                special tokens.
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
    ) -> "Tokenizer":
        """Learns a byte-pair vocabulary that has every character of the corpus.

        The same lines give the same vocabulary.

        Args:
            lines: Iterable of `str`, of both languages, read once.
            vocab_size: Number of tokens V, special ones included.
            max_lines: A larger corpus is sampled down to this many lines, so
                that it fits into memory.
            symbols: Words that are one token each, whatever their frequency,
                with the space before them: `"(NP"`. A longer word that begins
                with one becomes several tokens.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: The corpus is empty, or gives fewer than `vocab_size`
                pieces, or has more characters than that.
        """
        if vocab_size <= len(SPECIAL_IDS):
            raise ValueError(
                f"vocab_size must be above {len(SPECIAL_IDS)}, the number of"
                f" special tokens. Received: vocab_size={vocab_size}"
            )
        errors = []

        def watched_lines():
            try:
                for line in lines:
                    if not isinstance(line, str):
                        raise TypeError(
                            f"lines must be strings. Received: {line!r}"
                        )
                    yield line
            except Exception as error:
                errors.append(error)  # SentencePiece hands on the text alone
                raise

        sentencepiece.set_random_generator_seed(0)  # of the sample of lines
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=watched_lines(),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0,
                normalization_rule_name="nmt_nfkc",
                input_sentence_size=max_lines,
                max_sentence_length=1 << 20,  # bytes; longer lines are left out
                shuffle_input_sentence=True,
                num_threads=1,
                minloglevel=2,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                user_defined_symbols=[SPACE + symbol for symbol in symbols],
            )
        except (RuntimeError, ValueError) as error:
            if errors:
                raise errors[0] from None
            raise ValueError(_explain(str(error), vocab_size)) from error
        return cls(model.getvalue())


def _load_processor(model_bytes):
    """A model as SentencePiece's own object."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model_bytes)
    except RuntimeError as error:
        raise ValueError(
            "model_bytes must be a SentencePiece model."
            f" Received: {len(model_bytes)} bytes"
        ) from error
    return processor


def _operations(model_bytes, out_type):
    """TensorFlow Text's tokenizer of a model, made anew wherever it is used.

    One that is kept loses its model when TensorFlow clears its caches, as
    `keras.utils.set_random_seed` makes it do. In a graph a new one costs
    nothing, and the graph carries the model with it; eagerly, below 1 ms.

    In a process that loads a SavedModel, operations of one name share the model
    that the first of them has: so each model has a name of its own.

    Args:
        model_bytes: The SentencePiece model.
        out_type: `tf.int32` for ids, with `EOS`, or `tf.string` for segments.
    """
    name = f"sentencepiece_{hashlib.sha256(model_bytes).hexdigest()[:16]}"
    with _ONE_AT_A_TIME:
        return tensorflow_text.SentencepieceTokenizer(
            model=model_bytes,
            out_type=out_type,
            add_eos=out_type == tf.int32,
            name=name,
        )


def _check_unicode(strings):
    """Refuses lone surrogates, halves of a character in UTF-16."""
    for string in strings:
        try:
            string.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                "strings must be text that UTF-8 can hold, without lone"
                f" surrogates. Received: {string!r}"
            ) from error


def _pieces_in(proto):
    """The pieces of a serialized `SentencePieceText`."""
    return sentencepiece_pb2.SentencePieceText.FromString(proto).pieces


class TokenizerPair(typing.NamedTuple):
    """A tokenizer for each language, where the two share no vocabulary.

    Everything that takes a `Tokenizer` of both languages takes a pair as well:
    it uses `tokenizer.source` and `tokenizer.target`, which of a `Tokenizer`
    are itself.

    Attributes:
        source, target: A `Tokenizer` each.
    """

    source: Tokenizer
    target: Tokenizer

    @property
    def files(self) -> dict[str, Tokenizer]:
        """Both, by the names of their files in a directory of a model."""
        return dict(zip(PAIR_FILES, self, strict=True))


def save_tokenizer(
    tokenizer: Tokenizer | TokenizerPair, directory: str | os.PathLike
) -> None:
    """Writes the file or the files of a vocabulary into a directory."""
    for name, of_side in tokenizer.files.items():
        of_side.save(pathlib.Path(directory) / name)


def load_tokenizer(
    directory: str | os.PathLike,
) -> Tokenizer | TokenizerPair:
    """What `save_tokenizer` wrote.

    Raises:
        FileNotFoundError: There is neither one file nor a pair.
        ValueError: There are both; or a file cannot be used.
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


def truncate(ids: tf.Tensor, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Truncates rows; the last token that is left becomes EOS.

    Args:
        ids: int32 `[N, S]`: tokens, EOS, then PAD.
        max_length: The most tokens of a row, EOS included.

    Returns:
        int32 `[N, min(S, max_length)]`, and bool `[N]`: whether the row was
        longer.

    >>> ids, truncated = truncate(tf.constant([[5, 6, 7, 2], [8, 2, 0, 0]]), 3)
    >>> ids.numpy().tolist(), truncated.numpy().tolist()
    ([[5, 6, 2], [8, 2, 0]], [True, False])
    """
    lengths = tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1)
    truncated = lengths > max_length
    ids = ids[:, :max_length]
    is_last = tf.range(tf.shape(ids)[1]) == max_length - 1
    return tf.where(truncated[:, None] & is_last, EOS, ids), truncated


def _explain(message, vocab_size):
    """What SentencePiece's complaint means to the user."""
    received = f"Received: vocab_size={vocab_size}"
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"vocab_size must be at least {found[1]}, for every character of"
            f" the corpus to have an id. {received}"
        )
    if found := re.search(r"value <= (\d+)", message):
        return (
            f"vocab_size must be at most {found[1]}, the pieces that this"
            f" corpus has. {received}"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return "The tokenizer needs text to learn from. Received: no text"
    return f"SentencePiece failed: {message}"
