"""Training speed of a recipe, through the trainer itself.

    python benchmarks/recipe_throughput.py --data=DIR --recipe=multi30k_ende

Runs `python -m trainers.wmt` on the recipe for some steps, in a temporary work
directory, and prints a JSON line. The rate is the median of the reports of 50
steps after --skip of them, in which TensorFlow traces and XLA compiles. The
trainer reports source and target tokens; their share of target tokens in an
epoch converts it to a rate of target tokens, which the scripts of
benchmarks/peers count.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
REPORT = 50  # steps


def main():
    arguments = parse_arguments()
    text = train(arguments)
    rates = rates_of(text)[arguments.skip :]
    line = {
        "recipe": arguments.recipe,
        "jit_compile": arguments.jit_compile,
        "steps": REPORT * len(rates),
        "target_tokens_per_second": (
            statistics.median(rates) * target_share(text)
        ),
    }
    print(json.dumps(line))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", required=True, help="folder with train.en, train.de"
    )
    parser.add_argument("--recipe", default="multi30k_ende")
    parser.add_argument("--jit_compile", action="store_true")
    parser.add_argument("--reports", type=int, default=12, help="of 50 steps")
    parser.add_argument("--skip", type=int, default=6, help="reports to skip")
    return parser.parse_args()


def train(arguments):
    """Output of the trainer."""
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.run(
            [
                sys.executable,
                "-m",
                "trainers.wmt",
                f"--flagfile=trainers/configs/{arguments.recipe}.flags",
                f"--train_files={arguments.data}/train",
                f"--workdir={directory}/run",
                f"--log_steps={REPORT}",
                f"--train_steps={REPORT * arguments.reports}",
                f"--warmup_steps={REPORT}",  # fewer than steps
                "--train_minutes=0",
                "--valid_steps=1000000",
                "--checkpoint_steps=1000000",
                f"--{'' if arguments.jit_compile else 'no'}jit_compile",
            ],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
    if process.returncode:
        raise SystemExit(process.stderr[-2000:])
    return process.stdout


def rates_of(text):
    """Source and target tokens per second of each report of the trainer.

    >>> rates_of("step 50 | loss 9.1 | 18700 source+target tokens/s | 9 s")
    [18700.0]
    """
    return [
        float(rate)
        for rate in re.findall(r"\| (\S+) source\+target tokens/s", text)
    ]


def target_share(text):
    """Target tokens as a share of all, by the trainer's budget.

    >>> target_share("  a step: 300 source and 1,700 target tokens on average")
    0.85
    """
    found = re.search(r"a step: (\S+) source and (\S+) target tokens", text)
    source, target = (float(n.replace(",", "")) for n in found.groups())
    return target / (source + target)


if __name__ == "__main__":
    main()
