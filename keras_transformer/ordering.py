"""The order of operations that do not need each other's results."""

import contextlib
import typing

import keras

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf


def after(*tensors: typing.Any) -> contextlib.AbstractContextManager[None]:
    """A context, the operations of which wait until the tensors are computed.

    Of operations that become ready together, TensorFlow's executor goes on with
    one and puts the other expensive ones into the queue of its thread pool,
    where they may stay until a thread has nothing else to do. Other backends
    order operations themselves: the context does nothing there.
    """
    if ON_TENSORFLOW:
        return tf.control_dependencies(tensors)
    return contextlib.nullcontext()
