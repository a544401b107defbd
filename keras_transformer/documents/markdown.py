"""Markdown, with the extensions of GitHub and of site generators.

markdown-it-py and its plugins find blocks and markup. Sentences are replaced in
the original text, because mdformat would reformat it.
"""

import functools
import string
import typing
from collections.abc import Container, Iterator, Sequence

import regex

from keras_transformer.documents.html import read as read_html
from keras_transformer.documents.html import tag_item
from keras_transformer.documents.items import (
    ALONE,
    CLOSE,
    NARROW,
    OPEN,
    Item,
    Split,
    plain_items,
)
from keras_transformer.documents.markup import entity_item, read_events
from keras_transformer.documents.pieces import Block, Label, Left
from keras_transformer.documents.placeholders import PLACEHOLDER

if typing.TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

FRONT_MATTER = regex.compile(
    r"\A\ufeff?(---|\+\+\+)[ \t]*\r?\n(?s:.*?)^(?:\1|\.\.\.)[ \t]*\r?$", regex.M
)
# Lines of MDX with imports and exports.
MODULE_LINE = regex.compile(
    r"\Aimport\s.*?[\"'][^\"'\n]++[\"'];?\s*+\Z"
    r"|\Aexport\s++(?:const|default|function|let)\b.*[={(]",
    regex.S,
)
# Codes at the beginning of a paragraph: a task, an alert.
FIRST_CODE = regex.compile(r"\[[ xX]\](?=\s)|\[![\w-]+\][+-]?(?=\s|\Z)")
# A code at the end of a paragraph: the attributes of a heading.
LAST_CODE = regex.compile(r"(?<!\\)\{[#.:][^{}\n]*+\}\s*+\Z")
WIKI_LINK = regex.compile(
    r"!?\[\[[^\[\]\n|]{1,300}+(?:\|[^\[\]\n]{1,300}+)?\]\]"
    r"|(?<![\w:]):[a-z0-9_+-]{2,30}+:(?![\w:])"
)
# TeX in brackets with one backslash, or two, one of which Markdown removes.
MATH = regex.compile(
    r"\\[(\[](?<tex>(?:[^\\]|\\\\(?![(\[])|\\[^\\()\[\]])++)\\[)\]]"
    r"|\\\\[(\[](?<tex>(?:[^\\]|\\(?!\\[()\[\]]))++)\\\\[)\]]"
)
PROSE = regex.compile(r"(?<!\p{L})\p{L}{2,20}+[\s,]++\p{L}{2}")
CITATION = regex.compile(r"\[-?@[^\[\]\n]{1,300}+\](?!\()")
# Lines that are no Markdown: code up to its end tag, math, tables of Pandoc.
_START = r"(?<=^[^{}\n]{0,50})"  # in a list or quotation, too
_TAG = r"\{(?:%-?|\{[<%])\s*+"
REGION = regex.compile(
    rf"""{_START}(?:{_TAG}(?<code>highlight|code\w*|raw|verbatim|comment|mermaid|math)\b
    | \\begin\{{(?<env>(?:equation|align|gather|multline|eqnarray|math)\*?)\}}
    | (?:{MATH.pattern})[ \t]*+$
    | (?<table>\+(?:[-=:]{{2,}}+\+)++[ \t]*+(?:\n[ \t>]*+[|+][^\n]*+)++)
    | (?<table>(?:[^\n]*+\n)?[ \t]*+-{{2,}}+(?:[ \t]++-{{2,}}+)++[ \t]*+
        (?:\n[^\S\n]*+\S[^\n]*+)++))""",
    regex.VERBOSE | regex.M,
)
REGION_ENDS = {
    "code": _TAG + r"(?:/|end_?)\s*+NAME\b[^{}\n]*+\}{1,2}[ \t]*+$",
    "env": r"\\end\{NAME\}[ \t]*+$",
}
TAGS = regex.compile(
    rf"{_START}(?:{_TAG}[^{{}}\n]*+\}}{{1,2}}[ \t]*+)++$", regex.M
)
TAG_TEXT = regex.compile(r"[\"'][^\"'\n]*?\p{L}\s++\p{L}")
# Titles, which tooltips show.
TITLE = r"(?:<[^<>\n]*+>|[^\s<>]\S{0,2000}+)\s++[\"'(][^\p{L}\n]*+\p{L}"
LINK_TITLE = regex.compile(rf"(?:!\[[^\]]*+)?\]\(\s*+{TITLE}")
REFERENCE_TITLE = regex.compile(
    rf"^[ >\t]*+\[[^\[\]\n]{{1,300}}+\]:\s*+{TITLE}[^\n]*+", regex.M
)
# Characters that would be markup anywhere, or that would begin a heading, list
# or quotation. Those of `UNESCAPED` stay if the source has them in plain text.
SIGN = regex.compile(
    r"[`\[\]>|]|\\(?=[!-/:-@\[-`{-~\s]|\Z)|(?<! )\*|\*(?! )"
    r"|<(?=[\p{L}/!?]|\Z)|(?<![^\W_])_|_(?![^\W_])|~(?=~)"
)
UNESCAPED = frozenset("[]>|")
FIRST_SIGN = regex.compile(r"\A(\d{0,9})([-+#.)])(?=\s)|\A()(>)")
CELL_SIGN = regex.compile(r"\\\||.")
LINE = regex.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
LEFT = {  # types of block tokens that stay, with reasons
    "fence": "code",
    "code_block": "code",
    "math_block": "math",
    "math_block_label": "math",
    "amsmath": "math",
}
LEFT_INSIDE = {
    "image": "image",
    "code_inline": "code",
    "math_inline": "math",
    "note": "footnote",
}
TAG = "shortcode"
REASONS = {"env": "math", "tex": "math"}
LONGEST = 20_000  # characters of a paragraph; parsing may take quadratic time


