"""Parts that depend on the Keras backend: tensors, precision, order."""

import contextlib
import typing

import keras

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf

Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or NumPy's


def precise_dtype(dtype: typing.Any) -> str:
    """The dtype for values that half precision cannot hold.

    >>> precise_dtype("bfloat16"), precise_dtype("float64")
    ('float32', 'float64')
    """
    is_double = keras.backend.standardize_dtype(dtype) == "float64"
    return "float64" if is_double else "float32"


def after(*tensors: Tensor) -> contextlib.AbstractContextManager[None]:
    """A context whose operations wait until the tensors are computed.

    When several operations become ready together, TensorFlow's executor runs
    one and queues the other expensive ones in its thread pool, where they may
    wait until a thread is idle. Other backends order operations themselves: the
    context does nothing there.
    """
    if ON_TENSORFLOW:
        return tf.control_dependencies(tensors)
    return contextlib.nullcontext()
