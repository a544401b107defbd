"""XLIFF 1.2 and 2: the exchange format of translation tools.

lxml reads the elements; it does not say where they are in the text, which their
tags do, in the same order.
"""

import itertools
from collections.abc import Iterator

import regex

from keras_transformer.documents.markup import (
    escape,
    plain_text,
    read_events,
)
from keras_transformer.documents.pieces import Block, Left
from keras_transformer.documents.placement import ALONE, CLOSE, OPEN
from keras_transformer.documents.sentences import Item, Split

# The inline elements of both versions that are a range, or begin or end one;
# all others stand alone. The halves of a range have an attribute in common.
RANGES = ("g", "mrk", "pc")
HALVES = {
    **dict.fromkeys(("bpt", "bx", "sc", "sm"), OPEN),
    **dict.fromkeys(("ept", "ex", "ec", "em"), CLOSE),
}
PARTNER = ("rid", "startRef", "id")
SEGMENT = "segment"  # the kind of a tag where sentences begin or end
# Targets of XLIFF 1.2 and segments of XLIFF 2 have states.
REVIEW = 'state="needs-review-translation"'
UNTRANSLATED = ("new", "needs-translation", "initial")
STATE = regex.compile(rf"\bstate\s*=\s*([\"'])(?:{'|'.join(UNTRANSLATED)})\1")


def parse_xml(text: str) -> tuple:
    """The root of an XML text, its `Event`s, and where its elements are.

    Returns:
        The root of lxml; the events; a dictionary from each element to the
        indices of the events of its tags.

    Raises:
        ValueError: It is not well-formed, or has a DOCTYPE, which could define
            entities; the message has the line.
    """
    from lxml import etree  # an extra

    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True
    )
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    if root.getroottree().docinfo.doctype:
        line = text[: text.find("<!DOCTYPE")].count("\n") + 1
        raise ValueError(f"line {line}: the XML must not have a DOCTYPE")
    events = list(read_events(text, is_xml=True))
    elements = root.iter(etree.Element)
    spans: dict = {}
    opened = []
    for i, event in enumerate(events):
        if event.kind == "open":
            element = next(elements)
            spans[element] = (i, i)
            if not event.raw.endswith("/>"):
                opened.append(element)
        elif event.kind == "close":
            element = opened.pop()
            spans[element] = (spans[element][0], i)
    return root, events, spans


def read(text: str, split: Split, replace: bool = False) -> Iterator:
    """The pieces of an XLIFF file.

    Args:
        text, split: As of every reader.
        replace: Whether to translate segments that have a translation.

    Raises:
        ValueError: It is not well-formed XML, or not XLIFF; the message has the
            line.
    """
    root, events, spans = parse_xml(text.removeprefix("\ufeff"))
    if _name(root) != "xliff":
        raise ValueError(f"expected the element xliff. Received: {_name(root)}")
    read_to = 0
    for unit in root.iter("{*}trans-unit", "{*}segment"):
        begin, end = spans[unit]
        yield _raw(events[read_to:begin])
        yield from _Unit(unit, events, spans, split).read(replace)
        read_to = end + 1
    yield _raw(events[read_to:])


def _raw(events):
    return "".join(event.raw for event in events)


