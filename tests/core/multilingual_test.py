"""Several target languages: pairs, mixture, scores, commands, and an export."""

import asyncio
import contextlib
import io
import json
import re
import types

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from commands import TINY, check_resumed, fails, train, write_sides
from starlette.exceptions import HTTPException
from tolerance import assert_close

from keras_transformer.data.changing.mixture import Mixture, temperature_stage
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.data.languages import Languages, read_directions
from keras_transformer.figures.attention import attention_figure
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import UNK
from keras_transformer.translation.metrics import make_metric
from keras_transformer.translation.requests import (
    Request,
    UntaggedError,
    encode,
    encode_pairs,
    read_text,
)
from keras_transformer.translator import Translator
from savedmodel import export, saved_model, verify
from trainers import (
    align,
    evaluate,
    score,
    translate,
    translate_corpus,
    translate_document,
    tune,
    visualize,
    wmt,
)
from trainers.datasets import phrasebook
from trainers.datasets.dataset import read_split, sources_of, to_translate
from trainers.run import validation
from trainers.run.data_config import DataConfig
from trainers.serving import libretranslate, pairs, work
from trainers.serving.options import Limits, ServeOptions
from trainers.serving.service import Service
from trainers.translating.lines import translate_lines
from trainers.translating.options import TranslatorOptions

