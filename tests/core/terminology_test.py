"""Glossaries and forbidden words, from files and requests to translations."""

import io
import pathlib
import re
import sys

import pytest
from commands import fails
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.decoding.rules import length_penalty
from keras_transformer.text.vocabulary import EOS
from keras_transformer.translation import glossary as glossaries
from keras_transformer.translation.around import terms
from keras_transformer.translation.around.words import without_words
from keras_transformer.translation.requests import (
    Request,
    Row,
    Terminology,
    phrase_ids,
)
from keras_transformer.translator import Translator
from trainers import translate, translate_document
from trainers.translating import lines as translating
from trainers.translating.options import (
    TerminologyOptions,
    TranslatorChoice,
    TranslatorOptions,
)
from trainers.translating.shards import make_settings

RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
CHINESE = "打开阀门,关闭阀门,阀门在那里,这里的阀门坏了,阀门,泵 阀门".split(",")


@pytest.fixture(scope="module")
def translator():
    return Translator.load(RUN)


def translate_text(monkeypatch, capfd, command, text, *options):
    """Returns the output of the command for a text."""
    stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    command.main([f"--workdir={RUN}", *options])
    return capfd.readouterr().out


# ---- The search --------------------------------------------------------------


def test_forbidden_words_are_not_in_the_text(translator):
    texts = ["a dog sleeps.", "a boy runs."]
    plain = translator.translate(texts)
    words = [re.findall(r"\w+", text) for text in plain]
    [word] = set(words[0]) - set(words[1])
    avoiding = translator.with_terminology(Terminology(avoid=(word.upper(),)))
    found = avoiding.search(texts)
    assert [translation.notes for translation in found] == [[], []]
    assert len(found[0].texts) == 2
    for text in found[0].texts:
        assert word.lower() not in re.findall(r"\w+", text.lower())
    # Sentences without the word, and parts of words, are as before.
    assert found[1].texts[0] == plain[1]
    others = translator.with_terminology(Terminology(avoid=(word[:-1],)))
    assert others.translate(texts) == plain


def test_tokens_that_were_emitted_are_forbidden(translator):
    """They are, in any spelling, but not inside other words."""
    tokenizer = translator.tokenizer
    piece = tokenizer.pieces.index
    row = Row([EOS], tokenizer=tokenizer)
    outputs = [[piece(p) for p in "▁ein ▁H u n d .".split()] + [EOS]]

    def forbidden(word):
        found = without_words(row._replace(avoid=(word,)), outputs)
        return found and {
            tuple(tokenizer.pieces[id] for id in ids) for ids in found.forbidden
        }

    assert ("▁H", "u", "n", "d") in forbidden("hund")
    assert ("▁H", "un", "d") in forbidden("hund")  # as it is segmented
    assert forbidden("und") is None
    outputs = [[piece(p) for p in "▁H u n d . un d".split()]]
    assert (".", "un", "d") in forbidden("und")
    [way] = phrase_ids(tokenizer, ["und"])
    assert [tokenizer.pieces[id] for id in way] == ["▁", "un", "d"]


def test_a_forbidden_word_of_the_prefix_is_told(translator):
    avoiding = translator.with_terminology(Terminology(avoid=("ein",)))
    [found] = avoiding.search([Request("a dog sleeps.", prefix="ein")])
    assert found.texts[0].startswith("ein")
    assert found.notes == ["has the forbidden word 'ein' in its translation"]


@pytest.mark.parametrize(
    "field",
    [
        {"prefix": "ein"},
        {"terms": (("ein",),)},
        {"avoid": ("ein",)},
        {"seed": 0},
    ],
)
@pytest.mark.parametrize("method", ["score", "align", "align_spans"])
def test_a_given_translation_excludes_other_wishes(translator, method, field):
    call = getattr(translator, method)
    wrong, right = Request("a dog", **field), Request("a dog")
    with pytest.raises(ValueError, match="a text and a direction alone"):
        call([("a dog", "ein Hund"), (wrong, "ein Hund")])
    assert call([(right, "ein Hund")]) == call([("a dog", "ein Hund")])


def test_terms_in_spaceless_text():
    tokenizer = kt.Tokenizer.train(CHINESE * 9, vocab_size=26)
    ways = [
        [tokenizer.pieces[id] for id in ids]
        for ids in phrase_ids(tokenizer, ["阀门"])
    ]
    assert len(ways) == 2
    assert ["".join(way) for way in ways] == ["▁阀门", "阀门"]
    for text in CHINESE:
        [ids] = tokenizer.to_ids([text])
        text_of = "".join(tokenizer.pieces[id] for id in ids)
        inside = any(str(w)[1:-1] in str(ids) for w in ways)
        assert text_of.count("阀门") == 1 and not inside
    row = without_words(
        Row([EOS], avoid=("阀门",), tokenizer=tokenizer),
        tokenizer.to_ids(CHINESE),
    )
    for ids in tokenizer.to_ids(CHINESE):
        assert any(
            tuple(ids[i : i + len(way)]) == way
            for way in row.forbidden
            for i in range(len(ids))
        )


def test_a_beam_that_is_raised_is_told_once(caplog):
    greedy = Translator.load(RUN).with_decoding(
        beam_size=1, glossary_mode="force"
    )
    request = Request("a dog sleeps.", terms=(("Mann",),))
    for _ in range(2):
        assert "Mann" in greedy.translate([request])[0]
    told = [m for m in caplog.messages if "beam_size" in m]
    assert told == [
        "sentences with terms of a glossary have beam_size=4, the others"
        " beam_size=1"
    ]


