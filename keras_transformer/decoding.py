"""Search for output sequences: greedy, beam (sec. 6.1), sampling.

Nothing here knows a model. The caller hands over a function

    step(ids, cache, index) -> (logits, cache)

    ids     int32 `[N]`, the last token of each hypothesis; BOS at position 0
    cache   any nest of tensors whose first axis is N
    index   int32 scalar, the position of `ids`, 0 for BOS
    logits  float32 `[N, V]`, they score the token that follows `ids`

with N = B for `greedy_search` and `sample`, and N = B * W for `beam_search`:
the W hypotheses of a sentence are neighbours. `step` is a closure over what
does not change between positions, such as the projected encoder output.
A cache that is not such a nest brings a function that reorders it.

Choices that systems make differently:

- Score: log-probability / ((5 + length) / 6) ^ length_penalty (Wu et al. 2016,
  the paper's reference 38), and the length counts EOS. With
  `length_normalization="power"` it is length ^ length_penalty.
- Log-probabilities are the model's own, over all V tokens. PAD and BOS are
  never emitted, and EOS only where the length reaches `min_length`. The
  probability of these tokens is not redistributed to the others.
- The length limit is one number for each sentence, EOS included. A hypothesis
  that reaches it without EOS is returned as it is, without EOS.
- A sentence whose search has ended is frozen while its neighbours go on, so a
  result never depends on the rest of the batch. Rows that only pad the batch
  have the limit 0 and are not searched.
- `no_repeat_ngram` forbids a token that would end an n-gram which the
  hypothesis has already. EOS ends no such n-gram.
- Where these rules leave no token (`no_repeat_ngram=1` with a large
  `min_length`), the hypothesis is dropped: no tokens, score and log-probability
  `MISSING_SCORE`.
- `prefix` forces the first tokens: their log-probabilities count, and they may
  include tokens that are otherwise not emitted, or repeat n-grams.
- A sentence fails if its logits at some position have a NaN or +inf, or nothing
  but -inf, or if its prefix has an id that is not in the vocabulary: its scores
  and log-probabilities are NaN, its ids `PAD`. The others of the batch are not
  affected.

The search computes in float32, whatever the dtype of the logits.
"""

import typing
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_transformer import row_loop
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import check_values, is_of_kind
from keras_transformer.vocabulary import BOS, EOS, PAD

Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or NumPy's
Cache: typing.TypeAlias = typing.Any  # a nest of tensors
Step: typing.TypeAlias = Callable[[Tensor, Cache, Tensor], tuple[Tensor, Cache]]
Reorder: typing.TypeAlias = Callable[[Cache, Tensor], Cache]

MISSING_SCORE = -1e9  # stands for -inf in results: no such hypothesis
UNFINISHED = -1  # the length of hypotheses whose search has not ended


class SearchResult(typing.NamedTuple):
    """The hypotheses of each sentence, best first.

    Where fewer than W hypotheses exist, the rest are empty: ids `PAD`, length
    0, score and log-probability `MISSING_SCORE`.

    Attributes:
        ids: int32 `[B, W, T]`, without BOS; EOS, then PAD. No EOS where the
            length limit truncated the hypothesis.
        scores: float32 `[B, W]`, log-probabilities after length penalty; NaN if
            the search of this sentence failed.
        log_probs: float32 `[B, W]`, natural logarithm; NaN likewise.
        lengths: int32 `[B, W]`, in tokens, EOS included; `UNFINISHED` if
            `max_positions` ended the search of this sentence.
    """

    ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor


class Rules(typing.NamedTuple):
    """Which tokens may be emitted where, whatever the model says.

    Attributes:
        min_length: Tokens, EOS included, as an int.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[N, T]`, forced tokens, `PAD` where free; or None.
    """

    min_length: int
    no_repeat_ngram: int
    prefix: Tensor | None


class LengthPenalty(typing.NamedTuple):
    """What log-probabilities are divided by, for hypotheses to compare.

    Attributes:
        alpha: The exponent, as a float.
        normalization: What it is the exponent of: a value of
            `DecodingConfig.length_normalization`.
    """

    alpha: float
    normalization: str

    def of(self, lengths: Tensor) -> Tensor:
        """The penalty of lengths in tokens, EOS included: float32."""
        lengths = ops.cast(lengths, "float32")
        if self.normalization == "power":
            # A row that is not searched has no tokens.
            return ops.power(ops.maximum(lengths, 1.0), self.alpha)
        return ops.power((lengths + 5.0) / 6.0, self.alpha)


