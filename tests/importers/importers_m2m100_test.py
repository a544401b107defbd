"""Import of M2M-100, NLLB-200 and mBART-50: equality with transformers."""

import collections
import io
import json
import shutil
import sys

import numpy as np
import pytest
import sentencepiece
import sharing
from commands import fails
from later import later
from original_models import FIXTURES
from readable import readable
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer.data.languages import Direction
from keras_transformer.figures.attention import attention_figure
from keras_transformer.importers import m2m100, read_model, tokenizer_json
from keras_transformer.importers.options import Options
from keras_transformer.text.vocabulary import BOS, EOS
from keras_transformer.translation.requests import Request, encode
from trainers import (
    evaluate,
    import_model,
    translate,
    translate_corpus,
    visualize,
)
from trainers.serving.pairs import load_pairs
from trainers.serving.work import SearchWork
from trainers.translating.options import EnsembleOptions

NAMES = ("nllb", "m2m100", "mbart50")
FIRST = [NAMES[0], *later("family", *NAMES[1:])]
NAME = pytest.mark.parametrize("name", FIRST)
OPENED = pytest.mark.parametrize("opened", FIRST, indirect=True)


def expected_of(name):
    return json.loads((FIXTURES / name / "expected.json").read_text("utf-8"))


def open_model(name, path=None, **options):
    source, target = expected_of(name)["languages"]
    return kt.Translator.from_pretrained(
        path or FIXTURES / name,
        source_language=source,
        target_language=target,
        **options,
    )


@pytest.fixture(scope="module", params=NAMES)
def opened(request):
    """A model's name, its `Translator`, and the original id of each id."""
    name = request.param
    folder = FIXTURES / name
    options = Options(json.loads((folder / "config.json").read_text()), folder)
    side, _ = m2m100._read_side(folder, options, EOS)
    return name, open_model(name), np.array(side.ids)


def change_json(folder, name, **values):
    path = folder / name
    options = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**options, **values}))


@pytest.fixture
def copy_of(tmp_path):
    """Copies a model, with changes to its JSON files by name."""

    def copy(name, **changes):
        folder = shutil.copytree(FIXTURES / name, tmp_path / name)
        for file, values in changes.items():
            change_json(folder, f"{file}.json", **values)
        return folder

    return copy


def import_nllb(workdir, *flags):
    source = f"--source={FIXTURES / 'nllb'}"
    import_model.main([source, f"--workdir={workdir}", *flags])


def their_ids(translator, ids, texts):
    rows = encode(list(map(Request, texts)), translator.encoding)
    return [ids[row.source_ids].tolist() for row in rows]


def test_sources_have_the_ids_of_transformers(opened):
    name, translator, ids = opened
    expected = expected_of(name)
    for texts, rows in (
        (expected["sources"], expected["source_ids"]),
        (expected["odd"], expected["odd_source_ids"]),
    ):
        found = their_ids(translator, ids, texts)
        for i in readable(translator.tokenizer, texts):
            text, row, wanted = texts[i], found[i], rows[i]
            # The fast tokenizers leave a token for a space at the end, which
            # SentencePiece removes.
            if text.endswith(" ") and name != "m2m100":
                wanted = [*wanted[:-2], wanted[-1]]
            assert row == wanted


def test_logits_are_those_of_transformers(opened):
    name, translator, ids = opened
    expected = expected_of(name)
    logits = np.load(FIXTURES / name / "logits.npz")["logits"]
    place = {their: ours for ours, their in enumerate(ids.tolist())}
    place[EOS] = EOS  # BOS has the same embedding
    columns = np.delete(np.arange(len(ids)), BOS)
    for number, labels in enumerate(expected["labels"]):
        source = [place[id] for id in expected["source_ids"][number]]
        target = [BOS, *(place[id] for id in labels[:-1])]
        [found] = translator.model(
            {
                "source_ids": np.array([source], "int32"),
                "target_ids": np.array([target], "int32"),
            }
        )
        np.testing.assert_allclose(
            np.asarray(found)[:, columns],
            logits[number, : len(labels)][:, ids[columns]],
            atol=1e-4,
        )


