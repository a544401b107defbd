"""Sentence pairs in capitals, in title case, unfinished, and with typos.

    python benchmarks/altered_pairs.py --pairs=DATA/test_2016_flickr

Writes PAIRS.capitals, PAIRS.title, PAIRS.unfinished and PAIRS.typos, each with
both languages, for `seeds.py --tests`. The first three are the modifiers
UpperCase, TitleCase and RemoveEndPunct. The typos differ from the modifier
Typos: a tenth of the source's words, at least one word, have two neighbouring
letters exchanged, or a letter missing.
"""

import argparse
import pathlib
import random

from keras_transformer.data.changing.modifiers import (
    remove_end_punct,
    title_case,
    upper_case,
)

LANGUAGES = "en", "de"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", required=True, help="PREFIX of the files")
    arguments = parser.parse_args()
    prefix = arguments.pairs
    sides = [
        pathlib.Path(f"{prefix}.{language}").read_text().split("\n")[:-1]
        for language in LANGUAGES
    ]
    pairs = list(zip(*sides, strict=True))
    for name, alter in ALTERATIONS.items():
        chance = random.Random(1)
        altered = [alter(pair, chance) for pair in pairs]
        for language, side in zip(
            LANGUAGES, zip(*altered, strict=True), strict=True
        ):
            path = pathlib.Path(f"{prefix}.{name}.{language}")
            path.write_text("".join(f"{text}\n" for text in side))
        changed = sum(a != b for a, b in zip(altered, pairs, strict=True))
        print(f"{prefix}.{name}: {changed:,} of {len(pairs):,} pairs altered")


def typos(pair, chance):
    """
    >>> typos(("zwei", "two"), random.Random(1))
    ('zewi', 'two')
    """
    words = pair[0].split(" ")
    long = [n for n, word in enumerate(words) if len(word) > 2]
    for n in chance.sample(long, min(len(long), max(1, len(words) // 10))):
        word = words[n]
        i = chance.randrange(1, len(word) - 1)
        exchanged = word[i + 1] + word[i]
        kept = exchanged if chance.random() < 0.5 else word[i + 1]
        words[n] = word[:i] + kept + word[i + 2 :]
    return " ".join(words), pair[1]


ALTERATIONS = {
    "capitals": upper_case,
    "title": title_case,
    "unfinished": remove_end_punct,
    "typos": typos,
}


if __name__ == "__main__":
    main()
