"""Input that a command refuses at once: before a framework is imported."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from commands import (
    NAMES,
    ROOT,
    changed_config,
    run_bad_commands,
    write_pairs,
)

from keras_transformer.hub import suggest

RUN = ROOT / "tests/fixtures/workdir_0_2/run"
# Commands that open a translator -> the arguments that they need.
TRANSLATORS = {
    "translate": [],
    "translate_document": [],
    "translate_corpus": ["--input=pairs.en", "--output=new"],
    "evaluate": ["--test_files=pairs"],
    "score": ["--test_files=pairs"],
    "align": ["--test_files=pairs"],
    "tune": ["--valid_files=pairs"],
    "visualize": ["--text=a", "--output=new.html"],
    "serve": ["--port=0"],
    "parse_text": [],
    "parse_evaluate": ["--trees=trees"],
}
PARSERS = ("parse_text", "parse_evaluate")
NO_WORKDIR = "expected a work directory made by kt-"
BROKEN = {
    "no_directory": NO_WORKDIR,
    "no_config": NO_WORKDIR,
    "no_vocabulary": "tokenizer.model",
    "no_checkpoint": "no usable checkpoint yet",
}
NO_FILE = "No such file"
CTRANSLATE2 = "--engine=ctranslate2"
GREEDY = f"{CTRANSLATE2} --beam_size=1"
FILES = "--dataset=files --train_files="
HUB = "Helsinki-NLP/opus-mt-en-de"
# Command, arguments, and a part of the error.
OTHERS = [
    ("translate", "--checkpoint=best", "no best checkpoint yet"),
    ("translate", "--checkpoint=nowhere/ckpt-1", "no such checkpoint"),
    ("translate", "--shortlist", "which kt-shortlist makes"),
    ("translate", "--target_language=fr", "translates into: de"),
    ("translate", "--prefix_file=nowhere", NO_FILE),
    ("translate", "--glossary=nowhere", NO_FILE),
    ("translate", "--avoid=nowhere", NO_FILE),
    ("translate", "--workdir=run,no_checkpoint", "no usable checkpoint yet"),
    ("translate", "--n_best=9", "n_best must be at most beam_size"),
    ("translate", "--compute_type=int8", "compute_type needs engine"),
    ("translate", f"{CTRANSLATE2} --stopping=exact", "needs stopping=fairseq."),
    ("serve", f"{GREEDY} --adapter=one=adapted", "engine=native with adapter"),
    ("serve", f"{CTRANSLATE2} --stopping=exact", "needs stopping=fairseq."),
    ("score", CTRANSLATE2, "without a search has engine=native"),
    ("align", CTRANSLATE2, "without a search has engine=native"),
    ("translate", f"{GREEDY} --backend=jax", "engine excludes backend"),
    ("translate", f"{GREEDY} --jit_compile", "engine excludes jit_compile"),
    ("translate", f"{GREEDY} --device=tpu", "needs device=cpu on this"),
    ("translate", f"{GREEDY} --workdir=run,run", "has no ensembles"),
    ("translate", f"{GREEDY} --precision=bfloat16", "has no precision"),
    ("translate", f"{GREEDY} --shortlist", "has no shortlist"),
    ("translate", f"{GREEDY} --compute_type=float16", "default, or one of"),
    ("evaluate", f"{GREEDY} --glossary=pairs.en", "use engine=native"),
    ("translate_document", f"{GREEDY} --sampling", "needs sampling=False"),
    ("translate_corpus", f"{GREEDY} --min_length=2", "needs min_length=0 or"),
    ("translate", "--alignment_layer=9", "alignment_layer must be at most 1"),
    ("translate_document", "--document_map=pairs.en/x", "cannot be written"),
    ("translate_document", "--format=nonsense", "format must be one of"),
    ("translate_corpus", "--input=nowhere", "expected a regular file"),
    ("translate_corpus", "--output=other", "other has other files"),
    ("translate_corpus", "--n_best=9", "n_best must be at most beam_size"),
    ("translate_corpus", "--seed=9", "seed needs sampling"),
    ("translate", "--seed=9", "seed needs sampling"),
    ("translate", "--num_samples=3", "num_samples needs sampling"),
    ("translate", "--temperature=2", "temperature needs sampling"),
    ("serve", "--top_k=2", "top_k needs sampling"),
    ("evaluate", "--sampling --num_samples=2", "num_samples needs consensus"),
    ("evaluate", "--sampling --consensus=bleu", "consensus needs num_sa"),
    ("evaluate", "--test_files=nowhere", NO_FILE),
    ("evaluate", "--output=pairs.en/x", "cannot be written"),
    ("evaluate", "--compare=nowhere", NO_FILE),
    ("evaluate", "--compare=no_checkpoint", "no usable checkpoint yet"),
    ("evaluate", "--test_files= --test_set=nothing", "sacreBLEU has for en-de"),
    ("evaluate", "--score_command=no_comet{output}", "expected a program, not"),
    ("evaluate", "--score_command=cat{source}", "expected {output}, perhaps"),
    ("score", "--test_files=nowhere", NO_FILE),
    ("align", "--test_files=nowhere", NO_FILE),
    ("align", "--gold=nowhere", NO_FILE),
    ("tune", "--valid_files=nowhere", NO_FILE),
    ("tune", "--sampling", "expected a search"),
    ("serve", "--api_keys=nowhere", NO_FILE),
    ("serve", "--workdir=run,no_checkpoint", "no usable checkpoint yet"),
    ("parse_evaluate", "--trees=nowhere", NO_FILE),
    ("serve", "--adapter=one", "adapter as NAME=DIR"),
    ("serve", "--adapter=one=run", "adapter needs a work directory of ada"),
    ("serve", "--adapter=one=no_directory", NO_WORKDIR),
    ("average", "--merged=new", "merged needs a work directory of adapters"),
    ("average", "--workdir=no_directory", NO_WORKDIR),
    ("average", "--workdir=no_checkpoint", "no checkpoint in"),
    ("shortlist", "--workdir=no_directory --train_files=pairs", NO_WORKDIR),
    ("shortlist", "--workdir=run --train_files=nowhere", NO_FILE),
    ("visualize", "--output=pairs.en/x.html", "cannot be written"),
    ("visualize", "--ensemble=linear", "a figure has one model and no gloss"),
    ("visualize", "--glossary_bonus=1", "no glossary. Received: glossary_bo"),
    ("visualize", "--glossary_mode=prefer", "Received: glossary_mode"),
    ("prepare", f"{FILES}nowhere --output=new", NO_FILE),
    ("synthesize", "--config=nowhere", "expected a file nowhere"),
    ("synthesize", "--config=plan.yaml", "no usable checkpoint yet"),
    ("import_model", "--source=run --workdir=other", "does not exist yet"),
    ("import_model", "--source=nowhere --workdir=new", "nowhere"),
    ("wmt", "--workdir=new", "expected data: --dataset=files --train_files"),
    ("wmt", f"{FILES}nowhere", NO_FILE),
    ("wmt", f"{FILES}pairs --valid_files=x", NO_FILE),
    ("wmt", f"{FILES}utf_16", "utf_16.en: expected text"),
    ("wmt", f"{FILES}pairs --valid_files=utf_16", "iconv -f UTF-16 -t UTF-8"),
    (
        "wmt",
        f"{FILES}pairs --guided_alignment=nowhere --source_language=en"
        " --alignment_head=1",
        NO_FILE,
    ),
    ("wmt", f"{FILES}x.csv", "No such file: x.csv"),
    (
        "wmt",
        "--init_from=nowhere",
        "expected a work directory, with config.json",
    ),
    ("wmt", "--init_from=no_checkpoint", "no usable checkpoint yet"),
    ("wmt", "--init_from=no_vocabulary", "tokenizer.model"),
    ("wmt", "--workdir=begun --vocab_size=61", "another configuration"),
    ("parse", "--train_trees=nowhere", NO_FILE),
    # What would work is said.
    ("wmt", "--epochs=3", "Did you mean: train_steps ?"),
    ("wmt", f"{FILES}pairs.en", "tables that end in .tsv or .csv are read"),
    ("translate", f"--workdir={HUB}", f"kt-import reads hf://{HUB}"),
    ("import_model", f"--source={HUB} --workdir=new", f"reads hf://{HUB}"),
]
CASES = [
    *(
        (command, f"--workdir={kind}", error)
        for command in TRANSLATORS
        for kind, error in BROKEN.items()
    ),
    *OTHERS,
]


def argv_of(command, arguments):
    """The arguments of a case; later flags override earlier ones."""
    workdir = "parser" if command in PARSERS else "run"
    defaults = [f"--workdir={workdir}", *TRANSLATORS.get(command, [])]
    if command in ("prepare", "synthesize"):
        defaults = []
    if command in ("wmt", "parse"):
        defaults = ["--workdir=new"]
    given = arguments.split()
    if command in PARSERS:
        given = [one.replace("=no_", "=parser_no_") for one in given]
    return [f"trainers.{command}", *defaults, *given]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The result of each case: all run in one process."""
    folder = tmp_path_factory.mktemp("input")
    write_pairs(folder / "pairs", [("one dog", "ein Hund")])
    for language in ("en", "de"):
        (folder / f"utf_16.{language}").write_text("one dog", "utf-16")
    (folder / "trees").write_text("(TOP (S (NN dog)))\n")
    (folder / "other").mkdir()
    (folder / "other/file").touch()
    for kind in ("", "parser"):
        run = shutil.copytree(RUN, folder / (kind or "run"))
        if kind:
            with changed_config(run) as config:
                config["data"] = {"train_trees": [], "max_length": 40}
        prefix = f"{kind}_" if kind else ""
        for name, lost in (
            ("no_config", "config.json"),
            ("no_vocabulary", "tokenizer.model"),
            ("no_checkpoint", "*/*.safetensors"),
        ):
            copy = shutil.copytree(run, folder / f"{prefix}{name}")
            for path in list(copy.glob(lost)):
                path.unlink()
    shutil.copytree(RUN, folder / "begun")
    plan = "train_files: [pairs]\noutput: made\nsteps:\n- name: one\n"
    plan += "  kind: distillation\n  forward: [no_checkpoint]\n"
    (folder / "plan.yaml").write_text(plan)
    commands = [argv_of(command, arguments) for command, arguments, _ in CASES]
    return dict(
        zip(
            [case[:2] for case in CASES],
            run_bad_commands(commands, cwd=folder),
            strict=False,
        )
    )


