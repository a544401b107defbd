"""Features of real files: texts are translated or counted, the rest stays."""

import collections
import re

import lxml.etree
import polib
import pytest
from capitals import align, capitals
from document_cases import marked, translate_with

from keras_transformer import documents
from keras_transformer.documents.document import REFUSED


def translate(data, format, **options):
    document = documents.parse(data, format, "en", **options)
    same = documents.parse(data, format, "en", **options)
    found = documents.translate(document, capitals, align)
    if format not in documents.WITH_TRANSLATIONS:
        data = data if isinstance(data, bytes) else data.encode()
        assert same.write_bytes(same.sentences)[0] == data
    return document, found


def left(document):
    return [(unread.line, unread.reason) for unread in document.left]


# A text with marked words, and the lines and reasons of what is left.
SUBTITLES = {
    "no blank lines": (
        "1\n00:00:00,333 --> 00:00:01,300\n«The child»\n2\n"
        "00:00:01,300 --> 00:00:02,400\n«The man.»\n3\n"
        "00:00:02,500 --> 00:00:03,400\n42\n",
        [(9, "without words")],
    ),
    "blank lines in cues": (
        "1\n00:22:10,440 --> 00:22:15,195\n«The child,\n\nthe man.»\n\n2\n"
        "00:22:15,960 --> 00:22:19,157\n\n«The tea.»\n\n3\n"
        "00:22:20,000 --> 00:22:21,000\n\u2028«The old.»\n\n4\n"
        "00:22:22,000 --> 00:22:23,000\n«The tired.»\n",
        [],
    ),
    "times without milliseconds, a cue without text": (
        "1\r\n00:00:01 --> 00:00:02\r\n«Hello.»\r\n\r\n2\r\n"
        "0:03,5 --> 0:04,5 X1:3\r\n\r\n3\r\n00:00:05. --> 00:00:06\r\n"
        "- «Hi.»\r\n- «Who\r\nis it?»",
        [(6, "cue without text")],
    ),
    "a number in a cue": (
        "7\n0:01,0 --> 0:02,0\n«In»\n1984\n\n8\n0:03,0 --> 0:04,0\n«It is»\n12",
        [],
    ),
    "WebVTT": (
        "WEBVTT - A title\n\nNOTE A note\nto read\n\nSTYLE\n::cue {}\n\n"
        "REGION\nid:fred\n\nintro\n00:01.000 --> 00:02.000 align:start\n"
        "<v.loud Roger B>«We» &amp; <lang fr>«la ville»</lang> <c.red>«A»"
        " &lt; «b»</c>\n\nlost\n\n00:02.000 --> 00:03.000\n"
        "«Now» <00:02.500>«it» <ruby>«is»<rt>was</rt></ruby> «here»\n",
        [(3, "NOTE"), (16, "text outside cues"), (19, "ruby")],
    ),
}
DIALOGUE = (
    "[Script Info]\nTitle: x\n\n[Events]\nFormat: Layer, Start, Style, Text\n"
    "Comment: 0,0:01,Default,no\nDialogue: 0,0:01,Default,"
    "{\\i1}«Hello,»{\\i0} «my»\\N«friend, go.»\n"
    "Dialogue: 0,0:02,Default,{\\p1}m 0 l 1\n"
)
MARKS = (
    "• ◦ ▪ ⇒ ★ ☐ ✓ ✅ ➢ ❖ — ※ § 👉🏽 (a) (1) [1] 1. 1) 1.) 1/ 1.- a. a) ii. iv)"
    " 1.1 1.2.3 1.1. [ ] [x] 1️⃣ ①"
)
LISTS = {
    "marks of lists": (
        "  "
        + "\n".join(f"{mark} «The dog»" for mark in MARKS.split(" "))
        + "\n- [ ] «The man»\n•«The child»\n・«ネコ a»\n（1）«猫 a»\n一、«b»",
        [],
    ),
    "text that looks like marks": (
        "\n".join(
            f"«{text}»"
            for text in (
                "A. Smith reads.",
                "I. The king",
                "3.5 km is far",
                "3.5 GB is much",
                "1984 was bad.",
                "e. g. dogs",
                "« a »",
                "$ 5 million",
                "½ cup",
                "-5 degrees",
                "... and so",
            )
        ),
        [],
    ),
}
# Stops that end no sentence: «words» are a sentence each.
STOPS = {
    "en": "«See Vol. 3 and approx. 5 dogs.» «He uses it.» «iPhones run.»",
    "en_US": "«hi.» «how are you?» «See J. R. Smith and Figs. 2 and 3.»",
    "fr": "«M. Dupont dort.» «Jésus-Christ, ou J.-C. est né.» «J. Dupont lit"
    " p. 5, etc. et fig. 2.» «La vitamine C.» «Le chien dort.»",
    "de": "«Am 3. Mai schläft z. B. das Kind.» «Im 19. Jahrhundert, Nr. 5"
    " usw. und.» «Es war der 3.» «Der Hund inkl. Maus.»",
    "cs": "«Dne 3. května spí.»",
    "hu": "«Az 1848. március 3. napja, kb. 5 kutya stb. és dr. Nagy.»",
    "pl": "«Pies śpi od 3. maja, tj. długo, np. u św. Jana, ul. Długa, nr. 5.»",
    "ru": "«Собака, т. е. зверь, рис. 2, им. Ленина.»",
    "nl": "«Zie bijv. de hond van mevr. Jansen, afb. 2.»",
    "pt": "«Veja p. 5, pág. 7, etc. e Dr. Costa.»",
}
KARAOKE = (
    DIALOGUE + "Dialogue: 0,0:03,Default,{\\k20}«Do» {\\k15}«you»"
    " {\\k22}«re»{\\k18}«mem»{\\k30}«ber» {\\k25}«me?»\n"
    "Dialogue: 0,0:04,Default,{\\fs40}«T»{\\r}«he» {a note}«child\\Nsleeps.→"
    "CHILD\\NSLEEPS.»\n"
)
KARAOKE_LEFT = [(6, "comment"), (8, "drawing"), (10, "comment")]
VTT_KARAOKE = (
    "WEBVTT\nKind: captions\nLanguage: en\n\n00:01.000 --> 00:02.000\n"
    "«re»<00:01.100>«mem»<00:01.300>«ber»<00:01.500>«<c> me→ <c>ME»</c>\n"
)
TEXTS = {
    "wrapped, with a final line end": (
        "When one reads a text that was copied from a\n"
        "paper in two columns then the lines end at\n"
        "places where no sentence ends. This is bad for\nthe translation.\n",
        2,
    ),
    "two of them": (
        "It was the best of times, it was the worst\nof times for all.\r\n\r\n"
        "It was the age of wisdom, it was the age\nof foolishness, too.\n",
        2,
    ),
    "a poem": ("The child sleeps\nThe man reads\n", 2),
}
PAGES = {
    "an icon": (
        '<button><i class="fa"></i> «The child.»</button>\n'
        '<p>«The man» <i class="icon"></i> «reads.»</p>',
        [],
    ),
    "pairs without words": (
        "<p>«a» <b> </b>«b» <a><img><i></i></a> «c»<em></em></p>",
        [],
    ),
    "codes before signs": (
        "<p>«only» <b><code>x</code> «y»</b>, «or» <i>«z» <kbd>q</kbd></i>."
        " (<br/>«a»)",
        [(1, "code"), (1, "kbd")],
    ),
    "space in a tag that ends a sentence": (
        "<p>«Say» <b>«a word. →A WORD.»</b>«Then→ THEN» <i>«go. →GO.»</i>«→ »",
        [],
    ),
    "ICU": (
        "<p>«Now» {n, plural, one {<b>«one»</b> «dog»} other {# «dogs»}}"
        " «in» {x}.",
        [],
    ),
    "attributes and templates": (
        '<p title="a word" {% if a > b %}c{% endif %}>'
        '«a < b &amp c→A &lt; B &amp; C»<a "',
        [(1, "text of an attribute"), (1, "unfinished tag")],
    ),
    "codes of templates in the text": (
        "<#if a gt 1> {% if a > 1 %} «dog» {% endif %} {% if a < 3 %} «cat»"
        " {if $a > 1}«or 1 > 0→OR 1 &gt; 0»</#if>",
        [],
    ),
    "math, shortcodes and mail": (
        '<p>«The» \\(a + b\\) «dog» \\[x+y\\] $$b_i$$ «and» [b_c id="a/b"] «it»'
        " [vc_row a=1]«in»[/vc_row] «or» *|FNAME|*, [% x %]«, see» \\cite{a}.",
        [],
    ),
    "what is no text": (
        "<style>b</style>\n<pre>code here</pre><p class=notranslate>no</p>9",
        [(2, "pre"), (2, "locked"), (2, "without words")],
    ),
    "translate=yes inside of no": (
        '<div translate="no">git <i translate="yes">«The child» <b'
        ' translate=no>push</b> «sleeps.»</i></div><pre translate="yes">«A»'
        "</pre>",
        [(1, "locked"), (1, "locked")],
    ),
    "readings": (
        "<p>«The» <ruby>«old»<rp>(</rp><rt>sensei</rt><rp>)</rp></ruby>"
        " «man.»<ruby>«a»<rt>b<rp>)</ruby>",
        [(1, "ruby"), (1, "ruby")],
    ),
    "attributes that readers see": (
        '<meta name="description" content="A page">\n'
        '<optgroup label="Small dogs">\n<option label="Red">\n'
        '<input type="submit" value="Send">\n<th abbr="Weight">\n'
        '<track label="English">\n<a aria-valuetext="Ten" data-bs-title="a">\n'
        '<meta name="viewport" content="width"><input type=hidden value="a">'
        '<p id="a" title="&nbsp;" aria-labelledby="b" data-toggle="c">',
        [(i, "text of an attribute") for i in range(1, 8)],
    ),
    "ERB and PHP": (
        '<? a > b ?><p <?php "x>" ?>>«Hello» <%= a["b"] %>, <a href="<%= x > 1'
        ' ? "a" : "b" %>">«the» «dog»</a> <%-- a %> b --%> «runs.»</p>'
        '<?php echo "<p>old</p>";',
        [],
    ),
    "blocks of Angular": (
        "@if (a && (b)) {<p>«Hi» {{ name }}.</p>} @else if (x) {«The»"
        " {{ dog }}} @else { «Tea» {n} }",
        [(1, "without words")],
    ),
    "XHTML": (
        '<html xmlns="http://www.w3.org/1999/xhtml"><script/><title/><iframe/>'
        "<p>«By» &the-author; <![CDATA[«a & <b>»]]><textarea/> «now»</p>"
        '<div translate="no"/><p>«Tea»<hr/>«pot»</p></html>',
        [],
    ),
    "XHTML with entities of its own, and a prefix": (
        '<?xml version="1.0"?><!DOCTYPE html [<!ENTITY a "<b>Tom</b>">]>'
        '<h:html xmlns:h="http://www.w3.org/1999/xhtml"><h:script/>'
        "<h:p>«Tea»</h:p>«pot» &a;</h:html>",
        [(1, "entities")],
    ),
}
MARKDOWN = {
    "badges": (
        "[![Build](https://x.org/b.svg)](https://x.org) «The man.»\n\n"
        "«The child» [![](a.svg)](b) [![](c.svg)](d)\n",
        [(1, "image")],
    ),
    "tasks, footnotes, alerts, admonitions": (
        "- [ ] «The child.»\n- [x] «The man reads»[^1] «a book.»\n\n"
        '> [!NOTE]\n> «The woman.»\n\n!!! warning "«Look out»"\n'
        "    «It sleeps.»\n\n[^1]: «The old man.»\n",
        [],
    ),
    "front matter": (
        "---\r\ntitle: The child\r\n---\r\n\r\n«The man.»\r\n",
        [(1, "front matter")],
    ),
    "front matter in TOML": (
        '+++\ntitle = "The child"\n+++\n«The man.»\n',
        [(1, "front matter")],
    ),
    "math and wiki links": (
        "«For» $5, $x_1$ [[is]] [[a|«one»]] :+1: «and»\n\n$$\nab\n$$\n\n"
        "«No»: $10.\n",
        [(1, "math"), (3, "math")],
    ),
    "tables": (
        "| «a» | «b \\| c» |\n|---|---|\n| `x` «d» | *«e»* \\| «f» |\n",
        [(3, "code")],
    ),
    "MDX and HTML": (
        "import Tabs from '@x/y';\n\n«The» <kbd>A</kbd>.\n\n"
        "<p>«The» <b>«cat»</b>\n</p>\n\n<Tabs id={1}>\n\n"
        "export const a = {b};\n",
        [(1, "code"), (10, "code")],
    ),
    "labels of links": (
        "«See» [«the Spec»]«→[the Spec]»«s,» [«b» *«c»*][«→b *c*»] «or»"
        " [«d»][e] «in» `x`.\n\n«Only» **`.md` «files in» `src/`**.\n\n"
        "[the spec]: u\n[b *c*]: v\n[e]: w\n",
        [(1, "code"), (3, "code"), (3, "code")],
    ),
    "a label in two lines": (
        "- «See» [«the\n  Spec»]«→[the Spec]» «a.»\n\n[the spec]: u\n",
        [],
    ),
    "signs": ("«a ___ b_ c→A \\_\\_\\_ B\\_ C»\n", []),
    "attributes of headings": (
        "# «The» *«child»* {#the_child}\n\n«It's» [«a»](b) {.c_d}\n\n"
        "«No» «\\→»{#a}\n\n«See» {#it}.\n",
        [],
    ),
    "math in brackets": (
        "«The» \\(E = m c^2\\) «is» \\\\(a b\\\\) «or \\(the dog\\)→OR"
        " (THE DOG)»\n\n"
        "\\[ \\int_0^1\n\n= x \\]\n\n- «a»\n  \\begin{align*}\n  a\n"
        "  \\end{align*}\n",
        [(1, "math"), (1, "math"), (3, "math"), (8, "math")],
    ),
    "code between tags": (
        "{{< highlight x >}}\nthe code\n\n    x\n{{< /highlight >}}\n"
        "> {% code %}\n> a\n> {% end_code %}\n\n{% raw %}\n{{ a }} b\n"
        "{% endraw %}\n«The»\n{% if x %}\n«Dog» {{ x }}\n{% endif %}\n"
        '{{< math >}}\n{{< figure alt="A dog" >}}\n«The end»\n{% raw %}\n',
        [(1, "code"), (6, "code"), (10, "code"), (18, "shortcode")],
    ),
    "tables of Pandoc": (
        "«The prices:»\n\n+---+----+\n| A | b  |\n+===+:==:+\n| c | d  |\n"
        "+---+----+\n\n  Right   Left\n-------  -----\n  12     The\n\n"
        "«After.»\n",
        [(3, "table"), (9, "table")],
    ),
    "notes and citations": (
        "«The child» ^[«A» *«b»* `x`^[no] [«c»](d).]"
        " «sleeps» [@smith20, p. 5].\n",
        [(1, "code"), (1, "footnote")],
    ),
    "titles of links": (
        '[«a»](b "The title") <b title="No">«b»</b> ![](c "A dog") [«d»][e]\n\n'
        '[e]: u "A title"\n'
        "[f]: <u>\n  'Two'\n",
        [
            *[(1, "title of a link"), (1, "text of an attribute")],
            (1, "image"),
            *[(3, "title of a link"), (4, "title of a link")],
        ],
    ),
    "signs without escapes": (
        "«a | b [c] d > e * f» C:\\«dir» «a -> b <3»\n\n"
        "«a» [«x»](y) «\\[an aside\\](y) ^→\\[AN ASIDE\\](Y) ^»\n",
        [],
    ),
    "definitions and containers": (
        "«Term»\n: «Its words.»\n\n:::tip Look\n«Here.»\n:::\n\n    code\n",
        [(4, "title of a container"), (8, "code")],
    ),
}


