"""Writes the card of a model that was trained on the collected texts.

    python examples/software_texts/card.py --texts=texts --workdir=runs/en-xx \
        --name="Software texts from English" --scores test-impress.json

It writes card.toml and NOTICE into the work directory, from which `kt-export`
takes them. Purpose, licence and limits come from --facts, a file with the first
lines of a card.toml. The data comes from TEXTS/counts.tsv and TEXTS/papers,
which `collect.py` has written; the scores from the files --scores, TEST.json,
each the output of `kt-evaluate` in several directions.
"""

import argparse
import csv
import json
import pathlib
import re

from collect import ENGLISH, SOURCES, folder_name

from keras_transformer.storage.card import FACTS, NOTICE
from keras_transformer.storage.workdir import WorkDirectory

HERE = pathlib.Path(__file__).parent
# Names of licences in the packages, and their identifiers (SPDX).
LICENCES = {"Apache": "Apache-2.0", "BSD": "BSD-3-Clause"}
# Where papers say whose a program is, the best first. Apache's licence has an
# example in brackets.
OWNERS = (
    r"^Files: \*\n(?:\S.*\n)*?Copyright: *(.+(?:\n[ \t]+\S.*)*)",
    r"^\W*Copyright (\(c\) [^\n<\[{]+|\d{4}[^\n<\[{]+)$",
    r"^Author(?:-email)?: ([^<\n]*[^<\s])",
    r'"author": "(.+)"',
)
ADDRESSES = (
    r"^Project-URL: Homepage, (\S+)",
    r"^Home-page: (\S+)",
    r'"url": "(?:git\+ssh://git@|https://)(github[^"]+?)(?:\.git)?"',
    r"^Source: *(\S+)",
)


def first(patterns, text):
    """Returns the first group of the first pattern that is found."""
    for pattern in patterns:
        if found := re.search(pattern, text, re.M | re.I):
            return " ".join(found[1].split())
    return ""


def corpora(texts):
    """Yields the entries of a card's `data`: a dictionary for each program."""
    pairs = dict.fromkeys(SOURCES, 0)
    with open(texts / "counts.tsv", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["program"] in pairs:
                pairs[row["program"]] += int(row["train"])
    for name, source in SOURCES.items():
        if not pairs[name]:
            continue
        package = source.packages.get(ENGLISH) or next(
            iter(source.packages.values())
        )
        papers = (texts / "papers" / folder_name(package)).read_text("utf-8")
        yield {
            "name": f"{name}, {pairs[name]:,} pairs ({papers.split()[1]})",
            "license": LICENCES.get(source.licence, source.licence),
            "copyright": source.owner or first(OWNERS, papers),
            "url": first(ADDRESSES, papers),
        }


def scores(paths, source_language):
    """Yields the entries of a card's `scores`."""
    for path in paths:
        result = json.loads(path.read_text("utf-8").splitlines()[-1])
        for name, one in result["directions"].items():
            yield {
                "test": path.stem.removeprefix("test-"),
                "direction": name
                if "-" in name
                else f"{source_language}-{name}",
                "bleu": round(one["bleu"], 1),
                "chrf": round(one["chrf"], 1),
            }


def table(name, rows):
    """Formats rows as tables of TOML. JSON's strings and numbers are TOML."""
    lines = []
    for row in rows:
        lines += ["", f"[[{name}]]"]
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in row.items()
        ]
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    path = pathlib.Path
    parser.add_argument("--texts", type=path, required=True)
    parser.add_argument("--workdir", type=path, required=True)
    parser.add_argument("--name", required=True, help="title of the card")
    parser.add_argument("--facts", type=path, default=HERE / "facts.toml")
    parser.add_argument("--scores", type=path, nargs="*", default=[])
    options = parser.parse_args()
    data = list(corpora(options.texts))
    languages = WorkDirectory(options.workdir).read_languages()
    found = scores(options.scores, languages.source_language)
    facts = options.facts.read_text("utf-8").rstrip()
    lines = [f"name = {json.dumps(options.name)}", facts]
    lines += table("data", data) + table("scores", found)
    (options.workdir / FACTS).write_text("\n".join(lines) + "\n", "utf-8")
    owners = [
        f"- {row['name']}: {row['copyright']}, {row['license']}, {row['url']}"
        for row in data
    ]
    notice = (HERE / "licences.txt").read_text("utf-8")
    notice = notice.replace("{data}", "\n".join(owners))
    (options.workdir / NOTICE).write_text(notice, "utf-8")


if __name__ == "__main__":
    main()
