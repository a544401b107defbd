"""Files of programs' messages: values are translated, all else stays."""

import pytest
from capitals import align, capitals
from document_cases import marked, translate_with

from keras_transformer import documents


def read(data, format, **options):
    document = documents.parse(data, format, "en", **options)
    same = document.write_bytes(document.sentences)[0]
    assert same == (data if isinstance(data, bytes) else data.encode())
    return document, documents.translate(document, capitals, align)


XML = '<?xml version="1.0" encoding="utf-8"?>\n'
PLIST = (
    XML + '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"'
    ' "http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n'
)
# The format that the content has, a text with marked words, what is left.
FILES = {
    "report app.json": (
        "json",
        '{\n  "greeting": "«The child sleeps.»",\n'
        '  "save_button": "«Save the book»",\n'
        '  "count": "«You have» {{count}} «dogs.»"\n}\n',
        [],
    ),
    "a key with a dot": ("json", '{"a.b": "«The child sleeps.»"}\n', []),
    "JSON of any form": (
        "json",
        '{"a" : {"b":["«one dog»",2,\t"«two»\\n«dogs»"]},"a":"«again»",\n'
        '"é": "", "n":1.50, "c":"\\u003cb>«Hi»\\u003c\\/b> «\\"you\\"»",'
        ' "d":"1"}',
        ["without words"],
    ),
    "JSON with values that are no text": (
        "json",
        '{"lang": "«en→de»", "color": "#fff", "icon": "img/dog.png",'
        ' "type": "two_dogs", "a": "«The dog. and/or the cat»"}',
        ["without words"] * 3,
    ),
    "a list of FormatJS": (
        "json",
        '[{"id": "a.b", "defaultMessage": "«The dog»", "description": "no"}]',
        ["metadata"] * 2,
    ),
    "JSON in ASCII": (
        "json",
        '["«caf\\u00e9→CAF\\u00c9» \\ud83d\\ude06", "half \\ud83d"]',
        ["half of a surrogate pair"],
    ),
    "ARB": (
        "json",
        '{"@@locale": "«en→de»", "@@x": "no", "n":'
        ' "{n, plural, one {# «dog»} other {# «dogs»}}",\n "@n":'
        ' {"description": "a note", "placeholders": {"n": {"type": "int"}}}}',
        ["metadata"] * 3,
    ),
    "Chrome's messages": (
        "json",
        '{"a": {"message": "«The child»", "description": "a note"},\n'
        ' "b": {"message": "«The man»"}}',
        ["metadata"],
    ),
    "report app.properties": (
        "properties",
        "# comment\ngreeting=«The child sleeps.»\n"
        "save.button=«Save the book»\n",
        [],
    ),
    "properties": (
        "properties",
        "! no\r\nab.c = «It''s» {0} «dog»\\: «yes»\r\nempty=\r\n"
        "d.e =  «the dog»\\n«l'enfant»\r\n"
        "f=\\ «the\\\n   dog→THEDOG» \\ud83d\\ude06 «\\u00e9→\\u00c9»\n",
        [],
    ),
    "strings": (
        "strings",
        '/* "a" = "b"; */\n"key" = "«The child»\\n«says \\"hi\\"» %@ %2$d";\n'
        '// "c"\nNSName = "«caf\\U00e9→CAFÉ»";"d"="";\n',
        [],
    ),
    "Android": (
        "android",
        XML + '<resources xmlns:xliff="urn:x">\n  <!-- "a" <b> note -->\n'
        '  <string name="a">«It\\\'s» <b>«the child»</b>\\n«and» &amp;'
        ' <xliff:g id="x" example="y">%1$s</xliff:g>.</string>\n'
        '  <string name="b" translatable="false">no</string>\n'
        '  <string name="c">«"The dog"→THE DOG»</string>\n'
        '  <string name="d"><![CDATA[«The» <b>«child»</b>]]></string>\n'
        '  <string name="e">&lt;b&gt;«Hi»&lt;/b&gt; %s</string>\n'
        '  <string name="f">@string/a</string><string name="g"/>\n'
        '  <plurals name="p"><item quantity="one">%d «dog»</item>\n'
        '  <item quantity="other">%d «dogs»</item></plurals>\n'
        '  <string-array name="q"><item>«red»</item></string-array>\n'
        '  <string name="h">«The»<!-- a dog --> «cat»</string>\n'
        '  <style name="s"><item name="x">bold</item></style>\n</resources>\n',
        ["locked", "reference"],
    ),
    "resx": (
        "resx",
        XML + '<root>\n<resheader name="v"><value>two</value></resheader>\n'
        '<data name="a" xml:space="preserve"><value>«The child» &amp; {0}'
        "</value><comment>a note</comment></data>\n"
        '<data name="i" type="Icon"><value>abc</value></data>\n'
        '<data name=">>b.Name"><value>button</value></data></root>',
        ["comment"],
    ),
    "stringsdict": (
        "stringsdict",
        PLIST + "<plist><!-- no --><dict><key>k</key><dict>\n"
        "<key>NSStringLocalizedFormatKey</key><string>«You have» %d</string>\n"
        "<key>n</key><dict><key>NSStringFormatSpecTypeKey</key>"
        "<string>NSStringPluralRuleType</string>\n<key>one</key>"
        "<string>%d «file»</string><key>other</key><string>%d «files»</string>"
        "</dict></dict></dict></plist>",
        [],
    ),
    "YAML": (
        "yaml",
        '# a note\n«en→de»:\n  a: «The child»\n  b: "«q» \\"«x»\\" %{n}"\n'
        "  c: '«it''s»'\n  d: |\n    «line one»\n    «line two»\n\n  # note\n"
        '  e: «>-\n    folded\n    text→"FOLDED TEXT"»\n  f: &x "«one»"\n'
        "  g: *x\n  h: 5\n  i: [«red→RED», 3, !ruby/sym no]\n"
        '  j: «The child, said→"THE CHILD, SAID"»\n',
        [],
    ),
    "Fluent": (
        "fluent",
        "### note\n-brand = «Fire»\n    .gender = female\n"
        "hello = «Hello,» { $name }!\n    «Second line» { -brand }.\n"
        "    .title = «A title»\n    .accesskey = H\n"
        "n = «You have» { $n ->\n    [one] «one dog»\n"
        "   *[other] { $n } «dogs»\n } «here.»\n",
        ["attribute"] * 2,
    ),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_values_are_translated(case):
    format, text, reasons = case
    source, expected = marked(text)
    assert documents.detect("", source.encode()) == format
    document, found = read(source, format, target="de")
    assert found.text == expected
    assert [unread.reason for unread in document.left] == reasons


# Each is a known format that no reader reads, or one with a reader.
REFUSED = {
    "report paper.tex": "\\documentclass{article}\n\\begin{document}\n",
    "report song.lrc": "[ti:The child]\n[00:12.00]The child sleeps.\n",
    "a chapter": "% for the book\n\\section{The child}\nIt sleeps.\n",
    "BibTeX": "@book{dog2020,\n title={The dog}\n}\n",
    "LRC without a head": "[00:12]The child sleeps.\n",
    "MicroDVD": "{0}{25}The child sleeps.\n",
    "MPL2": "[10][20]The child\n[30][40]The dog\n",
    "SBV": "0:00:01.000,0:00:03.000\nThe child\n",
    "TMPlayer": "00:00:01:The child\n00:00:03:The dog\n",
    "INI": "; note\n[main]\ntitle = The child\n",
    "a desktop entry": "[Desktop Entry]\nName=The child\nName[de]=Kind\n",
    "TOML": 'title = "The child"\n',
    "CSV": "id,en,de\n1,The child,Das Kind\n",
    "CSV with semicolons": 'key;text\na;"The child"\n',
    "CSV of languages": "en, de\nHello,world\n",
    "CSV in quotation marks": '"The dog","Hund"\n"The cat","Katze"\n',
    "CSV of three columns": "a,dog,Hund\nb,cat,Katze\n",
    "a table with tabs": "key\ttext\na\tThe dog, a big one\n",
    "SQL": "-- note\nINSERT INTO dogs VALUES ('The child');\n",
    "Python": "# note\ndef greet(name):\n    return 'The child'\n",
    "Java": "package a.b;\n\npublic class Dog {\n}\n",
    "JavaScript": "export default {\n  greeting: 'The child',\n};\n",
    "C": "#include <stdio.h>\nint main() {}\n",
    "PHP": "<?php\nreturn ['a' => 'The child'];\n",
    "a shell's": "#!/bin/sh\necho The child\n",
    "CSS": "p.a { color: red; }\n",
    "JSON with comments": '// note\n{\n  "a": "The child"\n}\n',
    "a string catalogue": '{\n  "sourceLanguage" : "en",\n  "strings" : {}\n}',
    "TTML": '<tt xmlns="http://www.w3.org/ns/ttml"><body/></tt>',
    "XML of others": "<note><to>Anna</to></note>",
    "a property list": PLIST + "<plist><dict/></plist>",
    "RTF of Unicode": "{\\urtf1 a}",
    "JSON with a comment inside": '{\n  // note\n  "a": "The child"\n}\n',
    "a patch": "--- a/dog.txt\n+++ b/dog.txt\n@@ -1 +1 @@\n-dog\n+cat\n",
    "a Dockerfile": "FROM python:3\nRUN echo The child\n",
    "Lua": 'local L = {}\nL["dog"] = "The dog"\n',
    "SAMI": "<SAMI>\n<BODY>\n<SYNC Start=1><P>The child\n",
    "a page of a manual": '.\\" note\n.TH DOG 1\n',
    "AsciiDoc": "= The dog\n\nIt sleeps.\n",
    "reStructuredText": ".. note::\n\n   The child\n",
}
TEXTS = {
    "a list": "Name: Anna\nAge: 12\nCity: Rome\n",
    "a list in a list": "Address:\n  Street: Main road\n  City: Rome\n",
    "a chat": "anna: hi\nben: hello, how are you?\nanna: fine\n",
    "a chat with times": "[12:30] Anna: hello\n[12:31] Ben: hi\n",
    "a chat with seconds": "[12:30:45] Anna: hello\n",
    "a chat with names in brackets": "<anna> hello\n<ben> hi\n",
    "a list in a text": "to do:\n- note: milk\n",
    "a recipe": "ingredients:\n- 2 eggs\n- milk\n",
    "braces": "{Note: the child sleeps.}",
    "a placeholder": "{x} is a number.",
    "brackets": '["quoted" words] are here',
    "an equation": "x = 5\nE = mc2\n",
    "words of SQL": "Select a word from the list.",
    "words of code": "use a dog; class notes:\n- let us go = fun\n",
    "imports": "import duties are high; export duties are low.\n",
    "a reply": "[Re: your mail]\nHello Anna.\n",
    "citations": "[1][2] say so.",
    "a stage direction": "[Scene 1]\n\nThe child = sleeps\n",
    "lists with commas": "roses,red\nviolets,blue\n",
    "a list with commas": "red,green,blue\n\nThe dog, too.\n",
    "a letter with commas": "Well,I think so.\nYes,me too.\n",
    "numbers": "3.14 2.71 1.41 are numbers.\n$5: cheap; $9: not.\n",
    "a poem": "Roses are red,\nViolets are blue,\n",
    "no tag": "<none of these> is right.",
    "a mention": "@anna hello\n#winning is fun\n",
    "a letter": "Subject: the dog\n\nDear Anna,\n",
}
MARKDOWN = {
    "indented code": "# Title\n\n    import foo\n    from a import b\n",
    "fenced code": "# Title\n\n```yaml\nen:\n  a: The child\n```\n",
    "MDX": "import T from '@t'\n\n# Title\n",
    "front matter": "---\ntitle: The child\nlist:\n  a: b\n---\nThe man.\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_formats_without_a_reader_are_no_text(text):
    with pytest.raises(ValueError, match="a known format: .* Received: "):
        documents.parse(text, "auto")
    assert documents.parse(text, "text")  # if one says so


@pytest.mark.parametrize("name", ["a.tex", "a.sql", "A.PY", "a.rst", "a.plist"])
def test_suffixes_without_a_reader_are_no_text(name):
    with pytest.raises(ValueError, match="a known format: .*the suffix"):
        documents.detect(name, b"The child sleeps.")


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("yaml", "# note\nversion: 1\nen:\n  greeting: The child\n"),
        ("yaml", '---\ngreeting: "The child"\nsave_button: Save\n'),
        ("yaml", "labels:\n- name: The child\n"),
        ("yaml", "- name: The child\n  title: x\n"),
        ("json", '{\n  "greeting "The child",\n'),
        ("json", '["The child", "The man"]'),
        ("strings", '/* note */\n"a"="The child";\n'),
        ("fluent", "# note\nhello = { -brand } sleeps\n"),
        ("properties", "! note\na.b = The child \\\n  sleeps\nc=d\n"),
        ("html", "<p>The child</p>"),
        ("html", '<tr class="a"><td>The child'),
    ],
)
def test_formats_by_their_content(format, text):
    assert documents.detect("", text.encode()) == format


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_prose_is_text(text):
    assert documents.detect("", text.encode()) == "text"


