"""BLEU and speed of the rules that end a beam search, over corpora and seeds.

    python benchmarks/stopping.py --sets FOLDER/tatoeba=CORPORA/tatoeba/test
        FOLDER/recipe=DATA/test_2016_flickr ... [--record]

A set is the beginning of the names of work directories, as `seeds.py` makes
them (`_SEED` is added), and the prefix of a test set. Every model translates
the test set with the beam and the length penalty of its recipe, all lines at
once, by each rule in turn. The time of a rule is the least CPU time of --rounds
rounds after a warm-up round. BLEU is scored as in the training. Ratios to
`exact` are the median over the seeds.
"""

import argparse
import statistics
import time

import results

from keras_transformer.commands.startup import load, prepare_search

NAME, TITLE = "stopping", "Rules that end a beam search"
RULES = "exact", "transformers", "fairseq", "marian", "opennmt_tf"


def main():
    arguments = parse_arguments()
    prepare_search(jit_compile=False)
    rows = []
    for prefix, pairs in arguments.sets:
        found = [
            measure(f"{prefix}_{seed}", pairs, arguments)
            for seed in arguments.seeds
        ]
        rows += rows_of(prefix.rsplit("/", 1)[-1], found)
        print(results.markdown(rows), flush=True)
    if arguments.record:
        results.record(NAME, TITLE, {"rules": rows})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        required=True,
        type=lambda text: tuple(text.split("=", 1)),
        help="PREFIX=PAIRS",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lines", type=int, help="of a test set; default: all")
    results.add_flag(parser)
    return parser.parse_args()


def measure(workdir, pairs, arguments):
    """Returns each rule's translations, BLEU, and seconds of its best round."""
    from keras_transformer.storage.workdir import WorkDirectory
    from keras_transformer.translation.metrics import make_metric
    from trainers.run.data_config import DataConfig
    from trainers.run.training_config import TrainingConfig
    from trainers.scoring.test_sets import read_pairs

    directory = WorkDirectory(workdir)
    data = directory.read_section("data", DataConfig)
    training = directory.read_section("training", TrainingConfig)
    [metric] = make_metric(
        data.directions, training.bleu_tokenizer
    ).by_direction.values()
    read = list(read_pairs(data, "test", (pairs,)))[: arguments.lines]
    sources, references = map(list, zip(*read, strict=True))
    translator = load("keras_transformer.translator").Translator.load(workdir)
    of_rules = {rule: translator.with_decoding(stopping=rule) for rule in RULES}
    seconds, outputs = {rule: [] for rule in RULES}, {}
    for _ in range(1 + arguments.rounds):
        for rule, of_rule in of_rules.items():
            started = time.process_time()
            outputs[rule] = of_rule.translate(sources)
            seconds[rule].append(time.process_time() - started)
    found = {
        rule: (texts, metric.score(texts, references), min(seconds[rule][1:]))
        for rule, texts in outputs.items()
    }
    print(workdir, {rule: value[1:] for rule, value in found.items()})
    return found


def rows_of(corpus, found):
    """Makes a row for each rule. `found` has the rules of each seed."""
    rows = []
    for rule in RULES:
        changes, differing, ratios = [], [], []
        for seed in found:
            texts, bleu, seconds = seed[rule]
            exact_texts, exact_bleu, exact_seconds = seed["exact"]
            changes.append(bleu - exact_bleu)
            pairs = zip(texts, exact_texts, strict=True)
            differing.append(100 * statistics.mean(a != b for a, b in pairs))
            ratios.append(exact_seconds / seconds)
        rows.append(
            {
                "corpus": corpus,
                "rule": rule,
                "seeds": len(found),
                "BLEU": round(
                    statistics.mean(seed[rule][1] for seed in found), 2
                ),
                "less exact": round(statistics.mean(changes), 2),
                "lowest": round(min(changes), 2),
                "highest": round(max(changes), 2),
                "other translations, %": round(statistics.mean(differing), 1),
                "speed by exact": round(statistics.median(ratios), 2),
            }
        )
    return rows


if __name__ == "__main__":
    main()
