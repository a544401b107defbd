"""Equality up to rounding, for numbers that are computed in two ways.

Another batch, shape, thread count, compiler, device, number of replicas or CPU
adds the terms of a sum in another order. Two float32 sums of n terms differ by
at most n * eps * sum(|terms|), with eps = 2**-24 (Higham 2002, sec. 4.2). The
models of tests sum fewer than 150 terms at once: 150 * 2**-24 < 1e-5. The same
number is the absolute floor, for results near 0 of terms near 1, such as the
log-probability of a sure token.
"""

import re

import numpy as np

TOLERANCE = 1e-5
_FRACTIONS = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def assert_close(found, expected, where="result"):
    """Checks that numbers are equal up to rounding, and the rest is equal.

    Ids, texts and structure must be equal. Fractions in a text are numbers.
    """

    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, value in expected.items():
            assert_close(found[key], value, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{where}[{i}]")
    elif isinstance(expected, str):
        assert _FRACTIONS.sub("x", found) == _FRACTIONS.sub("x", expected)
        numbers = [
            np.array(_FRACTIONS.findall(text), float)
            for text in (found, expected)
        ]
        assert_close(*numbers, where)
    elif expected is None:
        assert found is None, where
    else:
        one, other = np.asarray(found), np.asarray(expected)
        assert one.shape == other.shape, where
        if other.dtype.kind == "f":
            np.testing.assert_allclose(
                one, other, rtol=TOLERANCE, atol=TOLERANCE, err_msg=where
            )
        else:
            np.testing.assert_array_equal(one, other, where)
