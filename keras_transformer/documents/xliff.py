"""XLIFF 1.2 and 2: the exchange format of translation tools."""

from collections.abc import Iterator
from xml.parsers import expat

import regex

from keras_transformer.documents.html import escape
from keras_transformer.documents.markup import Event, entity_item
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

PAIRED = ("g", "mrk", "pc")  # inline elements around translated text
# XLIFF 1.2 has a state for translations by a machine.
TARGET = ' state="needs-review-translation" state-qualifier="mt-suggestion"'


def _events(text):
    """The `Event`s of an XML text: all of its characters, in order."""
    data = text.encode()
    found = []  # (offset, kind, name, attributes)
    parser = expat.ParserCreate("utf-8")

    def add(
        kind: str, name: str = "", attributes: dict[str, str] | None = None
    ) -> None:
        offset = parser.CurrentByteIndex
        found.append((offset, kind, name.rpartition(":")[2], attributes or {}))

    def add_text(_: str) -> None:
        # The parser reports a text line by line.
        if found and found[-1][1] == "text":
            begins = {
                data[i : i + 1] for i in (found[-1][0], parser.CurrentByteIndex)
            }
            if b"&" not in begins:
                return
        add("text")

    def refuse(*_):
        raise ValueError(
            f"line {parser.CurrentLineNumber}: XLIFF must not have a DOCTYPE"
        )

    parser.StartElementHandler = lambda name, values: add("open", name, values)
    parser.EndElementHandler = lambda name: add("close", name)
    parser.CharacterDataHandler = add_text
    parser.StartDoctypeDeclHandler = refuse
    for name in ("Comment", "ProcessingInstruction", "Default"):
        setattr(parser, f"{name}Handler", lambda *_: add("other"))
    parser.StartCdataSectionHandler = lambda: add("open", "cdata")
    parser.EndCdataSectionHandler = lambda: add("close", "cdata")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise ValueError(f"line {error.lineno}: {message}") from error
    ends = [offset for offset, *_ in found[1:]] + [len(data)]
    return [
        Event(kind, data[offset:end].decode(), name, attributes)
        for (offset, kind, name, attributes), end in zip(
            found, ends, strict=True
        )
    ]


def _raw(events):
    return "".join(event.raw for event in events)


def read(
    text: str, split: Split, replace: bool = False
) -> Iterator[str | Sentence]:
    """The pieces of an XLIFF file.

    Args:
        text, split: As of every reader.
        replace: Whether to translate segments that have a translation.

    Raises:
        ValueError: It is not well-formed XML, or not XLIFF; the message has the
            line.
    """
    events = _events(text)
    root = next(event for event in events if event.kind == "open")
    if root.name != "xliff":
        raise ValueError(f"expected the element xliff. Received: {root.name}")
    is_version_2 = not root.attributes.get("version", "").startswith("1")
    unit = "segment" if is_version_2 else "trans-unit"
    translated = [True]  # of the elements that are open
    begin = None
    for i, event in enumerate(events):
        if event.kind == "open":
            wish = event.attributes.get("translate")
            translated.append(wish == "yes" if wish else translated[-1])
            if event.name == unit and translated[-1]:
                begin = i
        elif event.kind == "close":
            translated.pop()
        if begin is None:
            yield event.raw
        elif event.kind == "close" and event.name == unit:
            yield from _read_unit(
                events[begin : i + 1],
                "" if is_version_2 else TARGET,
                split,
                replace,
            )
            begin = None


def _read_unit(events, attributes, split, replace):
    """The pieces of a unit: its source stays, its target is written."""
    unchanged = [_raw(events)]
    source, after_source = _content(events, "source")
    target, after_target = _content(events, "target")
    if source is None or (target and _raw(target).strip() and not replace):
        return unchanged
    pieces = split(_items(source), escape)
    if all(isinstance(piece, str) for piece in pieces):
        return unchanged

    if target is None:
        _, after_segments = _content(events, "seg-source")
        begin = end = max(after_source, after_segments)
        at = after_source - len(source) - 2  # the source's tag
        space = events[at - 1].raw if at else ""
        tag = regex.sub("source.*", "target", events[at].raw, flags=regex.S)
        opening = f"{space if space.isspace() else ''}{tag}{attributes}>"
        closing = f"</{tag[1:]}>"
    else:
        begin, end = after_target - len(target) - 2, after_target
        opening, closing = events[begin].raw, events[end - 1].raw
        if opening.endswith("/>"):
            name = regex.match(r"<([^\s/>]+)", opening)[1]
            opening, closing = opening[:-2].rstrip() + ">", f"</{name}>"
    return [_raw(events[:begin]), opening, *pieces, closing, _raw(events[end:])]


def _content(events, name):
    """The events inside an element, and the index after it.

    None and 0 without such an element. In one with its own units, such as
    alternative translations, it is not searched.
    """
    begin, depth = None, 0
    for i, event in enumerate(events):
        depth += {"open": 1, "close": -1}.get(event.kind, 0)
        if event.kind == "open" and event.name == name and depth == 2:
            begin = i
        if event.kind == "close" and begin is not None and depth == 1:
            return events[begin + 1 : i], i + 1
    return None, 0


def _items(events):
    """The items of a source."""
    items, depth, opaque = [], 0, []
    for event in events:
        protected = event.name == "mrk" and (
            event.attributes.get("translate") == "no"
            or event.attributes.get("mtype") == "protected"
        )
        if not (opaque or protected):
            if event.name in PAIRED:
                kind = OPEN if event.kind == "open" else CLOSE
                items.append(Item(event.raw, "", kind, event.name))
                continue
            if event.raw.startswith("&"):
                items.append(entity_item(event.raw))
                continue
            if event.kind == "text":
                items += plain_items(event.raw)
                continue
        opaque.append(event.raw)
        depth += {"open": 1, "close": -1}.get(event.kind, 0)
        if not depth:
            items.append(Item("".join(opaque), "", ALONE))
            opaque = []
    return items
