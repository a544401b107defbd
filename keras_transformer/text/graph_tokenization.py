"""Strings to ids and back as TensorFlow operations, for exported models.

In a graph, TensorFlow Text applies the SentencePiece model, which is stored in
the graph. Outside graphs, the same functions call `Tokenizer.to_ids` and
`to_strings`, which return the same values and are much faster.
"""

import hashlib
import itertools
import typing
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from keras_transformer.text.case_marks import (
    BEGIN,
    END,
    FINAL_SIGMA,
    MARKS,
    SIGMA,
    STRAY,
    TITLE,
    UNIT_BREAKS,
    UPPER,
    casing,
)
from keras_transformer.text.vocabulary import (
    BOS,
    EOS,
    LANGUAGE_CODE,
    PAD,
    SPACE,
    UNK,
)

MAX_FINGERPRINT = 2**63 - 1
NOTHING = -1  # no code point


class Pieces(typing.Protocol):
    """The part of `Tokenizer` that this module uses, without importing it."""

    model_bytes: bytes
    has_table: bool
    has_case_marks: bool

    @property
    def segmenting_bytes(self) -> bytes: ...
    @property
    def normalizing_bytes(self) -> bytes: ...
    @property
    def table(self) -> dict[str, int]: ...
    @property
    def codes(self) -> list[str] | None: ...
    def to_ids(self, strings: Sequence[str]) -> list[list[int]]: ...
    def to_strings(self, ids: Sequence[Sequence[int]]) -> list[str]: ...


def encode(
    tokenizer: Pieces, strings: Sequence[str] | tf.Tensor
) -> tf.RaggedTensor:
    """Implements `Tokenizer.encode`."""
    strings = tf.convert_to_tensor(strings, tf.string)
    if strings.shape.rank != 1:
        raise ValueError(
            "strings must be a list or a tensor of one axis."
            f" Received: strings.shape={strings.shape}"
        )
    if tf.executing_eagerly():
        texts = [text.decode("utf-8", "replace") for text in strings.numpy()]
        rows = tokenizer.to_ids(texts)
        ids = np.array(list(itertools.chain(*rows)), np.int32)
        lengths = np.array(list(map(len, rows)), np.int64)
        return tf.RaggedTensor.from_row_lengths(ids, lengths)
    if tokenizer.has_table:
        return _look_up_segments(tokenizer, strings)
    if tokenizer.has_case_marks:
        normalizer = _operations(tokenizer.normalizing_bytes, tf.string)
        pieces = normalizer.tokenize(strings)
        normalized = tf.strings.reduce_join(pieces, axis=1)
        strings = mark_case(normalized)
    return _operations(tokenizer.segmenting_bytes, tf.int32).tokenize(strings)


def _look_up_segments(tokenizer: Pieces, strings: tf.Tensor) -> tf.RaggedTensor:
    """Encodes strings with a tokenizer that has a table: [N] -> [N, (T)]."""
    has_code = tf.strings.regex_full_match(strings, LANGUAGE_CODE)
    codes = tf.strings.regex_replace(strings, LANGUAGE_CODE, r"\1")
    texts = tf.strings.regex_replace(strings, LANGUAGE_CODE, r"\2")
    if tokenizer.codes is not None:
        known = tf.constant(tokenizer.codes, tf.string, [len(tokenizer.codes)])
        has_code &= tf.reduce_any(codes[:, None] == known, axis=1)
    segments = _operations(tokenizer.segmenting_bytes, tf.string).tokenize(
        tf.where(has_code, texts, strings)
    )
    codes = tf.ragged.boolean_mask(codes[:, None], has_code[:, None])
    segments = tf.concat([codes, segments], axis=1)
    ids = segments.with_flat_values(
        _ids_in_table(tokenizer.table, segments.flat_values)
    )
    ends = tf.fill((tf.shape(strings)[0], 1), EOS)
    return tf.concat([ids, ends], axis=1)