def read(text: str, split: Split) -> Iterator:
    """Yields the pieces of a Markdown text. Code, math and images stay."""
    spans = _Spans(_make_parser())
    front = FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    if front:
        yield Left(front.group(), "front matter")
    body = text[begin:]
    starts = [begin]
    # The parser, too, ends lines at "\n", "\r\n" and "\r".
    for line in LINE.findall(body):
        starts.append(starts[-1] + len(line))
    read_to = begin
    environment: dict = {}
    for token in spans.parser.parse(body, environment):
        if token.type in LEFT or token.type in ("html_block", "region"):
            first, last = (starts[line] for line in token.map)
            if first < read_to:
                continue
            yield from _between(text[read_to:first])
            read_to, block = last, text[first:last]
            is_html = token.type == "html_block"
            if is_html and not regex.search(r"^[ \t]*>", block, regex.M):
                yield from read_html(block, split)
            else:
                reason = LEFT.get(token.type, token.info or "HTML block")
                is_text = reason != TAG or TAG_TEXT.search(block)
                yield Left(block, reason) if is_text else block
        elif token.type == "container_any_open" and " " in token.info.strip():
            first, last = (starts[token.map[0] + i] for i in (0, 1))
            yield text[read_to:first]
            yield Left(text[first:last], "title of a container")
            read_to = last
        elif token.type == "inline" and token.content:
            offsets = _offsets(token, text, starts, read_to)
            if offsets is None:
                first, last = (starts[line] for line in token.map)
                first = max(first, read_to)
                yield text[read_to:first]
                yield Left(text[first:last], "text that is not found")
                read_to = max(last, first)
                continue
            yield from _between(text[read_to : offsets[0]])
            read_to = offsets[-1]
            content = text[offsets[0] : read_to]
            if len(content) > LONGEST:
                yield Left(content, "paragraph that is too long")
            elif MODULE_LINE.match(token.content):
                yield Left(content, "code")
            else:
                items = spans.items(
                    token.content, text, offsets, environment, split
                )
                signs = {c for i in items if i.raw != i.text for c in i.text}
                plain = "".join(i.text for i in items if i.raw == i.text)
                kept = UNESCAPED.intersection(plain) - signs
                yield from split(items, functools.partial(escape, kept=kept))
    yield from _between(text[read_to:])


def _between(text):
    """Yields the text between paragraphs, with the titles of references."""
    read = 0
    for match in REFERENCE_TITLE.finditer(text):
        yield text[read : match.start()]
        yield Left(match.group(), "title of a link")
        read = match.end()
    yield text[read:]


def _make_parser():
    import markdown_it  # an extra
    from mdit_py_plugins import admon, container, deflist, dollarmath, footnote

    parser = markdown_it.MarkdownIt("commonmark")
    parser.enable(["table", "strikethrough"])
    parser.use(
        footnote.footnote_plugin,
        inline=False,
        move_to_end=False,
        always_match_refs=True,
    )
    parser.use(
        dollarmath.dollarmath_plugin, allow_space=False, allow_digits=False
    )
    parser.use(deflist.deflist_plugin)
    parser.use(admon.admon_plugin)
    parser.use(container.container_plugin, "any", validate=lambda *_: True)
    parser.core.ruler.disable("inline")  # `_Spans` does this
    parser.inline.ruler.before("link", "wiki_link", _rule(WIKI_LINK))
    parser.inline.ruler.before("link", "citation", _rule(CITATION))
    parser.inline.ruler.before("link", "note", _note)
    parser.inline.ruler.before("escape", "brackets", _rule(MATH))
    ends = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("code", "region", _region, {"alt": ends})
    return parser


