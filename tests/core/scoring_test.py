"""The commands `kt-score` and `kt-align`."""

import json
import math
import pathlib
from unittest import mock

import pytest
from commands import fails, write_pairs

from keras_transformer.commands.flags import RunError
from keras_transformer.config import SEARCH_PRECISIONS, DecodingConfig
from keras_transformer.translation.results import NotFiniteError
from keras_transformer.translator import Alignment, PairScore, Translator
from trainers import align, score
from trainers.run.data_config import DataConfig
from trainers.scoring import alignment, log_probs
from trainers.scoring.options import TestOptions
from trainers.scoring.test_sets import read_test_pairs

RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
PAIRS = [
    ("a dog", "Hund da ."),
    ("", "Hund"),
    ("a cat and a dog", "o 5"),
]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """A work directory, and pairs, one of which is too long for the model."""
    prefix = tmp_path_factory.mktemp("pairs") / "test"
    return [f"--workdir={RUN}", f"--test_files={write_pairs(prefix, PAIRS)}"]


def test_pairs_may_be_files_whatever_the_training_had(arguments):
    prefix = arguments[1].removeprefix("--test_files=")
    options = TestOptions(test_files=(prefix,))
    found = read_test_pairs(DataConfig(dataset="phrasebook"), options)
    assert list(found) == PAIRS


def test_score_prints_what_the_translator_finds(
    arguments, monkeypatch, capfdbinary
):
    translator = Translator.load(RUN, max_source_length=8)
    monkeypatch.setattr(log_probs, "open_translator", lambda *_: translator)
    score.main([*arguments, "--tokens"])
    *lines, last = capfdbinary.readouterr().out.decode().splitlines()
    expected = translator.score(PAIRS)
    pieces = translator.tokenizer.pieces
    for line, pair in zip(lines, expected, strict=True):
        log_prob, number, tokens, by_token = line.split("\t")
        assert float(log_prob) == pytest.approx(sum(pair.log_probs), abs=1e-4)
        assert int(number) == len(pair.ids)
        assert tokens.split(" ") == [pieces[id] for id in pair.ids]
        assert tokens.endswith(" </s>")
        found = [float(x) for x in by_token.split(" ")]
        assert found == pytest.approx(pair.log_probs, abs=1e-5)
    result = json.loads(last)
    total = sum(sum(pair.log_probs) for pair in expected)
    tokens = sum(len(pair.ids) for pair in expected)
    assert result["perplexity"] == pytest.approx(math.exp(-total / tokens))
    assert (result["pairs"], result["tokens"]) == (3, tokens)
    assert result["truncated"] == 1


@pytest.mark.slow("backend")
def test_score_takes_the_precision(arguments, capfdbinary):
    """From the command line to the weights."""
    totals = {}
    for precision in SEARCH_PRECISIONS:
        score.main([*arguments, f"--precision={precision}"])
        *lines, _ = capfdbinary.readouterr().out.decode().splitlines()
        totals[precision] = [float(line.split("\t")[0]) for line in lines]
        translator = Translator.load(RUN, precision=precision)
        assert totals[precision] == pytest.approx(
            [sum(pair.log_probs) for pair in translator.score(PAIRS)], abs=1e-4
        )
    assert totals["float32"] != pytest.approx(totals["bfloat16"], abs=1e-3)


def test_pairs_are_scored_as_they_are_read():
    """The first lines are there before the last pairs are read."""
    asked = []

    class HalfEach:
        tokenizer = mock.Mock()
        tokenizer.target.pieces = ["a"]

        def score(self, pairs):
            asked.append(len(pairs))
            if len(pairs) == 1:
                raise NotFiniteError("not finite")
            half = math.log(0.5)
            return [PairScore([0, 0], [half, half], []) for _ in pairs]

    def pairs():
        for number in range(5):
            assert len(asked) == number // 2
            yield "source", "target"

    lines = log_probs.score_lines(HalfEach(), pairs(), False, chunk_size=2)
    assert next(lines) == f"{2 * math.log(0.5):.6f}\t2"
    assert [next(lines) for _ in range(3)] and asked == [2, 2]
    with pytest.raises(RunError, match="^not finite$"):
        next(lines)
    lines = log_probs.score_lines(HalfEach(), [("a", "b")] * 3, False)
    summary = json.loads(list(lines)[-1])
    assert summary["perplexity"] == pytest.approx(2)
    assert summary["tokens"] == 6