def _ids_in_table(table: dict[str, int], segments: tf.Tensor) -> tf.Tensor:
    """Looks up the ids of segments: string [N] -> int32 [N].

    A TensorFlow lookup table would be a resource that the saved object has to
    own. So segments are found by their fingerprints.
    """
    with tf.init_scope():  # runs eagerly while a graph is traced
        fingerprints = tf.strings.to_hash_bucket_fast(
            list(table), MAX_FINGERPRINT
        ).numpy()
    order = np.argsort(fingerprints)
    fingerprints = fingerprints[order]
    ids = np.fromiter(table.values(), np.int32)[order]
    sought = tf.strings.to_hash_bucket_fast(segments, MAX_FINGERPRINT)
    index = tf.minimum(tf.searchsorted(fingerprints, sought), len(ids) - 1)
    found = tf.gather(fingerprints, index) == sought
    return tf.where(found, tf.gather(ids, index), UNK)


def decode(
    tokenizer: Pieces,
    ids: Sequence[Sequence[int]] | tf.Tensor | tf.RaggedTensor,
) -> tf.Tensor:
    """Implements `Tokenizer.decode`."""
    if isinstance(ids, (list, tuple)):
        ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(PAD)
    ids = tf.cast(ids, tf.int32)
    if tf.executing_eagerly():
        strings = tokenizer.to_strings(ids.numpy().tolist())
        return tf.constant(strings, tf.string)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    keep = ~ended & (ids != PAD) & (ids != BOS)
    ids = tf.ragged.boolean_mask(ids, keep)
    strings = _operations(tokenizer.model_bytes, tf.int32).detokenize(ids)
    if tokenizer.has_case_marks:
        strings = restore_case(strings)
    return tf.strings.strip(strings)  # as `to_strings`


def _operations(model_bytes: bytes, out_type: tf.DType):
    """Makes a new TensorFlow Text tokenizer of a model, for each graph.

    In a process that loads a SavedModel, operations with the same name share
    the model of the first one. So each model has its own name. `out_type` is
    `tf.int32` for ids, with `EOS`, or `tf.string` for segments.
    """
    digest = hashlib.sha256(model_bytes).hexdigest()
    return tensorflow_text.SentencepieceTokenizer(
        model=model_bytes,
        out_type=out_type,
        add_eos=out_type == tf.int32,
        name=f"sentencepiece_{digest[:16]}",
    )


