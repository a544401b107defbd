"""The public search functions: they check arguments and run the loop."""

import functools

import keras
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.base.fields import check_positive
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import row_loop
from keras_transformer.decoding.beam import gather_nest, search_beams
from keras_transformer.decoding.greedy import (
    Choose,
    choose_best,
    choose_sample,
    follow_rows,
)
from keras_transformer.decoding.rules import (
    MAX_DRAW,
    UNCONSTRAINED,
    UNFINISHED,
    Cache,
    Constraints,
    Reorder,
    SearchResult,
    Step,
)


def search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    config: DecodingConfig,
    *,
    max_length: int,
    constraints: Constraints = UNCONSTRAINED,
    reorder: Reorder | None = None,
    num_best: int | None = None,
    max_steps: int | None = None,
    pick: row_loop.Pick | None = None,
) -> SearchResult:
    """Searches, or samples, by the rules of a `DecodingConfig`.

    Works as `sample` with `sampling`, as `greedy_search` with a beam size of 1
    and no terms, and as `beam_search` otherwise.

    Raises ValueError if an argument is outside its range, shapes do not fit, or
    there are terms but `stopping` is not "exact" or `sampling` is set.

    Args:
        step: The function that `keras_transformer.decoding` describes, with
            N = B * beam_size. In sampling N = B, as each sample is a row.
        cache: Nest of tensors `[N, ...]` for position 0.
        max_lengths: int32 `[B]`, the maximum length of each output in tokens,
            EOS included. Values above `max_length` are reduced to it.
        config: The rules. `extra_length` and `max_output_length` are ignored:
            `max_lengths` replaces them.
        max_length: T, the size of the token buffers.
        constraints: The `Constraints` of single sentences.
        reorder: A function of the cache and of parents, int32 `[B, W]` in
            [0, W), that returns the cache of the hypotheses that continue these
            parents. By default it picks the rows of every tensor.
        num_best: Number of hypotheses to return, by default W. The fewer, the
            earlier a search with `stopping="exact"` ends.
        max_steps: Maximum number of decoding steps, by default T. It also
            limits the size of the token buffers. Sentences whose search has not
            ended by then have the length `UNFINISHED`; the results of the
            others do not change.
        pick: A function of the cache and of sentence indices, int32 `[b]`, that
            returns the cache of these sentences. With it, sentences leave the
            batch when their searches end; see `row_loop.run`. By default they
            stay. It cannot be combined with `max_steps`.
    """
    beam_size = 1 if config.sampling else config.beam_size
    num_best = beam_size if num_best is None else num_best
    check_positive(num_best=num_best, max_length=max_length)
    expect(
        num_best <= beam_size,
        "num_best of at most beam_size",
        f"{num_best=}, {beam_size=}",
    )
    expect(
        pick is None or max_steps is None,
        "no max_steps with pick",
        f"{max_steps=}",
    )
    size = max_length
    if max_steps is not None:
        check_positive(max_steps=max_steps)
        size = min(max_steps, max_length)
    max_lengths = ops.convert_to_tensor(max_lengths, dtype="int32")
    expect(
        len(max_lengths.shape) == 1,
        "max_lengths [B], a number for each sentence",
        f"max_lengths.shape={tuple(max_lengths.shape)}",
    )
    max_lengths = ops.minimum(max_lengths, max_length)
    if reorder is None:
        _check_cache(cache, max_lengths, beam_size)
    constraints = constraints.padded(max_length)
    is_exact = not config.sampling and config.stopping == "exact"
    expect(
        is_exact or not constraints.has_terms,
        'a search with stopping="exact" for terms',
        f"sampling={config.sampling}, stopping={config.stopping!r}",
    )
    run = functools.partial(
        row_loop.run, max_steps=size if size < max_length else None, pick=pick
    )
    if beam_size > 1 or constraints.has_terms:
        result, done = search_beams(
            step,
            cache,
            max_lengths,
            config,
            constraints,
            size,
            reorder or gather_nest,
            num_best,
            run,
        )
    else:
        if config.sampling:
            constraints.check_draws(size)
        choose: Choose = choose_sample if config.sampling else choose_best
        result, done = follow_rows(
            step, cache, max_lengths, config, constraints, size, choose, run
        )
    if size == max_length:
        return result
    lengths = ops.where(done[:, None], result.lengths, UNFINISHED)
    return result._replace(lengths=lengths)


