"""The walk-throughs run as written, on less data and smaller models.

Commands get flags that shrink them; a training that another test has made takes
the place of the one that a dry run checks.
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib

import exports
import polib
import pytest
import scripted_server
from babel.messages import Catalog
from babel.messages.mofile import write_mo
from commands import module_of, write_pairs

import keras_transformer as kt
from trainers.datasets import phrasebook

ROOT = pathlib.Path(__file__).parents[2]
MARIAN = ROOT / "tests/fixtures/marian_shared"
MINE = ["--workdir=runs/mine"]
TINY = ["--d_model=8", "--d_ff=8", "--num_heads=2", "--num_layers=1"]
SMALL = ["--batch_tokens=400", "--num_buckets=1", "--vocab_size=120"]
QUICK = ["--train_steps=2", "--warmup_steps=1", "--valid_sentences=1"]


def section_of(heading):
    """Returns the text below a heading of the page."""
    page = (ROOT / "docs/walkthroughs.md").read_text(encoding="utf-8")
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    return text


def commands_of(heading):
    """Yields a section's commands as lists of words, variables filled in."""
    variables = {}
    for block in re.findall(r"```bash\n(.*?)```", section_of(heading), re.S):
        for line in block.replace("\\\n", "").splitlines():
            if assignment := re.fullmatch(r'(\w+)="(.*)"', line):
                variables[f"${assignment[1]}"] = assignment[2].split()
                continue
            words = shlex.split(line)
            yield [w for word in words for w in variables.get(word, [word])]


def scripts_of(heading):
    """Returns the Python scripts of a section."""
    return re.findall(r"```python\n(.*?)```", section_of(heading), re.S)