@pytest.mark.parametrize(
    ("format", "case"),
    [
        (format, case)
        for format, cases in (
            ("srt", SUBTITLES),
            ("ass", {"karaoke": (KARAOKE, KARAOKE_LEFT)}),
            ("srt", {"karaoke": (VTT_KARAOKE, [])}),
            (
                "ass",
                {
                    "SubStation Alpha": (
                        DIALOGUE,
                        [(6, "comment"), (8, "drawing")],
                    )
                },
            ),
            ("html", PAGES),
            ("text", LISTS),
            ("markdown", MARKDOWN),
        )
        for case in cases.values()
    ],
)
def test_a_document_becomes(format, case):
    text, reasons = case
    source, expected = marked(text)
    document, found = translate(source, format)
    assert found.text == expected
    assert left(document) == reasons


@pytest.mark.parametrize(
    ("format", "text", "sentences"),
    [
        (
            "markdown",
            "# The *child* {#the_child}\n\nSee {#it}.\n",
            ["The child", "See {#it}."],
        ),
        ("text", "→ The child sleeps.\n", ["The child sleeps."]),
        (
            "ass",
            marked(KARAOKE)[0],
            [
                *["Hello, my friend, go.", "Do you remember me?"],
                "The child sleeps.",
            ],
        ),
        ("srt", marked(VTT_KARAOKE)[0], ["remember me"]),
        ("srt", "0:1,0 --> 0:2,0\n{\\i1}T{\\i0}he dog", ["The dog"]),
        ("ass", marked(DIALOGUE)[0], ["Hello, my friend, go."]),
        (
            "html",
            "<p>Press <button>Save</button> to <x-y>read</x-y> the <s>old</s>"
            "<picture><source><img></picture> <output>book.</output>"
            "<p>It <select><option>sleeps</option></select> now.",
            ["Press Save to read the old book.", "It sleeps now."],
        ),
        (
            "html",
            "<p>The <video><track>film</video> and <select><optgroup><option>a"
            "<option>b</select> end.<p><button>c</button> <button>d</button>",
            ["The and end.", "film", "a", "b", "c", "d"],
        ),
        (
            "html",
            "<p>Press <b><i hidden>Command</i><i hidden=''>Ctrl</i></b>+C to go"
            "<a><span hidden><em>far</em> away</span></a>.",
            ["Press +C to go.", "Command", "Ctrl", "far away"],
        ),
        (
            "html",
            "<p>A steam<wbr>boat, steam<!-- -->boat, steam<a id=p1></a>boat,"
            " steam\u00adboat, steam&shy;boat, steam<script>a</script>boat,"
            " to<img>day.",
            [
                "A steamboat, steamboat, steamboat, steamboat, steamboat,"
                " steamboat, to day.",
            ],
        ),
        ("html", "<p>点击<img>按钮<code>x</code>保存。", ["点击按钮保存。"]),
        ("text", "\ufeffA steam\u00ad\u2060boat.", ["A steamboat."]),
        ("markdown", "A steam<wbr>boat, to<img>day", ["A steamboat, to day"]),
        ("srt", "1\n0:01 --> 0:02\nA steam<wbr>boat", ["A steamboat"]),
    ],
)
def test_what_has_no_width_is_not_in_sentences(format, text, sentences):
    assert documents.parse(text, format).sentences == sentences


