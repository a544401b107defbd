"""The tokenizer: training, round trips, graphs, files and errors."""

import ast
import concurrent.futures
import functools
import io
import os
import pathlib
import random

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from commands import run_python
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.data.changing.segmentation import make_sampler
from keras_transformer.importers.vocabularies import make_tokenizer
from keras_transformer.text.graph_tokenization import truncate
from keras_transformer.text.tokenization import (
    END_OF_TABLE,
    END_OF_TABLE_WITH_CODES,
    Tokenizer,
)
from keras_transformer.text.vocabulary import BOS, EOS, PAD, UNK

WORDS = (
    "Ein Hund läuft über die Straße und die Frau sieht ihm im Garten zu"
    " A dog runs across the road while the woman watches it in her garden"
    " Öl Übung ärgerlich größer don't well-known 3,50 (twice)."
).split()


def make_lines(num_lines, seed=0):
    """Makes lines of random words."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
        for _ in range(num_lines)
    ]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(make_lines(500), vocab_size=150)


def strings_of(tensor):
    return [value.decode() for value in tensor.numpy()]


def graph_ids(tokenizer, strings):
    """Returns the ids of strings, by TensorFlow Text in a graph."""
    signature = [tf.TensorSpec([None], tf.string)]
    encode = tf.function(
        tokenizer.encode, input_signature=signature, autograph=False
    )
    return encode(tf.constant(strings, tf.string)).to_list()


def graph_strings(tokenizer, rows):
    """Returns the strings of lists of ids, by TensorFlow Text in a graph."""
    decode = tf.function(tokenizer.decode, autograph=False)
    return strings_of(decode(tf.ragged.constant(rows, tf.int32)))


def test_every_row_ends_with_eos_and_has_no_bos(tokenizer):
    """Texts may contain the names of special pieces."""
    lines = [*make_lines(20, seed=1), "<pad> <s> </s> dog", ""]
    rows = tokenizer.encode(lines)
    assert rows.dtype == tf.int32
    assert rows[-1].numpy().tolist() == [EOS]
    for row in rows.to_list():
        assert row[-1] == EOS
        assert not {PAD, BOS, EOS} & set(row[:-1])


def test_decode_inverts_encode(tokenizer):
    lines = [*make_lines(200, seed=2), "Größer!? don't: Öl", ""]
    known = "".join(WORDS) + " "
    lines = ["".join(c for c in line if c in known) for line in lines]
    assert strings_of(tokenizer.decode(tokenizer.encode(lines))) == lines


def test_white_space_and_compatibility_characters_are_normalized(tokenizer):
    texts = ["  a \t dog\u00a0runs  ", "ﬁnds", "Ｄog", "STRASSE Straße"]
    lines = [*make_lines(100), "STRASSE finds Dog"]
    known = Tokenizer.train(lines, vocab_size=120)
    decoded = strings_of(known.decode(known.encode(texts)))
    assert decoded == ["a dog runs", "finds", "Dog", "STRASSE Straße"]


def test_characters_outside_the_vocabulary_are_unknown(tokenizer):
    (row,) = tokenizer.encode(["a 😀 dog"]).to_list()
    assert row.count(UNK) == 1
    assert strings_of(tokenizer.decode([row])) == ["a  ⁇  dog"]


def test_decode_stops_at_eos_and_skips_padding(tokenizer):
    (dog,) = tokenizer.encode(["dog"]).to_list()
    dog = dog[:-1]
    rows = [[BOS, *dog, EOS, *dog, EOS], [*dog, PAD, *dog], [EOS, *dog], []]
    assert strings_of(tokenizer.decode(rows)) == ["dog", "dog dog", "", ""]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
def test_decode_takes_dense_ragged_and_lists(tokenizer, dtype):
    lines = make_lines(5, seed=3)
    ragged = tokenizer.encode(lines)
    dense = ragged.to_tensor().numpy().astype(dtype)
    for ids in (ragged, dense, tf.constant(dense), ragged.to_list()):
        assert strings_of(tokenizer.decode(ids)) == lines


def test_no_rows(tokenizer):
    assert tokenizer.encode([]).shape[0] == 0
    assert tokenizer.decode([]).shape == (0,)


def test_agrees_with_sentencepiece(tokenizer):
    """U+0085 is white space to `str.strip`, but not to the vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer.model_bytes
    )
    lines = [*make_lines(200, seed=4), "\x85dog\u2028"]
    expected = processor.encode(lines, add_eos=True)
    assert tokenizer.encode(lines).to_list() == expected
    assert tokenizer.to_ids(lines) == graph_ids(tokenizer, lines) == expected
    assert UNK in expected.pop() and UNK not in sum(expected, [])
    decoded = processor.decode([row[:-1] for row in expected])
    assert strings_of(tokenizer.decode(expected)) == decoded
    assert graph_strings(tokenizer, expected) == decoded
    assert tokenizer.vocab_size == processor.get_piece_size() == 150
    assert tokenizer.pieces == [processor.id_to_piece(i) for i in range(150)]


