"""The package's models: quality, exports, speed, adaptation.

    python benchmarks/box.py quality --texts=DIR --folder=DIR [--most=N]
    python benchmarks/box.py exports --texts=DIR --folder=DIR [--most=N]
    python benchmarks/box.py speed --texts=DIR --folder=DIR
    python benchmarks/box.py adaptation --texts=DIR --folder=DIR
    python benchmarks/box.py page    # writes the tables into docs/results

With --record, each replaces its result. TEXTS is what
examples/software_texts/collect.py wrote. FOLDER keeps what was made there, and
the same command continues; delete it for other models. --most is the number of
sentences: every second, every third, and so on of a larger set.

- quality: BLEU, chrF and exact translations on each test set, beside a
  translation memory: the translation of the same source in training, else of
  the source that shares most words with it (Dice). FOLDER/scores has the output
  of `kt-evaluate`, which examples/software_texts/card.py reads.
- exports: the answers of every export beside the translator's.
- speed: seconds of loading, and CPU seconds of an answer, a sentence at a time.
- adaptation: `HELD_OUT` in German, before and after training on some of it.
"""

import argparse
import collections
import json
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

import processes
import results
import sacrebleu

from keras_transformer.storage import box
from keras_transformer.storage.workdir import WorkDirectory
from savedmodel import verify
from savedmodel.formats import FORMATS

PAGE = results.ROOT / "docs/results/software_texts.md"
COMMON = 2000  # a word in more sources than this finds no candidates
HELD_OUT = "test-gimp-help"  # no text of this program is in training
ADAPTED = 2000  # pairs to train on, and as many to test
ADAPTER = ["--lora_rank=16", "--learning_rate=0.002"]
ADAPTER += ["--lora_targets=query,key,value,output,inner,outer"]
ALL = ["--learning_rate=0.0003"]
OLD = "all weights, as many old pairs"
WAYS = {"adapters": ADAPTER, "all weights": ALL, OLD: ALL}
ANSWERS = 100  # sentences of `speed`


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    measured = [measure_quality, measure_exports, measure_speed, adapt]
    commands = dict(
        zip("quality exports speed adaptation".split(), measured, strict=True)
    )
    parser.add_argument("command", choices=[*commands, "page"], nargs="?")
    parser.add_argument("--texts", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    results.add_flag(parser)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(answer_alone(**json.loads(options.child))))
    elif options.command == "page":
        results.fill(PAGE)
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        tables = commands[options.command](options)
        for heading, rows in tables.items():
            print(f"{heading}\n\n{results.markdown(rows)}")
        if options.record:
            title = f"The package's models: {options.command}"
            results.record(f"box_{options.command}", title, tables)


def models():
    """Yields name, path and languages of each of the package's models."""
    for path in map(pathlib.Path, box.find()):
        yield path.name, path, WorkDirectory(path).read_languages()


def run(module, *argv):
    """Runs a command of this package. Returns the process."""
    command = [sys.executable, "-m", module, *map(str, argv)]
    print(*command, file=sys.stderr, flush=True)
    return subprocess.run(
        command, cwd=results.ROOT, capture_output=True, text=True
    )


def succeed(*words):
    """Runs a command. Returns its output."""
    process = run(*words)
    if process.returncode:
        raise SystemExit(process.stderr[-2000:])
    return process.stdout


def read_lines(path):
    return path.read_text("utf-8").split("\n")[:-1]


def read_pairs(texts, name, source, target):
    """Reads the pairs of a set in a direction; none if there are no files."""
    other = source if target == "en" else target
    paths = [texts / f"{name}.en-{other}.{code}" for code in (source, target)]
    if not all(path.exists() for path in paths):
        return []
    return list(zip(*map(read_lines, paths), strict=True))