def run(words, *flags, **renamed):
    """Runs one command in this process. Returns what it prints."""
    if words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        [extras] = re.findall(r"\[([\w,]+)\]", words[-1])
        known = project["project"]["optional-dependencies"].keys()
        assert {*extras.split(",")} <= known
        return ""
    files, printed = {}, io.TextIOWrapper(io.BytesIO(), "utf-8")
    for sign in {"<", ">"} & {*words}:
        files[sign] = words.pop(words.index(sign) + 1)
        words.remove(sign)
    module, argv = module_of(words)
    argv = [*argv, *flags]
    for name, other in renamed.items():
        argv = [re.sub(rf"^--{name}=.*", f"--{name}={other}", a) for a in argv]
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if "<" in files:
            source = stack.enter_context(open(files["<"], encoding="utf-8"))
            patch.setattr("sys.stdin", source)
        stack.enter_context(contextlib.redirect_stdout(printed))
        importlib.import_module(module).main(argv)
    printed.flush()
    data = printed.buffer.getvalue()
    if ">" in files:
        pathlib.Path(files[">"]).write_bytes(data)
        return ""
    return data.decode()


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """corpus/train, valid and test in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for split, number in (("train", 60), ("valid", 3), ("test", 3)):
        pairs = phrasebook.read_split("train", number)
        write_pairs(tmp_path / "corpus" / split, pairs)
    (tmp_path / "runs").mkdir()
    return tmp_path


@pytest.mark.slow("run")
def test_a_spreadsheet(corpus):
    install, train, translate, *makers = commands_of(
        "A spreadsheet, from end to end"
    )
    write_pairs("corpus/train", phrasebook.read_split("train", 1500))
    for _, script, *arguments, _, output in makers:
        with open(output, "wb") as file:
            command = [sys.executable, ROOT / script, *arguments]
            subprocess.run(command, stdout=file, check=True)
    run(install)
    search = ["--beam_size=1", "--max_output_length=8"]
    printed = run(train, *TINY, *SMALL, *QUICK, *search)
    assert printed.splitlines()[-1].startswith("validation BLEU")
    run(translate)
    columns = "English", "German"
    table = kt.read_parallel_files(["translated.xlsx"], "en", "de", columns)
    lines = (corpus / "corpus/test.en").read_text("utf-8").splitlines()
    assert [english for english, _ in table] == lines


@pytest.mark.slow("run")
def test_300000_pairs(corpus):
    dry, translate, *others = commands_of("300,000 sentence pairs of your own")
    assert dry.pop() == "--dry_run"
    printed = run(dry, *TINY, *SMALL, "--dry_run")
    assert "fit into memory" in printed and not any(corpus.glob("runs/*"))
    shutil.copytree(exports.workdir(), corpus / "runs/mine")
    run(translate, "--beam_size=1")
    lines = (corpus / "corpus/test.en").read_text("utf-8").splitlines()
    found = (corpus / "translation.de").read_text("utf-8").splitlines()
    assert len(found) == len(lines)
    saved_model = ["--format=saved_model", "--output=exports/mine"]
    assert others == [  # which other tests run
        ["kt-tune", *MINE, "--save"],
        ["kt-evaluate", *MINE, "--test_files=corpus/test"],
        ["kt-export", *MINE, *saved_model],
    ]


@pytest.mark.computes("bfloat16")  # its file of flags names it
@pytest.mark.slow("run")
def test_a_translator_for_your_field(tmp_path, monkeypatch):
    """Without the downloads; the files of flags are those of the example."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/software_texts", "examples/software_texts")
    monkeypatch.syspath_prepend("examples/software_texts")
    install, collect, train, cool, evaluate, card, pack, translate = (
        commands_of("A translator for your field")
    )
    run(install)
    assert collect[1] == card[1].replace("card", "collect")
    pathlib.Path("texts/papers").mkdir(parents=True)
    for language in ("de", "fr", "es", "it", "pt", "ru"):
        pairs = phrasebook.read_split("train", 60)
        for name in ("train", "valid", "test-impress"):
            write_pairs(f"texts/{name}.en-{language}", pairs)
            for old in pathlib.Path("texts").glob(f"{name}.en-{language}.de"):
                old.rename(old.with_suffix(f".{language}"))
    pathlib.Path("texts/counts.tsv").write_text("program\ttrain\ntrac\t7\n")
    pathlib.Path("texts/papers/Trac-1-6").write_text(
        "pypi:Trac==1.6 Trac.whl\nHome-page: https://t\nCopyright (C) 2003 E\n"
    )
    small = [*QUICK, "--vocab_size=400", "--d_model=8", "--d_ff=8"]
    small += ["--num_heads=2", "--num_layers=1", "--num_decoder_layers=1"]
    run(train, *small)
    printed = run(cool, *small)
    assert "initial weights: runs/en-xx/checkpoints/ckpt-2" in printed
    run(evaluate, "--beam_size=1", "--max_output_length=8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", card[1:])
        runpy.run_path(card[1], run_name="__main__")
    run(pack)
    about = pathlib.Path("exports/en-xx/README.md").read_text()
    for part in (
        "trac, 7 pairs (Trac.whl), BSD-3-Clause, (C) 2003 E, https://t",
        "| impress | en-fr |",
        "MERCHANTABILITY",
        'license: "mpl-2.0"',
    ):
        assert part in about
    pathlib.Path("english.txt").write_text("the dog\n")
    assert run(translate, "--max_output_length=4").count("\n") == 1


@pytest.mark.slow("run")
def test_opus_mt(corpus):
    install, import_model, before, wmt, after = commands_of(
        "An OPUS-MT model on your own domain"
    )
    run(install)
    assert "--source=hf://Helsinki-NLP/opus-mt-en-de" in import_model
    assert "(huggingface)" in run(import_model, source=MARIAN)
    search = ["--beam_size=1", "--max_output_length=8"]
    score = json.loads(run(before, *search).splitlines()[-1])
    printed = run(wmt, *QUICK, "--batch_tokens=400", "--num_buckets=1")
    assert "initial weights: runs/opus_en_de/averaged/ckpt-0" in printed
    compared = json.loads(run(after, *search).splitlines()[-1])["compare"]
    original = compared["baseline"]
    assert original["name"] == "runs/opus_en_de"
    assert original["BLEU"]["score"] == pytest.approx(score["bleu"], abs=0.01)
    assert [new["name"] for new in compared["systems"]] == ["runs/domain"]