def train(model_type, lines, vocab_size, **options):
    """Trains a SentencePiece vocabulary with our special ids."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        minloglevel=2,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
        **options,
    )
    return Tokenizer(model.getvalue())


@functools.cache
def trained(model_type, *others):
    """Trains a vocabulary on words, with further options."""
    options = dict(others)
    if model_type != "bpe":
        options["hard_vocab_limit"] = False
    size = 400 if BYTES in others else 150
    return train(model_type, make_lines(500), size, **options)


BYTES = ("byte_fallback", True)
RARE_UNKNOWN = ("character_coverage", 0.98)
KEPT_SPACES = (
    ("remove_extra_whitespaces", False),
    ("normalization_rule_name", "identity"),
)
# What the language of the other side has, and this one does not.
FOREIGN = ("ä", "ß", "☃", "日本", "\\", "\u2581日", "''", ".C", "ea", "o\u2581")
KINDS = {
    "bpe": ("bpe",),
    "bpe with bytes": ("bpe", BYTES),
    "bpe with spaces": ("bpe", RARE_UNKNOWN, *KEPT_SPACES),
    "unigram": ("unigram", BYTES),
    "unigram with spaces": ("unigram", RARE_UNKNOWN, *KEPT_SPACES),
    "char": ("char", RARE_UNKNOWN),
    "word": ("word",),
}


def table_of(tokenizer):
    """Makes a table in another order, with a language code, for both languages.

    It lacks some pieces of the model.
    """
    special, pieces = tokenizer.pieces[:4], tokenizer.pieces[4:]
    pieces += [piece for piece in FOREIGN if piece not in pieces]
    if not any(piece.startswith("<0x") for piece in pieces):
        pieces = pieces[6:]
    random.Random(5).shuffle(pieces)
    return [*special, ">>fra<<", *pieces]


def test_foreign_pieces_of_a_table_do_not_merge():
    """Pieces of the table that the model has not: `ab` and `yz`."""
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.normalizer_spec.add_dummy_prefix = False
    for rank, piece in enumerate(["<unk>", "xy", "abc", *"abcxyz"]):
        kind = model.SentencePiece.NORMAL if rank else 2
        model.pieces.add(piece=piece, score=-rank, type=kind)
    table = ["<pad>", "<s>", "</s>", "<unk>", "xy", "abc", *"abcxyz"]
    table += ["ab", "yz"]
    found = make_tokenizer(model.SerializeToString(), table, "model")
    # Merged first, `yz` would leave `x`.
    (row, other) = found.to_ids(["xyz", "abc"])
    assert [table[id] for id in row] == ["xy", "z", "</s>"]
    # Nothing but `ab` merges into `abc`, and the model does not have `ab`.
    assert [table[id] for id in other] == ["a", "b", "c", "</s>"]
    # A decoder may emit them.
    assert found.to_strings([[table.index("ab"), table.index("yz")]]) == [
        "abyz"
    ]


def with_table(tokenizer):
    return make_tokenizer(tokenizer.model_bytes, table_of(tokenizer), "model")


@pytest.fixture(
    scope="module",
    params=[*KINDS, *(f"{kind}, table" for kind in KINDS)],
)
def any_tokenizer(request):
    kind, _, table = request.param.partition(", ")
    tokenizer = trained(*KINDS[kind])
    return with_table(tokenizer) if table else tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_a_table_are_those_of_the_models_segments(kind):
    """SentencePiece with the model as it was before it had a table."""
    tokenizer = trained(*KINDS[kind])
    original = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer.model_bytes
    )
    ids = {piece: id for id, piece in enumerate(table_of(tokenizer)) if id > 3}
    strings = [s for s in make_odd_strings() if not s.startswith(">>")]
    expected = [
        [*(ids.get(segment, UNK) for segment in row), EOS]
        for row in original.encode(strings, out_type=str)
    ]
    with_ids = with_table(tokenizer)
    assert with_ids.to_ids(strings) == expected
    assert graph_ids(with_ids, strings) == expected
    found = [[t.id for t in row] for row in with_ids.tokens(strings)]
    assert found == [row[:-1] for row in expected]


@pytest.mark.parametrize("end", [END_OF_TABLE, END_OF_TABLE_WITH_CODES])
def test_which_language_codes_are_segments(end):
    original = trained("bpe")
    table = [*original.pieces, ">>fra<<"]
    tokenizer = make_tokenizer(original.model_bytes, table, "x", end)
    (dog,) = original.to_ids(["dog"])
    unknown = ">>deu<<dog"
    strings = [">>fra<<dog", "dog >>fra<<", unknown]
    code = [table.index(">>fra<<"), *dog]
    text = original.to_ids(strings)
    text[0] = code
    if end == END_OF_TABLE:
        text[2] = [UNK, *dog]
    assert tokenizer.to_ids(strings) == text
    assert graph_ids(tokenizer, strings) == text
    assert [t.id for t in tokenizer.tokens([strings[0]])[0]] == code[:-1]


def test_the_segmenting_model_lacks_only_the_pieces_of_the_table():
    """It has special tokens, and pieces of the model after the table."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(trained("bpe").model_bytes)
    model.pieces[4].type = model.SentencePiece.UNUSED
    own = [piece.piece for piece in model.pieces]
    table = [*own[:4], ">>fra<<", "☃", *own[12:]]
    made = make_tokenizer(model.SerializeToString(), table, "model")
    found = sentencepiece.SentencePieceProcessor(
        model_proto=made.segmenting_bytes
    )
    pieces = found.id_to_piece(list(range(found.get_piece_size())))
    assert sorted(pieces) == sorted(own)
    proto = model.FromString(made.segmenting_bytes)
    assert proto.trainer_spec.vocab_size == len(own)
    ids = found.pad_id(), found.bos_id(), found.eos_id(), found.unk_id()
    assert ids == (PAD, BOS, EOS, UNK)