def as_transformers(ids, row):
    """Returns transformers' ids. At the length limit it forces EOS."""
    row = ids[row].tolist()
    return row if row[-1] == EOS else [*row, EOS]


def of_readable(tokenizer, expected):
    """Returns what is expected of the sources that are read as they are."""
    read = readable(tokenizer, expected["sources"])
    assert len(read) > 9
    names = "sources", "beam", "scores", "texts", "greedy", "source_ids"
    return {name: [expected[name][i] for i in read] for name in names}


def check_translations(translator, ids, expected):
    """Checks that beam and greedy search find what `generate` does."""
    expected = of_readable(translator.tokenizer, expected)
    sources = expected["sources"]
    best = [found for [found] in translator.n_best_ids(sources, num_best=1)]
    rows, scores = zip(*best, strict=True)
    assert [as_transformers(ids, row) for row in rows] == expected["beam"]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    assert translator.translate(sources) == expected["texts"]
    greedy = translator.with_decoding(beam_size=1).n_best_ids(sources)
    found = [as_transformers(ids, row) for [(row, _)] in greedy]
    assert found == expected["greedy"]


@OPENED
def test_translations_are_those_of_transformers(opened):
    name, translator, ids = opened
    check_translations(translator, ids, expected_of(name))


@pytest.mark.slow("backend")
@pytest.mark.parametrize("opened", ["nllb"], indirect=True)
def test_xla_translates_the_same(opened):
    name, _, ids = opened
    translator = open_model(name, jit_compile=True)
    check_translations(translator, ids, expected_of(name))


@OPENED
def test_a_language_has_no_part_in_a_score(opened):
    """The score of an output is that of its text, given the language."""
    name, translator, _ = opened
    plain = translator.with_decoding(length_penalty=0.0, beam_size=1)
    [source] = expected_of(name)["sources"][:1]
    [[(ids, score)]] = plain.n_best_ids([source])
    [row] = encode([Request(source)], plain.encoding)
    log_probs = plain.inference.score_ids(
        np.array([row.source_ids], "int32"), np.array([ids], "int32")
    )
    np.testing.assert_allclose(score, np.sum(log_probs[0, 1:]), rtol=1e-4)
    text = "a dog"
    [scored] = plain.score([(source, text)])
    assert scored.ids == plain.tokenizer.to_ids([text])[0]
    assert len(scored.log_probs) == len(scored.ids)
    # The prefix of a translation follows the language.
    [[(forced, _)]] = plain.n_best_ids([source], [text])
    assert forced[0] == ids[0]
    assert forced[1 : len(scored.ids)] == scored.ids[:-1]
    assert plain.translate([source], [text])[0].startswith(text)
    [alignment] = plain.align([(source, text)])
    assert {target for _, target in alignment.links} <= {0, 1}
    assert plain.translate(["", " "]) == ["", ""]


def test_the_old_form_of_a_source_has_its_language_last(copy_of):
    folder = copy_of("nllb", tokenizer_config={"legacy_behaviour": True})
    old, new = open_model("nllb", folder), open_model("nllb")
    assert old.direction == Direction("", "eng_Latn", "deu_Latn")
    [first], [last] = (
        encode([Request("a dog")], t.encoding) for t in (new, old)
    )
    tag, *text = first.source_ids
    assert last.source_ids == [*text, tag]
    [row] = encode([Request("dog " * 100)], old.encoding)
    assert len(row.source_ids) == old.max_source_length
    assert row.source_ids[-2:] == [EOS, tag]