def test_casings_and_words():
    assert glossaries.casings("IT") == ["IT", "it", "It"]
    words = ("ﬁn", "check valve")
    text = "Fin, fins, check\nValve"
    found = [m.group() for m in glossaries.find_words(words, text)]
    assert found == ["Fin", "check\nValve"]
    with pytest.raises(ValueError, match="words in avoid"):
        Terminology(avoid=("a", " "))


# ---- Commands ----------------------------------------------------------------


def test_lines_have_the_terms_of_a_file(tmp_path, monkeypatch, capfd):
    terms, words = tmp_path / "terms.tsv", tmp_path / "words.txt"
    terms.write_text("dog\tMann|Jäger\n")
    words.write_text("# wrong\n\nKEINGE\n")
    text = "a dog sleeps.\na boy runs.\n"
    flags = [f"--glossary={terms}", f"--avoid={words}"]
    out = translate_text(monkeypatch, capfd, translate, text, *flags)
    first, second = out.splitlines()
    assert "Mann" in first
    assert "keinge" not in re.findall(r"\w+", out)
    plain = translate_text(monkeypatch, capfd, translate, text)
    assert "keinge" in plain and "Mann" not in plain
    assert "Mann" not in second


@pytest.mark.slow("options")
def test_a_document_has_the_terms_of_a_file(tmp_path, monkeypatch, capfd):
    terms = tmp_path / "terms.tsv"
    terms.write_text("dog\tMann\n")
    text = "<p>A <b>boy</b> runs.</p><p>a dog sleeps.</p>"
    flags = ["--format=html", f"--glossary={terms}", "--glossary_mode=force"]
    out = translate_text(monkeypatch, capfd, translate_document, text, *flags)
    before, after = out.split("</p><p>")
    assert "Mann" in after and "Mann" not in before


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (
            "boy\tJunge\nman\tMañana\n",
            (),
            "{path}: line 2: expected tokens for a translation in the"
            " vocabulary."
            " Received: 'Mañana'",
        ),
        (
            "boy\tJunge\n",
            ("--sampling",),
            "expected a glossary without sampling. Received: sampling=True",
        ),
    ],
)
def test_what_is_refused(tmp_path, capsys, lines, options, message):
    path = tmp_path / "terms.tsv"
    path.write_text(lines)
    argv = [f"--workdir={RUN}", f"--glossary={path}", *options]
    assert fails(translate.main, argv, capsys) == (
        f"kt-translate: {message.format(path=path)}\n"
    )


def test_a_plan_has_the_checksums_of_its_terminology(tmp_path):
    terms, words = tmp_path / "terms.tsv", tmp_path / "words.txt"
    words.write_text("Hund\n")
    sums = []
    for text in ("dog\tMann\n", "# the same\ndog\tMann\n", "dog\tHund\n"):
        terms.write_text(text)
        options = TerminologyOptions(str(terms), str(words))
        choice = TranslatorChoice(TranslatorOptions(workdir=str(RUN)), {})
        translator = translating.open_translator(
            choice._replace(terminology=options)
        )
        settings = make_settings(translator, shard_lines=9)
        sums.append((settings["glossary_sha256"], settings["avoid_sha256"]))
    assert sums[0] == sums[1] and sums[0][0] != sums[2][0]
    plain = make_settings(Translator.load(RUN), shard_lines=9)
    assert not {"glossary_sha256", "avoid_sha256"} & plain.keys()


def test_a_term_that_is_missing_is_told(translator):
    """The reason is given where terms are forced."""
    request = Request(
        "a dog.", terms=(("Mann Mann Mann Junge", "Mann Jun" * 9),)
    )
    told = "lacks the term .* in its translation"
    forcing = translator.with_decoding(glossary_mode="force")
    [found] = forcing.search([request])
    assert re.fullmatch(
        f"{told}: it does not fit beside the other terms, or is forbidden, too",
        found.notes[0],
    )
    [found] = translator.search([request])
    [note] = found.notes
    assert re.fullmatch(told, note)


def test_scores_have_no_bonus(translator):
    """They are the model's log-probabilities, as without terms."""
    wish = translator.with_decoding(glossary_bonus=8.0)
    for forms in (("Mann",), ("Mann", "Junge Junge")):
        request = Request("a dog sleeps.", terms=(forms,))
        [found] = wish.search([request], num_best=2)
        assert "Mann" in found.texts[0] or "Junge" in found.texts[0]
        pairs = [(request.text, text) for text in found.texts]
        for score, log_probs in zip(
            found.scores,
            [one.log_probs for one in translator.score(pairs)],
            strict=True,
        ):
            penalty = length_penalty(wish.decoding, len(log_probs))
            assert_close(score, sum(log_probs) / float(penalty))


def test_a_forced_term_that_costs_much_is_told(translator, monkeypatch):
    """Both searches' scores decide. The model writes noise."""
    forcing = translator.with_decoding(glossary_mode="force")
    request = Request("a dog sleeps.", terms=(("Mann",),))
    [forced], [free] = forcing.search([request]), forcing.search([request.text])
    below = free.scores[0] - forced.scores[0]
    assert "Mann" in forced.texts[0] and forced.notes == []
    monkeypatch.setattr(terms, "FAR_BELOW", below + 0.01)
    assert forcing.search([request])[0].notes == []
    monkeypatch.setattr(terms, "FAR_BELOW", below - 0.01)
    other, found = forcing.search([request.text, request])
    assert other.notes == []
    assert found.notes == [
        "may be broken by its terms: it has the score"
        f" {forced.scores[0]:.2f}, without terms {free.scores[0]:.2f}"
        " (glossary_mode=prefer lets the model choose)"
    ]
    [preferred] = translator.search([request])
    lacking = ["lacks the term 'Mann' in its translation"]
    assert preferred.notes == lacking * ("Mann" not in preferred.texts[0])
