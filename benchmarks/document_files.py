"""Translates documents from elsewhere into capitals, and counts faults.

    python benchmarks/document_files.py --folder=DIR [--most=N] [--show=FORMAT]
        [--record]

It reads the files below DIR whose names have a format's suffix, such as those
of unpacked source packages. If a format has more than N files, it reads every
second, every third, and so on, in the order of their paths, so that it reads at
most N. The translator writes capitals, keeps placeholders and aligns word by
word, so any other change is the fault of a reader or writer. Existing
translations are replaced. For each format it counts the files that are refused,
that do not come back byte for byte without translation, that are not
well-formed after translation, or that lost a placeholder. It also shows the
share of letters that were not translated, with the reasons.

Well-formed means, for PO, that msgfmt (the package gettext) accepts the file,
if it accepts messages as their translations; for XLIFF, that lxml reads it; for
HTML, the same tags for lxml; for Markdown, the same tree for markdown-it-py
except for text; for subtitles, the same number of cues and times for pysubs2;
for DOCX and ODT, the same files with the same elements, except runs and spans,
and the same letters in the same order. --show prints the files with faults.
"""

import argparse
import collections
import io
import math
import pathlib
import re
import subprocess
import tempfile
import time
import zipfile

import lxml.etree
import lxml.html
import markdown_it
import pysubs2
import results
from capitals import align, capitals

from keras_transformer import documents

LARGEST = 2_000_000  # bytes
OWN_PLACEHOLDER = re.compile(
    r"%\(\w+\)[sd]|%\d?\$?[sdiu]\b|\{\w*\}|\{\{ ?\w+ ?\}\}|\$\{\w+\}"
    r"|https?://[\w./-]*\w",
    re.ASCII,
)
# Elements of DOCX and ODT that a translation replaces.
ANEW = re.compile(
    r"\}(?:r|rPr|t|proofErr|lastRenderedPageBreak|noBreakHyphen|softHyphen|span"
    r"|s|soft-page-break)\Z"
)
FAULTS = ("refused", "identity", "well-formed", "placeholders", "slow")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--show", choices=list(documents.READERS))
    results.add_flag(parser)
    options = parser.parse_args()
    paths = collections.defaultdict(list)
    for path in sorted(options.folder.rglob("*")):
        for format, reader in documents.READERS.items():
            is_wanted = options.show in (None, format) and format != "text"
            if is_wanted and path.suffix in reader.suffixes and path.is_file():
                paths[format].append(path)
    rows = []
    for format in paths:
        step = math.ceil(len(paths[format]) / options.most)
        chosen = paths[format][::step]
        rows.append(measure(format, chosen, bool(options.show)))
        print(rows[-1], flush=True)
    if options.record:
        results.record("document_files", "Documents of others", {"rows": rows})


def measure(format, paths, show):
    """Returns a row of counts for the files of a format."""
    faults = collections.Counter()
    left, letters = collections.Counter(), 0
    num_files = num_sentences = 0
    for path in paths:
        data = path.read_bytes()
        if not 0 < len(data) < LARGEST:
            continue
        num_files += 1
        begin = time.process_time()
        try:
            document = documents.parse(
                data,
                format,
                fits=fits,
                replace=format in documents.WITH_TRANSLATIONS,
            )
        except ValueError as error:
            faults["refused"] += 1
            if show:
                print(f"{path}: refused: {error}", flush=True)
            continue
        num_sentences += len(document.sentences)
        letters += sum(count_letters(s) for s in document.sentences)
        for unread in document.left:
            left[unread.reason] += count_letters(unread.text)
        same, _ = document.write_bytes(document.sentences)
        found = documents.translate(document, capitals, align)
        seconds = time.process_time() - begin
        before = same if format == "po" else data
        checks = {
            "identity": fixed(format, same) == fixed(format, data),
            "well-formed": form(format, before) == form(format, found.data),
            "placeholders": own_placeholders(format, data)
            == own_placeholders(format, found.data),
            "slow": seconds < 1 + 2e-5 * len(data),
        }
        for fault, is_right in checks.items():
            faults[fault] += not is_right
            if show and not is_right:
                print(f"{path}: {fault}", flush=True)
    total = letters + sum(left.values())
    return {
        "format": format,
        "files": num_files,
        "sentences": num_sentences,
        **{fault: faults[fault] for fault in FAULTS},
        "left, %": round(100 * sum(left.values()) / max(total, 1), 2),
        "mostly": ", ".join(reason for reason, _ in left.most_common(3)),
    }


def fits(sentence):
    return len(sentence) < 400


def count_letters(text):
    return sum(map(str.isalpha, text))


def fixed(format, data):
    """Returns the parts of a file that every translation must keep."""
    if format == "xliff":
        pattern = rb"\s*<target\b.*?(?:/>|</target>)|\sstate=\"\w+\""
        return re.sub(pattern, b"", data, flags=re.S)
    if format == "po":
        data = re.sub(rb"\s*,\s*fuzzy\b|#, fuzzy\r?\n", b"", data)
        pattern = rb'(msgstr(?:\[\d\])?)\s*(?:".*"\s*)+'
        return re.sub(rb"[ \t#]*\n", b"\n", re.sub(pattern, rb"\1\n", data))
    return data


def form(format, data):
    """Returns a document's form without its words, or None if it has none."""
    if format == "po":
        with tempfile.NamedTemporaryFile(suffix=".po") as file:
            file.write(data)
            file.flush()
            command = "msgfmt --check --use-fuzzy -o /dev/null".split()
            run = subprocess.run([*command, file.name], capture_output=True)
        return run.returncode
    if format == "xliff":
        try:
            lxml.etree.fromstring(data)
        except lxml.etree.XMLSyntaxError as error:
            return str(error)
        return None
    if format == "html":
        try:
            tree = lxml.html.document_fromstring(data)
        except (lxml.etree.ParserError, ValueError):
            return None
        return [
            (e.tag, sorted(e.keys())) for e in tree.iter(lxml.etree.Element)
        ]
    if documents.READERS[format].is_container:
        return office_form(data)
    text = data.decode(errors="replace")
    if format == "markdown":
        parser = markdown_it.MarkdownIt("commonmark").enable("table")
        return [
            (token.type, [t.type for t in token.children or () if t.nesting])
            for token in parser.parse(text)
        ]
    try:
        return [(e.start, e.end) for e in pysubs2.SSAFile.from_string(text)]
    except pysubs2.exceptions.Pysubs2Error:
        return None


def office_form(data):
    """Returns the files of an archive, and the elements and letters of XML."""
    files = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            files[name] = archive.read(name)
            if name.endswith(".xml") and files[name]:
                parser = lxml.etree.XMLParser(collect_ids=False)
                try:
                    root = lxml.etree.fromstring(files[name], parser)
                except lxml.etree.XMLSyntaxError:
                    continue  # it is compared byte for byte
                kept = "//*[not(ancestor::*[local-name() = 'rPr'])]"
                tags = [e.tag for e in root.xpath(kept)]
                files[name] = (
                    collections.Counter(t for t in tags if not ANEW.search(t)),
                    re.sub(r"\W", "", root.xpath("string()")).upper(),
                )
    return files


def own_placeholders(format, data):
    """Counts each placeholder in a document."""
    text = data.decode(errors="replace")
    is_container = documents.READERS[format].is_container
    if is_container or format in documents.WITH_TRANSLATIONS:
        return not text  # see "well-formed"
    return collections.Counter(OWN_PLACEHOLDER.findall(text))


if __name__ == "__main__":
    main()
