"""The walk-throughs run as they are written, on less data and smaller models.

Commands get flags that shrink them; a training that another test has made takes
the place of the one that a dry run checks.
"""

import contextlib
import http.server
import importlib
import io
import json
import pathlib
import re
import shlex
import shutil
import threading
import tomllib

import exports
import pytest
from commands import module_of, write_pairs

import keras_transformer as kt
from trainers import wmt
from trainers.datasets import phrasebook

ROOT = pathlib.Path(__file__).parents[1]
MARIAN = ROOT / "tests/fixtures/marian_shared"
MINE = ["--workdir=runs/mine"]
TINY = ["--d_model=8", "--d_ff=8", "--num_heads=2", "--num_layers=1"]
SMALL = ["--batch_tokens=400", "--num_buckets=1", "--vocab_size=120"]
QUICK = [
    "--train_steps=2",
    "--warmup_steps=1",
    "--valid_sentences=1",
]


def section_of(heading):
    """The text below a heading of the page."""
    page = (ROOT / "docs/walkthroughs.md").read_text(encoding="utf-8")
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    return text


def commands_of(heading):
    """The commands of a section as lists of words, variables filled in."""
    variables = {}
    for block in re.findall(r"```bash\n(.*?)```", section_of(heading), re.S):
        for line in block.replace("\\\n", "").splitlines():
            if assignment := re.fullmatch(r'(\w+)="(.*)"', line):
                variables[f"${assignment[1]}"] = assignment[2].split()
                continue
            words = shlex.split(line)
            yield [w for word in words for w in variables.get(word, [word])]


def scripts_of(heading):
    """The Python scripts of a section."""
    return re.findall(r"```python\n(.*?)```", section_of(heading), re.S)


def run(words, *flags, **renamed):
    """Runs one command in this process; returns what it prints."""
    if words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        [extra] = re.findall(r"\[(\w+)\]", words[-1])
        assert extra in project["project"]["optional-dependencies"]
        return ""
    files, printed = {}, io.TextIOWrapper(io.BytesIO(), "utf-8")
    for sign in {"<", ">"} & {*words}:
        files[sign] = words.pop(words.index(sign) + 1)
        words.remove(sign)
    module, argv = module_of(words)
    argv = [*argv, *flags]
    for name, other in renamed.items():
        argv = [re.sub(rf"^--{name}=.*", f"--{name}={other}", a) for a in argv]
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if "<" in files:
            source = stack.enter_context(open(files["<"], encoding="utf-8"))
            patch.setattr("sys.stdin", source)
        stack.enter_context(contextlib.redirect_stdout(printed))
        importlib.import_module(module).main(argv)
    printed.flush()
    text = printed.buffer.getvalue().decode()
    if ">" in files:
        pathlib.Path(files[">"]).write_text(text, "utf-8")
    return text


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """corpus/train, valid and test in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for split, number in (("train", 60), ("valid", 3), ("test", 3)):
        pairs = phrasebook.read_split("train", number)
        write_pairs(tmp_path / "corpus" / split, pairs)
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_300000_pairs(corpus):
    dry, translate, *others = commands_of("300,000 sentence pairs of your own")
    assert dry.pop() == "--dry_run"
    printed = run(dry, *TINY, *SMALL, "--dry_run")
    assert "fit into memory" in printed and not any(corpus.glob("runs/*"))
    shutil.copytree(exports.workdir(), corpus / "runs/mine")
    run(translate, "--beam_size=1")
    lines = (corpus / "corpus/test.en").read_text("utf-8").splitlines()
    found = (corpus / "translation.de").read_text("utf-8").splitlines()
    assert len(found) == len(lines)
    assert others == [  # which other tests run
        ["kt-tune", *MINE, "--save"],
        ["kt-evaluate", *MINE, "--test_files=corpus/test"],
        [
            *("kt-export", *MINE),
            *("--format=saved_model", "--output=exports/mine"),
        ],
    ]


@pytest.mark.slow("run")
def test_opus_mt(corpus):
    install, import_model, before, wmt, after = commands_of(
        "An OPUS-MT model on your own domain"
    )
    run(install)
    assert "--source=hf://Helsinki-NLP/opus-mt-en-de" in import_model
    assert "(huggingface)" in run(import_model, source=MARIAN)
    search = ["--beam_size=1", "--max_output_length=8"]
    score = json.loads(run(before, *search).splitlines()[-1])
    printed = run(wmt, *QUICK, "--batch_tokens=400", "--num_buckets=1")
    assert "initial weights: runs/opus_en_de/averaged/ckpt-0" in printed
    compared = json.loads(run(after, *search).splitlines()[-1])["compare"]
    [other] = compared["systems"]
    assert other["name"] == "runs/opus_en_de"
    assert other["BLEU"]["score"] == pytest.approx(score["bleu"], abs=0.01)


class Api(http.server.BaseHTTPRequestHandler):
    """Answers /v1/translate as kt-serve does, in upper case."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        assert self.path == "/v1/translate"
        assert self.headers["Content-Type"] == "application/json"
        length = int(self.headers["Content-Length"])
        asked = json.loads(self.rfile.read(length))
        assert (asked["source"], asked["target"]) == ("en", "de")
        answer = {"translations": [{"text": asked["text"].upper()}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


def test_a_client(capsys):
    [script] = scripts_of("Translate over HTTP")
    assert script.count("\n") < 16
    with http.server.HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        script = script.replace("8080", str(server.server_port))
        exec(script, {})
        thread.join()
    assert capsys.readouterr().out == "WHEN DID THE TIRED CHILD GET UP?\n"


def test_a_layer(corpus):
    sentences = [pair[0] for pair in phrasebook.read_split("train", 100)]
    rows = [f"{int(s.endswith('?'))}\t{s}\n" for s in sentences]
    (corpus / "reviews.tsv").write_text("".join(rows), "utf-8")
    [script] = scripts_of("A layer in your own model")
    assert "vocab_size=8000" in script
    names = {}
    exec(script.replace("vocab_size=8000", "vocab_size=150"), names)
    losses = names["model"].history.history["loss"]
    assert losses[-1] < losses[0]
    assert (corpus / "reviews.keras").exists()


def test_a_row_of_table_3(corpus):
    base, row, evaluate = commands_of("A row of Table 3 on your own data")
    assert base == [w.replace("table3_c2", "table3_base") for w in row]
    for command, layers in ((base, 6), (row, 4)):
        arguments, options = wmt.read_arguments(command[1:])
        configuration = wmt.read_configuration(arguments, options.preset)
        assert configuration.model.num_layers == layers
        assert configuration.training.train_steps == 20000
    assert evaluate == [
        *("kt-evaluate", "--workdir=runs/table3_c2"),
        *("--test_files=corpus/valid", "--compare=runs/table3_base"),
    ]


def test_the_headings_are_those_of_the_list():
    page = (ROOT / "docs/walkthroughs.md").read_text(encoding="utf-8")
    anchors = [
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^## (.*)", page, re.M)
    ]
    assert anchors == re.findall(r"\]\(#([^)]+)\)", page)
    assert kt.PRESETS.keys() >= set(re.findall(r"--recipe=(table3_\w+)", page))
