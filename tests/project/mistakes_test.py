"""Users' mistakes: each ends with status 2 and one line.

The line names what was expected, what was received, and where. All but a few
are found before a framework is imported, and run in one process.
"""

import pathlib
import shutil
import socket
import zipfile

import pytest
from commands import (
    NAMES,
    ROOT,
    changed_config,
    fails,
    run_bad_commands,
    write_pairs,
)

from keras_transformer.storage.hub import suggest
from trainers import wmt

RUN = ROOT / "tests/fixtures/workdir_0_2/run"
OOXML = "application/vnd.openxmlformats-officedocument"
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    'content-types"><Override PartName="/{}"'
    f' ContentType="{OOXML}.{{}}.main+xml"/></Types>'
)
# Commands that open a translator -> the arguments that they need.
TRANSLATORS = {
    "translate": "",
    "translate_document": "",
    "translate_corpus": "--input=pairs.en --output=new",
    "evaluate": "--test_files=pairs",
    "score": "--test_files=pairs",
    "align": "--test_files=pairs",
    "tune": "--valid_files=pairs",
    "visualize": "--text=a --output=new.html",
    "serve": "--port=0",
    "parse_text": "",
    "parse_evaluate": "--trees=trees",
}
PARSERS = ("parse_text", "parse_evaluate")
# What comes before the arguments of a row, which override it.
DEFAULTS = {
    **{name: f"--workdir=run {rest}" for name, rest in TRANSLATORS.items()},
    **{name: f"--workdir=parser {TRANSLATORS[name]}" for name in PARSERS},
    "wmt": "--workdir=new --dataset=files --train_files=pairs",
    "prepare": "--dataset=files --output=new",
    "parse": "--workdir=new",
    "export": "--workdir=run --output=new",
    "import_model": "--workdir=new",
}
BROKEN = {
    "no_directory": "expected a work directory made by kt-",
    "no_config": "expected a work directory made by kt-",
    "no_vocabulary": "tokenizer.model",
    "no_checkpoint": "no usable checkpoint yet",
}
# A command, its arguments, and what is in the line: most of all, values.
# `only` leaves out the defaults; a file after `<` is the standard input.
MISTAKES = """
No data, or none that is meant.
wmt only --workdir=new | expected data: --train_files
wmt only --workdir=new --dataset=files | expected train_files
wmt only --workdir=new --train_files=x | No such file: x.en
prepare only --output=new --train_files=x | No such file: x.en
wmt --dataset=csv | 'csv'
wmt --workdir= | --workdir=DIR
wmt --init_from=nowhere | expected a work directory, | 'nowhere'
wmt --init_from=no_checkpoint | no usable checkpoint yet
wmt --init_from=no_vocabulary | tokenizer.model
Files of pairs.
wmt --train_files=nowhere | No such file: nowhere.en
wmt --train_files=a,b/x | expected \\, for a comma in a path
wmt --train_files=a\\,b/x | No such file: a,b/x.en
wmt --train_files=pairs.zip | unpack it first | pairs.zip
wmt --source_language=English | pairs.English | a code, such as en
wmt --train_files=only | No such file: only.de
wmt --train_files=pairs.en | PREFIX.en | .tsv or .csv | Received: pairs.en
wmt --train_files=empty | empty.en: expected lines
wmt --train_files=utf_16 | utf_16.en: expected text in UTF-8 | UTF-16
wmt --train_files=latin | latin.de, line 1: not UTF-8 | byte 2
wmt --train_files=book.xlsx | book.xlsx: line 1: Premature
wmt --train_files=book.xls | .xlsx, .ods or CSV (UTF-8) | Received: book.xls
wmt --valid_share=0.1 --valid_files=pairs | valid_share excludes valid_files
wmt --target_language=de,fr --valid_share=0.1 | valid_files instead of
wmt --valid_files=x | No such file: x.en
wmt --valid_files=utf_16 | iconv -f UTF-16 -t UTF-8
wmt --target_language=fr | No such file: pairs.fr
wmt --source_language=en --target_language=en | that differ
prepare --train_files=BOOK.ODS | No such file: BOOK.ODS
prepare --train_files=nowhere | No such file
parse --train_trees=nowhere | No such file
parse_evaluate --trees=nowhere | No such file
synthesize --config=nowhere | nowhere
synthesize --config=plan.yaml | no usable checkpoint yet
shortlist --workdir=run --train_files=nowhere | No such file
Tables.
wmt --train_files=x.csv | No such file: x.csv
wmt --train_files=words.csv | line 1: expected the columns en and de | English
wmt --train_files=words.csv --columns=English | SOURCE,TARGET | 'English'
wmt --valid_columns=1 | valid_columns | '1'
wmt --test_files=words.csv --test_columns=en,de | words.csv, line 1 | German
wmt --train_files=quotes.csv | quotes.csv, line 2
Flags.
wmt --train_file=x | 'train_file' | train_files ?
wmt --epochs=3 | 'epochs' | train_steps ?
wmt train.en | --name=v | train.en
wmt --train_files | --train_files
wmt only --recipe=multi30k | 'multi30k_ende' | 'multi30k'
wmt only --recipe=Quickstart | Did you mean: quickstart ?
wmt --preset=small | 'base', 'big' | 'small'
wmt --vocab_size=8k | --vocab_size=8k
wmt --dropout=10 | dropout must be below 1 | 10.0
wmt --backend=torch | 'tensorflow', 'jax' | 'torch'
wmt --device=cuda | 'gpu', 'tpu', 'cpu' | 'cuda'
wmt --tokenizer=pairs.en | pairs.en: | SentencePiece
wmt --lora_rank=4 | lora_rank needs init_from
wmt --flagfile=nowhere | 'nowhere'
Work directories.
wmt --workdir=keys | expected a directory | 'keys'
wmt --workdir=no_checkpoint SWAPPED | was 'en' and is 'de'; | yet: delete it
translate --workdir=export | config.json: expected a work | None: an export
translate --workdir=newer | format_version=3: made by a newer version
wmt --workdir=run --vocab_size=61 | another configuration | was 60 and is 61
translate --workdir=owner/model | kt-import reads hf://owner/model
translate --workdir=run,no_checkpoint | no usable checkpoint yet
translate --checkpoint=best | no best checkpoint yet
translate --checkpoint=nowhere/ckpt-1 | no such checkpoint
parse_text --workdir=run | a work directory made by kt-parse
average --workdir=no_directory | expected a work directory made by kt-
average --workdir=no_checkpoint | no checkpoint in no_checkpoint/checkpoints
average --workdir=run --merged=new | a work directory of adapters
shortlist --workdir=no_directory --train_files=pairs | expected a work direct
serve --workdir=run,no_checkpoint | no usable checkpoint yet
serve --adapter=one | NAME=DIR | 'one'
serve --adapter=one=run | a work directory of adapters
serve --adapter=one=no_directory | expected a work directory made by kt-
evaluate --compare=nowhere | No such file
evaluate --compare=no_checkpoint | no usable checkpoint yet
export --workdir=no_checkpoint | no usable checkpoint
Languages, options and text of a translation.
translate --target_language=fr | into: de | 'fr'
translate --beam=4 | 'beam' | beam_size ?
translate --input=x | 'input' | standard input: <
translate --n_best=9 | at most beam_size
translate_corpus --n_best=9 | at most beam_size
translate --shortlist | kt-shortlist
translate --prefix_file=nowhere | No such file
translate --alignment_layer=9 | at most 1
translate --seed=9 | sampling with a seed
translate --num_samples=3 | needs sampling
translate --temperature=2 | needs sampling
serve --top_k=2 | needs sampling
evaluate --sampling --num_samples=2 | consensus with num_samples
evaluate --sampling --consensus=bleu | needs num_samples
tune --sampling | expected a search
translate <utf_16.en | standard input: | UTF-16
translate <book.xlsx | standard input: | zip arc
parse_text <utf_16.en | standard input: | UTF-16
translate_corpus --input=nowhere | expected a regular file
translate_corpus --output=other | other has other files
translate_corpus only --input=x | expected --output=DIR. Received: no output
translate_corpus only --output=y | expected --input=FILE or --collect=FILE
translate_corpus only --output=y --input=x | expected --workdir=DIR
translate_corpus only --output=y --collect=z | kt-translate-corpus made | 'y'
translate_corpus only --output=y --collect=z --input=x | collect excludes input
translate_corpus only --output=y --collect=z --beam_size=2 | beam_size=2
translate_corpus only --output=y --collect=z --seed=5 | without options | seed=5
Several models, or one.
translate --ensemble=linear | several work directories with ensemble
score --ensemble=linear | several work directories with ensemble
tune --ensemble=linear | several work directories with ensemble
serve --ensemble=linear | several work directories with ensemble
align --workdir=run,run | expected a work directory
tune --workdir=run,run | expected a work directory
Another engine.
translate --engine=onnx | 'ctranslate2' | 'onnx'
translate --compute_type=int8 | needs engine
CTRANSLATE2 --beam_size=1 --backend=jax | engine excludes backend
CTRANSLATE2 --beam_size=1 --jit_compile | engine excludes jit_compile
CTRANSLATE2 --beam_size=1 --device=tpu | expected device=cpu
CTRANSLATE2 --beam_size=1 --workdir=run,run | models=2
CTRANSLATE2 --beam_size=1 --shortlist | shortlist
CTRANSLATE2 --beam_size=1 --compute_type=float16 | default, or one of
CTRANSLATE2 --glossary=good.tsv | engine=native | good.tsv
score --engine=ctranslate2 | engine=native
align --engine=ctranslate2 | engine=native
serve --engine=ctranslate2 --beam_size=1 --adapter=one=adapted | engine=native
Glossaries.
translate --glossary_mode=prefer | glossary with glossary_mode | no glossary
translate --glossary=nowhere | No such file | 'nowhere'
translate --glossary=keys | keys: expected terms, one a line
translate --avoid=keys | keys: expected words, one a line
translate --glossary=one.tsv | one.tsv: line 1: | 1 field
translate --glossary=flag.tsv | CASE!
translate --glossary=twice.tsv | line 2: | 'valve'
translate --glossary=book.xlsx | book.xlsx: | CSV
translate --avoid=nowhere | No such file
translate --avoid=book.xlsx | book.xlsx: | UTF-8
serve --glossaries=terms | terms/one.tsv: line 1:
serve --engine=ctranslate2 --beam_size=1 --glossaries=good | leave the glossary
visualize --glossary_bonus=1 | glossary_bonus
visualize --glossary_mode=prefer | glossary_mode
Documents.
translate_document <broken.docx | standard input: | intact zip
translate_document <xml.docx | standard input: word/document.xml: line 1
translate_document <old.doc | zip archive | of old programs
translate_document <page.pdf | text, html | PDF
translate_document <book.xlsx | expected columns and into with a table
translate_document --columns=a --into=b <book.xlsx | input: line 1: Premature
translate_document --columns=a | columns needs into
translate_document --columns=x,y --into=z | in into for each of columns
translate_document --columns=a --into=b --format=html | columns needs format
translate_document <latin.de | standard input: line 1 is not UTF-8
translate_document letter.docx | letter.docx | standard input: < FILE >
translate_document --format=pdf | 'docx', | 'pdf'
translate_document --document_map=pairs.en/x | cannot be written
Servers, measurements, figures, exports, imports.
serve --port=USED | Address already in use | USED
serve --port=99999 | at most 65535 | 99999
serve --api_keys=keys | a key in each line
serve --api_keys=nowhere | No such file
evaluate --test_files= | --test_files=PREFIX
evaluate --test_files=book.xls | CSV | book.xls
evaluate --test_files=nowhere | No such file
evaluate --test_files= --test_set=wmt99 | en-de | 'wmt99'
evaluate --test_files=uneven | Received: 2 in uneven.en, 1 in uneven.de
evaluate --output=pairs.en/x | cannot be written
evaluate --score_command=no_comet{output} | expected a program
evaluate --score_command=cat{source} | {output}
score --test_files=nowhere | No such file
align --test_files=nowhere | No such file
align --gold=nowhere | No such file
tune --valid_files=nowhere | No such file
visualize --output=pairs.en/x.html | cannot be written
visualize --ensemble=linear | one model
export --format=trt | 'onnx' | 'trt'
import_model --source=nowhere | nowhere
import_model --source=owner/model | hf://owner/model
import_model --source=run --workdir=run | does not exist yet | run
"""
SHORT = {
    "CTRANSLATE2": "translate --engine=ctranslate2",
    "SWAPPED": "--source_language=de --target_language=en",
}
ALIGNED = "--guided_alignment=nowhere --alignment_head=1"