def test_subtitles_say_the_language_of_their_translation():
    text = marked(VTT_KARAOKE)[0]
    document = documents.parse(text, "srt", "en", target="pt_BR")
    assert document.write(document.sentences) == text
    found = documents.translate(document, capitals, align)
    assert found.text.startswith("WEBVTT\nKind: captions\nLanguage: pt-BR\n\n")


@pytest.mark.parametrize("language", STOPS)
def test_a_stop_that_ends_no_sentence(language):
    text = STOPS[language]
    document = documents.parse(marked(text)[0], "text", language)
    assert document.sentences == re.findall("«(.*?)»", text)


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS)
def test_text(case):
    text, number = case
    document, found = translate(text, "text")
    assert len(document.sentences) == number
    assert found.text == text.upper()


HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n{}\n'
)
PLURALS = '"Plural-Forms: nplurals={}; plural={};\\n"\n'
RUSSIAN = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2"
FUZZY = "«→#, fuzzy\n»"
DOG = f'{FUZZY}msgid "One dog"\nmsgid_plural "%d dogs"\n'
DOGS = 'msgstr[0] "«→%d DOGS»"\n'
CAT = f'{FUZZY}msgid "%d cat"\nmsgid_plural "%d cats"\n'


def message(text):
    """Makes a row of `MESSAGES`: a text with marked words in one line."""
    source, expected = marked(text)
    entry = f'{FUZZY}msgid "{source}"\nmsgstr "«→{expected}»"\n'
    return "", entry, []


