"""Moses tokens against the output of tokenizer.perl of December 2016."""

import pytest

from keras_transformer.translation.metrics import moses, split_compounds

# Commit 59119c004 of mosesdecoder, with -no-escape.
PRINTED = {
    "de": [
        (
            "Am 3. Mai kostete es 1.000,50 Euro, usw. sagte Dr. Meier.",
            "Am 3. Mai kostete es 1.000,50 Euro , usw. sagte Dr. Meier .",
        ),
        (
            'Er fragte: "Warum?"... und ging, d.h. lief, weg (schnell).',
            'Er fragte : " Warum ? " ... und ging , d.h. lief , weg'
            " ( schnell ) .",
        ),
        (
            "Das rich-text-Format von C&A, S. 7, geht's?",
            "Das rich-text-Format von C & A , S. 7 , geht ' s ?",
        ),
        (
            "Siehe Abb. 2 und Nr. 5. Mio. sind viel, z.B.",
            "Siehe Abb . 2 und Nr. 5. Mio. sind viel , z.B.",
        ),
    ],
    "en": [
        (
            "It's the 1990's, Mr. Smith's \"boys' club\" isn't No. 5.",
            "It 's the 1990 's , Mr. Smith 's \" boys ' club \" isn 't No. 5 .",
        ),
        (
            "No. That costs $5,300.20, i.e. a lot, vs. A,B,C.",
            "No . That costs $ 5,300.20 , i.e. a lot , vs. A , B , C.",
        ),
        (
            "He said 'go'. She went (to St. Paul) at 5 p.m.",
            "He said ' go ' . She went ( to St. Paul ) at 5 p.m.",
        ),
        ("\ta\u00a0b\x1c  c ", "a b c"),
        ("", ""),
    ],
    "fr": [
        (
            "L'eau n'est pas d'aujourd'hui, M. Dupont, c.-à-d. hier.",
            "L' eau n' est pas d' aujourd' hui , M. Dupont , c.-à-d. hier .",
        )
    ],
    "it": [
        (
            "L'acqua dell'Arno, po' fredda.",
            "L' acqua dell' Arno , po ' fredda .",
        )
    ],
    "nl": [
        (
            "'s Avonds is het zo'n 5,5 graden – \"koud\".",
            "' s Avonds is het zo ' n 5,5 graden – \" koud \" .",
        )
    ],
}


@pytest.mark.parametrize("language", PRINTED)
def test_tokens_are_those_of_moses(language):
    tokenize = moses(language)
    for line, expected in PRINTED[language]:
        assert tokenize(line) == expected


@pytest.mark.parametrize(
    "tokens, expected",
    [
        ("Science-Fiction", "Science ##AT##-##AT## Fiction"),
        # The letter after a hyphen is read with it: not again before the next.
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("x -- y - z -w v-", "x -- y - z -w v-"),
        ("a--b", "a ##AT##-##AT## -b"),
    ],
)
def test_compounds_are_split_at_hyphens_inside_words(tokens, expected):
    """By hand from `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`, and by Perl."""
    assert split_compounds(tokens) == expected


def test_commas_between_numbers_of_any_kind_stay():
    """Perl's IsN: letters that are numbers and other scripts' digits, too."""
    tokenize = moses("en")
    assert tokenize("Ⅷ,Ⅸ and 5,Ⅷ or ٣,٤ but x,Ⅷ") == (
        "Ⅷ,Ⅸ and 5,Ⅷ or ٣,٤ but x , Ⅷ"
    )
