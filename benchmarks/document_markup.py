"""Markup and placeholders of real messages, before and after translation.

    python benchmarks/document_markup.py --workdir=DIR --catalogues=FOLDER
        [--record]

FOLDER contains compiled catalogues (.mo), such as those in Debian's package
libreoffice-l10n-de. DIR is a work directory that translates from English. Each
message with a tag, a placeholder or an address is translated as part of a
message catalogue, of an XLIFF file (where these are inline elements), and of an
HTML page (where random ranges of words also have tags). Messages with an
accelerator key are in another catalogue. The script prints how many
translations have the same tags and placeholders as the message. It ends with an
error if lxml or polib cannot parse a translation. It counts with its own
regular expressions, not the package's.
"""

import argparse
import collections
import functools
import html
import pathlib
import random
import re

import lxml.etree
import polib
import results

from keras_transformer import documents
from keras_transformer.translator import Translator

PLACEHOLDER = re.compile(
    r"%\{\w+\}|\$\{\w+\}|\{\w*\}|%\(\w+\)s|%\d\$\w|%\d|%[A-Z_]{3,}\d?|%[sdiuc]\b"
    r"|\$\(\w+\)|\$\w+\$|\$[a-z]\w+|\$\d\b|https?://[\w./%-]*[\w/]"
)
TAG = re.compile(r"</?\w+(?: \w+=\"[^\"]*\")*/?>")
ACCELERATOR = re.compile(r"[~_](?=[A-Za-z])")
NUM_KEYED = 1000  # messages with an accelerator key, chosen at random
KINDS = ("b", "i", "a href='#'", "span class='x'")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--catalogues", type=pathlib.Path, required=True)
    results.add_flag(parser)
    options = parser.parse_args()
    marked, keyed, total = read_messages(options.catalogues)
    plain = [ACCELERATOR.sub("", message) for message in marked]
    translator = Translator.load(options.workdir).with_decoding(beam_size=1)
    rows = []
    for case in (
        ("po, markup or placeholders", "po", as_po(marked), po_pairs),
        ("po, accelerator keys", "po", as_po(keyed), po_pairs),
        ("xliff, inline elements", "xliff", as_xliff(plain), xliff_pairs),
        ("html, random tags", "html", as_html(plain), html_pairs),
    ):
        rows.append(measure(translator, *case))
        print(rows[-1], flush=True)
    if options.record:
        results.record(
            "document_markup",
            "Markup and placeholders in documents",
            {"rows": rows},
            notes=f"{total} messages, of which {len(marked)} have markup or"
            f" placeholders and {len(keyed)} of those with an accelerator key.",
        )


def read_messages(folder):
    """Returns messages with markup, some with accelerators, and a number.

    The number counts all messages with letters.
    """
    messages = {
        entry.msgid
        for path in sorted(folder.rglob("*.mo"))
        for entry in polib.mofile(str(path))
        if any(character.isalpha() for character in entry.msgid)
    }
    ordered = sorted(messages)
    marked = [m for m in ordered if PLACEHOLDER.search(m) or TAG.search(m)]
    keyed = [
        m
        for m in ordered
        if len(ACCELERATOR.findall(m)) == 1 and m not in set(marked)
    ]
    keyed = random.Random(0).sample(keyed, min(NUM_KEYED, len(keyed)))
    return marked, keyed, len(messages)


def measure(translator, title, format, text, read_pairs):
    """Returns a row of counts for the messages of a document."""
    document = documents.parse(text, format, "en", translator.fits)
    identical = document.write(document.sentences)
    unchanged = all(a == b for a, b in read_pairs(identical, text))
    sentences = document.sentences
    translate = functools.partial(translate_once, translator, {})
    own = translate(sentences)
    with_codes = [s for s in sentences if PLACEHOLDER.search(s)]
    copied = sum(
        counts(s) == counts(t)
        for s, t in zip(sentences, own, strict=True)
        if PLACEHOLDER.search(s)
    )
    found = documents.translate(document, translate, translator.align_spans)
    pairs = read_pairs(found.text, text)
    kept = [counts(a) == counts(b) for a, b in pairs]
    return {
        "messages": title,
        "number": len(pairs),
        "identity": "yes" if unchanged else "no",
        "all kept": sum(kept),
        "all kept, %": round(100 * sum(kept) / len(pairs), 2),
        "sentences with placeholders": len(with_codes),
        "of these copied by the model": copied,
    }


