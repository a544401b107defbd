"""Measures ensembles, glossaries, consensus decoding, and text in capitals.

    python benchmarks/search_quality.py PART --data=DATA --workdirs DIR [DIR..]

DATA has `test_2016_flickr` and, for some parts, `val` and `train` of Multi30k.
BLEU and chrF are sacreBLEU's. The variants of a part translate all lines in
turn, --rounds times after a warm-up round. Seconds are this process's CPU time,
the least of the rounds. The ratio to the first variant is the median over the
rounds. With --record, PART replaces its result,
benchmarks/results/search_PART.json.

ensembles   Every model alone, and all as an ensemble by both means. Each is
            measured in a process of its own, in turn. Memory is its peak.
glossary    Each line has 1 to 3 terms, a word of the source and one of the
            reference. Both have at least 4 letters, and the highest Dice
            coefficient in the training text among the words of the pair, at
            least 0.1. 300 lines have one term that the model would not write: a
            source word, and a rare word of the training text that is neither in
            the reference nor in the plain translation. One variant forbids a
            random word of each line's plain translation. Another forbids 50
            words in all lines: the 51st to the 100th most frequent words of the
            training text with at least 4 letters. The first model translates.
consensus   Beam search, and the consensus of 16 and of 64 samples
            (epsilon=0.02), by chrF and by BLEU. The first model translates.
casing      The source in capitals and in title case against the source as it
            is. Case is folded in outputs and references before they are scored.
"""

import argparse
import collections
import json
import random
import re
import resource
import statistics
import time

import results
import sacrebleu
from processes import measure_apart

from keras_transformer.commands.startup import load, prepare_search
from keras_transformer.data.changing.modifiers import title_case, upper_case
from keras_transformer.data.files.records import read_parallel_files
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.glossary import Term, find_words
from keras_transformer.translation.requests import Request

TITLES = {
    "ensembles": "Ensembles: BLEU, time and memory",
    "glossary": "Glossaries and forbidden words",
    "consensus": "Consensus of samples",
    "casing": "Text in capitals and in title case",
}
SEED = 1
LETTERS = 4  # in the shortest word of a term
LEAST_DICE = 0.1
FOREIGN_LINES = 300  # lines with a term that the model would not write
RANKS = slice(50, 100)  # frequency ranks of the words forbidden in all lines
RARE = range(2, 6)  # occurrences of a word that the model would not write


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure_ensemble(**json.loads(arguments.child))))
        return
    prepare_search(jit_compile=False)
    tables = PARTS[arguments.part](arguments)
    for rows in tables.values():
        print(results.markdown(rows), flush=True)
    if arguments.record:
        name = f"search_{arguments.part}"
        results.record(name, TITLES[arguments.part], tables)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=TITLES)
    parser.add_argument("--data", help="folder of Multi30k")
    parser.add_argument("--workdirs", nargs="+", help="trained models")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lines", type=int, help="of each set; default: all")
    parser.add_argument("--child", help="internal: a measurement as JSON")
    results.add_flag(parser)
    arguments = parser.parse_args()
    if not arguments.child and not (arguments.part and arguments.workdirs):
        parser.error("expected PART, --data and --workdirs")
    return arguments


def read_pairs(workdir, data, name, lines=None):
    """Reads sources and references of a set, in the languages of a model."""
    languages = WorkDirectory(workdir).read_config()["data"]
    pairs = read_parallel_files(
        [f"{data}/{name}"],
        languages["source_language"],
        languages["target_language"],
    )
    return list(map(list, zip(*list(pairs)[:lines], strict=True)))


def open_translator(*workdirs):
    return load("keras_transformer.translator").Translator.load(workdirs)


def bleu(outputs, references):
    return sacrebleu.corpus_bleu(outputs, [references]).score


def in_turn(variants, rounds):
    """Runs variants in turn. Returns {name: (outputs, CPU seconds, ratio)}."""
    outputs, seconds = {}, {name: [] for name in variants}
    for _ in range(1 + rounds):
        for name, translate in variants.items():
            started = time.process_time()
            outputs[name] = translate()
            seconds[name].append(time.process_time() - started)
    first = next(iter(seconds.values()))[1:]
    found = {}
    for name, (_, *own) in seconds.items():
        ratios = [a / b for a, b in zip(own, first, strict=True)]
        found[name] = outputs[name], min(own), statistics.median(ratios)
    return found


# Ensembles