class _Unit:
    """A source and its translation."""

    def __init__(self, element, events, spans, split):
        self._element = element
        self._events = events
        self._spans = spans
        self._split = split
        self._is_version_2 = _name(element) == "segment"

    def read(self, replace):
        """Its pieces: its source stays, its target is written."""
        begin, end = self._spans[self._element]
        unchanged = self._raw_of(self._element)
        source, target, segmented = (
            self._element.find(f"{{*}}{name}")
            for name in ("source", "target", "seg-source")
        )
        if source is None:
            return [unchanged]
        if _wish(self._element) == "no":
            return [Left(unchanged, "locked")]
        holder = self._element if self._is_version_2 else target
        is_open = holder is None or holder.get("state") in UNTRANSLATED
        if target is not None and _text(target) and not (replace or is_open):
            return [Left(unchanged, "already translated")]
        read = source if segmented is None else segmented
        pieces = self._translation(read)
        if all(isinstance(piece, str) for piece in pieces):
            reason = "without words"
            return [Left(unchanged, reason) if _text(source) else unchanged]
        if target is None:
            first = last = self._spans[read][1] + 1
            opening, closing = self._new_tags(source)
        else:
            first, last = self._spans[target][0], self._spans[target][1] + 1
            opening, closing = self._tags(target)
        tag = self._events[begin].raw
        if self._is_version_2:
            tag = STATE.sub('state="translated"', tag)
        return [
            tag,
            self._raw(begin + 1, first),
            Block([opening, *pieces, closing], source=self._raw(first, last)),
            self._raw(last, end + 1),
        ]

    def _raw(self, begin, end):
        return _raw(self._events[begin:end])

    def _raw_of(self, element):
        begin, end = self._spans[element]
        return self._raw(begin, end + 1)

    def _new_tags(self, source):
        """The tags of a target that is not there yet."""
        at = self._spans[source][0]
        name = regex.sub("source$", "target", self._events[at].name)
        space = self._events[at - 1].raw
        space = space if space.isspace() else ""
        state = f' {REVIEW} state-qualifier="mt-suggestion"'
        state = "" if self._is_version_2 else state
        return f"{space}<{name}{state}>", f"</{name}>"

    def _tags(self, target):
        """The tags of a target, which is no longer untranslated."""
        begin, end = self._spans[target]
        opening, closing = self._events[begin].raw, self._events[end].raw
        if begin == end:
            opening = opening[:-2].rstrip() + ">"
            closing = f"</{self._events[begin].name}>"
        return STATE.sub(REVIEW, opening), closing

    def _translation(self, source):
        """The pieces that translate the content of an element."""
        begin, end = self._spans[source]
        parts = list(self._content(source))
        texts = [part for part in parts if isinstance(part, str)]
        make_items, write = plain_text("".join(texts))
        if all(e.kind == "cdata" for e in self._events[begin + 1 : end]):
            pieces = self._split(make_items("".join(texts)), write)
            return ["<![CDATA[", *pieces, "]]>"]
        pieces, items = [], []
        for part in [*parts, Item("", "", SEGMENT)]:
            if isinstance(part, str):
                items += itertools.chain(*map(_escaped, make_items(part)))
            elif part.kind == SEGMENT:
                pieces += self._split(items, lambda t: escape(write(t)))
                pieces.append(part.raw)
                items = []
            else:
                items.append(part)
        return pieces

    def _content(self, element):
        """Yields texts and codes, as items, inside an element."""
        yield element.text or ""
        for child in element:
            begin, end = self._spans.get(child, (0, 0))
            if not end:  # a comment
                yield Item(_written(child), "", ALONE)
            elif _name(child) in RANGES and begin < end and not _locked(child):
                is_segment = child.get("mtype") == "seg"
                kinds = (SEGMENT, SEGMENT) if is_segment else (OPEN, CLOSE)
                yield Item(self._events[begin].raw, "", kinds[0], f"{begin}")
                yield from self._content(child)
                yield Item(self._events[end].raw, "", kinds[1], f"{begin}")
            else:
                raw = self._raw_of(child)
                raw = Left(raw, "locked") if _locked(child) else raw
                name = next(filter(None, map(child.get, PARTNER)), "")
                kind = HALVES.get(_name(child), ALONE)
                yield Item(raw, "", kind, f"id {name}")
            yield child.tail or ""


def _escaped(item):
    """An item as XML writes it; plain text can be divided between signs."""
    if item.raw != item.text:
        return [item._replace(raw=escape(item.raw))]
    signs = regex.findall(r"[&<>]|[^&<>]+", item.text)
    return [item._replace(raw=escape(s), text=s) for s in signs]


def _name(element):
    return element.tag.rpartition("}")[2]


def _text(element):
    """The text inside an element."""
    return element.xpath("string()").strip()


def _written(comment):
    from lxml import etree  # an extra

    return etree.tostring(comment, with_tail=False, encoding="unicode")


def _wish(element):
    """The value of `translate` for an element, or ""."""
    wishes = (e.get("translate") for e in (element, *element.iterancestors()))
    return next(filter(None, wishes), "")


def _locked(element):
    return _name(element) == "mrk" and (
        element.get("translate") == "no" or element.get("mtype") == "protected"
    )