# The header's lines, entries with marked translations, and reasons.
MESSAGES = {
    "escapes": message("\\033[1m«The child.»\\033[0m"),
    "bytes": message("«caf\\xc3\\xa9 \\303\\251→CAFÉ É»: «the»\\a"),
    "line ends that are none": message(
        '«a\u2028b\x85c»\\v«d»\\f«e» \\"«q»\\" \\\\'
    ),
    "indented": (
        "",
        '  «→#, fuzzy\n  »msgid "a b"\n  msgstr "«→A B»"\n',
        [],
    ),
    "one line": ("", f'{FUZZY}msgid "a" " b" msgstr "«→A B»"\n', []),
    "wrapped": (
        "",
        f'{FUZZY}msgid ""\n"A line that was wrapped by hand since it is\\n"\n'
        '"too long to be one.\\n"\nmsgstr ""\n«→'
        '"A LINE THAT WAS WRAPPED BY HAND SINCE IT IS\\n"\n'
        '"TOO LONG TO BE ONE.\\n"\n»',
        [],
    ),
    "half of the forms": (
        PLURALS.format(2, "(n != 1)"),
        DOG + 'msgstr[0] "Ein Hund"\nmsgstr[1] "«→%d DOGS»"\n',
        [(8, "already translated")],
    ),
    "one form": (PLURALS.format(1, "0"), DOG + DOGS, []),
    "a form of 1, 21, ...": (
        PLURALS.format(3, RUSSIAN),
        DOG + DOGS + 'msgstr[1] "«→%d DOGS»"\n'
        f'msgstr[2] "«→%d DOGS»"\n\n{CAT}msgstr[0] "«→%d CAT»"\n'
        'msgstr[1] "«→%d CATS»"\nmsgstr[2] "«→%d CATS»"\n',
        [],
    ),
    "the form of 1 is the second": (
        PLURALS.format(2, "(n == 1)"),
        DOG + DOGS + 'msgstr[1] "«→ONE DOG»"\n',
        [],
    ),
    "forms by the language": ('"Language: ja\\n"\n', DOG + DOGS, []),
    "ICU": (
        "",
        f'{FUZZY}msgid "{{n, plural, one {{<b>a</b> dog}}\\n"\n'
        '"other {<b>#</b> dogs {c, select, x {y} other {}}}} now."\n'
        'msgstr ""\n«→"{n, plural, one {<b>A</b> DOG}\\n"\n'
        '"other {<b>#</b> DOGS {c, select, x {Y} other {}}}} NOW."\n»',
        [],
    ),
    "ICU, quoted and without an end": message(
        "«It's» {n, select, a {«'{x' y»} other {«z»}} «{m, select, a {b»"
    ),
    "HTML": message("«Tom» &amp; <i></i> <b>«Jerry»</b>&nbsp;\\n"),
    "accelerator": message("«A» _«file, B»"),
    "accelerator in a word": message("«E_xit→_EXIT»"),
    "no accelerators": message("«the max_length, R&D»"),
    "`&` between two words": message("«Drag&Drop, Q&A of AT&T, Find&Replace»"),
    "signs of words": message(
        "«the _name_ and→THE _NAME_ AND» __x__ «snake_a»"
    ),
    "names": message(
        "«Welcome», :name! «You have» @count «books at» !link «by» %title."
    ),
    "widths": message("%02d:%02d «dogs in» %5s «of» %,d, %08x «and» %'d"),
    "names of other programs": message(
        "«Hi» %%name%% «and» %recipient.name%, %[a] $[b] [[c]] [% d %] #e#"
        " %1!s! «run»"
    ),
    "tags of games and forums": message(
        "<size=20>«Dogs»</size> «run» [b]«here»[/b] [url=http://x.org]«fast»"
        "[/url] «with file[s]»"
    ),
    "dunder": message("«The» __init__ «method, you have» __count__ «dogs»"),
    "no names": message("«At 10:30 :) a:b foo:bar! 50% R&D c@d»"),
    "Apple": message("%#@a@ «in» %1$#@b@, ^[%lld «dogs»](inflect: true) %arg"),
    "templates": message(
        "«Hi» <%= a.b %>, <?php if (a > 1) { b } ?> «and» @if (c(d)) { «go» }"
        " @else if (e) { «no» } $t(key, {n}) %name%"
    ),
    "written escapes": message(
        r"«It sleeps.»\\n«It runs»\\t«fast\u2026→FAST…» «don\\'t→DON\\'T»"
        r" C:\\«new»"
    ),
    "escapes as words": message(r"«End with» '\\n', \\t «is a tab.»\\n"),
    "words beside C's letters": message(
        "«The» %s_«a of» %d-«bit» %ab_c% @N@-«x»"
    ),
    "Java's apostrophe": message("«It''s» {0}"),
    "quotation marks": message(r"«Use '\\\\' to find '\\' in it's»"),
    "codes": message("«The» <1>«dog»</1> &brand; «sleeps» &amp; «eats»"),
    "no words": ("", 'msgid "%s: 1"\nmsgstr ""\n', [(6, "without words")]),
}
NOT_FOR_POLIB = ("line ends that are none", "one line")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_catalogue_becomes(name, ending):
    header, entries, reasons = MESSAGES[name]
    text = (HEADER.format(header) + entries).replace("\n", ending)
    source, expected = marked(text)
    document, found = translate(source, "po")
    assert found.text == expected
    assert left(document) == reasons
    if name not in NOT_FOR_POLIB:
        parsed = polib.pofile(expected.replace(ending, "\n") + "\n")
        assert all(e.fuzzy for e in parsed if e.translated())