@pytest.mark.slow("run")
def test_commands_work_with_an_imported_direction(tmp_path, capsys):
    workdir = tmp_path / "run"
    argv = [f"--source={FIXTURES / 'nllb'}", f"--workdir={workdir}"]
    argv += ["--source_language=eng_Latn", "--target_language=xyz_Latn"]
    error = fails(import_model.main, argv, capsys)
    assert "expected a language of the model: deu_La" in error
    assert "eng_Latn, fra_Latn, zho_Hans. Received: target_lang" in error
    assert not workdir.exists()
    argv[-1] = "--target_language=deu_Latn"
    import_model.main(argv)
    assert "CC-BY-NC 4.0" in capsys.readouterr().out
    translator = kt.Translator.load(workdir)
    expected = of_readable(translator.tokenizer, expected_of("nllb"))
    assert translator.translate(expected["sources"]) == expected["texts"]
    for language, texts in (("eng", "sources"), ("deu", "texts")):
        text = "".join(f"{line}\n" for line in expected[texts])
        (tmp_path / f"pairs.{language}_Latn").write_text(text)
    pairs = f"--test_files={tmp_path / 'pairs'}"
    evaluate.main([f"--workdir={workdir}", pairs])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bleu"] > 99


def test_a_plan_has_its_direction(tmp_path, capsys):
    (tmp_path / "source").write_text("a dog\n")
    argv = [f"--input={tmp_path}/source", f"--output={tmp_path}/output"]
    for language in ("deu_Latn", "fra_Latn"):
        languages = (
            "--source_language=eng_Latn",
            f"--target_language={language}",
        )
        import_nllb(tmp_path / language, *languages)
    german = [f"--workdir={tmp_path}/deu_Latn", *argv]
    translate_corpus.main(german)
    translate_corpus.main(german)
    french = [f"--workdir={tmp_path}/fra_Latn", *argv]
    error = fails(translate_corpus.main, french, capsys)
    assert "direction was ['eng_Latn', '', 'deu_Latn'] and is" in error


@NAME
def test_a_figure_shows_the_tokens_of_languages(name):
    """It shows all tokens of the row that the model reads."""
    translator = open_model(name)
    [row] = encode([Request("a dog")], translator.encoding)
    for reference in (None, "a dog"):
        figure = attention_figure(translator, "a dog", reference)
        maps = translator.model.attention_maps(
            {
                "source_ids": np.array([row.source_ids], "int32"),
                "target_ids": np.array([[BOS, *row.target_ids]], "int32"),
            }
        )
        np.testing.assert_allclose(
            figure.maps["encoder"], maps.encoder[0], atol=1e-6
        )
        first = np.array(maps.cross)[0, :, :, :2]
        np.testing.assert_allclose(
            figure.maps["cross"][:, :, :2], first, atol=1e-6
        )
        code = translator.direction.before
        assert code in [token.text for token in figure.tokens["source"]]


def test_the_command_draws_one_direction_of_many(tmp_path, capsys):
    workdir = tmp_path / "run"
    import_nllb(workdir)
    argv = [f"--workdir={workdir}", "--text=a dog"]
    argv += [f"--output={tmp_path / 'figure.html'}"]
    assert "expected source_language" in fails(visualize.main, argv, capsys)
    argv += ["--source_language=eng_Latn", "--target_language=deu_Latn"]
    visualize.main(argv)
    assert "eng_Latn" in (tmp_path / "figure.html").read_text()


@pytest.mark.slow("family")
def test_the_first_token_of_all_outputs_is_in_warm_programs():
    translator = open_model("nllb")
    for _, make, _ in translator.programs(1):
        make()
    programs = set(sharing.engine_search(translator)._programs)
    translator.translate(["a dog", "a dog " * 20])
    assert set(sharing.engine_search(translator)._programs) == programs


def test_a_prefix_is_without_the_language():
    translator = open_model("nllb").with_decoding(extra_length=0)
    [row] = encode([Request("a dog", "a " * 50)], translator.encoding)
    length = len(row.source_ids) - 1
    assert len(row.target_ids) == length
    [note] = row.notes
    assert f"has a prefix of 50 tokens, of which only {length - 1} can" in note


