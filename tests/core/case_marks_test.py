"""Case marks: their laws in Python, in a graph, and in all users."""

import itertools
import random
import re
import sys

import numpy as np
import pytest
import tensorflow as tf
from commands import fails, write_pairs
from signatures import assert_answers
from subword_sampling_test import sample

import keras_transformer as kt
from keras_transformer.data import word_links
from keras_transformer.data.changing.modifiers import ModifiedCorpus
from keras_transformer.figures.attention import attention_figure
from keras_transformer.text import case_marks, graph_tokenization
from keras_transformer.text.case_marks import BEGIN, END, MARKS, TITLE, UPPER
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation.around.words import without_words
from keras_transformer.translation.requests import Row, phrase_ids
from savedmodel import formats, huggingface, saved_model
from savedmodel.reload import tokenizer as reload_tokenizer
from trainers import prepare, wmt

# Every character that Python has in two or three cases.
CASED = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if len({c, c.lower(), c.upper(), c.title()}) > 1
    and not 0xD800 <= ord(c) < 0xE000
]
SAMPLES = [
    "",
    "a dog",
    "The NASA's iPhone: READ THIS!",
    "I saw A (A) and McDonald's CDs, KLM-Flug 5",
    "WHAT A DAY, 5 TIMES! no",
    "ΟΔΟΣ ΤΟΥΣ Σ οδος Α.Σ. ΣΟΦΟΣ",
    "STRASSE STRAßE STRAẞE İSTANBUL ısı ǅ Ǆ ǆ",
    "Ａb ＡＢ ﬁ H\u0331 H\u0331J\u030c É É ᾼ Ა Აბ",
    f"a{TITLE}b {UPPER}c{BEGIN} D{END}",
    "\u3000A¨B  ´C ㎏ AB㎏C ™",
]
LETTERS = "aAbBßẞΣσςİıǅᾼ\u0331H1.-/'’ \u3000中" + MARKS


def random_strings(number, letters=LETTERS, longest=16, seed=0):
    rng = random.Random(seed)
    return [
        "".join(rng.choices(letters, k=rng.randint(0, longest)))
        for _ in range(number)
    ]


def glyphs(text):
    return "".join(case_marks.GLYPHS.get(c, c) for c in text)


@pytest.fixture(scope="module")
def tokenizer():
    """A vocabulary in which every character has a token."""
    letters = "".join(sorted({*"".join(SAMPLES), *LETTERS}))
    lines = [*SAMPLES, *"".join(CASED), *(c + letters for c in CASED[::20])]
    return Tokenizer.train(lines * 2, vocab_size=2200, case_marks=True)


@pytest.fixture(scope="module")
def pairs():
    """Pairs whose targets are longer than their sources, in several cases."""
    rng, pairs = random.Random(1), []
    for _ in range(120):
        words = rng.choices(["dog", "red", "bird", "NASA", "house"], k=3)
        change = rng.choice([str, str.upper, str.title])
        pairs.append(
            (change(" ".join(words)), change(" ".join(["Oh,", *words])) + "!")
        )
    return pairs


@pytest.fixture(scope="module")
def small(pairs):
    """A small vocabulary of both sides of `pairs`."""
    lines = list(itertools.chain(*pairs))
    return Tokenizer.train(lines, vocab_size=50, case_marks=True)


@pytest.fixture(scope="module")
def translator(small):
    model = kt.Transformer(
        kt.preset("tiny", vocab_size=50, d_model=16, num_layers=1, d_ff=8)
    )
    ids = tf.ones([1, 2], tf.int32)
    model({"source_ids": ids, "target_ids": ids})
    decoding = kt.DecodingConfig(beam_size=2, max_output_length=12)
    return kt.Translator(small, model, decoding, 30)


def normalized(tokenizer, text):
    """Returns SentencePiece's form of a text with marks as plain text."""
    text = tokenizer._processor.normalize(text)
    text = re.sub(f"[{MARKS}]", case_marks.STRAY, text)
    return text.replace("\u2581", " ").strip()


# ---------------------------------------------------------------- the marks