def read_cases():
    """Yields each mistake: command, arguments, parts of the line."""
    for name in TRANSLATORS:
        for kind, part in BROKEN.items():
            folder = f"parser_{kind}" if name in PARSERS else kind
            yield name, f"--workdir={folder}", [part]
    yield "wmt", f"--source_language=en {ALIGNED}", ["No such file"]
    for row in MISTAKES.strip().splitlines():
        command, *parts = row.split(" | ")
        if parts:
            for short, long in SHORT.items():
                command = command.replace(short, long)
            name, _, arguments = command.partition(" ")
            yield name, arguments, parts


CASES = list(read_cases())


def argv_of(name, arguments):
    package = "savedmodel" if name == "export" else "trainers"
    if arguments.startswith("only "):
        words = arguments.removeprefix("only ")
    else:
        words = f"{DEFAULTS.get(name, '')} {arguments}"
    return [f"{package}.{name}", *words.split()]


def write_runs(folder):
    """Makes work directories of a translator and a parser, some incomplete."""
    for run in ("run", "parser"):
        shutil.copytree(RUN, folder / run)
        if run == "parser":
            with changed_config(folder / run) as config:
                config["data"] = {"train_trees": [], "max_length": 40}
        for kind, lost in (
            ("no_config", "config.json"),
            ("no_vocabulary", "tokenizer.model"),
            ("no_checkpoint", "*/*.safetensors"),
        ):
            name = f"parser_{kind}" if run == "parser" else kind
            copy = shutil.copytree(folder / run, folder / name)
            for path in list(copy.glob(lost)):
                path.unlink()


