"""How Keras and its backend work: tensors, precision, order, gradients."""

import contextlib
import functools
import typing
import warnings
from collections.abc import Callable

import keras
from keras import ops

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf

Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or NumPy's
Shape: typing.TypeAlias = tuple[int | None, ...]


def precise_dtype(dtype: typing.Any) -> str:
    """The dtype for values that half precision cannot hold.

    >>> precise_dtype("bfloat16"), precise_dtype("float64")
    ('float32', 'float64')
    """
    is_double = keras.backend.standardize_dtype(dtype) == "float64"
    return "float64" if is_double else "float32"


def integer_ids(ids: Tensor, name: str) -> Tensor:
    """Ids as int32, or as int64 if int32 is too small for their dtype."""
    ids = ops.convert_to_tensor(ids)
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"{name} must be integers: floats of half precision cannot tell ids"
            f" above 256 apart. Received: {name} of dtype {dtype}"
        )
    is_large = dtype in ("uint32", "int64", "uint64")
    return ops.cast(ids, "int64" if is_large else "int32")


def num_rows(x: Tensor) -> int:
    """The size of the first axis, for a reshape; -1 if it is unknown.

    JAX knows every size, and infers none beside 0.
    """
    return -1 if x.shape[0] is None else x.shape[0]


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


def global_norm(tensors: list[Tensor]) -> Tensor:
    """The norm of all numbers in several tensors, a scalar."""
    if ON_TENSORFLOW:
        return tf.linalg.global_norm(tensors)  # one operation for each
    return ops.sqrt(sum(ops.sum(ops.square(x)) for x in tensors))


def with_gradient(function: Callable) -> Callable:
    """`keras.ops.custom_gradient` with a gradient of one argument.

    The function of tensors returns its value and a function from the gradient
    of the value to the gradients of the tensors. How Keras passes the upstream
    gradient depends on its backend.

    >>> square = with_gradient(lambda x: (x * x, lambda up: 2 * x * up))
    >>> float(square(ops.array(3.0)))
    9.0
    """

    @ops.custom_gradient
    @functools.wraps(function)
    def wrapped(*tensors):
        value, gradient = function(*tensors)

        def backward(*args: Tensor, upstream: Tensor | None = None):
            return gradient(args[-1] if upstream is None else upstream)

        return value, backward

    return wrapped


class TracedLayer(keras.layers.Layer):
    """A layer whose `call` also runs on symbolic inputs.

    Keras would skip it wherever `compute_output_shape` suffices, and inputs of
    a wrong dtype would be refused only when the functional model is run.

    Its masks are arguments: it neither reads nor passes on Keras' masks.
    """

    def compute_mask(
        self, inputs: typing.Any, previous_mask: typing.Any = None
    ) -> None:
        if any(mask is not None for mask in keras.tree.flatten(previous_mask)):
            # Python shows a warning once if it has no more than this text.
            warnings.warn(
                "masks of Keras, such as Embedding(mask_zero=True) makes,"
                " are not used: pass masks as arguments, such as"
                " attention_mask=padding_mask(ids)",
                stacklevel=1,
            )

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
