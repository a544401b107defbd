"""Functions for Keras backends: tensors, precision, order, gradients."""

import contextlib
import functools
import sys
import types
import typing
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.base.refusals import expect

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf

EXACT_FLOATS = 2**24  # float32 represents every smaller integer exactly
Tensor: typing.TypeAlias = typing.Any  # of the Keras backend, or of NumPy
Shape: typing.TypeAlias = tuple[int | None, ...]


def precise_dtype(dtype: typing.Any) -> str:
    """Returns the dtype for values that half precision cannot hold.

    >>> precise_dtype("bfloat16"), precise_dtype("float64")
    ('float32', 'float64')
    """
    is_double = keras.backend.standardize_dtype(dtype) == "float64"
    return "float64" if is_double else "float32"


def integer_ids(ids: Tensor, name: str) -> Tensor:
    """Converts ids to int32, or to int64 if their dtype may exceed int32.

    Raises ValueError if their dtype is not an integer, or if rows are ragged.
    """
    ids = dense(ids, name)
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" not in dtype:
        why = ""
        if dtype in ("float16", "bfloat16"):
            why = (
                ": floats of half precision cannot tell ids above 256 apart."
                " Begin a Sequential with keras.Input((None,), dtype='int32'),"
                " give a model inside a model autocast=False"
            )
        raise ValueError(
            f"{name} must be integers{why}. Received: {name} of dtype {dtype}"
        )
    is_large = dtype in ("uint32", "int64", "uint64")
    return ops.cast(ids, "int64" if is_large else "int32")


def whole_ids(ids: Tensor, name: str) -> Tensor:
    """Converts ids as `integer_ids` does, but also float32 and float64.

    Keras makes ids floats where it knows only a shape: when it builds a model
    that it loads, or for the first batch under a strategy. A number that is not
    a whole number below 2**24, such as 2.5, becomes -1.

    >>> whole_ids(ops.array([7.0, 2.5, 1e9]), "ids").numpy().tolist()
    [7, -1, -1]
    """
    ids = dense(ids, name)
    if keras.backend.standardize_dtype(ids.dtype) in ("float32", "float64"):
        is_id = (ops.floor(ids) == ids) & (ops.abs(ids) < EXACT_FLOATS)
        ids = ops.cast(ops.where(is_id, ids, -1), "int32")
    return integer_ids(ids, name)


def dense(values: typing.Any, name: str) -> Tensor:
    """Converts values to a tensor. Raises ValueError if rows are ragged."""
    check_dense(values, name)
    return ops.convert_to_tensor(values)


def check_dense(values: typing.Any, name: str) -> None:
    """Raises ValueError if the rows of values are ragged."""
    # Symbolic inputs have an attribute for it.
    is_ragged = getattr(values, "ragged", False) or (
        ON_TENSORFLOW and isinstance(values, tf.RaggedTensor)
    )
    expect(
        not is_ragged,
        f"{name} padded to one length with 0, as .to_tensor() does",
        "a ragged tensor",
    )


def is_tracing(values: typing.Any) -> bool:
    """Tells whether operations on the values are traced into a graph."""
    if ON_TENSORFLOW:
        return not tf.executing_eagerly()
    leaves = keras.tree.flatten(values)
    if keras.backend.backend() != "jax":  # torch
        devices = [getattr(value, "device", None) for value in leaves]
        return any(getattr(d, "type", "") == "meta" for d in devices)
    import jax

    return any(isinstance(value, jax.core.Tracer) for value in leaves)


def num_rows(x: Tensor) -> int:
    """Returns the size of the first axis, for a reshape; -1 if unknown.

    JAX knows every size, and cannot infer one if another is 0.
    """
    return -1 if x.shape[0] is None else x.shape[0]


def after(*tensors: Tensor) -> contextlib.AbstractContextManager[None]:
    """Makes the operations of its block wait for the tensors.

    When several operations become ready together, TensorFlow's executor runs
    one and queues the other expensive ones in its thread pool, where they may
    wait until a thread is idle. On other backends, which order operations
    themselves, the context does nothing.
    """
    if ON_TENSORFLOW:
        return tf.control_dependencies(tensors)
    return contextlib.nullcontext()


def global_norm(tensors: list[Tensor]) -> Tensor:
    """Computes the Euclidean norm of all numbers in several tensors."""
    if ON_TENSORFLOW:
        return tf.linalg.global_norm(tensors)  # one operation for each
    return ops.sqrt(sum(ops.sum(ops.square(x)) for x in tensors))


def global_mean(total: Tensor, count: Tensor) -> Tensor:
    """Divides total by count, or returns 0 if count is 0.

    In a replica of `tf.distribute`, returns its share of the mean. Keras adds
    up the gradients of the replicas, and shows the mean of their losses times
    the number of replicas. So the gradient is that of the replica's total over
    the count of all replicas, and the value is the mean over all replicas,
    divided by their number.

    The exchange between replicas lets the next one call the model, which drops
    the losses that layers have added in this one before Keras reads them. So
    ValueError is raised if there are such losses.
    """
    mean = ops.divide_no_nan(total, count)
    if not ON_TENSORFLOW:
        return mean
    number = tf.distribute.get_strategy().num_replicas_in_sync
    replica = tf.distribute.get_replica_context()
    if number == 1 or replica is None:
        return mean
    model = running("compute_loss").get("self")
    weights = getattr(model, "trainable_weights", ())
    # Keras computes the losses of regularizers again, from the weights.
    of_weights = [w for w in weights if w.regularizer is not None]
    expect(
        len(getattr(model, "losses", ())) <= len(of_weights),
        "no add_loss and no activity_regularizer beside this loss on several"
        " replicas: use a loss of Keras",
        f"losses that the layers of {getattr(model, 'name', '')} add",
    )
    sums = tf.stop_gradient(tf.stack([total, count]))
    totals, counts = tf.unstack(replica.all_reduce("SUM", sums))
    share = ops.divide_no_nan(total, counts)
    value = ops.divide_no_nan(totals, counts) / number
    return share + tf.stop_gradient(value - share)


def running(*names: str) -> dict[str, typing.Any]:
    """Returns the local variables of the innermost running method so named.

    Only methods of Keras models are found. Returns {} if none is running. Keras
    tells a loss neither its model nor where its sample weights come from.
    """
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        is_model = isinstance(frame.f_locals.get("self"), keras.Model)
        if frame.f_code.co_name in names and is_model:
            return frame.f_locals
        frame = frame.f_back
    return {}


def seed_variables(model: typing.Any) -> list[keras.Variable]:
    """Returns the states of a model's random generators, each of shape `[2]`.

    Keras lists them in `variables`, not in `weights`, and does not save them.
    """
    weights = {id(variable) for variable in model.weights}
    return [v for v in model.variables if id(v) not in weights]


def with_gradient(function: Callable) -> Callable:
    """Applies `keras.ops.custom_gradient` alike on every backend.

    `function` takes tensors. It returns a value and a function that maps the
    gradient of the value to the gradients of the tensors. In Keras itself, the
    arguments of that second function depend on the backend.

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