def translate_once(translator, memory, sentences):
    """Translates sentences that are not in `memory`. Returns translations."""
    new = sorted(set(sentences) - set(memory))
    memory |= zip(new, translator.translate(new), strict=True)
    return [memory[sentence] for sentence in sentences]


def counts(text):
    """Counts the tags and placeholders of a text, and a single accelerator."""
    found = collections.Counter(TAG.findall(text))
    rest = TAG.sub(" ", text)
    found.update(PLACEHOLDER.findall(rest))
    marks = ACCELERATOR.findall(PLACEHOLDER.sub(" ", rest))
    if len(marks) == 1:
        found.update(marks)
    return found


def as_po(messages):
    """Makes a message catalogue."""
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend(polib.POEntry(msgid=message) for message in messages)
    return str(catalogue)


def po_pairs(text, _):
    """Reads messages and their translations, except for empty translations."""
    return [(e.msgid, e.msgstr) for e in polib.pofile(text) if e.msgstr]


def as_xliff(messages):
    """Makes an XLIFF file with tags and placeholders as inline elements."""
    units = []
    for i, message in enumerate(messages):
        parts, read = [], 0
        pattern = re.compile(f"{PLACEHOLDER.pattern}|{TAG.pattern}")
        for number, match in enumerate(pattern.finditer(message)):
            code = html.escape(match.group())
            parts.append(html.escape(message[read : match.start()]))
            parts.append(f'<ph id="{number}">{code}</ph>')
            read = match.end()
        parts.append(html.escape(message[read:]))
        units.append(
            f'<trans-unit id="{i}"><source>{"".join(parts)}</source>'
            "</trans-unit>"
        )
    return (
        '<xliff version="1.2"><file source-language="en"><body>\n'
        + "\n".join(units)
        + "\n</body></file></xliff>\n"
    )


def xliff_pairs(text, _):
    """Reads sources and targets, with their tags."""
    pairs = []
    for unit in lxml.etree.fromstring(text.encode()).iter("trans-unit"):
        sides = [unit.find(name) for name in ("source", "target")]
        if sides[1] is not None:
            written = [
                lxml.etree.tostring(s, encoding="unicode") for s in sides
            ]
            edges = re.compile(r"</?(source|target).*?>")
            pairs.append(tuple(edges.sub("", side) for side in written))
    return pairs


def as_html(messages):
    """Makes an HTML page with a paragraph for each message and random tags."""
    random_numbers = random.Random(0)

    def tagged(words):
        if len(words) < 2 or random_numbers.random() < 0.4:
            return " ".join(words)
        begin, end = sorted(random_numbers.sample(range(len(words) + 1), 2))
        kind = random_numbers.choice(KINDS)
        inner = tagged(words[begin:end])
        tag = f"<{kind}>{inner}</{kind.split()[0]}>"
        return " ".join([*words[:begin], tag, *words[end:]])

    paragraphs = [
        f"<p>{tagged(html.escape(TAG.sub('', m), quote=False).split())}</p>\n"
        for m in messages
    ]
    return "<html><body>\n" + "".join(paragraphs) + "</body></html>\n"


def html_pairs(text, source):
    """Returns paragraphs before and after. Raises if one is not well-formed."""
    pairs = []
    for old, new in zip(source.splitlines(), text.splitlines(), strict=True):
        if new.startswith("<p>"):
            lxml.etree.fromstring(new)  # it is also well-formed XML
            pairs.append((old, new))
    return pairs


if __name__ == "__main__":
    main()