def test_the_class_of_a_tokenizer_may_be_in_the_configuration(copy_of):
    """See transformers' issue 12333 for mBART-50. Otherwise languages tell."""
    folder = copy_of("mbart50", tokenizer_config={"tokenizer_class": None})
    expected = read_model(FIXTURES / "mbart50")[1].languages
    for name in ("MBart50Tokenizer", None):
        change_json(folder, "config.json", tokenizer_class=name)
        assert read_model(folder)[1].languages == expected
    (folder / "tokenizer_config.json").unlink()
    assert read_model(folder)[1].languages == expected
    change_json(folder, "config.json", tokenizer_class="MBartTokenizer")
    assert read_model(folder)[1].languages.language_tokens == "mbart"


SCRIPTS = "aeiënrst ÄÖ жзи αβγ 中文 漢字 かな देव عرب 한국 12,.%"


@pytest.mark.parametrize("name", ["nllb", *later("family", "mbart50")])
def test_a_tokenizer_of_new_transformers_has_the_same_ids(name, copy_of):
    """It is checked on its sentences, and on 2,000 random lines."""
    folder = copy_of(name)
    for file in ("sentencepiece.bpe.model", "special_tokens_map.json"):
        (folder / file).unlink()  # as transformers 5 leaves them out
    expected = expected_of(name)
    translator = open_model(name, folder)
    _, imported = read_model(folder)
    assert imported.languages == read_model(FIXTURES / name)[1].languages
    path = FIXTURES / name / "sentencepiece.bpe.model"
    wanted = sentencepiece.SentencePieceProcessor(model_file=str(path))
    model, _ = tokenizer_json.read_pieces(folder / "tokenizer.json")
    found = sentencepiece.SentencePieceProcessor(model_proto=model)
    random = np.random.default_rng(5)
    pieces = [*SCRIPTS, *expected["sources"], *expected["odd"]]
    lines = ["".join(random.choice(pieces, 9)) for _ in range(2000)]
    ours, theirs = (p.encode(lines, out_type=str) for p in (found, wanted))
    assert ours == theirs
    for i in readable(translator.tokenizer, expected["sources"]):
        [text] = translator.translate([expected["sources"][i]])
        assert text == expected["texts"][i]


def without_a_merge(values):
    values["model"]["merges"].remove(["e", "r"])


def with_late_merges(values):
    """Moves the first of two merges that make the same piece to the end."""
    merges = values["model"]["merges"]
    twice = collections.Counter(map("".join, merges)).most_common(1)[0][0]
    first = next(m for m in merges if "".join(m) == twice)
    merges.remove(first)
    merges.append(first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_a_merge, "other merges of 'er' than all"),
        (with_late_merges, "the merges of '.*' not in a row"),
        (lambda v: v["model"].update(byte_fallback=True), "byte_fallback=True"),
        (lambda v: v["model"].update(type="WordPiece"), "type='WordPiece'"),
        (lambda v: v["model"].pop("vocab"), "'vocab'"),
        (lambda v: v["model"]["vocab"].update(x=7), "a piece or an id twice"),
        (lambda v: v.update(normalizer={"type": "NFC"}), "'NFC'"),
        (lambda v: v.update(pre_tokenizer=None), "pre_tokenizer: None"),
        (lambda v: v["pre_tokenizer"].update(split=False), "split=False"),
        (lambda v: v.update(added_tokens=[1]), "'int' object"),
    ],
)
def test_a_tokenizer_that_is_no_sentencepiece_is_refused(
    change, message, tmp_path
):
    values = json.loads((FIXTURES / "nllb/tokenizer.json").read_text("utf-8"))
    change(values)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    expected = f"^{path}: .*copy sentencepiece.bpe.model .*{message}"
    with pytest.raises(ValueError, match=expected) as error:
        tokenizer_json.read_pieces(path)
    assert "\n" not in str(error.value)


def test_a_new_tokenizer_of_m2m100_has_the_languages_of_its_class(copy_of):
    """Its folder lists none. transformers gives German and Zulu these ids."""
    unlisted = {"additional_special_tokens": None}
    folder = copy_of("m2m100", tokenizer_config=unlisted)
    (folder / "special_tokens_map.json").unlink()
    added = m2m100._added_tokens(folder, 146)
    assert len(added) == 100 and [*added.values()] == sorted(added.values())
    assert (added[162], added[245]) == ("__de__", "__zu__")
    change_json(folder, "tokenizer_config.json", language_codes="wmt21")
    assert m2m100._added_tokens(folder, 146)[153] == "__de__"
    change_json(folder, "tokenizer_config.json", language_codes="x")
    with pytest.raises(ValueError, match="language_codes='x' cannot be imp"):
        read_model(folder)


