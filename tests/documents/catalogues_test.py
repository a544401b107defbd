"""Program translations as pairs: gettext, XLIFF, Qt's .ts."""

import collections
import gzip
import io
import logging
import struct

import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from keras_transformer.data.files import records
from trainers.datasets.dataset import read_split
from trainers.run.data_config import DataConfig

HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: {}\\n"
"Plural-Forms: {}\\n"

"""
RULES = {
    "ja": "nplurals=1; plural=0;",
    "de": "nplurals=2; plural=(n != 1);",
    "fr": "nplurals=2; plural=(n > 1);",
    "ru": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4"
    " && (n%100<10 || n%100>=20) ? 1 : 2);",
    "ar": "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 &&"
    " n%100<=10 ? 3 : n%100>=11 ? 4 : 5;",
}
# For each language, the message of each form: s singular, p plural; of "%d
# file" and of "One file".
FORMS = {
    "ja": ("p", "p"),
    "de": ("sp", "sp"),
    "fr": ("sp", "pp"),  # the first one is also for 0
    "ru": ("spp", "ppp"),  # the first one is also for 21
    "ar": ("pspppp", "pspppp"),
}
ENTRIES = """# A comment.
#: main.c:1
msgctxt "menu"
msgid "_File"
msgstr "_Datei"

#| msgid "Old"
#, fuzzy, c-format
msgid "New %s"
msgstr "Alt %s"

msgid "Untranslated"
msgstr ""

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "Eine Datei"
msgstr[1] "%d Dateien"

msgid "two "
"lines\\n"
msgstr "zwei\\n"
"Zeilen\\t\\"so\\""