def test_flags_of_obsolete_messages_stay():
    empty = translate_with(
        documents.parse('msgid "a"\nmsgstr ""\n', "po"),
        lambda texts: [""] * len(texts),
    )
    assert empty.text == 'msgid "a"\nmsgstr ""\n'
    text, expected = marked(
        '#, fuzzy\n#~ msgid "a"\n#~ msgstr "b"\n\n'
        '#, x«→, fuzzy»\nmsgid "c"\nmsgstr "«→C»"'
    )
    assert translate(text, "po")[1].text == expected
    # The second message without text is none, either.
    second = f'{text}\n\nmsgid ""\nmsgstr "x"\n'
    assert translate(second, "po")[1].text.endswith('msgid ""\nmsgstr "x"\n')


@pytest.mark.parametrize(
    ("flag", "message", "translation", "is_written"),
    [
        ("c-format", "%s or %d", "%d: %s", True),
        ("c-format", "%1$s or %2$d", "%2$d: %1$s", True),
        ("python-format", "%(a)s by %(b)s", "von %(b)s %(a)s", True),
        ("c-format", "%d files", "50% von %d", False),
        ("c-format", "%d%% done", "%d%% 100%% fertig", True),
        ("c-format", "93% of %s", "93% der %s", False),  # "% o" and "% d"
        ("c-format", "%<PRIu64> of %s", "%s von %<PRIu64>", True),
        ("qt-format", "%1 of %2", "%2 %1", True),
        ("kde-format", "%1 of 5%", "5 % von %1", True),
        ("ycp-format", "It has %1 dogs.", "Es hat %1 Hunde, 5 %.", True),
        ("python-brace-format", "{0}% of it", "{0} % davon", True),
        ("fuzzy, csharp-format", "50% for {0}", "50 % Rabatt für {0}", True),
        ("perl-brace-format", "50% for {a}", "50 % Rabatt für {a}", True),
        ("rust-format", "{} in {:?} 5%", "{} in {:?}, 5 % der", True),
        ("sh-format", "5% of $A or ${B}", "${B} oder 5 % der $A", True),
        ("boost-format", "The %1% or %|2$d| was", "%|2$d| war %1%", True),
        ("boost-format", "The %1% was", "Die %1% war 5%", False),
        ("ruby-format", "%<a>d in %{b}", "%{b} in %<a>d", True),
        ("x", "%<a>s and %<b>.2f sleep", "%<b>.2f und %<a>s", True),
        ("go-format", "%v in %[2]q", "%[2]q in %v", True),
        ("go-format", "%v in %q", "%v in %q %T 5%", False),
        ("object-pascal-format", "%0:s in %1:d", "%1:d in %0:s", True),
        ("lisp-format", "~a in ~d: 5%", "~a in ~d: 5 % ", True),
        ("scheme-format", "~s dogs~%", "~s Hunde", True),
        ("gcc-internal-format", "%<%s%> of %qD", "%<%s%> von %qD", True),
        ("php-format", "%'d of %s", "%'d von %s", True),
        ("possible-c-format", "%d of", "50% von %d", False),
        ("impossible-c-format", "50% of", "50% von", True),
        ("no-c-format", "50% of", "50% von", True),
        ("x", "{a} and %s", "%s und {a}", True),
        ("x", "_Open file_name", "Datei", False),
        ("x", "_Open", "_Neu & _Auf", False),
        ("x", "R&_D", "Auf & zu", True),
        ("x", "Open", "", False),
    ],
)
def test_what_a_program_could_not_use_is_left_and_counted(
    flag, message, translation, is_written
):
    """The checks of `msgfmt --check-format` and `--check-accelerators`."""
    before = f'# A comment.\n#, {flag}\nmsgid "{message}"\nmsgstr '
    others = '"old"\n\nmsgid "A cat"\nmsgstr '
    for replaced in (False, True):
        text = f"{before}{others if replaced else others.replace('old', '')}"
        document = documents.parse(f'{text}""\n', "po", "en", all, replaced)
        found = translate_with(
            document,
            lambda texts: [
                "Katze" if t == "A cat" else translation for t in texts
            ],
        )
        [written] = re.findall('# A comment(?s:.)*?msgstr "(.*)"', found.text)
        assert ("Katze" in found.text) and found.text.count("fuzzy") == 1 + (
            is_written
        )
        if is_written:
            assert left(document) == [] and written not in ("", "old")
            continue
        assert written == "old" * replaced
        assert left(document) == [(4, REFUSED)]
        assert "left: 1 with placeholders or marks" in document.summary()


