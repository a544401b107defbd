"""A pytest plugin: matrix products are rounded as on another CPU.

`make test-cpus ROWS=rounding` loads it. Kernels sum in an order that depends on
the CPU, the shape and the row. Here each number of a product gets an error of
up to two units in its last place, which depends only on the shape and the
position. The same computation still gives equal bits, and a test that needs
more than docs/equality.md promises fails on every machine.
"""

import collections

import numpy as np

found = collections.Counter()


def pytest_sessionstart():
    """Replaces `matmul`, after conftest.py has set TensorFlow's variables."""
    import keras
    from keras import ops

    product = ops.matmul

    def matmul(x1, x2):
        y = product(x1, x2)
        dtype = keras.backend.standardize_dtype(y.dtype)
        is_symbolic = keras.utils.is_keras_tensor(y)
        if is_symbolic or dtype not in ("float32", "float64"):
            return y
        found["products"] += 1
        shape, size = ops.shape(y), 1
        for n in shape:
            size = size * n
        units = (ops.arange(size, dtype="int32") + size) * 37 % 101 % 5 - 2
        errors = ops.cast(units, dtype) * float(np.finfo(dtype).eps)
        return y * (1 + ops.reshape(errors, shape))

    ops.matmul = matmul


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"rounding: {dict(found)} traced or run")