#~ msgid "Gone"
#~ msgstr "Fort"
"""
PAIRS = [
    ("File", "Datei"),
    ("%d files", "%d Dateien"),
    ("two lines", 'zwei Zeilen "so"'),
]


def catalogue(language="de", entries=ENTRIES):
    return HEADER.format(language, RULES.get(language, "")) + entries


def plural(language, one):
    forms = "".join(
        f'msgstr[{form}] "%d {form}"\n'
        for form in range(len(FORMS[language][0]))
    )
    return f'msgid "{one}"\nmsgid_plural "%d files"\n{forms}'


def compiled(path, text, order="<"):
    """Compiles a catalogue with another program. Returns the path."""
    with path.open("wb") as file:
        write_mo(file, read_po(io.BytesIO(text.encode())))
    data = path.read_bytes()
    size = 7 + 4 * struct.unpack_from("<I", data, 8)[0]
    numbers = struct.unpack_from(f"<{size}I", data)
    path.write_bytes(
        struct.pack(f"{order}{size}I", *numbers) + data[4 * size :]
    )
    return path


def read(path, source="en", target="de"):
    """Returns the pairs, and what is left out."""
    reasons = collections.Counter()
    languages = source, target
    for found in records._read_pairs(path, languages):
        if isinstance(found, records.LeftOut):
            reasons[found.reason] += 1
    return list(records.read_records(path, languages)), dict(reasons)


def test_a_catalogue_is_pairs_and_reasons(tmp_path, caplog):
    path = tmp_path / "a.po"
    path.write_text(catalogue())
    data = DataConfig(dataset="files", train_files=(str(path),))
    with caplog.at_level(logging.WARNING):
        pairs = read_split(data, "train")
    assert list(pairs) == list(pairs) == PAIRS
    assert caplog.messages == [
        f"{path}: 3 pairs, left out: 1 fuzzy, 1 untranslated, 1 plural forms"
        " without a placeholder, 1 obsolete"
    ]
    turned = [(target, source) for source, target in PAIRS]
    assert read(path, "de_DE", "en")[0] == []
    assert read(path, "de", "en")[0] == turned


@pytest.mark.parametrize("order", "<>")
def test_a_compiled_catalogue_has_the_same_pairs(order, tmp_path):
    path = compiled(tmp_path / "a.mo", catalogue(), order)
    pairs, reasons = read(path)
    assert sorted(pairs) == sorted(PAIRS)
    assert reasons == {"plural forms without a placeholder": 1}
    zipped = tmp_path / "b.mo.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read(zipped) == read(path)


@pytest.mark.parametrize("language", FORMS)
def test_a_form_of_a_plural_has_the_message_that_it_stands_for(
    language, tmp_path
):
    for one, kinds in zip(
        ("%d file", "One file"), FORMS[language], strict=True
    ):
        text = catalogue(language, plural(language, one))
        path = tmp_path / "a.po"
        path.write_text(text)
        wanted = [
            ({"s": one, "p": "%d files"}[kind], f"%d {form}")
            for form, kind in enumerate(kinds)
        ]
        for same in (path, compiled(tmp_path / "a.mo", text)):
            assert read(same, target=language) == (wanted, {})


@pytest.mark.parametrize(
    ("name", "header", "target", "is_read"),
    [
        ("a.po", "de_AT", "de", True),
        ("a.po", "de", "fr", False),
        ("a.po", "sr@latin", "sr", True),
        ("a.po", "", "de", False),
        ("de.po", "", "de", True),
        ("app_de.po", "", "de", True),
        ("app-de_AT.po", "", "de", True),
        ("app.sr@latin.po", "", "sr", True),
        ("made.po", "", "de", False),
        ("de/LC_MESSAGES/a.po", "", "de", True),
        ("fr/LC_MESSAGES/de.po", "", "de", False),
        ("a.po", 'cs\\n"\n"X-Source-Language: fr', "cs", False),
    ],
)
def test_the_languages_of_a_catalogue(name, header, target, is_read, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(catalogue(header, 'msgid "a"\nmsgstr "b"\n'))
    reason = {"without one of the languages": 1}
    assert read(path, "en", target) == (
        ([("a", "b")], {}) if is_read else ([], reason)
    )


def test_files_of_other_languages_are_told_or_refused(tmp_path, caplog):
    for code in ("de", "fr"):
        (tmp_path / f"{code}.po").write_text(catalogue(code))
    pattern = str(tmp_path / "**" / "*.po")
    data = DataConfig(dataset="files", train_files=(pattern,))
    with caplog.at_level(logging.WARNING):
        assert list(read_split(data, "train")) == PAIRS
    assert (
        ", 3 without one of the languages, 2 fuzzy, 2 untranslated, 2 plural"
        " forms without a placeholder, 2 obsolete, 1 of 2 files without a pair"
    ).removeprefix(", ") in caplog.text
    data = DataConfig(
        dataset="files", train_files=(pattern,), target_language="ru"
    )
    with pytest.raises(ValueError, match="en and ru. Received: de, en, fr$"):
        read_split(data, "train")
    with pytest.raises(FileNotFoundError, match=r"No such file: .*\*.mo"):
        records.find_record_files(str(tmp_path / "*.mo"))


XLIFF = """<?xml version="1.0"?>
<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2">
<x:file source-language="en-US" target-language="de" original="a">
<x:body><x:group id="g">{}</x:group></x:body></x:file></x:xliff>"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0"
version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="u">{}</unit>
</file></xliff>"""
TS = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE TS>
<TS version="2.1" language="de_DE"><context><name>A</name>{}</context></TS>"""


def unit(source, target, states="", own="", segments=""):
    return (
        f'<x:trans-unit id="1" {own}><x:source>{source}</x:source>'
        f"{segments}<x:target {states}>{target}</x:target><x:alt-trans>"
        "<x:target>no</x:target></x:alt-trans></x:trans-unit>"
    )


def marks(*texts):
    return " ".join(
        f'<x:mrk mtype="seg" mid="{number}">{text}</x:mrk>'
        for number, text in enumerate(texts)
    )


def segment(source, target, state=""):
    return (
        f"<segment {state}><source>{source}</source><target>{target}</target>"
        "</segment>"
    )


def message(source, translation, kind=""):
    return (
        f"<message><source>{source}</source><comment>x</comment>"
        f"<translation {kind}>{translation}</translation></message>"
    )


def forms(*texts):
    return "".join(f"<numerusform>{text}</numerusform>" for text in texts)


