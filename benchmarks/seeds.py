"""BLEU of a training over several seeds: the mean and the range.

    python benchmarks/seeds.py --folder=FOLDER --setting=NAME --train_steps=4000
        --data=DATA [--seeds 1 2 3] [--tests test_2016_flickr ...]
        [-- --backend=jax ...]

Runs `python -m trainers.wmt` once for each seed, in FOLDER/NAME_SEED, with the
recipe multi30k_ende and the flags after `--`, in which SEED is replaced by its
number. The budget is a number of steps, so other load on the machine changes
nothing. Every model translates the validation pairs and each test set with
`trainers.evaluate`. Each of several target languages has its own row. DATA
contains Multi30k, or the files `train` and `val` of another corpus and those of
--tests. Rerun the command to continue after an interruption. With --record, the
rows replace those of the same setting and number of steps in
benchmarks/results/seeds.json.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import results

ROOT = pathlib.Path(__file__).parents[1]
NAME, TITLE = "seeds", "The recipe multi30k_ende: mean and range over seeds"
VALID = "val"


def main():
    arguments = parse_arguments()
    scores = {
        seed: run(arguments, seed, [VALID, *arguments.tests])
        for seed in arguments.seeds
    }
    rows = [
        row_of(arguments, name, scores) for name in scores[arguments.seeds[0]]
    ]
    print(results.markdown(rows))
    if arguments.record:
        path = results.FOLDER / f"{NAME}.json"
        others = results.read(NAME)["tables"]["runs"] if path.exists() else []
        names = arguments.setting, arguments.train_steps
        others = [r for r in others if (r["setting"], r["steps"]) != names]
        results.record(NAME, TITLE, {"runs": [*others, *rows]})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--setting", required=True, help="name of the rows")
    parser.add_argument("--train_steps", required=True, type=int)
    parser.add_argument(
        "--data", required=True, type=pathlib.Path, help="folder of the pairs"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tests", nargs="+", default=["test_2016_flickr"])
    results.add_flag(parser)
    parser.add_argument("flags", nargs="*", help="of trainers.wmt, after --")
    return parser.parse_args()


def run(arguments, seed, names):
    """Trains with a seed. Returns {name of a set of pairs: its scores}."""
    workdir = arguments.folder / f"{arguments.setting}_{seed}"
    files = {"train": "train", "valid": VALID}
    call(
        "wmt",
        workdir,
        "--recipe=multi30k_ende",
        *(f"--{k}_files={arguments.data / v}" for k, v in files.items()),
        f"--train_steps={arguments.train_steps}",
        f"--seed={seed}",
        *(flag.replace("SEED", str(seed)) for flag in arguments.flags),
    )
    backend = [flag for flag in arguments.flags if flag.startswith("--backend")]
    scores = {}
    for name in names:
        pairs = f"--test_files={arguments.data / name}"
        output = call("evaluate", workdir, pairs, *backend)
        found = json.loads(output.splitlines()[-1])
        for language, values in found.get("directions", {"": found}).items():
            scores[f"{name}, {language}".removesuffix(", ")] = values
    return scores


def call(command, workdir, *flags):
    """Runs a command of the trainers. Returns its standard output."""
    words = [sys.executable, "-m", f"trainers.{command}"]
    print(f"{workdir}: {command}", flush=True)
    return subprocess.run(
        [*words, f"--workdir={workdir}", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def row_of(arguments, name, scores):
    """Makes the row of a set of pairs: BLEU and chrF over the seeds."""
    values = {
        metric: [found[name][metric] for found in scores.values()]
        for metric in ("bleu", "bleu_lowercase", "chrf")
    }
    means = {key: round(statistics.mean(v), 2) for key, v in values.items()}
    return {
        "setting": arguments.setting,
        "steps": arguments.train_steps,
        "seeds": len(scores),
        "pairs": name,
        "BLEU": means["bleu"],
        "lowest": round(min(values["bleu"]), 2),
        "highest": round(max(values["bleu"]), 2),
        "lower-cased": means["bleu_lowercase"],
        "chrF": means["chrf"],
    }


if __name__ == "__main__":
    main()