def test_lost_order_is_placed_by_alignment():
    """A model that swaps placeholders is asked again without them."""
    asked = []

    def answer(texts):
        asked.append(texts)
        return ["%d von %s" if "%" in text else "von" for text in texts]

    text, expected = marked(
        '#, c-format«→, fuzzy»\nmsgid "%s of %d"\nmsgstr "«→%s von %d»"\n'
    )
    found = translate_with(documents.parse(text, "po"), answer)
    assert asked == [["%s of %d"], ["of"]]
    assert found.text == expected


@pytest.mark.parametrize(
    ("message", "translation", "written"),
    [
        ("_File", "ファイル", "ファイル(_F)"),
        ("Save &As...", "名前を付けて保存...", "名前を付けて保存(&A)..."),
        ("E~xit:", "끝내기:", "끝내기(~X):"),
        ("Open _URL", "打开 URL", "打开 URL(_U)"),
        ("开く (_O)…", "Öffnen…", "_Öffnen…"),
        ("退出(&X)", "Exit", "E&xit"),
        ("退出（&X）", "終了", "終了(&X)"),
    ],
)
def test_keys_are_in_brackets_where_letters_are_none(
    message, translation, written
):
    for format, text, sign in (
        ("po", f'msgid "{message}"\nmsgstr ""\n', "&"),
        ("xliff", XLIFF.format(UNIT.format(f"<source>{message}</source>")), ""),
    ):
        amp = sign or "&amp;"
        text = text if sign else text.replace("&", amp)
        document = documents.parse(text, format)
        assert not set("_&~()") & set(document.sentences[0])
        found = translate_with(document, lambda texts: [translation])
        assert written.replace("&", amp) in found.text


XLIFF = '<xliff version="1.2"><file><body>{}</body></file></xliff>'
UNIT = '<trans-unit id="1">{}</trans-unit>'
# What stands after <source>, up to the end of the unit, and reasons.
UNITS = {
    "escaped HTML": (
        "&lt;p&gt;«The» &lt;b&gt;«child»&lt;/b&gt;.&lt;/p&gt;</source>",
        [],
    ),
    "escaped blocks": (
        "&lt;ul&gt;&lt;li&gt;«One»&lt;/li&gt; &lt;li&gt;«two» &lt;b&gt;«dogs»"
        "&lt;/b&gt;&lt;/li&gt;&lt;/ul&gt;</source>",
        [],
    ),
    "escaped references": (
        "«Tom» &amp;amp; &lt;br/&gt;"
        "«Jerry &amp; A&lt;B→JERRY &amp;amp; A&amp;lt;B»</source>",
        [],
    ),
    "CDATA": (
        "<![CDATA[<p>«The» <b>«old»</b> «dog» &amp; I</p>]]></source>",
        [],
    ),
    "empty segments": (
        '«One. Two.→<mrk mtype="seg" mid="1">ONE.</mrk> <mrk mtype="seg"'
        ' mid="2">TWO.</mrk>»</source><seg-source><mrk mtype="seg" mid="1">One.'
        '</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source><target>'
        '<mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"></mrk></target>',
        [],
    ),
    "a target without a translation": (
        '«The red»</source><target state="new">The red</target>',
        [],
    ),
    "a translation": (
        '«The red→Die»</source><target state="final">Die</target>',
        [(1, "already translated")],
    ),
    "halves of ranges": (
        '«A» <bpt id="1">[</bpt>«b»<ept id="1">]</ept> <g id="2"></g> '
        '<mrk mtype="protected">no</mrk> <!-- x --> «c»</source>',
        [(1, "locked")],
    ),
    "texts in codes": (
        '«See» <ph id="1">[<sub>«The» <g id="2">«dog»</g>. «It runs.»</sub>'
        ' "<sub>«A cat»</sub><sub/>"]</ph> «and» <bpt id="3"><sub>«you»</sub>'
        '</bpt>«me»<ept id="3">]</ept>.</source>',
        [],
    ),
    "ICU": (
        "«It has» {V, plural, =1 {«one dog»} other "
        '{<x id="N"/> «dogs»}}</source>',
        [],
    ),
    "ICU in escaped HTML": (
        "&lt;b&gt;{V, plural, one {«a» &lt;i&gt;«cat»&lt;/i&gt;} other "
        "{# «cats»}}&lt;/b&gt;</source>",
        [],
    ),
}


@pytest.mark.parametrize(
    "code", ["<?x a> </b> ?>", "<!-- > </b> -->", "<?x?>", "<x a='>'/>"]
)
def test_signs_in_codes_of_xml_end_no_element(code):
    unit = f'{code}<trans-unit id="1">{code}<source>a</source>'
    text = XLIFF.format(f"{unit}</trans-unit>{code}")
    _, found = translate(text, "xliff")
    written = r"<source>a</source>\s*<target[^>]*>A</target>"
    assert re.search(written, found.text)
    assert re.sub(r"\s*<target.*</target>", "", found.text) == text


@pytest.mark.parametrize("case", UNITS.values(), ids=UNITS)
def test_a_unit_becomes(case):
    text, reasons = case
    content, expected = marked(f"<source>{text}")
    document, found = translate(XLIFF.format(UNIT.format(content)), "xliff")
    [target] = re.findall(r"<target[^>]*>(.*)</target>", found.text)
    assert f"<source>{target}" == expected.partition("</source>")[0]
    assert left(document) == reasons
    root = lxml.etree.fromstring(found.data)
    state = root.find(".//target").get("state")
    assert (state is None) == (not reasons and "<target>" in content) or (
        state in ("final", "needs-review-translation")
    )


