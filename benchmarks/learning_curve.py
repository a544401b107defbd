"""README's learning curve: the validations of a training with several seeds.

    python benchmarks/learning_curve.py [--workdirs DIR DIR ... --record]

With --record it reads the validations that the trainings in --workdirs wrote
for TensorBoard, and writes `results/multi30k_ende.json`. It always draws
`docs/learning_curve.svg` from that file and from the rows of `SETTING` in
`results/seeds.json`, which `seeds.py` wrote for the same trainings. The colors
are legible on white and on black, since the picture has no background of its
own. Needs the extra `figures`.
"""

import argparse
import pathlib
import statistics

import matplotlib
import results
from plots import Series, draw_series, make_axes, transparent_svg

from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.saving import STYLE

NAME, TITLE = "multi30k_ende", "Multi30k En-De: validations of the recipe"
PICTURE = results.ROOT / "docs/learning_curve.svg"
SETTING, TEST_SET = "the recipe", "test_2016_flickr"
PUBLISHED = 41.02  # Wu et al. 2021, the same data and test set
MAX_BLEU = 45


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdirs", nargs="+", type=pathlib.Path)
    results.add_flag(parser)
    arguments = parser.parse_args()
    if arguments.record:
        rows = read_validations(arguments.workdirs)
        results.record(NAME, TITLE, {"validation": rows})
    rows = results.read(NAME)["tables"]["validation"]
    results.write(PICTURE, draw(rows, results.read("seeds")["tables"]["runs"]))
    print(PICTURE)


def read_validations(workdirs):
    """Reads a row for each step: BLEU over the trainings."""
    from trainers.run.event_file import read_curves

    curves = [
        read_curves(workdir / "logs")["validation/bleu"] for workdir in workdirs
    ]
    return [
        {
            "step": step,
            "BLEU": round(statistics.mean(c[step] for c in curves), 2),
            "lowest": round(min(c[step] for c in curves), 2),
            "highest": round(max(c[step] for c in curves), 2),
        }
        for step in curves[0]
    ]


@matplotlib.rc_context(STYLE)
def draw(rows, runs):
    """Draws the validations, and the test scores of the last step.

    Args:
        rows: As `read_validations` returns them.
        runs: Rows of `seeds.py`.
    """
    figure, axes = make_axes(720, 360, 56, 16, 52, 20)
    steps = [row["step"] for row in rows]
    points = [(row["step"], row["BLEU"]) for row in rows]
    name = "validation, greedy search, weights of that step"
    draw_series(axes, Series(name, points, COLORS[0]))
    axes.fill_between(
        steps,
        [row["lowest"] for row in rows],
        [row["highest"] for row in rows],
        color=COLORS[0],
        alpha=0.3,
        linewidth=0,
    )
    key = SETTING, steps[-1], TEST_SET
    [test] = [r for r in runs if (r["setting"], r["steps"], r["pairs"]) == key]
    name = f"{TEST_SET}, beam 5, averaged checkpoints"
    points = [(steps[-1], test["BLEU"])]
    draw_series(axes, Series(name, points, COLORS[1], joined=False))
    axes.vlines(steps[-1], test["lowest"], test["highest"], color=COLORS[1])
    axes.axhline(PUBLISHED, color=results.INK, linestyle="--", linewidth=1)
    measure = "test set, lower-cased and tokenized"
    published = f"{PUBLISHED}: Wu et al. 2021, {measure}"
    axes.text(steps[-1] / 60, PUBLISHED + 0.7, published)
    axes.set_xlim(0, steps[-1] * 1.06)
    axes.set_ylim(0, MAX_BLEU)
    axes.set_xlabel("training steps; mean and range over seeds")
    axes.set_ylabel("BLEU")
    axes.grid(axis="y")
    axes.legend(loc="lower right")
    return transparent_svg(figure, results.INK)


if __name__ == "__main__":
    main()
