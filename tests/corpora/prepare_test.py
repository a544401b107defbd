"""Corpus preparation: rules, the command, resumption, and training on it."""

import contextlib
import fcntl
import hashlib
import itertools
import json
import multiprocessing
import pathlib
import random
import resource
import shutil
import time

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from commands import fails, fails_without_room, write_pairs
from random_pairs import ids_of

from keras_transformer.base.refusals import LostProcessError
from keras_transformer.commands.flags import CommandError, user_errors
from keras_transformer.data import batches as batches_module
from keras_transformer.data import corpus as corpus_module
from keras_transformer.data import shards
from keras_transformer.importers.vocabularies import make_tokenizer
from keras_transformer.text.tokenization import Tokenizer
from trainers import prepare, wmt
from trainers.datasets import phrasebook
from trainers.preparing import cleaning, preparation
from trainers.preparing.folder import Folder

VOCAB_SIZE = 120
LOOSE = cleaning.Rules(max_length=1000)
ODD = [
    ("", "leer"),
    ("empty", " "),
    ("a\x07bell", "eine Glocke"),
    ("lost", "verl\ufffdren"),
    ("the same", "the same"),
    ("so " + "long" * 16, "so lang"),
    ("12 - 34 !", "eins zwei"),
    ("No . 1234567890 , 12", "Nummer eins zwei"),
    ("a lot of words " * 40, "ein Wort " * 60),
    ("a", "eine viel zu lange Übersetzung für ein einziges Wort"),
]


@pytest.fixture(scope="module")
def pairs():
    """Good pairs, odd ones, and copies."""
    pairs = phrasebook.read_split("train", 900)
    pairs = [*pairs[:500], *ODD, *pairs[100:200], ODD[4], *pairs[500:]]
    return [*pairs, pairs[0]]


