"""HTML. A malformed page is read as it is and not repaired."""

import collections
from collections.abc import Iterable, Iterator

import regex

from keras_transformer.documents.items import (
    ALONE,
    Item,
    Split,
    plain_items,
)
from keras_transformer.documents.markup import (
    VOID,
    Event,
    entity_item,
    escape,
    read_events,
)
from keras_transformer.documents.pieces import Left

# Elements inside a sentence; all others end one.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite data del dfn em font i img input ins"
    " label mark q s small span strike strong sub sup time tt u wbr".split()
)
# Elements whose contents are not translated: inside a sentence, and others.
OPAQUE_INLINE = frozenset("code kbd samp svg math var".split())
OPAQUE = frozenset(
    "applet iframe noembed object pre script style template textarea"
    " xmp".split()
)
NO_TEXT = ("script", "style")
LOCKED = regex.compile(
    r"(?<!\S)translate\s*+=\s*+[\"']?no\b"
    r"|(?<!\S)class\s*+=\s*+(?:[\"'][^\"']*(?<![\w-]))?notranslate(?![\w-])",
    regex.I,
)
ATTRIBUTE_TEXT = regex.compile(
    r"\b(?:alt|title|placeholder|aria-label)\s*+=\s*+[\"']?+[^\"'>\p{L}]*+\p{L}",
    regex.I,
)
# Elements without an end tag; in a plain text, <link> may have one.
EMPTY = frozenset([*VOID, *"base col link meta param".split()])
# Elements whose end tag may be missing, and the tags that end them instead.
_ROWS = " tr tbody tfoot"
ENDED_BY = {
    name: frozenset(tags.split())
    for names, tags in {
        "p": "address article aside blockquote details dialog div dl fieldset"
        " figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr main"
        " menu nav ol p pre search section table ul li dt dd td th" + _ROWS,
        "li": "li",
        "dt dd": "dt dd",
        "td th": "td th" + _ROWS,
        "tr": _ROWS,
        "option": "option optgroup",
    }.items()
    for name in names.split()
}


def _with_depth(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Yields each event with the number of elements that enclose it."""
    names: list[str] = []
    counts: collections.Counter[str] = collections.Counter()

    def end_last():
        counts[names[-1]] -= 1
        return names.pop()

    for event in events:
        name = event.name
        if event.kind == "open":
            while names and name in ENDED_BY.get(names[-1], ()):
                end_last()
        elif counts[name]:
            while end_last() != name:
                pass
        yield event, len(names)
        if event.kind == "open" and name not in EMPTY:
            names.append(name)
            counts[name] += 1


def read(text: str, split: Split) -> list:
    """Returns the pieces of an HTML page, or of a part of one."""
    pieces: list = []
    items: list[Item] = []
    events = collections.deque(_with_depth(read_events(text)))

    def end_sentence(*after):
        pieces.extend([*split(items, escape), *after])
        items.clear()

    while events:
        event, depth = events.popleft()
        name = event.name
        reason = _reason(event)
        if event.kind == "open" and reason:
            raw = event.raw + _rest_of_element(depth, events)
            left = raw if name in NO_TEXT else Left(raw, reason)
            if name in INLINE | OPAQUE_INLINE:
                items.append(Item(left, "", ALONE))
            else:
                end_sentence(left)
        elif event.kind == "text":
            items += plain_items(event.raw)
        elif event.kind == "entity":
            items.append(entity_item(event.raw))
        elif event.kind == "other" or name in INLINE:
            items.append(Item(_tag(event), "", event.item_kind, name))
        else:
            end_sentence(_tag(event))
    end_sentence()
    return pieces


def _reason(event):
    """Returns why the element that a tag opens is left, or "" if it is not."""
    if event.name in EMPTY:
        return ""
    if event.name in OPAQUE | OPAQUE_INLINE:
        return event.name
    return "locked" if LOCKED.search(event.attributes) else ""


def _tag(event):
    """Returns a tag, as `Left` if it has words for readers."""
    if event.name and event.kind == "other":
        return Left(event.raw, "unfinished tag")
    if event.kind == "open" and ATTRIBUTE_TEXT.search(event.attributes):
        return Left(event.raw, "text of an attribute")
    return event.raw


def _rest_of_element(depth, events):
    """Removes an open element's remaining events and returns their text."""
    parts = []
    while events and events[0][1] > depth:
        parts.append(events.popleft()[0].raw)
    if events and events[0][1] == depth and events[0][0].kind == "close":
        parts.append(events.popleft()[0].raw)
    return "".join(parts)
