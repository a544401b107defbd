"""The rules of a search: which tokens may be emitted, and how results rank."""

import typing
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_transformer.base.backend import Tensor, integer_ids
from keras_transformer.base.fields import unhandled
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.phrases import (
    NO_PHRASES,
    Phrases,
    Reading,
    banned_tokens,
)
from keras_transformer.decoding.selection import (
    blockwise_top_k,
    float32_logits,
    int_range,
    log_normalizer,
    row_numbers,
)
from keras_transformer.text.vocabulary import BOS, EOS, PAD

Cache: typing.TypeAlias = typing.Any  # a nest of tensors
Step: typing.TypeAlias = Callable[[Tensor, Cache, Tensor], tuple[Tensor, Cache]]
Reorder: typing.TypeAlias = Callable[[Cache, Tensor], Cache]

MISSING_SCORE = -1e9  # replaces -inf in results: there is no hypothesis
MAX_DRAW = 1 << 24  # float32 is exact for these integers and their fractions
UNFINISHED = -1  # the length of hypotheses whose search has not ended
# Fields of `Constraints` with one number per sentence, int32 `[B, 1]`, from the
# field of the same name of each `Row`. They are () if all are 0.
NUMBERS = ("num_given",)


class SearchResult(typing.NamedTuple):
    """The hypotheses of each sentence, best first.

    If fewer than W hypotheses exist, the rest are empty: ids `PAD`, length 0,
    score and log-probability `MISSING_SCORE`.

    Attributes:
        ids: int32 `[B, W, T]`, without BOS, with EOS, then PAD. There is no EOS
            if the length limit truncated the hypothesis.
        scores: float32 `[B, W]`, log-probabilities after length penalty; NaN if
            the search of this sentence failed.
        log_probs: float32 `[B, W]`, natural logarithm; NaN as in `scores`.
        lengths: int32 `[B, W]`, in tokens, EOS included; `UNFINISHED` if
            `max_steps` ended the search of this sentence.
    """

    ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor


def length_penalty(config: DecodingConfig, lengths: Tensor) -> Tensor:
    """Computes the divisors of log-probabilities, float32, shaped as `lengths`.

    `lengths` are in tokens, EOS included.
    """
    lengths = ops.cast(lengths, "float32")
    match config.length_normalization:
        case "wu":
            return ops.power((lengths + 5.0) / 6.0, config.length_penalty)
        case "power":
            # A row that is not searched has no tokens.
            return ops.power(ops.maximum(lengths, 1.0), config.length_penalty)
        case other:
            raise unhandled(length_normalization=other)


class Constraints(typing.NamedTuple):
    """The requirements on the output of each sentence, one row per sentence.

    They are part of the search state, so the row of a sentence leaves the batch
    with the sentence. A field that no sentence uses is (), which costs no
    operation.

    Attributes:
        prefix: int32 `[B, P]`, the tokens that each output begins with, then
            `PAD`. The score includes their log-probabilities. They may be
            tokens that are otherwise not emitted, repeat n-grams, or be in
            forbidden phrases.
        num_given: int32 `[B, 1]`, how many of the first tokens of the prefix
            are not part of the translation, such as its language. The score
            does not include their log-probabilities.
        phrases: The `Phrases` that outputs must have, or must not have.
        draws: int32 `[B, T]`, random numbers in [0, `MAX_DRAW`), by which
            sampling chooses the token at each position.
    """

    prefix: Tensor | tuple[()] = ()
    num_given: Tensor | tuple[()] = ()
    phrases: Phrases = NO_PHRASES
    draws: Tensor | tuple[()] = ()

    @property
    def has_terms(self) -> bool:
        """Whether any sentence has a term."""
        return self.phrases.has_terms

    def check_draws(self, max_length: int) -> None:
        """Raises ValueError unless there is a draw for each position."""
        shape = tuple(getattr(self.draws, "shape", ()))
        expect(
            len(shape) == 2 and (shape[1] or max_length) >= max_length,
            "draws [B, T] for sampling, a number for each of T tokens",
            f"draws.shape={shape}, T={max_length}",
        )

    def padded(self, max_length: int) -> "Constraints":
        """Converts fields to tensors and pads `prefix` to `[B, max_length]`.

        Raises ValueError if the prefix is longer, or its shape is wrong.
        """
        if self.phrases.exist:
            arrays = keras.tree.map_structure(
                ops.convert_to_tensor, self.phrases
            )
            self = self._replace(phrases=arrays)
        for name in ("draws", *NUMBERS):
            if not isinstance(value := getattr(self, name), tuple):
                array = ops.convert_to_tensor(value, dtype="int32")
                self = self._replace(**{name: array})
        if isinstance(self.prefix, tuple) and not self.prefix:
            return self
        prefix = ops.convert_to_tensor(self.prefix)
        expect(
            len(prefix.shape) == 2 and (prefix.shape[1] or 0) <= max_length,
            "a prefix [B, P] with P at most max_length",
            f"prefix.shape={tuple(prefix.shape)}, {max_length=}",
        )
        prefix = int32_prefix(prefix)
        free = ops.zeros_like(prefix[:, :1])  # [B, 1]
        free = free + ops.zeros((max_length,), "int32")  # [B, 1] -> [B, T]
        padded = ops.concatenate([prefix, free], axis=1)[:, :max_length]
        return self._replace(prefix=padded)