def greedy_search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    length_penalty: float,
    min_length: int = DecodingConfig.min_length,
    no_repeat_ngram: int = DecodingConfig.no_repeat_ngram,
    prefix: Tensor | None = None,
    length_normalization: str = DecodingConfig.length_normalization,
    max_positions: int | None = None,
    pick: row_loop.Pick | None = None,
) -> SearchResult:
    """Takes the most probable token at each position.

    Of equally probable tokens the one with the lowest id is taken.

    Args:
        step: The function described above, N = B.
        cache: Nest of tensors `[B, ...]` for position 0.
        max_lengths: int32 `[B]`, the longest output of each sentence in tokens,
            EOS included; values above `max_length` count as `max_length`.
        max_length: T, the size of the token buffers, as an int.
        length_penalty: Exponent of the length penalty, as a float.
        min_length: Smallest length in tokens, EOS included.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[B, P]`, the first tokens, `PAD` after them; or None.
        length_normalization: What the length penalty is a power of, as in
            `DecodingConfig`.
        max_positions, pick: As in `beam_search`.

    Returns:
        A `SearchResult` with W = 1.

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    >>> logits = np.log([[.1, .1, .2, .6], [.1, .1, .7, .1]])[:, None]
    >>> greedy_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), np.array([2]), max_length=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2]]], dtype=int32)
    """
    check_values(
        DecodingConfig,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
    )

    rules = Rules(
        min_length, no_repeat_ngram, _pad_prefix(prefix, max_length, 1)
    )
    penalty = LengthPenalty(length_penalty, length_normalization)

    def choose(logits, index):
        values, ids = _allowed_candidates(logits, 1, index, rules)
        best = ops.max(values, axis=-1, keepdims=True)
        rank = _first_position(values == best)  # of equals the lowest id
        return _at(ids, rank), best[:, 0]

    return _follow_one(
        step,
        cache,
        max_lengths,
        choose,
        max_length,
        penalty,
        rules,
        max_positions=max_positions,
        pick=pick,
    )


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
    _check_max_length(max_length)
    max_lengths = ops.convert_to_tensor(max_lengths, dtype="int32")
    # One number in [0, 1) for each token, made before the loop: a loop body
    # cannot advance a generator on every backend.
    numbers = keras.random.uniform(
        (ops.shape(max_lengths)[0], max_length), dtype="float32", seed=seed
    )

    rules = Rules(
        min_length, no_repeat_ngram, _pad_prefix(prefix, max_length, 1)
    )

    def choose(logits, index):
        every_id = _positions(logits.shape[-1])[None]  # [1, V]
        banned = _is_banned(every_id, index, rules)  # [N, V]
        allowed = ops.where(banned, -np.inf, logits)
        values, ids = _tokens_to_sample_from(allowed, top_k, top_p)
        number = ops.take(numbers, index, axis=1)[:, None]  # [N, T] -> [N, 1]
        rank = _sampled_rank(values / temperature, number, top_p)
        return _at(ids, rank), _at(values, rank)

    penalty = LengthPenalty(length_penalty, length_normalization)
    return _follow_one(
        step, cache, max_lengths, choose, max_length, penalty, rules
    )


def beam_search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    beam_size: int,
    length_penalty: float,
    min_length: int = DecodingConfig.min_length,
    no_repeat_ngram: int = DecodingConfig.no_repeat_ngram,
    prefix: Tensor | None = None,
    length_normalization: str = DecodingConfig.length_normalization,
    stopping: str = DecodingConfig.stopping,
    reorder: Reorder | None = None,
    num_best: int | None = None,
    max_positions: int | None = None,
    pick: row_loop.Pick | None = None,
) -> SearchResult:
    """Keeps the W most probable unfinished hypotheses, and the W best finished.

    At each position the 2W most probable continuations of the W live
    hypotheses are looked at. Those that are EOS compete, by score, for the W
    places among the finished; the W best of the others live on.

    A sentence's search ends at its length limit, or as soon as no live
    hypothesis can reach the score of the worst of `num_best` finished ones,
    even if all it still has to emit were certain and it had the greatest
    length: the result is exactly that of a search which goes on to the limit.
    If fewer than W have finished at the limit, live ones, by score, follow the
    finished ones.

    With `stopping="transformers"` only those among the W best continuations
    compete for the finished places; the search ends as soon as no live
    hypothesis has, at its present length, a better score than the worst of W
    finished ones; and at the length limit live ones rank with the finished. So
    does transformers 5 (`early_stopping=False`, `forced_eos_token_id`).

    Three more systems have other rules. fairseq: again only those among the W
    best continuations compete for the finished places; the search ends when W
    have finished; so does CTranslate2 4 with `patience=1`. Marian: W - n
    continuations are looked at once n hypotheses have finished; the search ends
    when W have. OpenNMT-tf: of the finished and the continuations together, the
    W best by score stay; the search ends when all of these have finished.

    `beam_size=1` is `greedy_search`: it ends where EOS is most probable.

    Args:
        step: The function described above, N = B * beam_size.
        cache: Nest of tensors `[B * beam_size, ...]` for position 0.
        max_lengths: int32 `[B]`, the longest output of each sentence in tokens,
            EOS included; values above `max_length` count as `max_length`.
        max_length: T, the size of the token buffers, as an int.
        beam_size: W, the number of hypotheses, as an int.
        length_penalty: Exponent of the length penalty, as a float.
        min_length: Smallest length in tokens, EOS included.
        no_repeat_ngram: Tokens of an n-gram that may not occur twice, as an
            int; 0: all may.
        prefix: int32 `[B, P]`, the first tokens, `PAD` after them; or None.
        length_normalization: What the length penalty is a power of, as in
            `DecodingConfig`.
        stopping: When the search ends, as in `DecodingConfig`.
        reorder: A function of the cache and of parents, int32 `[B, W]` in
            [0, W), that returns the cache of hypotheses which continue these;
            None: the rows of every tensor are picked.
        num_best: How many hypotheses are returned; None: W. The fewer, the
            earlier the search ends.
        max_positions: Positions to search at most, as an int: the token buffers
            have no more. Sentences whose search goes on have the length
            `UNFINISHED`, and the others the same results. None: T.
        pick: A function of the cache and of sentences, int32 `[b]`, that
            returns the cache of these: sentences leave the batch as their
            searches end; see `row_loop.run`. None: they stay. With it there can
            be no prefix and no `max_positions`.

    Returns:
        A `SearchResult` of `num_best` hypotheses.

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    >>> logits = np.log([[[.1, .1, .2, .6]] * 2, [[.1, .1, .7, .1]] * 2])
    >>> beam_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), np.array([2]), max_length=2, beam_size=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2],
            [2, 0]]], dtype=int32)
    """
    check_values(
        DecodingConfig,
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        stopping=stopping,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
    )
    num_best = beam_size if num_best is None else num_best
    if not is_of_kind(num_best, int) or not 1 <= num_best <= beam_size:
        raise ValueError(
            f"num_best must be an int in [1, beam_size]. Received: num_best="
            f"{num_best!r}, beam_size={beam_size}"
        )
    if beam_size == 1:
        return greedy_search(
            step,
            cache,
            max_lengths,
            max_length=max_length,
            length_penalty=length_penalty,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            prefix=prefix,
            length_normalization=length_normalization,
            max_positions=max_positions,
            pick=pick,
        )
    penalty = LengthPenalty(length_penalty, length_normalization)
    max_lengths = _clip_limits(max_lengths, max_length)
    rules = Rules(
        min_length,
        no_repeat_ngram,
        _pad_prefix(prefix, max_length, beam_size),
    )
    max_positions = _checked_positions(max_positions, max_length, pick, prefix)
    if reorder is None:
        _check_cache(cache, max_lengths, beam_size)
        reorder = _gather_nest

    def make_grow(first):
        sentences = _numbers(first.done)
        limit_penalties = penalty.of(first.max_lengths)

        def grow(state, cache):
            live_ids = ops.reshape(state.live_last_ids, (-1,))  # [B * W]
            logits, cache = step(live_ids, cache, state.index)
            logits = _float32_logits(logits)  # [B * W, V]
            candidates = _best_candidates(logits, state, sentences, rules)
            choice = _choose_beams(
                candidates, state, sentences, penalty, stopping
            )
            state = _next_beams(choice, state, sentences)
            cache = reorder(cache, choice.rows[:, beam_size:] - beam_size)
            state = state._replace(
                done=state.done
                | (state.index >= state.max_lengths)
                | _is_over(state, penalty, limit_penalties, stopping, num_best)
            )
            return state, cache

        return grow

    state = row_loop.run(
        make_grow,
        _first_beams(max_lengths, max_positions or max_length, beam_size),
        cache,
        max_steps=max_positions,
        pick=pick,
    )
    sentences = _numbers(max_lengths)
    if stopping == "transformers":
        state = _finish_live(state, sentences, penalty)
    result = _ranked_result(state, sentences, penalty)
    if max_positions is not None:
        result = _without_unfinished(result, state.done)
    return SearchResult(*(values[:, :num_best] for values in result))