def with_foreign_pair():
    """Makes c and d merge first, so `abcd` is not reached through `ab`.

    `ab` is a piece of the table only.
    """
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(trained("bpe").model_bytes)
    names = ["\u2581", "a", "b", "c", "d", "cd", "bc", "abc", "abcd"]
    del model.pieces[4:]
    for rank, name in enumerate(names):
        model.pieces.add(piece=name, score=-rank)
    table = ["<pad>", "<s>", "</s>", "<unk>", *names, "ab"]
    content = model.SerializeToString()
    return make_tokenizer(content, table, "model")


def make_odd_strings():
    """Makes text with white space, controls, codes, scripts and surrogates."""
    rng = random.Random(6)
    odd = " \t\n\r\0\x01\x1c\x7f\x85\u2028\u3000\u200b\ufeff"
    odd += "▁ﬁ⁇ÖöО日한ع😀e\u0301<s></s>"
    strings = ["", " ", ">>fra<<", ">>fra<< A dog", "a >>fra<< dog", ">><<x"]
    strings += [">>fra<<\nEin Hund", ">>deu<< Ein", "</s><pad> A", "A\0dog"]
    strings += ["''", "C:\\x", "ß ä 😀", "\u2028dog\u2028\x1f", "\x85", "\0"]
    strings += [">>fra<<\u2028dog", "a☃☃b ☃ ☃☃ 日本", "\x85 The  dog \x85"]
    strings.append("  dog  ")
    for line in make_lines(150, seed=7):
        characters = list(line)
        for _ in range(rng.randint(0, 6)):
            characters.insert(rng.randint(0, len(line)), rng.choice(odd))
        strings.append("".join(characters))
    return strings