def _rule(pattern):
    """Makes a parser rule of a pattern."""

    def rule(state, silent):
        match = pattern.match(state.src, state.pos)
        if not match or _is_prose(match):
            return False
        state.pos = match.end()
        return True

    return rule


def _is_prose(match):
    """Returns whether brackets with backslashes have words, not math."""
    tex = match.groupdict().get("tex") or "\\"
    return "\\" not in tex and bool(PROSE.search(tex))


def _note(state, silent):
    """Matches a footnote in a sentence, `^[text]`, as a parser rule."""
    end = -1
    if state.src.startswith("^[", state.pos):
        end = state.md.helpers.parseLinkLabel(state, state.pos + 1)
    state.pos = end + 1 if end >= 0 else state.pos
    return end >= 0


def _region(state, first, end, silent):
    """Matches lines that are no Markdown, as a parser rule."""
    begin = state.bMarks[first] + state.tShift[first]
    span = begin, state.eMarks[end - 1]
    match = REGION.match(state.src, *span)
    if state.is_code_block(first) or (match and _is_prose(match)):
        return False
    kind = match.lastgroup if match else ""
    if kind in REGION_ENDS:
        # So that a text of tags without ends is not searched for each of them.
        missing = state.env.setdefault("tags without ends", set())
        key = match[kind], end
        pattern = REGION_ENDS[kind].replace("NAME", regex.escape(match[kind]))
        pattern = regex.compile(pattern, regex.M)
        found = key not in missing and pattern.search(
            state.src, match.end(), span[1]
        )
        missing.update([] if found else [key])
        match = found
    if not match:
        kind, match = TAG, TAGS.match(state.src, *span)
    if match and not silent:
        lines = range(first, end)
        last = next(i for i in lines if state.eMarks[i] >= match.end())
        state.line = last + 1
        token = state.push("region", "", 0)
        token.map, token.info = [first, state.line], REASONS.get(kind, kind)
    return bool(match)


def escape(text: str, kept: Container[str] = ()) -> str:
    """Writes plain text as Markdown, with the signs of `kept` as they are."""

    def write(part: str) -> str:
        return SIGN.sub(
            lambda m: m.group() if m.group() in kept else f"\\{m.group()}",
            part,
        )

    parts, read = [], 0
    for match in PLACEHOLDER.finditer(text):
        if match.group()[0] == "_":  # __init__ would be emphasis
            continue
        parts += [write(text[read : match.start()]), match.group()]
        read = match.end()
    parts.append(write(text[read:]))
    return FIRST_SIGN.sub(r"\1\3\\\2\4", "".join(parts))


def _offsets(token, text, starts, least):
    """Returns the offset in `text` of each character of a token's content.

    The last offset is the end of the content. Returns None if the text has the
    content in another form.
    """
    offsets = []
    for i, line in enumerate(token.content.split("\n")):
        number = min(token.map[0] + i, len(starts) - 2)
        span = max(least, starts[number]), starts[number + 1]
        words = line.lstrip()  # the token may have spaces for tabs
        # In a table cell, `|` is written `\|`.
        for pattern in (words, words.replace("|", r"\|")):
            begin = text.find(pattern, *span)
            if begin >= 0:
                break
        else:
            return None
        if i:
            offsets.append(least)  # where the line ends
        offsets += [begin] * (len(line) - len(words))
        least = begin + len(pattern)
        if pattern == words:
            offsets += range(begin, least)
        else:
            offsets += [begin + s.start() for s in CELL_SIGN.finditer(pattern)]
    return [*offsets, least]