@pytest.mark.parametrize(
    "text, expected",
    [
        ("the dog", "the dog"),
        ("The NASA's iPhone", "⇧the⇪ nasa's i⇧phone"),
        ("READ THIS! ok", "⇪…read this…⇩! ok"),
        ("I saw A (A) MAN", "⇧i saw⇧ a (⇧a)⇪ man"),
        ("WHAT A DAY, 5 TIMES", "⇪…what a day, 5 times…⇩"),
        ("A NASA ENGINEER I met", "⇧a⇪… nasa engineer…⇩⇧ i met"),
        ("CDs McDonald", "⇪…cd…⇩s⇧ mc⇧donald"),
        ("KLM-Flug U.S.A. x NATO", "⇪klm-⇧flug⇪ u.s.a. x⇪ nato"),
        ("MP3 B2B 5 6", "⇪…mp3 b2b…⇩ 5 6"),
        ("STRAßE STRAẞE", "⇪…straße straẞe…⇩"),
        ("İ ΣΟΣ Σ Α.Σ σας", "İ⇪… σος σ α.σ…⇩ σας"),
    ],
)
def test_where_the_marks_are(text, expected):
    marked = case_marks.mark(text.replace(" ", "\u2581"))
    # In the samples a space stands for the space of the vocabulary.
    assert glyphs(marked).replace("\u2581", " ") == expected


def reference_mark(text):
    """Repeats `mark` letter by letter, from its description."""
    lower, upper = case_marks.casing()[:2]
    text = "".join(case_marks.STRAY if c in MARKS else c for c in text)
    is_capital = [ord(c) in lower for c in text]
    units, start = [], 0
    for end in range(len(text) + 1):
        if end == len(text) or text[end] in case_marks.UNIT_BREAKS:
            units.append(range(start, end))
            start = end + 1
    opens, closes, covered = {}, set(), set()
    stretch = []
    for unit in [*units, None]:
        if unit is None or any(ord(text[i]) in upper for i in unit):
            capitals = [
                [i for i in one if is_capital[i]]
                for one in stretch
                if sum(is_capital[i] for i in one) > 1
            ]
            if capitals:
                first, last = capitals[0][0], capitals[-1][-1]
                opens[first] = UPPER if len(capitals) == 1 else BEGIN
                if len(capitals) > 1:
                    closes.add(last)
                covered |= set(range(first, last + 1))
            stretch = []
        else:
            stretch.append(unit)
    for i in range(len(text)):
        if is_capital[i] and i not in covered:
            before = i and is_capital[i - 1] and i - 1 not in covered
            after = i + 1 < len(text) and is_capital[i + 1]
            if not before:
                opens[i] = BEGIN if after else TITLE
            if before and not after:
                closes.add(i)
    found = ""
    for i, c in enumerate(text):
        small = chr(lower.get(ord(c), ord(c)))
        if c == "Σ" and i and is_capital[i - 1]:
            if not (i + 1 < len(text) and is_capital[i + 1]):
                small = "ς"
        found += opens.get(i, "") + small + END * (i in closes)
    for mark in (TITLE, UPPER, BEGIN):
        found = found.replace(f"\u2581{mark}", f"{mark}\u2581")
    return found


def test_marks_are_as_described():
    for text in random_strings(20_000, LETTERS.replace(" ", "\u2581")):
        assert case_marks.mark(text) == reference_mark(text)


@pytest.mark.parametrize(
    "form",
    ["{}", "x {}a", "{}{}", "AB {} AB", "A{}B", "AB{}", "a{}", "{} {}", "{}-b"],
)
def test_every_cased_character_keeps_its_case(form, tokenizer):
    texts = [form.format(c, c) for c in CASED]
    rows = tokenizer.to_ids(texts)
    assert not any(UNK in row for row in rows)
    expected = [normalized(tokenizer, text) for text in texts]
    assert tokenizer.to_strings(rows) == expected