@pytest.mark.parametrize("text", MARKDOWN.values(), ids=MARKDOWN)
def test_markdown_with_code_is_markdown(text):
    assert documents.detect("", text.encode()) == "markdown"


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("json", '{"a": "b",\n}'),
        ("json", "[" * 100_000),
        ("yaml", "a: b\n c: [\n"),
        ("yaml", "[" * 10_000),
        ("strings", '"a" = "b";\n"c" = d e;\n'),
        ("fluent", "a = b\nc d\n"),
        ("fluent", "a = " + "{" * 3000),
        ("android", "<resources>\n<string>a</resources>"),
        ("stringsdict", PLIST + "<plist>"),
    ],
)
def test_what_is_malformed_is_refused(format, text):
    with pytest.raises(ValueError, match="line [23]|less nesting|max"):
        documents.parse(text, format)


def test_an_extra_that_is_missing_is_named(monkeypatch):
    documents.check_installed.cache_clear()
    monkeypatch.setitem(documents.LIBRARIES, "localization", "ruamel.nope")
    with pytest.raises(ValueError, match="extra 'localization': .*pip install"):
        documents.parse("a: b", "yaml")
    assert documents.parse('["a"]', "json").sentences  # which needs none
    documents.check_installed.cache_clear()


def test_a_translation_that_breaks_its_format_is_escaped_or_refused():
    """The translator writes signs that each format must escape."""
    answer = '\'\\ "q" <b> & # : @ = -'
    for format, text in {
        "json": '{"a": "dog"}',
        "yaml": "a: dog\nb: 'dog'\nc: |\n  dog\n",
        "properties": "a=dog\n",
        "strings": '"a" = "dog";',
        "android": "<resources><string>dog</string></resources>",
        "resx": "<root><data><value>dog</value></data></root>",
        "stringsdict": PLIST + "<plist><string>dog</string></plist>",
    }.items():
        document = documents.parse(text, format)
        written = translate_with(document, lambda s: [answer] * len(s)).text
        again = documents.parse(written, format)
        values = {c.text.rstrip("\n") for _, c in again._checked}
        assert values == {answer}, written
    document = documents.parse("a = dog\n  cat\n", "fluent")
    found = translate_with(document, lambda s: ["} DOG", "[CAT"])
    assert documents.parse(found.text, "fluent").sentences


@pytest.mark.parametrize("name", ["{name}", "{{name}}", "%{name}", "@name"])
def test_a_percent_sign_beside_a_name_is_a_percent_sign(name):
    document = documents.parse(f'{{"a": "50% off for {name}"}}', "json")
    found = translate_with(document, lambda texts: [f"50 % Rabatt, {name}"])
    assert found.text == f'{{"a": "50 % Rabatt, {name}"}}'