class _Spans:
    """The spans of a paragraph's markup, which the parser does not give.

    Each rule of the parser is wrapped, to record the characters that it
    matched.
    """

    def __init__(self, parser):
        self.parser = parser
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
                    label_end = self.parser.helpers.parseLinkLabel
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
        self,
        content: str,
        text: str,
        offsets: Sequence[int],
        environment: dict,
        split: Split | None,
    ) -> list[Item]:
        """Returns the items of a paragraph; `offsets` are from `_offsets`.

        `split` is for footnotes inside. Without it, they are left.
        """
        self._found.clear()
        self.parser.inline.parse(content, self.parser, environment, [])
        first, last = FIRST_CODE.match(content), LAST_CODE.search(content)
        begin = first.end() if first else 0
        end = last.start() if last else len(content)
        codes = [
            (0, begin, ALONE * bool(first), ""),
            *sorted(c for c in self._codes(content) if begin <= c[0] < end),
            (end, len(content), ALONE * bool(last), ""),
        ]
        items, read = [], 0

        def raw(begin: int, end: int) -> str:
            return text[offsets[begin] : offsets[end]]

        for begin, end, kind, name in codes:
            position = read
            for item in plain_items(content[read:begin]):
                stop = position + len(str(item.raw))
                items.append(item._replace(raw=raw(position, stop)))
                position = stop
            if kind == "escape":
                items.append(Item(raw(begin, end), content[begin + 1 : end]))
            elif kind == "entity":
                items.append(entity_item(raw(begin, end)))
            elif kind == "html_inline":
                items.append(_html_item(raw(begin, end)))
            elif kind == "note" and split:
                inside = slice(begin + 2, end - 1)
                note = self.items(
                    content[inside],
                    text,
                    offsets[begin + 2 : end],
                    environment,
                    None,
                )
                pieces = [raw(begin, begin + 2), *split(note, escape)]
                pieces.append(raw(end - 1, end))
                items.append(Item(Block(pieces), "", ALONE))
            elif kind in LEFT_INSIDE:
                left = Left(raw(begin, end), LEFT_INSIDE[kind])
                items.append(Item(left, "", ALONE))
            elif kind:
                name, is_label, label = name.partition(" ")
                part = raw(begin, end)
                if is_label:
                    part = Label(part, f"][{label}]")
                elif LINK_TITLE.match(part):
                    part = Left(part, "title of a link")
                items.append(Item(part, "", kind, name))
            read = end
        return items

    def _codes(self, content):
        """Yields begin, end, kind and name of everything but plain text."""
        for begin, end, name, made in self._found:
            if name == "link":
                yield begin, begin + 1, OPEN, "link"
                # In a link without an address, the text is the label. So its
                # translation needs the original text as a label.
                label = " ".join(content[begin + 1 : made].split())
                is_label = content[made:end] in ("]", "][]")
                yield made, end, CLOSE, f"link {label}" if is_label else "link"
            elif name == "wiki_link":
                label = content.find("|", begin, end) + 1
                yield begin, label or end, OPEN if label else ALONE, name
                if label:
                    yield end - 2, end, CLOSE, name
            elif name == "image" or made == "code_inline":
                has_words = regex.search(
                    r"\A!\[[^\]\p{L}]*+\p{L}", content[begin:end]
                ) or LINK_TITLE.match(content[begin:end])
                is_left = name != "image" or has_words
                yield begin, end, made or name if is_left else ALONE, ""
            elif name in ("autolink", "footnote_ref", "citation"):
                yield begin, end, ALONE, ""
            elif name == "escape":
                if content[begin + 1] == "\n":
                    yield begin, end, ALONE, ""
                elif content[begin + 1] in string.punctuation:
                    yield begin, end, "escape", ""
            elif name == "brackets":
                yield begin, end, "math_inline", ""
            elif name in ("entity", "html_inline", "math_inline", "note"):
                yield begin, end, name, ""
            elif name in ("emphasis", "strikethrough"):
                yield from _emphasis(made)


def _html_item(raw):
    item = tag_item(next(read_events(raw)))
    kind = ALONE if raw.endswith("/>") else item.kind
    name = item.name if item.name == NARROW else f"<{item.name}"
    return item._replace(kind=kind, name=name)


def _tokens_between(state, begin):
    """Returns begin, end and token of each delimiter that a rule matched."""
    found, end = [], state.pos
    for token in reversed(state.tokens):
        if end == begin:
            break
        found.append((end - len(token.content), end, token))
        end -= len(token.content)
    return found


def _emphasis(signs):
    """Yields begin, end, kind and name of the delimiters of emphasis.

    Strong emphasis has two delimiters on each side; the inner one has the
    token.
    """
    for begin, end, token in signs:
        name, _, side = token.type.rpartition("_")
        if name == "strong":
            begin, end = (
                (begin - 1, end) if side == "open" else (begin, end + 1)
            )
        if name:
            yield begin, end, OPEN if side == "open" else CLOSE, name