def test_most_letters_have_marks():
    """All of Latin, Greek, Cyrillic, Armenian, Georgian, fullwidth Latin."""
    lower = case_marks.casing().lower
    assert len(lower) > 1380
    text = "ÄŽΩЯԱႠᲐ\uff21\U00010400"
    assert all(ord(c) in lower for c in text)
    assert not any(ord(c) in lower for c in "İẞǅᾼ\u212a")


def test_a_long_text_takes_no_long_time():
    """Backtracking would take hours."""
    for text in (
        "A" * 10**5 + "b",
        "\u2581AB\u25815" * 10**4 + "b",
        "中" * 10**5,
    ):
        assert case_marks.mark(text + "\u2581AB")


# ------------------------------------------------- the tokenizer and the graph


def test_text_is_what_it_was(tokenizer, small):
    texts = [*SAMPLES, *random_strings(3000)]
    rows = tokenizer.to_ids(texts)
    known = [UNK not in row for row in rows]
    for text, row, is_known in zip(
        texts, tokenizer.to_strings(rows), known, strict=True
    ):
        if is_known:
            assert row == normalized(tokenizer, text)
    assert sum(known) > 1000
    # Marks in a text are no marks.
    assert small.to_strings(small.to_ids([f"d{TITLE}o"])) == ["d ⁇ o"]


def test_a_word_has_the_same_tokens_in_every_case(small):
    word = small.to_ids(["house"])[0][:-1]
    for text, first in (("House", TITLE), ("HOUSE", UPPER)):
        assert small.to_ids([text])[0][:-1] == [small.mark_ids[first], *word]
    pair = small.to_ids(["RED HOUSE"])[0]
    assert pair[-2:] == [small.mark_ids[END], EOS]
    assert pair[-2 - len(word) : -2] == word


def test_a_graph_has_the_same_ids_and_texts(tokenizer, small):
    texts = [*SAMPLES, *random_strings(1500, longest=30)]
    for one in (tokenizer, small):
        encode = tf.function(
            one.encode, input_signature=[tf.TensorSpec([None], tf.string)]
        )
        decode = tf.function(
            one.decode, input_signature=[tf.TensorSpec([None, None], tf.int32)]
        )
        for some in (texts[:1], texts[:700], texts[700:]):
            rows = one.to_ids(some)
            assert encode(tf.constant(some)).to_list() == rows
            ids = tf.ragged.constant(rows, tf.int32).to_tensor()
            found = [text.decode() for text in decode(ids).numpy()]
            assert found == one.to_strings(rows)
        assert encode(tf.constant([], tf.string)).to_list() == []


def test_a_graph_reads_whatever_a_model_writes():
    """Marks in any order."""
    texts = random_strings(3000, "abßΣς1. -'" + 3 * MARKS, longest=12)
    restored = tf.function(graph_tokenization.restore_case)(tf.constant(texts))
    assert [text.decode() for text in restored.numpy()] == [
        case_marks.remove_marks(case_marks.capitalize(text)) for text in texts
    ]


def test_marks_without_a_counterpart_have_a_meaning(small):
    ids = small.mark_ids
    word = small.to_ids(["red"])[0][:-1]
    for row, expected in (
        ([ids[BEGIN], *word, *word], "RED RED"),
        ([*word, ids[END], ids[TITLE], ids[UPPER]], "red"),
        ([ids[UPPER], ids[TITLE], *word], "Red"),
        (
            [ids[BEGIN], *word, ids[TITLE], *word, ids[END], *word],
            "RED RED red",
        ),
    ):
        assert small.to_strings([row]) == [expected]
        assert "".join(small.parts(row)) == expected
    space, letter = small.table["\u2581"], small.table["o"]
    row = [ids[TITLE], space, letter, space, letter]
    assert small.parts(row) == ["", "", "O", " ", "o"]


def test_parts_are_the_text_of_each_token(tokenizer):
    texts = [*SAMPLES, *random_strings(500)]
    for text, row in zip(texts, tokenizer.to_ids(texts), strict=True):
        parts = tokenizer.parts(row[:-1])
        assert len(parts) == len(row) - 1
        joined = "".join(parts)
        assert joined.strip(" ") == tokenizer.to_strings([row])[0], text
    row = tokenizer.to_ids(["A Dog"])[0][:-1]
    assert "".join(tokenizer.parts(row)) == "A Dog"