UNCONSTRAINED = Constraints()


class Rules(typing.NamedTuple):
    """The rules of a search at one position.

    A rule that applies to no row is None. `forced` is the token that must come
    next, `PAD` for a free choice. `is_given` tells whether the position is one
    of the first `num_given`, where the log-probability is 0. `forbidden` are
    the tokens that would complete a forbidden phrase, padded with `PAD`.
    `must_go_on` tells whether a term is missing, so that EOS is banned.
    `draw` chooses the token in sampling.
    """

    config: DecodingConfig
    index: Tensor  # int32 scalar, the position
    forced: Tensor | None = None  # int32 [N]
    is_given: Tensor | None = None  # bool [N]
    forbidden: Tensor | None = None  # int32 [N, L]
    must_go_on: Tensor | None = None  # bool [N]
    draw: Tensor | None = None  # float32 [N], in [0, 1)


class SearchState(typing.Protocol):
    """The part of a search state that `rules_at` reads."""

    @property
    def index(self) -> Tensor: ...
    @property
    def constraints(self) -> Constraints: ...
    @property
    def reading(self) -> Reading: ...


def rules_at(
    config: DecodingConfig, state: SearchState, beam_size: int = 1
) -> Rules:
    """Makes the `Rules` at the position of a state, for N = B * `beam_size`."""
    rules = Rules(config, state.index)
    prefix, num_given, phrases, draws = state.constraints
    if not isinstance(prefix, tuple):
        forced = ops.take(prefix, state.index, axis=1)  # [B, T] -> [B]
        rules = rules._replace(forced=ops.repeat(forced, beam_size))
    if not isinstance(num_given, tuple):
        is_given = state.index < num_given[:, 0]  # [B]
        rules = rules._replace(is_given=ops.repeat(is_given, beam_size))
    if phrases.has_bans:
        banned = banned_tokens(phrases, state.reading.states)  # [B, M, L]
        tokens = ops.where(banned, phrases.tokens[:, None], PAD)
        tokens = ops.reshape(tokens, (-1, ops.shape(tokens)[2]))
        rules = rules._replace(forbidden=tokens)
    if phrases.has_terms and config.glossary_mode == "force":
        missing = ~ops.all(state.reading.met, axis=2)  # [B, M]
        rules = rules._replace(must_go_on=ops.reshape(missing, (-1,)))
    if not isinstance(draws, tuple):
        draw = ops.take(draws, state.index, axis=1)  # [B, T] -> [B]
        rules = rules._replace(draw=ops.cast(draw, "float32") / MAX_DRAW)
    return rules


def is_banned(ids: Tensor, rules: Rules) -> Tensor:
    """Tells which ids [N, k] may not be emitted, as bool [N, k].

    `min_length`, missing terms and the prefix decide; see `steer` for the rest.
    """
    banned = (ids == PAD) | (ids == BOS)
    min_length = rules.config.min_length
    if min_length > 1:
        banned = banned | ((ids == EOS) & (rules.index + 1 < min_length))
    if rules.must_go_on is not None:
        banned = banned | ((ids == EOS) & rules.must_go_on[:, None])
    if rules.forced is not None:
        forced = rules.forced[:, None]
        is_free = forced == PAD  # ONNX Runtime cannot choose between booleans
        banned = (banned & is_free) | ((ids != forced) & ~is_free)
    return banned


