"""Sampling from the distribution of the model."""

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import Tensor
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.arguments import Cache, Step, check_max_length
from keras_transformer.decoding.greedy import follow_one
from keras_transformer.decoding.results import LengthPenalty, SearchResult
from keras_transformer.decoding.rules import Rules, is_banned, pad_prefix
from keras_transformer.decoding.selection import (
    first_position,
    int_range,
    value_at,
)
from keras_transformer.fields import check_values


def sample(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    length_penalty: float,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | keras.random.SeedGenerator,
    min_length: int = DecodingConfig.min_length,
    no_repeat_ngram: int = DecodingConfig.no_repeat_ngram,
    prefix: Tensor | None = None,
    length_normalization: str = DecodingConfig.length_normalization,
) -> SearchResult:
    """Samples each token from the model's distribution.

    Logits are divided by `temperature`. All but the `top_k` most probable
    tokens are dropped, then all but the smallest set of most probable tokens
    whose probability reaches `top_p` (at least one). The token is sampled from
    the rest. The log-probabilities returned are the model's own, which none of
    this changes.

    A sample depends on the seed and on the sentence's position in the batch,
    not on its neighbours. The same seed gives other samples inside XLA and on
    another backend.

    Args:
        step: The function described above, N = B.
        cache: Nest of tensors `[B, ...]` for position 0.
        max_lengths: int32 `[B]`, the longest output of each sentence in tokens,
            EOS included; values above `max_length` count as `max_length`.
        max_length: T, the size of the token buffers, as an int.
        length_penalty: Exponent of the length penalty, as a float.
        temperature: Divides the logits, as a float.
        top_k: Number of tokens to sample from, as an int; 0: all.
        top_p: Probability to sample from, as a float in (0, 1]; 1: all.
        seed: An int, which gives the same samples at every call, or a
            `keras.random.SeedGenerator`.
        min_length: Smallest length in tokens, EOS included.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[B, P]`, the first tokens, `PAD` after them; or None.
        length_normalization: What the length penalty is a power of, as in
            `DecodingConfig`.

    Returns:
        A `SearchResult` with W = 1.

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    >>> logits = np.log([[.1, .1, .2, .6], [.1, .1, .7, .1]])[:, None]
    >>> sample(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), np.array([2]), max_length=2, length_penalty=0.0,
    ...     temperature=1.0, top_k=1, top_p=1.0, seed=0,
    ... ).ids.numpy()
    array([[[3, 2]]], dtype=int32)
    """
    check_values(
        DecodingConfig,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    if seed is None:
        raise ValueError(
            "seed must be an int or a keras.random.SeedGenerator."
            f" Received: seed={seed}"
        )
    check_max_length(max_length)
    max_lengths = ops.convert_to_tensor(max_lengths, dtype="int32")
    # One number in [0, 1) for each token, made before the loop: a loop body
    # cannot advance a generator on every backend.
    numbers = keras.random.uniform(
        (ops.shape(max_lengths)[0], max_length), dtype="float32", seed=seed
    )

    rules = Rules(
        min_length, no_repeat_ngram, pad_prefix(prefix, max_length, 1)
    )

    def choose(logits, index):
        every_id = int_range(logits.shape[-1])[None]  # [1, V]
        banned = is_banned(every_id, index, rules)  # [N, V]
        allowed = ops.where(banned, -np.inf, logits)
        values, ids = _tokens_to_sample_from(allowed, top_k, top_p)
        number = ops.take(numbers, index, axis=1)[:, None]  # [N, T] -> [N, 1]
        rank = _sampled_rank(values / temperature, number, top_p)
        return value_at(ids, rank), value_at(values, rank)

    penalty = LengthPenalty(length_penalty, length_normalization)
    return follow_one(
        step, cache, max_lengths, choose, max_length, penalty, rules
    )


def _tokens_to_sample_from(logits, top_k, top_p):
    """Logits [N, V] -> values and ids [N, k], best first if that matters."""
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