def test_to_ids_is_encode_in_a_graph(any_tokenizer):
    strings = make_odd_strings()
    found = any_tokenizer.to_ids(strings)
    assert graph_ids(any_tokenizer, strings) == found
    assert any_tokenizer.encode(strings).to_list() == found
    has_bytes = any(kind == "BYTE" for _, _, kind in any_tokenizer.entries)
    assert any_tokenizer.has_table or has_bytes != any(
        UNK in row for row in found
    )
    assert any_tokenizer.to_ids([]) == []


def test_to_strings_is_decode_in_a_graph(any_tokenizer):
    rng = random.Random(8)
    size = any_tokenizer.vocab_size
    rows = [[], [EOS], [PAD], [UNK], [UNK, UNK], [BOS, 5, PAD, 6, EOS, 7]]
    for _ in range(200):
        rows.append(rng.choices(range(size), k=rng.randint(0, 12)))
        rows.append(rng.choices(range(EOS + 1, size), k=rng.randint(1, 12)))
    rows += any_tokenizer.to_ids(make_odd_strings())
    found = any_tokenizer.to_strings(rows)
    assert graph_strings(any_tokenizer, rows) == found
    assert strings_of(any_tokenizer.decode(rows)) == found
    assert any_tokenizer.to_strings(np.array(rows[-1:])) == found[-1:]
    assert any_tokenizer.to_strings([]) == []


def test_tokens_of_a_string_and_their_words(tokenizer):
    text = " \u2028Öl  ☃☃ dog \x85"
    (tokens,) = tokenizer.tokens([text])
    assert [token.id for token in tokens] == tokenizer.to_ids([text])[0][:-1]
    words = ["".join(t.text for t in tokens if t.word == i) for i in range(4)]
    assert words == ["Öl", "☃☃", "dog", ""]  # U+0085 is no word
    assert tokens[-1] == (UNK, "", 3, len(text))
    assert all(text[t.begin :].startswith(t.text) for t in tokens)
    assert [t.begin for t in tokens][:1] == [2]
    # Also where normalization changes what is written.
    text = "the\u00a0quick ﬁ x…"
    (tokens,) = tokenizer.tokens([text])
    words = ["".join(t.text for t in tokens if t.word == i) for i in range(4)]
    assert words == text.split()
    (tokens,) = with_table(tokenizer).tokens([">>fra<<Öl dog"])
    assert [token.word for token in tokens[:2]] == [0, 0]
    assert tokens[0].text == ">>fra<<" and tokens[-1].word == 1
    assert tokens[1].begin == 7