def thinned(pairs, most):
    return pairs[:: max(1, -(-len(pairs) // most))]


def write_pairs(prefix, pairs, *languages):
    for code, side in zip(languages, zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in side)
        pathlib.Path(f"{prefix}.{code}").write_text(text, "utf-8")
    return prefix


def scores(outputs, references, prefix=""):
    """Returns BLEU, chrF and the percentage of exact translations."""
    same = sum(a == b for a, b in zip(outputs, references, strict=True))
    return {
        f"{prefix}BLEU": round(
            sacrebleu.corpus_bleu(outputs, [references]).score, 1
        ),
        f"{prefix}chrF": round(
            sacrebleu.corpus_chrf(outputs, [references]).score, 1
        ),
        f"{prefix}exact, %": round(100 * same / len(references), 1),
    }


# Quality


def measure_quality(options):
    sets = {
        path.name.partition(".")[0]
        for path in options.texts.glob("*test-*.en-*")
    }
    found = collections.defaultdict(list)
    for model, path, languages in models():
        translations = {
            name: evaluate(options, name, model, path, languages)
            for name in sorted(sets)
        }
        for source, target in languages.pairs:
            memory = Memory(read_pairs(options.texts, "train", source, target))
            for name, outputs in translations.items():
                if (source, target) not in outputs:
                    continue
                pairs, lines = outputs[source, target]
                sources, references = map(list, zip(*pairs, strict=True))
                kind = "known" if name.startswith("known-") else "test"
                found[f"{kind}, {model}"].append(
                    {
                        "set": name.partition("test-")[2],
                        "direction": f"{source}-{target}",
                        "sentences": len(pairs),
                        **scores(lines, references),
                        **scores(
                            list(map(memory.find, sources)),
                            references,
                            "memory ",
                        ),
                    }
                )
    return {name: sorted(found[name], key=order) for name in sorted(found)}


def order(row):
    return row["set"], row["direction"]


def evaluate(options, name, model, path, languages):
    """Runs `kt-evaluate` on a set, all directions at once.

    Returns the pairs and translations of each direction that has pairs.
    """
    pairs, prefixes = {}, []
    (options.folder / "sets").mkdir(exist_ok=True)
    for direction in languages.pairs:
        rows = read_pairs(options.texts, name, *direction)
        if rows:
            other = max(direction, key=lambda code: code != "en")
            prefix = options.folder / f"sets/{name}.en-{other}"
            pairs[direction] = thinned(rows, options.most)
            prefixes.append(write_pairs(prefix, pairs[direction], *direction))
    folder = options.folder / "scores" / model
    folder.mkdir(parents=True, exist_ok=True)
    # A card has no scores of known sentences.
    ending = "known" if name.startswith("known-") else "json"
    result, output = folder / f"{name}.{ending}", folder / f"{name}.txt"
    if not result.exists():
        argv = [f"--workdir={path}", f"--output={output}"]
        files = ",".join(map(str, prefixes))
        argv += [f"--test_files={files}", "--engine=ctranslate2"]
        result.write_text(succeed("trainers.evaluate", *argv), "utf-8")
    lines = iter(read_lines(output))
    return {
        direction: (rows, [next(lines) for _ in rows])
        for direction, rows in pairs.items()
    }


class Memory:
    """A translation memory: the most similar source has the translation."""

    def __init__(self, pairs):
        self._pairs = pairs
        self._exact = dict(reversed(pairs))
        self._words = [{*words(source)} for source, _ in pairs]
        self._places = collections.defaultdict(list)
        for number, own in enumerate(self._words):
            for word in own:
                self._places[word].append(number)

    def find(self, source):
        """Returns the translation of the most similar source."""
        if source in self._exact:
            return self._exact[source]
        own, shared = {*words(source)}, collections.Counter()
        for word in own:
            places = self._places.get(word, ())
            if len(places) <= COMMON:
                shared.update(places)
        if not shared:
            return ""

        def similarity(number):
            theirs = self._words[number]
            return 2 * len(own & theirs) / (len(own) + len(theirs)), -number

        candidates = [number for number, _ in shared.most_common(100)]
        return self._pairs[max(candidates, key=similarity)][1]


def words(text):
    return re.findall(r"\w+|[^\w\s]", text.lower())


# Exports


def measure_exports(options):
    tables = {}
    for model, path, languages in models():
        rows = held_out(options, languages)
        sources, inputs, references = [], [], []
        for source, target, text, reference in rows:
            tag = languages.tags.get(target)
            inputs.append(
                f"{tag} {text}"
                if tag
                else {
                    "text": text,
                    "source_language": source,
                    "target_language": target,
                }
            )
            sources.append((source, target, text))
            references.append(reference)
        expected = translate(path, languages, sources)
        table = [row_of("translator", expected, expected, references)]
        engine = translate(path, languages, sources, engine="ctranslate2")
        table.append(
            row_of("--engine=ctranslate2", engine, expected, references)
        )
        for format, own in FORMATS.items():
            if own.is_workdir:
                continue
            for precision in own.precisions:
                if precision not in ("float32", "int8"):
                    continue
                name = f"{format}, {precision}"
                output = options.folder / "exports" / model / name
                refusal = ""
                if not output.exists():
                    process = run(
                        "savedmodel.export",
                        *(f"--workdir={path}", f"--output={output}"),
                        *(f"--format={format}", f"--precision={precision}"),
                    )
                    if process.returncode:
                        refusal = process.stderr.strip().splitlines()[-1]
                if refusal:
                    table.append(row_of(name, [], [], [], refusal))
                    continue
                answers = verify.run(output, inputs)["translations"]
                found = [one["text"] for one in answers]
                table.append(row_of(name, found, expected, references))
        tables[model] = table
    return tables


def held_out(options, languages):
    """Returns languages, source and reference of `most` test sentences."""
    rows = []
    names = ("test-impress", "test-home-assistant", "test-vscode")
    for pair in languages.pairs:
        own = [
            row
            for name in names
            for row in read_pairs(options.texts, name, *pair)
        ]
        most = options.most // len(languages.pairs)
        rows += [(*pair, *row) for row in thinned(own, most)]
    return rows


def translate(path, languages, sources, **options):
    """Translates each text in its direction."""
    from keras_transformer.translation.requests import Request
    from keras_transformer.translator import Translator

    return Translator.load(path, **options).translate(
        [
            Request(text, direction=languages.direction(source, target))
            for source, target, text in sources
        ]
    )


def row_of(name, found, expected, references, refusal=""):
    row = {"export": name, "equal, %": None, "BLEU": None, "chrF": None}
    if found:
        measured = scores(found, references)
        equal = scores(found, expected)["exact, %"]
        row |= {"equal, %": equal}
        row |= {name: measured[name] for name in ("BLEU", "chrF")}
    return row | {"refused": refusal}


# Speed


def measure_speed(options):
    rows = []
    for model, path, languages in models():
        sentences = thinned(held_out(options, languages), ANSWERS)
        for engine in ("native", "ctranslate2"):
            case = {"path": str(path), "engine": engine}
            case["sentences"] = [list(row[:3]) for row in sentences]
            processes.measure_apart(__file__, case, {})  # makes its files
            found = processes.measure_apart(__file__, case, {})
            rows.append({"model": model, "engine": engine, **found})
    return {"speed": rows}


def answer_alone(path, engine, sentences):
    """Loads a translator, and translates sentences one by one."""
    begin = time.perf_counter()
    from keras_transformer.translator import Translator

    imported = time.perf_counter()
    translator = Translator.load(path, engine=engine)
    loaded = time.perf_counter()
    seconds = []
    for source, target, text in sentences:
        own = translator.with_languages(source, target)
        before = time.process_time()
        own.translate([text])
        seconds.append(time.process_time() - before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds of import": round(imported - begin, 2),
        "of loading": round(loaded - imported, 2),
        "CPU seconds, first answer": round(seconds[0], 2),
        "median answer": round(statistics.median(seconds[1:]), 3),
        "slowest answer": round(max(seconds[1:]), 3),
        "peak memory, MiB": peak // 1024,
    }


# Adaptation


def adapt(options):
    """Trains the model from English with the first pairs, tests the last."""
    [path] = map(pathlib.Path, box.find("en", "de"))
    pairs = read_pairs(options.texts, HELD_OUT, "en", "de")
    train = pairs[:ADAPTED]
    known = {source for source, _ in train}
    test = [pair for pair in pairs[-ADAPTED:] if pair[0] not in known]
    other = thinned(
        read_pairs(options.texts, "test-impress", "en", "de"), ADAPTED
    )
    old = thinned(read_pairs(options.texts, "train", "en", "de"), ADAPTED)
    rows = []
    for way, flags in {"nothing": None, **WAYS}.items():
        workdir = path
        if flags is not None:
            workdir = options.folder / re.sub(r"\W+", "_", way)
            used = train + old if way == OLD else train
            prefix = write_pairs(f"{workdir}_train", used, "en", "de")
            succeed(
                "trainers.wmt",
                *(f"--init_from={path}", f"--workdir={workdir}"),
                *("--dataset=files", f"--train_files={prefix}"),
                *("--schedule=constant", "--warmup_steps=20", *flags),
                *("--batch_tokens=1024", "--num_buckets=8"),
                *("--train_steps=300", "--checkpoint_steps=100"),
                *("--average_last=1", "--precision=mixed_bfloat16"),
            )
        row = {"trained": way, "pairs": len(train), "tested": len(test)}
        for name, rows_of_set in (("", test), ("other ", other)):
            english, german = map(list, zip(*rows_of_set, strict=True))
            sources = [("en", "de", text) for text in english]
            languages = WorkDirectory(workdir).read_languages()
            found = translate(workdir, languages, sources)
            row |= scores(found, german, name)
        rows.append(row)
    return {"adaptation": rows}


if __name__ == "__main__":
    main()
