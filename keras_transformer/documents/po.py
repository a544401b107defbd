"""Message catalogues of gettext (.po)."""

import functools
import itertools
from collections.abc import Iterator

import regex

from keras_transformer.documents.document import Block
from keras_transformer.documents.markup import tagged_items
from keras_transformer.documents.sentences import Sentence, Split
from keras_transformer.documents.text import read as read_text

TRANSLATION = regex.compile(
    r"^[ \t]*(?<keyword>msgstr(?:\[(?<index>\d+)\])?)[ \t]+"
    r"(?<strings>\".*\"[ \t]*(?:\r?\n[ \t]*\".*\"[ \t]*)*)",
    regex.MULTILINE,
)
FLAGS = regex.compile(r"^#,.*?(?=\r?\n)", regex.MULTILINE)
FIRST_KEYWORD = regex.compile(r"^(?=msgctxt|msgid)", regex.MULTILINE)


def read(
    text: str, split: Split, replace: bool = False
) -> Iterator[str | Sentence | Block]:
    """The pieces of a message catalogue.

    A translation is marked as fuzzy: nobody has read it yet. Of plural forms
    the first one translates the singular, all others the plural.

    Args:
        text, split: As of every reader.
        replace: Whether to translate messages that have a translation.

    Raises:
        ValueError: The text is no catalogue; the message has the line.
    """
    import polib  # an extra

    try:
        entries = list(polib.pofile(text + "\n"))  # which is no file's name
    except OSError as error:
        found = regex.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
        raise ValueError(
            f"line {found[1]}: {found[2] or 'no line of a catalogue'}"
        ) from error
    lines = text.splitlines(keepends=True)
    begins = [max(entry.linenum - 1, 0) for entry in entries] + [len(lines)]
    yield "".join(lines[: begins[0]])
    for entry, (begin, end) in zip(
        entries, itertools.pairwise(begins), strict=True
    ):
        entry_text = "".join(lines[begin:end])
        has_translation = entry.msgstr or any(entry.msgstr_plural.values())
        if entry.obsolete or (has_translation and not replace):
            yield entry_text
        else:
            yield from _read_entry(entry, entry_text, split)


def _read_entry(entry, text, split):
    """The pieces of an entry that is translated."""
    pieces, read = [], 0
    translated = _mark_fuzzy(text)
    make_items = functools.partial(tagged_items, accelerators=True)
    write = functools.partial(_write_string, _line_end(text))
    for match in TRANSLATION.finditer(translated):
        is_plural = int(match["index"] or 0)
        message = entry.msgid_plural if is_plural else entry.msgid
        found = list(read_text(message, split, make_items))
        if all(isinstance(piece, str) for piece in found):
            return [text]  # it has no words
        pieces.append(translated[read : match.start("strings")])
        pieces.append(Block(found, write))
        read = match.end("strings")
    return [*pieces, translated[read:]]


def _line_end(text):
    return "\r\n" if "\r\n" in text else "\n"


def _mark_fuzzy(text):
    """An entry with the flag `fuzzy`."""
    flags = FLAGS.search(text)
    if flags:
        if regex.search(r"\bfuzzy\b", flags.group()):
            return text
        return f"{text[: flags.end()]}, fuzzy{text[flags.end() :]}"
    return FIRST_KEYWORD.sub(f"#, fuzzy{_line_end(text)}", text, count=1)


def _write_string(ending, text):
    """A text as strings of a catalogue: one for each line."""
    import polib  # an extra

    lines = [f'"{polib.escape(line)}"' for line in text.splitlines(True)]
    if len(lines) > 1:
        lines.insert(0, '""')
    return ending.join(lines)