def test_it_works_without_tensorflow(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    tokenizer.save(path)
    program = (
        "import sys\n"
        "for name in ('tensorflow', 'tensorflow_text'):\n"
        "    sys.modules[name] = None\n"
        "from keras_transformer.text.tokenization import Tokenizer\n"
        "tokenizer = Tokenizer.load(sys.argv[1])\n"
        "Tokenizer.train(['a rose is a rose'], 17).save(sys.argv[2])\n"
        "rows = tokenizer.to_ids(['the dog', ''])\n"
        "print(rows, tokenizer.to_strings(rows))\n"
        "print([t.text for t in tokenizer.tokens(['the dog'])[0]])\n"
    )
    output = run_python("-c", program, path, tmp_path / "other")
    rows = tokenizer.encode(["the dog", ""]).to_list()
    first, second = output.splitlines()
    assert first == f"{rows} ['the dog', '']"
    assert "".join(ast.literal_eval(second)) == "thedog"
    assert Tokenizer.load(tmp_path / "other").vocab_size == 17


def test_bytes_that_are_not_utf_8_are_replaced(tokenizer):
    """Commands and exports replace them in the same way."""
    rows = tokenizer.encode(tf.constant([b"a\xff dog"]))
    assert rows.to_list() == tokenizer.to_ids(["a\ufffd dog"])


def test_half_of_a_character_is_no_text(any_tokenizer):
    with pytest.raises(ValueError, match=r"surrogates\. Received: 'a\\ud800'"):
        any_tokenizer.to_ids(["fine", "a\ud800"])


def test_survives_a_new_random_seed(tokenizer):
    """TensorFlow clears its caches then, and kernels lose their resources."""
    in_graph = tf.function(tokenizer.encode)
    strings = tf.constant(["the dog"])
    expected = tokenizer.encode(strings).to_list()
    for seed in range(3):
        assert in_graph(strings).to_list() == expected
        keras.utils.set_random_seed(seed)
        for encode in (tokenizer.encode, in_graph):
            assert encode(strings).to_list() == expected


def test_threads_share_a_tokenizer(tokenizer):
    lines = make_lines(20, seed=7)
    expected = tokenizer.encode(lines).to_list()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for seed in range(5):
            keras.utils.set_random_seed(seed)
            results = threads.map(tokenizer.encode, [lines] * 16)
            assert all(ids.to_list() == expected for ids in results)


def test_save_and_load_are_identical(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_text("an older file")
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.model_bytes == tokenizer.model_bytes
    lines = make_lines(20, seed=6)
    assert loaded.encode(lines).to_list() == tokenizer.encode(lines).to_list()
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.model"]


def test_a_file_is_replaced_only_by_a_complete_one(
    tokenizer, tmp_path, monkeypatch
):
    def fails(source, target):
        assert pathlib.Path(source).read_bytes() == tokenizer.model_bytes
        raise OSError(28, "No space left")  # as `write` has it: of no file

    path = tmp_path / "tokenizer.model"
    path.write_text("an older file")
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match=f"No space left: '{path}'"):
        tokenizer.save(path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["an older file"]


@pytest.mark.parametrize("options", [{}, {"max_lines": 150}])
def test_training_is_deterministic_and_reads_generators(options):
    """It may also sample a large corpus."""
    lines = make_lines(200)
    first, second = (
        Tokenizer.train(each, vocab_size=100, **options)
        for each in (lines, (line for line in lines))
    )
    assert first.model_bytes == second.model_bytes


def test_the_sample_is_of_the_whole_corpus():
    lines = ["a rose"] * 300 + ["Öl"] * 300
    tokenizer = Tokenizer.train(lines, vocab_size=12, max_lines=150)
    assert {"a", "r", "Ö", "l"} <= set("".join(tokenizer.pieces))


def test_long_lines_and_rare_characters_are_learned():
    lines = ["a rose is a rose"] * 500 + ["rose " * 2000 + "ß"]
    tokenizer = Tokenizer.train(lines, vocab_size=14)
    assert "ß" in tokenizer.pieces


def test_training_is_quiet(capfd):
    Tokenizer.train(make_lines(100), vocab_size=100)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_the_bounds_that_errors_name_are_right():
    lines = ["a rose is a rose"]
    with pytest.raises(ValueError, match="at most 23.*vocab_size=100"):
        Tokenizer.train(lines, vocab_size=100)
    with pytest.raises(ValueError, match="at least 11.*vocab_size=6"):
        Tokenizer.train(lines, vocab_size=6)
    assert Tokenizer.train(lines, vocab_size=23).vocab_size == 23
    assert Tokenizer.train(lines, vocab_size=11).vocab_size == 11
    with pytest.raises(ValueError, match="above 4.*vocab_size=4"):
        Tokenizer.train(lines, vocab_size=4)


@pytest.mark.parametrize("case_marks", [False, True])
def test_a_small_corpus_may_have_fewer_subwords(case_marks):
    def train(size, at_most):
        options = {"case_marks": case_marks, "at_most": at_most}
        return Tokenizer.train(["a rose is a rose"], size, **options)

    largest = train(100, at_most=True)
    number = largest.vocab_size
    exact = train(number, at_most=False)
    assert number < 30 and largest.pieces == exact.pieces
    assert train(number, at_most=True).model_bytes == exact.model_bytes
    sizes = number - 1, number, number + 1
    assert [*map(largest.is_trained_for, sizes)] == [False, True, True]
    assert [*map(exact.is_trained_for, sizes)] == [False, True, False]


@pytest.mark.parametrize("lines", [[], [""], ["", "  "]])
def test_training_needs_text(lines):
    with pytest.raises(ValueError, match="no text"):
        Tokenizer.train(lines, vocab_size=100)


# Lines that a vocabulary of such lines writes as they are.
SCRIPTS = {
    "Persian": ["من کتاب\u200cها را می\u200cخواهم.", "PDF\u200cها"],
    "Kurdish, with a hamza": ["ئه\u200cم", "مهٔ\u200cبه"],
    "Sinhala": ["ශ්\u200dරී ලංකා"],
    "Hindi, Bengali": ["क्\u200dष क्\u200cष", "র\u200d্য"],
    "Tamil, Malayalam": ["க்\u200cஷ", "ന്\u200d ന്\u200cമ"],
    "Khmer": ["ខ្ញុំ\u200bស្រឡាញ់"],
    "Myanmar, Thai": ["မြန်\u200bမာ", "ไทย\u200bดี"],
    "Mongolian": ["ᠮᠣᠩ\u200cᠭᠣᠯ"],
    "a stray one, too": ["می\u200cخواهم a\u200cb", "۲\u200cام"],
}


@pytest.mark.parametrize("options", [{}, {"case_marks": True}])
@pytest.mark.parametrize("lines", SCRIPTS.values(), ids=SCRIPTS)
def test_joiners_inside_of_words_stay(lines, options):
    tokenizer = Tokenizer.train(lines, 300, at_most=True, **options)
    ids = tokenizer.to_ids(lines)
    assert tokenizer.to_strings(ids) == lines
    assert UNK not in sum(ids, [])
    assert graph_ids(tokenizer, lines) == ids
    assert graph_strings(tokenizer, ids) == lines


def test_joiners_of_other_scripts_are_spaces_as_before():
    plain, joined = (
        ["Auf lage, a b rose"] * 9,
        ["Auf\u200clage, a\u200bb rose"] * 9,
    )
    tokenizer = Tokenizer.train(joined, 40, at_most=True)
    assert tokenizer.to_strings(tokenizer.to_ids(joined[:1])) == plain[:1]
    theirs = train("bpe", plain, 40, hard_vocab_limit=False)
    normalizers = [
        sentencepiece_model_pb2.ModelProto.FromString(
            made.model_bytes
        ).normalizer_spec.precompiled_charsmap
        for made in (tokenizer, theirs)
    ]
    assert normalizers[0] == normalizers[1]


def test_only_the_joiner_of_the_corpus_is_normalized_otherwise():
    lines = SCRIPTS["Persian"]
    ours = Tokenizer.train(lines, 99, at_most=True)
    plain = Tokenizer.train(["a rose"], 99, at_most=True)
    texts = [f"a{chr(code)}b" for code in range(1, 0x3000)]
    changed = [
        ascii(text)
        for text, one, other in zip(
            texts, ours.normalize(texts), plain.normalize(texts), strict=True
        )
        if one != other
    ]
    assert changed == [r"'a\u200cb'"]


ODD = [
    *("The 😆 dog 12345 runs!", "a👨\u200d👩\u200d👧b", "ÉMILE reads É", ""),
    *(
        "می\u200cخواهم 日本語",
        "NASA's ÜBER-Ü x\u200cy",
        "Éé 😆😆 DOGS AND CATS",
    ),
    *("<0xF0> ☃", "\u0600\U0001f1e9\U0001f1ea 1️⃣"),
]


@pytest.mark.parametrize("case_marks", [False, True])
def test_bytes_write_everything_everywhere(case_marks):
    """Lists, graphs, tokens, parts, sampled segments, and the reload."""
    lines = ["The dog runs. 12 123 1234 12345", "A fox reads!"] * 9
    tokenizer = Tokenizer.train(
        lines,
        400,
        at_most=True,
        byte_fallback=True,
        split_digits=True,
        case_marks=case_marks,
    )
    ids = tokenizer.to_ids(ODD)
    assert UNK not in sum(ids, [])
    assert tokenizer.to_strings(ids) == ODD
    assert graph_ids(tokenizer, ODD) == ids
    assert graph_strings(tokenizer, ids) == ODD
    for text, row, tokens in zip(ODD, ids, tokenizer.tokens(ODD), strict=True):
        assert [token.id for token in tokens] == row[:-1]
        assert "".join(t.text for t in tokens) == text.replace(" ", "")
        assert "".join(tokenizer.parts(row[:-1])) == text
        assert all(text[t.begin :].startswith(t.text) for t in tokens)
    # The four bytes of a sign are one span, of one word.
    bytes_of_sign = tokenizer.tokens(ODD[:1])[0]
    bytes_of_sign = [t for t in bytes_of_sign if t.begin == 4 and t.word == 1]
    assert [t.text for t in bytes_of_sign][-4:] == ["", "", "", "😆"]
    digits = [p for p in tokenizer.pieces if not p.startswith("<0x")]
    digits = [p for p in digits if any(map(str.isdigit, p))]
    assert sorted(digits) == [*"12345"]
    for alpha in (0.0, 0.5):
        sampler = make_sampler(tokenizer, alpha)
        words, _ = sampler.number_words(tokenizer.normalize(ODD))
        found, _ = sampler.sample(words, np.random.default_rng(1))
        expected = [id for row in ids for id in row[:-1]]
        assert (found.tolist() == expected) == (not alpha)
        texts = [tokenizer.to_strings([row])[0] for row in (found, expected)]
        assert texts[0] == texts[1]


def test_rare_characters_are_bytes_so_that_training_shows_some():
    lines = ["a rose is a rose"] * 1000 + ["ß"]
    tokenizer = Tokenizer.train(lines, 300, at_most=True, byte_fallback=True)
    assert "ß" not in tokenizer.pieces and "o" in tokenizer.pieces
    with pytest.raises(ValueError, match="vocab_size must be at least 2"):
        Tokenizer.train(lines, 200, byte_fallback=True)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("nmt_nfkc", "Ein fisch. Ä x"),
        ("nfkc", "Ein fisch. Ä x"),
        ("identity", "Ein ﬁsch. Ä\u00a0x"),
        ("nfkc_cf", "ein fisch. ä x"),
        ("nmt_nfkc_cf", "ein fisch. ä x"),
    ],
)
def test_normalizations(name, expected):
    line = "Ein ﬁsch. Ä\u00a0x"
    joined = SCRIPTS["Persian"][0]
    tokenizer = Tokenizer.train(
        [line, joined, "a\u200cb"], 99, at_most=True, normalization=name
    )
    texts = [line, joined]
    assert tokenizer.to_strings(tokenizer.to_ids(texts)) == [expected, joined]
    assert tokenizer.training_options["normalization"] == name


