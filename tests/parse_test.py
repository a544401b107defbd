"""`trainers.parse`, `trainers.parse_text`, `trainers.parse_evaluate`."""

import io
import json
import sys

import pytest
from commands import ROOT, fails

from keras_transformer.workdir import WorkDirectory
from trainers import parse, parse_evaluate, parse_text, wmt
from trainers.config import DataConfig
from trainers.parsing.bracketing import count_brackets, sum_counts
from trainers.parsing.config import ParserDecoding, TreesConfig
from trainers.parsing.treebank import make_trees
from trainers.parsing.trees import leaves, read_trees, retag, write_tree

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


def words_of(tree):
    return [leaf.word for leaf in leaves(tree)]


@pytest.fixture(scope="module")
def trees():
    """Four short trees."""
    short = [t for t in make_trees("train", 60) if len(leaves(t)) < 7]
    return short[:4]


@pytest.fixture(scope="module")
def run(trees, tmp_path_factory):
    """A parser that knows its training trees by heart, and what was logged."""
    directory = tmp_path_factory.mktemp("parse")
    train = write_trees(directory / "train.mrg", trees)
    command = [
        *SMALL,
        f"--workdir={directory / 'run'}",
        f"--train_trees={train}",
        f"--valid_trees={train}",
        f"--test_trees={train}",
    ]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", printed)
        parse.main(command)
    return directory / "run", command, printed.getvalue()


@pytest.fixture
def answer(run, monkeypatch, capfdbinary):
    """What trainers.parse_text answers to a text."""

    def answer(text, *flags):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))
        )
        capfdbinary.readouterr()
        parse_text.main([f"--workdir={run[0]}", *flags])
        return capfdbinary.readouterr().out.decode().split("\n")

    return answer


def test_training_is_scored_by_f1(run):
    path, _, printed = run
    lines = [line for line in printed.splitlines() if "| F1 " in line]
    assert len(lines) == 1 and "BLEU" not in printed
    assert "test F1 " in printed.splitlines()[-1]
    assert WorkDirectory(path).best.prefixes()
    decoding = WorkDirectory(path).read_section("decoding", ParserDecoding)
    assert (decoding.beam_size, decoding.length_penalty) == (2, 0.3)


def test_text_becomes_trees(run, trees, answer):
    """One line for each, in order; over exactly the words of the line."""
    known, unknown = trees[0], "Zebras (42) jump, don't they?"
    text = f"{' '.join(words_of(known))}\n\n{unknown}\n"
    first, blank, second, end = answer(text)
    assert blank == end == ""
    path = run[0] / "answers.mrg"
    path.write_text(first + second)
    found = list(read_trees(path))
    tags = [leaf.tag for leaf in leaves(known)]
    assert write_tree(retag(found[0], tags)) == write_tree(known)
    words = "Zebras -LRB- 42 -RRB- jump , do n't they ?"
    assert words_of(found[1]) == words.split()
    tokenized = answer("a.b, (c\n", "--tokenized")
    path.write_text(tokenized[0])
    assert words_of(*read_trees(path)) == ["a.b,", "-LRB-c"]


def test_repaired_trees_are_counted(monkeypatch, caplog):
    def translate_lines(_, lines, chunk_size):
        outputs = {"a b": "(S XX XX )S", "": "", "c": "(S XX (NP )S"}
        return (outputs[line] for line in lines)

    monkeypatch.setattr(parse_text, "translate_lines", translate_lines)
    lines = parse_text.parse_lines(None, ["a b", "", "c"], 5, str.split)
    expected = ["(TOP (S (XX a) (XX b)))", "", "(TOP (S (XX c)))"]
    assert list(lines) == expected
    assert "1 of 2 trees are repaired" in caplog.text


def test_evaluation_counts_what_it_writes(run, tmp_path, capsys):
    gold = make_trees("test", 3)
    path = write_trees(tmp_path / "gold.mrg", gold)
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
    assert result["sentences"] == 3 and 0 <= result["well_formed"] <= 100


