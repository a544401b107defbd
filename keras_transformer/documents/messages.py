"""Messages of ICU: `{count, plural, one {# file} other {# files}}`.

Only the texts of their branches are translated. pyicumessageformat refuses what
is not balanced and does not say where the texts of branches are.
"""

import typing
from collections.abc import Iterator

import regex

ARGUMENT = regex.compile(
    r"\{\s*+[\w.-]++\s*+,\s*+(?<kind>plural|selectordinal|select)\s*+,"
    r"(?:\s*+offset:\d++)?"
)
SELECTOR = regex.compile(r"\s*+(?:=\d++|[\w-]++)\s*+\{")
END = regex.compile(r"\s*+\}")
# A brace, or a text in which ICU reads none: '{'.
BRACE = regex.compile(r"''|'[{}][^']*+'|[{}]")
DEEPEST = 5  # messages in branches of messages


class Message(typing.NamedTuple):
    """A message in a text.

    Attributes:
        begin: Of the message.
        end: Of the message.
        branches: Begin and end of the text of each branch.
        has_number: Whether `#` stands for a number in its branches.
    """

    begin: int
    end: int
    branches: list[tuple[int, int]]
    has_number: bool


def find_messages(text: str) -> Iterator[Message]:
    """Yields the messages of a text that are not inside another one.

    >>> [m.branches for m in find_messages("a {n, plural, other {# b}} c")]
    [[(21, 24)]]
    """
    if not ARGUMENT.search(text):
        return
    ends = _ends(text)
    read = 0
    while argument := ARGUMENT.search(text, read):
        read = argument.end()
        branches = []
        while selector := SELECTOR.match(text, read):
            begin = selector.end()
            if begin - 1 not in ends:
                break
            branches.append((begin, ends[begin - 1]))
            read = ends[begin - 1] + 1
        end = END.match(text, read)
        if branches and end:
            read = end.end()
            kind = argument["kind"]
            yield Message(argument.start(), read, branches, kind != "select")


def _ends(text):
    """The index of the brace that closes each brace that is closed."""
    ends, opened = {}, []
    for match in BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            ends[opened.pop()] = match.start()
    return ends