TOKENS = {"language_tokens": "m2m100"}
TAGS = {"de": "<2de>", "fr": "<2fr>"}
SENTENCES = ["the dog sees a house", "", " a cat", "red", "the dog " * 9]
SIZES = {"both": 50, "more": 30, "valid": 6, "test": 7}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Prefixes by name. "more" is German only. French is reversed German."""
    folder, pairs = tmp_path_factory.mktemp("files"), {}
    for name, size in SIZES.items():
        split = {"both": "train", "more": "train"}.get(name, name)
        english, german = zip(
            *phrasebook.read_split(split, 99)[-size:], strict=True
        )
        sides = {"en": english, "de": german}
        if name != "more":
            sides["fr"] = [line[::-1] for line in german]
        pairs[name] = write_sides(folder / name, **sides)
    return pairs


@pytest.fixture(scope="module")
def flags(files):
    return [
        *TINY,
        "--target_language=de,fr",
        f"--train_files={files['both']},{files['more']}",
        f"--valid_files={files['valid']}",
        f"--test_files={files['test']}",
        *("--language_temperature=2", "--train_steps=9"),
        *("--valid_steps=9", "--valid_sentences=4", "--extra_length=3"),
        *("--beam_size=2", "--max_length=100", "--bleu_tokenizer=char"),
    ]


@pytest.fixture(scope="module")
def run(flags, tmp_path_factory):
    """A work directory, and the log of its training."""
    path = tmp_path_factory.mktemp("multilingual") / "run"
    log = train([*flags, f"--workdir={path}"])
    return types.SimpleNamespace(path=path, log=log)


@pytest.fixture(scope="module")
def translator(run):
    """The run's translator with random averaged weights.

    After a few steps, trained weights give the same letters for all sentences.
    """
    directory, random = WorkDirectory(run.path), np.random.default_rng(0)
    made = Translator.load(run.path, checkpoint="latest")
    weights = named_weights(made.model)
    for weight in weights.values():
        if len(weight.shape) > 1:
            weight.assign(0.5 * random.normal(size=weight.shape))
    directory.averaged.save({"weights": weights}, step=9, keep=1)
    return made


def lines_of(main, argv, capsys):
    """Runs a command. Returns the lines of its standard output."""
    capsys.readouterr()
    main(argv)
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def write_stdin(monkeypatch):
    """Sets the standard input of a command."""

    def write(text):
        buffer = io.BytesIO(text.encode())
        stdin = types.SimpleNamespace(buffer=buffer, isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", stdin)

    return write


def read(prefix, *languages):
    """Reads the lines of files of pairs, by language."""
    return [open(f"{prefix}.{x}").read().splitlines() for x in languages]


# ---- Pairs ------------------------------------------------------------------


def test_directions_come_one_after_the_other(tmp_path):
    one = write_sides(
        tmp_path / "one", en=["a", ""], de=["A", "B"], fr=["É", "È"]
    )
    two = write_sides(tmp_path / "two", en=["c"], fr=["Ç"])
    found = read_directions([one, two], Languages("en", "de,fr"))
    assert list(found) == [
        *(("<2de> a", "A"), ("", "B")),
        *(("<2fr> a", "É"), ("", "È"), ("<2fr> c", "Ç")),
    ]
    assert len(found) == 5 and found.sizes == [2, 3]


def test_each_prefix_must_have_files_of_a_direction(tmp_path):
    german = write_sides(tmp_path / "german", en=["a"], de=["A"])
    alone = write_sides(tmp_path / "alone", en=["a"])
    no_source = write_sides(tmp_path / "no_source", de=["A"], fr=["É"])
    for prefixes, missing in (
        ([german, alone], f"{alone}.de or {alone}.fr, or their .gz"),
        ([no_source], f"{no_source}.en or {no_source}.en.gz"),
    ):
        with pytest.raises(FileNotFoundError, match=f"No such file: {missing}"):
            read_directions(prefixes, Languages("en", "de,fr"))
    found = read_directions([german], Languages("en", "de,fr"))
    assert list(found) == [("<2de> a", "A")] and found.sizes == [1]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"target_language": "de,en"}, "languages that differ"),
        ({"target_language": "de,de"}, "languages that differ"),
        ({"target_language": "de, fr"}, "separated by commas alone"),
        ({"target_language": "de,"}, "separated by commas alone"),
        ({"source_language": "en,nl"}, "language_tokens with several source"),
        ({"mixture": "x 1"}, "neither modifiers nor mixture"),
        ({"modifiers": "Typos 0.1"}, "neither modifiers nor mixture"),
        ({"dataset": "tfds:x", "train_files": ()}, "need dataset=files"),
        ({"target_language": "de"}, "several languages with language_temper"),
        ({"language_temperature": 0.9}, "at least 1"),
        ({**TOKENS, "subword_sampling": 0.1}, "sampling excludes language_tok"),
        ({**TOKENS, "modifiers": "Typos 0.1"}, "modifiers excludes language_"),
        ({**TOKENS, "mixture": "x 1"}, "mixture excludes language_tokens"),
        ({**TOKENS, "source_language": "en, cs"}, "codes, separated"),
        ({**TOKENS, "dataset": "tfds:x", "train_files": ()}, "_tokens, need"),
    ],
)
def test_data_without_a_clear_meaning_is_refused(changed, message):
    fields = dict(
        dataset="files",
        train_files=("x",),
        target_language="de,fr",
        language_temperature=2.0,
    )
    DataConfig(**fields)
    with pytest.raises(ValueError, match=message):
        DataConfig(**fields | changed)


def test_guided_alignment_needs_one_target_language(flags, tmp_path, capsys):
    argv = [*flags, f"--workdir={tmp_path}/run", "--guided_alignment=x,y"]
    message = fails(wmt.main, argv, capsys)
    assert "one target language with guided_alignment" in message


# ---- Mixture ----------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 2.0, 100.0])
def test_shares_are_those_of_the_formula(temperature):
    """p proportional to n ** (1 / T), of all pairs of many epochs."""
    kept = [300, 1000, 40]
    stage = temperature_stage(kept, temperature)
    mixture = Mixture([stage], ["de", "fr", "cs"], kept, kept, seed=3)
    epochs = [mixture.pairs_of(epoch) for epoch in range(12)]
    counts = np.bincount(np.concatenate(epochs))
    found = np.add.reduceat(counts, [0, 300, 1300]) / counts.sum()
    powers = np.array(kept) ** (1 / temperature)
    assert found == pytest.approx(powers / powers.sum(), abs=1 / counts.sum())
    # Each pair of the largest once an epoch, and at 1 every pair.
    assert (counts[300:1300] == 12).all()
    if temperature == 1:
        assert all(sorted(e) == list(range(sum(kept))) for e in epochs)


# ---- Scores -----------------------------------------------------------------


def test_scores_are_those_of_each_direction_alone():
    """By the tokenizer of its language: that of zh splits characters."""
    data = DataConfig(
        dataset="files", train_files=("x",), target_language="de,zh"
    )
    german = ["Ein Hund sieht ein Haus .", "Die Katze schläft , heute ."]
    chinese = ["一只狗看见一座房子。", "猫今天睡觉。"]
    ours = {"de": ["Ein Hund sieht ein Haus", *german[1:]]}
    ours["zh"] = ["一只狗看见房子。", chinese[1]]
    outputs = {  # mixed, and one that belongs to no direction
        ("<2zh> a", chinese[0]): ours["zh"][0],
        ("<2de> a", german[0]): ours["de"][0],
        ("", "x"): "",
        ("<2de> b", german[1]): ours["de"][1],
        ("<2zh> b", chinese[1]): ours["zh"][1],
    }
    metric = make_metric(data.directions, "auto")
    pairs = to_translate(data, metric.by_direction, Pairs.of(list(outputs)))
    translated = [outputs[pair] for of in pairs.values() for pair in of]
    assert sources_of(pairs) == ["<2de> a", "<2de> b", "<2zh> a", "<2zh> b"]
    found = metric.score(translated, pairs)
    bleu = sacrebleu.corpus_bleu
    expected = {
        "<2de>": bleu(ours["de"], [german]).score,
        "<2zh>": bleu(ours["zh"], [chinese], tokenize="zh").score,
    }
    assert found.by_direction == pytest.approx(expected)
    assert 20 < min(expected.values()) < 99
    assert found.mean == pytest.approx(sum(expected.values()) / 2)
    assert metric.label == "mean BLEU (13a), BLEU (zh)" and metric.key == "bleu"


# ---- A training -------------------------------------------------------------


def test_the_log_names_each_direction(run):
    assert (
        "mixture: de 80 pairs read, 80 kept; fr 50 pairs read, 50 kept; epoch"
        " 1: 80 of de, 63 of fr\n"
    ) in run.log  # 80 * sqrt(50 / 80) = 63.2
    scores = r"mean BLEU \(char\) [\d.]+ \(<2de> [\d.]+, <2fr> [\d.]+\)"
    [line] = [x for x in run.log.splitlines() if "validation at" in x]
    assert re.search(rf" \| {scores} \(best\) \|", line)
    assert re.search(rf"test {scores} on 14 sentences", run.log)


def test_validation_translates_the_first_pairs_of_each_direction(flags):
    arguments, options = wmt.read_arguments([*flags, "--workdir=none"])
    configuration = wmt.read_configuration(arguments, options.preset)
    experiment = types.SimpleNamespace(
        metric=make_metric(configuration.data.directions, "auto"),
        data=configuration.data,
        training=configuration.training,
        valid_pairs=read_split(configuration.data, "valid"),
    )
    chosen = validation.pairs_to_translate(experiment)
    valid = list(experiment.valid_pairs)
    assert chosen == {"<2de>": valid[:4], "<2fr>": valid[6:10]}
    assert {s.split()[0] for s, _ in chosen["<2fr>"]} == {"<2fr>"}


@pytest.mark.slow("run")
def test_a_resumed_training_has_the_same_batches(run, flags):
    """It resumes from a checkpoint in the second epoch, as after a kill."""
    assert run.log.index("epoch 2: 80 of de") < run.log.index("step 6 ")
    check_resumed(flags, run.path, 6, run.log)


def test_a_child_needs_pairs_of_one_language_only(
    run, files, flags, tmp_path, capsys
):
    """A new model needs those of each. The child keeps the other tags."""
    argv = [*flags, f"--train_files={files['more']}", "--train_steps=1"]
    argv += ["--language_temperature=1", "--valid_steps=1"]
    argv += [f"--workdir={tmp_path}/run"]
    message = fails(wmt.main, argv, capsys)
    assert "language of a new model. Received: none of fr" in message
    english, german = read(files["valid"], "en", "de")
    german = write_sides(tmp_path / "valid", en=english, de=german)
    argv += [f"--valid_files={german}", f"--test_files={german}"]
    log = train([*argv, f"--init_from={run.path}"])
    assert "training: 30 pairs read" in log and "mixture" not in log
    assert re.search(r"\| BLEU \(char\) [\d.]+ \(best\) \|", log)
    assert "on 6 sentences" in log
    child = WorkDirectory(tmp_path / "run").read_languages()
    assert child == Languages("en", "de,fr")


def test_a_vocabulary_without_the_tags_is_refused(flags, tmp_path, capsys):
    lines = [
        line for pair in phrasebook.read_split("train", 60) for line in pair
    ]
    Tokenizer.train(lines, 150, symbols=["<2de>"]).save(tmp_path / "given")
    given = [f"--tokenizer={tmp_path}/given", f"--workdir={tmp_path}/run"]
    message = fails(wmt.main, [*flags, *given], capsys)
    assert "the tag of each target language" in message
    assert message.endswith("Received: none for <2fr>\n")


# ---- The translator ---------------------------------------------------------


def test_one_tag_is_put_before_each_source(translator):
    french = translator.with_languages(target="fr")
    tagged = [s and f"<2fr> {s}" for s in SENTENCES]
    assert_close(french.search(SENTENCES), translator.search(tagged))
    assert french.translate(SENTENCES)[1] == ""
    assert french.translate(SENTENCES) != translator.with_languages(
        target="de"
    ).translate(SENTENCES)
    short = ("a dog sees", "ein Hund")
    [one] = french.score([short])
    [other] = translator.score([("<2fr> a dog sees", "ein Hund")])
    assert_close(one.log_probs, other.log_probs)


def test_a_term_is_checked_in_the_direction_of_its_sentence(translator):
    """A tag is a token where the text says the direction, else text."""
    any_tag = translator.with_languages()
    any_tag.check_forms(["<2de>"])
    french = translator.languages.direction(None, "fr")
    assert UNK in translator.tokenizer.without_tags.to_ids(["<2de>"])[0]
    with pytest.raises(ValueError, match="tokens for a translation.*<2de>"):
        any_tag.check_forms(["<2de>"], french)


def test_a_tag_in_a_text_is_text(translator):
    """Of a single direction; also in prefixes, scores and alignments."""
    french = translator.with_languages(target="fr")
    plain = translator.tokenizer.without_tags
    texts = ["<2de> a dog", "a <2fr> dog", "<2fr>"]
    tag, german = translator.tokenizer.to_ids(["<2fr> <2de>"])[0][:2]
    assert plain.pieces == translator.tokenizer.pieces
    assert plain.to_ids(["a dog"]) == translator.tokenizer.to_ids(["a dog"])
    pairs = [(text, "<2de> ein Hund") for text in texts]
    rows = [
        *encode([Request(t, "<2de> ein") for t in texts], french.encoding),
        *encode_pairs(pairs, french.encoding),
    ]
    for text, row in zip(2 * texts, rows, strict=True):
        [ids] = plain.to_ids([read_text(plain, text).text])
        assert row.source_ids == [tag, *ids][-len(ids) - (len(ids) > 1) :]
        assert not {tag, german} & {*row.source_ids[1:], *row.target_ids}
    [found] = french.align(pairs[:1])
    assert {link[1] for link in found.links} >= {1, 2}
    [scored] = french.score(pairs[:1])
    read = read_text(plain, "<2de> ein Hund").text
    assert scored.ids == plain.to_ids([read])[0]
    figure = attention_figure(french, *pairs[0])
    assert figure.source == "<2fr> <2de> a dog"
    shown = [token.text for token in figure.tokens["source"]]
    assert shown[0] == "<2fr>" and "<2de>" not in shown
    # Without a direction the text has to say it.
    any_tag = translator.with_languages()
    [row] = encode([Request("<2de> a dog")], any_tag.encoding)
    assert row.source_ids[0] == german


def test_the_tag_counts_where_a_source_is_truncated(run, translator):
    [row] = translator.tokenizer.to_ids(["the dog"])
    for room in (0, 1):
        limit = len(row) + room
        limited = Translator.load(run.path, max_source_length=limit)
        french = limited.with_languages(target="fr")
        assert french.fits("the dog") == bool(room)
        [found] = french.search(["the dog"])
        assert bool(found.notes) != bool(room)


def test_the_tag_is_no_word_of_an_alignment(translator):
    """Links are those of the tagged text without its first word."""
    texts = "the dog sees a house", "der Hund sieht ein Haus"
    french = translator.with_languages(target="fr")
    [ids], [labels] = (translator.tokenizer.to_ids([text]) for text in texts)
    [tag] = translator.tokenizer.to_ids(["<2fr>"])
    attention = np.array(
        translator.inference.alignment_ids(
            tf.constant([[*tag[:-1], *ids]]), tf.constant([labels])
        )
    )[0]
    sums = np.zeros((5, 5))
    sides = map(translator.tokenizer.tokens, [[text] for text in texts])
    [sources], [targets] = sides
    for column, source in enumerate(sources, 1):
        for row, target in enumerate(targets):
            sums[target.word, source.word] += attention[row, column]
    [found] = french.align([texts])
    assert found.links == sorted(
        (int(row.argmax()), word) for word, row in enumerate(sums)
    )
    spans = french.align_spans([texts])[0]
    assert all(texts[0][slice(*link.source)].isalpha() for link in spans)


def test_of_several_tags_each_source_must_have_one(translator):
    any_tag = translator.with_languages()
    right = ["<2fr> a dog", "", "  <2de> a dog", " "]
    assert_close(any_tag.search(right), translator.search(right))
    for wrong in ("a dog", "<2cs> a dog", "<2de>a dog", "a <2de> dog"):
        with pytest.raises(UntaggedError, match="words <2de> <2fr>") as error:
            any_tag.translate([*right, wrong])
        assert error.value.index == 4
    with pytest.raises(UntaggedError):
        any_tag.score([("a dog", "ein Hund")])


# ---- Commands ---------------------------------------------------------------


def test_translate_puts_the_tag_there(run, translator, capsys, write_stdin):
    expected = translator.with_languages(target="fr").translate(SENTENCES)
    for flags, tag in ((["--target_language=fr"], ""), ([], "<2fr> ")):
        write_stdin("".join(f"{s and tag + s}\n" for s in SENTENCES))
        argv = [f"--workdir={run.path}", *flags]
        assert lines_of(translate.main, argv, capsys) == expected


def test_lines_have_alignments_of_their_directions(translator):
    any_tag = translator.with_languages()
    requests, expected = [], []
    for target in TAGS:
        direction = any_tag.languages.direction("en", target)
        requests.append(Request("a dog", direction=direction))
        one = translator.with_languages(target=target)
        expected += translate_lines(one, ["a dog"], 4, alignments=True)
    lines = [*translate_lines(any_tag, requests, 4, alignments=True)]
    assert lines == expected


@pytest.mark.parametrize(
    "main, given, message",
    [
        (
            translate.main,
            "",
            "line 3, without --target_language: a source must begin with",
        ),
        (
            translate.main,
            "--target_language=cs",
            "translates into: de, fr. Received:",
        ),
        (
            translate_document.main,
            "",
            "a document needs --target_language: the model has",
        ),
        (
            translate_corpus.main,
            "--input=in --output=out",
            "line 3, without --target_language",
        ),
    ],
)
def test_translate_refuses_a_text_without_direction(
    run, capsys, monkeypatch, write_stdin, tmp_path, main, given, message
):
    text = "<2de> a dog\n\na dog\n"
    (tmp_path / "in").write_text(text)
    write_stdin(text)
    monkeypatch.chdir(tmp_path)
    error = fails(main, [f"--workdir={run.path}", *given.split()], capsys)
    assert message in error and ("de" in error and "fr" in error)


@pytest.mark.slow("options")
def test_a_document_and_shards_have_a_direction(
    run, translator, capsys, write_stdin, tmp_path
):
    argv = [f"--workdir={run.path}", "--target_language=fr"]
    [expected] = translator.translate(["<2fr> The dog sees a house."])
    write_stdin("The dog sees a house.")
    found = lines_of(translate_document.main, argv, capsys)
    assert "\n".join(found) == expected
    (tmp_path / "in").write_text("The dog sees a house.\n")
    shards = [f"--input={tmp_path}/in", f"--output={tmp_path}/out"]
    translate_corpus.main([*argv, *shards])
    translate_corpus.main([shards[1], f"--collect={tmp_path}/collected"])
    assert (tmp_path / "collected").read_text() == f"{expected}\n"
    german = [argv[0], "--target_language=de", *shards]
    message = fails(translate_corpus.main, german, capsys)
    assert "direction was ['<2fr>', '', ''] and is ['<2de>', '', '']" in message


@pytest.mark.slow("run")
def test_evaluate_measures_each_direction(
    run, translator, files, capsys, tmp_path
):
    argv = [f"--workdir={run.path}", f"--output={tmp_path}/out"]
    *_, last = lines_of(evaluate.main, argv, capsys)
    result = json.loads(last)
    ours = []
    for language, tag in TAGS.items():
        english, references = read(files["test"], "en", language)
        outputs = translator.translate([f"{tag} {s}" for s in english])
        ours += outputs
        bleu = sacrebleu.corpus_bleu(outputs, [references], tokenize="char")
        assert bleu.score > 0
        found = result["directions"][language]
        assert found["bleu"] == pytest.approx(bleu.score)
        chrf = sacrebleu.corpus_chrf(outputs, [references])
        assert found["chrf"] == pytest.approx(chrf.score)
        assert found["sentences"] == 7
        argv[1:] = [f"--target_language={language}"]
        *_, last = lines_of(evaluate.main, argv, capsys)
        alone = json.loads(last)
        alone.pop("seconds")
        assert alone == found
    scores = [found["bleu"] for found in result["directions"].values()]
    assert result["bleu"] == pytest.approx(sum(scores) / 2)
    assert set(result) == {"bleu", "directions", "seconds"}
    assert (tmp_path / "out").read_text().splitlines() == ours


def test_evaluate_measures_the_languages_that_have_files(
    run, capsys, files, tmp_path
):
    argv = [f"--workdir={run.path}", f"--test_files={files['more']}"]
    german = [*argv, "--target_language=de"]
    (*_, last), (*_, expected) = (
        lines_of(evaluate.main, words, capsys) for words in (argv, german)
    )
    last, expected = map(json.loads, (last, expected))
    assert last["bleu"] == expected["bleu"] and "directions" not in last
    argv[1] += f",{files['test']}"
    lines_of(evaluate.main, [*argv, f"--output={tmp_path}/out"], capsys)
    number = SIZES["more"] + 2 * SIZES["test"]
    assert len((tmp_path / "out").read_text().splitlines()) == number


def test_compare_needs_a_direction(run, capsys, tmp_path, files):
    argv = [f"--workdir={run.path}", f"--compare={files['test']}.fr"]
    message = fails(evaluate.main, argv, capsys)
    assert "compare needs target_language, one of de, fr" in message
    scored = [argv[0], "--score_command=cat {output}"]
    message = fails(evaluate.main, scored, capsys)
    assert "score_command needs target_language" in message
    argv.append("--target_language=fr")
    *_, last = lines_of(evaluate.main, argv, capsys)
    assert json.loads(last)["compare"]


def test_a_direction_has_the_files_that_have_its_language(files):
    data = DataConfig(
        dataset="files",
        train_files=(files["both"],),
        test_files=(files["more"], files["test"]),
        target_language="de,fr",
        language_temperature=3.0,
    )
    french = data.of_direction(target_language="fr")
    assert french.test_files == (files["test"],) and not french.tags
    assert len(read_split(french, "test")) == SIZES["test"]
    sizes = [SIZES["more"] + SIZES["test"], SIZES["test"]]
    assert read_split(data, "test").sizes == sizes
    assert french.of_direction(target_language="fr") == french
    with pytest.raises(ValueError, match="translates into: de, fr"):
        data.of_direction(target_language="cs")


def test_score_and_align_take_a_direction(run, translator, capsys, files):
    argv = [f"--workdir={run.path}", "--target_language=fr"]
    pairs = list(zip(*read(files["test"], "en", "fr"), strict=True))
    tagged = translator.with_languages(target="fr")
    *scored, _ = lines_of(score.main, argv, capsys)
    expected = [f"{sum(s.log_probs):.6f}" for s in tagged.score(pairs)]
    assert [line.split()[0] for line in scored] == expected
    *aligned, _ = lines_of(align.main, [*argv, "--alignment_layer=1"], capsys)
    links = [
        " ".join(f"{source}-{target}" for source, target in one.links)
        for one in tagged.align(pairs)
    ]
    assert aligned == links


def test_attention_of_a_direction(run, translator, capsys, tmp_path):
    page = tmp_path / "page.html"
    argv = [f"--workdir={run.path}", f"--output={page}"]
    error = fails(visualize.main, [*argv, "--text=a dog"], capsys)
    assert "must begin with its target language" in error
    assert not page.exists()
    visualize.main([*argv, "--text=<2fr> a dog"])
    languages = re.findall(r'<bdi dir="ltr" lang="(.*?)"', page.read_text())
    assert languages == ["en", "fr"]


@pytest.mark.slow("run")
def test_tune_maximizes_the_mean(run, translator, capsys, files):
    argv = ["--length_penalties=0.6", "--beam_sizes=2"]
    *_, last = lines_of(tune.main, [f"--workdir={run.path}", *argv], capsys)
    scores = []
    for language, tag in TAGS.items():
        english, references = read(files["valid"], "en", language)
        outputs = translator.translate([f"{tag} {line}" for line in english])
        found = sacrebleu.corpus_bleu(outputs, [references], tokenize="char")
        scores.append(found.score)
    found = json.loads(last)
    assert found["bleu"] == pytest.approx(sum(scores) / 2)
    assert scores[0] != scores[1] and found["sentences"] == 12


def test_the_server_has_a_pair_for_each_direction(run, translator):
    options = TranslatorOptions(workdir=str(run.path))
    found = pairs.load_pairs(options, {}, max_searches=1)
    assert [(p.source, p.target) for p in found] == [("en", "de"), ("en", "fr")]
    for pair, tag in zip(found, TAGS.values(), strict=True):
        search = work.SearchWork(pair.model, translator.decoding, True)
        [result] = search([Request("a dog", direction=pair.direction)])
        [expected] = translator.search([f"{tag} a dog"])
        assert result.translation == expected
        [page] = work.DrawAttention(pair, "")([("a dog", "ein Hund")])
        assert tag.strip("<>") in page
    service = types.SimpleNamespace(
        pairs={(p.source, p.target): p for p in found}
    )
    [english, *_] = libretranslate.list_languages(service)
    assert english["targets"] == ["de", "fr"]


def test_attention_of_the_server_has_room_for_the_tag(run):
    found = pairs.load_pairs(
        TranslatorOptions(workdir=str(run.path), max_source_length=7), {}, 1
    )
    with contextlib.closing(
        Service(found, ServeOptions(), Limits())
    ) as service:

        def draw(text):
            drawn = service.draw_attention(found[0], text, "ein", adapter="")
            return asyncio.run(drawn)

        longest = " ".join(["a"] * 5)
        [ids] = found[0].translator.tokenizer.source.to_ids([longest])
        assert len(ids) == 6 and "truncated" not in draw(longest)
        with pytest.raises(HTTPException) as error:
            draw(f"{longest} a")
        assert "tokens, truncated to 6 (" in error.value.detail


# ---- An export --------------------------------------------------------------


def test_an_export_is_verified_with_tags(translator):
    """Of languages by chance, as `kt-translate` would be given them."""
    any_tag = translator.with_languages()
    requests, inputs = verify._with_languages(
        any_tag, ["a dog"] * 9 + ["", " ", "<2fr> red", "<2cs> red"]
    )
    assert requests == inputs and {*inputs[:9]} == {
        f"{tag} a dog" for tag in TAGS.values()
    }
    assert inputs[9:12] == ["", " ", "<2fr> red"]
    assert inputs[12].endswith("> <2cs> red")
    assert len(any_tag.search(requests)) == 13


@pytest.mark.slow("format")
def test_the_saved_model_reads_tags(run, translator, tmp_path, monkeypatch):
    """As the live translator; it has no option for them."""
    monkeypatch.setattr(saved_model, "INPUTS", {"serving_default": ["text"]})
    options = export.ExportOptions(
        workdir=str(run.path), format="saved_model", output=str(tmp_path)
    )
    export.write(export.load_source(options), options, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path)).signatures
    lines = [f"{tag} {s}" for tag in TAGS.values() for s in SENTENCES if s]
    live = translator.translate(lines)
    assert live[:4] != live[4:]
    found = loaded["serving_default"](text=tf.constant(lines))
    assert [text.decode() for text in found["translation"].numpy()] == live