def rerank(result: SearchResult, rewards: Tensor) -> SearchResult:
    """Adds a reward to each score and ranks the hypotheses by the sums.

    Those that end with EOS still stand before those that the length limit
    truncated; of equal scores the first stays first. Missing hypotheses stay
    missing, and failed searches failed.

    Args:
        result: A `SearchResult`.
        rewards: float32 `[B, W]`, or what broadcasts to it; negative ones are
            penalties.

    Returns:
        A `SearchResult`; the log-probabilities stay those of the model.

    >>> result = SearchResult(
    ...     *map(np.array, ([[[5, 2], [6, 2]]], [[-1.0, -2.0]],
    ...                     [[-1.0, -2.0]], [[2, 2]])))
    >>> rerank(result, np.array([[-3.0, -1.0]])).ids.numpy()
    array([[[6, 2],
            [5, 2]]])
    """
    missing = result.scores <= MISSING_SCORE
    scores = ops.where(missing, MISSING_SCORE, result.scores + rewards)
    finished = ops.any(result.ids == EOS, axis=-1)  # [B, W]
    # How many hypotheses stand before each one: two by two, [B, W, W].
    first, second = finished[:, :, None], finished[:, None, :]
    theirs, own = scores[:, :, None], scores[:, None, :]
    ranks = _positions(scores.shape[1])
    earlier = ranks[:, None] < ranks[None]  # [W, W]
    better = (theirs > own) | ((theirs == own) & earlier)
    before = (first & ~second) | ((first == second) & better)
    places = ops.sum(ops.cast(before, "int32"), axis=1)  # [B, W]
    _, rows = ops.top_k(-places, scores.shape[1])  # those of a failure stay
    sentences = ops.arange(ops.shape(scores)[0], dtype="int32")[:, None]
    return SearchResult(
        *(
            _gather_rows(values, rows, sentences)
            for values in (result.ids, scores, result.log_probs, result.lengths)
        )
    )


# ---- Following one hypothesis: greedy search and sampling -------------------


class RowState(typing.NamedTuple):
    """One hypothesis for each sentence, between two positions.

    Attributes:
        index: int32 scalar, position of `last_ids`; tokens emitted so far.
        last_ids: int32 `[B]`, what `step` is given next.
        ids: int32 `[B, T]`, tokens so far, then PAD.
        log_probs: float32 `[B]`.
        max_lengths: int32 `[B]`, which do not change.
        done: bool `[B]`, whether the row is frozen.
    """

    index: Tensor
    last_ids: Tensor
    ids: Tensor
    log_probs: Tensor
    max_lengths: Tensor
    done: Tensor