def test_an_output_without_a_limit_is_not_cut_at_20_tokens(copy_of):
    folder = copy_of("nllb", generation_config={"max_length": None})
    _, imported = read_model(folder)
    decoding = imported.decoding
    assert (decoding.max_output_length, decoding.extra_length) == (None, 50)
    notes = "\n".join(imported.notes)
    assert "source tokens + 50; transformers has 20" in notes


def test_a_decoder_that_starts_with_a_language_has_no_other(copy_of):
    """In mBART-25, decoder_start_token_id is the language of outputs."""
    tokens = json.loads(
        (FIXTURES / "mbart50/tokenizer.json").read_text("utf-8")
    )
    [start] = [
        t["id"] for t in tokens["added_tokens"] if t["content"] == "ro_RO"
    ]
    folder = copy_of(
        "mbart50",
        tokenizer_config={"tokenizer_class": "MBart"},
        generation_config={
            "decoder_start_token_id": start,
            "forced_bos_token_id": start,
        },
    )
    _, imported = read_model(folder)
    assert imported.target_language == "ro_RO"
    assert any("forced_bos_token_id" in note for note in imported.notes)
    translator = kt.Translator.from_pretrained(folder, source_language="en_XX")
    assert translator.direction == Direction(after="en_XX")
    with pytest.raises(ValueError, match="translates into: ro_RO. Received"):
        kt.Translator.from_pretrained(
            folder, source_language="en_XX", target_language="de_DE"
        )


def test_a_direction_of_another_model_is_refused():
    translator = open_model("nllb")
    request = Request("a dog", direction=Direction("__de__"))
    with pytest.raises(ValueError, match="no token '__de__'"):
        translator.translate([request])
    with pytest.raises(ValueError, match="that the model translates into"):
        translator.with_languages("eng_Latn", "xyz_Latn")
    with pytest.raises(ValueError, match="must differ. Received: source_lan"):
        translator.with_languages("eng_Latn", "eng_Latn")
    many = kt.Translator.from_pretrained(FIXTURES / "nllb")
    with pytest.raises(ValueError, match="expected the languages of a sent"):
        many.translate(["a dog"])
    with pytest.raises(ValueError, match="must be one that the model trans"):
        kt.Translator.from_pretrained(
            FIXTURES / "marian_shared", target_language="fr"
        )


@pytest.mark.slow("family")
@pytest.mark.parametrize("opened", ["m2m100"], indirect=True)
def test_small100_is_told_the_target_by_its_source(copy_of, opened):
    """Its tokenizer is otherwise M2M-100's, and outputs need no first token."""
    name, _, ids = opened
    folder = copy_of(name)
    (folder / "tokenization_small100.py").touch()
    translator = kt.Translator.from_pretrained(folder, target_language="de")
    assert translator.languages.language_tokens == "small100"
    assert translator.direction == Direction("__de__")
    expected = expected_of(name)
    read = readable(translator.tokenizer, expected["sources"])
    assert len(read) > 9
    other = {k: [v[i] for i in read] for k, v in expected["small100"].items()}
    sources = [expected["sources"][i] for i in read]
    assert their_ids(translator, ids, sources) == other["source_ids"]
    assert other["source_ids"][0] != expected["source_ids"][0]
    for rows, beam_size in ((other["beam"], 4), (other["greedy"], 1)):
        found = translator.with_decoding(beam_size=beam_size).search(sources)
        assert [as_transformers(ids, one.ids[0]) for one in found] == rows
    scores = [one.scores[0] for one in translator.search(sources)]
    np.testing.assert_allclose(scores, other["scores"], atol=1e-5)


