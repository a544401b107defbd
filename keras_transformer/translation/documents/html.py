"""HTML: also pages that no standard knows, which stay as they are."""

import html
import html.parser
from collections.abc import Iterator

from keras_transformer.translation.documents.markup import (
    VOID,
    Event,
    entity_item,
)
from keras_transformer.translation.documents.placement import (
    ALONE,
    CLOSE,
    OPEN,
)
from keras_transformer.translation.documents.sentences import (
    Item,
    Sentence,
    Split,
    plain_items,
)

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


class _Scanner(html.parser.HTMLParser):
    """Finds where each tag and text of a page begins."""

    def __init__(self, page):
        super().__init__(convert_charrefs=False)
        self._page = page
        self._line_starts = [0]
        for line in page.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self.found = []  # (offset, length or None, kind, name, attributes)
        self.feed(page)
        self.close()

    def _offset(self):
        line, column = self.getpos()
        return self._line_starts[line - 1] + column

    def _add(self, kind, length=None, name="", attributes=()):
        values = {name: value or "" for name, value in attributes}
        self.found.append((self._offset(), length, kind, name, values))

    def handle_starttag(self, tag, attrs):
        self._add("open", len(self.get_starttag_text()), tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        self._add("close", name=tag)

    def handle_data(self, data):
        # The rest of a page whose last tag has no end is no text.
        junk = data.startswith("<") and len(data) > 1
        self._add("other" if junk else "text", len(data))

    def handle_entityref(self, name):
        self._add_entity("&" + name)

    def handle_charref(self, name):
        self._add_entity("&#" + name)

    def _add_entity(self, raw):
        ended = self._page.startswith(raw + ";", self._offset())
        self._add("entity", len(raw) + ended)

    def handle_comment(self, data):
        self._add("other")

    handle_decl = handle_pi = unknown_decl = handle_comment


def _events(page) -> Iterator[Event]:
    """Yields the `Event`s of a page: all of its characters, in order."""
    found = _Scanner(page).found
    ends = [offset for offset, *_ in found] + [len(page)]
    yield Event("other", page[: ends.pop(0)])
    for (begin, length, kind, name, attributes), end in zip(
        found, ends, strict=True
    ):
        stop = end if length is None else min(begin + length, end)
        yield Event(kind, page[begin:stop], name, attributes)
        if stop < end:  # what the scanner skips, such as "</>"
            yield Event("other", page[stop:end])


def read(text: str, split: Split) -> list[str | Sentence]:
    """The pieces of an HTML page, or of a part of one.

    Args:
        text, split: As of every reader.
    """
    pieces: list[str | Sentence] = []
    items: list[Item] = []
    events = _events(text)

    def end_sentence():
        pieces.extend(split(items, escape))
        items.clear()

    for event in events:
        name = event.name
        if event.kind == "open" and _is_opaque(event):
            raw = event.raw + _rest_of_element(name, events)
            if name in INLINE | OPAQUE_INLINE:
                items.append(Item(raw, "", ALONE))
            else:
                end_sentence()
                pieces.append(raw)
        elif event.kind == "text":
            items += plain_items(event.raw)
        elif event.kind == "entity":
            items.append(entity_item(event.raw))
        elif event.kind == "other" or name in INLINE:
            kind = {"open": OPEN, "close": CLOSE}.get(event.kind, ALONE)
            if name in VOID:
                kind = ALONE
            items.append(Item(event.raw, "", kind, name))
        else:
            end_sentence()
            pieces.append(event.raw)
    end_sentence()
    return pieces


def _is_opaque(event):
    """Whether the element that a tag opens is not translated."""
    return event.name not in VOID and (
        event.name in OPAQUE | OPAQUE_INLINE
        or event.attributes.get("translate", "").lower() == "no"
        or "notranslate" in event.attributes.get("class", "").split()
    )


def escape(text: str) -> str:
    """Plain text as HTML and XML write it."""
    return html.escape(text, quote=False)


def _rest_of_element(name, events):
    """The raw text of an element after its first tag, read from the events."""
    parts, depth = [], 1
    for event in events:
        parts.append(event.raw)
        if event.name == name:
            depth += {"open": 1, "close": -1}[event.kind]
        if not depth:
            break
    return "".join(parts)
