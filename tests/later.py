"""The rules by which `make test` leaves tests to `make test-all`.

The marker `slow` of a test, or of a value of its parameters, names the rule
that moves it: `@pytest.mark.slow("backend")`.
"""

import pytest

RULES = {
    "family": "a second family of models, on the path of the first",
    "format": "a second format, whose law the first one shows",
    "backend": "a second backend: XLA beside plain, JAX, another precision",
    "options": "a product of options whose pairs do not interact",
    "process": "a process of its own where a function suffices",
    "run": "a whole training or many trials whose parts are tested alone",
}


def later(rule, *values):
    """Marks the parameter values that a rule moves. A tuple is a row."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=pytest.mark.slow(rule),
        )
        for value in values
    ]


def check(items):
    """Raises UsageError if a moved test does not name a rule."""
    for item in items:
        for marker in item.iter_markers("slow"):
            rule = marker.args[0] if marker.args else None
            if rule not in RULES:
                raise pytest.UsageError(
                    f"{item.nodeid}: expected slow(RULE), RULE one of"
                    f" {', '.join(RULES)} (tests/later.py). Received: {rule}"
                )
