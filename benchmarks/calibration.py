"""Confidence: how well the probabilities fit, on documents not fitted to.

    python benchmarks/calibration.py --workdir=DIR --languages=de,fr \\
        --valid=PREFIX --tests=NAME=PREFIX[,NAME=PREFIX...] [--into_english]

Fits a calibration to each of --fits disjoint samples of PREFIX.en-XX (--pairs
of each, all languages together), then measures it on at most --most pairs of
each test and language. For each test, as mean and range of the fits:

- error: calibration error in ten bins of equal count
- correlation: Spearman's, of the probability with the sentences' chrF. The
  next column correlates the mean log-probability of a token with chrF.
- 90 % or more: sentences with this probability, and how many are acceptable

Further rows measure the sentences of one or two words, a sample in capitals,
and all tests together. FIGURE shows the first fit on all tests. The last line
compares the CPU time of confidence with the CPU time of a search for two
hypotheses.
"""

import argparse
import os
import pathlib
import random
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import results
from box import read_pairs, thinned

import keras_transformer as kt
from keras_transformer.confidence.assessment import Assessor, calibrate
from keras_transformer.confidence.regression import rank_correlation
from keras_transformer.confidence.report import Report
from keras_transformer.translation.metrics import sentence_chrf
from keras_transformer.translation.requests import Request

SHORT = 2  # words


def main():
    options = parse_arguments()
    translator = kt.Translator.load(options.workdir, engine=options.engine)
    codes = options.languages.split(",")
    chance = random.Random(options.seed)
    valid = [p for c in codes for p in read(options, options.valid, c)]
    drawn = chance.sample(valid, options.fits * options.pairs)
    samples = [drawn[part :: options.fits] for part in range(options.fits)]
    assessors = [
        Assessor(translator, calibrate(translator, requests(translator, own)))
        for own in samples
    ]
    tests = {}
    for test in options.tests.split(","):
        name, prefix = test.split("=")
        tests[name] = [
            pair
            for code in codes
            for pair in thinned(read(options, prefix, code), options.most)
        ]
    rows, everything = [], []
    for name, pairs in tests.items():
        own = Measured(translator, assessors, pairs)
        everything.append(own)
        rows.append(own.row(name))
        print(rows[-1], flush=True)
    short = [
        own.part([len(p[1].split()) <= SHORT for p in own.pairs])
        for own in everything
    ]
    rows.append(merged(short).row(f"at most {SHORT} words"))
    together = merged(everything)
    capitals = thinned([p for own in everything for p in own.pairs], 1000)
    capitals = [(d, s.upper(), r.upper()) for d, s, r in capitals]
    rows.append(Measured(translator, assessors, capitals).row("capitals"))
    rows.append(together.row("all tests"))
    bins = together.reports[0]
    print(results.markdown(rows), "\n".join(bins.table()), sep="\n")
    print(f"CPU: confidence takes {together.cost():.2f} of the search")
    if options.figure:
        bins.save(options.figure)
    if options.record:
        results.record(
            f"calibration_{options.name}",
            f"Confidence of {options.name}",
            {"tests": rows, "bins": [bin_row(one) for one in bins.bins]},
            notes=f"Confidence took {together.cost():.2f} of the CPU time of"
            f" the search, with --engine={options.engine}.",
        )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--languages", required=True, help="beside English")
    parser.add_argument("--into_english", action="store_true")
    parser.add_argument("--valid", required=True, help="PREFIX of the files")
    parser.add_argument("--tests", required=True)
    parser.add_argument("--engine", default="ctranslate2")
    parser.add_argument("--fits", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="model", help="of the result")
    parser.add_argument("--figure", help="FILE.svg or FILE.png")
    results.add_flag(parser)
    return parser.parse_args()


def read(options, prefix, code):
    """Reads `((source, target), text, reference)`; none without files."""
    direction = ("en", code)[:: -1 if options.into_english else 1]
    prefix = pathlib.Path(prefix)
    pairs = read_pairs(prefix.parent, prefix.name, *direction)
    return [(direction, *pair) for pair in pairs]


def requests(translator, pairs):
    """Makes the arguments of `calibrate`."""
    known = translator.languages
    return [
        (Request(text, direction=known.direction(*direction)), reference)
        for direction, text, reference in pairs
    ]


class Measured:
    """Pairs, their chrF, and their probabilities by each assessor."""

    def __init__(self, translator, assessors, pairs):
        self.pairs = pairs
        sources = [one for one, _ in requests(translator, pairs)]
        begin = time.process_time()
        found = translator.search(sources, num_best=2)
        searched = time.process_time()
        readings = translator.read(
            [
                (source.as_source, one.texts[0])
                for source, one in zip(sources, found, strict=True)
            ]
        )
        assessed = [assessors[0].assess(sources, found, readings)]
        end = time.process_time()
        assessed += [
            one.assess(sources, found, readings) for one in assessors[1:]
        ]
        self.seconds = searched - begin, end - searched
        self.chances = [[one.probability for one in own] for own in assessed]
        self.means = [
            statistics.fmean(reading.score.log_probs) for reading in readings
        ]
        self.chrf = [
            sentence_chrf(one.texts[0], reference)
            for one, (_, _, reference) in zip(found, pairs, strict=True)
        ]

    @property
    def reports(self):
        return [Report.of(own, self.chrf) for own in self.chances]

    def part(self, chosen):
        """Returns the pairs that are chosen."""
        own = object.__new__(Measured)

        def take(values):
            return [v for v, c in zip(values, chosen, strict=True) if c]

        own.pairs, own.means = take(self.pairs), take(self.means)
        own.chrf = take(self.chrf)
        own.chances = [take(values) for values in self.chances]
        own.seconds = self.seconds
        return own

    def row(self, name):
        """Returns the row of a table."""
        values = [report.values for report in self.reports]
        alone = rank_correlation(self.means, self.chrf)
        return {
            "test": name,
            "sentences": len(self.pairs),
            "acceptable, %": percent([values[0]["acceptable"]]),
            "error": spread([v["calibration_error"] for v in values]),
            "correlation": spread([v["correlation"] for v in values]),
            "mean log-probability": round(float(alone), 3),
            "90 % or more, %": percent([v["share_of_90"] for v in values]),
            "acceptable of these, %": percent(
                [
                    v["acceptable_of_90"]
                    for v in values
                    if v["acceptable_of_90"] is not None
                ]
            ),
        }

    def cost(self):
        """Divides the CPU time of confidence by the search's."""
        search, confidence = self.seconds
        return confidence / search


def merged(parts):
    """Joins what was measured on several tests."""
    own = object.__new__(Measured)
    for name in ("pairs", "means", "chrf"):
        setattr(own, name, [v for one in parts for v in getattr(one, name)])
    own.chances = [
        [v for one in parts for v in one.chances[fit]]
        for fit in range(len(parts[0].chances))
    ]
    own.seconds = [
        sum(s) for s in zip(*(one.seconds for one in parts), strict=True)
    ]
    return own


def spread(values):
    """Formats the mean and range of the fits.

    >>> spread([0.02, 0.03, 0.025])
    '0.025 (0.020 to 0.030)'
    """
    mean = statistics.fmean(values)
    return f"{mean:.3f} ({min(values):.3f} to {max(values):.3f})"


def percent(shares):
    return round(100 * statistics.fmean(shares), 1) if shares else None


def bin_row(one):
    return {
        "from, %": round(100 * one.low, 1),
        "probability, %": round(100 * one.probability, 1),
        "acceptable, %": round(100 * one.share, 1),
        "sentences": one.number,
    }


if __name__ == "__main__":
    main()
