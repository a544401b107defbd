"""CTranslate2 as the engine: values, refusals, and the export that it makes."""

import dataclasses
import errno
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from unittest.mock import Mock

import exports
import numpy as np
import pytest
import serving_test
from commands import ROOT
from later import later

import keras_transformer as kt
from keras_transformer.base import locking
from keras_transformer.base.files import sha256_of, with_checksum
from keras_transformer.config import DecodingConfig
from keras_transformer.model import Transformer
from keras_transformer.storage.adapters import Base
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation import (
    conversion,
    ctranslate2,
    engines,
)
from keras_transformer.translation import exports as engine_exports
from keras_transformer.translation.glossary import find_words
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Encoding, Request, encode
from trainers.translating import shards

GREEDY = DecodingConfig(beam_size=1, extra_length=6)
BEAM = dataclasses.replace(exports.DECODING, stopping="fairseq")
POWER = dataclasses.replace(
    BEAM, length_normalization="power", length_penalty=0.8
)
BARE = dataclasses.replace(BEAM, length_penalty=0.0)
SEARCHES = pytest.mark.parametrize(
    "decoding", [GREEDY, BEAM, *later("options", POWER, BARE)]
)
LINES = [*exports.SENTENCES, *(a for a, _ in exports.make_pairs(40))]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A copy of the work directory, for its exports."""
    path = tmp_path_factory.mktemp("engine") / "run"
    shutil.copytree(exports.workdir(), path)
    return path


@pytest.fixture(scope="module")
def load(workdir):
    """Loads the translator with the engine."""

    def load(decoding=BEAM, **options):
        return kt.Translator.load(
            workdir, decoding, engine="ctranslate2", **options
        )

    return load


def ours(decoding):
    return exports.translator().with_decoding(**dataclasses.asdict(decoding))


# ---- Values ------------------------------------------------------------------


@SEARCHES
def test_it_finds_what_our_search_finds(load, decoding):
    found, expected = load(decoding).search(LINES), ours(decoding).search(LINES)
    same = 0
    for one, other in zip(found, expected, strict=True):
        assert one.notes == other.notes
        if one.ids[0] == other.ids[0]:
            same += 1
            assert one.scores[0] == pytest.approx(other.scores[0], abs=1e-4)
    # Equal hypotheses, but for the length limit and for nearly equal scores.
    assert same == len(LINES) if decoding is GREEDY else same >= len(LINES) - 2


@SEARCHES
@pytest.mark.parametrize("prefix", ["", "zwei"])
def test_a_score_is_that_of_its_tokens_by_our_definition(
    load, decoding, prefix
):
    translator = load(decoding)
    requests = [Request(line, prefix) for line in LINES]
    number = 0
    for request, found in zip(
        requests, translator.search(requests), strict=True
    ):
        assert found.scores == sorted(found.scores, reverse=True)
        assert request.text.strip() == "" or found.texts[0].startswith(prefix)
        number += check_scores(translator, request.text, found)
    assert number > len(LINES) - 10


def check_scores(translator, source, found):
    """Compares scores with sums of token scores. Returns their number."""
    decoding, number = translator.decoding, 0
    pairs = [(source, text) for text in found.texts]
    for ids, score, pair in zip(
        found.ids, found.scores, translator.score(pairs), strict=True
    ):
        if ids != pair.ids:  # truncated, or another segmentation
            continue
        is_power = decoding.length_normalization == "power"
        base = len(ids) if is_power else (5 + len(ids)) / 6
        expected = sum(pair.log_probs) / base**decoding.length_penalty
        assert score == pytest.approx(expected, abs=1e-4)
        number += 1
    return number


def test_pairs_are_scored_and_aligned_as_by_the_model(load):
    pairs = [
        ("one dog", "ein Hund"),
        ("", ""),
        ("", "drei"),
        ("two red dogs", ""),
        ("one two three red dog", "eins zwei drei rot Hund"),
    ]
    engine, native = load(), exports.translator()
    found, expected = (one.score(pairs) for one in (engine, native))
    for one, other in zip(found, expected, strict=True):
        assert one.ids == other.ids
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
    assert engine.align(pairs) == native.align(pairs)
    assert engine.align_spans(pairs) == native.align_spans(pairs)
    spans = native.align_spans(pairs, least=0.0)
    for translator in (engine, native):  # the same in one pass
        together = translator.read(pairs)
        assert [one.alignment for one in together] == native.align(pairs)
        assert [one.spans for one in together] == spans
        for one, other in zip(together, expected, strict=True):
            assert one.score.ids == other.ids
            np.testing.assert_allclose(
                one.score.log_probs, other.log_probs, atol=1e-4
            )


@pytest.mark.parametrize("decoding", [GREEDY, BEAM])
def test_each_sentence_has_its_own_limit(load, decoding):
    """CTranslate2 itself has one limit for all sentences of a call."""
    decoding = dataclasses.replace(decoding, extra_length=0)
    translator = load(decoding)
    together = translator.n_best_ids(LINES)
    alone = [translator.n_best_ids([line])[0] for line in LINES]
    assert [[ids for ids, _ in row] for row in together] == [
        [ids for ids, _ in row] for row in alone
    ]
    rows = translator.tokenizer.to_ids(LINES)
    longest = [max(len(ids) for ids, _ in row) for row in together]
    limits = [min(len(row), translator.max_source_length) - 1 for row in rows]
    assert all(n <= limit for n, limit in zip(longest, limits, strict=True))
    assert any(n == limit > 2 for n, limit in zip(longest, limits, strict=True))


def test_sentences_that_are_searched_again_do_not_change_each_other(
    load, monkeypatch
):
    """Those with the same limit, of which some have a given beginning."""
    translator = load(
        dataclasses.replace(POWER, extra_length=0),
        batch_tokens=64,
        num_threads=1,
    )
    requests = [
        Request(line, prefix)
        for line, prefix in zip(LINES, itertools.cycle(["", "zwei", ""]))
    ]
    alone = [translator.search([request])[0] for request in requests]
    sizes, method = [], ctranslate2.CTranslate2Search._search_call

    def call(self, rows, limit):
        sizes.append(len(rows) * max(len(row.source_ids) for row in rows))
        return method(self, rows, limit)

    monkeypatch.setattr(ctranslate2.CTranslate2Search, "_search_call", call)
    found = translator.search(requests)
    assert max(sizes) <= 64
    for one, other in zip(found, alone, strict=True):
        assert one.ids == other.ids
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


def test_rows_with_other_first_tokens_do_not_change_each_other(load):
    """As of models that are told the target language by its first token."""
    translator = load(GREEDY)
    [row, other] = [
        row._replace(target_ids=[id], num_given=1)
        for row, id in zip(
            rows_of(translator, ["one dog", "two dogs"]),
            translator.tokenizer.to_ids(["drei", "rot"]),
            strict=True,
        )
        for id in id[:1]
    ]
    free = row._replace(target_ids=[], num_given=0)
    batched = translator._search.search([row, free, other], 1)
    for one, (ids, scores, _) in zip([row, free, other], batched, strict=True):
        [(alone, score, _)] = translator._search.search([one], 1)
        assert ids == alone and scores == pytest.approx(score, abs=1e-5)
        assert ids[0][: one.num_given] == one.target_ids
        # Given tokens do not count in the score.
        scored = translator._search.score([one._replace(target_ids=ids[0])])
        expected = scored[0][one.num_given :].sum()
        expected /= ((5 + len(ids[0])) / 6) ** GREEDY.length_penalty
        assert scores[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("prefix", ["", "drei"])
def test_forbidden_words_are_gone_and_scores_are_the_models(load, prefix):
    translator = load()
    plain = translator.search(LINES, [prefix] * len(LINES))
    avoid = "Hund", "zwei"
    requests = [Request(line, prefix, avoid=avoid) for line in LINES]
    found = translator.search(requests)
    changed = 0
    for request, one, before in zip(requests, found, plain, strict=True):
        assert not any(any(find_words(avoid, text)) for text in one.texts)
        assert one.scores == sorted(one.scores, reverse=True)
        if not any(any(find_words(avoid, text)) for text in before.texts):
            assert one == before
            continue
        changed += 1
        check_scores(translator, request.text, one)
    assert changed > 5
    # Words that only one sentence avoids are free in the others of its batch.
    mixed = [requests[0], *(Request(line, prefix) for line in LINES[1:])]
    assert translator.search(mixed)[1:] == plain[1:]


def rows_of(translator, lines):
    return encode(list(map(Request, lines)), translator.encoding)


# ---- What it does not have ---------------------------------------------------


def test_options_that_are_not_given_follow_the_engine(workdir, caplog):
    """The work directory has the default rule of stopping."""
    translator = kt.Translator.load(workdir, engine="ctranslate2")
    assert translator.decoding == BEAM
    assert "engine ctranslate2: stopping=fairseq" in caplog.text
    with pytest.raises(ValueError, match="needs stopping=fairseq"):
        kt.Translator.load(workdir, exports.DECODING, engine="ctranslate2")
    sampling = dataclasses.replace(BEAM, sampling=True, temperature=0.5)
    assert engines.fitted("ctranslate2", sampling) == sampling
    with pytest.raises(ValueError, match="has no sampling"):
        translator.with_decoding(sampling=True)


def test_what_an_export_has_inside_stays_as_it_was_loaded(load):
    translator = load()
    with pytest.raises(
        ValueError, match=r"as loaded, \(2, 0\). Received: \(1, 1\)"
    ):
        translator.with_decoding(alignment_head=1)
    assert translator.with_decoding(extra_length=900).max_target_length == 916


def test_outputs_have_room_in_an_export(load):
    translator = load()
    longest = translator.with_decoding(extra_length=1007)  # 1,023 tokens
    found = longest.score([("one dog", "zwei " * 1100)])
    assert len(found[0].ids) == 1023 and found[0].truncated
    with pytest.raises(
        ValueError, match="at most 1023 tokens.*=16, extra_length=1008"
    ):
        translator.with_decoding(extra_length=1008)


def test_a_prefix_leaves_a_learned_position_for_bos():
    config = exports.translator().model.config
    learned = dataclasses.replace(config, positions="learned", max_positions=9)
    tokenizer = exports.translator().tokenizer
    kinds = {ctranslate2.CTranslate2Limits: 8, Limits: 9}
    for kind, position_limit in kinds.items():
        limits = kind([learned], BEAM, 9)
        rows = encode(
            [Request("one two three", "ein" * 9)], Encoding(tokenizer, limits)
        )
        assert len(rows[0].target_ids) == position_limit
        assert f"of which only {position_limit} can be" in rows[0].notes[0]


def test_a_translator_of_another_system_needs_a_work_directory(tmp_path):
    with pytest.raises(
        ValueError, match="compute_type: it is an option of engine=ctranslate2"
    ):
        kt.Translator.load(exports.workdir(), compute_type="int8")
    with pytest.raises(ValueError, match="engine=native or engine=ctranslate2"):
        kt.Translator.load(exports.workdir(), engine="other")


# ---- The export --------------------------------------------------------------


def test_an_export_serves_all_types_and_one_checkpoint(load, workdir):
    assert load().model.dtype == "float32"
    assert load(compute_type="int8").model.dtype.startswith("int8")
    assert len(list(workdir.glob("exports/ctranslate2-*"))) == 1


def fake_export(calls, seconds=0.0, **values):
    """Replaces the command by an export with one file."""

    def run(command, **_):
        calls.append(command)
        time.sleep(seconds)
        output = pathlib.Path(json.loads(command[-1])["output"])
        output.mkdir()
        (output / "model.bin").write_text("weights")
        sums = {"model.bin": sha256_of(output / "model.bin")}
        description = with_checksum({"sha256": sums, **values})
        (output / "export.json").write_text(json.dumps(description))
        return types.SimpleNamespace(returncode=0)

    return run


def test_an_export_has_room_for_long_sources_with_short_outputs(
    load, monkeypatch
):
    given = []

    def find(workdir, checkpoint, format, options, module):
        assert module == "keras_transformer.translation.conversion"
        given.append(options)
        raise ValueError("no export")

    monkeypatch.setattr(ctranslate2, "exported", find)
    for length, longest in ((16, 1024), (1024, 1024), (1500, 1500)):
        decoding = dataclasses.replace(BEAM, max_output_length=9)
        with pytest.raises(ValueError, match="no export"):
            load(decoding, max_source_length=length)
        assert given.pop()["num_positions"] == longest + 1


@pytest.fixture
def faked(tmp_path, monkeypatch):
    """A work directory, the calls of the faked export, and a finder of it."""
    shutil.copytree(exports.workdir(), tmp_path / "run")
    directory, calls = WorkDirectory(tmp_path / "run"), []
    monkeypatch.setattr(subprocess, "run", fake_export(calls, 0.3))

    prefix = directory.choose_checkpoint()

    def find(**options):
        return engine_exports.exported(
            directory, prefix, "x", options, "conversion"
        )

    return directory, calls, find


def test_two_that_need_an_export_make_it_once(faked):
    _, calls, find = faked
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(find())) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(set(found)) == 1 and len(found) == 3
    assert [p.name for p in found[0].parent.iterdir()] == [found[0].name]


def test_another_checkpoint_or_option_has_another_export(faked):
    directory, calls, find = faked
    first = find()
    assert find() == first and len(calls) == 1
    assert find(alignment_head=1) != first
    [path] = directory.path.glob("averaged/*.safetensors")
    path.write_bytes(path.read_bytes() + b" ")  # another checksum
    second = find()
    assert second != first and len(calls) == 3
    directory.replace_section("base", Base("ckpt-1", "0"))  # of adapters
    assert find() not in (first, second) and len(calls) == 4


def test_a_new_export_stays_wherever_its_checkpoint_is(faked, monkeypatch):
    """A name that leads through a link may not be found from elsewhere."""
    _, calls, find = faked
    run = fake_export(calls, checkpoint="../link/ckpt-1")
    monkeypatch.setattr(subprocess, "run", run)
    assert (find() / "model.bin").exists()


def test_an_export_goes_with_its_checkpoint(faked):
    directory, _, find = faked
    first, other = find(), find(alignment_head=1)
    for path, name in ((first, "averaged/ckpt-3"), (other, "best/ckpt-9")):
        description = json.loads((path / "export.json").read_text())
        description = with_checksum(description | {"checkpoint": name})
        (path / "export.json").write_text(json.dumps(description))
    third = find(alignment_head=2)
    assert first.exists() and third.exists() and not other.exists()


@pytest.mark.parametrize("name", ["model.bin", "export.json"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_damaged_export_is_made_again(faked, caplog, name, how):
    _, calls, find = faked
    path = find()
    if how == "removed":
        (path / name).unlink()
    else:
        data = (path / name).read_text()
        (path / name).write_text(data.replace("e", "f", 1))
    assert engine_exports.damage(path)
    assert find() == path and len(calls) == 2
    assert f"{path} is made again: " in caplog.text
    assert engine_exports.damage(path) is None


def test_without_a_place_for_it_the_command_is_named(faked, monkeypatch):
    directory, calls, find = faked
    error = OSError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr(locking, "lock_file", Mock(side_effect=error))
    with pytest.raises(ValueError) as told:
        find()
    assert re.fullmatch(
        rf"expected {directory.exports}/x-\w+, or a work directory that can be"
        " written: as a user who may write there run once kt-translate"
        f" --workdir={directory.path}"
        f" --checkpoint={directory.choose_checkpoint()} --engine=x; or set"
        r" XDG_CACHE_HOME\. Received: Read-only file system",
        str(told.value),
    )
    assert not calls


def test_a_checkpoint_that_changes_meanwhile_is_refused(faked, monkeypatch):
    directory, calls, find = faked
    [path] = directory.path.glob("averaged/*.safetensors")
    run = fake_export(calls)

    def change(command, **options):
        path.write_bytes(path.read_bytes() + b" ")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", change)
    with pytest.raises(ValueError, match="changed in its export"):
        find()
    assert not directory.exports.exists()


def test_a_failed_export_is_one_line(tmp_path):
    directory = WorkDirectory(tmp_path / "run")
    shutil.copytree(exports.workdir(), directory.path)
    prefix = directory.choose_checkpoint()
    options = {"num_positions": 9, "alignment_head": -1}
    with pytest.raises(
        ValueError, match=r"no export: ValueError: .*\(status 1\)$"
    ):
        engine_exports.exported(
            directory, prefix, "ctranslate2", options, ctranslate2.CONVERSION
        )
    assert not directory.exports.exists()


def test_a_wrong_conversion_is_seen(tmp_path):
    """Positions from 1 on instead of 0, which translate nearly as well."""
    translator = exports.translator()
    model, tokenizer = translator.model, translator.tokenizer
    languages, path = translator.languages, tmp_path
    conversion.convert(model, tokenizer, GREEDY, languages, 1025, path)
    conversion.check(model, tokenizer, GREEDY, path)
    weights = model.get_weights()
    other = Transformer(dataclasses.replace(model.config, first_position=1))
    other.set_weights(weights)
    with pytest.raises(ValueError, match="expected the log-probabilities"):
        conversion.check(other, tokenizer, GREEDY, path)


@pytest.mark.slow("process")
def test_an_export_whose_process_is_killed_is_waited_for(tmp_path):
    """The export itself goes on, and holds the lock."""
    shutil.copytree(exports.workdir(), tmp_path / "run")
    argv = [f"--workdir={tmp_path / 'run'}", "--engine=ctranslate2"]
    command = [sys.executable, "-m", "trainers.translate", *argv]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    made = tmp_path / "run" / "exports"
    while not list(made.glob("ctranslate2-*.*")):
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # Nothing that this process imports needs a framework.
    program = (
        "import sys; from trainers import translate;"
        f"translate.main({argv!r});"
        "assert not {'tensorflow', 'keras', 'jax'} & set(sys.modules)"
    )
    second = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        input="one dog\n\n",
        capture_output=True,
        text=True,
    )
    assert second.returncode == 0, second.stderr
    fairseq = exports.translator().with_decoding(stopping="fairseq")
    assert second.stdout.split("\n") == [
        *fairseq.translate(["one dog", ""]),
        "",
    ]
    assert "engine ctranslate2: stopping=fairseq" in second.stderr
    assert "is made again" not in second.stderr
    # The first one's lock file, empty, stays if the export is there already.
    assert sum(path.is_dir() for path in made.iterdir()) == 1


# ---- Commands ----------------------------------------------------------------


def test_a_resumed_translation_does_not_mix_engines(load):
    native, engine = (
        shards.make_settings(translator, shard_lines=10)
        for translator in (ours(BEAM), load())
    )
    changed = {name for name in native if native[name] != engine[name]}
    assert changed == {"backend"} and engine["backend"] == "ctranslate2"
    quantized = shards.make_settings(load(compute_type="int8"), shard_lines=10)
    assert quantized["precision"].startswith("int8")


def test_the_server_uses_it_and_says_so(load):
    translator = load()
    translator.may_run = threading.Event()  # of the scripts of other tests
    with serving_test.running({("en", "de"): translator}) as served:
        fields = {"text": "one dog", "target": "de", "details": True}
        answer = serving_test.post(served, "/v1/translate", **fields)
        [translation] = answer["translations"]
        assert translation["text"] == load().translate(["one dog"])[0]
        for wrong, message in (
            ({"min_length": 3}, "needs min_length=0 or 1"),
            ({"sampling": True}, "has no sampling"),
            (
                {"glossary": {"one": "zwei"}},
                "no terms: leave the glossary out, or use engine=native",
            ),
        ):
            response = served.client.post(
                "/v1/translate", json={**fields, **wrong}
            )
            assert response.status_code == 400, wrong
            assert message in response.text
        text = served.client.get("/metrics").text
    line = 'translation_engine_info{computed_in="float32",engine="ctranslate2"}'
    assert line in text
