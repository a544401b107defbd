"""Errors of bad input: what was expected, and what was received."""

import re


class LostProcessError(RuntimeError):
    """A worker process has ended early."""


def expect(
    holds: object,
    expected: str,
    *received: object,
    where: object = "",
    error: type[Exception] = ValueError,
    **values: object,
) -> None:
    """Raises an error unless a condition holds.

    The arguments are computed even if the condition holds. Use `if` and `raise`
    where that is slow or fails, or where mypy must learn from the condition.

    Args:
        holds: The condition, true or false in the sense of `bool`.
        expected: What is required. The message puts "expected" before it.
        received: What was received, as texts such as f"{name=}".
        where: A file, perhaps with a line, or another place.
        error: The error's class.
        values: More received values, by name.

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
