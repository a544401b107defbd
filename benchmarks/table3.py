"""Trains the rows of a group of the paper's Table 3, scaled down, on Multi30k.

    python benchmarks/table3.py --data=DATA --folder=FOLDER [--group=a]

Every row of the group and the base row are trained for the same number of steps
on the same batches, each by `python -m trainers.wmt` in a process of its own.
They are measured by perplexity and BLEU on the validation pairs (beam 4, no
averaging, as in the table) and BLEU on the test pairs. All rows have the same
number of steps, so other load on the machine changes nothing.

Scale: widths d_model, d_ff and h * d_k are a quarter of the row's, heads a
half, layers two thirds. Data and batches are as in the recipe multi30k_ende,
pre-norm included, but with the paper's schedule (`BASE_FLAGS`, a copy, so that
a better recipe does not change the table). Dropout and label smoothing are the
row's. Rerun the command to continue after an interruption: measured rows are
kept, the others resumed. It writes FOLDER/table3_GROUP.json, and prints the
table after each row.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from formulas import count_parameters
from results import add_flag, parse_table, record

from keras_transformer.commands import flags
from keras_transformer.config import TransformerConfig, preset
from trainers import wmt
from trainers.run.training_config import Configuration

ROOT = pathlib.Path(__file__).parents[1]
GROUPS = "abcde"
# Recipe -> the row's name, perplexity and BLEU in Table 3: newstest2013, beam
# 4, no averaging.
PRINTED = {
    "table3_base": ("base", 4.92, 25.8),
    "table3_a1": ("A1", 5.29, 24.9),
    "table3_a2": ("A2", 5.00, 25.5),
    "table3_a3": ("A3", 4.91, 25.8),
    "table3_a4": ("A4", 5.01, 25.4),
    "table3_b1": ("B1", 5.16, 25.1),
    "table3_b2": ("B2", 5.01, 25.4),
    "table3_c1": ("C1", 6.11, 23.7),
    "table3_c2": ("C2", 5.19, 25.3),
    "table3_c3": ("C3", 4.88, 25.5),
    "table3_c4": ("C4", 5.75, 24.5),
    "table3_c5": ("C5", 4.66, 26.0),
    "table3_c6": ("C6", 5.12, 25.4),
    "table3_c7": ("C7", 4.75, 26.2),
    "table3_d1": ("D1", 5.77, 24.6),
    "table3_d2": ("D2", 4.95, 25.5),
    "table3_d3": ("D3", 4.67, 25.3),
    "table3_d4": ("D4", 5.47, 25.7),
    "table3_e": ("E", 4.92, 25.7),
    "table3_big": ("big", 4.33, 26.4),
}
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
BASE_FLAGS = (
    "--dataset=files",
    "--source_language=en",
    "--target_language=de",
    "--batch_tokens=1024",
    "--max_length=100",
    "--num_buckets=10",
    "--preset=tiny",
    "--vocab_size=6000",
    "--pre_norm",
    "--schedule=noam",
    "--warmup_steps=1000",
    "--learning_rate_scale=1.07",
    "--valid_steps=1000",
    "--checkpoint_steps=500",
    "--keep_checkpoints=12",
    "--log_steps=200",
    "--length_penalty=0.6",
)
BEAM_SIZE = 4
CURVE_SENTENCES = 200  # translated greedily during training, for the log


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / f"table3_{arguments.group}.json"
    results = []
    for seed in range(1, arguments.seeds + 1):
        for row in rows_of(arguments.group):
            run = {
                "row": row,
                "configuration": scaled_configuration(row, seed, arguments),
            }
            results.append(read_result(path, run) or train_row(run, path))
            print(table(arguments.group, results), flush=True)
    if arguments.record:
        group = arguments.group
        title = f"Table 3, group {group.upper()}, scaled down, on Multi30k"
        rows = parse_table(table(group, results))
        record(f"table3_{group}", title, {"rows": rows})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data",
        required=True,
        type=pathlib.Path,
        help="folder of train, val and test_2016_flickr",
    )
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--group", default="a", choices=GROUPS)
    parser.add_argument("--train_steps", type=int, default=3500)
    parser.add_argument("--seeds", type=int, default=1, help="runs of a row")
    add_flag(parser)
    parser.add_argument(
        "flags", nargs="*", help="more flags of trainers.wmt, after --"
    )
    return parser.parse_args()


def rows_of(group):
    """Returns the recipes of a group, base first."""
    names = re.compile(f"table3_(base|{group}[0-9]*)")
    return [name for name in PRINTED if names.fullmatch(name)]


def scaled(config):
    """Scales a row's model down to a size that two CPU cores can train.

    Args:
        config: The `TransformerConfig` of the row.
    """
    heads = max(1, config.num_heads // 2)
    return dataclasses.replace(
        config,
        d_model=config.d_model // 4,
        d_ff=config.d_ff // 4,
        num_heads=heads,
        d_key=config.num_heads * config.key_size // 4 // heads,
        d_value=config.num_heads * config.value_size // 4 // heads,
        num_layers=max(1, config.num_layers * 2 // 3),
        pre_norm=True,
    )


def scaled_configuration(row, seed, arguments):
    """Makes the `Configuration` of a row: its own model, and `BASE_FLAGS`."""
    files = [
        f"--{split}_files={arguments.data / name}"
        for split, name in SPLITS.items()
        if split != "test"
    ]
    given, options = wmt.read_arguments(
        [
            *BASE_FLAGS,
            *files,
            "--workdir=none",
            "--train_minutes=0",
            "--average_last=1",
            f"--valid_sentences={CURVE_SENTENCES}",
            f"--beam_size={BEAM_SIZE}",
            f"--train_steps={arguments.train_steps}",
            *arguments.flags,
        ]
    )
    base = wmt.read_configuration(given, options.preset)
    recipe, _ = wmt.read_arguments([f"--recipe={row}", "--workdir=none"])
    return Configuration(
        model=scaled(preset(row, vocab_size=base.model.vocab_size)),
        data=base.data,
        training=dataclasses.replace(
            base.training,
            label_smoothing=recipe.given["label_smoothing"],
            seed=seed,
        ),
        decoding=base.decoding,
    )


def train_row(run, path):
    """Trains and measures a row. Adds the result to the file of results."""
    configuration = run["configuration"]
    workdir = path.parent / f"{run['row']}_seed{configuration.training.seed}"
    train(workdir, configuration)
    result = {**as_json(run), **measure(workdir, configuration)}
    results = read_results(path) + [result]
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(results, indent=1), encoding="utf-8")
    unfinished.replace(path)
    return result


def read_results(path):
    """Reads the results in a file. Returns [] if it does not exist."""
    if not path.exists():
        return []
    return json.loads(path.read_text(encoding="utf-8"))


def read_result(path, run):
    """Reads the result of a run. Returns None if the file does not have it."""
    for result in read_results(path):
        if as_json(run).items() <= result.items():
            return result
    return None


def as_json(run):
    """Converts a run to what JSON would return: tuples become lists."""
    sections = dataclasses.asdict(run["configuration"])
    return json.loads(json.dumps({**run, "configuration": sections}))


def train(workdir, configuration):
    """Trains or resumes a row until its end. The log is WORKDIR.log."""
    flag_file = workdir.with_suffix(".flags")
    lines = []
    for section in configuration.sections().values():
        lines += flags.to_flags(section)
    flag_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "trainers.wmt"]
    command += [f"--flagfile={flag_file}", f"--workdir={workdir}"]
    print(f"{workdir}: see {workdir}.log", flush=True)
    with open(workdir.with_suffix(".log"), "a", encoding="utf-8") as log:
        with subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
        ) as process:
            try:
                status = process.wait()
            except BaseException:  # Ctrl-C, SIGTERM: the trainer saves and ends
                process.terminate()
                raise
    if status:
        raise SystemExit(f"{' '.join(command)} failed: see {log.name}")


def measure(workdir, configuration):
    """Measures perplexity and BLEU of the last checkpoint of a row."""
    from keras_transformer.translation.metrics import TranslationMetric
    from keras_transformer.translator import Translator
    from trainers.datasets.dataset import read_split

    translator = Translator.load(workdir, checkpoint="latest")
    metric = TranslationMetric(configuration.data.target_language)
    data = dataclasses.replace(
        configuration.data,
        test_files=(str(test_prefix(configuration.data)),),
    )
    pairs = {name: list(read_split(data, name)) for name in ("valid", "test")}
    scores = translator.score(pairs["valid"])
    found = {"parameters": count_parameters(configuration.model)}
    found["perplexity"] = perplexity(scores)
    for name in pairs:
        sources, references = zip(*pairs[name], strict=True)
        outputs = translator.translate(list(sources))
        found[f"{name}_bleu"] = metric.score(outputs, list(references))
    return found


def test_prefix(data):
    """Returns the prefix of the test files beside the validation files."""
    [valid] = data.valid_files
    return pathlib.Path(valid).with_name(SPLITS["test"])


def perplexity(scores):
    """Returns exp of the mean negative log-probability per token, with EOS."""
    import numpy as np

    log_probs = [p for score in scores for p in score.log_probs]
    return float(np.exp(-np.mean(log_probs)))


def table(group, results):
    """Makes a Markdown table of means over seeds, with the paper's numbers."""
    lines = [
        "| row | N | d_model | d_ff | h | d_k | d_v | parameters | runs"
        " | perplexity | BLEU (beam 4) | test BLEU"
        " | the paper's h, d_k, d_v | the paper's perplexity | its BLEU |",
        "|" + "---|" * 15,
    ]
    for row in rows_of(group):
        runs = [r for r in results if r["row"] == row]
        if not runs:
            continue
        config = TransformerConfig(**runs[-1]["configuration"]["model"])
        theirs, (name, *printed) = preset(row), PRINTED[row]
        cells = [
            name,
            config.num_layers,
            config.d_model,
            config.d_ff,
            config.num_heads,
            config.key_size,
            config.value_size,
            f"{runs[-1]['parameters']:,}",
            len(runs),
            f"{mean(runs, 'perplexity'):.2f}",
            f"{mean(runs, 'valid_bleu'):.1f}",
            f"{mean(runs, 'test_bleu'):.1f}",
            f"{theirs.num_heads}, {theirs.key_size}, {theirs.value_size}",
            f"{printed[0]:.2f}",
            printed[1],
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def mean(runs, name):
    """Returns the mean of a number over runs."""
    return sum(run[name] for run in runs) / len(runs)


if __name__ == "__main__":
    main()
