"""XLIFF 1.2 and 2: the exchange format of translation tools."""

import functools
import itertools
import typing
from collections.abc import Iterator

import regex

from keras_transformer.base.refusals import expect
from keras_transformer.documents.items import (
    ALONE,
    CLOSE,
    END,
    OPEN,
    Item,
    Split,
)
from keras_transformer.documents.markup import escape, plain_text
from keras_transformer.documents.pieces import (
    Block,
    Label,
    Left,
    declared,
    joined,
)
from keras_transformer.documents.placeholders import MESSAGES
from keras_transformer.documents.xml import parse_xml

# The inline elements of both versions that enclose, begin or end a range. All
# others stand alone. The two halves of a range share an attribute.
RANGES = ("g", "mrk", "pc")
HALVES = {
    **dict.fromkeys(("bpt", "bx", "sc", "sm"), OPEN),
    **dict.fromkeys(("ept", "ex", "ec", "em"), CLOSE),
}
PARTNER = ("rid", "startRef", "id")
# Targets of XLIFF 1.2 and segments of XLIFF 2 have states.
REVIEW = 'state="needs-review-translation"'
BY_MACHINE = 'state-qualifier="mt-suggestion"'
UNTRANSLATED = ("new", "needs-translation", "initial")
STATE = regex.compile(r"\bstate\s*=\s*([\"'])[^\"']*\1")
# The elements that declare the language of all targets, and by what.
LANGUAGES = {"file": "target-language", "xliff": "trgLang"}
LANGUAGE = regex.compile(
    r"\s(?:target-language|trgLang)\s*+=\s*+[\"'](?<code>[^\"']*+)"
)
APPROVED = regex.compile(r"\bapproved\s*=\s*([\"'])yes\1")


def read(
    text: str, split: Split, replace: bool = False, target: str = ""
) -> Iterator:
    """Yields the pieces of an XLIFF file: sources stay, targets change.

    `replace` also changes targets that are already translated. If `target` is
    given, a translated file declares it as the language of its targets.
    """
    root, events, spans = parse_xml(text)
    expect(_name(root) == "xliff", "the element xliff", _name(root))
    reader = _Reader(events, spans, split)
    read_to = 0
    files = "{*}xliff" if root.get("version", "").startswith("2") else "{*}file"
    for element in root.iter("{*}trans-unit", "{*}segment", files):
        begin, end = spans[element]
        yield reader.raw(read_to, begin)
        if attribute := LANGUAGES.get(_name(element)):
            tag, end = reader.raw(begin, begin + 1), begin
            yield Label(tag, _declare(tag, attribute, target))
        else:
            yield from reader.read_unit(element, replace)
        read_to = end + 1
    yield reader.raw(read_to, len(events))