def test_a_client(capsys):
    [script] = scripts_of("Translate over HTTP")
    assert script.count("\n") < 16
    with scripted_server.serving() as server:
        exec(script.replace("8080", str(server.server_port)), {})
    text = "Restart the server."
    assert server.asked == [{"text": text, "source": "en", "target": "de"}]
    assert capsys.readouterr().out == "SERVER. THE RESTART\n"


def test_a_layer(corpus):
    sentences = [pair[0] for pair in phrasebook.read_split("train", 100)]
    rows = [f"{int(s.endswith('?'))}\t{s}\n" for s in sentences]
    (corpus / "reviews.tsv").write_text("".join(rows), "utf-8")
    [script] = scripts_of("A layer in your own model")
    assert "vocab_size=8000" in script
    names = {}
    exec(script.replace("vocab_size=8000", "vocab_size=150"), names)
    losses = names["model"].history.history["loss"]
    assert losses[-1] < losses[0]
    assert (corpus / "reviews.keras").exists()


def test_the_headings_are_those_of_the_list():
    page = (ROOT / "docs/walkthroughs.md").read_text(encoding="utf-8")
    anchors = [
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^## (.*)", page, re.M)
    ]
    assert anchors == re.findall(r"\]\(#([^)]+)\)", page)
    assert kt.PRESETS.keys() >= set(re.findall(r"--recipe=(table3_\w+)", page))


# ---- The messages of a program -----------------------------------------------

# The programs of Debian that collect.py runs; here an archive is a tar.
PROGRAMS = {
    "apt-get": 'cp "$DEBS/$3.tar" "$3_1.0-1_all.deb"',
    "dpkg-deb": 'cat "$2"',
}
CATALOGS = {
    "geany": [("_File", "_Datei"), ("Save as", "Speichern als"), ("A", "B")],
    "wget": [("&Quit now", "&Jetzt beenden"), ("Save as", "Ablegen als")],
    "nano": [
        ("Save as", "Sichern als"),
        ("File", "Datei"),
        ("Done now. Lines: <b>%s</b>", "Fertig. Zeilen: <b>%s</b>"),
        ("Quit now", "Beenden"),
        ("Status", "Status"),
    ],
}
MESSAGES = "The messages of a program"
TEMPLATE = """msgid ""
msgstr ""
"Language: de\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#, c-format
msgid "%d _File of <b>%s</b>"
msgid_plural "%d _Files of <b>%s</b>"
msgstr[0] ""
msgstr[1] ""
"""