def _follow_one(
    step,
    cache,
    max_lengths,
    choose,
    max_length,
    penalty,
    rules,
    max_positions=None,
    pick=None,
):
    """Extends one row per sentence by choose(logits, index) -> ids, logits."""
    max_lengths = _clip_limits(max_lengths, max_length)
    _check_cache(cache, max_lengths, 1)
    max_positions = _checked_positions(
        max_positions, max_length, pick, rules.prefix
    )

    def extend(state, cache):
        logits, cache = step(state.last_ids, cache, state.index)
        logits = _float32_logits(logits)
        steered = _force_prefix(logits, state.index, rules)
        if rules.no_repeat_ngram:
            steered = _forbid_repeats(steered, state.ids, state.index, rules)
        ids, id_logits = choose(steered, state.index)  # [N, V] -> [N], [N]
        gains = id_logits - _log_normalizer(logits)  # [N]
        gains = _fail_at_wrong_prefix(gains, logits, state.index, rules)
        ids = ops.where(state.done, PAD, ids)
        index = state.index + 1
        state = RowState(
            index=index,
            last_ids=ids,
            ids=_write_column(state.ids, ids, state.index),
            log_probs=ops.where(
                state.done, state.log_probs, state.log_probs + gains
            ),
            max_lengths=state.max_lengths,
            done=state.done | (ids == EOS) | (index >= state.max_lengths),
        )
        return state, cache

    zeros = ops.zeros_like(max_lengths)
    state = RowState(
        index=ops.zeros((), "int32"),
        last_ids=zeros + BOS,
        ids=zeros[:, None]
        + ops.zeros((max_positions or max_length,), "int32"),  # [B, T]
        log_probs=ops.cast(zeros, "float32"),
        max_lengths=max_lengths,
        done=max_lengths < 1,
    )
    state = row_loop.run(
        lambda state: extend, state, cache, max_steps=max_positions, pick=pick
    )
    failed = _is_failure(state.log_probs)  # [B]
    missing = state.log_probs < MISSING_SCORE  # no token was allowed
    log_probs = ops.where(failed, np.nan, state.log_probs)
    log_probs = ops.where(missing, MISSING_SCORE, log_probs)
    ids = ops.where((failed | missing)[:, None], PAD, state.ids)  # [B, T]
    lengths = _count_tokens(ids)  # [B]
    scores = log_probs / penalty.of(lengths)
    scores = ops.where(missing, MISSING_SCORE, scores)
    result = SearchResult(  # [B, ...] -> [B, 1, ...]
        *(value[:, None] for value in (ids, scores, log_probs, lengths))
    )
    if max_positions is None:
        return result
    return _without_unfinished(result, state.done)


def _first_position(hits):
    """Position of the first True in each row: bool [N, V] -> int32 [N]."""
    # Two plain reductions (this and the maximum before it) take XLA half the
    # time of one argmax, which it does not vectorize.
    size = hits.shape[-1]
    return ops.min(ops.where(hits, _positions(size), size - 1), axis=-1)


# ---- Sampling ---------------------------------------------------------------


def _tokens_to_sample_from(logits, top_k, top_p):
    """Logits [N, V] -> values and ids [N, k], best first if that matters."""
    vocab_size = logits.shape[-1]
    if top_k or top_p < 1.0:
        return ops.top_k(logits, min(top_k or vocab_size, vocab_size))
    every_id = _positions(vocab_size)[None]  # [1, V]
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
    return _first_position(mass > number * total)


def _at(values, rank):
    """Picks one of each row: values [N, k], rank [N] -> [N]."""
    here = _positions(values.shape[-1]) == rank[:, None]  # [N, k]
    return ops.sum(ops.where(here, values, ops.zeros_like(values)), axis=-1)


# ---- Beam search: the state and the stages of one position ------------------


class BeamState(typing.NamedTuple):
    """The hypotheses of each sentence, between two positions.

    There are W finished hypotheses, best score first, and W live ones, most
    probable first. A free place has score or log-probability -inf.

    Attributes:
        index: int32 scalar, position of `live_last_ids`; tokens emitted so far.
        ids: int32 `[B, 2W, T]`, tokens so far, then PAD: of the finished, then
            of the live. They share a buffer so that one gather moves both.
        finished_scores: float32 `[B, W]`.
        live_log_probs: float32 `[B, W]`.
        live_last_ids: int32 `[B, W]`, what `step` is given next.
        max_lengths: int32 `[B]`, which do not change.
        done: bool `[B]`, whether the sentence is frozen.
    """

    index: Tensor
    ids: Tensor
    finished_scores: Tensor
    live_log_probs: Tensor
    live_last_ids: Tensor
    max_lengths: Tensor
    done: Tensor


class Candidates(typing.NamedTuple):
    """The most probable continuations of a sentence's live hypotheses.

    Attributes:
        parents: int32 `[B, 2W]`, the live hypothesis continued, in [0, W).
        ids: int32 `[B, 2W]`, the token that continues it.
        log_probs: float32 `[B, 2W]`, of the whole, most probable first.
    """

    parents: Tensor
    ids: Tensor
    log_probs: Tensor


class Choice(typing.NamedTuple):
    """The hypotheses that come next.

    Attributes:
        rows: int32 `[B, 2W]`, the row of `BeamState.ids` that each one of the
            finished, then each one of the live continues.
        ids: int32 `[B, 2W]`, the token that continues it; PAD: none.
        finished_scores: float32 `[B, W]`.
        live_log_probs: float32 `[B, W]`.
    """

    rows: Tensor
    ids: Tensor
    finished_scores: Tensor
    live_log_probs: Tensor


def _first_beams(max_lengths, max_length, beam_size):
    """One live hypothesis per sentence, BOS; all other places are free."""
    zeros = ops.zeros_like(max_lengths)[:, None]  # [B] -> [B, 1]
    places = zeros + ops.zeros((beam_size,), "int32")  # [B, 1] -> [B, W]
    no_ids = ops.zeros((2 * beam_size, max_length), "int32")
    return BeamState(
        index=ops.zeros((), "int32"),
        ids=zeros[:, :, None] + no_ids,  # [B, 1, 1] -> [B, 2W, T]
        finished_scores=ops.cast(places, "float32") - np.inf,
        live_log_probs=ops.where(
            _positions(beam_size) == 0, ops.cast(places, "float32"), -np.inf
        ),
        live_last_ids=places + BOS,
        max_lengths=max_lengths,
        done=max_lengths < 1,
    )


