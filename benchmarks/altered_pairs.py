"""Sentence pairs in capitals, in title case, unfinished, and with typos.

    python benchmarks/altered_pairs.py --pairs=DATA/test_2016_flickr

Writes PAIRS.capitals, PAIRS.title, PAIRS.unfinished and PAIRS.typos, each with
both languages, for `seeds.py --tests`. Capitals and title case apply to both
sides. Only pairs that end in the same character of .!? lose it. Typos are in
the source: in a tenth of the words, at least one, two neighbouring letters are
exchanged or one is missing.
"""

import argparse
import pathlib
import random


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", required=True, help="PREFIX of the files")
    parser.add_argument("--languages", nargs=2, default=["en", "de"])
    arguments = parser.parse_args()
    prefix = arguments.pairs
    sides = [
        pathlib.Path(f"{prefix}.{language}").read_text().split("\n")[:-1]
        for language in arguments.languages
    ]
    pairs = list(zip(*sides, strict=True))
    for name, alter in ALTERATIONS.items():
        chance = random.Random(1)
        altered = [alter(*pair, chance) for pair in pairs]
        for language, side in zip(
            arguments.languages, zip(*altered, strict=True), strict=True
        ):
            path = pathlib.Path(f"{prefix}.{name}.{language}")
            path.write_text("".join(f"{text}\n" for text in side))
        changed = sum(a != b for a, b in zip(altered, pairs, strict=True))
        print(f"{prefix}.{name}: {changed:,} of {len(pairs):,} pairs altered")


def capitals(source, target, chance):
    """
    >>> capitals("Zwei Hunde.", "Two dogs.", None)
    ('ZWEI HUNDE.', 'TWO DOGS.')
    """
    return source.upper(), target.upper()


def title(source, target, chance):
    """
    >>> title("zwei Hunde", "two DOGS", None)
    ('Zwei Hunde', 'Two DOGS')
    """
    return _title(source), _title(target)


def _title(text):
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def unfinished(source, target, chance):
    """
    >>> unfinished("Zwei Hunde.", "Two dogs.", None)
    ('Zwei Hunde', 'Two dogs')
    >>> unfinished("Zwei Hunde.", "Two dogs", None)
    ('Zwei Hunde.', 'Two dogs')
    """
    if source[-1:] == target[-1:] and source[-1:] in tuple(".!?"):
        return source[:-1].rstrip(), target[:-1].rstrip()
    return source, target


def typos(source, target, chance):
    """
    >>> typos("zwei", "two", random.Random(1))
    ('zewi', 'two')
    """
    words = source.split(" ")
    long = [n for n, word in enumerate(words) if len(word) > 2]
    for n in chance.sample(long, min(len(long), max(1, len(words) // 10))):
        word = words[n]
        i = chance.randrange(1, len(word) - 1)
        exchanged = word[i + 1] + word[i]
        kept = exchanged if chance.random() < 0.5 else word[i + 1]
        words[n] = word[:i] + kept + word[i + 2 :]
    return " ".join(words), target


ALTERATIONS = {
    "capitals": capitals,
    "title": title,
    "unfinished": unfinished,
    "typos": typos,
}


if __name__ == "__main__":
    main()
