"""Draws README's learning curve from `results/multi30k_ende.json`.

    python benchmarks/learning_curve.py

Reads its tables (validation BLEU by minute, test BLEU by minute) and writes
`docs/learning_curve.svg`. The colors are legible on white and on black, since
the picture has no background of its own. Needs the extra `figures`.
"""

import pathlib

import matplotlib
import results

from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.plots import Series, draw_series, make_axes
from keras_transformer.figures.saving import STYLE, transparent_svg

ROOT = pathlib.Path(__file__).parents[1]
NAME = "multi30k_ende"
PICTURE = ROOT / "docs/learning_curve.svg"
PUBLISHED = 41.02  # Wu et al. 2021, the same data and test set
MAX_MINUTES, MAX_BLEU = 32, 45


@matplotlib.rc_context(STYLE)
def draw(tables):
    """The picture of the tables of a result."""
    validation = [
        (row["minutes"], row["validation BLEU"]) for row in tables["training"]
    ]
    test = [(row["minutes"], row["BLEU"]) for row in tables["test"]]
    figure, axes = make_axes(720, 360, 56, 16, 52, 20)
    name = "validation, greedy search, weights of that minute"
    draw_series(axes, Series(name, validation, COLORS[0]))
    name = "test_2016_flickr, beam 5, averaged checkpoints"
    draw_series(axes, Series(name, test, COLORS[1], joined=False, marked=True))
    axes.axhline(PUBLISHED, color=results.INK, linestyle="--", linewidth=1)
    published = f"{PUBLISHED}: Wu et al. 2021, test set, another scorer"
    axes.text(0.5, PUBLISHED + 0.7, published)
    axes.set_xlim(0, MAX_MINUTES)
    axes.set_ylim(0, MAX_BLEU)
    axes.set_xlabel("minutes of training on two idle CPU cores")
    axes.set_ylabel("BLEU")
    axes.grid(axis="y")
    axes.legend(loc="lower right")
    return transparent_svg(figure, results.INK)


def main():
    results.write(PICTURE, draw(results.read(NAME)["tables"]))
    print(PICTURE)


if __name__ == "__main__":
    main()