def _best_candidates(logits, state, sentences, rules):
    """The 2W best continuations of W hypotheses, of W * V: `Candidates`."""
    beam_size = state.live_log_probs.shape[1]
    steered = _force_prefix(logits, state.index, rules)
    if rules.no_repeat_ngram:
        ids = _live_ids(state)
        steered = _forbid_repeats(steered, ids, state.index, rules)
    normalizer = _log_normalizer(logits)
    normalizer = _fail_at_wrong_prefix(normalizer, logits, state.index, rules)
    # What turns logits into log-probabilities of whole hypotheses: [B * W]
    offsets = ops.reshape(state.live_log_probs, (-1,)) - normalizer

    def total(values, rows):
        """Log-probabilities of whole hypotheses: [..., k] of rows [...]."""
        values = values + ops.take(offsets, rows, axis=0)[..., None]
        # No comparison holds for NaN, so that each backend would sort it to
        # another place. Infinity comes first everywhere and stays what it is.
        return ops.where(values < np.inf, values, np.inf)

    hypotheses = sentences * beam_size + _positions(beam_size)  # [B, W]
    size = _block_size(logits.shape[-1], 2 * beam_size)
    if size is None or rules.prefix is not None:
        values, ids = _allowed_candidates(
            steered, 2 * beam_size, state.index, rules
        )  # [B * W, V] -> [B * W, k]
        shape = (-1, beam_size, ids.shape[-1])
        values, ids = (ops.reshape(x, shape) for x in (values, ids))
        rows = hypotheses
    else:
        values, ids, rows = _blocks_of_best(
            steered, size, total, hypotheses, state.index, rules
        )
    # [B, M, k], of which all k are of one hypothesis, rows [B, M]
    values = total(values, rows)
    width = values.shape[1] * values.shape[2]
    values = ops.reshape(values, (-1, width))
    log_probs, places = ops.top_k(values, 2 * beam_size)  # [B, 2W]
    blocks = places // ids.shape[2]
    return Candidates(
        parents=_gather_rows(rows, blocks, sentences) - hypotheses[:, :1],
        ids=_gather_rows(ops.reshape(ids, (-1, width)), places, sentences),
        log_probs=log_probs,
    )


def _blocks_of_best(logits, size, total, hypotheses, index, rules):
    """The blocks of the vocabulary that have the best continuations.

    Those 2W of a sentence are in the 2W blocks, of those of its W hypotheses,
    whose best are best; of equals in the first. The rest is not looked at.

    Args:
        logits: float32 [B * W, V].
        size: Tokens of a block.
        total: Function of logits [..., k] and of hypotheses int32 [...] that
            returns the log-probability of each hypothesis with each token.
        hypotheses: int32 [B, W], the rows of the hypotheses.
        index: The position.
        rules: The `Rules`, without a prefix.

    Returns:
        Logits float32 [B, 2W, size], -inf for those that may not be emitted;
        their ids, int32; and the rows of the hypotheses int32 [B, 2W].
    """
    beam_size, num_blocks = hypotheses.shape[1], logits.shape[-1] // size
    blocks = ops.reshape(logits, (-1, size))
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, num_blocks))
    # Whatever the rules ban is in the first block.
    banned = _is_banned(_positions(size)[None], index, rules)
    first = ops.where(banned, -np.inf, logits[:, :size])
    first = ops.max(first, axis=-1, keepdims=True)  # [B * W, 1]
    maxima = ops.concatenate([first, maxima[:, 1:]], axis=1)
    maxima = ops.reshape(maxima, (-1, beam_size, num_blocks))
    maxima = ops.reshape(
        total(maxima, hypotheses), (-1, beam_size * num_blocks)
    )
    _, best = ops.top_k(maxima, 2 * beam_size)  # [B, 2W]
    # In the order of their positions, so that ties go to the lower.
    best = ops.sort(best, axis=-1)
    best = best + hypotheses[:, :1] * num_blocks
    rows = best // num_blocks
    ids = (best % num_blocks * size)[:, :, None] + _positions(size)
    values = ops.take(blocks, best, axis=0)  # [B, 2W, size]
    banned = _is_banned(ids, index, rules)
    return ops.where(banned, -np.inf, values), ids, rows


def _allowed_candidates(logits, k, index, rules):
    """The k best tokens that may be emitted, and up to three that may not.

    Args:
        logits: float32 [N, V].
        k: How many.
        index: The position.
        rules: The `Rules`.

    Returns:
        Logits, float32 [N, k + 3] (or [N, V], if that is less), -inf for those
        that may not be emitted; and their ids, int32.
    """
    # PAD and BOS, and EOS while banned, may take the best places of a row. A
    # row is searched for that many more, and they are dropped from the few
    # found: cheaper than masking all V.
    values, ids = _top_k(logits, min(k + 3, logits.shape[-1]))
    banned = _is_banned(ids, index, rules)
    return ops.where(banned, -np.inf, values), ids


