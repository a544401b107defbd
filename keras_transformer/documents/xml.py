"""XML elements with their positions in the text.

lxml parses the elements, but does not give their positions in the text. The
tags, which are in the same order, give them.
"""

import typing

from keras_transformer.documents.markup import read_events


def parse_root(text: str) -> typing.Any:
    """Returns the root of an XML text, an element of lxml.

    Raises ValueError, with the line, if the text is not well-formed, or has a
    DOCTYPE, which could define entities.
    """
    from lxml import etree  # an extra

    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        collect_ids=False,
    )
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        if not error.lineno:
            raise MemoryError from error
        message = error.msg.split("\n")[0]  # it may say the line again
        raise ValueError(f"line {error.lineno}: {message}") from error
    if root.getroottree().docinfo.doctype:
        line = text[: text.find("<!DOCTYPE")].count("\n") + 1
        raise ValueError(f"line {line}: the XML must not have a DOCTYPE")
    return root


def parse_xml(text: str) -> tuple:
    """Returns the root of an XML text, its `Event`s, and its elements' spans.

    The spans map each lxml element to the indices of its first and last event.
    Raises the errors of `parse_root`.
    """
    from lxml import etree

    root = parse_root(text)
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
