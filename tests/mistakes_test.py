"""The mistakes of a first day: each ends with status 2 and one line.

The line names what was expected, what was received, and where. All but a few
are found before a framework is imported, and run in one process.
"""

import pathlib
import shutil
import socket
import zipfile

import pytest
from commands import NAMES, ROOT, fails, run_bad_commands, write_pairs

from trainers import wmt

RUN = ROOT / "tests/fixtures/workdir_0_2/run"
NEW = "--workdir=new --dataset=files --train_files="
USED = "--workdir=run --port=USED"
CSV = f"{NEW}words.csv --columns=English,German"
DOCUMENT = "translate_document", "--workdir=run"
FORM = "one.tsv: line 1: expected a term, a tab and its translation"
PREFIX = "expected PREFIX of the files PREFIX.en"
NO_RUN = "expected a work directory made by kt-train"
OOXML = "application/vnd.openxmlformats-officedocument"
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    'content-types"><Override PartName="/{}"'
    f' ContentType="{OOXML}.{{}}.main+xml"/></Types>'
)
# Command, arguments with a file for standard input, and parts of the line.
MISTAKES = [
    # No data, or none that is meant.
    ("wmt", "--workdir=new", "expected data: ", "--workdir=new alone"),
    ("wmt", f"{NEW}pairs --workdir=", "expected --workdir=DIR"),
    ("wmt", "--workdir=new --dataset=files", "needs train_files", "no train_f"),
    ("wmt", "--workdir=new --train_files=pairs", "needs dataset=files", "phra"),
    ("wmt", "--workdir=new --dataset=csv", "must be phrasebook, fil", "'csv'"),
    ("wmt", f"{NEW}pairs --init_from=nowhere", "with config.json", "'nowhere'"),
    # Files of pairs.
    ("wmt", f"{NEW}nowhere", "No such file: nowhere.en"),
    ("wmt", f"{NEW}only", "No such file: only.de"),
    ("wmt", f"{NEW}pairs.en", PREFIX, "Received: pairs.en, which is a file"),
    ("wmt", f"{NEW}pairs.en,pairs.de", PREFIX, "Received: pairs.en, which"),
    ("wmt", f"{NEW}empty", "empty.en: expected lines", "an empty file"),
    ("wmt", f"{NEW}utf_16", "utf_16.en: expected text in UTF-8", "UTF-16"),
    ("wmt", f"{NEW}latin", "latin.de, line 1: not UTF-8", "byte 2 of the line"),
    ("wmt", f"{NEW}pairs --valid_files=x", "No such file: x.en"),
    ("wmt", f"{NEW}pairs --target_language=fr", "No such file: pairs.fr"),
    ("wmt", f"{NEW}pairs --target_language=en", "that differ", "guage='en'"),
    ("wmt", f"{NEW}book.xlsx", "as CSV (UTF-8)", "Received: book.xlsx"),
    ("prepare", f"{NEW[14:]}BOOK.ODS --output=new", "as CSV", "BOOK.ODS"),
    # Tables.
    ("wmt", f"{NEW}words.csv", "line 1: expected the columns en and de", "Eng"),
    ("wmt", f"{CSV} --columns=English", "two names SOURCE,TARGET", "'English'"),
    ("wmt", f"{CSV} --valid_columns=1", "valid_columns must be two", "'1'"),
    (
        "wmt",
        f"{CSV} --test_files=words.csv --test_columns=en,de",
        "words.csv, line 1: expected the columns en and de",
        "Received: English, German",
    ),
    ("wmt", f"{NEW}quotes.csv", "quotes.csv, line 2: broken quotes"),
    # Flags.
    ("wmt", "--workdir=new --train_file=x", "'train_file'", "train_files ?"),
    ("wmt", "--workdir=new --epochs=3", "'epochs'. Did", "train_steps ?"),
    ("wmt", "--workdir=new train.en", "expected flags, --name=v", "train.en"),
    ("wmt", "--workdir=new --train_files", "Missing value", "--train_files"),
    ("wmt", "--recipe=multi30k", "'multi30k_ende'", "recipe='multi30k'"),
    ("wmt", "--preset=small", "'base', 'big'", "preset='small'"),
    ("wmt", "--vocab_size=8k", "--vocab_size=8k: expected a whole number"),
    ("wmt", f"{NEW}pairs --dropout=10", "dropout must be below 1", "=10.0"),
    ("wmt", f"{NEW}pairs --backend=torch", "'tensorflow', 'jax'", "'torch'"),
    ("wmt", f"{NEW}pairs --device=cuda", "'gpu', 'tpu', 'cpu'", "'cuda'"),
    ("wmt", f"{NEW}pairs --tokenizer=pairs.en", "pairs.en: ", "SentencePiece"),
    ("wmt", f"{NEW}pairs --lora_rank=4", "lora_rank needs init_from", "=4"),
    ("wmt", "--flagfile=nowhere", "Unable to open flagfile", "'nowhere'"),
    # Work directories.
    ("wmt", f"{NEW}pairs --workdir=keys", "expected a directory", "'keys', w"),
    ("wmt", f"{NEW}pairs --workdir=run --vocab_size=61", "was 60 and is 61"),
    ("translate", "--workdir=nowhere", NO_RUN, "workdir='nowhere'"),
    ("translate", "--workdir=o/m", NO_RUN, "kt-import reads hf://o/m"),
    ("translate", "--workdir=lost", "no usable checkpoint yet", "='lost'"),
    ("translate", "--workdir=run --checkpoint=best", "no best checkpoint yet"),
    ("parse_text", "--workdir=run", "a work directory made by kt-parse", "run"),
    ("average", "--workdir=lost", "no checkpoint in lost/checkpoints"),
    # Languages, options and text of a translation.
    ("translate", "--workdir=run --target_language=fr", "into: de", "='fr'"),
    ("translate", "--workdir=run --beam=4", "'beam'", "beam_size ?"),
    ("translate", "--workdir=run --input=x", "'input'", "standard input: < F"),
    ("translate", "--workdir=run --engine=onnx", "'ctranslate2'", "='onnx'"),
    ("translate", "--workdir=run --n_best=9", "at most beam_size", "n_best=9"),
    ("translate", "--workdir=run <utf_16.en", "standard input: ", "UTF-16"),
    ("translate", "--workdir=run <book.xlsx", "standard input: ", "zip arc"),
    # Glossaries.
    ("translate", "--workdir=run --glossary=nowhere", "No such", "'nowhere'"),
    ("translate", "--workdir=run --glossary=one.tsv", FORM, "d: 1 field\n"),
    ("translate", "--workdir=run --glossary=flag.tsv", "e, part", "d: CASE!"),
    ("translate", "--workdir=run --glossary=twice.tsv", "line 2: ", "'valve'"),
    ("translate", "--workdir=run --glossary=book.xlsx", "book.xlsx: ", "CSV"),
    ("translate", "--workdir=run --avoid=book.xlsx", "book.xlsx: ", "UTF-8"),
    ("serve", "--workdir=run --port=0 --glossaries=terms", f"terms/{FORM}"),
    (
        "translate",
        "--workdir=run --engine=ctranslate2 --glossary=good.tsv",
        "has no terms of a glossary: leave it out, or use engine=native",
        "glossary=good.tsv",
    ),
    # Documents.
    (*DOCUMENT, "<broken.docx", "standard input: expected an intact zip"),
    (*DOCUMENT, "<xml.docx", "standard input: word/document.xml: line 1"),
    (*DOCUMENT, "<old.doc", "expected a zip archive", "of old programs"),
    (*DOCUMENT, "<page.pdf", "known format: text, html", "with '%PDF-'"),
    (*DOCUMENT, "<book.xlsx", "expected a Word document", "xl/workbook.xml"),
    (*DOCUMENT, "--format=pdf", "'docx', 'auto'", "format='pdf'"),
    (*DOCUMENT, "<latin.de", "standard input: line 1 is not UTF-8"),
    # Servers, measurements, exports, imports.
    ("serve", USED, "Address already in use", "port=USED"),
    ("serve", "--workdir=run --port=99999", "at most 65535", "port=99999"),
    ("serve", "--workdir=run --port=0 --api_keys=keys", "a key in each line"),
    ("evaluate", "--workdir=run", "expected --test_files=PREFIX", "none"),
    ("evaluate", "--workdir=run --test_files=book.xlsx", "CSV", "book.xlsx"),
    ("evaluate", "--workdir=run --test_set=wmt99", "for en-de", "'wmt99'"),
    (
        "evaluate",
        "--workdir=run --test_files=uneven",
        "as many lines in both files",
        "Received: 2 in uneven.en, 1 in uneven.de",
    ),
    ("export", "--workdir=run --output=new --format=trt", "'onnx'", "='trt'"),
    ("export", "--workdir=lost --output=new", "no usable checkpoint", "lost"),
    ("import_model", "--source=nowhere --workdir=new", "nowhere"),
    ("import_model", "--source=run --workdir=run", "does not exist yet", "run"),
]


