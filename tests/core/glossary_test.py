"""Laws of `keras_transformer.translation.glossary`."""

import itertools
import random
import sys
import unicodedata

import pytest

from keras_transformer.translation import glossary as module
from keras_transformer.translation.glossary import Glossary, Term


def glossary(*lines):
    return Glossary.parse(lines, "terms.tsv")


@pytest.mark.parametrize(
    ("line", "text", "is_there"),
    [
        ("valve\tVentil", "the valve.", True),
        ("valve\tVentil", "The VALVE", True),
        ("valve\tVentil", "valves", False),
        ("valve\tVentil", "bivalve", False),
        ("valve\tVentil", "valve_2", False),
        ("valve\tVentil\tpart", "bivalves", True),
        ("IT\tIT\tcase", "it is", False),
        ("IT\tIT\tcase", "the IT", True),
        ("colou?rs?\tFarbe\tpattern", "Colors", True),
        ("colou?rs?\tFarbe\tpattern", "colorful", False),
        ("check valve\tRückschlagventil", "a check  valve", True),
        ("C++\tC++", "in C++, too", True),
        ("C++\tC++", "C++11", True),
        ("R&D\tF&E", "our R&D", True),
        ("Straße\tstreet", "die STRASSE", True),
        ("Straße\tstreet\tcase", "die STRASSE", False),
        ("driver's seat\tSitz", "the driver\u2019s seat", True),
        ("driver\u2019s?\tSitz\tpattern", "the driver's", True),
        ("cafe\u0301\tCafé", "the café", True),
        ("café\tCafé", "the cafe\u0301.", True),
        ("café\tCafé\tcase", "the Cafe\u0301.", False),
        ("e-mail\tMail", "an e\u2011mail", True),
        ("e\u2010mail\tMail\tpart", "emails: e-mails", True),
        ("Ventil\tvalve", "das Ven\u00adtil", True),
        ("ＶＡＬＶＥ\tVentil", "the valve", True),
        ("valve\tVentil\tcase", "the ｖａｌｖｅ", True),
        ("fin\tFlosse", "the ﬁn", True),
        ("Istanbul\tX", "İSTANBUL", True),
        ("ısı\theat", "ISI", True),
        ("가\tX", "\u1100\u1161", True),
        ("كتاب\tX", "كتـــاب", True),
        ("п'ять\tX", "пʼять", True),
        ("check valve\tX", "check\u00a0valve", True),
        ("阀门\tvalve", "打开阀门吧", True),
        ("valve\tVentil", "このvalveは", True),
        ("valve\tVentil", "阀bivalve", False),
        ("IT部门\tIT", "我的IT部门", True),
        ("कम\tless", "कम है", True),
        ("कम\tless", "कमी है", False),  # a vowel sign is of the word
        ("cafe\tCafé", "cafe\u0301", False),
        ("ventil\tvalve", "Öffne das Ventil", True),
        ("öl\toil", "Altöl", False),
    ],
)
def test_what_a_term_is_in(line, text, is_there):
    assert bool(glossary(line).terms_of(text)) == is_there


def test_the_longest_term_counts_and_each_once():
    terms = glossary(
        "valve\tVentil | Klappe",
        "check valve\tRückschlagventil",
        "# a comment",
        "",
        "pump\tPumpe",
    )
    assert terms.terms_of("A pump, a check valve, a valve and a valve.") == (
        ("Pumpe",),
        ("Rückschlagventil",),
        ("Ventil", "Klappe"),
    )
    assert terms.terms_of("A check valve") == (("Rückschlagventil",),)
    assert terms.terms_of("nothing") == ()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["valve"], "line 1: expected a term, a tab .* Received: 1 field"),
        (["a\tb\tcase\tx"], "Received: 4 fields"),
        (["\tb"], "Received: '' and 'b'"),
        (["a\tb|"], r"Received: 'a' and 'b\|'"),
        (["a\tb\tcases"], "flags among .* Received: cases"),
        (["a\tb", "a\tc"], "line 2: expected each term once"),
        (["(\tb\tpattern"], "line 1: expected a regular expression"),
    ],
)
def test_a_wrong_line_is_named(lines, message):
    with pytest.raises(ValueError, match=f"terms.tsv: .*{message}"):
        glossary(*lines)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffvalve\tVentil\r\n".encode())
    assert Glossary.read(path).terms == [Term("valve", ("Ventil",))]
    path.write_bytes(b"caf\xe9\tKaffee\n")
    with pytest.raises(ValueError, match="terms.tsv: expected text in UTF-8"):
        Glossary.read(path)


def test_case_counts_before_order_and_length_before_case():
    for lines in (["it\tes", "IT\tIT\tcase"], ["IT\tIT\tcase", "it\tes"]):
        terms = glossary(*lines)
        assert terms.terms_of("IT is it.") == (("IT",), ("es",))
    terms = glossary("Valve\tA", "valve\tB", "VALVE pump\tC")
    assert terms.terms_of("valve, Valve, VALVE, Valve pump") == (
        ("B",),
        ("A",),
        ("C",),
    )
    [(place, _)] = glossary("straße\tX").find("Die STRA\u00adSSE.")
    assert place.group() == "STRA\u00adSSE"