def write_package(folder, name, pairs):
    """Writes an archive with a catalogue. nano's licence links to geany's."""
    catalog = Catalog("de")
    for source, target in pairs:
        catalog.add(source, target)
    file = io.BytesIO()
    write_mo(file, catalog)
    with tarfile.open(folder / f"{name}.tar", "w") as archive:

        def add(path, data=b"", link=""):
            member = tarfile.TarInfo(path)
            member.size, member.linkname = len(data), link
            member.type = tarfile.SYMTYPE if link else tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(data))

        for language in ("de", "fr"):
            folder = f"./usr/share/locale/{language}/LC_MESSAGES"
            add(f"{folder}/{name}.mo", file.getvalue())
        add(f"./usr/share/{name}/de.txt", b"no catalogue")
        if name == "nano":
            add("./usr/share/doc/nano", link="geany")
        else:
            add(f"./usr/share/doc/{name}/copyright", name.encode())


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """Three packages in an own distribution, and an empty directory."""
    folder = tmp_path / "debian"
    folder.mkdir()
    for name, pairs in CATALOGS.items():
        write_package(folder, name, pairs)
    for name, script in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("DEBS", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def read_set(name):
    """Reads the pairs of a set."""
    texts = (
        pathlib.Path(f"messages/de/{name}.{code}").read_text("utf-8")
        for code in ("en", "de")
    )
    return [*zip(*map(str.splitlines, texts), strict=True)]


def collect(**changed):
    """Runs the walk-through's second command for three packages."""
    _, words, *_ = commands_of(MESSAGES)
    three = {"packages": "geany wget nano", "valid": "wget", "test": "nano"}
    for name, other in {**three, **changed}.items():
        words = [
            re.sub(rf"^--{name}=.*", f"--{name}={other}", w) for w in words
        ]
    assert words[0] == "python"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", words[1:])
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")


def test_messages_are_collected(debian):
    collect()
    # Without marks, tags, names, and what is the same; in sentences.
    assert read_set("train") == [
        ("Save as", "Speichern als"),
        ("File", "Datei"),
    ]
    assert read_set("valid") == [("Quit now", "Jetzt beenden")]
    assert read_set("test") == [
        ("Done now.", "Fertig."),
        ("Lines: %s", "Zeilen: %s"),
        ("Quit now", "Beenden"),
    ]
    # A memory of the training set knows them, and one of them better.
    assert read_set("known") == [("File", "Datei"), ("Save as", "Sichern als")]
    messages = debian / "messages"
    answers = (messages / "de/known.memory").read_text().splitlines()
    assert answers == ["Datei", "Speichern als"]
    for name, licence in (("wget", "wget"), ("nano", "geany")):
        folder = messages / "catalogs" / name
        assert (folder / "copyright").read_text() == licence
        assert [path.name for path in folder.glob("**/*.mo")] == [f"{name}.mo"]
    counts = (messages / "de/counts.tsv").read_text().splitlines()
    assert counts[1:] == ["geany\ttrain\t2\t2\t0", "wget\tvalid\t2\t1\t1"] + [
        "nano\ttest\t5\t3\t2"
    ]


@pytest.mark.computes("bfloat16")  # a command of the page names it
@pytest.mark.slow("run")
def test_messages_of_a_program(debian):
    install, _, train, evaluate, compare, *others = commands_of(MESSAGES)
    run(install)
    collect()
    # For the vocabulary and for a step, there must be more of it.
    for split in ("train", "valid"):
        pairs = read_set(split) + phrasebook.read_split("train", 60)
        write_pairs(f"messages/de/{split}", pairs)
    fit = ["--batch_tokens=400", "--num_buckets=1", "--vocab_size=330"]
    run(train, *TINY, *QUICK, *fit, "--num_decoder_layers=1")
    words = [
        word.replace("python examples", f"{sys.executable} {ROOT}/examples")
        for word in evaluate
    ]
    search = ["--beam_size=1", "--max_output_length=8"]
    scores = json.loads(run(words, *search).splitlines()[-1])
    assert scores["score_command"] == 0  # two steps are no training
    scores = json.loads(run(compare, *search).splitlines()[-1])
    assert scores["compare"]["baseline"]["name"].endswith("known.memory")

    init, translate, clear, check, adapt, translate_rest = others
    programs = [command[0] for command in (init, clear, check)]
    assert programs == ["msginit", "msgattrib", "msgfmt"]
    pathlib.Path("de.po").write_text(TEMPLATE)
    run(translate, *search)
    [entry] = polib.pofile("translated.po")
    for form in filter(None, entry.msgstr_plural.values()):
        assert all(form.count(part) == 1 for part in ("%d", "<b>%s</b>"))
        assert entry.fuzzy
    form = '[0] "%d _Datei von <b>%s</b>"'
    pathlib.Path("old.po").write_text(TEMPLATE.replace('[0] ""', form))
    run(adapt, *QUICK, *fit[:2], "--lora_rank=2")
    run(translate_rest, *search)
    assert polib.pofile("translated.po")[0].msgstr_plural[0] in form


def test_exact_matches(tmp_path, capsys):
    (tmp_path / "output").write_text("Datei\nAlle\ndatei\n")
    (tmp_path / "reference").write_text("Datei\nAlles\nDatei\n")
    script = ROOT / "examples/localization/exact.py"
    with pytest.MonkeyPatch.context() as patch:
        argv = [script, tmp_path / "output", tmp_path / "reference"]
        patch.setattr("sys.argv", argv)
        runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == "exact matches: 33.33\n"