def greedy_search(
    step: Step,
    cache: Cache,
    max_lengths: Tensor,
    *,
    max_length: int,
    length_penalty: float,
    min_length: int = DecodingConfig.min_length,
    constraints: Constraints = UNCONSTRAINED,
) -> SearchResult:
    """Chooses the most probable token at each position.

    On a tie it chooses the lowest id.

    Args:
        step, cache, max_lengths, max_length, constraints: As in `search`,
            N = B.
        length_penalty, min_length: As in `DecodingConfig`.

    Returns, Raises: As `search`, with W = 1.

    >>> p = ops.array([[.1, .1, .2, .6], [.1, .1, .7, .1]])
    >>> logits = ops.log(p)[:, None]
    >>> greedy_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), ops.array([2]), max_length=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2]]], dtype=int32)
    """
    config = DecodingConfig(
        beam_size=1, length_penalty=length_penalty, min_length=min_length
    )
    return search(
        step,
        cache,
        max_lengths,
        config,
        max_length=max_length,
        constraints=constraints,
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
    constraints: Constraints = UNCONSTRAINED,
    reorder: Reorder | None = None,
) -> SearchResult:
    """Keeps the W most probable live hypotheses and the W best finished ones.

    At each position the search considers the 2W most probable continuations of
    the W live hypotheses. Those that end with EOS compete, by score, for the W
    finished places. The W most probable of the others stay live.

    The search of a sentence ends at its length limit, or as soon as no live
    hypothesis can still beat the worst of W finished ones, even if all its
    further tokens had probability 1 and it had the maximum length. So the
    result is the same as that of a search up to the limit. If fewer than W have
    finished at the limit, live ones, by score, follow the finished ones.

    With `beam_size=1` it is `greedy_search`, which ends where EOS is most
    probable.

    Args:
        step, cache, max_lengths, max_length, constraints, reorder: As in
            `search`.
        beam_size, length_penalty, min_length: As in `DecodingConfig`.

    Returns, Raises: As `search`, with W = beam_size.

    >>> p = ops.array([[[.1, .1, .2, .6]] * 2, [[.1, .1, .7, .1]] * 2])
    >>> logits = ops.log(p)
    >>> beam_search(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), ops.array([2]), max_length=2, beam_size=2, length_penalty=0.0,
    ... ).ids.numpy()
    array([[[3, 2],
            [2, 0]]], dtype=int32)
    """
    config = DecodingConfig(
        beam_size=beam_size,
        length_penalty=length_penalty,
        min_length=min_length,
        stopping="exact",
    )
    return search(
        step,
        cache,
        max_lengths,
        config,
        max_length=max_length,
        constraints=constraints,
        reorder=reorder,
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
    epsilon: float = DecodingConfig.epsilon,
    min_length: int = DecodingConfig.min_length,
    constraints: Constraints = UNCONSTRAINED,
) -> SearchResult:
    """Samples each token from the model's distribution.

    Logits are divided by `temperature`. Then three rules drop tokens, but never
    the most probable one: `top_k` keeps the k most probable tokens; `top_p`
    keeps the smallest set of the most probable of these whose probability
    reaches p; `epsilon` drops tokens with a smaller probability. The token is
    sampled from the rest. The returned log-probabilities are the model's own,
    unaffected by all this.

    A sample depends on the seed and on the sentence's position in the batch,
    not on other sentences. Another backend gives other samples for the same
    seed. To pass the random numbers instead, call `search` with
    `Constraints.draws`.

    Args:
        step, cache, max_lengths, max_length, constraints: As in `search`,
            N = B.
        length_penalty, temperature, top_k, top_p, epsilon, min_length: As in
            `DecodingConfig`; `top_k=0` and `top_p=1` sample from all tokens.
        seed: An int, which gives the same samples in every call, or a
            `keras.random.SeedGenerator`.

    Returns, Raises: As `search`, with W = 1.

    >>> p = ops.array([[.1, .1, .2, .6], [.1, .1, .7, .1]])
    >>> logits = ops.log(p)[:, None]
    >>> sample(
    ...     lambda ids, cache, index: (ops.take(logits, index, axis=0), cache),
    ...     (), ops.array([2]), max_length=2, length_penalty=0.0,
    ...     temperature=1.0, top_k=1, top_p=1.0, seed=0,
    ... ).ids.numpy()
    array([[[3, 2]]], dtype=int32)
    """
    config = DecodingConfig(
        sampling=True,
        length_penalty=length_penalty,
        min_length=min_length,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        epsilon=epsilon,
    )
    shape = ops.shape(max_lengths)[0], max_length
    draws = keras.random.randint(shape, 0, MAX_DRAW, "int32", seed)
    return search(
        step,
        cache,
        max_lengths,
        config,
        max_length=max_length,
        constraints=constraints._replace(draws=draws),
    )


def _check_cache(cache: Cache, max_lengths: Tensor, beam_size: int) -> None:
    if max_lengths.shape[0] is None:
        return
    num_rows = max_lengths.shape[0] * beam_size
    for tensor in keras.tree.flatten(cache):
        expect(
            tensor.shape[0] in (None, num_rows),
            f"{num_rows} rows, batch times beam_size, in the cache",
            f"a tensor of shape {tuple(tensor.shape)}",
        )