XML = [
    ("xlf", XLIFF, unit("a &amp; b", "c &lt; d"), ("a & b", "c < d")),
    ("xliff", XLIFF, unit("a", ""), "untranslated"),
    ("xlf", XLIFF, unit("", "a"), "without a source"),
    ("xlf", XLIFF, '<x:trans-unit id="1"><x:source>a</x:source>'
     "</x:trans-unit>", "untranslated"),
    *(("xlf", XLIFF, unit("a", "b", f'state="{state}"'), wanted)
      for state, wanted in (
        ("new", "untranslated"), ("needs-translation", "untranslated"),
        ("needs-adaptation", "fuzzy"), ("needs-review-l10n", "fuzzy"),
        ("translated", ("a", "b")), ("signed-off", ("a", "b")),
        ("final", ("a", "b")))),
    *(("xlf", XLIFF, unit("a", "b", *attributes), wanted)
      for attributes, wanted in (
        (('state="translated" state-qualifier="mt-suggestion"',), "fuzzy"),
        (('state-qualifier="rejected-grammar"',), "fuzzy"),
        (('state-qualifier="exact-match"',), ("a", "b")),
        (('state="final" state-qualifier="leveraged-mt"',), ("a", "b")),
        (("", 'approved="no"'), "fuzzy"), (("", 'approved="yes"'), ("a", "b")),
        (('state="translated"', 'approved="no"'), ("a", "b")),
        (("", 'translate="no"'), "locked"))),
    ("xlf", XLIFF.replace('id="g"', 'translate="no"'), unit("a", "b"),
     "locked"),
    ("xlf", XLIFF.replace('id="g"', 'translate="no"'),
     unit("a", "b", "", 'translate="yes"'), ("a", "b")),
    ("xlf", XLIFF, unit("&lt;b&gt;Save&lt;/b&gt; the&amp;nbsp;book"
     "&lt;br/&gt;now", "<![CDATA[<p>Speichern</p>]]>"),
     ("Save the\xa0book now", "Speichern")),
    ("xlf", XLIFF, unit("E&amp;xit", "B&amp;eenden"), ("Exit", "Beenden")),
    ("xlf", XLIFF, unit("{n, plural, other {# books}}",
                        "{n, plural, other {# Bücher}}"), "ICU messages"),
    ("xlf", XLIFF, unit("the<x:it pos='begin'>{\\tab}</x:it>button<x:bpt>"
     "{\\b </x:bpt>s<x:ept>}</x:ept><x:bpt>&lt;p></x:bpt>now", "b"),
     ("the buttons now", "b")),
    ("xlf", XLIFF, unit(
        '<x:g id="1">One</x:g><x:x id="2"/>two <x:bpt id="3">{\\b</x:bpt>!',
        '<x:mrk mtype="seg" mid="1">Eins</x:mrk> <x:mrk mtype="seg">zwei'
        "</x:mrk>"), ("One two !", "Eins zwei")),
    ("xlf", XLIFF.replace('id="g"', 'restype="x-gettext-plurals"'),
     unit("%d", "eine") + unit("%d", "%d"), ("%d", "%d")),
    *(("xlf", XLIFF, unit("A. B.", target, segments="<x:seg-source>"
       + marks("A.", "B.") + "</x:seg-source>"), wanted)
      for target, wanted in (
        (marks("C."), ("A.", "C.")), (marks("C.", ""), ("A.", "C.")),
        (marks("", "D."), ("B.", "D.")), (marks("", ""), "untranslated"),
        ("C. D.", ("A. B.", "C. D.")),
        (marks("", "C.", "D."), "untranslated"),
        (marks("C.", "D.", "E."), ("A. B.", "C. D. E.")))),
    ("xlf", XLIFF, unit("A. B.", marks("C.", "")), "untranslated"),
    ("xlf", XLIFF, unit(marks("A.", "B."), marks("C.", "")), ("A.", "C.")),
    ("xlf", XLIFF_2, segment("a <pc id='1'>b</pc>", "c<ph id='2'/>d"),
     ("a b", "c d")),
    *(("xliff", XLIFF_2, segment("a", "b", f'state="{state}"'), wanted)
      for state, wanted in (
        ("initial", "untranslated"), ("translated", ("a", "b")),
        ("reviewed", ("a", "b")), ("final", ("a", "b")))),
    ("ts", TS, message("&amp;File", "&amp;Datei"), ("File", "Datei")),
    ("ts", TS, message("&lt;p&gt;One &lt;b&gt;d&lt;/b&gt;og&lt;/p&gt;&lt;p&gt;"
     "two.&lt;br/&gt;Three&lt;/p&gt;", "a"), ("One dog two. Three", "a")),
    ("ts", TS, "<message><source>a</source></message>", "untranslated"),
    ("ts", TS, message("&amp;File", "文件(&amp;F)"), ("File", "文件")),
    ("ts", TS, message("E&amp;xit", "退出 (&amp;X)..."), ("Exit", "退出...")),
    ("ts", TS, message("Ab&amp;Cd\\n_x_", "A&amp;B"), ("Ab&Cd _x_", "A&B")),
    ("ts", TS, message("a", ""), "untranslated"),
    ("ts", TS, message("a", "", 'type="unfinished"'), "untranslated"),
    ("ts", TS, message("a", "b", 'type="unfinished"'), "fuzzy"),
    ("ts", TS, message("a", "b", 'type="vanished"'), "obsolete"),
    ("ts", TS, message("a", "b", 'type="obsolete"'), "obsolete"),
    ("ts", TS, message("a", "<lengthvariant>long</lengthvariant>"
                       "<lengthvariant>l</lengthvariant>"), ("a", "long")),
    ("ts", TS, message("%n file(s)", forms("Eine Datei", "%n Dateien")),
     ("%n file(s)", "%n Dateien")),
    ("ts", TS, message("%n file(s)", forms("", "")), "untranslated"),
    ("ts", TS.replace("de_DE", "fr"), message("a", "b"),
     "without one of the languages"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "frame", "content", "wanted"), XML)