@pytest.mark.parametrize(
    "options",
    [
        {"normalization": "nfd"},
        {"normalization": "nfkc_cf", "case_marks": True},
    ],
)
def test_normalizations_that_are_refused(options):
    with pytest.raises(ValueError, match="expected a normalization of nmt"):
        Tokenizer.train(["a rose"], 99, **options)


def test_errors_of_the_corpus_come_through():
    def lines():
        yield "a rose"
        raise ValueError("train.en, line 2: not UTF-8")

    with pytest.raises(ValueError, match="^train.en, line 2: not UTF-8$"):
        Tokenizer.train(lines(), vocab_size=100)
    with pytest.raises(TypeError, match="Received: .'a', 'b'."):
        Tokenizer.train([("a", "b")], vocab_size=100)
    for path in ("train.en", pathlib.Path("train.en")):
        with pytest.raises(TypeError, match="iterable of str. Received: .*en"):
            Tokenizer.train(path, vocab_size=100)


def test_load_says_what_is_wrong(tmp_path):
    path = tmp_path / "tokenizer.model"
    with pytest.raises(FileNotFoundError, match="tokenizer.model"):
        Tokenizer.load(path)
    for content in (b"", b"no model"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="tokenizer.model.*SentencePiece"):
            Tokenizer.load(path)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(make_lines(100)),
        model_prefix=str(tmp_path / "other"),
        model_type="bpe",
        vocab_size=100,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"Received: \(-1, 1, 2, 0\)"):
        Tokenizer.load(tmp_path / "other.model")
    swapped = sentencepiece_model_pb2.ModelProto()
    swapped.ParseFromString(trained("bpe").model_bytes)
    spec = swapped.trainer_spec
    spec.bos_id, spec.eos_id = EOS, BOS
    spec.bos_piece, spec.eos_piece = "</s>", "<s>"
    with pytest.raises(ValueError, match=r"Received: \(0, 2, 1, 3\)"):
        Tokenizer(swapped.SerializeToString())


