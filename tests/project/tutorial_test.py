"""The page "From TensorFlow's tutorial to a translator", on a few pairs."""

import importlib
import io
import json
import pathlib
import re
import shlex
import sys

import pytest
import tensorflow_datasets as tfds
from commands import module_of

from trainers import wmt
from trainers.datasets.dataset import read_split

ROOT = pathlib.Path(__file__).parents[2]
NAME = "ted_hrlr_translate/pt_to_en"
PAIRS = [
    (f"este é o problema número {n} .", f"this is problem number {n} .")
    for n in range(40)
]
SIZES = {"train": 30, "validation": 6, "test": 4}
QUICK = """--train_steps=2 --warmup_steps=1 --valid_sentences=2 --d_model=8
--d_ff=8 --num_heads=2 --num_layers=1 --d_key=3 --d_value=5 --batch_tokens=400
--num_buckets=1 --source_vocab_size=40 --vocab_size=39""".split()


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """The directory of TFDS, with the data set that its own builder made."""
    folder, files = tmp_path / "tfds", {}
    first = 0
    for split, size in SIZES.items():
        files[split] = {}
        for side, name in enumerate(("source_file", "target_file")):
            path = tmp_path / f"{split}.{name}"
            lines = [pair[side] for pair in PAIRS[first : first + size]]
            path.write_text("\n".join(lines) + "\n", "utf-8")
            files[split][name] = str(path)
        first += size
    builder = tfds.builder(NAME, data_dir=folder)
    monkeypatch.setattr(
        type(builder),
        "_split_generators",
        lambda self, manager: [
            tfds.core.SplitGenerator(name=split, gen_kwargs=paths)
            for split, paths in files.items()
        ],
    )
    builder.download_and_prepare()
    return folder


def read_recipe(*more):
    argv = ["--recipe=ted_pten", "--workdir=run", *more]
    return wmt.read_configuration(*wmt.read_arguments(argv)[:1], "base")


def test_the_recipe_has_the_numbers_of_the_tutorial():
    recipe = read_recipe()
    model, training = recipe.model, recipe.training
    assert (model.num_layers, model.d_model, model.d_ff) == (4, 128, 512)
    assert (model.num_heads, model.d_key, model.d_value) == (8, 128, 128)
    assert (model.dropout, model.attention_dropout) == (0.1, 0.1)
    assert (model.source_vocab_size, model.vocab_size) == (8000, 8000)
    assert training.warmup_steps == 4000 and training.schedule == "noam"
    assert training.learning_rate_scale == 1.0
    assert recipe.data.max_length == 128


def test_each_split_of_the_data_is_read(data_dir):
    data = read_recipe(f"--data_dir={data_dir}").data
    found = [read_split(data, split) for split in ("train", "valid", "test")]
    assert list(map(len, found)) == list(SIZES.values())
    assert sorted(pair for pairs in found for pair in pairs) == sorted(PAIRS)


@pytest.mark.slow("run")
def test_the_commands_of_the_page(data_dir, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/tutorial.md").read_text("utf-8")
    [block] = re.findall(r"```bash\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    outputs = []
    for line in block.splitlines():
        words = shlex.split(line)
        if words[0] == "echo":
            text = io.BytesIO(words[1].encode() + b"\n")
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
        begin = words.index("|") + 1 if "|" in words else 0
        module, arguments = module_of(words[begin:])
        if module == "trainers.wmt":
            arguments += [*QUICK, f"--data_dir={data_dir}"]
        importlib.import_module(module).main(arguments)
        outputs.append(capsys.readouterr().out)
    trained, translated, evaluated, _ = outputs
    assert "on 4 sentences" in trained.splitlines()[-1]
    assert translated.count("\n") == 1
    assert json.loads(evaluated.splitlines()[-1])["sentences"] == 4
    assert (tmp_path / "exports/ted_pten/1/saved_model.pb").is_file()
