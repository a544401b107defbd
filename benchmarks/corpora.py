"""Four small corpora in the form of Multi30k, for `seeds.py --data`.

    python benchmarks/corpora.py --downloads=DOWNLOADS --output=OUTPUT

DOWNLOADS contains deu-eng.zip (manythings.org/anki, the pairs of Tatoeba),
and the repositories odashi/small_parallel_enja (50,000 pairs of the Tanaka
corpus) and masakhane-io/lafand-mt (MAFAND, news; its Swahili training pairs
come from Global Voices). The script writes the files train, val and test of
each corpus.

Tatoeba has no split. The script removes repeated pairs, draws 2,000 English
sentences with all their translations, puts one translation of each into val or
test, and drops training pairs that share a sentence with those, on either side.
"""

import argparse
import pathlib
import random
import zipfile

HELD_OUT = 1000  # pairs in val, and in test
MAFAND = {"swahili": "swa", "igbo": "ibo"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--downloads", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    for name, languages, sets in read_corpora(arguments.downloads):
        folder = arguments.output / name
        folder.mkdir(parents=True, exist_ok=True)
        for part, pairs in sets.items():
            for language, side in zip(
                languages, zip(*pairs, strict=True), strict=True
            ):
                path = folder / f"{part}.{language}"
                path.write_text("".join(f"{text}\n" for text in side))
        sizes = ", ".join(f"{len(p):,} {part}" for part, p in sets.items())
        print(f"{name} ({' to '.join(languages)}): {sizes}")


def read_corpora(downloads):
    """Yields (name, languages, pairs of each set)."""
    yield "tatoeba", ("de", "en"), split(read_tatoeba(downloads))
    parts = {"train": "train", "val": "dev", "test": "test"}
    folder = downloads / "small_parallel_enja"
    yield (
        "tanaka",
        ("en", "ja"),
        {
            part: read_pairs(folder / f"{stem}.en", folder / f"{stem}.ja")
            for part, stem in parts.items()
        },
    )
    for name, code in MAFAND.items():
        folder = downloads / "lafand-mt/data/text_files" / f"en-{code}"
        yield (
            name,
            ("en", code),
            {
                part: read_pairs(
                    folder / f"{stem}.en", folder / f"{stem}.{code}"
                )
                for part, stem in parts.items()
            },
        )


def read_tatoeba(downloads):
    """Reads distinct pairs (German, English), in the order of the file."""
    with zipfile.ZipFile(downloads / "deu-eng.zip") as archive:
        lines = archive.read("deu.txt").decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return list(dict.fromkeys((row[1], row[0]) for row in rows))


def read_pairs(*paths):
    """Reads the pairs of two files with the same number of lines."""
    sides = [path.read_text().rstrip("\n").split("\n") for path in paths]
    return list(zip(*sides, strict=True))


def split(pairs):
    """Splits pairs into train, val and test, which share no sentence."""
    chance = random.Random(1)
    english = list(dict.fromkeys(pair[1] for pair in pairs))
    drawn = chance.sample(english, 2 * HELD_OUT)
    translations = {text: [] for text in drawn}
    for pair in pairs:
        if pair[1] in translations:
            translations[pair[1]].append(pair)
    held_out = [chance.choice(translations[text]) for text in drawn]
    known = {text for pair in held_out for text in pair}
    return {
        "train": [pair for pair in pairs if known.isdisjoint(pair)],
        "val": held_out[:HELD_OUT],
        "test": held_out[HELD_OUT:],
    }


if __name__ == "__main__":
    main()