def truncate(ids: tf.Tensor, max_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Truncates rows [N, S] of tokens, EOS and PAD, so that they end with EOS.

    Returns int32 `[N, min(S, max_length)]`, and bool `[N]`: whether the row was
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


# `case_marks`, on code points


def mark_case(texts: tf.Tensor) -> tf.Tensor:
    """Applies `case_marks.mark` to normalized texts [N] that begin with `▁`."""
    points = tf.strings.unicode_decode(texts, "UTF-8")  # [N, (characters)]
    rows, text = points.value_rowids(), points.flat_values
    text = tf.where(_among(text, MARKS), ord(STRAY), text)
    lower, is_capital = _look_up(casing().lower, text)
    _, is_small = _look_up(casing().upper, text)
    # Units, and stretches of units. A stretch begins with a text, or with a
    # unit that has small letters.
    unit = tf.cumsum(tf.cast(_among(text, UNIT_BREAKS), tf.int32)) - 1
    capitals, smalls = (
        tf.math.segment_sum(tf.cast(found, tf.int32), unit)
        for found in (is_capital, is_small)
    )
    row = tf.math.segment_max(rows, unit)
    is_strong = (capitals > 1) & (smalls == 0)
    begins = (smalls > 0) | (row != tf.roll(row, 1, 0))
    stretch = tf.cumsum(tf.cast(begins, tf.int32))
    number = tf.math.segment_sum(tf.cast(is_strong, tf.int32), stretch)
    stretch = tf.gather(stretch, unit)  # of each character, as all below
    is_strong = tf.gather(is_strong, unit) & is_capital
    # In a stretch, one mark covers the first to the last strong letter.
    at, size = tf.range(tf.size(text)), tf.size(text)
    first = tf.gather(
        tf.math.segment_min(tf.where(is_strong, at, size), stretch), stretch
    )
    last = tf.gather(
        tf.math.segment_max(tf.where(is_strong, at, -1), stretch), stretch
    )
    is_other = is_capital & ((at < first) | (at > last))
    after_capital = tf.roll(is_capital, 1, 0)
    before_capital = tf.roll(is_capital, -1, 0)
    opens = (at == first) | (is_other & ~after_capital)
    closes = (at == last) | (is_other & ~before_capital)
    is_lone = (at >= first) & (at <= last) & (tf.gather(number, stretch) == 1)
    opening = tf.where(is_lone, ord(UPPER), ord(BEGIN))
    opening = tf.where(opens & closes, ord(TITLE), opening)
    opening = tf.where(opens, opening, NOTHING)
    closing = tf.where(closes & ~opens & ~is_lone, ord(END), NOTHING)
    is_final = (text == ord(SIGMA)) & after_capital & ~before_capital
    lower = tf.where(is_final, ord(FINAL_SIGMA), lower)
    # A mark is before the space before its letter.
    is_space = text == ord(SPACE)
    of_next = tf.where(is_space, tf.roll(opening, -1, 0), NOTHING)
    opening = tf.where(tf.roll(is_space, 1, 0), NOTHING, opening)
    marked = tf.stack([of_next, opening, lower, closing], axis=1)
    return _encode(tf.reshape(marked, [-1]), tf.repeat(rows, 4), points.nrows())


def restore_case(texts: tf.Tensor) -> tf.Tensor:
    """Applies `case_marks.capitalize` to texts [N], and drops the marks."""
    points = tf.strings.unicode_decode(texts, "UTF-8")
    # END before each text ends a region that the text before has begun.
    ends = tf.fill([tf.size(texts), 1], ord(END))
    points = tf.concat([ends, points], axis=1)  # [N, (characters)]
    rows, text = points.value_rowids(), points.flat_values
    before, is_mark = tf.roll(text, 1, 0), _among(text, MARKS)
    is_space = _among(text, " " + SPACE)
    is_limit = is_mark | _among(text, UNIT_BREAKS)
    is_limit &= ~(is_space & (before == ord(UPPER)))
    is_in = _last(text, _among(text, BEGIN + END)) == ord(BEGIN)
    is_in |= _last(text, is_limit) == ord(UPPER)
    is_in |= before == ord(TITLE)
    is_in |= tf.roll(is_space, 1, 0) & (tf.roll(before, 1, 0) == ord(TITLE))
    upper, _ = _look_up(casing().upper, text)
    restored = tf.where(is_in, upper, text)
    return _encode(tf.where(is_mark, NOTHING, restored), rows, points.nrows())


def _among(points: tf.Tensor, characters: str) -> tf.Tensor:
    """Returns which code points are among `characters`: bool [N]."""
    codes = tf.constant(list(map(ord, characters)))
    return tf.reduce_any(points[:, None] == codes, axis=1)  # [N, C] -> [N]


def _look_up(
    table: Mapping[int, int], points: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of code points, and which have one: both [N].

    The other code points do not change.
    """
    keys = sorted(table)
    values = tf.constant([table[key] for key in keys])
    index = tf.minimum(tf.searchsorted(keys, points), len(keys) - 1)
    found = tf.gather(keys, index) == points
    return tf.where(found, tf.gather(values, index), points), found


def _last(text: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
    """Returns, for each character, the last one up to it with `found`: [N].

    `found`, bool [N], must be true for the first character.
    """
    at = tf.cumsum(tf.cast(found, tf.int32)) - 1
    return tf.gather(tf.boolean_mask(text, found), at)


def _encode(points: tf.Tensor, rows: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Joins code points, without `NOTHING`, into UTF-8 texts: [N]."""
    keep = points != NOTHING
    texts = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(points, keep), tf.boolean_mask(rows, keep), number
    )
    return tf.strings.unicode_encode(texts, "UTF-8")
