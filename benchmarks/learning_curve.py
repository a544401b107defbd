"""Draws README's learning curve from `results/multi30k_ende.json`.

    python benchmarks/learning_curve.py

Reads its tables (validation BLEU by minute, test BLEU by minute) and writes
`docs/learning_curve.svg`. The colors are legible on white and on black, since
the picture has no background of its own. Needs nothing but Python.
"""

import pathlib

import results

ROOT = pathlib.Path(__file__).parents[1]
NAME = "multi30k_ende"
PICTURE = ROOT / "docs/learning_curve.svg"
PUBLISHED = 41.02  # Wu et al. 2021, the same data and test set

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 20, 52  # margins
MAX_MINUTES, MAX_BLEU = 32, 45
LEGEND = 12  # minutes, where its lines begin
INK, CURVE, TEST = "#767d86", "#3987e5", "#e07b39"
FAINT = ' stroke-opacity="0.3"'


def x_of(minutes):
    """Minutes -> pixels from the left."""
    return LEFT + minutes / MAX_MINUTES * (WIDTH - LEFT - RIGHT)


def y_of(bleu):
    """BLEU -> pixels from the top."""
    return HEIGHT - BOTTOM - bleu / MAX_BLEU * (HEIGHT - TOP - BOTTOM)


def line(x1, y1, x2, y2, color, more=""):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="{color}"{more}/>'
    )


def text(x, y, words, anchor="middle", color=INK, more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' fill="{color}"{more}>{words}</text>'
    )


def draw(validation, test):
    """The picture as SVG.

    Args:
        validation: Points `(minutes, BLEU)` of the greedy validations.
        test: The same of the test set with the averaged model.
    """
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for bleu in range(0, MAX_BLEU, 10):
        parts.append(line(LEFT, y_of(bleu), right, y_of(bleu), INK, FAINT))
        parts.append(text(LEFT - 8, y_of(bleu) + 4, bleu, "end"))
    for minutes in range(0, MAX_MINUTES, 5):
        parts.append(text(x_of(minutes), bottom + 18, minutes))
    middle = (LEFT + right) / 2
    label = "minutes of training on two idle CPU cores"
    parts.append(text(middle, HEIGHT - 12, label))
    turned = f' transform="rotate(-90 18 {HEIGHT / 2})"'
    parts.append(text(18, HEIGHT / 2, "BLEU", more=turned))
    y = y_of(PUBLISHED)
    parts.append(line(LEFT, y, right, y, INK, ' stroke-dasharray="5 4"'))
    published = f"{PUBLISHED}: Wu et al. 2021, test set, another scorer"
    parts.append(text(LEFT + 8, y - 6, published, "start"))
    points = " ".join(f"{x_of(m):.1f},{y_of(b):.1f}" for m, b in validation)
    parts.append(
        f'<polyline points="{points}" fill="none" stroke="{CURVE}"'
        ' stroke-width="2.5" stroke-linejoin="round"/>'
    )
    for minutes, bleu in test:
        parts.append(
            f'<circle cx="{x_of(minutes):.1f}" cy="{y_of(bleu):.1f}" r="5"'
            f' fill="{TEST}"/>'
        )
    for y, color, words in (
        (y_of(12), CURVE, "validation, greedy search, weights of that minute"),
        (y_of(7), TEST, "test_2016_flickr, beam 5, averaged checkpoints"),
    ):
        parts.append(
            f'<rect x="{x_of(LEGEND):.1f}" y="{y - 8:.1f}" width="22"'
            f' height="5" fill="{color}"/>'
        )
        parts.append(text(x_of(LEGEND) + 32, y - 1, words, "start"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
        f' {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif"'
        f' font-size="13" role="img" aria-label="BLEU by minute of'
        f' training">\n{body}\n</svg>\n'
    )


def picture_of(tables):
    """The picture of the tables of a result."""
    return draw(
        [
            (row["minutes"], row["validation BLEU"])
            for row in tables["training"]
        ],
        [(row["minutes"], row["BLEU"]) for row in tables["test"]],
    )


def main():
    picture = picture_of(results.read(NAME)["tables"])
    results.write(PICTURE, picture)
    print(PICTURE)


if __name__ == "__main__":
    main()