def _top_k(values, k):
    """`ops.top_k` of long rows: [N, V] -> values and positions, both [N, k].

    The k best of a row are in those k blocks of neighbours whose maxima are
    greatest, and of equal maxima in the first; the rest is not looked at.

    >>> _top_k(ops.array([[5.0, 1.0, 7.0, 7.0]]), 2)[1].numpy()
    array([[2, 3]], dtype=int32)
    """
    # Never slice the result of a top_k over V: XLA would sort the whole
    # vocabulary instead, a hundred times slower.
    length = values.shape[-1]
    size = _block_size(length, k)
    if size is None:
        return ops.top_k(values, k)
    num_blocks = length // size
    blocks = ops.reshape(values, (-1, size))  # [N * V / size, size]
    maxima = ops.reshape(ops.max(blocks, axis=-1), (-1, num_blocks))
    _, best = ops.top_k(maxima, k)  # [N, V / size] -> [N, k]
    # In the order of their positions, so that ties go to the lower.
    best = ops.sort(best, axis=-1)
    found = ops.take(blocks, _numbers(values) * num_blocks + best, axis=0)
    values, places = ops.top_k(ops.reshape(found, (-1, k * size)), k)
    blocks = ops.take_along_axis(best, places // size, axis=-1)
    return values, blocks * size + places % size


def _block_size(length, k):
    """Tokens of a block, of which k are looked at; None: all tokens are."""
    for size in range(32, 65):
        if length % size == 0 and length >= 4 * k * size:
            return size
    return None


def _choose_beams(candidates, state, sentences, penalty, stopping):
    """Who is finished and who lives after this position: `Choice`.

    The pool has 3W places: the W finished so far, then the 2W candidates. Ties
    go to the lower place. A frozen sentence keeps what it has.
    """
    beam_size = state.finished_scores.shape[1]
    done = state.done[:, None]  # [B, 1]
    ends = candidates.ids == EOS  # [B, 2W]
    scores = candidates.log_probs / penalty.of(state.index + 1)
    finishes, dies, old_scores = ends & ~done, ends, state.finished_scores
    if stopping != "exact":
        stays, may_finish, may_live = _survivors(state, scores, stopping)
        finishes, dies = finishes & may_finish, ends | ~may_live
        old_scores = ops.where(stays | done, old_scores, -np.inf)
    new_scores = ops.where(finishes, scores, -np.inf)
    pool = ops.concatenate([old_scores, new_scores], axis=1)
    scores, finished = ops.top_k(pool, beam_size)  # [B, 3W] -> [B, W]
    log_probs, live = ops.top_k(
        ops.where(dies, -np.inf, candidates.log_probs), beam_size
    )  # [B, 2W] -> [B, W]
    places = ops.concatenate([finished, beam_size + live], axis=1)  # [B, 2W]

    kept = ops.zeros_like(finished)  # [B, W]
    kept_rows = kept + _positions(beam_size)
    pool_rows = ops.concatenate(
        [kept_rows, beam_size + candidates.parents], axis=1
    )  # [B, 3W]
    pool_ids = ops.concatenate([kept + PAD, candidates.ids], axis=1)  # [B, 3W]
    rows = _gather_rows(pool_rows, places, sentences)  # [B, 3W] -> [B, 2W]
    ids = _gather_rows(pool_ids, places, sentences)
    return Choice(
        rows=ops.where(done, _positions(2 * beam_size), rows),
        ids=ops.where(done, PAD, ids),
        finished_scores=scores,
        live_log_probs=ops.where(done, state.live_log_probs, log_probs),
    )


def _survivors(state, scores, stopping):
    """Which hypotheses may have a place, where that is not open to all.

    Args:
        state: The `BeamState`.
        scores: Those of the 2W candidates, best log-probability first.
        stopping: As in `DecodingConfig`, but not "exact".

    Returns:
        Bools: which of the W finished stay, which of the 2W candidates may
        finish if they are EOS, and which may live on if they are not. Each is
        `[B, W]` or `[B, 2W]`, or of an axis less where all sentences are alike.
    """
    beam_size = state.finished_scores.shape[1]
    ranks = _positions(2 * beam_size)
    if stopping == "opennmt_tf":
        pool = ops.concatenate([state.finished_scores, scores], axis=1)
        _, best = ops.top_k(pool, beam_size)  # [B, 3W] -> [B, W]
        chosen = ops.any(
            best[:, :, None] == _positions(3 * beam_size), axis=1
        )  # [B, W] -> [B, 3W]
        stays, new = chosen[:, :beam_size], chosen[:, beam_size:]
        return stays, new, new
    all_stay, all_live = ranks[:beam_size] >= 0, ranks >= 0
    if stopping == "marian":
        places = beam_size - _count_finished(state)  # [B, 1]
        return all_stay, ranks < places, ranks < places
    return all_stay, ranks < beam_size, all_live  # transformers, fairseq


def _count_finished(state):
    """Finished hypotheses of each sentence: int32 [B, 1]."""
    finished = ops.cast(state.finished_scores > -np.inf, "int32")
    return ops.sum(finished, axis=1, keepdims=True)


def _next_beams(choice, state, sentences):
    """Moves the token buffers to where the choice wants them, and extends."""
    beam_size = state.finished_scores.shape[1]
    ids = _gather_rows(state.ids, choice.rows, sentences)  # [B, 2W, T]
    return BeamState(
        index=state.index + 1,
        ids=_write_column(ids, choice.ids, state.index),
        finished_scores=choice.finished_scores,
        live_log_probs=choice.live_log_probs,
        live_last_ids=choice.ids[:, beam_size:],
        max_lengths=state.max_lengths,
        done=state.done,
    )


def _is_over(state, penalty, limit_penalties, stopping, num_best):
    """Whether no later hypothesis counts: bool [B]."""
    if stopping == "exact":
        return _cannot_improve(state, limit_penalties, num_best)
    if stopping == "transformers":
        return _is_not_better_now(state, penalty)
    if stopping == "opennmt_tf":
        return state.live_log_probs[:, 0] == -np.inf
    return state.finished_scores[:, -1] > -np.inf  # W have finished


def _cannot_improve(state, limit_penalties, num_best):
    """Whether no live hypothesis can enter the best finished: bool [B].

    A log-probability only falls, and is divided by most at the length limit.
    """
    best_possible = state.live_log_probs[:, 0] / limit_penalties
    return best_possible <= state.finished_scores[:, num_best - 1]


def _is_not_better_now(state, penalty):
    """Whether no live hypothesis is better at its present length: bool [B]."""
    beam_size = state.live_log_probs.shape[1]
    lengths = _count_tokens(state.ids[:, beam_size])  # of frozen ones, too
    best_now = state.live_log_probs[:, 0] / penalty.of(lengths)
    return best_now <= state.finished_scores[:, -1]


def _finish_live(state, sentences, penalty):
    """Ranks live hypotheses among the finished, unless the search has stopped.

    They are at the length limit; they rank as if EOS, which costs nothing
    there, were added to each.
    """
    beam_size = state.live_log_probs.shape[1]
    stopped = _is_not_better_now(state, penalty)[:, None]  # [B, 1]
    lengths = _count_tokens(state.ids[:, beam_size:]) + 1  # [B, W]
    scores = state.live_log_probs / penalty.of(lengths)
    scores = ops.where(stopped, -np.inf, scores)
    pool = ops.concatenate([state.finished_scores, scores], axis=1)
    scores, rows = ops.top_k(pool, beam_size)  # [B, 2W] -> [B, W]
    finished = _gather_rows(state.ids, rows, sentences)
    ids = ops.concatenate([finished, state.ids[:, beam_size:]], axis=1)
    return state._replace(ids=ids, finished_scores=scores)


def _ranked_result(state, sentences, penalty):
    """The finished by score, then the live by score: `SearchResult`."""
    beam_size = state.finished_scores.shape[1]
    # Of those in the first W places, some may end at the limit, without EOS:
    # see `_finish_live`.
    truncated = ~ops.any(state.ids == EOS, axis=2)  # [B, 2W]
    truncated = truncated & (_positions(2 * beam_size) < beam_size)
    lengths = _count_tokens(state.ids) + ops.cast(truncated, "int32")
    penalties = penalty.of(lengths)  # [B, 2W]
    live_scores = state.live_log_probs / penalties[:, beam_size:]
    scores = ops.concatenate([state.finished_scores, live_scores], axis=1)
    finished_log_probs = state.finished_scores * penalties[:, :beam_size]
    log_probs = ops.concatenate(
        [finished_log_probs, state.live_log_probs], axis=1
    )  # [B, 2W]
    # Rank r is finished hypothesis r, or the live one that follows the last.
    num_finished = _count_finished(state)
    ranks = _positions(beam_size)[None]  # [1, W]
    skipped = beam_size - num_finished
    rows = ops.where(ranks < num_finished, ranks, ranks + skipped)  # [B, W]

    # The failure of one hypothesis is the whole sentence's.
    failed = _is_failure(ops.max(scores, axis=1, keepdims=True))  # [B, 1]
    scores = _gather_rows(scores, rows, sentences)  # [B, 2W] -> [B, W]
    scores = ops.where(failed, np.nan, scores)
    log_probs = _gather_rows(log_probs, rows, sentences)
    log_probs = ops.where(failed, np.nan, log_probs)
    ids = _gather_rows(state.ids, rows, sentences)  # [B, 2W, T] -> [B, W, T]
    ids = ops.where((scores > -np.inf)[:, :, None], ids, PAD)
    return SearchResult(
        ids=ids,
        scores=ops.where(scores < MISSING_SCORE, MISSING_SCORE, scores),
        log_probs=ops.where(
            log_probs < MISSING_SCORE, MISSING_SCORE, log_probs
        ),
        lengths=_count_tokens(ids),
    )


# ---- What all searches share ------------------------------------------------


def _numbers(sentences):
    """0, 1, ... for each sentence: [B] -> int32 [B, 1]."""
    return ops.arange(ops.shape(sentences)[0], dtype="int32")[:, None]


def _without_unfinished(result, done):
    """The result with the length `UNFINISHED` where a search goes on."""
    lengths = ops.where(done[:, None], result.lengths, UNFINISHED)
    return result._replace(lengths=lengths)


def _is_banned(ids, index, rules):
    """Whether ids [N, k] may not be emitted at a position: bool [N, k]."""
    banned = (ids == PAD) | (ids == BOS)
    if rules.min_length > 1:
        banned = banned | ((ids == EOS) & (index + 1 < rules.min_length))
    if rules.prefix is not None:
        forced = ops.take(rules.prefix, index, axis=1)[:, None]
        banned = ops.where(forced == PAD, banned, ids != forced)
    return banned


def _force_prefix(logits, index, rules):
    """Leaves only the forced token, where there is one: [N, V] -> [N, V]."""
    if rules.prefix is None:
        return logits
    forced = ops.take(rules.prefix, index, axis=1)[:, None]  # [N, T] -> [N, 1]
    every_id = _positions(logits.shape[-1])[None]  # [1, V]
    return ops.where((forced == PAD) | (forced == every_id), logits, -np.inf)


def _forbid_repeats(logits, ids, index, rules):
    """-inf for tokens that would end an n-gram anew: [N, V] -> [N, V].

    Args:
        logits: float32 [N, V].
        ids: int32 [N, T], the tokens before position `index`.
        index: The position.
        rules: The `Rules`.
    """
    size = rules.no_repeat_ngram
    length, vocab_size = ids.shape[1], logits.shape[1]
    if size > length:
        return logits
    # Every n-gram, by its start s: whether it is there, and whether it begins
    # with the last n - 1 tokens.
    starts = _positions(length - size + 1)
    repeats = ops.broadcast_to(
        starts + size <= index, (ops.shape(ids)[0], length - size + 1)
    )  # [S] -> [N, S]
    for offset in range(size - 1):
        last = ops.take(
            ids, ops.maximum(index - size + 1 + offset, 0), axis=1
        )  # [N, T] -> [N]
        same = ids[:, offset : offset + length - size + 1] == last[:, None]
        repeats = repeats & same
    if rules.prefix is not None:
        forced = ops.take(rules.prefix, index, axis=1)[:, None]  # [N, 1]
        repeats = repeats & (forced == PAD)
    ends = ids[:, size - 1 :]  # [N, S]
    rows = ops.arange(ops.shape(ids)[0], dtype="int32")[:, None]  # [N, 1]
    counts = ops.segment_sum(  # [N * S] -> [N * V]
        ops.reshape(ops.cast(repeats, "float32"), (-1,)),
        ops.reshape(rows * vocab_size + ends, (-1,)),
        num_segments=ops.shape(ids)[0] * vocab_size,
    )
    counts = ops.reshape(counts, (-1, vocab_size))
    return ops.where(counts > 0.0, -np.inf, logits)


def _live_ids(state):
    """The tokens of live hypotheses: ids [B, 2W, T] -> [B * W, T]."""
    beam_size = state.live_log_probs.shape[1]
    return ops.reshape(state.ids[:, beam_size:], (-1, state.ids.shape[2]))


def _fail_at_wrong_prefix(values, logits, index, rules):
    """NaN where the forced token is outside [0, V): [N, ...] -> [N, ...]."""
    if rules.prefix is None:
        return values
    forced = ops.take(rules.prefix, index, axis=1)  # [N, T] -> [N]
    known = (forced >= 0) & (forced < logits.shape[-1])
    known = ops.reshape(known, (-1,) + (1,) * (len(values.shape) - 1))
    return ops.where(known, values, np.nan)


def _log_normalizer(logits):
    """What turns logits into log-probabilities: [N, V] -> [N]; NaN if none.

    Of logits that have a NaN or +inf, or nothing but -inf, the differences
    below have a NaN.
    """
    greatest = ops.max(logits, axis=-1, keepdims=True)  # [N, 1]
    mass = ops.sum(ops.exp(logits - greatest), axis=-1)
    return greatest[:, 0] + ops.log(mass)


def _is_failure(log_probs):
    """Whether they are what no log-probability can be: NaN, or +inf."""
    return ops.logical_not(log_probs < np.inf)


def _write_column(ids, column, index):
    """Writes ids[..., index] = column: [..., T], [...] -> [..., T]."""
    here = _positions(ids.shape[-1]) == index  # [T]
    return ops.where(here, column[..., None], ids)


def _gather_rows(values, rows, sentences):
    """Picks from axis 1: [B, M, ...], rows [B, k] -> [B, k, ...]."""
    num_rows = values.shape[1]
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, sentences * num_rows + rows, axis=0)


