"""Compiled programs of inference, of one kind for each backend.

TensorFlow makes a graph, which serves all lengths, or which XLA compiles for
each length. JAX compiles for each shape.
"""

import functools
import typing
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_transformer.base.backend import ON_TENSORFLOW
from keras_transformer.base.fields import unhandled
from keras_transformer.translation.inference import Inference

Nest: typing.TypeAlias = typing.Any  # of tensors, arrays or shapes


class Program(typing.NamedTuple):
    """The key of a program: what it computes."""

    kind: Callable[..., Nest]  # a method of `Inference`
    # The longest source that the program has room for; None if `shapes` tell
    # it, or if the program needs no room.
    room: int | None
    # The shape of each array that it takes, None for sizes that may change.
    shapes: Nest
    # The other arguments by name, which are constants of the program.
    options: tuple[tuple[str, typing.Any], ...]


def shape_of(array: np.ndarray, jit_compile: bool) -> tuple[int | None, ...]:
    """Makes the shape in `Program.shapes` for rows `[B, ...]` or ids `[C]`."""
    if array.ndim == 1 or not ON_TENSORFLOW:
        return array.shape
    # XLA compiles one graph for each number of rows, so B may change.
    return None, *(n if jit_compile else None for n in array.shape[1:])


def make_program(
    program: Program,
    inference: Inference,
    arrays: Sequence[Nest],
    jit_compile: bool,
) -> Callable[..., Nest]:
    """Compiles a function of arrays like `arrays`, which takes seconds.

    The function returns the result of `program.kind` as NumPy arrays. Each call
    uses the current weights of the `Inference`. Threads may share it.
    """
    if program.room is not None:
        inference = inference.for_sources_up_to(program.room)
    method = functools.partial(program.kind, inference, **dict(program.options))
    if ON_TENSORFLOW:
        return _make_graph(method, arrays, jit_compile)
    if keras.backend.backend() == "jax":
        return _make_jax_program(method, inference, arrays)
    raise unhandled(backend=keras.backend.backend())


def _make_graph(
    method: Callable[..., Nest], arrays: Sequence[Nest], jit_compile: bool
) -> Callable[..., Nest]:
    """Traces a method as a TensorFlow graph."""
    import tensorflow as tf

    # Concrete at once, since TensorFlow warns about functions that are traced
    # for many shapes, as XLA needs. Without default values, since with them
    # every call tries two signatures.
    graph = tf.function(
        lambda *flat: method(*keras.tree.pack_sequence_as(arrays, flat)),
        input_signature=[
            tf.TensorSpec(shape_of(array, jit_compile), tf.int32)
            for array in keras.tree.flatten(arrays)
        ],
        jit_compile=jit_compile,
        autograph=False,  # it would take most of the tracing time
    ).get_concrete_function()
    return functools.partial(_run_graph, graph)


def _run_graph(graph: Callable[..., Nest], *arrays: Nest) -> Nest:
    """Runs a graph on arrays; returns NumPy arrays."""
    import tensorflow as tf

    result = graph(*map(tf.constant, keras.tree.flatten(arrays)))
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)


def _make_jax_program(
    method: Callable[..., Nest], inference: Inference, arrays: Sequence[Nest]
) -> Callable[..., Nest]:
    """Compiles a method with JAX.

    Weights are arguments, so that validation compiles once in a training run.
    """
    import jax

    def values():
        return [variable.value for variable in variables_of(inference)]

    program = lower(method, inference, values(), arrays).compile()

    def run(*arrays: Nest) -> Nest:
        return jax.tree.map(np.asarray, program(values(), arrays))

    return run


def variables_of(inference: Inference) -> list[keras.Variable]:
    """Returns the variables whose values are arguments of a JAX program."""
    return [v for model in inference.models for v in model.variables]


def lower(
    method: Callable[..., Nest],
    inference: Inference,
    values: Sequence[typing.Any],
    arrays: Sequence[Nest],
) -> typing.Any:
    """Lowers a method to a `jax.stages.Lowered` for values and arrays.

    `values` are those of `variables_of`, and `arrays` are int32. Both may also
    be `jax.ShapeDtypeStruct`s.
    """
    import jax

    variables = variables_of(inference)

    def run(values: Sequence[typing.Any], arrays: Sequence[Nest]) -> Nest:
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return method(*arrays)

    return jax.jit(run).lower(values, tuple(arrays))
