"""Multi30k as Wu et al. 2021 measure it, ensembles, and reranking.

    python benchmarks/anchor.py prepare --data=DATA --output=OUTPUT
        [--target=fr]
    python benchmarks/anchor.py ensembles --data=DATA --folder=FOLDER
        --draws A,B,C D,E,F G,H,I
    python benchmarks/anchor.py reranking --data=DATA --folder=FOLDER
        --draws A,B,C D,E,F G,H,I --reverse R,S

DATA has Multi30k: train, val and TESTS. Wu et al. (arXiv 2105.14462) train on
lower-cased tokens of Moses and report BLEU of these tokens. `prepare` writes
such files, for `seeds.py --data`. The other commands compute BLEU both ways:
`tokens` is theirs, of translations and references that are prepared like their
files.

- ensembles: every model of the draws alone, and the ensemble of each draw.
- reranking: the NUMBER best translations of each ensemble in the order of
  log p(y|x) + a log p(x|y) + b |y|, with the models R,S for p(x|y). The
  validation pairs choose a and b.

FOLDER keeps translations and scores, and the same command continues. --record
replaces the result.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

import numpy as np
import results
import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer

VALID = "val"
TESTS = "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"
NUMBER = 20
REVERSE = np.arange(0, 2.1, 0.1)  # values of a
LENGTH = np.arange(0, 3.1, 0.25)  # values of b


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = {"ensembles": measure_ensembles, "reranking": rerank}
    parser.add_argument("command", choices=["prepare", *commands])
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--target", default="de", help="language")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--draws", nargs="+", help="work directories, A,B,C")
    parser.add_argument("--reverse", help="work directories, R,S")
    results.add_flag(parser)
    options = parser.parse_args()
    if options.command == "prepare":
        write_prepared(options)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    tables = commands[options.command](options)
    for heading, rows in tables.items():
        print(f"{heading}\n\n{results.markdown(rows)}")
    if options.record:
        title = f"Multi30k English-German: {options.command}"
        results.record(options.command, title, tables)


# The text


def read(data, name, language):
    """Reads the lines of one side of a set; none if there is no such file."""
    path = data / f"{name}.{language}"
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode().split("\n")[:-1]
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def prepared(lines, language):
    """Prepares lines as Multi30k's task1-tokenize.sh: lower case, tokens.

    >>> prepared(["Ein Mann, der etwas anstarrt.", "Ein T-Shirt."], "de")
    ['ein mann , der etwas anstarrt .', 'ein t-shirt .']
    """
    normalizer = MosesPunctNormalizer(language)
    tokenizer = MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True)
        for line in lines
    ]


def write_prepared(options):
    options.output.mkdir(parents=True, exist_ok=True)
    for name in ("train", VALID, *TESTS):
        for language in ("en", options.target):
            lines = prepared(read(options.data, name, language), language)
            if lines:
                text = "".join(f"{line}\n" for line in lines)
                results.write(options.output / f"{name}.{language}", text)


def bleu(outputs, references, language):
    """Computes BLEU, cased 13a and of prepared tokens (multi-bleu.perl)."""
    tokens = [prepared(lines, language) for lines in (outputs, references)]
    plain = {"tokenize": "none", "smooth_method": "none", "force": True}
    return {
        "BLEU": sacrebleu.corpus_bleu(outputs, [references]).score,
        "tokens": sacrebleu.corpus_bleu(tokens[0], [tokens[1]], **plain).score,
    }


def sets_of(options):
    """Returns {name: (sources, references)} of the sets that exist."""
    found = {
        name: [read(options.data, name, code) for code in ("en", "de")]
        for name in (VALID, *TESTS)
    }
    return {name: sides for name, sides in found.items() if all(sides)}


def means(scores):
    """Makes columns of mean, lowest and highest of several scores."""
    row = {}
    for key in scores[0]:
        values = [one[key] for one in scores]
        row[key] = round(statistics.mean(values), 2)
        row[f"{key}, range"] = f"{min(values):.2f} to {max(values):.2f}"
    return row


# Ensembles


def measure_ensembles(options):
    singles = [one for draw in options.draws for one in draw.split(",")]
    kinds = {"single models": singles, "ensembles": options.draws}
    rows = []
    for name, (_, references) in sets_of(options).items():
        for kind, members in kinds.items():
            scores = [
                bleu(translate(options, one, name), references, "de")
                for one in members
            ]
            row = {"pairs": name, "models": kind, "number": len(members)}
            rows.append(row | means(scores))
    return {"ensembles": rows}


def translate(options, workdirs, name):
    """Translates a set by `kt-evaluate`. Returns the translations."""
    names = "+".join(pathlib.Path(one).name for one in workdirs.split(","))
    output = options.folder / f"{names}.{name}.txt"
    if not output.exists():
        words = [sys.executable, "-m", "trainers.evaluate"]
        words += [f"--workdir={workdirs}", f"--output={output}"]
        words += [f"--test_files={options.data / name}"]
        print(*words, file=sys.stderr, flush=True)
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    return output.read_text("utf-8").split("\n")[:-1]


# Reranking


def rerank(options):
    sets, rows, found = sets_of(options), [], []
    for draw in options.draws:
        candidates = {name: search(options, draw, name) for name in sets}
        a, b = choose(candidates[VALID], sets[VALID][1])
        scores = {
            name: {
                order: bleu(reorder(lists, *weights), sets[name][1], "de")
                for order, weights in {
                    "ensemble": (0, None),
                    "reranked": (a, b),
                }.items()
            }
            for name, lists in candidates.items()
        }
        found.append(scores)
        rows.append({"draw": draw, "a": round(a, 2), "b": round(b, 2)})
    table = [
        {
            "pairs": name,
            "order": order,
            "draws": len(found),
            **means([scores[name][order] for scores in found]),
        }
        for name in sets
        for order in ("ensemble", "reranked")
    ]
    return {"reranking": table, "weights": rows}


def search(options, draw, name):
    """Returns for each sentence its candidates, as `Candidate` columns.

    The columns are text, score of the search, log p(y|x), log p(x|y), tokens.
    """
    names = "+".join(pathlib.Path(one).name for one in draw.split(","))
    path = options.folder / f"{names}.{name}.json"
    if path.exists():
        return json.loads(path.read_text("utf-8"))
    from keras_transformer.translator import Translator

    sources = read(options.data, name, "en")
    forward = Translator.load(draw.split(","))
    forward = forward.with_decoding(beam_size=NUMBER)
    backward = Translator.load(options.reverse.split(","))
    lists = forward.n_best(sources)
    flat = [
        (source, text, score)
        for source, found in zip(sources, lists, strict=True)
        for text, score in found
    ]
    ours = forward.score([(source, text) for source, text, _ in flat])
    theirs = backward.score([(text, source) for source, text, _ in flat])
    columns = iter(
        [text, score, sum(own.log_probs), sum(other.log_probs), len(own.ids)]
        for (_, text, score), own, other in zip(flat, ours, theirs, strict=True)
    )
    grouped = [list(itertools.islice(columns, len(one))) for one in lists]
    results.write(path, json.dumps(grouped, ensure_ascii=False))
    return grouped


def reorder(lists, a, b):
    """Returns the best text of each sentence; the search's without `b`.

    >>> lists = [[["x", -1.0, -2.0, -5.0, 2], ["y", -1.5, -3.0, -3.0, 3]]]
    >>> reorder(lists, 0, None), reorder(lists, 0.4, 0), reorder(lists, 0.6, 0)
    (['x'], ['x'], ['y'])
    >>> reorder(lists, 0, 0.9), reorder(lists, 0, 1.1)
    (['x'], ['y'])
    """
    if b is None:
        return [max(found, key=lambda one: one[1])[0] for found in lists]
    return [
        max(found, key=lambda one: one[2] + a * one[3] + b * one[4])[0]
        for found in lists
    ]


def choose(lists, references):
    """Returns the weights that have the highest cased BLEU."""

    def score(weights):
        outputs = reorder(lists, *weights)
        return sacrebleu.corpus_bleu(outputs, [references]).score

    return max(itertools.product(REVERSE, LENGTH), key=score)


if __name__ == "__main__":
    main()