def _gather_nest(nest, parents):
    """Picks hypotheses in every tensor: parents [B, W] -> [B * W, ...]."""
    rows = _numbers(parents) * parents.shape[1] + parents
    rows = ops.reshape(rows, (-1,))
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), nest)


def _positions(size):
    """0, 1, ... as int32 [size]."""
    # Of the backend: PyTorch's tensors cannot be compared with NumPy's arrays.
    return ops.convert_to_tensor(np.arange(size, dtype="int32"))


def _count_tokens(ids):
    """Length of each hypothesis: ids [..., T] -> int32 [...]."""
    return ops.sum(ops.cast(ids != PAD, "int32"), axis=-1)


# ---- Checks, at trace time ---------------------------------------------------


def _clip_limits(max_lengths, max_length):
    """Length limits as int32 [B], none above the size of the buffers."""
    _check_max_length(max_length)
    max_lengths = ops.convert_to_tensor(max_lengths, dtype="int32")
    if len(max_lengths.shape) != 1:
        raise ValueError(
            "max_lengths must have one number for each sentence, [B]."
            f" Received: max_lengths.shape={tuple(max_lengths.shape)}"
        )
    return ops.minimum(max_lengths, max_length)


def _check_max_length(max_length):
    if not is_of_kind(max_length, int) or max_length < 1:
        raise ValueError(
            "max_length must be an int of at least 1."
            f" Received: max_length={max_length!r}"
        )