# Part of the message -> model, file, and what is changed there.
BAD_FILES = {
    "expected embeddings of vocab_size=1000000000 tokens": (
        "m2m100 config",
        {"vocab_size": 10**9},
    ),
    "decoder_ffn_dim=8 cannot be imported: the encoder has 24": (
        "m2m100 config",
        {"decoder_ffn_dim": 8},
    ),
    'expected ids below vocab_size=157. Received: {"a": "5"}': (
        "m2m100 vocab",
        {"a": "5"},
    ),
    "weight_map=": (
        "m2m100 model.safetensors.index",
        {"weight_map": ["model.safetensors"]},
    ),
    "additional_special_tokens=5 is not a list": (
        "m2m100 special_tokens_map",
        {"additional_special_tokens": 5},
    ),
    "tokenizer.json: added_tokens: 'id'": (
        "nllb tokenizer",
        {"added_tokens": [{"content": "deu_Latn"}]},
    ),
    "forced_bos_token_id=[4] is not": (
        "mbart50 generation_config",
        {"forced_bos_token_id": [4]},
    ),
}


@pytest.mark.parametrize("message", BAD_FILES)
def test_bad_files_are_one_line(copy_of, message):
    place, values = BAD_FILES[message]
    name, file = place.split()
    with pytest.raises(ValueError) as error:
        read_model(copy_of(name, **{file: values}))
    assert message in str(error.value)


@NAME
def test_a_batch_has_several_directions(name):
    """Each sentence is translated as by a translator of its direction."""
    expected = expected_of(name)
    many = kt.Translator.from_pretrained(FIXTURES / name)
    source, target = expected["languages"]
    text = max(expected["sources"], key=len)
    requests, pairs = [], []
    alone, scores, alignments = [], [], []
    for codes in [(source, target), (target, source)]:
        direction = many.languages.direction(*codes)
        one = many.with_languages(*codes)
        requests.append(Request(text, direction=direction))
        pairs.append((requests[-1], "a dog"))
        requests.append(Request(text, "a", direction=direction))
        alone += one.search([text, Request(text, "a")])
        scores += one.score([(text, "a dog")])
        alignments += one.align([(text, "a dog")])
    for found, one in zip(many.search(requests), alone, strict=True):
        assert_close(found, one)
        assert found.notes == []
    assert len({tuple(found.texts) for found in alone}) == 4
    assert_close(many.score(pairs), scores)
    assert scores[0].log_probs != scores[1].log_probs
    assert many.align(pairs) == alignments


@pytest.mark.slow("family")
def test_a_work_directory_of_all_directions(tmp_path, capsys, monkeypatch):
    workdir = tmp_path / "run"
    import_nllb(workdir)
    languages = expected_of("nllb")["languages"]
    tokenizer = kt.Tokenizer.load(workdir / "tokenizer.model")
    expected = of_readable(tokenizer, expected_of("nllb"))
    lines = "".join(f"{line}\n" for line in expected["sources"])
    argv = [f"--workdir={workdir}"]
    stdin = io.TextIOWrapper(io.BytesIO(lines.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "expected source_language, one of deu_Latn, eng_Latn" in fails(
        translate.main, argv, capsys
    )
    source, target = languages
    argv += [f"--source_language={source}", f"--target_language={target}"]
    translate.main(argv)
    assert capsys.readouterr().out.splitlines() == expected["texts"]
    found = {
        (pair.source, pair.target): pair
        for pair in load_pairs(EnsembleOptions(workdir=str(workdir)), {}, 1)
    }
    assert len(found) == 12
    assert len({pair.model for pair in found.values()}) == 1
    search = SearchWork(
        found[source, target].model, found[source, target].translator.decoding
    )
    requests = [
        Request(expected["sources"][0], direction=found[codes].direction)
        for codes in [(source, target), (target, source)]
    ]
    first, second = search(requests)
    assert first.translation.texts == expected["texts"][:1]
    one = found[target, source].translator
    alone = one.search(expected["sources"][:1], num_best=1)
    assert_close([second.translation], alone)