def test_segments_of_version_2():
    source = '<source>A <sc id="1"/>b<ec startRef="1"/></source>'
    target = '<target>A <sc id="1"/>B<ec startRef="1"/></target>'
    text, expected = marked(
        '<xliff version="2.0"><file>'
        f'<segment state="«initial→translated»">{source}«→{target}»</segment>'
        f'<segment state="«initial→translated»">{source}'
        f"«<target>A b</target>→{target}»</segment>"
        f'<segment state="final">{source}<target>x</target></segment>'
        f'<segment translate="no" state="initial">{source}</segment>'
        "</file></xliff>"
    )
    document, found = translate(text, "xliff")
    assert found.text == expected
    assert left(document) == [(1, "already translated"), (1, "locked")]


@pytest.mark.parametrize(
    "text",
    [
        XLIFF.format(
            '<trans-unit id="1" approved="«yes→no»"><source>a</source><target'
            ' state="«final→needs-review-translation»">«x→A»</target>'
            "</trans-unit>"
        ),
        '<xliff version="2.0"><file><unit id="a"><segment state="«final→'
        'translated»"><source>a</source><target>«x→A»</target></segment>'
        "</unit></file></xliff>",
    ],
)
def test_a_target_that_is_translated_again_is_not_approved(text):
    source, expected = marked(text)
    document = documents.parse(source, "xliff", replace=True)
    assert documents.translate(document, capitals, align).text == expected


VERSION_2 = (
    '<xliff{} version="2.0" srcLang="en"><file id="f"><unit id="u"><segment>'
    "<source>a</source>«→<target>A</target>»</segment></unit></file></xliff>"
)
VERSION_1 = (
    '<x:xliff version="1.2" xmlns:x="x"><x:file{} original="a>"'
    " source-language='en'><x:trans-unit><x:source>a</x:source><x:target>"
    "«→A»</x:target></x:trans-unit></x:file></x:xliff>"
)
CATALOGUE = 'msgid ""\nmsgstr {}\n\n«→#, fuzzy\n»msgid "a"\nmsgstr "«→A»"\n'
DECLARED = [
    ("xliff", VERSION_2.format('«→ trgLang="de"»'), "de"),
    ("xliff", VERSION_2.format(' trgLang="«fr→pt-BR»"'), "pt_BR"),
    ("xliff", VERSION_1.format("«→ target-language=\"de\"»"), "de"),
    ("xliff", VERSION_1.format(" target-language='de-AT'"), "de"),
    ("po", CATALOGUE.format(
        '""\n"Language: «→de»\\n"\n"X: Language: y\\n"'), "de"),
    ("po", CATALOGUE.format('"X: y\\nLanguage: «en→pt_BR»\\n"'), "pt-BR"),
    ("po", CATALOGUE.format('"Language: de_AT\\n"'), "de"),
    ("po", CATALOGUE.format('""«→\n"Language: de\\n"»\n"X: y\\n"'), "de"),
    ("po", CATALOGUE.format('«→"Language: de\\n"\n»"X: y\\n"'), "de"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "target"), DECLARED)
def test_a_translation_declares_its_language(format, text, target):
    source, expected = marked(text)
    _, found = translate(source, format, target=target)
    assert found.text == expected
    # Nothing is left to translate, so nothing changes.
    assert translate(found.data, format, target="fr")[1].data == found.data


PAGE = '<meta charset="{}"><p>«Café dog»'
# A format, a text with marked words, its charset, and the name of that.
CHARSETS = [
    ("text", "«Café»", "utf-8", "utf-8"),
    ("text", "\ufeff«Café»", "utf-8", "utf-8"),
    ("text", "\ufeff«Café»", "utf-16-be", "utf-16-be"),
    ("html", PAGE.format("latin1"), "latin-1", "iso8859-1"),
    ("html", PAGE.format("koi8-r").replace("é", "ж"), "koi8-r", "koi8-r"),
    ("html", PAGE.format("utf-16"), "utf-8", "utf-8"),
    # Windows' quotation marks under the name of ISO-8859-1.
    ("html", PAGE.format("iso-8859-1") + "“”", "cp1252", "cp1252"),
    # A byte order mark counts more than the page.
    *(
        ("html", "\ufeff" + PAGE.format("latin1"), charset, charset)
        for charset in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")
    ),
]


@pytest.mark.parametrize(("format", "text", "charset", "name"), CHARSETS)
def test_a_document_keeps_its_charset(format, text, charset, name):
    source, expected = marked(text)
    _, found = translate(source.encode(charset), format)
    assert (found.data, found.charset) == (expected.encode(charset), name)


@pytest.mark.parametrize(
    ("format", "label", "source", "expected"),
    [
        ("html", "us-ascii", '<meta charset="us-ascii"><p>a', "Ж"),
        (
            "xliff",
            "iso-8859-1",
            '<?xml version="1.0" encoding="iso-8859-1"?>'
            + XLIFF.format(UNIT.format("<source>é</source>")),
            "Ж",
        ),
        (
            "po",
            "ASCII",
            HEADER.format("").replace("UTF-8", "ASCII")
            + 'msgid "a"\nmsgstr ""\n',
            "Ж",
        ),
    ],
)
def test_the_charset_of_a_document(format, label, source, expected):
    data = source.encode(label)
    kept = documents.parse(data, format)
    same, charset = kept.write_bytes([kept.sentences[0]])
    assert charset.replace("-", "") in ("ascii", "iso88591")
    assert label in same.decode(label)
    assert kept.write(["x"]).encode(label)
    # Its declaration changes with it.
    written, charset = documents.parse(data, format).write_bytes([expected])
    assert charset == "utf-8"
    assert expected in written.decode("utf-8")
    assert label not in written.decode() and "UTF-8" in written.decode()


def test_charsets_that_are_given():
    assert translate("é".encode("cp850"), "text", charset="cp850")[1].data == (
        "É".encode("cp850")
    )
    # Two codes of a character.
    data = b"\x87\x90"
    document = documents.parse(data, charset="cp932")
    assert document.write_bytes([])[0] == data