def test_states_of_xml(ending, frame, content, wanted, tmp_path):
    path = tmp_path / f"a.{ending}"
    path.write_text(frame.format(content))
    pairs, reasons = read(path)
    if isinstance(wanted, str):
        assert pairs == [] and set(reasons) == {wanted}
    else:
        assert pairs == [wanted]
        others = {"plural forms without a placeholder", "untranslated"}
        assert reasons.keys() <= others


CREDITS = [
    ("", "translator-credits", "Jane Doe"),
    ("", "translator_credits", "Jane Doe"),
    ("NAME OF TRANSLATORS", "Your names", "Jane Doe,John Roe"),
    ("", "Your emails", "jane, john"),
    ("", r"_: ROLES OF TRANSLATORS\nYour roles", "Autor"),
    ("MOZ_LANGPACK_CONTRIBUTORS", "x", "Jane"),
    ("credit.translation", "x", "Jane"),
    ("", "CREDIT_FOR_TRANSLATORS", "<para>Jane</para>"),
    ("", "Report bugs to <a@b.org>.", "Fehler an <a@b.org>, <de@c.org>."),
]
KEPT = [
    ("Your name", "Ihr Name"),
    ("Translator credits", "Übersetzer"),
    ("Write to a@b.org", "Schreiben Sie an a@b.org"),
    ("menu|Open", "Öffnen"),
    ("Yes | No", "Ja/Nein"),
    ("a|b", "c|d"),
    (r"_: verb\nOpen", "Öffnen"),
    ("Close", "Schließen|/|$[case gen Schließens]"),
]
# What remains of them.
READ = [*KEPT[:3], ("Open", "Öffnen"), *KEPT[4:6], ("Open", "Öffnen"),
        ("Close", "Schließen")]  # fmt: skip


def test_what_names_translators_is_no_pair(tmp_path):
    """Contexts and KDE's scripts inside of texts are removed."""
    text = "\n".join(
        f'msgctxt "{context}"\nmsgid "{source}"\nmsgstr "{target}"\n'
        for context, source, target in [
            *CREDITS,
            *(("c", *pair) for pair in KEPT[:6]),
            *(("d", *pair) for pair in KEPT[6:]),
        ]
    ).replace('msgctxt ""\n', "")
    wanted = READ, {"names or addresses of translators": len(CREDITS)}
    path = tmp_path / "a.po"
    for mark, charset in (("", "utf-8"), ("\ufeff", "utf-8"), ("", "utf-16")):
        path.write_bytes((mark + catalogue("de", text)).encode(charset))
        assert read(path) == wanted
    path = compiled(tmp_path / "a.mo", catalogue("de", text))
    pairs, reasons = read(path)
    assert (sorted(pairs), reasons) == (sorted(READ), wanted[1])
    path = tmp_path / "a.ts"
    path.write_text(TS.format(message("Your names", "J").replace(
        "<comment>x", "<comment>NAME OF TRANSLATORS")))  # fmt: skip
    assert read(path) == ([], {"names or addresses of translators": 1})


