"""Speed of translating real text with a trained model.

    python benchmarks/real_text.py --workdir=DIR --text=FILE
        [--previous=CHECKOUT] [--ctranslate2=EXPORT] [--exports EXPORT ...]
        [--only NAME ...] [--rounds=3] [--length_penalty=ALPHA]
        [--as_ctranslate2]

Each system is a process of its own; the systems take turns, round by round.
A process translates the whole file twice, so that every shape is traced or
compiled, and is then timed at the third time. --previous is a checkout of
another version of this package, --ctranslate2 an export of the same work
directory (`savedmodel.export --format=ctranslate2`), which is measured with one
worker and with as many as there are cores, one thread each; --exports are other
exports, which run as in `savedmodel/reload.py`, 32 lines at once with the beam
that they were exported for. --only chooses systems by the beginnings of their
names. --length_penalty is for all but the exports, instead of the work
directory's. This package's beam search goes on until no hypothesis can win,
CTranslate2's until as many have ended as are kept; with --as_ctranslate2 this
package ends it so, too, and divides by the same penalty. Prints a JSON line for
each measurement and a table of medians in lines a second; a system whose
translations differ from the first system's is named with the number of lines.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

from processes import ROOT, measure_apart

CORES = len(os.sched_getaffinity(0))


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child))))
        return
    found = {}
    systems = chosen(systems_of(arguments), arguments.only)
    for _ in range(arguments.rounds):
        for system in systems:
            for beam_size in arguments.beams:
                case = {
                    **system,
                    "beam_size": beam_size,
                    "workdir": str(arguments.workdir.resolve()),
                    "text": str(arguments.text.resolve()),
                    "single": arguments.single,
                    "limit": arguments.limit,
                    "search": search_of(arguments),
                }
                result = measure_apart(__file__, case, environment_of(case))
                found.setdefault((case["name"], beam_size), []).append(result)
                first = found[systems[0]["name"], beam_size][0]["lines"]
                line = {"kind": "real_text", "name": case["name"]} | result
                line["others"] = count_others(first, line.pop("lines"))
                print(json.dumps(line), flush=True)
    print(table(found, arguments.beams))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--previous", type=pathlib.Path)
    parser.add_argument("--ctranslate2", type=pathlib.Path)
    parser.add_argument("--exports", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--limit", type=int, help="lines (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--single", action="store_true", help="one line at a time"
    )
    parser.add_argument(
        "--xla", action="store_true", help="measure with XLA, too"
    )
    parser.add_argument("--length_penalty", type=float)
    parser.add_argument("--as_ctranslate2", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def systems_of(arguments):
    """The systems to measure: name, checkout, and options."""
    workers = 1 if arguments.single else CORES
    systems = []
    for name, checkout in (
        ("this version", ROOT),
        ("previous version", arguments.previous),
    ):
        if checkout is None:
            continue
        for jit_compile in (False, True) if arguments.xla else (False,):
            compiled = ", XLA" if jit_compile else ""
            for number in sorted({1, workers if checkout is ROOT else 1}):
                systems.append(
                    {
                        "name": f"{name}{compiled}, {number} worker(s)",
                        "checkout": str(checkout.resolve()),
                        "options": {"jit_compile": jit_compile}
                        | ({"num_threads": number} if checkout is ROOT else {}),
                    }
                )
    if arguments.ctranslate2:
        for number in sorted({1, workers}):
            systems.append(
                {
                    "name": f"CTranslate2, {number} worker(s)",
                    "checkout": str(ROOT),
                    "ctranslate2": str(arguments.ctranslate2.resolve()),
                    "workers": number,
                }
            )
    for path in arguments.exports:
        systems.append(
            {
                "name": f"export {path.name}",
                "checkout": str(ROOT),
                "export": str(path.resolve()),
            }
        )
    return systems


def search_of(arguments):
    """Fields of `DecodingConfig` instead of those of the work directory."""
    fields = {}
    if arguments.length_penalty is not None:
        fields["length_penalty"] = arguments.length_penalty
    if arguments.as_ctranslate2:
        # Of a position's W best continuations those with EOS have ended, and
        # W of them end the search, as with fairseq.
        fields |= {"stopping": "fairseq", "length_normalization": "power"}
    return fields


def chosen(systems, beginnings):
    """Those whose names begin so."""
    return [
        system
        for system in systems
        if system["name"].startswith(tuple(beginnings))
    ]


def environment_of(case):
    """Variables for the process of a case: threads are as in the commands."""
    paths = [case["checkout"], str(ROOT / "benchmarks/peers")]
    environment = {"PYTHONPATH": ":".join(paths), "CUDA_VISIBLE_DEVICES": ""}
    if case.get("options") and not case["options"]["jit_compile"]:
        environment["TF_NUM_INTRAOP_THREADS"] = "1"
    return environment


def measure(case):
    """Lines a second, CPU seconds, and the translations."""
    text = pathlib.Path(case["text"]).read_text(encoding="utf-8").splitlines()
    text = text[: case["limit"]]
    if "ctranslate2" in case:
        translate = make_ctranslate2(case)
    elif "export" in case:
        translate = make_export(case)
    else:
        translate = make_translator(case)

    def run():
        if case["single"]:
            return [line for one in text for line in translate([one])]
        return translate(text)

    run()
    run()
    started, cpu = time.perf_counter(), time.process_time()
    lines = run()
    seconds = time.perf_counter() - started
    return {
        "beam_size": case["beam_size"],
        "lines_per_second": len(text) / seconds,
        "cpu_seconds": time.process_time() - cpu,
        "lines": lines,
    }


def make_translator(case):
    """A function that translates lines with this package."""
    from keras_transformer.translator import Translator

    translator = Translator.load(case["workdir"], **case["options"])
    translator = translator.with_decoding(
        beam_size=case["beam_size"], **case["search"]
    )
    return translator.translate


def make_ctranslate2(case):
    """The same with CTranslate2."""
    from translate_ctranslate2 import make_translate

    from keras_transformer.translator import Translator

    translator = Translator.load(case["workdir"]).with_decoding(
        **case["search"]
    )
    return make_translate(
        case["ctranslate2"],
        case["workers"],
        "float32",
        beam_size=case["beam_size"],
        length_penalty=translator.decoding.length_penalty,
    )


def make_export(case):
    """The same with an export, by `savedmodel/reload.py`."""
    from savedmodel import reload

    folder = reload.find_export(case["export"])
    description = json.loads((folder / reload.DESCRIPTION).read_text())
    translate = reload.LOADERS[description["format"]](folder, description)

    def texts(lines):
        return [
            found["text"] for found in reload.translate_all(translate, lines)
        ]

    return texts


def count_others(first, lines):
    """How many lines are other translations than the first system's."""
    return sum(one != two for one, two in zip(first, lines, strict=True))


def table(found, beams):
    """Medians as a table; the ratio is to the first system's."""
    names = list(dict.fromkeys(name for name, _ in found))

    def median(name, beam_size):
        return statistics.median(
            result["lines_per_second"] for result in found[name, beam_size]
        )

    titles = [f"beam {beam}, lines/s | ratio | others" for beam in beams]
    lines = [
        f"| system | {' | '.join(titles)} |",
        "|---" * (1 + 3 * len(beams)) + "|",
    ]
    for name in names:
        columns = []
        for beam in beams:
            speed = median(name, beam)
            others = count_others(
                found[names[0], beam][0]["lines"],
                found[name, beam][0]["lines"],
            )
            columns.append(
                f"{speed:.1f} | {speed / median(names[0], beam):.2f} | {others}"
            )
        lines.append(f"| {name} | {' | '.join(columns)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
