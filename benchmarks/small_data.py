"""What 500, 5,000 and 50,000 pairs give: BLEU, minutes, and sentences.

    taskset --cpu-list=0 python benchmarks/small_data.py measure
        --multi30k=DIR --folder=FOLDER
    taskset --cpu-list=1 python benchmarks/small_data.py measure
        --messages=DIR --folder=FOLDER
    python benchmarks/small_data.py measure --multi30k=DIR --messages=DIR
        --folder=FOLDER --record
    python benchmarks/small_data.py page    # fills docs/results

The first two commands may run at the same time, each on one core; the third
reads what they have measured. For each of SETTINGS and each seed, a command
trains with the recipe multi30k_ende, which is for small corpora, and evaluates.
A seed draws the pairs, too. FOLDER keeps what was made, and the same command
continues. MULTI30K has the files train, val and test_2016_flickr; MESSAGES is
what examples/software_texts/collect.py wrote.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import typing

import results
import seeds

from keras_transformer.data.files.records import read_parallel_files
from keras_transformer.storage.checkpoints import Checkpoint, Checkpoints

NAME, TITLE = "small_data", "What 500, 5,000 and 50,000 pairs give"
PAGE = results.ROOT / "docs/results/small_data.md"
LANGUAGES = "en", "de"
RECIPE = "the recipe"
SHEET = "--valid_share=0.1"


class Setting(typing.NamedTuple):
    """Pairs to draw, minutes to train, and flags beside the recipe's."""

    pairs: int  # all, if there are fewer
    minutes: float
    flags: str = ""


# By the name of their work directories.
SETTINGS = {
    "500": Setting(500, 5),
    "500_vocabulary": Setting(500, 5, "--vocab_size=1000 --dropout=0.3"),
    "500_checkpoints": Setting(500, 5, "--checkpoint_steps=100"),
    "3000_sheet": Setting(3000, 10, SHEET),
    "5000": Setting(5000, 15),
    "50000": Setting(50000, 40),
}


class Corpus(typing.NamedTuple):
    """Prefixes of sets of pairs, and sentences that none of them has."""

    train: str
    valid: str
    tests: dict[str, str]  # heading of its table: prefix
    sentences: dict[str, str]  # English: German


CORPORA = {
    "multi30k": Corpus(
        "train",
        "val",
        {"Multi30k": "test_2016_flickr"},
        {
            "Two children play with a ball in front of a house.": (
                "Zwei Kinder spielen vor einem Haus mit einem Ball."
            ),
            "A man in a red jacket rides a bicycle down the street.": (
                "Ein Mann in einer roten Jacke fährt auf einem Fahrrad die"
                " Straße hinunter."
            ),
            "A woman sits on a bench and reads a newspaper.": (
                "Eine Frau sitzt auf einer Bank und liest eine Zeitung."
            ),
        },
    ),
    "messages": Corpus(
        "train.en-de",
        "valid.en-de",
        {
            "Messages of Home Assistant": "test-home-assistant.en-de",
            "Help of LibreOffice Impress": "test-impress.en-de",
        },
        {
            "The file could not be opened.": (
                "Die Datei konnte nicht geöffnet werden."
            ),
            "Choose the language of the user interface.": (
                "Wählen Sie die Sprache der Benutzeroberfläche aus."
            ),
            "Select the slides that you want to copy.": (
                "Wählen Sie die Folien aus, die Sie kopieren möchten."
            ),
        },
    ),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["measure", "page"])
    for name in CORPORA:
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--minutes", type=float, help="of every training, to try the script"
    )
    results.add_flag(parser)
    options = parser.parse_args()
    if options.command == "page":
        results.fill(PAGE)
        return
    tables = {}
    for name, corpus in CORPORA.items():
        if vars(options)[name]:
            tables |= tables_of(corpus, measure(options, name, corpus))
    for heading, rows in tables.items():
        print(f"{heading}\n\n{results.markdown(rows)}")
    if options.record:
        results.record(NAME, TITLE, tables)


def measure(options, name, corpus):
    """Returns what `run` returns, {setting: [of each seed]}."""
    data = vars(options)[name].resolve()
    found = {key: [] for key in SETTINGS}
    for key, setting in SETTINGS.items():
        if options.minutes:
            setting = setting._replace(minutes=options.minutes)
        for seed in options.seeds:
            folder = options.folder.resolve() / f"{name}_{key}_{seed}"
            result = folder / "result.json"
            if not result.exists():
                (folder / "pairs").mkdir(parents=True, exist_ok=True)
                values = run(folder, data, corpus, setting, seed)
                text = json.dumps(values, indent=1, ensure_ascii=False)
                results.write(result, text + "\n")
            found[key].append(json.loads(result.read_text("utf-8")))
    return found


