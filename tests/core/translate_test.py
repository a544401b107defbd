"""Failing and interrupted runs of the command `kt-translate`."""

import errno
import io
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import pytest
from commands import fails

from keras_transformer.commands.flags import CommandError, RunError
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.results import NotFiniteError
from keras_transformer.translator import Alignment, Translation, Translator
from trainers import translate
from trainers.translating import lines as translating
from trainers.translating.options import TranslatorChoice, TranslatorOptions

RUN = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"


class Echo:
    """A `Translator` that repeats each line."""

    def search(self, requests, num_best):
        strings = [request.prefix + request.text for request in requests]
        if "no number" in strings:
            raise NotFiniteError("not finite")
        return [
            Translation(
                [string, string.upper()][:num_best],
                [[], []][:num_best],
                [0.0, -1.0][:num_best],
                ["has 9 tokens"] if string == "long" else [],
            )
            for string in strings
        ]

    def align(self, pairs):
        assert all(
            target in (request.text, request.text.upper())
            for request, target in pairs
        )
        return [
            Alignment([(i, i) for i in range(len(request.text.split()))], False)
            for request, _ in pairs
        ]


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_ends_the_process_while_it_computes(ignored):
    """Except if it is ignored, as for a background job in a shell script."""
    program = pathlib.Path(__file__).parents[1] / "programs/interrupted.py"
    handler = signal.SIG_IGN if ignored else signal.default_int_handler
    before = signal.signal(signal.SIGINT, handler)
    try:
        process = subprocess.Popen(
            [sys.executable, str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    if ignored:
        process.terminate()
    try:
        _, err = process.communicate(timeout=60)  # of the many minutes
    finally:
        process.kill()
    number = signal.SIGTERM if ignored else signal.SIGINT
    assert (process.returncode, err) == (-number, "")


def test_a_full_device_is_one_line():
    message = "^standard output: No space left on device$"
    with open("/dev/full", "wb") as file:
        with pytest.raises(RunError, match=message):
            translating.write_lines(["a line"], file)
    # Closing the file, as Python does at exit, has nothing left to complain of.


def test_output_that_nobody_reads_ends_quietly():
    read_end, write_end = os.pipe()
    written = []

    def lines():
        for number in range(10):
            written.append(number)
            yield str(number)
            if number == 0:
                assert os.read(read_end, 9) == b"0\n"  # at once
                os.close(read_end)

    with open(write_end, "wb") as file:
        translating.write_lines(lines(), file)
    assert written == [0, 1]


def test_input_that_cannot_be_read_is_one_line():
    def file():
        yield b"first\n"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    lines = translating.read_lines(file())
    assert next(lines) == "first"
    with pytest.raises(RunError, match="^standard input: Is a directory$"):
        next(lines)


def test_an_empty_input_is_told():
    warn = mock.Mock()
    assert list(translating.read_lines(io.BytesIO(b""), warn=warn)) == []
    warn.assert_called_once_with("%s has no line", "standard input")
    assert list(translating.read_lines(io.BytesIO(b"a"), warn=warn)) == ["a"]
    warn.assert_called_once()


def test_utf_16_is_refused():
    for text in ("\nein Hund\n".encode(e) for e in ("utf-16", "utf-16-be")):
        with pytest.raises(CommandError, match="^standard input: .* UTF-16, "):
            list(translating.read_lines(io.BytesIO(text)))


def test_weights_that_are_no_numbers_are_one_line():
    outputs = translating.translate_lines(Echo(), ["a", "b", "no number"], 2)
    assert [next(outputs), next(outputs)] == ["a", "b"]
    with pytest.raises(RunError, match="^not finite$"):
        next(outputs)


def test_alignments_follow_the_translations():
    lines = ["a b", "", "c"]
    outputs = translating.translate_lines(Echo(), lines, 2, alignments=True)
    assert list(outputs) == ["a b ||| 0-0 1-1", " ||| ", "c ||| 0-0"]
    options = {"n_best": 2, "alignments": True}
    outputs = translating.translate_lines(Echo(), lines[:1], 2, **options)
    assert list(outputs) == [
        "1 ||| a b ||| 0.000000 ||| 0-0 1-1",
        "1 ||| A B ||| -1.000000 ||| 0-0 1-1",
    ]


@pytest.mark.parametrize(
    "prefixes, received",
    [(["1", "2", ""], None), (["1"], "only 1"), (["1"] * 4, "more than 3")],
)
def test_each_line_has_its_prefix(prefixes, received):
    requests = translating.read_requests(["a", "b", "c"], prefixes)
    outputs = translating.translate_lines(Echo(), requests, 2)
    if received is None:
        assert list(outputs) == ["1a", "2b", "c"]
        return
    message = f"for each input line. Received: {received} lines"
    with pytest.raises(CommandError, match=message):
        list(outputs)


@pytest.mark.parametrize(
    "search, n_best, expected",
    [
        ({}, 0, 0),
        ({}, 2, 2),
        ({"num_samples": 3}, 0, 3),
        ({"num_samples": 3}, 2, 2),
        ({"num_samples": 3, "consensus": "chrf"}, 0, 0),
        ({"num_samples": 3, "consensus": "chrf"}, 2, 2),
    ],
)
def test_all_samples_are_written_unless_one_is_chosen(search, n_best, expected):
    decoding = DecodingConfig(sampling=True, **search)
    assert decoding.count_outputs(n_best) == expected


def test_several_samples_of_a_line_are_an_n_best_list(
    monkeypatch, capfdbinary, caplog
):
    """The text is German, that of the model English."""
    text = b"der Lehrer ist im alten Haus\n\nein Hund und die Katze\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    argv = [f"--workdir={RUN}", "--sampling", "--num_samples=3", "--seed=3"]
    translate.main(argv)
    assert "looks like German, but the model translates from English" in (
        caplog.text
    )
    lines = capfdbinary.readouterr().out.decode().splitlines()
    rows = [line.split(" ||| ") for line in lines]
    assert [int(number) for number, _, _ in rows] == [1] * 3 + [2] + [3] * 3


def test_prefixes_are_counted_before_any_line_is_translated(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "prefixes"
    path.write_text("ja\n")
    stdin = io.TextIOWrapper(io.BytesIO(b"a\nb\nc\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(translating, "open_translator", pytest.fail)
    argv = ["--workdir=somewhere", f"--prefix_file={path}"]
    assert fails(translate.main, argv, capsys) == (
        "kt-translate: prefix_file must have a line for each input line."
        " Received: only 1 lines\n"
    )


def test_a_wanted_device_must_compute_with_given_threads(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    argv = [f"--workdir={RUN}", "--device=gpu", "--num_threads=1"]
    message = fails(translate.main, argv, capsys)
    assert "device=gpu is not available. Received: device: CPU, " in message


@pytest.mark.parametrize(
    "given, used", [("latest", "latest"), (f"{RUN}/averaged/ckpt-6", None)]
)
def test_another_system_has_a_checkpoint_of_the_same_kind(
    monkeypatch, given, used
):
    load = mock.Mock(wraps=Translator.load)
    monkeypatch.setattr(Translator, "load", load)
    options = TranslatorOptions(workdir="ours", checkpoint=given)
    choice = TranslatorChoice(options.in_workdir(str(RUN)), {})
    translating.open_translator(choice)
    [(workdir, _, checkpoint)] = [call.args for call in load.mock_calls]
    assert (workdir, checkpoint) == ((str(RUN),), used)


def test_streams_that_are_closed_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert fails(translate.main, ["--workdir=somewhere"], capsys, 1) == (
        "kt-translate: expected an open stdin. It is closed\n"
    )
