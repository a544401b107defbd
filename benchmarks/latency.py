"""Latency of models of real sizes: one line at a time, by every engine.

    python benchmarks/latency.py --folder=FOLDER [--lines=30] [--small]

The models have the size of `base` and of OPUS-MT (d_model 512, 6 + 6 layers)
with two vocabularies, and random weights. Their outputs do not end before the
limit, so every engine makes as many tokens as the source has. Each engine runs
in a process of its own with all cores, after two lines that are not measured.
The script measures the median milliseconds of a line, and the seconds from the
start of the process to the first translation. FOLDER keeps the models. --small
only tests the script. Engines that are not installed are skipped.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import time

STARTED = time.perf_counter()  # before the imports, which are measured

import numpy as np  # noqa: E402
from processes import measure_apart  # noqa: E402
from results import add_flag, markdown, record  # noqa: E402

VOCABULARIES = (32_000, 58_000)
SMALL = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_layers": 1}
TOKENS = 20  # in a source, without EOS, and in an output
BEAMS = {"greedy": 1, "beam 4": 4}
# Options of `Translator.load`, and the backend.
ENGINES = {
    "this package": ({}, "tensorflow"),
    "this package, XLA": ({"jit_compile": True}, "tensorflow"),
    "this package, JAX": ({}, "jax"),
    "CTranslate2": ({"engine": "ctranslate2"}, "tensorflow"),
    "CTranslate2 int8": (
        {"engine": "ctranslate2", "compute_type": "int8"},
        "tensorflow",
    ),
}


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child.pop("do")](arguments.child)))
        return
    rows = []
    for vocabulary in (300,) if arguments.small else VOCABULARIES:
        workdir = arguments.folder.resolve() / f"latency_{vocabulary}"
        model = {"vocab_size": vocabulary, **(SMALL if arguments.small else {})}
        if not (workdir / "config.json").exists():
            run("make", {"workdir": str(workdir), "model": model})
            if importlib.util.find_spec("ctranslate2"):  # the export
                options, _ = ENGINES["CTranslate2"]
                case = {"workdir": str(workdir), "options": options}
                run("measure", {**case, "beam_size": 1, "lines": 1})
        for search, beam_size in BEAMS.items():
            row = {"vocabulary": vocabulary, "search": search}
            first = {}
            for name, (options, backend) in ENGINES.items():
                package = options.get("engine", backend)
                if importlib.util.find_spec(package) is None:
                    continue
                case = {"workdir": str(workdir), "options": options}
                case |= {"beam_size": beam_size, "lines": arguments.lines}
                found = run("measure", case, {"KERAS_BACKEND": backend})
                row[f"{name}, ms"] = round(found["milliseconds"], 1)
                first[f"{name}, first line, s"] = round(found["first"], 1)
            rows.append(row | first)
            print(rows[-1], flush=True)
    print(markdown(rows))
    if arguments.record:
        record(
            "latency", "Latency of real sizes, one line at a time", {"": rows}
        )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--lines", type=int, default=30)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    add_flag(parser)
    return parser.parse_args()


def run(what, case, variables=None):
    """Runs a case in a process of its own, and returns its output."""
    environment = {"CUDA_VISIBLE_DEVICES": "", **(variables or {})}
    return measure_apart(__file__, {"do": what, **case}, environment)


def make(case):
    """Writes a work directory with a random model, whose words are tokens."""
    import keras_transformer as kt
    from keras_transformer.storage.checkpoints import named_weights
    from keras_transformer.storage.workdir import WorkDirectory
    from trainers.run.data_config import DataConfig

    config = kt.preset("base", **case["model"])
    characters = len("w0123456789▁") + 4
    tokenizer = kt.Tokenizer.train(
        ["w0123456789"],
        config.vocab_size,
        symbols=words(config.vocab_size - characters),
    )
    workdir = WorkDirectory(case["workdir"])
    workdir.path.mkdir(parents=True)
    workdir.save_tokenizer(tokenizer)
    weights = {"weights": named_weights(kt.Transformer(config))}
    workdir.averaged.save(weights, step=1, keep=1)
    workdir.write_config(
        model=config,
        data=DataConfig(max_length=64),
        decoding=kt.DecodingConfig(),
    )
    return {}


def words(number):
    return [f"w{i}" for i in range(number)]


def measure(case):
    """Returns the seconds to the first line, and milliseconds per line."""
    from keras_transformer.commands.startup import load, prepare_search
    from keras_transformer.config import DecodingConfig

    options = case["options"]
    prepare_search(options.get("jit_compile", False))
    translators = "keras_transformer.translator"
    if "engine" in options:
        translators = importlib.import_module(translators)
    else:
        translators = load(translators)
    decoding = DecodingConfig(
        beam_size=case["beam_size"],
        stopping="fairseq",
        max_output_length=TOKENS,
    )
    translator = translators.Translator.load(
        case["workdir"], decoding, **options, num_threads=1
    )
    generator = np.random.default_rng(1)
    known = words(translator.tokenizer.vocab_size // 2)
    lines = [
        " ".join(generator.choice(known, TOKENS))
        for _ in range(case["lines"] + 2)
    ]
    times = []
    for line in lines:
        begin = time.perf_counter()
        translator.translate([line])
        times.append(time.perf_counter() - begin)
        if len(times) == 1:
            first = time.perf_counter() - STARTED
    return {
        "first": first,
        "milliseconds": 1000 * statistics.median(times[2:]),
    }


CHILDREN = {"make": make, "measure": measure}

if __name__ == "__main__":
    main()