def measure_ensembles(arguments):
    """Measures every model, and the ensemble by both means."""
    alone = [([path], "linear") for path in arguments.workdirs]
    names = [f"model {number}" for number, _ in enumerate(alone, 1)]
    means = ["linear", "log_linear"]
    together = [(arguments.workdirs, how) for how in means]
    cases = dict(zip([*names, *means], [*alone, *together], strict=True))
    rounds = []
    for _ in range(arguments.rounds):
        found = {}
        for name, (workdirs, how) in cases.items():
            case = {"workdirs": workdirs, "how": how}
            case |= {"data": arguments.data, "lines": arguments.lines}
            found[name] = measure_apart(__file__, case, {})
            print(name, found[name], flush=True)
        rounds.append(found)

    def ratio(name, key):
        """Returns a system's median ratio to the mean of the models."""
        return statistics.median(
            found[name][key] / statistics.mean(found[n][key] for n in names)
            for found in rounds
        )

    return {
        "systems": [
            {
                "system": name,
                "models": len(workdirs),
                **{
                    f"BLEU, {key.removeprefix('bleu_')}": round(value, 2)
                    for key, value in rounds[0][name].items()
                    if key.startswith("bleu_")
                },
                "CPU s": min(found[name]["seconds"] for found in rounds),
                "time by one": round(ratio(name, "seconds"), 2),
                "peak MiB": max(found[name]["mib"] for found in rounds),
                "memory by one": round(ratio(name, "mib"), 2),
            }
            for name, (workdirs, _) in cases.items()
        ]
    }


