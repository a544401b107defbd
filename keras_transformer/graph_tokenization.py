"""Strings to ids and back as TensorFlow operations, as exported models need it.

In a graph TensorFlow Text applies the SentencePiece model, which the graph
carries with it. Outside of graphs the same functions return the same values by
`Tokenizer.to_ids` and `to_strings`, which are much faster.
"""

import hashlib
import itertools
import typing
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from keras_transformer import graph_case_marks
from keras_transformer.vocabulary import BOS, EOS, LANGUAGE_CODE, PAD, UNK

MAX_FINGERPRINT = 2**63 - 1


class Pieces(typing.Protocol):
    """What this module uses of a `Tokenizer`, which imports this module."""

    model_bytes: bytes
    has_table: bool
    has_case_marks: bool

    @property
    def segmenting_bytes(self) -> bytes: ...
    @property
    def table(self) -> dict[str, int]: ...
    @property
    def codes(self) -> list[str] | None: ...
    def to_ids(self, strings: Sequence[str]) -> list[list[int]]: ...
    def to_strings(self, ids: Sequence[Sequence[int]]) -> list[str]: ...


def encode(
    tokenizer: Pieces, strings: Sequence[str] | tf.Tensor
) -> tf.RaggedTensor:
    """`Tokenizer.encode`, which describes it."""
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
        pieces = _operations(tokenizer.model_bytes, tf.string).tokenize(strings)
        normalized = tf.strings.reduce_join(pieces, axis=1)
        strings = graph_case_marks.mark(normalized)
    return _operations(tokenizer.segmenting_bytes, tf.int32).tokenize(strings)


def _look_up_segments(tokenizer: Pieces, strings: tf.Tensor) -> tf.RaggedTensor:
    """`encode` where segments have the ids of a table."""
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
    """The ids of segments: string [N] -> int32 [N].

    A lookup table of TensorFlow would be a resource, which the object that is
    saved would have to own; so segments are found by their fingerprints.
    """
    with tf.init_scope():  # numbers, although a graph is being made
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
    """`Tokenizer.decode`, which describes it."""
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
        strings = graph_case_marks.restore(strings)
    return tf.strings.strip(strings)  # as `to_strings`


def _operations(model_bytes: bytes, out_type: tf.DType):
    """TensorFlow Text's tokenizer for a model, made anew for each graph.

    In a process that loads a SavedModel, operations with the same name share
    the model of the first one; so each model has its own name. `out_type` is
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
    """Truncates rows [N, S] of tokens, EOS, PAD; the last token becomes EOS.

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