def write_files(folder):
    """Writes the files that the mistakes name."""
    write_runs(folder)
    write_pairs(folder / "pairs", [("one dog", "ein Hund")])
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
        "good/one.tsv": "valve\tVentil\n",
        "flag.tsv": "valve\tVentil\tCASE!\n",
        "twice.tsv": "valve\ta\nvalve\tb\n",
        "good.tsv": "valve\tVentil\n",
        "page.pdf": "%PDF-1.7\n",
        "keys": "",
        "trees": "(TOP (S (NN dog)))\n",
        "other/file": "",
        "a,b/file": "",
        "export/config.json": "{}",
        "newer/config.json": '{"format_version": 3}',
        "plan.yaml": (
            "train_files: [pairs]\noutput: made\nsteps:\n- name: one\n"
            "  kind: distillation\n  forward: [no_checkpoint]\n"
        ),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
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


@pytest.fixture(scope="module")
def results(folder):
    """The result of each case, all run in one process, and the used port."""
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = str(used.getsockname()[1])
        commands = [
            argv_of(name, arguments.replace("USED", port))
            for name, arguments, _ in CASES
        ]
        found = run_bad_commands(commands, cwd=folder)
    assert not (folder / "new").exists()
    return found, port


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=[" ".join(case[:2]) for case in CASES]
)
def test_is_refused_in_one_line_before_a_framework_is_imported(results, number):
    found, port = results
    name, _, parts = CASES[number]
    assert number < len(found), "an earlier one is not refused"
    end = found[number]
    assert (end["status"], end["slow"]) == (2, []), end
    assert end["err"].startswith(f"{NAMES[argv_of(name, 'x')[0]]}: ")
    assert end["err"].count("\n") == 1
    for part in parts:
        assert part.replace("USED", port) in end["err"]


@pytest.mark.parametrize(
    "name, told",
    [
        ("uneven", "Received: 2 in uneven.en, 1"),
        ("head.csv", "head.csv: expected pairs of en and de. Received: none\n"),
    ],
)
def test_files_are_read_to_their_ends(name, told, folder, monkeypatch, capsys):
    """Training does so when the framework is there."""
    monkeypatch.chdir(folder)
    flags = f"--workdir=new --dataset=files --train_files={name}"
    assert told in fails(wmt.main, flags.split(), capsys)
    assert not pathlib.Path("new").exists()


def test_only_what_may_be_a_repository_is_taken_for_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("runs").mkdir()
    for path in ("runs/mine", "mine", "/a/b", "a/b/c"):
        assert suggest(path) == ""
    hint = " (kt-import reads hf://owner/name@main)"
    for path in ("owner/name@main", pathlib.Path("hf://owner/name@main")):
        assert suggest(path) == hint