@pytest.mark.parametrize("command, arguments, error", CASES)
def test_is_refused_before_a_framework_is_imported(
    results, command, arguments, error
):
    assert (command, arguments) in results, "an earlier one is not refused"
    found = results[command, arguments]
    assert found["slow"] == []
    assert found["err"].startswith(f"{NAMES[f'trainers.{command}']}: ")
    assert found["err"].count("\n") == 1
    assert error in found["err"]
    assert found["status"] == 2


@pytest.mark.parametrize("command", ["translate", "parse_text"])
@pytest.mark.parametrize("text", ["", "one dog\n"])
def test_utf_16_on_standard_input_is_refused_at_once(tmp_path, command, text):
    """An empty file is not."""
    workdir = shutil.copytree(RUN, tmp_path / "run")
    if command == "parse_text":
        with changed_config(workdir) as config:
            config["data"] = {"train_trees": [], "max_length": 40}
    (tmp_path / "input").write_text(text, "utf-16" if text else "utf-8")
    program = (
        "import sys\n"
        f"from trainers import {command}\n"
        "import keras_transformer.commands.startup as startup\n"
        "def refuse(): raise SystemExit('a framework is imported')\n"
        "startup.load_tensorflow = refuse\n"
        f"{command}.main(['--workdir={workdir}'])\n"
    )
    with open(tmp_path / "input", "rb") as file:
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=file,
            capture_output=True,
            text=True,
        )
    expected = "a framework is imported\n"
    if text:
        expected = (
            f"{NAMES[f'trainers.{command}']}: standard input: expected text in"
            " UTF-8. Received: UTF-16, or no text; iconv -f UTF-16 -t UTF-8"
            " converts it\n"
        )
    assert found.stderr == expected


def test_only_what_may_be_a_repository_is_taken_for_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("runs").mkdir()
    for path in ("runs/mine", "mine", "/a/b", "a/b/c"):
        assert suggest(path) == ""
    hint = " (kt-import reads hf://owner/name@main)"
    for path in ("owner/name@main", pathlib.Path("hf://owner/name@main")):
        assert suggest(path) == hint