def test_encode_wants_one_axis(tokenizer):
    for strings in ("a dog", [["a", "dog"]]):
        with pytest.raises(ValueError, match="one axis"):
            tokenizer.encode(strings)


def test_truncated_rows_keep_eos():
    rows = tf.constant([[7, 8, 9, EOS], [5, EOS, PAD, PAD], [7, 8, EOS, PAD]])
    ids, truncated = truncate(rows, 3)
    assert ids.numpy().tolist() == [[7, 8, EOS], [5, EOS, PAD], [7, 8, EOS]]
    assert truncated.numpy().tolist() == [True, False, False]
    for limit in (4, 9):
        ids, truncated = truncate(rows, limit)
        assert ids.numpy().tolist() == rows.numpy().tolist()
        assert not truncated.numpy().any()


def test_symbols_are_one_token_each_however_rare():
    """One begins another, one is also a word, and one is rare."""
    symbols = ["(S", ")S", "(SBAR", ")SBAR", ".", "XX"]
    lines = make_lines(200) + ["(SBAR (S XX . )S )SBAR"]
    tokenizer = Tokenizer.train(lines, vocab_size=120, symbols=symbols)
    rows = ["(SBAR (S XX . )S )SBAR", "(S )S XX", "A dog runs . across"]
    ids = tokenizer.encode(rows)
    assert ids[:2].row_lengths().numpy().tolist() == [7, 4]
    pieces = [tokenizer.pieces[i] for i in ids[0].numpy()[:-1]]
    assert pieces == [f"\u2581{token}" for token in rows[0].split()]
    assert strings_of(tokenizer.decode(ids)) == rows
    assert tokenizer.find_missing([*symbols, "(NP"]) == ["(NP"]
    with pytest.raises(ValueError, match="vocab_size must be at least"):
        Tokenizer.train(lines, vocab_size=9, symbols=symbols)