class _Reader:
    """A reader of units, which have a source and its translation."""

    def __init__(self, events, spans, split):
        self._events = events
        self._spans = spans
        self._kept: dict = {}  # segments that stay, by their number
        self._split = functools.partial(split, placeholders=MESSAGES)

    def raw(self, begin: int, end: int) -> str:
        return "".join(event.raw for event in self._events[begin:end])

    def read_unit(self, unit: typing.Any, replace: bool) -> list:
        """Returns the pieces of a unit."""
        begin, end = self._spans[unit]
        unchanged = self.raw(begin, end + 1)
        source, target, segmented = (
            unit.find(f"{{*}}{name}")
            for name in ("source", "target", "seg-source")
        )
        if source is None:
            return [unchanged]
        if _is_locked(unit):
            return [Left(unchanged, "locked")]
        is_version_2 = _name(unit) == "segment"
        holder = unit if is_version_2 else target
        is_open = holder is None or holder.get("state") in UNTRANSLATED
        read = source if segmented is None else segmented
        locked = {e.get("id") for e in unit.iter("{*}seg") if _has_lock(e)}
        written = {} if target is None else _segments(target)
        wanted = _segments(read).keys() - locked
        if not (replace or is_open):
            wanted -= written.keys()
            if target is not None and _text(target):
                if not (wanted and written):
                    return [Left(unchanged, "already translated")]
        self._kept = {
            mid: (
                written.get(mid),
                "locked" if mid in locked else "already translated",
            )
            for mid in _segments(read).keys() - wanted
        }
        if locked and not wanted:
            return [Left(unchanged, "locked")]
        pieces = self._translation(read)
        if all(isinstance(piece, str) for piece in pieces):
            is_text = bool(_text(source))
            return [Left(unchanged, "without words") if is_text else unchanged]
        if target is None:
            first = last = self._spans[read][1] + 1
            at = self._spans[source][0]
            name = self._events[at].name.replace("source", "target")
            space = self._events[at - 1].raw
            state = "" if is_version_2 else f" {REVIEW} {BY_MACHINE}"
            opening = f"{space * space.isspace()}<{name}{state}>"
            closing = f"</{name}>"
        else:
            first, last = self._spans[target]
            opening = STATE.sub(REVIEW, self._events[first].raw)
            if first == last:
                opening = opening[:-2].rstrip() + ">"
            closing = f"</{self._events[first].name}>"
            last += 1
        tag = self._events[begin].raw
        if is_version_2:
            tag = STATE.sub('state="translated"', tag)
        return [
            APPROVED.sub('approved="no"', tag),
            self.raw(begin + 1, first),
            Block([opening, *pieces, closing], source=self.raw(first, last)),
            self.raw(last, end + 1),
        ]

    def _translation(self, source):
        """Returns the pieces of an element's content, to be translated."""
        begin, end = self._spans[source]
        parts = list(self._content(source))
        text = "".join(part for part in parts if isinstance(part, str))
        make_items, write = plain_text(text, accelerators=True)
        if all(e.kind == "cdata" for e in self._events[begin + 1 : end]):
            return ["<![CDATA[", *self._split(make_items(text), write), "]]>"]
        items = []
        for part in parts:
            if isinstance(part, str):
                items += itertools.chain(*map(_escaped, make_items(part)))
            else:
                items.append(part)
        return self._split(items, lambda t: escape(write(t)))

    def _keep(self, segment):
        """Makes an item of a segment's existing translation."""
        kept, reason = self._kept[segment.get("mid")]
        begin, end = self._spans[segment if kept is None else kept]
        raw = self.raw(begin, end + 1)
        if kept is None:
            raw = self._events[begin].raw + self._events[end].raw
        return Item(Left(raw, reason), "", END)

    def _content(self, element):
        """Yields an element's content: texts as strings, codes as items."""
        yield element.text or ""
        for child in element:
            begin, end = self._spans.get(child, (0, 0))
            if not end:
                yield Item(_comment(child), "", ALONE)
            elif _name(child) in RANGES and begin < end and not _is_code(child):
                is_segment = child.get("mtype") == "seg"
                if is_segment and child.get("mid") in self._kept:
                    yield self._keep(child)
                    yield child.tail or ""
                    continue
                opens, closes = (END, END) if is_segment else (OPEN, CLOSE)
                yield Item(self._events[begin].raw, "", opens, f"{begin}")
                yield from self._content(child)
                yield Item(self._events[end].raw, "", closes, f"{begin}")
            else:
                raw = self._code(child)
                name = next(filter(None, map(child.get, PARTNER)), "")
                kind = HALVES.get(_name(child), ALONE)
                yield Item(raw, "", kind, f"id {name}")
            yield child.tail or ""

    def _code(self, element):
        """Returns a code as it is, but with the texts in it as pieces."""
        read_to, end = self._spans[element]
        if _is_code(element):
            return Left(self.raw(read_to, end + 1), "locked")
        pieces = []
        for text in filter(_text, element.iterchildren("{*}sub")):
            begin, last = self._spans[text]
            pieces += [self.raw(read_to, begin + 1), *self._translation(text)]
            read_to = last
        return joined([*pieces, self.raw(read_to, end + 1)])


def _declare(tag, attribute, target):
    """Writes the language of the targets into a tag."""
    if not target:
        return tag
    target = target.replace("_", "-")
    if found := LANGUAGE.search(tag):
        begin, end = found.span("code")
        return tag[:begin] + declared(found["code"], target) + tag[end:]
    name = regex.match(r"<[^\s/>]++", tag).group()
    return f'{name} {attribute}="{target}"{tag[len(name) :]}'


def _name(element):
    return element.tag.rpartition("}")[2]


def _text(element):
    return element.xpath("string()").strip()


def _comment(element):
    from lxml import etree  # an extra

    return etree.tostring(element, with_tail=False, encoding="unicode")


def _segments(element):
    """Returns an element's segments with text, by their number (`mid`)."""
    segments = element.iter("{*}mrk")
    return {
        segment.get("mid"): segment
        for segment in segments
        if segment.get("mtype") == "seg" and _text(segment)
    }


def _has_lock(element):
    """Returns whether a translation tool has locked a unit or segment."""
    return any(
        name.rpartition("}")[2] == "locked"
        and value.lower() not in ("no", "false", "0", "")
        for name, value in element.items()
    )


def _is_locked(unit):
    if _has_lock(unit):
        return True
    wishes = (e.get("translate") for e in (unit, *unit.iterancestors()))
    return next(filter(None, wishes), "") == "no"


def _is_code(element):
    """Returns whether a range is marked as not to be translated."""
    return _name(element) == "mrk" and (
        element.get("translate") == "no" or element.get("mtype") == "protected"
    )


def _escaped(item):
    """Escapes an item as XML, with separate items for `&`, `<` and `>`."""
    if item.raw != item.text:
        return [item._replace(raw=escape(item.raw))]
    signs = regex.findall(r"[&<>]|[^&<>]+", item.text)
    return [item._replace(raw=escape(s), text=s) for s in signs]
