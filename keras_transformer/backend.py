"""What depends on the backend of Keras: tensors, precision, order."""

import contextlib
import typing

import keras

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf

Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or NumPy's


def precise_dtype(dtype: typing.Any) -> str:
    """The dtype for what half precision cannot hold: float32, or float64.

    >>> precise_dtype("bfloat16"), precise_dtype("float64")
    ('float32', 'float64')
    """
    is_double = keras.backend.standardize_dtype(dtype) == "float64"
    return "float64" if is_double else "float32"


def after(*tensors: Tensor) -> contextlib.AbstractContextManager[None]:
    """A context, the operations of which wait until the tensors are computed.

    Of operations that become ready together, TensorFlow's executor goes on with
    one and puts the other expensive ones into the queue of its thread pool,
    where they may stay until a thread has nothing else to do. Other backends
    order operations themselves: the context does nothing there.
    """
    if ON_TENSORFLOW:
        return tf.control_dependencies(tensors)
    return contextlib.nullcontext()
