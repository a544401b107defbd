"""HTML. A malformed page is read as it is and not repaired."""

import collections
from collections.abc import Iterable, Iterator

import regex

from keras_transformer.data.languages import is_right_to_left
from keras_transformer.documents.items import (
    ALONE,
    CLOSE,
    NARROW,
    OPEN,
    SPACE,
    Item,
    Split,
    plain_items,
)
from keras_transformer.documents.markup import (
    RAW_TEXT,
    VOID,
    Event,
    entity_item,
    escape,
    read_events,
)
from keras_transformer.documents.pieces import Block, Label, Left

# Elements that end a sentence: the blocks of HTML's section on rendering, and
# what is shown outside of the page. All others are inside a sentence.
BLOCKS = frozenset(
    "address article aside blockquote body br caption center col colgroup dd"
    " details dialog dir div dl dt fieldset figcaption figure footer form frame"
    " frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing"
    " main marquee menu nav noframes ol p plaintext pre search section summary"
    " table tbody td tfoot th thead title tr ul xmp".split()
)
# Elements that have texts of their own, and are one code of the sentence.
ISLANDS = ("audio", "canvas", "datalist", "noscript", "select", "video")
CHOICES = ("optgroup", "option")  # blocks of an island
# Elements whose contents are not translated, with reasons.
OPAQUE = dict.fromkeys(("rt", "rtc"), "ruby") | {
    name: name
    for name in (
        "applet code iframe kbd listing math noembed object plaintext pre rp"
        " samp script style svg template textarea var xmp"
    ).split()
}
NO_TEXT = ("rp", "script", "style")
# Elements without width: the letters around them are one word.
NO_WIDTH = frozenset(
    "area base link meta param rp rt rtc script source style template track"
    " wbr".split()
)
# What readers see: an element, its type and name, and an attribute.
SHOWN = regex.compile(
    r"""\A(?:
    \S++\ (?:\S*?[:-])?(?:abbr|alt|caption|label|placeholder|prompt|standby
        |summary|title|tooltip)
    | \S++\ (?:aria|data)-\S*?(?:confirm|content|description|error|hint|label
        |message|text|tip)
    | input:(?!(?:checkbox|color|hidden|image|password|radio):)\S*?\ value
    | meta:\S*?(?:abstract|alt|caption|category|copyright|data\d|description
        |headline|keywords|label\d|name|rights|section
        |subject|summary|tag|title|topic)\ content
    )\Z""",
    regex.VERBOSE | regex.IGNORECASE,
)
IN_TEMPLATE = regex.compile(
    r"(?<code>\{(?:%(?:[^%<&]++|<(?![\w/!?]))*+%|[^{}<&]*+)\})|[&<>]"
)
LANGUAGE = regex.compile(
    r"(?<!\S)(?:xml:)?lang\s*+=\s*+[\"']?+\K[\w-]++", regex.IGNORECASE
)
DIRECTION = regex.compile(
    r"(?<!\S)dir\s*+=\s*+[\"']?+\K(?:ltr|rtl)\b", regex.IGNORECASE
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
        "rb rp rt rtc": "rb rp rt rtc",
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
        if event.kind in ("open", "empty"):
            while names and name in ENDED_BY.get(names[-1], ()):
                end_last()
        elif event.kind == "close" and counts[name]:
            while end_last() != name:
                pass
        yield event, len(names)
        if event.kind == "open" and name not in EMPTY:
            names.append(name)
            counts[name] += 1


def read(text: str, split: Split, target: str = "") -> list:
    """Returns the pieces of an HTML page, or of a part of one.

    If the page says its language or direction, its translation says those of
    the language `target`.
    """
    events = collections.deque(_with_depth(read_events(text)))
    return _Reader(split, target).read(events, len(events))


class _Reader:
    """A reader of a page, or of an island."""

    def __init__(self, split: Split, target: str):
        self._split, self._target = split, target
        self._pieces: list = []
        self._items: list[Item] = []
        # Depth and name of each element that decides whether its contents stay,
        # with the reason, or "" if they do not.
        self._stays = [(-1, "", "")]
        self._kept: list[Event] = []

    def read(self, events: collections.deque, islands: int) -> list:
        """Returns the pieces of events, and removes these.

        Islands are apart where fewer events than `islands` follow.
        """
        blocks = BLOCKS if islands else BLOCKS.union(CHOICES)
        while events:
            event, depth = events.popleft()
            while depth + (event.kind == CLOSE) <= self._stays[-1][0]:
                self._leave()
            is_open = event.kind == OPEN
            if is_open and event.name not in EMPTY:
                self._enter(event, depth)
            if self._stays[-1][2]:
                self._kept.append(event)
            elif is_open and len(events) < islands and _is_island(event):
                inside = _rest_of_element(depth, events)
                options = [e for e, _ in inside if e.name == "option"]
                if [e.kind for e in options].count(OPEN) == 1:
                    islands = len(events)
                    events.extendleft(reversed(inside))
                    self._add(event, blocks)
                else:
                    reader = _Reader(self._split, self._target)
                    pieces = [tag(event), *reader.read(inside, 0)]
                    self._items.append(Item(Block(pieces), "", ALONE))
            else:
                self._add(event, blocks)
            if event.kind == CLOSE and depth == self._stays[-1][0]:
                self._leave()
        while len(self._stays) > 1:
            self._leave()
        self._end_sentence()
        return self._pieces

    def _enter(self, event, depth):
        """Notes whether the contents of an element stay."""
        *_, kept = self._stays[-1]
        values, reason = event.values(), kept or OPAQUE.get(event.name, "")
        wish = values.get("translate", "none").lower()
        if wish == "no" or "notranslate" in values.get("class", "").split():
            reason = kept or "locked"
        elif wish in ("yes", "") and event.name not in RAW_TEXT:
            reason = ""
        if reason != kept:
            self._keep()
            self._stays.append((depth, event.name, reason))

    def _leave(self):
        self._keep()
        self._stays.pop()

    def _keep(self):
        """Adds the events that stay as one piece."""
        _, name, reason = self._stays[-1]
        raw = "".join(event.raw for event in self._kept)
        is_more = any(e.kind != CLOSE and e.raw.strip() for e in self._kept)
        if is_more and reason not in NO_TEXT:
            raw = Left(raw, reason)
        self._kept.clear()
        if raw and name in BLOCKS:
            self._end_sentence(raw)
        elif raw:
            width = NARROW * (name in NO_WIDTH)
            self._items.append(Item(raw, "", ALONE, width))

    def _add(self, event, blocks):
        """Adds an event as items, or ends the sentence."""
        raw, name = event.raw, event.name
        if event.kind == "text":
            self._items += plain_items(raw)
        elif event.kind == "entity":
            self._items.append(entity_item(raw))
        elif event.kind == "cdata":
            inside = self._split(
                plain_items(raw[9:-3]), lambda text: text.replace("]]>", "]] >")
            )
            block = Block([raw[:9], *inside, raw[-3:]])
            self._items.append(Item(block, "", ALONE, NARROW))
        elif name in blocks and event.kind != "other":
            self._end_sentence(_in_language(event, self._target))
        else:
            if name == "button" and event.kind == OPEN:
                before = [i for i in self._items[-2:] if i.kind != SPACE]
                if before and before[-1].name == name:
                    self._end_sentence()
            self._items.append(tag_item(event))

    def _end_sentence(self, *after):
        self._pieces += [*self._split(self._items, _escape), *after]
        self._items = []


def _escape(text):
    """Escapes text, but no `>` of a template, as in {% if n > 1 %}."""
    return IN_TEMPLATE.sub(lambda m: m["code"] or escape(m.group()), text)


def tag_item(event: Event) -> Item:
    """Makes an item of a tag, or of another code."""
    kind, name = event.item_kind, event.name
    if name in NO_WIDTH or event.kind == "empty" or event.raw[:2] == "<!":
        kind, name = ALONE, NARROW * (name not in OPAQUE)
    return Item(tag(event), "", kind, name)


def tag(event: Event) -> str:
    """Returns a tag or another code, as `Left` if it has words for readers."""
    if event.name and event.kind == "other":
        return Left(event.raw, "unfinished tag")
    if event.kind == "entities":
        return Left(event.raw, event.kind)
    values = event.values()
    names = map(values.get, ("property", "itemprop", "name"))
    kind = f"{values.get('type', '')}:{next(filter(None, names), '')}"
    is_shown = event.kind != CLOSE and any(
        any(map(str.isalpha, value))
        and SHOWN.match(f"{event.name}:{kind} {name}")
        for name, value in values.items()
    )
    return Left(event.raw, "text of an attribute") if is_shown else event.raw


def _is_island(event):
    """Tells whether an element of a sentence has texts of its own."""
    is_hidden = event.name not in BLOCKS and "hidden" in event.values()
    return is_hidden or event.name in ISLANDS


def _in_language(event, target):
    """Returns a tag, as `Label` if its translation says another language."""
    written, attributes = tag(event), event.attributes
    if event.kind != OPEN or event.name not in ("html", "body") or not target:
        return written
    side = "rtl" if is_right_to_left(target) else "ltr"
    changed = LANGUAGE.sub(target.replace("_", "-"), attributes)
    changed, has_side = DIRECTION.subn(side, changed)
    if event.name == "html" and side == "rtl" and not has_side:
        changed += f' dir="{side}"'
    begin = event.raw[: -len(attributes) - 1]
    label = Label(event.raw, f"{begin}{changed}>")
    return written if changed == attributes else label


def _rest_of_element(depth, events):
    """Removes and returns an open element's remaining events."""
    rest = collections.deque()
    while events and events[0][1] + (events[0][0].kind == CLOSE) > depth:
        rest.append(events.popleft())
    return rest
