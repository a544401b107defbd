"""A plugin of pytest: each product of matrices rounds as on another CPU.

`make test-cpus ROWS=rounding` loads it. Kernels sum in an order that depends on
the CPU, the shape and the row. Here each number of a product gets an error of
up to two units in its last place, which depends on the shape and the position
alone: what is computed twice in one way stays equal bit by bit, and a test that
wants more than the docs promise (docs/equality.md) fails on every machine.
"""

import keras
import numpy as np

_product = keras.ops.matmul
calls = 0


def _size_of(x):
    size = 1
    for n in keras.ops.shape(x):
        size = size * n
    return size


def matmul(x1, x2):
    global calls
    y = _product(x1, x2)
    dtype = keras.backend.standardize_dtype(y.dtype)
    if dtype not in ("float32", "float64") or isinstance(y, keras.KerasTensor):
        return y
    calls += 1
    size = _size_of(y)
    units = (keras.ops.arange(size, dtype="int32") + size) * 7 % 5 - 2
    errors = keras.ops.cast(units, dtype) * float(np.finfo(dtype).eps)
    return y * (1 + keras.ops.reshape(errors, keras.ops.shape(y)))


keras.ops.matmul = matmul


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"rounding: {calls} products traced or run")