def cases(used):
    """The mistakes, with a port that is used and full names of modules."""
    for command, *rest in MISTAKES:
        if command == DOCUMENT[0]:
            rest[:2] = [" ".join(rest[:2])]
        package = "savedmodel" if command == "export" else "trainers"
        arguments, *parts = (text.replace("USED", str(used)) for text in rest)
        yield [f"{package}.{command}", *arguments.split()], parts


def write_files(folder):
    """The files that the mistakes name."""
    write_pairs(folder / "pairs", [("one dog", "ein Hund")])
    shutil.copytree(RUN, folder / "run")
    shutil.copytree(RUN, folder / "lost")
    for path in folder.glob("lost/*/*.safetensors"):
        path.unlink()
    texts = {
        "uneven.en": "a\nb\n",
        "uneven.de": "c\n",
        "only.en": "a\n",
        "empty.en": "",
        "empty.de": "",
        "latin.en": "door\n",
        "words.csv": "English,German\na,b\n",
        "head.csv": "en,de\n",
        "quotes.csv": 'en,de\n"a,b\n',
        "one.tsv": "valve\n",
        "terms/one.tsv": "valve\n",
        "flag.tsv": "valve\tVentil\tCASE!\n",
        "twice.tsv": "valve\ta\nvalve\tb\n",
        "good.tsv": "valve\tVentil\n",
        "page.pdf": "%PDF-1.7\n",
        "keys": "",
    }
    (folder / "terms").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    for language in ("en", "de"):
        (folder / f"utf_16.{language}").write_text("one dog\n", "utf-16")
    (folder / "latin.de").write_text("Tür\n", "latin-1")
    (folder / "old.doc").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 99)
    for name, part, kind in (
        ("book.xlsx", "xl/workbook.xml", "spreadsheetml.sheet"),
        ("xml.docx", "word/document.xml", "wordprocessingml.document"),
    ):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("[Content_Types].xml", TYPES.format(part, kind))
            archive.writestr(part, "<document><body>")
    start = (folder / "book.xlsx").read_bytes()[:60]
    (folder / "broken.docx").write_bytes(start)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    write_files(folder)
    return folder


def test_each_ends_with_one_line_before_a_framework_is_imported(folder):
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        table = list(cases(used.getsockname()[1]))
        found = run_bad_commands([argv for argv, _ in table], cwd=folder)
    assert len(found) == len(table) >= 43, table[len(found) - 1]
    for ([module, *argv], parts), end in zip(table, found, strict=True):
        told = f"{NAMES[module]} {' '.join(argv)}: {end}"
        assert (end["status"], end["slow"]) == (2, []), told
        assert end["err"].startswith(f"{NAMES[module]}: "), told
        assert end["err"].count("\n") == 1, told
        assert all(part in end["err"] for part in parts), (parts, told)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    "name, told",
    [
        ("uneven", "as many lines in both files. Received: 2 in uneven.en, 1"),
        ("head.csv", "head.csv: expected pairs of en and de. Received: none\n"),
    ],
)
def test_files_are_read_to_their_ends(name, told, folder, monkeypatch, capsys):
    """Training does so when the framework is there."""
    monkeypatch.chdir(folder)
    assert told in fails(wmt.main, f"{NEW}{name}".split(), capsys)
    assert not pathlib.Path("new").exists()
