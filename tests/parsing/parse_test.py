"""`kt-parse`, `kt-parse-text`, `kt-parse-evaluate`."""

import io
import json
import sys

import pytest
from commands import ROOT, fails

from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.results import Translation
from savedmodel import export, reload, saved_model
from trainers import parse, parse_evaluate, parse_text, wmt
from trainers.datasets.constituency import (
    Leaf,
    Node,
    leaves,
    read_trees,
    retag,
    write_tree,
)
from trainers.datasets.dataset import read_split
from trainers.datasets.linearization import linearize
from trainers.datasets.trees import read_treebank
from trainers.parsing import evaluation
from trainers.parsing import text as parsing_text
from trainers.parsing.bracketing import count_brackets, sum_counts
from trainers.parsing.parser_config import ParserDecoding, TreesConfig
from trainers.run.data_config import DataConfig
from trainers.run.experiment import check_same
from trainers.run.vocabularies import open_tokenizer

SMALL = (
    "--vocab_size=150 --d_model=32 --d_ff=64 --num_heads=2 --num_layers=1"
    " --dropout=0 --pre_norm --batch_tokens=400 --num_buckets=1"
    " --warmup_steps=10 --learning_rate_scale=0.3 --label_smoothing=0"
    " --train_steps=70 --valid_steps=70 --checkpoint_steps=70 --log_steps=10"
    " --average_last=1 --beam_size=2 --extra_length=40"
).split()


def write_trees(path, trees):
    path.write_text("".join(write_tree(tree) + "\n" for tree in trees))
    return str(path)


def read_configuration(argv):
    """Reads the `Configuration` of a kt-parse command line."""
    arguments, options = wmt.read_arguments(argv, "", parse.SECTIONS)
    return parse.read_configuration(arguments, options.preset)


def words_of(tree):
    return [leaf.word for leaf in leaves(tree)]


@pytest.fixture(scope="module")
def trees():
    """Four short trees."""
    short = [t for t in read_treebank("train", 60) if len(leaves(t)) < 7]
    return short[:4]


@pytest.fixture(scope="module")
def run(trees, tmp_path_factory):
    """A parser that knows its training trees by heart, and its log."""
    directory = tmp_path_factory.mktemp("parse")
    train = write_trees(directory / "train.mrg", trees)
    command = [
        *SMALL,
        f"--workdir={directory / 'run'}",
        f"--train_trees={train}",
        f"--valid_trees={train}",
    ]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", printed)
        parse.main(command)
    return directory / "run", command, printed.getvalue()


@pytest.fixture(scope="module")
def parser(run):
    """The run's parser, loaded once as the commands load it."""
    options = parse_text.ParserOptions(workdir=str(run[0]))
    return parsing_text.load_parser(options, {})


@pytest.fixture
def answer(monkeypatch, capfdbinary):
    """Runs kt-parse-text on a text with a parser, and returns its answer."""

    def answer(parser, text, *options):
        monkeypatch.setattr(parsing_text, "load_parser", lambda *_: parser)
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))
        )
        capfdbinary.readouterr()
        parse_text.main(["--workdir=somewhere", *options])
        return capfdbinary.readouterr().out.decode().split("\n")

    return answer


class Flat:
    """A parser whose trees are flat, and have two words."""

    def search(self, requests, num_best):
        return [
            Translation(["(S XX XX )S" if r.text else ""], [[]], [0.0], [])
            for r in requests
        ]


@pytest.mark.slow("run")
def test_training_is_scored_by_f1(run):
    path, _, printed = run
    lines = [line for line in printed.splitlines() if "| F1 " in line]
    assert len(lines) == 1 and "BLEU" not in printed
    assert "validation F1 " in printed.splitlines()[-1]
    assert WorkDirectory(path).best.prefixes()
    decoding = WorkDirectory(path).read_section("decoding", ParserDecoding)
    assert (decoding.beam_size, decoding.length_penalty) == (2, 0.3)


def test_text_becomes_trees(run, parser, trees, answer):
    """Each line gives a tree, in order, over exactly the words of the line."""
    known = trees[0]
    text = f"{' '.join(words_of(known))}\n\nHe can't.\n"
    first, blank, second, end = answer(parser, text)
    assert blank == end == ""
    path = run[0] / "answers.mrg"
    path.write_text(first + second)
    found = list(read_trees(path))
    tags = [leaf.tag for leaf in leaves(known)]
    assert write_tree(retag(found[0], tags)) == write_tree(known)
    assert words_of(found[1]) == ["He", "ca", "n't", "."]


def test_words_may_be_given(answer, caplog):
    """A tree for each line, repaired where the model's has other words."""
    text = "a.b, (c\n\nI can't\n"
    assert answer(Flat(), text, "--tokenized") == [
        "(TOP (S (XX a.b,) (XX -LRB-c)))",
        "",
        "(TOP (S (XX I) (XX can't)))",
        "",
    ]
    assert "repaired" not in caplog.text
    assert answer(Flat(), text)[2] == "(TOP (S (XX I) (XX ca) (XX n't)))"
    assert "2 of 2 trees are repaired" in caplog.text