# -------------------------------------------------------------------- aligning


class Layers:
    """A translator whose layer n links word i to target word i + n - 2.

    Its second layer is right, where the languages have the same order.
    """

    model = mock.Mock()
    model.config.decoder_depth = 3
    decoding = DecodingConfig()

    def __init__(self, layer=None):
        self.layer = layer

    def with_decoding(self, alignment_layer):
        return Layers(alignment_layer)

    def align(self, pairs):
        shift = self.layer - 2
        lengths = [len(source.split()) for source, _ in pairs]
        return [
            Alignment([(i, i + shift) for i in range(max(0, -shift), n)], False)
            for n in lengths
        ]


MONTHS = [("On May 3 , Ann left", "Am 3 , Mai ging Ann"), ("a b", "c d")]


def test_the_layer_is_that_of_the_lowest_error_rate():
    gold = [({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)}), ({(0, 1)},) * 2]
    alignments, summary = alignment.choose_layer(Layers(), MONTHS, gold)
    # By hand. Layer 1 links 5 + 1 and is right in 1 possible one; layer 2
    # links 6 + 2, of which 2 are sure; layer 3 6 + 2, of which 1 is sure.
    rates = [1 - 1 / 9, 1 - 4 / 11, 1 - 2 / 11]
    assert summary["layers"] == pytest.approx(rates)
    assert (summary["layer"], summary["criterion"]) == (2, "aer")
    assert alignments[1].links == [(0, 0), (1, 1)]
    assert alignment.error_rate([[]], [(set(), set())]) == 0  # nothing is wrong


def test_without_gold_the_layer_is_that_of_most_anchors():
    alignments, summary = alignment.choose_layer(Layers(), MONTHS, None)
    # The words "3" and "Ann"; the comma is no word, "May" is not "Mai".
    assert alignment.find_anchors(*MONTHS[0]) == {(2, 1), (4, 5)}
    assert summary["layers"] == [0.5, 0, 0.5]
    assert (summary["layer"], summary["criterion"]) == (1, "anchors")


def test_align_prints_links_and_the_layer(
    arguments, monkeypatch, tmp_path, capfdbinary
):
    monkeypatch.setattr(alignment, "open_translator", lambda *_: Layers())
    gold = tmp_path / "gold"
    gold.write_text("0-0 1-1\n\n2p1\n")
    align.main([*arguments, f"--gold={gold}"])
    *lines, last = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == ["0-0 1-1", "", "0-0 1-1 2-2 3-3 4-4"]
    summary = json.loads(last)
    assert summary["layer"] == 2 and len(summary["layers"]) == 3
    assert summary["aer"] == min(summary["layers"]) == 1 - 4 / 9
    assert (summary["pairs"], summary["truncated"]) == (3, 0)
    monkeypatch.setattr(alignment, "open_translator", lambda *_: Layers(3))
    align.main([*arguments, "--alignment_layer=3"])
    *lines, last = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0] == "0-1 1-2"
    assert json.loads(last)["criterion"] == "given"


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--alignment_layer=9", "at most 1, the decoder's. Received: a"),
        ("--gold={}/short", "expected 3 lines, one for each source"),
        ("--gold={}/wrong", "line 2: a link must look like 0-0 or 0p0. Rec"),
        (
            "--gold={}/from_1",
            "from_1, line 1: the pair has 2 and 3 words, counted from 0."
            " Received: a link of 2 and 2\n",
        ),
        ("--gold={}/target", "line 3: the pair has 5 and 2 words"),
    ],
)
def test_align_refuses(arguments, tmp_path, capsys, flag, message):
    (tmp_path / "short").write_text("0-0\n")
    (tmp_path / "wrong").write_text("0-0\n1:1\n\n")
    (tmp_path / "from_1").write_text("1-1 2-2\n\n5-2\n")
    (tmp_path / "target").write_text("1-2\n\n4p2\n")
    argv = [*arguments, flag.format(tmp_path)]
    assert message in fails(align.main, argv, capsys)


def test_without_anything_to_choose_by(capsys):
    lines = alignment.output_lines(Layers(), MONTHS[1:], None, None)
    with pytest.raises(Exception, match="expected pairs with a word in common"):
        next(lines)