def _checked_positions(max_positions, max_length, pick, prefix):
    """`max_positions`, if it limits anything and goes with the others."""
    if pick is not None and (max_positions is not None or prefix is not None):
        raise ValueError(
            "pick excludes max_positions and prefix. Received: max_positions="
            f"{max_positions}, {'no' if prefix is None else 'a'} prefix"
        )
    if max_positions is None:
        return None
    if not is_of_kind(max_positions, int) or max_positions < 1:
        raise ValueError(
            "max_positions must be an int of at least 1."
            f" Received: max_positions={max_positions!r}"
        )
    return max_positions if max_positions < max_length else None


def _check_cache(cache, max_lengths, beam_size):
    """Every tensor of the cache has one row for each hypothesis."""
    if max_lengths.shape[0] is None:
        return
    num_rows = max_lengths.shape[0] * beam_size
    for tensor in keras.tree.flatten(cache):
        if tensor.shape[0] not in (None, num_rows):
            raise ValueError(
                f"Tensors of the cache must have {num_rows} rows, batch times"
                " beam_size. Received: a tensor of shape"
                f" {tuple(tensor.shape)}"
            )


def _float32_logits(logits):
    """Logits [N, V] of any float dtype -> float32, if V is known."""
    if len(logits.shape) != 2 or logits.shape[1] is None:
        raise ValueError(
            "step must return logits [N, V] with a known V."
            f" Received: logits.shape={tuple(logits.shape)}"
        )
    return ops.cast(logits, "float32")


def _int32_ids(ids):
    """Integers of any size as int32; -1 for those that int32 has not."""
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"prefix must be integers. Received: a prefix of dtype {dtype}"
        )
    if dtype in ("uint32", "int64", "uint64"):
        ids = ops.cast(ids, "int64")
        ids = ops.where((ids >= 0) & (ids < 2**31), ids, -1)
    return ops.cast(ids, "int32")


def _pad_prefix(prefix, max_length, beam_size):
    """Pads to the token buffers and repeats: [B, P] -> [B * W, T], or None."""
    if prefix is None:
        return None
    _check_max_length(max_length)
    prefix = ops.convert_to_tensor(prefix)
    if len(prefix.shape) != 2 or (prefix.shape[1] or 0) > max_length:
        raise ValueError(
            "prefix must be [B, P] with P at most max_length."
            f" Received: prefix.shape={tuple(prefix.shape)},"
            f" max_length={max_length}"
        )
    prefix = _int32_ids(prefix)
    free = ops.zeros_like(prefix[:, :1])  # [B, 1]
    free = free + ops.zeros((max_length,), "int32")  # [B, 1] -> [B, T]
    padded = ops.concatenate([prefix, free], axis=1)[:, :max_length]
    return ops.repeat(padded, beam_size, axis=0)
