"""Sampling from the distribution of the model."""

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding.rules import is_banned
from keras_transformer.decoding.selection import (
    first_position,
    int_range,
    value_at,
)


def make_sampler(max_lengths, max_length, seed):
    """A function that samples a token of each row, for `follow_rows`.

    Args:
        max_lengths: int32 [B].
        max_length: Maximum number of tokens, as an int.
        seed: The seed of `search`.
    """
    # One number in [0, 1) for each token, made before the loop: a loop body
    # cannot advance a generator on every backend.
    numbers = keras.random.uniform(
        (ops.shape(max_lengths)[0], max_length), dtype="float32", seed=seed
    )

    def choose(logits, index, rules):
        config = rules.config
        every_id = int_range(logits.shape[-1])[None]  # [1, V]
        banned = is_banned(every_id, index, rules)  # [N, V]
        allowed = ops.where(banned, -np.inf, logits)
        values, ids = _tokens_to_sample_from(
            allowed, config.top_k, config.top_p
        )
        number = ops.take(numbers, index, axis=1)[:, None]  # [N, T] -> [N, 1]
        rank = _sampled_rank(values / config.temperature, number, config.top_p)
        return value_at(ids, rank), value_at(values, rank)

    return choose


def _tokens_to_sample_from(logits, top_k, top_p):
    """Logits [N, V] -> values and ids [N, k], sorted if need be."""
    vocab_size = logits.shape[-1]
    if top_k or top_p < 1.0:
        return ops.top_k(logits, min(top_k or vocab_size, vocab_size))
    every_id = int_range(vocab_size)[None]  # [1, V]
    return logits, ops.broadcast_to(every_id, ops.shape(logits))


def _sampled_rank(values, number, top_p):
    """Samples by probability: values [N, k], number [N, 1] -> int32 [N]."""
    weights = ops.exp(values - ops.max(values, axis=-1, keepdims=True))
    mass = ops.cumsum(weights, axis=-1)
    kept = weights > 0.0
    if top_p < 1.0:
        total = ops.max(mass, axis=-1, keepdims=True)
        kept = kept & (mass - weights < top_p * total)
    mass = ops.where(kept, mass, 0.0)
    total = ops.max(mass, axis=-1, keepdims=True)  # [N, 1]
    return first_position(mass > number * total)
