"""Markdown, with the tables and strikethrough of GitHub."""

import typing
from collections.abc import Iterator, Sequence

import regex

from keras_transformer.documents.markup import (
    entity_item,
    tagged_items,
)
from keras_transformer.documents.placeholders import PLACEHOLDER
from keras_transformer.documents.placement import (
    ALONE,
    CLOSE,
    OPEN,
)
from keras_transformer.documents.sentences import (
    Item,
    Sentence,
    Split,
    plain_items,
)

if typing.TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

FRONT_MATTER = regex.compile(
    r"\A---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$", regex.M | regex.S
)
# Signs that would be markup; one at the beginning, as of a heading or list.
SIGN = regex.compile(r"[\\`*\[\]<>|]|(?<!\w)_|_(?!\w)|~(?=~)")
FIRST_SIGN = regex.compile(r"\A(\d{0,9})([-+#.)])(?=\s)")


def read(text: str, split: Split) -> Iterator[str | Sentence]:
    """The pieces of a Markdown text. Code, HTML blocks and images stay.

    Args:
        text, split: As of every reader.
    """
    import markdown_it  # an extra

    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    parser.enable("strikethrough")
    parser.core.ruler.disable("inline")  # which `_Spans` does
    spans = _Spans(parser)
    front = FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    body = text[begin:]
    starts = [begin]
    # The parser knows the lines of other systems by these two signs.
    for line in regex.findall(r"[^\r\n]*(?:\r\n|\r|\n|\Z)", body):
        starts.append(starts[-1] + len(line))
    read_to = 0
    environment: dict = {}
    for token in parser.parse(body, environment):
        if token.type != "inline":
            continue
        offsets = _offsets(token, text, starts, read_to)
        if offsets:
            yield text[read_to : offsets[0]]
            items = spans.items(token.content, text, offsets, environment)
            yield from split(items, escape)
            read_to = offsets[-1]
    yield text[read_to:]


def escape(text: str) -> str:
    """Plain text as Markdown writes it."""
    parts, read = [], 0
    for match in PLACEHOLDER.finditer(text):
        parts += [SIGN.sub(r"\\\g<0>", text[read : match.start()])]
        parts += [match.group()]
        read = match.end()
    parts.append(SIGN.sub(r"\\\g<0>", text[read:]))
    return FIRST_SIGN.sub(r"\1\\\2", "".join(parts))


def _offsets(token, text, starts, least):
    """Where each character of a token's content is in the text, and its end.

    None if the content is not written so in the text, such as tabs that are
    indentation in part.
    """
    offsets = []
    for i, line in enumerate(token.content.split("\n")):
        number = token.map[0] + i
        if number + 1 >= len(starts):
            return None
        begin = text.find(line, max(least, starts[number]), starts[number + 1])
        if begin < 0:
            return None
        if i:
            offsets.append(least)  # of the line end
        least = begin + len(line)
        offsets += range(begin, least)
    return [*offsets, least]


class _Spans:
    """Finds where the markup of a paragraph is, which the parser does not say.

    Each of its rules is wrapped: it notes which characters it took.
    """

    def __init__(self, parser):
        self._parser = parser
        self._found = []  # (begin, end, rule, what the rule made)
        for name in parser.inline.ruler.get_active_rules():
            rules = parser.inline.ruler
            rule = next(r.fn for r in rules.__rules__ if r.name == name)
            rules.at(name, self._noting(name, rule))

    def _noting(self, name, rule):
        def noting_rule(state: "StateInline", silent: bool) -> bool:
            begin, noted, made = state.pos, len(self._found), None
            taken = rule(state, silent)
            if taken and not silent:
                if name == "link":
                    label_end = self._parser.helpers.parseLinkLabel
                    made = label_end(state, begin, True)
                elif name == "image":
                    del self._found[noted:]  # the rules of its text
                elif name in ("emphasis", "strikethrough"):
                    made = _tokens_between(state, begin)
                elif name == "backticks":
                    made = state.tokens and state.tokens[-1].type
                self._found.append((begin, state.pos, name, made))
            return taken

        return noting_rule

    def items(
        self, content: str, text: str, offsets: Sequence[int], environment: dict
    ) -> list[Item]:
        """The items of a paragraph."""
        self._found.clear()
        self._parser.inline.parse(content, self._parser, environment, [])
        codes = sorted(self._codes(content))
        items, read = [], 0

        def raw(begin: int, end: int) -> str:
            return text[offsets[begin] : offsets[end]]

        for begin, end, kind, name in [*codes, (len(content),) * 2 + ("", "")]:
            position = read
            for item in plain_items(content[read:begin]):
                stop = position + len(item.raw)
                items.append(item._replace(raw=raw(position, stop)))
                position = stop
            if kind == "escape":
                items.append(Item(raw(begin, end), content[begin + 1 : end]))
            elif kind == "entity":
                items.append(entity_item(raw(begin, end)))
            elif kind == "html_inline":
                found = tagged_items(raw(begin, end))
                alone = Item(raw(begin, end), "", ALONE)
                items.append(found[0] if len(found) == 1 else alone)
                if items[-1].text:
                    items[-1] = alone
            elif kind:
                items.append(Item(raw(begin, end), "", kind, name))
            read = end
        return items

    def _codes(self, content):
        """Yields begin, end, kind and name of all that is no plain text."""
        for begin, end, name, made in self._found:
            if name == "link":
                yield begin, begin + 1, OPEN, "link"
                yield made, end, CLOSE, "link"
            elif name in ("image", "autolink") or made == "code_inline":
                yield begin, end, ALONE, ""
            elif name == "escape":
                is_line_end = content[begin + 1] == "\n"
                yield begin, end, ALONE if is_line_end else "escape", ""
            elif name in ("entity", "html_inline"):
                yield begin, end, name, ""
            elif name in ("emphasis", "strikethrough"):
                yield from _emphasis(made)


def _tokens_between(state, begin):
    """Tokens of the signs that a rule took, with begin and end of each."""
    found, end = [], state.pos
    for token in reversed(state.tokens):
        if end == begin:
            break
        found.append((end - len(token.content), end, token))
        end -= len(token.content)
    return found


def _emphasis(signs):
    """Yields begin, end, kind and name of the signs that are emphasis.

    Two signs are strong emphasis: the inner one has its token.
    """
    for begin, end, token in signs:
        name, _, side = token.type.rpartition("_")
        if name == "strong":
            begin, end = (
                (begin - 1, end) if side == "open" else (begin, end + 1)
            )
        if name:
            yield begin, end, OPEN if side == "open" else CLOSE, name
