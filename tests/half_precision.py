"""Finds the tests that compute in half precision, by the names in their code.

A test has the marker `computes("bfloat16")` if one of its parameters, or a
literal in its code, names this dtype, as a policy, a flag or a dtype. Its code
is the function, its fixtures, and every function of tests/ that these call, but
no method, since a method may choose by a parameter. A test that makes a
half-precision policy without naming it fails. It needs the marker by hand if a
page or the product names the dtype.

`--without=bfloat16` leaves out the tests with the marker. `make test-cpus` uses
it where such products crash.
"""

import pathlib
import re
import types

import pytest

TESTS = pathlib.Path(__file__).parent
DTYPES = {
    "float16": re.compile(r"(?<!b)float16"),
    "bfloat16": re.compile("bfloat16"),
}


def mark(items):
    for item in items:
        texts = "\n".join(texts_of(item))
        for dtype, name in DTYPES.items():
            if name.search(texts):
                item.add_marker(pytest.mark.computes(dtype))


def of(item):
    """Returns the half-precision dtypes in which a test computes."""
    return {marker.args[0] for marker in item.iter_markers("computes")}


def texts_of(item):
    """Yields the literals that decide what a test does."""
    if not hasattr(item, "function"):  # a doctest
        return
    if hasattr(item, "callspec"):
        yield from strings_in(item.callspec.params)
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(found[-1].func for found in fixtures)]
    seen = set()
    while functions:
        function = functions.pop()
        if function in seen:
            continue
        seen.add(function)
        for code in codes_of(function.__code__):
            yield from strings_in(code.co_consts)
            for value in values_of(code, function.__globals__):
                if not isinstance(value, types.FunctionType):
                    yield from strings_in(value)
                elif is_of_tests(value.__code__.co_filename):
                    functions.append(value)


def strings_in(value, depth=4):
    """Yields the strings in a value down to a depth, as some are endless."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth:
        yield from strings_in((*value, *value.values()), depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for inner in value:
            yield from strings_in(inner, depth - 1)


def codes_of(code):
    """Yields the code of a function, and the code of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def values_of(code, names):
    """Yields the functions and constants that code uses, also from modules."""
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, types.ModuleType):
            if is_of_tests(getattr(value, "__file__", None) or ""):
                found = (getattr(value, n, None) for n in code.co_names)
                yield from filter(is_constant_or_function, found)
        elif is_constant_or_function(value):
            yield value


def is_constant_or_function(value):
    plain = str | tuple | list | dict | types.FunctionType
    return isinstance(value, plain)


def is_of_tests(path):
    return path != __file__ and pathlib.Path(path).is_relative_to(TESTS)