def test_evaluation_counts_what_it_writes(
    run, parser, trees, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(evaluation, "load_parser", lambda *_: parser)
    path = tmp_path / "gold.mrg"
    write_trees(path, trees)
    path.write_text(path.read_text().replace("(NP ", "(NAC "))
    gold = list(read_trees(path))
    output = tmp_path / "found.mrg"
    command = [f"--workdir={run[0]}", f"--trees={path}", f"--output={output}"]
    capsys.readouterr()
    parse_evaluate.main(command)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = list(read_trees(output))
    assert [leaves(tree) for tree in found] == [leaves(tree) for tree in gold]
    counts = sum_counts(map(count_brackets, gold, found))
    assert (result["f1"], result["recall"]) == (counts.f1, counts.recall)
    assert result["precision"] == counts.precision
    assert result["sentences"] == 4 and 0 < result["f1"] < 100
    assert result["well_formed"] == 100 and result["complete_match"] < 100
    monkeypatch.setattr(evaluation, "load_parser", pytest.fail)
    for other, message in (
        (path, "output must not be a file that the command reads"),
        (tmp_path, "is a directory"),
        ("/proc/x", "cannot be written: /proc"),
    ):
        argv = [*command[:2], f"--output={other}"]
        assert message in fails(parse_evaluate.main, argv, capsys)
    assert list(read_trees(path)) == gold


@pytest.mark.slow("format")
def test_an_export_gives_linear_trees(
    run, parser, trees, tmp_path, monkeypatch
):
    """The trees are the parser's, for the words of a sentence."""
    # The signature that `reload` runs.
    monkeypatch.setattr(saved_model, "INPUTS", {"n_best": ["text"]})
    options = export.ExportOptions(workdir=str(run[0]), output="unused")
    source = export.load_source(options)
    description = export.write(source, options, tmp_path)
    assert description["decoding"]["extra_length"] == 40
    translate = reload.load(tmp_path, description)
    lines = [" ".join(words_of(tree)) for tree in trees]
    found = [answer["text"] for answer in translate(lines)]
    assert found == parser.translate(lines)
    assert found[0] == linearize(trees[0])


def test_other_trees_may_follow(run, trees, tmp_path):
    """A resumed run takes other files, if its vocabulary has their labels."""
    path, command, _ = run
    others = tmp_path / "others.mrg"

    def tokenizer_for(trees, command=command):
        flag = f"--train_trees={write_trees(others, trees)}"
        argv = [*command, flag, "--precision=float32"]
        configuration = read_configuration(argv)
        check_same(WorkDirectory(path), configuration)
        pairs = read_split(configuration.data, "train")
        return open_tokenizer(WorkDirectory(path), configuration, pairs, print)

    assert tokenizer_for(trees[:2]).vocab_size == 150
    given = [*command[1:], f"--tokenizer={path / 'tokenizer.model'}"]
    assert tokenizer_for(trees[:2], given).vocab_size == 150
    label = Node("TOP", (Node("WHADVP", (Leaf("WRB", "when"),)),))
    with pytest.raises(ValueError, match=r"none for \(WHADVP \)WHADVP"):
        tokenizer_for([*trees, label])


def test_bad_input_is_one_line(run, tmp_path, capsys):
    path = run[0]
    (tmp_path / "none.mrg").write_text("(TOP (NP (-NONE- *)))\n")
    none = f"--train_trees={tmp_path / 'none.mrg'}"
    new = f"--workdir={tmp_path / 'new'}"
    recipe = [new, "--recipe=parse", "--bleu_tokenizer=13a"]
    for main, given, message in (
        (parse.main, [], "expected --workdir=DIR"),
        (parse.main, [new, "--test_trees=a"], "test_trees needs train_trees"),
        (parse.main, [new, none], "must have trees. Received: no tree"),
        (parse.main, [new, "--train_trees=a"], "file or directory: 'a'"),
        (parse.main, [new, "--tokenizer=a"], "No tokenizer model: a"),
        (parse.main, recipe, "trees are scored by F1"),
        (parse.main, [new, "--recipe=quickstart"], "recipe must be one of 'pa"),
        (wmt.main, [new, "--recipe=parse"], "recipe must be one of 'fairseq"),
        (wmt.main, [f"--workdir={path}"], "in 'data': unknown fields: test_tr"),
        (parse_text.main, [new], "made by kt-parse. Received: workdir"),
        (parse_evaluate.main, [f"--workdir={path}", "a"], "expected flags"),
    ):
        assert message in fails(main, given, capsys)
    assert not (tmp_path / "new").exists()


def test_a_translator_is_no_parser(tmp_path, capsys):
    WorkDirectory(tmp_path).write_config(data=DataConfig())
    for main in (parse_text.main, parse_evaluate.main):
        message = fails(main, [f"--workdir={tmp_path}"], capsys)
        assert "expected a work directory made by kt-parse" in message


@pytest.mark.parametrize("name", wmt.recipe_names(of_parsers=True))
def test_recipes_are_valid(name):
    path = ROOT / f"trainers/configs/{name}.flags"
    assert f"kt-parse --recipe={name} " in path.read_text()
    configuration = read_configuration(
        [f"--recipe={name}", "--workdir=run", "--train_trees=wsj"]
    )
    decoding, model = configuration.decoding, configuration.model
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.extra_length == 300
    # Sec. 6.3: 4 layers, d_model 1024, vocabularies of 16K and 32K.
    vocab_sizes = {"parse_wsj": 16000, "parse_wsj_semi": 32000}
    if vocab_size := vocab_sizes.get(name):
        assert (model.num_layers, model.decoder_depth) == (4, 4)
        assert (model.d_model, model.vocab_size) == (1024, vocab_size)
        assert (model.d_ff, model.num_heads) == (2048, 8)  # as in base


def test_data_is_the_built_in_treebank_or_files():
    assert TreesConfig().given_tokenizers == {"vocab_size": ""}
    with pytest.raises(ValueError, match="needs train_trees"):
        TreesConfig(valid_trees=("a",))