def test_tokens_are_where_their_text_is(tokenizer):
    texts = [t for t in SAMPLES if t.isprintable()] + random_strings(
        500, LETTERS.replace("\u3000", "")
    )
    rows = tokenizer.to_ids(texts)
    for text, tokens, row in zip(
        texts, tokenizer.tokens(texts), rows, strict=True
    ):
        assert [token.id for token in tokens] == row[:-1]
        words = text.split()
        found = ["" for _ in words]
        for token in tokens:
            assert text[token.begin :].startswith(token.text)
            if token.text or tokenizer.pieces[token.id] in MARKS:
                before = text[: token.begin + 1]
                assert token.word == len(before.split()) - 1, (text, token)
                found[token.word] += token.text
        assert found == words


def test_the_vocabulary_file_says_that_it_has_marks(small, tmp_path, pairs):
    small.save(tmp_path / "some.model")
    again = Tokenizer.load(tmp_path / "some.model")
    assert again.to_ids(["A RED HOUSE"]) == small.to_ids(["A RED HOUSE"])
    plain = Tokenizer.train(list(itertools.chain(*pairs)), vocab_size=40)
    assert small.has_case_marks and not plain.has_case_marks
    assert plain.mark_ids == {}
    assert plain.segmenting_bytes == plain.model_bytes
    for same in (small.without_tags, small.inside_words):
        assert same.has_case_marks
    assert small.inside_words.to_ids(["House"])[0][0] == small.mark_ids[TITLE]


# ------------------------------------------------------------- training data


def test_marks_stay_whole_in_sampled_segmentations(small, pairs):
    lines = [target for _, target in pairs]
    canonical = [row[:-1] for row in small.to_ids(lines)]
    assert sample(small, lines, 0.0) == canonical
    sampled = sample(small, lines, 0.5)
    assert sampled != canonical
    assert small.to_strings(sampled) == small.to_strings(canonical)
    kt.SampledCorpus(pairs, small, 60, alpha=0.3, seed=1)


def test_noise_has_no_marks(small, pairs):
    corpus = ModifiedCorpus(pairs, small, 90, {"Noise": 1.0}, seed=1)
    assert corpus._alphabet
    assert not set(corpus._alphabet) & set(MARKS)