def test_a_run_resumes_with_other_trees(run, trees, tmp_path, capsys):
    path, command, _ = run
    parse.main([*command, "--train_steps=71", "--valid_steps=1000"])
    assert "resuming at step 70" in capsys.readouterr().out
    bad = write_trees(tmp_path / "bad.mrg", trees[:1])
    with open(bad, "a") as file:
        file.write("(TOP (WHADVP (WRB when)))\n")
    message = fails(parse.main, [*command, f"--train_trees={bad}"], capsys)
    assert "Received: none for (WHADVP )WHADVP" in message


def test_bad_input_is_one_line(run, tmp_path, capsys):
    path = run[0]
    (tmp_path / "none.mrg").write_text("(TOP (NP (-NONE- *)))\n")
    none = f"--train_trees={tmp_path / 'none.mrg'}"
    new = f"--workdir={tmp_path / 'new'}"
    for main, flags, message in (
        (parse.main, [], "expected --workdir=DIR"),
        (parse.main, [new, "--test_trees=a"], "test_trees need train_trees"),
        (parse.main, [new, none], "train_trees must have trees. Received: /"),
        (
            parse.main,
            [new, "--train_trees=a"],
            "No such file or directory: 'a'",
        ),
        (parse.main, [new, "--bleu_tokenizer=13a"], "trees are scored by F1"),
        (parse.main, [new, "--recipe=quickstart"], "recipe must be one of 'pa"),
        (wmt.main, [new, "--recipe=parse"], "recipe must be one of 'multi30k"),
        (wmt.main, [f"--workdir={path}"], "unknown fields in 'data': test_tr"),
        (parse_text.main, [new], "expected a work directory made by"),
        (
            parse_evaluate.main,
            [f"--workdir={path}", none[2:]],
            "expected flags",
        ),
        (
            parse_evaluate.main,
            [f"--workdir={path}", f"--output={path}"],
            "output must be a file",
        ),
    ):
        assert message in fails(main, flags, capsys)
    assert not (tmp_path / "new").exists()


def test_a_translator_is_no_parser(tmp_path, capsys):
    WorkDirectory(tmp_path).write_config(data=DataConfig())
    for main in (parse_text.main, parse_evaluate.main):
        message = fails(main, [f"--workdir={tmp_path}"], capsys)
        assert "expected a work directory made by trainers.parse" in message


@pytest.mark.parametrize("name", wmt.recipe_names(of_parsers=True))
def test_recipes_are_valid(name):
    path = ROOT / f"trainers/configs/{name}.flags"
    assert f"python -m trainers.parse --recipe={name} " in path.read_text()
    arguments, options = wmt.read_arguments(
        [f"--recipe={name}", "--workdir=run"], parse.__doc__, parse.SECTIONS
    )
    configuration = parse.read_configuration(arguments, options.preset)
    decoding = configuration.decoding
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.extra_length == 300


def test_the_recipes_of_the_paper_have_its_numbers():
    """Sec. 6.3: 4 layers, d_model 1024, vocabularies of 16K and 32K."""
    for name, vocab_size in (("parse_wsj", 16000), ("parse_wsj_semi", 32000)):
        arguments, options = wmt.read_arguments(
            [f"--recipe={name}", "--workdir=run"], "", parse.SECTIONS
        )
        model = parse.read_configuration(arguments, options.preset).model
        assert (model.num_layers, model.decoder_depth) == (4, 4)
        assert (model.d_model, model.vocab_size) == (1024, vocab_size)
        assert (model.d_ff, model.num_heads) == (2048, 8)  # as in base


def test_data_is_the_built_in_treebank_or_files():
    assert TreesConfig().given_tokenizer == ""
    with pytest.raises(ValueError, match="need train_trees=FILE"):
        TreesConfig(valid_trees=("a",))