def steer(logits: Tensor, ids: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Sets the logits of tokens that constraints and n-grams forbid to -inf.

    Takes logits [N, V] and the tokens so far, int32 [N, T]. Returns the logits,
    and the normalizer [N] to subtract from them for log-probabilities: NaN
    where the forced token is outside [0, V).
    """
    logits = float32_logits(logits)
    normalizer = log_normalizer(logits)
    if rules.forced is not None:
        forced = rules.forced[:, None]  # [N, 1]
        every_id = int_range(logits.shape[-1])[None]  # [1, V]
        if rules.is_given is not None:
            own = ops.sum(ops.where(forced == every_id, logits, 0.0), axis=-1)
            normalizer = ops.where(rules.is_given, own, normalizer)
        known = (rules.forced >= 0) & (rules.forced < logits.shape[-1])
        normalizer = ops.where(known, normalizer, np.nan)
        allowed = (forced == PAD) | (forced == every_id)
        logits = ops.where(allowed, logits, -np.inf)
    if rules.config.no_repeat_ngram:
        logits = _forbid_repeats(logits, ids, rules)
    if rules.forbidden is not None:
        logits = _forbid(logits, rules.forbidden, rules.forbidden != PAD, rules)
    return logits, normalizer


def _forbid_repeats(logits: Tensor, ids: Tensor, rules: Rules) -> Tensor:
    """Sets the logits [N, V] of tokens that would repeat an n-gram to -inf."""
    size, index = rules.config.no_repeat_ngram, rules.index
    length = ids.shape[1]
    if size > length:
        return logits
    # For the n-gram at each start: whether it is complete, and whether it
    # begins with the last n - 1 tokens.
    starts = int_range(length - size + 1)
    repeats = ops.broadcast_to(
        starts + size <= index, (ops.shape(ids)[0], length - size + 1)
    )  # [S] -> [N, S]
    for offset in range(size - 1):
        last = ops.take(
            ids, ops.maximum(index - size + 1 + offset, 0), axis=1
        )  # [N, T] -> [N]
        same = ids[:, offset : offset + length - size + 1] == last[:, None]
        repeats = repeats & same
    return _forbid(logits, ids[:, size - 1 :], repeats, rules)


def _forbid(logits: Tensor, ids: Tensor, where: Tensor, rules: Rules) -> Tensor:
    """Sets the logits [N, V] of ids [N, S] to -inf if `where` [N, S] is true.

    Rows with a forced token do not change.
    """
    if rules.forced is not None:
        where = where & (rules.forced == PAD)[:, None]
    vocab_size = logits.shape[1]
    counts = ops.segment_sum(  # [N * S] -> [N * V]
        ops.reshape(ops.cast(where, "float32"), (-1,)),
        ops.reshape(row_numbers(ids) * vocab_size + ids, (-1,)),
        num_segments=ops.shape(ids)[0] * vocab_size,
    )
    counts = ops.reshape(counts, (-1, vocab_size))
    return ops.where(counts > 0.0, -np.inf, logits)


def allowed_candidates(
    logits: Tensor, k: int, rules: Rules
) -> tuple[Tensor, Tensor]:
    """Finds the k best tokens that may be emitted, and up to three others.

    Returns logits [N, k + 3] (or [N, V] if V is smaller) and their ids. Logits
    of tokens that may not be emitted are -inf.
    """
    # PAD, BOS and a banned EOS may be among the best tokens of a row. To find
    # three more and mask these is cheaper than to mask all V.
    values, ids = blockwise_top_k(logits, min(k + 3, logits.shape[-1]))
    banned = is_banned(ids, rules)
    return ops.where(banned, -np.inf, values), ids


def int32_prefix(ids: Tensor) -> Tensor:
    """Converts integers of any dtype to int32, -1 if they do not fit."""
    ids = integer_ids(ids, "prefix")
    if keras.backend.standardize_dtype(ids.dtype) == "int64":
        ids = ops.where((ids >= 0) & (ids < 2**31), ids, -1)
    return ops.cast(ids, "int32")
