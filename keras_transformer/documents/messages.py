"""ICU messages: `{count, plural, one {# file} other {# files}}`.

Only the texts of their branches are translated. pyicumessageformat rejects
unbalanced braces and does not give the positions of branches.
"""

from collections.abc import Iterator

import regex

ARGUMENT = regex.compile(
    r"\{\s*+[\w.-]++\s*+,\s*+(?<kind>plural|selectordinal|select)\s*+,"
    r"(?:\s*+offset:\d++)?"
)
SELECTOR = regex.compile(r"\s*+(?:=\d++|[\w-]++)\s*+\{")
END = regex.compile(r"\s*+\}")
# A brace, or quoted text, in which ICU reads no braces: '{'.
BRACE = regex.compile(r"''|'[{}][^']*+'|[{}]")
DEEPEST = 5  # levels of nested messages

# Start and end of a message, start and end of each branch's text, and whether
# `#` is replaced by the number.
Message = tuple[int, int, list[tuple[int, int]], bool]


def find_messages(text: str) -> Iterator[Message]:
    """Yields the outermost ICU messages of a text.

    >>> list(find_messages("a {n, plural, other {# b}} c"))
    [(2, 26, [(21, 24)], True)]
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
            has_number = argument["kind"] != "select"
            yield argument.start(), read, branches, has_number


def _ends(text):
    """Maps the offset of each closed brace to that of its closing brace."""
    ends, opened = {}, []
    for match in BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            ends[opened.pop()] = match.start()
    return ends