@pytest.mark.parametrize(
    ("data", "charset", "message"),
    [
        (b"a\n\xff", "", "line 2 is not UTF-8"),
        (b"a", "xyz", "name of a charset. Received: charset='xyz'"),
        (b"a", "rot13", "name of a charset"),
        (b"a", "punycode", "name of a charset"),
        (b'<meta charset="nope">', "", "Received: charset='nope'"),
    ],
)
def test_charsets_that_are_refused(data, charset, message):
    with pytest.raises(ValueError, match=message):
        documents.parse(data, "html", charset=charset)


@pytest.mark.parametrize(
    ("format", "name", "data"),
    [
        ("markdown", "a/README.MD", b""),
        ("srt", "x.vtt", b""),
        ("po", "x.pot", b""),
        ("text", "notes.txt", b"# no markdown"),
        ("html", "", b"\xef\xbb\xbf <!doctype html>"),
        ("html", "x", b"<?xml version='1.0'?><html>"),
        ("html", "", "<p>a".encode("utf-16")),
        ("xliff", "", b"<?xml version='1.0'?>\n<!-- <p> --><x:xliff>"),
        ("srt", "", b"1\n00:00:01,000 --> 00:00:02,000\na"),
        ("srt", "", b"WEBVTT\n\n"),
        ("ass", "", b"[Script Info]\n"),
        ("po", "", b'# a\n#, b\nmsgid ""\nmsgstr ""\n'),
        ("markdown", "", b"A text\n\n## With a heading\n"),
        ("markdown", "", b"+++\nx=1\n+++\n"),
        ("text", "", b"A text.\n1 --> 2"),
        ("markdown", "", b"# " * 2000),
        ("text", "", b"<!-- -->" * 500),
        ("text", "", b"<3 you"),
        ("text", "a.txt", b"{\\rtf1 a}"),
    ],
)
def test_the_format_by_name_and_content(format, name, data):
    assert documents.detect(name, data) == format


@pytest.mark.parametrize(
    "data",
    [
        b'<?xml version="1.0"?><office:document xmlns:office="o"/>',
        "<w:p/>".encode("utf-16"),
        b"<!DOCTYPE math>",
        b"{\\rtf1 a}",
        b"%PDF-1.4",
    ],
)
def test_what_no_reader_knows_is_refused(data):
    with pytest.raises(ValueError, match="expected a document of a known form"):
        documents.parse(data, "auto", name="a.fodt")


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_tags_inside_a_word_stay_at_its_characters(format):
    text = "Add H<sub>2</sub>O to the 1<sup>st</sup> tank"
    found = translate_with(
        documents.parse(text, format),
        lambda sentences: ["Tank 1st: h2o, no h2o!" for _ in sentences],
    )
    written = "Tank 1<sup>st</sup>: h<sub>2</sub>o, no h2o!"
    assert found.text.replace("\\", "") == written


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (
            "en",
            "pt_BR",
            '<html a="lang" xml:lang="«en→pt-BR»" lang=«en-US→pt-BR»><p'
            ' lang="fr" dir=ltr>«a» <b lang=en>«b»',
        ),
        (
            "en",
            "ar",
            '<!-- <html lang="en"> --><html lang="«en→ar»" dir=«LTR→rtl»>'
            "<script>'<html lang=en>'</script><body dir='«ltr→rtl»'>«a»",
        ),
        ("en", "pes_Arab", '<html«→ dir="rtl"»><body>«a»'),
        ("ar", "en", '<html lang="«ar→en»" dir="«rtl→ltr»"><body>«a»'),
        ("ar", "he", '<html dir="rtl"><body>«a»'),
    ],
)
def test_a_page_says_the_language_of_its_translation(source, target, text):
    text, expected = marked(text)
    document = documents.parse(text, "html", source, target=target)
    assert document.write(document.sentences) == text
    assert documents.translate(document, capitals, align).text == expected


PARTLY = (
    '<xliff version="1.2" xmlns:x="x"><file source-language="en">'
    "<trans-unit{}><source>A. B. C.</source><seg-source>{}</seg-source>"
    '<target>{}</target><x:seg id="3"{}/></trans-unit></file></xliff>'
)


def test_each_segment_of_a_unit_counts_for_itself():
    def segments(*texts):
        return " ".join(
            f'<mrk mtype="seg" mid="{i}">{text}</mrk>'
            for i, text in enumerate(texts, 1)
        )

    def translated(lock="", segment_lock=""):
        source, target = segments("A b.", "B c.", "C d."), segments("X", "", "")
        text = PARTLY.format(lock, source, target, segment_lock)
        document = documents.parse(text, "xliff")
        found = translate_with(document, capitals)
        reasons = [unread.reason for unread in document.left]
        return found.text == text, found.text, reasons

    is_same, text, reasons = translated()
    assert segments("X", "B C.", "C D.") in text and not is_same
    assert reasons == ["already translated"]
    _, text, reasons = translated(segment_lock=' locked="true"')
    assert segments("X", "B C.", "") in text
    assert reasons == ["already translated", "locked"]
    assert translated(' x:locked="locked"')[::2] == (True, ["locked"])
    assert not translated(' x:locked="no"')[0]


def test_what_is_left_is_counted():
    document = documents.parse("`a` b\n\n" + "c `d`\n\n" * 4, "markdown")
    assert document.summary() == "left: 5 code (lines 1, 3, 5, ...)"
    assert documents.parse("a").summary() == ""
    with pytest.raises(
        ValueError, match="format with.*Received: format='text'"
    ):
        documents.parse("a", "auto", replace=True)


def test_line_breaks_do_not_enter_placeholders():
    text = "One two {% a b c\nd e f %} three."
    _, found = translate(text, "html")
    counts = collections.Counter(re.findall(r"\{%.*?%\}", found.text))
    assert counts == {"{% a b c d e f %}": 1}
    assert found.text.count("\n") == 1


def test_an_error_of_xml_is_one_line():
    with pytest.raises(ValueError, match=r"\Aline 1: Invalid char[^\n]*\Z"):
        documents.parse(XLIFF.format("a\0b").encode(), "xliff")
