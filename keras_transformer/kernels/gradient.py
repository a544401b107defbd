"""Functions with an explicit gradient."""

import functools
from collections.abc import Callable

from keras import ops


def with_gradient(function: Callable) -> Callable:
    """`keras.ops.custom_gradient` with a gradient of one argument.

    How Keras passes the upstream gradient depends on its backend.

    Args:
        function: Function of tensors. It returns its value and a function from
            the gradient of the value to the gradients of the tensors.

    >>> square = with_gradient(lambda x: (x * x, lambda up: 2 * x * up))
    >>> float(square(ops.array(3.0)))
    9.0
    """

    @ops.custom_gradient
    @functools.wraps(function)
    def wrapped(*tensors):
        value, gradient = function(*tensors)

        def backward(*args, upstream=None):
            return gradient(args[-1] if upstream is None else upstream)

        return value, backward

    return wrapped
