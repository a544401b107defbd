"""Message catalogues of gettext (.po)."""

import regex

from keras_transformer.translation.documents.document import Block
from keras_transformer.translation.documents.markup import tagged_items
from keras_transformer.translation.documents.sentences import Sentence, Split
from keras_transformer.translation.documents.text import read as read_text

TRANSLATION = regex.compile(
    r"^[ \t]*(?<keyword>msgstr(?:\[(?<index>\d+)\])?)[ \t]+"
    r"(?<strings>\".*\"[ \t]*(?:\r?\n[ \t]*\".*\"[ \t]*)*)",
    regex.MULTILINE,
)
FLAGS = regex.compile(r"^#,.*?(?=\r?\n)", regex.MULTILINE)
FIRST_KEYWORD = regex.compile(r"^(?=msgctxt|msgid)", regex.MULTILINE)


def read(
    text: str, split: Split, replace: bool = False
) -> list[str | Sentence | Block]:
    """The pieces of a message catalogue.

    A translation is marked as fuzzy: nobody has read it yet. Of plural forms
    the first one translates the singular, all others the plural.

    Args:
        text: The catalogue.
        split: `sentences.split` for its language.
        replace: Whether to translate messages that have a translation.

    Raises:
        ValueError: The text is no catalogue; the message has the line.
    """
    import polib  # an extra

    try:
        catalogue = polib.pofile(text + "\n")  # which is no file's name
    except OSError as error:
        found = regex.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
        raise ValueError(
            f"line {found[1]}: {found[2] or 'no line of a catalogue'}"
        ) from error
    lines = text.splitlines(keepends=True)
    entries = list(catalogue)
    ends = [entry.linenum - 1 for entry in entries[1:]] + [len(lines)]
    first = max(entries[0].linenum - 1, 0) if entries else len(lines)
    pieces: list[str | Sentence | Block] = ["".join(lines[:first])]
    for entry, end in zip(entries, ends, strict=True):
        entry_text = "".join(lines[first:end])
        first = end
        has_translation = entry.msgstr or any(entry.msgstr_plural.values())
        if entry.obsolete or (has_translation and not replace):
            pieces.append(entry_text)
        else:
            pieces += _read_entry(entry, entry_text, split)
    return pieces


def _read_entry(entry, text, split):
    """The pieces of an entry that is translated."""

    def items(line):
        return tagged_items(line, accelerators=True)

    pieces, read = [], 0
    translated = _mark_fuzzy(text)
    for match in TRANSLATION.finditer(translated):
        message = entry.msgid
        if int(match["index"] or 0):
            message = entry.msgid_plural
        found = read_text(message, split, items)
        if all(isinstance(piece, str) for piece in found):
            return [text]  # it has no words
        ending = "\r\n" if "\r\n" in text else "\n"
        pieces.append(translated[read : match.start("strings")])
        pieces.append(Block(found, lambda t, e=ending: _write_string(t, e)))
        read = match.end("strings")
    return [*pieces, translated[read:]]


def _mark_fuzzy(text):
    """An entry with the flag `fuzzy`."""
    flags = FLAGS.search(text)
    if flags:
        if regex.search(r"\bfuzzy\b", flags.group()):
            return text
        return f"{text[: flags.end()]}, fuzzy{text[flags.end() :]}"
    ending = "\r\n" if "\r\n" in text else "\n"
    return FIRST_KEYWORD.sub(f"#, fuzzy{ending}", text, count=1)


def _write_string(text, ending):
    """A text as strings of a catalogue: one for each line."""
    import polib  # an extra

    lines = [f'"{polib.escape(line)}"' for line in text.splitlines(True)]
    if len(lines) > 1:
        lines.insert(0, '""')
    return ending.join(lines)
