"""Tests of `keras_transformer.translation.glossary`."""

import pytest

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
        (["valve"], "line 1: expected a term, a tab .* Received: 1 field$"),
        (["a\tb\tcase\tx"], "Received: 4 fields"),
        (["\tb"], "Received: '' and 'b'"),
        (["a\tb|"], r"Received: 'a' and 'b\|'"),
        (["a\tb\tcases"], "flags must be among .* Received: cases"),
        (["a\tb", "a\tc"], "line 2: expected each term once"),
        (["(\tb\tpattern"], "line 1: the pattern must be a regular expression"),
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


def test_many_terms_are_found_quickly_enough_to_be_found_at_all():
    """As brute force finds them."""
    terms = glossary(*(f"word{i} x{i}\tWort{i}" for i in range(2000)))
    text = " ".join(f"word{i} x{i}" for i in range(0, 2000, 100))
    assert terms.terms_of(text) == tuple(
        (f"Wort{i}",) for i in range(0, 2000, 100)
    )


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