GETTEXT = (struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 44)
           + struct.pack("<4I", 1, 44, 1, 46) + b"a\0b\0")  # fmt: skip
BROKEN = [
    ("po", b'msgid "a"\nmsgstr "b"\nmsgid a\n', ", line 3: expected a keyword"),
    ("po", b'msgid "a"\nmsgstr "\xff"\n', ", line 2 is not UTF-8"),
    ("po", catalogue().replace("UTF-8", "none").encode(),
     ": expected the name of a charset. Received: charset='none'"),
    ("po", b'msgid "a"\nmsgstr "b"\nmsgstr "c"\n', ", line 1: expected a mess"),
    ("po", catalogue().replace("n != 1", "n +").encode(), ": Plural-Forms"),
    ("mo", b"", ": expected a catalogue of gettext"),
    ("mo", b"\xde\x12\x04\x95", ", message 1: unpack_from"),
    ("mo", GETTEXT[::-1], ": expected a catalogue of gettext"),
    ("mo", GETTEXT[:-3], ", message 1: its text is outside of the file"),
    ("mo", GETTEXT[:30], ", message 1: unpack_from"),
    ("mo", GETTEXT[:44] + b"a\0\xff\0", ", message 1: 'utf-8' codec"),
    ("mo", GETTEXT[:4] + b"\0\0\2\0" + GETTEXT[8:], ": expected version 0 or"),
    ("mo", GETTEXT[:8] + b"\xff" * 4 + GETTEXT[12:], ", message 2: "),
    ("mo", GETTEXT[:28] + struct.pack("<4I", 0, 44, 14, 44)
     + b"charset=rot13\0", ", message 1: 'rot-13' is not a text encoding"),
    ("mo", GETTEXT[:4] + struct.pack("<11I", 1, *[0] * 7, 3 << 30, 0, 0),
     ", message 1: 3,221,225,472 others are not in the file"),
    ("mo", struct.pack("<7I", 0x950412DE, 0, 50, 28, 428, 0, 0)
     + struct.pack("<2I", 800, 828) * 100 + b"a" * 801,
     ", message 11: it shares too many texts"),
    ("ts", b"<TS a='b'>" * 51, ", line 1: .*50 elements in another"),
    ("xlf", XLIFF.format("<x:trans-unit>").encode(), ", line 4: expected XLI"),
    ("xlf", b'<!DOCTYPE x [<!ENTITY a "b">]><x/>', ", line 1: .*entity &a;"),
    ("xlf", XLIFF_2.format("<segment>" * 51).encode(), ", line 2: .*50 eleme"),
    ("xlf", b"<html/>", ": expected pairs of en and de. Received: none"),
    ("ts", b"export const a = 1;", ", line 1: expected Qt's TS"),
    ("ts", b"", ", line 1: expected Qt's TS"),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "content", "error"), BROKEN)
def test_what_cannot_be_read_is_one_line(ending, content, error, tmp_path):
    path = tmp_path / f"de.{ending}"
    path.write_bytes(content)
    data = DataConfig(dataset="files", train_files=(str(path),))
    with pytest.raises(ValueError, match=f"^{path}{error}") as raised:
        read_split(data, "train")
    assert "\n" not in str(raised.value)


def test_the_charset_of_a_compiled_catalogue(tmp_path):
    text = catalogue("de", 'msgid "a"\nmsgstr "\u00e4"\n')
    path = compiled(tmp_path / "a.mo", text)
    assert read(path) == ([("a", "\u00e4")], {})
    data = path.read_bytes().replace(b"utf-8", b"LATIN")
    path.write_bytes(data.replace(b"LATIN", b"cp437"))
    assert read(path)[0] == [("a", "\u251c\u00f1")]


def test_the_numbers_of_inttypes_are_counted(tmp_path):
    """They are in separate tables from version 0.1 on."""
    path = tmp_path / "de.mo"
    head = struct.pack("<12I", 0x950412DE, 1, 1, 48, 56, *[0] * 4, 3, 0, 0)
    tables = struct.pack("<4I", 1, 64, 1, 66)
    path.write_bytes(head + tables + b"a\0b\0")
    assert read(path) == ([("a", "b")], {"system-dependent": 3})
