"""Held-out pages of LibreOffice's help, translated by the package's models.

    python benchmarks/help_pages.py --pages=PAGES --folder=FOLDER [--record]

PAGES is usr/share/libreoffice/help of Debian's packages libreoffice-help-XX,
unpacked (`dpkg -x`), for English and the six languages. `kt-translate-document`
translates every third of the 45 longest pages of Impress and Draw from English
into each language, and the German translations back into English. FOLDER keeps
the translations, and the same command continues.

- same elements: pages with the same elements and attributes as the source, in
  any order, because words change places with their markup
- paragraphs: those that LibreOffice's own page has with the same id; BLEU and
  chrF are means of the pages
"""

import argparse
import collections
import os
import pathlib
import statistics
import subprocess
import sys

import lxml.html
import results
import sacrebleu

PARTS = "simpress", "sdraw"
LONGEST, STEP = 45, 3
# The folders of PAGES whose names are not those of the languages.
FOLDERS = {"en": "en-US", "pt": "pt-BR"}
LANGUAGES = "de", "fr", "es", "it", "pt", "ru"
ELEMENTS = "p", "h1", "h2", "h3", "h4", "h5", "h6"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", required=True, type=pathlib.Path)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    results.add_flag(parser)
    options = parser.parse_args()
    english = folder_of(options.pages, "en")
    names = chosen(english)
    rows = []
    for code in LANGUAGES:
        made = options.folder / code
        rows.append(measure(options.pages, english, made, names, "en", code))
        print(rows[-1], flush=True)
    made = options.folder / "back"
    source = options.folder / "de"
    rows.append(measure(options.pages, source, made, names, "de", "en"))
    rows[-1]["direction"] = "en-de-en"
    print(results.markdown(rows))
    if options.record:
        results.record("help_pages", "Pages of help", {"pages": rows})


def folder_of(pages, code):
    return pages / FOLDERS.get(code, code) / "text"


def chosen(folder):
    """Returns the names of the pages to translate."""
    paths = [p for part in PARTS for p in (folder / part).rglob("*.html")]
    paths.sort(key=lambda path: (-path.stat().st_size, str(path)))
    return [path.relative_to(folder) for path in paths[:LONGEST:STEP]]


def measure(pages, folder, made, names, source, target):
    """Translates pages and compares them. Returns a row."""
    same, scores, number = 0, [], 0
    for name in names:
        data = (folder / name).read_bytes()
        found = translate(data, made / name, source, target)
        same += elements(found) == elements(data)
        ours = paragraphs(found)
        theirs = paragraphs((folder_of(pages, target) / name).read_bytes())
        both = [id for id in theirs if id in ours]
        outputs, references = ([t[id] for id in both] for t in (ours, theirs))
        number += len(both)
        scores.append(
            (
                sacrebleu.corpus_bleu(outputs, [references]).score,
                sacrebleu.corpus_chrf(outputs, [references]).score,
            )
        )
    row = {"direction": f"{source}-{target}", "pages": len(names)}
    row |= {"same elements": same, "paragraphs": number}
    for metric, values in zip(
        ("BLEU", "chrF"), zip(*scores, strict=True), strict=True
    ):
        row[metric] = round(statistics.mean(values), 1)
        row[f"{metric}, range"] = f"{min(values):.1f} to {max(values):.1f}"
    return row


def translate(data, path, source, target):
    """Returns the translation of a page, which it keeps at `path`."""
    if not path.exists():
        command = [sys.executable, "-m", "trainers.translate_document"]
        command += [f"--source_language={source}", "--engine=ctranslate2"]
        command += [f"--target_language={target}", "--format=html"]
        process = subprocess.run(
            command, input=data, stdout=subprocess.PIPE, check=True
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(process.stdout)
        os.replace(new, path)
    return path.read_bytes()


def elements(data):
    """Counts the elements of a page, with their attributes but `lang`."""
    return collections.Counter(
        (
            element.tag,
            *sorted((k, v) for k, v in element.items() if k != "lang"),
        )
        for element in lxml.html.document_fromstring(data).iter()
        if isinstance(element.tag, str)
    )


def paragraphs(data):
    """Returns the texts of a page's paragraphs with an id, but for code.

    >>> paragraphs(b'<p id="a">One  <b>two</b></p><p id="b"><code>x</code></p>')
    {'a': 'One two'}
    """
    found = {}
    for element in lxml.html.fromstring(data).iter(*ELEMENTS):
        text = " ".join(element.text_content().split())
        if text and element.get("id") and not element.xpath(".//pre|.//code"):
            found[element.get("id")] = text
    return found


if __name__ == "__main__":
    main()
