"""A loop over rows that end at different positions.

The rows of a batch are independent of each other. A row that is done still
costs as much as the others, so done rows can leave the loop. They leave
together once they are a quarter of the rows, because making the batch smaller
copies the state and the cache of the remaining rows.
"""

import typing
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.base.backend import Tensor

Nest: typing.TypeAlias = typing.Any  # of tensors
State: typing.TypeAlias = typing.Any  # a nest with the attribute `done`
Body: typing.TypeAlias = Callable[[State, Nest], tuple[State, Nest]]
Pick: typing.TypeAlias = Callable[[Nest, typing.Any], Nest]

LEAVING = 0.25  # done rows leave when they are this part of the rows


def pick_rows(nest: Nest, rows: typing.Any) -> Nest:
    """Picks rows, int32 `[b]`, from tensors `[B, ...]`; leaves scalars alone.

    >>> pick_rows((ops.arange(3), ops.array(7)), [2, 0])[0].numpy()
    array([2, 0], dtype=int32)
    """

    def pick(tensor: Tensor) -> Tensor:
        return ops.take(tensor, rows, axis=0) if len(tensor.shape) else tensor

    return keras.tree.map_structure(pick, nest)


def run(
    make_body: Callable[[State], Body],
    state: State,
    cache: Nest,
    *,
    max_steps: int | None = None,
    pick: Pick | None = None,
) -> State:
    """Repeats a step until all rows are done; returns the state of all rows.

    Args:
        make_body: Given a state, returns the step for its rows: a function of
            state and cache that returns both. Anything that `make_body` itself
            computes is computed once for many steps.
        state: A nest of tensors `[B, ...]` and scalars, such as a `NamedTuple`,
            with the attribute `done`, bool `[B]`. A step must not change rows
            that are done.
        cache: Further data of the rows for the step; it is not returned.
        max_steps: Maximum number of steps, None for no limit. Ignored with
            `pick`.
        pick: A function of the cache and of row indices, int32 `[b]`, that
            returns the cache of these rows. With it, done rows leave, which
            changes shapes: XLA and TFLite do not support this, and in a graph B
            must not be static. With None, done rows stay.
    """
    if pick is None:
        state, _ = ops.while_loop(
            lambda state, cache: ~ops.all(state.done),
            make_body(state),
            (state, cache),
            maximum_iterations=max_steps,
        )
        return state

    def few_are_done(state: State, cache: Nest) -> Tensor:
        return ops.mean(ops.cast(state.done, "float32")) < LEAVING

    def until_some_leave(
        ended: State, places: Tensor, state: State, cache: Nest
    ) -> tuple[State, Tensor, State, Nest]:
        state, cache = ops.while_loop(
            few_are_done, make_body(state), (state, cache)
        )
        ended = _write_rows(ended, places, state)
        rows = ops.nonzero(~state.done)[0]
        places, state = pick_rows((places, state), rows)
        return ended, places, state, pick(cache, rows)

    number = ops.shape(state.done)[0]
    ended, *_ = ops.while_loop(
        lambda ended, places, state, cache: ops.shape(places)[0] > 0,
        until_some_leave,
        (state, ops.arange(number, dtype="int32"), state, cache),
    )
    return ended


def _write_rows(nest: Nest, places: Tensor, rows: Nest) -> Nest:
    """Writes rows `[b, ...]` to `places`, indices `[b]`; replaces scalars."""

    def write(old: Tensor, new: Tensor) -> Tensor:
        if not len(old.shape):
            return new
        return ops.scatter_update(old, places[:, None], new)

    return keras.tree.map_structure(write, nest, rows)
