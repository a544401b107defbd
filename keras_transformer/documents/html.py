"""HTML, also malformed: a page is not repaired."""

import collections
import html
import html.parser
from collections.abc import Iterable, Iterator

from keras_transformer.documents.markup import (
    VOID,
    Event,
    entity_item,
)
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

    def handle_starttag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        self._add("open", len(self.get_starttag_text() or ""), tag, attrs)

    def handle_startendtag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        if tag in ("svg", "math"):  # of all others, "/>" ends none
            self._add("other", len(self.get_starttag_text() or ""))
        else:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", name=tag)

    def handle_data(self, data: str) -> None:
        # The rest of a page whose last tag has no end is no text.
        junk = data.startswith("<") and len(data) > 1
        self._add("other" if junk else "text", len(data))

    def handle_entityref(self, name: str) -> None:
        self._add_entity("&" + name)

    def handle_charref(self, name: str) -> None:
        self._add_entity("&#" + name)

    def _add_entity(self, raw):
        ended = self._page.startswith(raw + ";", self._offset())
        self._add("entity", len(raw) + ended)

    def handle_comment(self, data: str) -> None:
        self._add("other")

    handle_pi = unknown_decl = handle_comment

    def handle_decl(self, decl: str) -> None:
        self._add("other")


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


def _with_depth(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Yields each event and how many elements are open before and after it."""
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


def read(text: str, split: Split) -> list[str | Sentence]:
    """The pieces of an HTML page, or of a part of one.

    Args:
        text, split: As of every reader.
    """
    pieces: list[str | Sentence] = []
    items: list[Item] = []
    events = collections.deque(_with_depth(_events(text)))

    def end_sentence():
        pieces.extend(split(items, escape))
        items.clear()

    while events:
        event, depth = events.popleft()
        name = event.name
        if event.kind == "open" and _is_opaque(event):
            raw = event.raw + _rest_of_element(depth, events)
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
    return event.name not in EMPTY and (
        event.name in OPAQUE | OPAQUE_INLINE
        or event.attributes.get("translate", "").lower() == "no"
        or "notranslate" in event.attributes.get("class", "").split()
    )


def escape(text: str) -> str:
    """Plain text as HTML and XML write it."""
    return html.escape(text, quote=False)


def _rest_of_element(depth, events):
    """Takes an element's events after its first tag; returns their text."""
    parts = []
    while events and events[0][1] > depth:
        parts.append(events.popleft()[0].raw)
    if events and events[0][1] == depth and events[0][0].kind == "close":
        parts.append(events.popleft()[0].raw)
    return "".join(parts)