def run(folder, data, corpus, setting, seed):
    """Trains and evaluates.

    Returns pairs, minutes, steps, epochs, the scores of each test set and the
    answers to the sentences.
    """
    pairs = list(read_parallel_files([data / corpus.train], *LANGUAGES))
    drawn = random.Random(seed).sample(pairs, min(len(pairs), setting.pairs))
    train = write_pairs(folder / "pairs/train", drawn)
    if setting.flags == SHEET:
        files = [
            f"--train_files={make_sheet(train)}",
            "--columns=English,German",
        ]
    else:
        files = [f"--train_files={train}"]
        files.append(f"--valid_files={data / corpus.valid}")
    workdir = folder / "workdir"
    seeds.call(
        "wmt",
        workdir,
        "--recipe=multi30k_ende",
        f"--seed={seed}",
        f"--train_minutes={setting.minutes}",
        *files,
        *setting.flags.split(),
    )
    scores = {
        heading: evaluate(workdir, data / prefix)
        for heading, prefix in corpus.tests.items()
    }
    sentences = write_pairs(folder / "pairs/own", corpus.sentences.items())
    answers = folder / "answers.txt"
    evaluate(workdir, sentences, f"--output={answers}")
    newest = Checkpoints(workdir / "checkpoints").find_intact()
    progress = Checkpoint(newest).progress
    return {
        "pairs": len(drawn),
        "minutes": progress["wall_seconds"] / 60,
        "steps": progress["step"],
        "epochs": progress["epoch"],
        "scores": scores,
        "answers": answers.read_text("utf-8").splitlines(),
    }


def write_pairs(prefix, pairs):
    """Writes PREFIX.en and PREFIX.de. Returns the prefix."""
    for language, lines in zip(
        LANGUAGES, zip(*pairs, strict=True), strict=True
    ):
        text = "".join(f"{line}\n" for line in lines)
        pathlib.Path(f"{prefix}.{language}").write_text(text, "utf-8")
    return prefix


def make_sheet(prefix):
    """Makes a spreadsheet of the pairs, as a user does. Returns its path."""
    script = results.ROOT / "examples/sheet.py"
    files = [f"{prefix}.{language}" for language in LANGUAGES]
    command = [sys.executable, script, "--columns=English,German", *files]
    path = prefix.with_suffix(".xlsx")
    with path.open("wb") as output:
        subprocess.run(command, stdout=output, check=True)
    return path


def evaluate(workdir, pairs, *flags):
    """Translates a set of pairs. Returns BLEU and chrF."""
    output = seeds.call("evaluate", workdir, f"--test_files={pairs}", *flags)
    found = json.loads(output.splitlines()[-1])
    return {"BLEU": found["bleu"], "chrF": found["chrf"]}


# Tables


def tables_of(corpus, found):
    """Makes a table of each test set, and one of the sentences.

    Args:
        corpus: A `Corpus`.
        found: What `run` returned, {setting: [of each seed]}. The answers are
            those of the first seed.
    """
    tables = {
        heading: [
            row_of(SETTINGS[key], of_seeds, heading)
            for key, of_seeds in found.items()
        ]
        for heading in corpus.tests
    }
    [first, *_] = corpus.tests
    columns = {
        f"{of_seeds[0]['pairs']:,} pairs": of_seeds[0]["answers"]
        for key, of_seeds in found.items()
        if not SETTINGS[key].flags
    }
    tables[f"{first.split(' of ')[0]}: sentences"] = [
        {"English": english}
        | {column: answers[number] for column, answers in columns.items()}
        | {"a translation": german}
        for number, (english, german) in enumerate(corpus.sentences.items())
    ]
    return tables


def row_of(setting, of_seeds, heading):
    """Makes the row of a setting: means, and the range of BLEU."""

    def mean(name):
        return statistics.mean(values[name] for values in of_seeds)

    scores = [values["scores"][heading] for values in of_seeds]
    bleu = [score["BLEU"] for score in scores]
    return {
        "pairs": of_seeds[0]["pairs"],
        "settings": f"`{setting.flags}`" if setting.flags else RECIPE,
        "minutes": round(mean("minutes"), 1),
        "steps": round(mean("steps")),
        "epochs": round(mean("epochs")),
        "seeds": len(of_seeds),
        "BLEU": round(statistics.mean(bleu), 1),
        "lowest": round(min(bleu), 1),
        "highest": round(max(bleu), 1),
        "chrF": round(statistics.mean(score["chrF"] for score in scores), 1),
    }


if __name__ == "__main__":
    main()