def measure_ensemble(workdirs, how, data, lines):
    """Measures BLEU, peak MiB, and the second translation's CPU seconds."""
    prepare_search(jit_compile=False)
    translator = open_translator(*workdirs).with_decoding(ensemble=how)
    found = {}
    for name in ("val", "test_2016_flickr"):
        sources, references = read_pairs(workdirs[0], data, name, lines)
        outputs = translator.translate(sources)
        found[f"bleu_{name}"] = bleu(outputs, references)
    started = time.process_time()
    translator.translate(sources)
    found["seconds"] = round(time.process_time() - started, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    return {**found, "mib": round(peak / 1024)}


# Glossary


class Lexicon:
    """Counts of the training text's words, alone and in the same pair."""

    def __init__(self, sources, targets):
        self.counts = [collections.Counter() for _ in range(2)]
        self.together = collections.Counter()
        for source, target in zip(sources, targets, strict=True):
            one, other = words_of(source), words_of(target)
            self.counts[0].update(one)
            self.counts[1].update(other)
            self.together.update((a, b) for a in one for b in other)

    def dice(self, a, b):
        both = 2 * self.together[a, b]
        return both / max(1, self.counts[0][a] + self.counts[1][b])

    def pairs(self, source, target):
        """Returns word pairs that are each other's best match, in order."""
        one, other = words_of(source), words_of(target)
        found = []
        for a in one:
            b = max(other, key=lambda word: self.dice(a, word), default="")
            best = max(one, key=lambda word: self.dice(word, b))
            if best == a and self.dice(a, b) >= LEAST_DICE:
                found.append((a, b))
        return found


def words_of(text):
    """Returns the distinct words with enough letters, in order.

    >>> words_of("Two dogs, two Dogs and a dog's leg.")
    ['dogs', 'Dogs']
    """
    words = re.findall(rf"(?<!\S)[^\W\d_]{{{LETTERS},}}(?=[.,]?(?!\S))", text)
    return list(dict.fromkeys(words))


def measure_glossary(arguments):
    """Measures terms of the references, other terms, and forbidden words."""
    workdir = arguments.workdirs[0]
    lexicon = Lexicon(*read_pairs(workdir, arguments.data, "train"))
    texts, references = read_pairs(
        workdir, arguments.data, "test_2016_flickr", arguments.lines
    )
    translator = open_translator(workdir)
    plain = translator.translate(texts)
    chance = random.Random(SEED)
    usual, foreign = [], []
    for text, reference, output in zip(texts, references, plain, strict=True):
        pairs = lexicon.pairs(text, reference)
        number = min(len(pairs), chance.randint(1, 3))
        usual.append([target for _, target in chance.sample(pairs, number)])
        taken = {*words_of(reference), *words_of(output)}
        foreign.append([strange_word(lexicon, taken, chance)] if pairs else [])
    with_pairs = [n for n, terms in enumerate(foreign) if terms]
    wanted = min(FOREIGN_LINES, len(with_pairs))
    chosen = sorted(chance.sample(with_pairs, wanted))
    everything = range(len(texts))
    return {
        f"terms of the references, {sum(map(bool, usual))} lines": term_rows(
            translator, texts, references, usual, everything, arguments.rounds
        ),
        f"terms that the model would not write, {wanted} lines": term_rows(
            translator, texts, references, foreign, chosen, arguments.rounds
        ),
        "forbidden words": word_rows(
            translator, texts, references, plain, lexicon, arguments.rounds
        ),
    }


def strange_word(lexicon, taken, chance):
    """Draws a rare word of the training text that is not in `taken`."""
    rare = [w for w, n in lexicon.counts[1].items() if n in RARE]
    while (word := chance.choice(rare)) in taken:
        pass
    return word


def term_rows(translator, texts, references, terms, chosen, rounds):
    """Measures chosen lines without terms, with forced and preferred terms."""
    texts, references, terms = (
        [side[n] for n in chosen] for side in (texts, references, terms)
    )
    requests = [
        Request(text, terms=tuple((term,) for term in its))
        for text, its in zip(texts, terms, strict=True)
    ]
    variants = {"plain": lambda: translator.translate(texts)}
    for mode in ("force", "prefer"):
        searching = translator.with_decoding(glossary_mode=mode)
        variants[mode] = lambda searching=searching: [
            found.texts[0] for found in searching.search(requests, num_best=1)
        ]
    rows = []
    for name, (outputs, seconds, ratio) in in_turn(variants, rounds).items():
        pairs = [
            (term, output)
            for its, output in zip(terms, outputs, strict=True)
            for term in its
        ]
        begun = [re.search(rf"(?<!\w){t}", output) for t, output in pairs]
        whole = [
            Term(t, (t,), frozenset({"case"})).pattern.search(output)
            for t, output in pairs
        ]
        rows.append(
            {
                "search": name,
                "terms": len(pairs),
                "as words or their beginnings, %": share(begun),
                "as words, %": share(whole),
                "BLEU": round(bleu(outputs, references), 2),
                "CPU s": round(seconds, 2),
                "time by plain": round(ratio, 2),
            }
        )
    return rows


def word_rows(translator, texts, references, plain, lexicon, rounds):
    """Measures with and without forbidden words, of a line and of all."""
    chance = random.Random(SEED)
    own = [words_of(output) for output in plain]
    own = [(chance.choice(words),) if words else () for words in own]
    frequent = lexicon.counts[1].most_common()[RANKS]
    of_all = [tuple(word for word, _ in frequent)] * len(texts)
    rows = []
    for what, words in (("one of each line", own), ("50 of all", of_all)):
        requests = [
            Request(text, avoid=its)
            for text, its in zip(texts, words, strict=True)
        ]
        variants = {
            "plain": lambda: translator.translate(texts),
            "avoid": lambda requests=requests: [
                found.texts[0]
                for found in translator.search(requests, num_best=1)
            ],
        }
        found = in_turn(variants, rounds)
        for name, (outputs, seconds, ratio) in found.items():
            present = [
                find_words(its, output)
                for its, output in zip(words, outputs, strict=True)
            ]
            rows.append(
                {
                    "words": what,
                    "search": name,
                    "lines that have one, %": share(present),
                    "BLEU": round(bleu(outputs, references), 2),
                    "CPU s": round(seconds, 2),
                    "time by plain": round(ratio, 2),
                }
            )
    return rows


def share(values):
    """Returns the percentage of true values.

    >>> share([1, 0, None, 1])
    50.0
    """
    return round(100 * statistics.mean(map(bool, values)), 1)


# Consensus


def measure_consensus(arguments):
    """Measures beam search, one sample, and the consensus of samples."""
    workdir = arguments.workdirs[0]
    texts, references = read_pairs(
        workdir, arguments.data, "test_2016_flickr", arguments.lines
    )
    translator = open_translator(workdir)
    sample = {"sampling": True, "epsilon": 0.02}
    searches = {"beam 4": {"beam_size": 4}, "one sample": sample}
    for metric in ("chrf", "bleu"):
        for number in (16, 64):
            searches[f"{number} samples, {metric}"] = {
                **sample,
                "num_samples": number,
                "consensus": metric,
            }
    variants = {}
    for name, changes in searches.items():
        searching = translator.with_decoding(**changes)
        variants[name] = lambda searching=searching: searching.translate(texts)
    return {
        "searches": [
            {
                "search": name,
                "BLEU": round(bleu(outputs, references), 2),
                "chrF": round(
                    sacrebleu.corpus_chrf(outputs, [references]).score, 2
                ),
                "CPU s": round(seconds, 2),
                "time by beam 4": round(ratio, 2),
            }
            for name, (outputs, seconds, ratio) in in_turn(
                variants, arguments.rounds
            ).items()
        ]
    }


# Casing


def measure_casing(arguments):
    """Measures each model's case-insensitive BLEU for three kinds of source."""
    rows = []
    for number, workdir in enumerate(arguments.workdirs, 1):
        texts, references = read_pairs(
            workdir, arguments.data, "test_2016_flickr", arguments.lines
        )
        translator = open_translator(workdir)
        folded = [reference.casefold() for reference in references]
        scores = []
        for alter in (lambda pair, _: pair, upper_case, title_case):
            altered = [alter((text, ""), random)[0] for text in texts]
            outputs = translator.translate(altered)
            found = [output.casefold() for output in outputs]
            scores.append(round(bleu(found, folded), 2))
        row = {"model": number}
        names = ("as it is", "capitals", "title case")
        rows.append(row | dict(zip(names, scores, strict=True)))
    return {"BLEU without case": rows}


PARTS = {
    "ensembles": measure_ensembles,
    "glossary": measure_glossary,
    "consensus": measure_consensus,
    "casing": measure_casing,
}

if __name__ == "__main__":
    main()
