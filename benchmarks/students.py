"""BLEU against speed: a teacher and its students, greedy and with beam 4.

    make peers
    python benchmarks/students.py --data=DATA --folder=FOLDER
        --models teacher=FOLDER/teacher "6 + 1 layers=FOLDER/student" [--record]

A model is a name, and the beginning of its work directories' names, as
`seeds.py` makes them (`_SEED` is added). Every model translates
test_2016_flickr, all lines at once, in float32 and bfloat16, and CTranslate2
does so with its export, in float32 and int8. Each is a process of its own, in
turn, seed after seed. BLEU is the mean over the seeds, lines/s the median. An
interrupted run continues where it ended. --record writes the table to
benchmarks/results, and draws docs/students.svg.
"""

import argparse
import json
import pathlib
import statistics

import compare
import matplotlib
import results
import sacrebleu
from compare_rows import TEST_SET, translators
from plots import Series, draw_series, make_axes, transparent_svg

from keras_transformer.figures.colors import COLORS
from keras_transformer.figures.saving import STYLE

NAME, TITLE = "students", "Teacher and students: BLEU and lines/s"
PICTURE = results.ROOT / "docs/students.svg"
ROW = 20  # height of a line of the legend, in points
BEAMS = 1, 4
SYSTEMS = (
    "this package",
    "this package, bfloat16",
    "CTranslate2",
    "CTranslate2 int8",
)


def main():
    arguments = parse_arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    compare.make_data(arguments.folder / "data", arguments.data)
    path = arguments.folder / "students.jsonl"
    rows = table_of(measure(arguments, path), arguments)
    print(results.markdown(rows))
    if arguments.record:
        results.record(NAME, TITLE, {"models": rows})
        results.write(PICTURE, draw(rows))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    path = pathlib.Path
    parser.add_argument("--data", type=path, required=True, help="Multi30k")
    parser.add_argument("--folder", type=path, required=True)
    parser.add_argument(
        "--models",
        nargs="+",
        required=True,
        type=lambda text: tuple(text.split("=", 1)),
        help="NAME=PATH, the teacher first",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    results.add_flag(parser)
    return parser.parse_args()


def measure(arguments, path):
    """Returns each (model, beam, system)'s BLEU and lines/s, for each seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {tuple(key): value for key, value in map(json.loads, lines)}
    found = {}
    with open(path, "a", encoding="utf-8") as file:
        for seed in arguments.seeds:
            for name, prefix in arguments.models:
                workdir = f"{prefix}_{seed}"
                export = arguments.folder / f"{name}_{seed}"
                compare.make_export(export, workdir)
                systems = translators(workdir, export)
                for beam in BEAMS:
                    for system in SYSTEMS:
                        key = seed, name, beam, system
                        if key not in known:
                            compare.log(f"{key}")
                            known[key] = translate(
                                systems[system], beam, arguments.folder
                            )
                            file.write(json.dumps([key, known[key]]) + "\n")
                            file.flush()
                        found.setdefault(key[1:], []).append(known[key])
    return found


def translate(system, beam, folder):
    """Runs a system. Returns its BLEU and lines/s."""
    text, output = folder / "data" / TEST_SET, folder / "translations"
    line = compare.run(
        [
            str(compare.python_of(system)),
            str(compare.SCRIPTS / f"{system.script}.py"),
            *system.options,
            f"--text={text}.en",
            f"--beam_size={beam}",
            f"--output={output}",
        ]
    )
    if "error" in line:
        raise SystemExit(line["error"])
    outputs, references = (
        pathlib.Path(path).read_text(encoding="utf-8").split("\n")[:-1]
        for path in (output, f"{text}.de")
    )
    bleu = sacrebleu.corpus_bleu(outputs, [references]).score
    return bleu, line["line"]["lines_per_second"]


def table_of(found, arguments):
    """Makes the rows, with speeds also relative to the teacher with beam 4."""
    teacher = found[arguments.models[0][0], max(BEAMS), SYSTEMS[0]]
    rows = []
    for (name, beam, system), pairs in found.items():
        bleu, speeds = zip(*pairs, strict=True)
        ratios = [
            speed / other
            for speed, (_, other) in zip(speeds, teacher, strict=True)
        ]
        rows.append(
            {
                "model": name,
                "search": "greedy" if beam == 1 else f"beam {beam}",
                "system": system,
                "BLEU": round(statistics.mean(bleu), 2),
                "lowest": round(min(bleu), 2),
                "highest": round(max(bleu), 2),
                "lines/s": round(statistics.median(speeds)),
                "by teacher": round(statistics.median(ratios), 2),
            }
        )
    return rows


@matplotlib.rc_context(STYLE)
def draw(rows):
    """Draws BLEU over lines/s, a line from beam 4 to greedy for each model."""
    points = {}
    for row in rows:
        key = row["model"], row["system"]
        points.setdefault(key, []).append((row["lines/s"], row["BLEU"]))
    names = list(dict.fromkeys(name for name, _ in points))
    top = ROW * len(points) + 12
    figure, axes = make_axes(390, 250 + top, 70, 30, 48, top)
    for (name, system), pairs in points.items():
        series = Series(
            f"{name}, {system}",
            pairs,
            color=COLORS[names.index(name)],
            dashed=system in SYSTEMS[2:],
            opacity=1 if system in SYSTEMS[::2] else 0.5,
            marked=True,
        )
        draw_series(axes, series)
    axes.set(xlabel="lines/s, test_2016_flickr, two cores", ylabel="BLEU")
    axes.set_xlim(0)
    axes.grid(axis="y")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.3,
    )
    return transparent_svg(figure, results.INK)


if __name__ == "__main__":
    main()
