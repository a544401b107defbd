"""Compiled programs of methods that take ids, one kind for each backend.

TensorFlow makes a graph, which serves all lengths or which XLA compiles for
each. JAX compiles for each shape.
"""

import threading
import types
import typing
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_transformer.backend import ON_TENSORFLOW
from keras_transformer.fields import unhandled


class Runner(typing.Protocol):
    """Runs methods of an `Inference` as compiled programs.

    A program takes seconds to make, at its first use. Threads may share a
    runner.

    Attributes:
        has_static_shapes: Whether no shape may change while a program runs.
        row_factor: A batch that is not full is padded to the rows of a full one
            divided by a power of this. A greater factor means fewer programs.
    """

    has_static_shapes: bool
    row_factor: int

    def __call__(
        self, method: Callable, *arrays: np.ndarray, **options: typing.Any
    ) -> typing.Any:
        """Calls a method of an `Inference`.

        Args:
            method: The method.
            *arrays: Its tensors, int32: rows `[B, T]`, whose size may change
                where shapes are free, or lists `[C]`, of few sizes.
            **options: Its other arguments, constants of the program.

        Returns:
            The result of the method, with NumPy arrays for tensors.
        """


def make_runner(jit_compile: bool) -> Runner:
    """The `Runner` of the Keras backend.

    Args:
        jit_compile: Whether XLA compiles TensorFlow's graphs.
    """
    if ON_TENSORFLOW:
        return _Graphs(jit_compile)
    if keras.backend.backend() == "jax":
        return _JaxPrograms()
    raise unhandled(backend=keras.backend.backend())


class _Graphs:
    """The `Runner` of TensorFlow.

    Without XLA, which compiles for every shape, one graph serves rows of all
    lengths.
    """

    row_factor = 2

    def __init__(self, jit_compile):
        self.has_static_shapes = jit_compile
        self._graphs = {}
        self._one_traces = threading.Lock()

    def __call__(self, method, *arrays, **options):
        import tensorflow as tf

        shapes = tuple(map(self._shape, arrays))
        room_for = method.__self__.max_source_length
        key = (method.__name__, room_for, shapes, tuple(options.items()))
        with self._one_traces:
            if key not in self._graphs:
                # Concrete at once: TensorFlow warns about a function that is
                # traced for many shapes, as XLA needs it. Without default
                # values: with them every call tries two signatures.
                self._graphs[key] = tf.function(
                    lambda *arrays: method(*arrays, **options),
                    input_signature=[
                        tf.TensorSpec(shape, tf.int32) for shape in shapes
                    ],
                    jit_compile=self.has_static_shapes,
                    autograph=False,  # it would take most of the tracing time
                ).get_concrete_function()
        result = self._graphs[key](*map(tf.constant, arrays))
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)

    def _shape(self, array):
        """The shape of a graph's argument, None where it may change."""
        if array.ndim == 1:
            return array.shape
        return None, array.shape[1] if self.has_static_shapes else None


class _JaxPrograms:
    """The `Runner` of JAX.

    The weights are arguments of a program, which therefore serves all values
    that they have: validation compiles once in a training.
    """

    has_static_shapes = True
    row_factor = 8  # a program takes seconds, rows of padding little

    def __init__(self):
        self._programs = {}
        self._one_compiles = threading.Lock()

    def __call__(self, method, *arrays, **options):
        import jax

        inference = method.__self__
        values = [variable.value for variable in variables_of(inference)]
        shapes = tuple(array.shape for array in arrays)
        key = (method.__name__, shapes, tuple(options.items()))
        with self._one_compiles:
            if key not in self._programs:
                lowered = lower(method, values, *arrays, **options)
                self._programs[key] = lowered.compile()
        result, next_seed = self._programs[key](values, *arrays)
        if inference.decoding.sampling:
            inference.seed.state.assign(next_seed)
        return jax.tree.map(np.asarray, result)


def variables_of(inference: typing.Any) -> list[keras.Variable]:
    """Variables of an `Inference` whose values a program of JAX takes."""
    return [*inference.model.variables, inference.seed.state]


def lower(
    method: types.MethodType,
    values: Sequence[typing.Any],
    *arrays: typing.Any,
    **options: typing.Any,
) -> typing.Any:
    """The program of JAX for a method, before it is compiled.

    Args:
        method: The method of an `Inference`.
        values: Values of `variables_of` it, or their `jax.ShapeDtypeStruct`.
        *arrays, **options: As for a `Runner`; likewise.

    Returns:
        A `jax.stages.Lowered`. It returns the result and the next seed.
    """
    import jax

    variables = variables_of(method.__self__)

    def run(values, *arrays):
        pairs = zip(variables, values, strict=True)
        with keras.StatelessScope(pairs) as scope:
            result = method(*arrays, **options)
        return result, scope.get_current_value(variables[-1])

    return jax.jit(run).lower(values, *arrays)