def test_words_of_links_are_those_of_the_text(small, pairs, tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0-1 1-2 2-3\n" * len(pairs))
    links = word_links.TokenLinks(
        word_links.read_links([(str(path), pairs)]),
        kt.encode_corpus(pairs, small, 60),
        small,
    )
    assert "0 pairs have no links" in str(links)
    texts = [target for _, target in pairs]
    rows = tf.ragged.constant(small.to_ids(texts)).to_tensor().numpy()
    for tokens, found in zip(
        small.tokens(texts), links._target.of(rows), strict=True
    ):
        words = [token.word for token in tokens]
        assert found.tolist() == words + [-1] * (len(found) - len(words))


# --------------------------------------------------------------- translation


def test_terms_and_forbidden_words(small):
    def ids(text):
        return small.to_ids([text])[0][:-1]

    def has(text, phrase):
        [phrase] = phrase_ids(small, [phrase])
        row = ids(text)
        return any(
            tuple(row[i : i + len(phrase)]) == phrase for i in range(len(row))
        )

    assert has("red House", "House")
    assert has("House", "House")
    assert has("RED HOUSE", "house")
    assert has("House", "house")
    assert not has("house", "House")
    assert not has("RED HOUSE", "House")
    row = Row([EOS], avoid=("House",), tokenizer=small)
    for text in ("red House", "RED HOUSE", "HOUSE", "house"):
        avoiding = without_words(row, [ids(text)])
        assert tuple(ids("house")) in avoiding.forbidden


def test_a_prefix_may_end_within_capitals(small, translator):
    texts = ["RED HO", "RED HOUSE", "Red", "NA"]
    rows = small.to_prefixes(texts)
    assert small.mark_ids[END] not in rows[0] + rows[1]
    assert small.to_strings(rows) == texts
    assert rows[2:] == [row[:-1] for row in small.to_ids(texts[2:])]
    found = translator.translate(["a dog"] * 4, prefixes=texts)
    for text, prefix in zip(found, texts, strict=True):
        assert text.startswith(prefix)


def test_words_are_aligned_and_figures_show_marks(translator):
    [alignment] = translator.align([("A RED DOG", "Oh, A RED DOG")])
    assert {target for _, target in alignment.links} == {0, 1, 2, 3}
    figure = attention_figure(translator, "A RED dog", "Oh, NASA")
    assert "⇪" in [token.text for token in figure.tokens["source"]] + [
        token.text for token in figure.tokens["written"]
    ]
    assert not any(mark in figure.html() for mark in MARKS)


# ------------------------------------------------------------------- exports


@pytest.mark.slow("format")
def test_a_saved_model_answers_as_the_translator(translator):
    signatures = saved_model.Signatures(translator).make()
    texts = ["A RED DOG", "", "HOUSE", "Red dog"]  # without unknown letters
    assert_answers(signatures, translator, texts)
    prefixes = ["RED HO", "NASA BIRD", "Red", ""]
    found = signatures["forced"](
        text=tf.constant(texts), target_prefix=tf.constant(prefixes)
    )
    ids = [best[0][0] for best in translator.n_best_ids(texts, prefixes)]
    expected = translator.tokenizer.target.to_strings(ids)
    assert [t.decode() for t in found["translation"].numpy()] == expected


def test_the_script_that_runs_exports_puts_the_same_marks(
    tokenizer, small, tmp_path
):
    """ONNX, TFLite and CTranslate2 read and write text by it."""
    formats.save_vocabulary(TokenizerPair(tokenizer, small), tmp_path)
    encode, decode, _ = reload_tokenizer.load_tokenizer(
        tmp_path, {"max_source_length": 99}
    )
    for text in [*SAMPLES, *random_strings(1000)]:
        assert encode(text)[0] == tokenizer.to_ids([text])[0]
    for ids in np.random.default_rng(1).integers(4, 50, [300, 9]).tolist():
        assert decode(ids) == small.to_strings([ids])[0]


def test_marian_tokenizer_is_refused(translator, tmp_path):
    with pytest.raises(Exception, match="huggingface needs case_marks=False"):
        huggingface.write(formats.Export(translator, tmp_path, None, {}, []))
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ the flag


@pytest.fixture(scope="module")
def argv(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("marks")
    write_pairs(path / "train", pairs)
    return [
        "--dataset=files",
        "--source_language=en",
        "--target_language=de",
        f"--train_files={path / 'train'}",
    ]


@pytest.mark.parametrize(
    "marked, given, message",
    [
        (True, [], "case_marks=True, as in the vocabulary"),
        (False, ["--case_marks"], "case_marks=False, as in the"),
        (None, ["--case_marks", "--vocabulary_symbols=<BT>"], "'<BT>'"),
        (False, ["--byte_fallback"], "byte_fallback=False, as in the"),
        (False, ["--split_digits"], "split_digits=False, as in the"),
        (False, ["--normalization=nfkc"], "normalization=nmt_nfkc, as in"),
        (
            None,
            ["--case_marks", "--normalization=nfkc_cf"],
            "case_marks=True excludes normalization=nmt_nfkc_cf or nfkc_cf",
        ),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    marked, given, message, argv, small, pairs, tmp_path, capsys
):
    if marked is not None:
        plain = Tokenizer.train(list(itertools.chain(*pairs)), vocab_size=40)
        (small if marked else plain).save(tmp_path / "some.model")
        given = [*given, f"--tokenizer={tmp_path / 'some.model'}"]
        run = [*argv, *given, f"--output={tmp_path / 'p'}"]
        assert message in fails(prepare.main, run, capsys)
    else:
        given = [*given, "--vocab_size=60"]
    run = [*argv, *given, f"--workdir={tmp_path / 'run'}"]
    assert message in fails(wmt.main, [*run, "--train_steps=1"], capsys)
