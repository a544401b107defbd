"""Errors of bad input: what was expected, and what was received."""

import re


class LostProcessError(RuntimeError):
    """A process that worked for this one has ended early."""


def expect(
    holds: object,
    expected: str,
    *received: object,
    where: object = "",
    error: type[Exception] = ValueError,
    **values: object,
) -> None:
    """Raises an error unless a condition holds.

    Its arguments are computed whether it holds or not: `if` and `raise` remain
    where that costs time or fails, and where mypy learns from the condition.

    Args:
        holds: The condition, by its truth.
        expected: What it asks for: "expected" stands before it in the message.
        received: Texts; of a variable, f"{name=}".
        where: A file, perhaps with a line, or another place.
        error: The error's class.
        values: More of what was received, by name.

    >>> max_length = 1
    >>> expect(max_length >= 2, "a token and EOS", f"{max_length=}")
    Traceback (most recent call last):
    ValueError: expected a token and EOS. Received: max_length=1
    >>> expect(False, "two columns", 3, where="a.tsv, line 1")
    Traceback (most recent call last):
    ValueError: a.tsv, line 1: expected two columns. Received: 3
    """
    if holds:
        return
    place = f"{where}: " if where else ""
    shown = [*map(str, received), *(f"{k}={v!r}" for k, v in values.items())]
    text = ". Received: " * bool(shown) + ", ".join(shown)
    text = re.sub(r"\bself\.(?=\w+=)", "", text)
    raise error(f"{place}expected {expected}{text}")