@pytest.fixture(scope="module")
def tokenizer(pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    lines = (line for pair in pairs[:400] for line in pair)
    Tokenizer.train(lines, VOCAB_SIZE).save(path)
    return path


@pytest.fixture(scope="module")
def command(pairs, tokenizer, tmp_path_factory):
    """Flags of a preparation, except its output."""
    prefix = tmp_path_factory.mktemp("corpus") / "train"
    return [
        "--dataset=files",
        f"--train_files={write_pairs(prefix, pairs)}",
        f"--tokenizer={tokenizer}",
        "--max_length=256",
        "--shard_pairs=150",
        "--workers=2",
    ]


@pytest.fixture(scope="module")
def prepared(command, tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "out"
    prepare.main([*command, f"--output={path}"])
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def argv(command, tmp_path):
    """Flags of a preparation into a new directory."""
    return [*command, f"--output={tmp_path}/out"]


@contextlib.contextmanager
def killed_at(monkeypatch, owner, name, number=1, counts=lambda *_: True):
    """Makes the process seem to end at a call of a function, if it comes."""
    real, calls = getattr(owner, name), itertools.count(1)

    def stop(*args, **kwargs):
        if counts(*args) and next(calls) == number:
            raise Killed
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        yield


# --------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    "source, target, reason",
    [
        ("A dog runs.", "Ein Hund läuft.", cleaning.KEPT),
        ("", "x", "empty"),
        ("x", "", "empty"),
        ("a\x00b c", "x y", "unreadable"),
        ("a b", "x\x9fy", "unreadable"),
        ("a \ufffd b", "x y", "unreadable"),
        ("a\u200db", "x\u00ady", cleaning.KEPT),  # joiner and soft hyphen
        ("OK then", "OK then", "identical"),
        ("OK then", "ok then", cleaning.KEPT),
        ("a " + "b" * 11, "x", "long_word"),
        ("a", "x" * 11 + " y", "long_word"),
        ("a " + "b" * 10, "x", cleaning.KEPT),
        ("a b", "薔" * 30, cleaning.KEPT),
        ("a b", "x" * 10 + "薔薇", cleaning.KEPT),
        ("a b", "x" * 11 + "薔薇", "long_word"),
        ("1 2", "eins", "no_letter"),
        ("\xa0", "\u3000", "no_letter"),
        ("one", "- !", "no_letter"),
        ("a 1 2 3", "x", "few_letters"),
        ("a b", "x .....", "few_letters"),
        ("a 1", "x 1", cleaning.KEPT),
        ("किताब", "книга", cleaning.KEPT),
        ("हिन्दी में", "книга 12345678", "few_letters"),
    ],
)
def test_rules_of_text(source, target, reason):
    rules = cleaning.Rules(
        max_length=9,
        drop_unreadable=True,
        drop_identical=True,
        max_word_length=10,
        min_letter_share=0.5,
    )
    assert rules.judge(source, target) == reason
    kept = "empty" if reason == "empty" else cleaning.KEPT
    assert LOOSE.judge(source, target) == kept


def test_rules_of_tokens():
    rules = cleaning.Rules(min_length=3, max_length=12, max_ratio=2.0)
    lengths = [(2, 4), (4, 2), (3, 3), (6, 3), (7, 3), (12, 6), (13, 12)]
    masks = rules.judge_lengths(*np.array([*lengths, (4, 9), (2, 13)]).T)
    assert {name: np.flatnonzero(m).tolist() for name, m in masks.items()} == {
        "too_short": [0, 1, 8],
        "too_long": [6],
        "uneven": [4, 7],
    }


def test_hashes_are_of_both_sides(tokenizer):
    cleaner = cleaning.Cleaner(tokenizer.read_bytes(), LOOSE)
    pairs = [("a b", "c"), ("a", "b c"), ("a", "b d"), ("b", "b c")]
    hashes = cleaner.clean(*zip(*pairs, pairs[1], strict=True))["hashes"]
    assert len(set(hashes.tolist())) == 4
    assert hashes[1] == hashes[4]


def make_strange_lines(num_lines):
    """Makes lines with characters from all of Unicode."""
    rng = random.Random(5)
    planes = [(0x20, 0x250), (0x300, 0x370), (0x20, 0x3000), (0x1F000, 0x1FA00)]
    lines = []
    for source, _ in phrasebook.read_split("train", num_lines):
        characters = list(source)
        for _ in range(rng.randrange(12)):
            place = rng.randrange(len(characters) + 1)
            strange = chr(rng.randrange(*rng.choice(planes)))
            characters.insert(place, rng.choice(["", " "]) + strange)
        lines.append(" ".join("".join(characters).split()))
    return [*lines, "", "\u00a8", "a \u200b b", "\u2581 a \u2581b", "</s> a"]


@pytest.mark.parametrize("by_word", [True, False])
def test_ids_are_those_of_the_tokenizer(tokenizer, by_word):
    lines = make_strange_lines(400)
    encoder = cleaning.Encoder(tokenizer.read_bytes())
    assert encoder.by_word
    encoder.by_word = by_word
    ids, lengths = encoder.encode(lines)
    expected = Tokenizer.load(tokenizer).encode(lines)
    np.testing.assert_array_equal(ids, expected.values)
    np.testing.assert_array_equal(lengths, expected.row_lengths())


def test_few_words_are_remembered(tokenizer, monkeypatch):
    lines = make_strange_lines(60)
    whole = cleaning.Encoder(tokenizer.read_bytes()).encode(lines)
    monkeypatch.setattr(cleaning, "MAX_WORDS", 20)
    encoder = cleaning.Encoder(tokenizer.read_bytes())
    parts = [encoder.encode(lines[i : i + 5]) for i in range(0, len(lines), 5)]
    for one, other in zip(
        map(np.concatenate, zip(*parts, strict=True)), whole, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_pieces_with_spaces_inside_are_not_found_by_word(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["of the a of the b of the c"] * 9),
        model_prefix=str(tmp_path / "m"),
        model_type="bpe",
        vocab_size=22,
        split_by_whitespace=False,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    encoder = cleaning.Encoder((tmp_path / "m.model").read_bytes())
    assert not encoder.by_word
    expected = Tokenizer.load(tmp_path / "m.model").encode(["of the of the"])
    np.testing.assert_array_equal(
        encoder.encode(["of the of the"])[0], expected.values
    )


def test_processes_keep_the_order_and_end(tokenizer):
    chunks = [(n, [f"word {n}"] * n, ["Wort"] * n) for n in range(1, 30)]
    model = tokenizer.read_bytes()
    results = cleaning.clean_chunks(iter(chunks), 2, model, LOOSE)
    first = next(results)
    processes = multiprocessing.active_children()
    assert len(processes) == 2
    results = [first, *results]
    assert [tag for tag, _ in results] == list(range(1, 30))
    assert [len(r["hashes"]) for _, r in results] == list(range(1, 30))
    for process in processes:
        process.join(timeout=600)
        assert process.exitcode == 0


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("seconds", [0, 0.3, 1])
def test_a_lost_process_is_told(tokenizer, seconds, has_ended):
    """It may end in the middle of a result larger than a pipe's buffer."""
    line = " ".join(f"w{n}" for n in range(100))
    chunks = [(n, [line] * 2000, [f"{line} a"] * 2000) for n in range(9)]
    model = tokenizer.read_bytes()
    results = cleaning.clean_chunks(chunks, 1, model, LOOSE)
    next(results)
    [process] = multiprocessing.active_children()
    time.sleep(seconds)
    process.kill()
    if has_ended:  # before it is sent the next chunk
        process.join()
    with pytest.raises(LostProcessError, match="ended early"):
        list(results)


# ------------------------------------------------------------------- command


def test_each_rule_is_counted_on_its_own(prepared, pairs):
    index = json.loads((prepared / "index.json").read_text())
    assert index["dropped"] == {
        "empty": 2,
        "unreadable": 2,
        "identical": 2,
        "long_word": 1,
        "no_letter": 1,
        "few_letters": 1,
        "too_short": 0,
        "too_long": 1,
        "uneven": 1,
        "duplicate": 900 - len(set(pairs) - set(ODD)) + 101,
    }
    assert index["read"] == len(pairs)
    assert index["kept"] == len(set(pairs) - set(ODD))
    assert set(contents(prepared)) == {
        "index.json",
        "tokenizer.model",
        *(shard["file"] for shard in index["shards"]),
    }


def test_the_pairs_are_the_first_of_each(prepared, pairs, tokenizer):
    corpus = shards.read_prepared(prepared)
    unique = [pair for pair in dict.fromkeys(pairs) if pair not in ODD]
    expected = corpus_module.encode_corpus(
        unique, Tokenizer.load(tokenizer), 256
    )
    assert ids_of(corpus) == ids_of(expected)
    batches, others = (
        batches_module.make_batches(each, 400, num_buckets=3, seed=4)
        for each in (corpus, expected)
    )
    for one, other in zip(
        batches.dataset(epochs=1), others.dataset(epochs=1), strict=True
    ):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_without_cleaning_it_is_the_corpus(argv, pairs, tokenizer, tmp_path):
    prepare.main([*argv, "--noclean"])
    corpus = shards.read_prepared(tmp_path / "out")
    stripped = [tuple(" ".join(s.split()) for s in pair) for pair in pairs]
    expected = corpus_module.encode_corpus(
        stripped, Tokenizer.load(tokenizer), 256
    )
    assert ids_of(corpus) == ids_of(expected)
    assert corpus.counts.dropped["empty"] == expected.counts.empty
    assert corpus.counts.dropped["too_long"] == expected.counts.too_long


def test_processes_and_chunks_change_nothing(
    argv, prepared, tmp_path, monkeypatch
):
    monkeypatch.setattr(cleaning, "CHUNK_SIZE", 64)
    prepare.main([*argv, "--workers=1"])
    assert contents(tmp_path / "out") == contents(prepared)


def test_a_shard_of_duplicates_alone_is_left_out(argv, pairs, tmp_path):
    prefix = write_pairs(tmp_path / "train", pairs[:4] * 2 + pairs[4:6])
    flags = [f"--train_files={prefix}", "--shard_pairs=4", "--workers=1"]
    prepare.main([*argv, *flags])
    index = shards.read_index(tmp_path / "out")
    assert [record["pairs"] for record in index["shards"]] == [4, 2]
    assert len(list((tmp_path / "out").glob("*.shard"))) == 2
    assert len(shards.read_prepared(tmp_path / "out")) == 6


def test_done_is_done(command, prepared, capsys):
    before = contents(prepared)
    times = {path: path.stat().st_mtime_ns for path in prepared.iterdir()}
    prepare.main([*command, f"--output={prepared}"])
    assert "finished already" in capsys.readouterr().out
    assert contents(prepared) == before
    assert times == {p: p.stat().st_mtime_ns for p in prepared.iterdir()}


def test_what_was_prepared_before_an_option_of_vocabularies(
    command, prepared, tmp_path, capsys
):
    shutil.copytree(prepared, tmp_path / "old")
    index = json.loads((tmp_path / "old/index.json").read_text())
    for name in ("byte_fallback", "split_digits", "normalization"):
        assert index["settings"].pop(name) is None
    (tmp_path / "old/index.json").write_text(json.dumps(index))
    prepare.main([*command, f"--output={tmp_path / 'old'}"])
    assert "is finished already" in capsys.readouterr().out


def test_a_vocabulary_is_learned_and_phrasebook_prepared(tmp_path, capsys):
    argv = [f"--output={tmp_path}/out", "--phrasebook_pairs=400"]
    argv += [f"--vocab_size={VOCAB_SIZE}", "--vocabulary_pairs=150"]
    prepare.main([*argv, "--workers=1"])
    out = capsys.readouterr().out
    assert "a vocabulary of 120 subwords on 134 pairs" in out
    assert "400 pairs read" in out
    index = shards.read_index(tmp_path / "out")
    assert index["vocab_size"] == VOCAB_SIZE
    tokenizer = Tokenizer.load(tmp_path / "out/tokenizer.model")
    sha256 = hashlib.sha256(tokenizer.model_bytes).hexdigest()
    assert index["tokenizer_sha256"] == sha256


class Killed(BaseException):
    """An exception that stands for the end of the process."""


@pytest.mark.parametrize(
    "owner, name, number",
    [
        (preparation, "write_json", 1),  # settings
        (preparation, "write_json", 4),  # the third part
        (shards, "write_shard", 3),
        (Folder, "publish", 6),  # a shard
        (preparation.Preparation, "finish", 1),
        (Folder, "publish", 8),  # the vocabulary
        (preparation, "write_json", 9),  # the index
        (Folder, "publish", 9),
        (Folder, "remove_unfinished", 1),
    ],
)
def test_resumed_is_as_never_stopped(
    argv, prepared, tmp_path, monkeypatch, owner, name, number
):
    argv = [*argv, "--workers=1"]
    with killed_at(monkeypatch, owner, name, number):
        with pytest.raises(Killed):
            prepare.main(argv)
    prepare.main(argv)
    assert contents(tmp_path / "out") == contents(prepared)


def test_killed_and_resumed(argv, prepared, tmp_path, monkeypatch):
    """A process that is really killed; its cleaning processes end, too."""
    real, written = preparation.Preparation._write_part, []

    def stop_after_three(*args):
        written.append(real(*args))
        if len(written) == 3:
            time.sleep(3600)  # until it is killed
        return written[-1]

    argv = [*argv, "--workers=1"]
    monkeypatch.setattr(
        preparation.Preparation, "_write_part", stop_after_three
    )
    # A fork has TensorFlow already, which the command does not use here.
    process = multiprocessing.get_context("fork").Process(
        target=prepare.main, args=(argv,)
    )
    process.start()
    second = tmp_path / "out/unfinished/00001.json"
    deadline = time.monotonic() + 600
    while not second.exists():
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    # While it runs, another one is refused.
    with pytest.raises(CommandError, match=r"another process is prep.*/out"):
        with user_errors(), Folder(tmp_path / "out").lock():
            pass
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    cleaners = children.read_text().split() if children.exists() else []
    process.kill()
    process.join()
    done = len(list((tmp_path / "out/unfinished").glob("0*.json")))
    assert 2 <= done <= 3
    assert not (tmp_path / "out/index.json").exists()
    monkeypatch.setattr(preparation.Preparation, "_write_part", real)
    prepare.main(argv)
    assert contents(tmp_path / "out") == contents(prepared)
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in cleaners):
        assert time.monotonic() < deadline, "a process outlives its parent"
        time.sleep(0.05)


def test_a_replaced_vocabulary_is_not_resumed_with(
    argv, tmp_path, monkeypatch, capsys
):
    argv = [*argv, "--workers=1"]
    with killed_at(monkeypatch, preparation.Preparation, "finish"):
        with pytest.raises(Killed):
            prepare.main(argv)
    vocabulary = tmp_path / "out/unfinished/tokenizer.model"
    vocabulary.write_bytes(other_vocabulary(vocabulary.read_bytes()))
    message = fails(prepare.main, argv, capsys)
    assert "expected the vocabulary that part 0 was encoded with" in message


def other_vocabulary(content):
    """Makes a SentencePiece model of the same size with one other entry."""
    other = content.replace(b"\n\x01b", b"\n\x01=", 1)
    assert len(other) == len(content) and other != content
    return other


@pytest.mark.parametrize("number", range(1, 12))
def test_starting_over_can_be_killed(prepared, tmp_path, monkeypatch, number):
    """Wherever a removal stops, the next command starts over."""
    out = shutil.copytree(prepared, tmp_path / "out")
    folder = Folder(out)

    def is_ours(path, *_):
        return path.is_relative_to(out)

    with killed_at(monkeypatch, pathlib.Path, "unlink", number, is_ours):
        with contextlib.suppress(Killed):  # it may end before
            folder.clear()
    settings = json.loads((prepared / "index.json").read_text())["settings"]
    # Before the index is removed, all is as it was.
    untouched = folder.index.exists()
    assert untouched == (number == 1)

    assert folder.check({**settings, "max_ratio": 9}, untouched) == "new"
    folder.clear()
    assert not any(out.iterdir())


# -------------------------------------------------------------------- errors


def test_other_settings_are_refused(command, prepared, capsys):
    argv = [*command, f"--output={prepared}"]
    err = fails(prepare.main, [*argv, "--max_ratio=2.5"], capsys)
    assert "max_ratio was 3.0 and is 2.5. --overwrite starts over" in err
    for given in ("--shard_pairs=9", "--nodrop_duplicates", "--max_length=99"):
        err = fails(prepare.main, [*argv, given], capsys)
        assert "was prepared with other settings" in err


def test_other_input_is_refused_or_overwrites(argv, pairs, tmp_path, capsys):
    prefix = write_pairs(tmp_path / "train", pairs[:200])
    argv = [*argv, f"--train_files={prefix}"]
    prepare.main(argv)
    write_pairs(prefix, pairs[:210])
    assert "train_files was" in fails(prepare.main, argv, capsys)
    prepare.main([*argv, "--overwrite", "--shard_pairs=9999"])
    assert shards.read_index(tmp_path / "out")["read"] == 210
    assert len(list((tmp_path / "out").glob("*.shard"))) == 1


def test_what_is_not_ours_is_not_touched(command, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    for flag in ("--nooverwrite", "--overwrite"):
        argv = [*command, f"--output={tmp_path}", flag]
        assert "has other files" in fails(prepare.main, argv, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_vocabulary_of_an_imported_model_is_refused(
    argv, tokenizer, tmp_path, capsys
):
    pieces = Tokenizer.load(tokenizer).pieces
    imported = make_tokenizer(tokenizer.read_bytes(), pieces, "a")
    imported.save(tmp_path / "imported.model")
    flag = f"--tokenizer={tmp_path}/imported.model"
    err = fails(prepare.main, [*argv, flag], capsys)
    assert "the vocabulary of an imported model" in err and flag[12:] in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--train_files=nowhere", "No such file: nowhere.en"),
        ("--tokenizer=nowhere", "No tokenizer model"),
        ("--vocab_size=121", "vocab_size must be 120"),
        ("--dataset=prepared", "must be text"),
        ("--max_length=70000", "at most 65535"),
        ("--min_length=300", "at most max_length"),
        ("--workers=0", "at least 1"),
        ("--output=", "--output=DIR"),
        ("--source_language=de", "languages that differ"),
        ("--min_letter_share=1", "below 1"),
    ],
)
def test_bad_flags(argv, tmp_path, capsys, flag, message):
    assert message in fails(prepare.main, [*argv, flag], capsys)
    assert not (tmp_path / "out").exists()


def test_nothing_left_is_an_error(command, tmp_path, capsys):
    argv = [*command, f"--output={tmp_path}/new/out", "--max_length=2"]
    message = fails(prepare.main, argv, capsys)
    assert "no sentence pair is left" in message
    assert "1,012 pairs read, 0 kept" in message
    assert not (tmp_path / "new").exists()


def test_a_small_corpus_has_all_of_its_subwords(tmp_path, capsys):
    files = write_pairs(tmp_path / "train", [("a dog", "ein Hund")] * 2)
    argv = ["--dataset=files", f"--train_files={files}", "--workers=1"]
    prepare.main([*argv, f"--output={tmp_path}/out", "--vocab_size=9999"])
    size = Tokenizer.load(tmp_path / "out/tokenizer.model").vocab_size
    assert 15 < size < 40
    line = f"the corpus has {size} subwords, fewer than 9,999: the vocabulary"
    assert f"{line} has all of them" in capsys.readouterr().out


@pytest.mark.parametrize(
    "german, message",
    [
        (b"ein Hund\xff\n", r"train.de, line 1: not UTF-8"),
        (b"ein Hund\n\n", "as many lines in both files"),
        (b"", "as many lines in both files"),
    ],
)
def test_bad_input_leaves_no_directory(tmp_path, capsys, german, message):
    (tmp_path / "train.en").write_bytes(b"a dog\n")
    (tmp_path / "train.de").write_bytes(german)
    argv = ["--dataset=files", f"--train_files={tmp_path}/train"]
    argv += ["--vocab_size=99", f"--output={tmp_path}/new/out"]
    assert message in fails(prepare.main, argv, capsys)
    assert not (tmp_path / "new").exists()


def test_a_corrupt_directory_is_one_clear_line(argv, tmp_path, capsys):
    for name in ("index.json", "unfinished/settings.json"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"settings": {')
        assert f"{path}: not JSON" in fails(prepare.main, argv, capsys)
        path.unlink()
    (tmp_path / "file").write_text("")
    argv = [*argv, f"--output={tmp_path}/file"]
    assert f"{tmp_path}/file" in fails(prepare.main, argv, capsys)


def test_a_lock_is_of_one_process(tmp_path):
    folder = Folder(tmp_path / "new/out")
    with folder.lock():
        with pytest.raises(ValueError, match=r"another process.*new/out$"):
            with Folder(folder.path).lock():
                pass
        assert folder.path.is_dir()
    assert not (tmp_path / "new").exists()
    with folder.lock():
        (folder.path / "kept").touch()
    assert [path.name for path in folder.path.iterdir()] == ["kept"]


def test_a_lock_on_a_removed_file_does_not_count(tmp_path, monkeypatch):
    """Another process ends between our opening the file and locking it."""
    folder, real = Folder(tmp_path), fcntl.flock
    others = iter([True])

    def flock(descriptor, operation):
        if next(others, False):
            (tmp_path / ".lock").unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with folder.lock():
        with pytest.raises(ValueError, match="another process"):
            with Folder(tmp_path).lock():
                pass


@pytest.fixture
def small_disk():
    """Limits the size of files, so that the system refuses larger ones."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(
        resource.RLIMIT_FSIZE, (size, before[1])
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "owner, stage",
    [
        (Folder, "check"),
        (preparation.Preparation, "encode"),
        (preparation.Preparation, "finish"),
    ],
)
def test_a_full_disk_is_one_line_and_resumed(
    argv, prepared, tmp_path, capsys, monkeypatch, small_disk, owner, stage
):
    real, argv = getattr(owner, stage), [*argv, "--workers=1"]

    def on_a_full_disk(*args):
        small_disk(500)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, stage, on_a_full_disk)
        message = fails(prepare.main, argv, capsys, code=1)
    small_disk(resource.RLIM_INFINITY)
    assert f"cannot write to {tmp_path}/out: " in message
    assert "Rerun the same command to resume" in message
    prepare.main(argv)
    assert contents(tmp_path / "out") == contents(prepared)


def test_a_full_output_is_not_the_directorys_fault(
    tmp_path, monkeypatch, capsys
):
    argv = ["--dataset=phrasebook", "--phrasebook_pairs=9"]
    argv += [f"--output={tmp_path}/out"]
    fails_without_room(prepare.main, argv, monkeypatch, capsys)


def test_a_lost_process_is_one_line(argv, capsys, monkeypatch):
    read_chunks = preparation.Preparation._read_chunks

    def read_and_kill(self, first):
        for chunk in read_chunks(self, first):
            yield chunk
            for process in multiprocessing.active_children():
                process.kill()

    monkeypatch.setattr(preparation.Preparation, "_read_chunks", read_and_kill)
    message = fails(prepare.main, argv, capsys, code=1)
    assert "a cleaning process ended early. Rerun" in message


# ------------------------------------------------------------------ training


TRAINING = """
    --beam_size=1 --d_model=16 --d_ff=16 --num_heads=2 --num_layers=1
    --batch_tokens=400 --num_buckets=1 --train_steps=1 --strategy=one_device
""".split()


def test_training_takes_what_is_prepared(prepared, tokenizer, tmp_path, capsys):
    """Another test checks that its batches are those of the text."""
    argv = [*TRAINING, "--dataset=prepared", f"--train_files={prepared}"]
    wmt.main([*argv, f"--workdir={tmp_path}"])
    assert "with the same text as an earlier pair" in capsys.readouterr().out
    assert (tmp_path / "checkpoints/ckpt-1.safetensors").exists()
    vocabulary = tmp_path / "tokenizer.model"
    assert vocabulary.read_bytes() == tokenizer.read_bytes()


def test_training_refuses_what_does_not_fit(
    prepared, tmp_path, tokenizer, capsys
):
    copy = shutil.copytree(prepared, tmp_path / "copy")
    argv = [*TRAINING, "--dataset=prepared", f"--train_files={copy}"]
    argv += [f"--workdir={tmp_path}/run"]
    for given, message in (
        (["--vocab_size=121"], "expected 120, the size of"),
        (["--max_length=255"], "max_length must be at least 256"),
        (
            ["--source_language=de", "--target_language=en"],
            "source_language must be 'en'",
        ),
        ([f"--tokenizer={tokenizer}"], "tokenizer excludes dataset=prepared"),
        (["--train_files=a,b"], "one directory"),
        ([f"--train_files={tmp_path}/no"], "not a finished prepared"),
    ):
        assert message in fails(wmt.main, [*argv, *given], capsys)
    vocabulary = copy / "tokenizer.model"
    content = vocabulary.read_bytes()
    vocabulary.write_bytes(other_vocabulary(content))
    message = fails(wmt.main, argv, capsys)
    assert f"{copy}: the ids are not of this vocabulary" in message
    vocabulary.write_bytes(content)
    (copy / "00002.shard").write_bytes(b"")
    assert "corrupt shard" in fails(wmt.main, argv, capsys)
    (copy / "index.json").unlink()
    assert "run kt-prepare" in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()