def test_a_first_line_of_languages_is_no_term(caplog):
    for first in ("en\tde", "EN-US\tpt_BR", "English\tGerman"):
        terms = glossary("# terms", first, "valve\tVentil")
        assert [term.source for term in terms.terms] == ["valve"]
        told = "line 2: read as the languages of the glossary"
        assert told in caplog.messages[-1]
    assert len(glossary("no\tnein", "valve\tVentil").terms) == 2


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.csv", ['"CGU","AGB","FR","DE"', '"a ""b"", c","x|y","FR","DE"']),
        ("a.csv", ["CGU;AGB", '"a ""b"", c";x|y']),
        ("a.csv", ["sep=;\r\n", "CGU;AGB", '"a ""b"", c";x|y']),
        ("a.tsv", ["CGU\tAGB", '"a ""b"", c"\tx|y']),
        ("a.csv", ["fr,de", "CGU,AGB", '"a ""b"", c",x|y']),
    ],
)
def test_quoted_fields_and_tables(name, lines):
    found = Glossary.parse(lines, name).terms
    assert found == [Term("CGU", ("AGB",)), Term('a "b", c', ("x", "y"))]


def test_other_quotes_are_signs_and_one_pair_of_languages_counts():
    terms = glossary('5" pipe\tRohr', '"Hi\tHallo')
    assert [term.source for term in terms.terms] == ['5" pipe', '"Hi']
    with pytest.raises(ValueError, match="line 2: expected one source and one"):
        Glossary.parse(["a,b,FR,DE", "c,d,FR,EN"], "a.csv")


@pytest.mark.parametrize(
    "line",
    [
        "press,drücken, pressen, stampfen",
        "IT,IT,case,part",
        "press,drücken,is pressing,to press",
        "press,drücken,de,",
        "press,drücken,english,german",
    ],
)
def test_no_column_of_a_table_is_dropped(line):
    with pytest.raises(ValueError, match="a.csv: line 2: .* Received: 4 field"):
        Glossary.parse(["a,b", line], "a.csv")


def test_codes_of_a_table_may_have_script_and_region():
    [term] = Glossary.parse(["a,b, en-US ,ZH_Hant-TW"], "a.csv").terms
    assert term == Term("a", ("b",))


# ---- What the search finds, and what it costs --------------------------------

LETTERS = "aAbB中"


def brute_force(terms, text):
    """Finds all terms. Of overlapping ones, the first by rank counts."""

    def is_whole(i):  # between two letters of one word, no term begins or ends
        pair = text[i - 1 : i + 1] if i else ""
        return len(pair) < 2 or not all(
            c.isascii() and c.isalpha() for c in pair
        )

    def in_row(part):
        return " ".join(part.split())

    found = []
    for begin, end in itertools.combinations(range(len(text) + 1), 2):
        part = text[begin:end]
        if part != part.strip() or not (is_whole(begin) and is_whole(end)):
            continue
        for number, term in enumerate(terms):
            other_case = in_row(part) != in_row(term.source)
            is_it = in_row(part).lower() == in_row(term.source).lower()
            if is_it and not (other_case and "case" in term.flags):
                found.append((begin - end, other_case, number, begin, end))
    chosen = []
    for *_, number, begin, end in sorted(found):
        if all(end <= b or e <= begin for b, e, _ in chosen):
            chosen.append((begin, end, terms[number]))
    return sorted(chosen, key=lambda c: c[:2])


def test_all_terms_are_found_as_by_brute_force():
    draw = random.Random(1)
    number = 0
    for _ in range(2000):
        signs = draw.choice(["ab ", "aAbB  ", "aA+ ", "a中文 ", "aB+-  中"])

        def text(most, signs=signs):
            return "".join(draw.choices(signs, k=draw.randint(1, most)))

        sources = filter(
            str.strip, (text(6) for _ in range(draw.randint(1, 9)))
        )
        flags = [frozenset(), frozenset(["case"])]
        terms = [
            Term(source, (str(i),), draw.choice(flags))
            for i, source in enumerate(sources)
        ]
        line = text(20)
        found = [(*m.span(), term) for m, term in Glossary(terms).find(line)]
        assert found == brute_force(terms, line), (line, terms)
        number += len(found)
    assert number > 2000


def count_lines(work):
    """Counts the lines of the module that a call executes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


WORD = "abcdefghij"
CASES = itertools.product(*[(c, c.upper()) for c in WORD])


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (["".join(c) for c in itertools.islice(CASES, 1000)], f"{WORD} "),
        (["a " * n for n in range(1, 20)], "a "),
        (["+ " * n for n in range(1, 20)], "+"),  # which no text of these has
        (["+" * n for n in range(1, 20)], "+"),
        (["中" * n for n in range(1, 20)], "中"),
        ([f"{'中' * n}b" for n in range(20)] + ["b"], "中"),
        (["a " * n + "b" for n in range(20)], "a a a b "),
    ],
    ids=range(7),
)
def test_the_work_is_in_proportion_to_the_text(sources, text):
    """Many terms may begin at a word, overlap, or differ by their case."""
    terms = Glossary.of(dict.fromkeys(sources, "x"))
    terms.find("")
    few, many = (
        count_lines(lambda n=n: terms.find(text * n)) for n in (100, 400)
    )
    depth = max(map(len, sources))
    assert many < 4.4 * few and few < 10 * depth * 100 + 1000


@pytest.mark.parametrize(
    "cluster",
    ["\u0315\u0300", "\u1100", "👩\u200d", "\u0600", "\u0915\u094d"],
)
def test_no_long_run_of_marks_is_normalized_as_one(cluster, monkeypatch):
    """It would take the square of its length, and block all threads."""
    seen = []
    normalize = unicodedata.normalize

    def spy(form, text):
        seen.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(module.unicodedata, "normalize", spy)
    run = "a" + cluster * 3000
    terms = Glossary.of({"end": "Ende", run: "x"})
    assert len(terms.find(f"{run} end")) == 2
    assert seen and max(seen) <= 4 * 32
