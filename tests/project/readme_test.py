"""README and docs: scripts run as written, names and flags exist.

Scripts run on smaller numbers and smaller models.
"""

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap

import exports
import keras
import numpy as np
import pytest
import yaml
from commands import SCRIPTS, module_of
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer import layers
from trainers.datasets import phrasebook

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES += sorted(ROOT.glob("benchmarks/*.md"))
PACKAGES = ("keras_transformer", "trainers", "savedmodel")
SHELVES = [
    page
    for name in PACKAGES
    for page in sorted(ROOT.glob(f"{name}/**/*.md"))
    if "box" not in page.parts  # the cards of models
]
PAGES += SHELVES
LIBRARY = "docs/library.md"
SENTENCE = "two red dogs"  # of the vocabulary that exports have here
# Flags of TensorFlow and its Serving, of Marian and fairseq, of COMET and
# MetricX, and one form of a flag of the benchmarks.
FLAGS_OF_OTHERS = {
    "tf_xla_persistent_cache_directory",
    "allow-unk",
    "layernorm-embedding",
    "no-cross-attention",
    "no-scale-embedding",
    "transformer-postprocess",
    "enable_batching",
    "batching_parameters_file",
    "xla_cpu_compilation_enabled",
    "model_config_file",
    "no-jit_compile",
    "gpus",
    "quiet",
    "only_system",
    "to_json",
    "model_name_or_path",
}


# Commands of other programs in blocks of code.
COMMANDS_OF_OTHERS = set(
    ". apt-get bash cat cd comet-score curl docker echo eflomal-align git head"
    " hf msgattrib msgfmt msginit node npm paste pip sbatch tar tensorboard"
    " test twine useradd".split()
)
MODULES_OF_OTHERS = {"build", "http.server", "pip", "pytest", "venv"}


def script_of(page, section):
    """Returns the first Python block below a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text.split(section)[1], re.S)[1]


def replace(script, ours, other):
    assert ours in script
    return script.replace(ours, other)


def run(script):
    """Runs a script on `SENTENCE`. Returns its variables."""
    variables = {}
    script = script.replace("A dog runs.", SENTENCE)
    exec(compile(script, "<documentation>", "exec"), variables)
    return variables


# ---- Scripts -----------------------------------------------------------------


def test_the_script_trains_and_translates(tmp_path, monkeypatch, capsys):
    script = script_of("README.md", "## Use a model in Python")
    assert script.count("\n") <= 12
    script = replace(script, "vocab_size=8000", "vocab_size=300")
    script = replace(script, "epochs=20", "epochs=1")
    script = replace(
        script,
        '"tiny", ',
        '"tiny", d_model=16, d_ff=32, num_heads=2, num_layers=1, ',
    )
    (tmp_path / "corpus").mkdir()
    english, german = zip(*phrasebook.read_split("train", 100), strict=True)
    for language, lines in (("en", english), ("de", german)):
        path = tmp_path / "corpus" / f"train.{language}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run(script)
    assert re.search(r"\['.*'\]\s*$", capsys.readouterr().out)


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """A function that links exports/FORMAT to a shared export."""

    def make(format_name):
        (tmp_path / "exports").mkdir()
        (tmp_path / "exports" / format_name).symlink_to(
            exports.exported(format_name)[0]
        )
        monkeypatch.chdir(tmp_path)

    return make


def test_tensorflow_translates_a_sentence(exported, capsys):
    exported("saved_model")
    script = script_of("docs/exports.md", "## TensorFlow")
    run(replace(script, "exports/translator", "exports/saved_model"))
    [expected] = exports.translator().translate([SENTENCE])
    assert capsys.readouterr().out == expected + "\n"


def test_litert_translates_standard_input(exported, monkeypatch, capsys):
    exported("tflite")
    lines = [SENTENCE, "red dog", "tree"]
    text = "".join(line + "\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    run(script_of("docs/exports.md", "## LiteRT"))
    expected = exports.translator().translate(lines)
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.slow("format")
def test_onnx_runtime_translates_a_sentence(exported, capsys):
    exported("onnx")
    run(script_of("docs/exports.md", "## ONNX Runtime"))
    [expected] = exports.translator().translate([SENTENCE])
    assert capsys.readouterr().out == expected + "\n"


def test_ctranslate2_translates_a_sentence(exported, capsys):
    """Greedily: its beams are ranked otherwise, as docs/exports.md says."""
    exported("ctranslate2")
    script = script_of("docs/exports.md", "## CTranslate2")
    script = replace(
        script,
        "beam_size=4, length_penalty=0.6",
        "beam_size=1, length_penalty=0",
    )
    script = replace(
        script,
        "len(source) + 50",
        f"len(source) + {exports.DECODING.extra_length}",
    )
    run(script)
    greedy = dataclasses.replace(exports.DECODING, beam_size=1)
    translator = kt.Translator.load(exports.workdir(), greedy)
    assert capsys.readouterr().out == translator.translate([SENTENCE])[0] + "\n"


@pytest.mark.slow("run")
def test_a_classifier_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = run(script_of(LIBRARY, "### A classifier"))
    assert capsys.readouterr().out == "1.0\n"
    loaded = keras.saving.load_model("classifier.keras")
    expected = found["model"].predict(found["rows"], verbose=0)
    assert_close(loaded.predict(found["rows"], verbose=0), expected)


@pytest.mark.slow("run")
def test_a_decoder_alone_learns_lines_and_writes_one(tmp_path, capsys):
    found = run(script_of(LIBRARY, "### A decoder alone"))
    written = capsys.readouterr().out
    assert re.search(r"\['\d+ plus \d+ is \d+'\]\s*$", written)
    history = found["model"].history.history["perplexity"]
    assert history[-1] < history[0] / 2
    # No token sees the next ones, and one matrix serves both ends.
    text = found["labels"][:1].copy()
    before = found["model"](text).numpy()
    text[0, 3] += 1
    after = found["model"](text).numpy()
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3] != after[:, 3]).any()
    shapes = [tuple(v.shape) for v in found["model"].trainable_variables]
    assert shapes.count((found["tokenizer"].vocab_size, 64)) == 1
    found["model"].save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(text).numpy(), after)


@pytest.mark.slow("run")
def test_a_model_of_continuous_inputs(tmp_path, capsys):
    found = run(script_of(LIBRARY, "### Continuous inputs"))
    numbers = re.findall(r"\d\.\d+", capsys.readouterr().out)
    error, unchanged = map(float, numbers)
    assert error < unchanged / 3
    model, waves = found["model"], found["waves"][:4, :-1]
    changed = waves.copy()
    changed[:, 20:] += 1
    before = model.predict(waves, verbose=0)
    after = model.predict(changed, verbose=0)
    assert_close(after[:, :20], before[:, :20])  # no time sees a later one
    assert (np.abs(after - before)[:, 20:] > 1e-3).any()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded.predict(waves, verbose=0), before)


def test_lora_trains_its_matrices_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "quickstart").symlink_to(exports.workdir())
    monkeypatch.chdir(tmp_path)
    source_ids, target_ids = np.array([[5, 7, 2]]), np.array([[1, 6]])
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    expected = exports.translator().model(inputs).numpy()
    model = run(script_of(LIBRARY, "## LoRA"))["model"]
    assert_close(model(inputs), expected)
    names = {variable.name for variable in model.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b"}
    number = sum(v.numpy().size for v in model.trainable_variables)
    assert capsys.readouterr().out == f"{number}\n"
    # A saved model is an ordinary one, with the sum in its projections.
    model.compile(kt.paper_adam(16, 1), kt.SmoothedCrossEntropy(0.1))
    model.fit(inputs, np.array([[6, 2]]), verbose=0)
    model.fit(inputs, np.array([[6, 2]]), verbose=0)
    trained = model(inputs).numpy()
    assert (trained != expected).any()
    model.save("adapted.keras")
    loaded = keras.saving.load_model("adapted.keras")
    assert len(loaded.weights) == len(exports.translator().model.weights)
    np.testing.assert_allclose(loaded(inputs), trained, atol=1e-5)


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if "```python" in p.read_text("utf-8")],
    ids=lambda page: page.name,
)
def test_our_package_is_imported_before_keras(page):
    """Then TensorFlow starts quietly, and our settings apply."""
    for script in re.findall(
        r"```python\n(.*?)```", page.read_text("utf-8"), re.S
    ):
        names = re.findall(r"^(?:import|from) (\w+)", script, re.M)
        if {"keras", "keras_transformer"} <= set(names):
            ours = names.index("keras_transformer")
            assert ours < names.index("keras"), script


# ---- What the pages name -----------------------------------------------------


def read_pages():
    return [(page, page.read_text(encoding="utf-8")) for page in PAGES]


def test_readme_is_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("\n") < 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not link.startswith(("http://", "https://")):
            assert (page.parent / link).exists(), link


def test_promises_of_equality_have_tests():
    text = (ROOT / "docs/equality.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)` \|$", text, re.M)
    assert len(named) == len(rows) - 3 > 20  # without the heads of tables
    for path, name in named:
        code = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", code, re.M), name


def test_public_names_exist():
    for page, text in read_pages():
        for name in re.findall(r"\bkt\.(\w+)", text):
            assert hasattr(kt, name), f"{page.name}: kt.{name}"


@functools.cache
def help_of(command):
    """Returns the flags in a command's --helpfull, `nofeature` included."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        importlib.import_module(command).main(["--helpfull"])
    flags = re.findall(r"--(\[no\])?(\w+)", printed.getvalue())
    names = {name for _, name in flags} | {"help", "helpfull", "flagfile"}
    return names | {f"no{name}" for no, name in flags if no}


def commands_of(text):
    """Yields `(command, its arguments)` of the pages' code, lines joined."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"[;`]|&&|\s\|\s", line):
            found = re.search(
                r"(?<![\w/-])(?:kt-|(?:\S*/)?python3? -m).*", part
            )
            if not found or re.match(r"kt-(?![a-z-]+(\s|$))", found[0]):
                continue
            words = re.sub(r"\s#.*", "", found[0]).split()
            command, arguments = module_of(words)
            if command in SCRIPTS.values():
                yield command, " ".join(arguments)


def test_commands_have_the_flags_that_pages_give_them():
    number = 0
    for page, text in read_pages():
        for command, arguments in commands_of(text):
            for flag in re.findall(r"(?<!\S)--(\w+)", arguments):
                assert flag in help_of(command), (
                    f"{page.name}: {command} {flag}"
                )
                number += 1
    assert number > 60  # else the pages are not read as they should be


def flags_of_scripts():
    """Returns the flags of the parsers in benchmarks and examples."""
    paths = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*/*.py")]
    sources = [path.read_text() for path in paths]
    return set(re.findall(r'add_argument\(\s*"--(\w+)"', "".join(sources)))


def blocks_of(text):
    """Yields `(language, code)` of each block of code, without its indent."""
    for _, language, code in re.findall(
        r"^( *)```(\w*).*\n((?:.*\n)*?)\1```$", text, re.M
    ):
        yield language, textwrap.dedent(code)


def simple_commands(script):
    """Yields the words of each command of a shell script.

    Words of its grammar, assignments and redirections are left out.
    """
    done = subprocess.run(
        ["bash", "-n"], input=script, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr + script
    script = re.sub(r"\$\(|(?m:^|\s)#.*|\s[<>] \S+", "\n", script)
    ends = ";&|()\n"
    reader = shlex.shlex(script.replace("\\\n", " "), None, True, ends)
    reader.whitespace_split, reader.whitespace = True, " \t"
    words = []
    for word in [*reader, ";"]:
        if not set(word) <= set(ends):
            is_start = re.fullmatch(r"\w+=.*|do|exec|export|sudo", word, re.S)
            words += [] if is_start and not words else [word]
            continue
        if words and words[0] not in ("for", "done"):
            yield words
        words = []


def check_command(words):
    """Checks that a command, its script and their flags exist."""
    name, *arguments = words
    command, rest = module_of(words)
    flags = {word[2:].split("=")[0] for word in rest if word[:2] == "--"}
    if command in SCRIPTS.values():
        assert flags <= help_of(command), words
    elif name == "make":
        targets = re.findall(
            r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M
        )
        named = [word for word in arguments if re.fullmatch(r"[\w-]+", word)]
        assert set(named) <= set(targets), words
    elif pathlib.Path(name).name.startswith("python") and arguments:
        if arguments[0].endswith(".py"):
            script = (ROOT / arguments[0]).read_text("utf-8")
            assert flags <= set(re.findall(r"\w+", script)), words
        elif command is not None:
            assert command in MODULES_OF_OTHERS, words
    else:
        known = COMMANDS_OF_OTHERS | {"$wmt"}  # a variable of docs/synthesis.md
        assert name.rpartition("/")[2] in known, words


def is_shell(language, code):
    """Whether a block is for a shell; blocks of output have no language."""
    first = code.split(maxsplit=1)[0] if code.strip() else ""
    name = first.removeprefix(".venv/bin/")
    ours = name in SCRIPTS or name in COMMANDS_OF_OTHERS
    return language in ("bash", "sh") or (language == "" and ours)


def test_every_block_of_a_shell_has_commands_that_exist():
    number = 0
    for _, text in read_pages():
        for language, code in blocks_of(text):
            if is_shell(language, code):
                for words in simple_commands(code):
                    check_command(words)
                    number += 1
            if language == "ini":
                [start] = re.findall("ExecStart=(.*)", code)
                path, *arguments = start.split()
                check_command([path.rpartition("/")[2], *arguments])
    assert number > 150


def commands_of_yaml(found):
    """Yields the words of each command in a container, or of SkyPilot."""
    if isinstance(found, list):
        for one in found:
            yield from commands_of_yaml(one)
    elif isinstance(found, dict):
        if "image" in found:
            yield [*found["command"], *found.get("args", ())]
        for name in {"setup", "run"} & found.keys():
            yield from simple_commands(found[name])
        yield from commands_of_yaml(list(found.values()))


def test_every_block_of_yaml_is_read_and_has_commands_that_exist():
    kinds = []
    for _, text in read_pages():
        for language, code in blocks_of(text):
            if language == "yaml":
                found = yaml.safe_load(code)
                kinds.append(found.get("kind"))
                for words in commands_of_yaml(found):
                    check_command(words)
    for path in ROOT.glob(".github/workflows/*.yml"):
        for words in commands_of_yaml(yaml.safe_load(path.read_text())):
            check_command(words)
    assert {"Job", "JobSet"} <= {*kinds}
    [workers] = re.findall(
        r"TF_CONFIG, value: '(.*?)'",
        (ROOT / "docs/devices.md").read_text(),
        re.S,
    )
    workers = json.loads(" ".join(workers.replace("$(INDEX)", "1").split()))
    assert workers["task"]["index"] < len(workers["cluster"]["worker"])


def test_the_image_and_its_composition_have_commands_that_exist():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [
        line.partition(" ") for line in text.splitlines() if line[:1] > "#"
    ]
    instructions = {name: rest for name, _, rest in lines}
    assert instructions.keys() <= set(
        "FROM WORKDIR COPY RUN USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT"
        " CMD".split()
    )
    entry = json.loads(instructions["ENTRYPOINT"])
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for arguments in (
        json.loads(instructions["CMD"]),
        services["server"]["command"],
    ):
        check_command([*entry, *arguments])
    for name, _, rest in lines:
        if name == "RUN":
            for words in simple_commands(rest):
                check_command(words)
        elif name == "COPY":
            assert all((ROOT / path).exists() for path in rest.split()[:-1])
    mounted = services["nginx"]["volumes"][0].split(":")[0]
    assert (ROOT / mounted).exists()


def test_flags_in_the_text_exist():
    known = set().union(*map(help_of, SCRIPTS.values())) | FLAGS_OF_OTHERS
    known |= flags_of_scripts()
    for page, text in read_pages():
        for code in re.findall(r"(?<!`)`(--[^`]+)`(?!`)", text):
            for flag in re.findall(r"(?<!\S)--([\w-]+)", code):
                assert flag in known, f"{page.name}: --{flag}"


def test_recipes_are_listed():
    text = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    recipes = {path.stem for path in ROOT.glob("trainers/configs/*.flags")}
    assert recipes == {name for name in recipes if f"`{name}`" in text}
    for page, text in read_pages():
        for name in re.findall(
            r"--(?:recipe=|flagfile=trainers/configs/)(\w+)", text
        ):
            assert name in recipes | {"NAME"}, f"{page.name}: {name}"


def test_architecture_names_every_folder_and_every_shelf_has_a_page():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            name = path.relative_to(ROOT / package).as_posix()
            is_code = path.name != "__pycache__" and "box" not in path.parts
            if path.is_dir() and is_code:
                assert f"`{name}/`" in text, path
    links = set(re.findall(r"\((\w+/[\w/]*README\.md)\)", text))
    assert links == {str(page.relative_to(ROOT)) for page in SHELVES}
    assert len(text.split()) <= 2500
    for page in SHELVES:
        assert len(page.read_text(encoding="utf-8").split()) <= 400, page


@pytest.fixture(scope="module")
def known():
    """The files of the repository, and the words of its code."""
    paths = [
        path
        for folder in (*PACKAGES, "tests", "docs")
        for path in (ROOT / folder).rglob("*.*")
    ]
    paths += ROOT.glob("*.*")
    code = (".py", ".pyi", ".js", ".toml")
    texts = [p.read_text("utf-8") for p in paths if p.suffix in code]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]
    return files, set(re.findall(r"\w+", "\n".join(texts)))


@pytest.mark.parametrize(
    "page", [ROOT / "ARCHITECTURE.md", *SHELVES], ids=lambda p: p.parent.name
)
def test_names_in_pages_of_maintainers_exist(page, known):
    """A path is the end of a file's path, a name has words of the code."""
    files, words = known
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for name in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w./]+\.(py|pyi|js|css|html|md|toml|yml)", name):
            assert any(file.endswith(f"/{name}") for file in files), name
        elif re.fullmatch(r"(?!tests/)[\w/]+/", name):
            assert any(f"/{name}" in file for file in files), name
        elif re.fullmatch(r"[\w.]+", name):
            assert set(re.findall(r"\w+", name)) <= words, name


def test_figure_names_classes_and_files_that_exist():
    figure = (ROOT / "docs/figure1.svg").read_text(encoding="utf-8")
    labels = re.findall(r'monospace" font-weight="bold">([^<]+)<', figure)
    names = re.findall(r"\w+", " ".join(labels).replace(".logits", ""))
    assert len(names) >= 14
    for name in names:  # of the frame around sub-layers, which is not public
        assert hasattr(kt, name) or hasattr(layers, name), name
    for name in set(re.findall(r"[\w/]+\.py", figure)):
        assert (ROOT / "keras_transformer" / name).exists(), name


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {kt.__version__}\n" in citation
    [day] = re.findall(r"\ndate-released: (\d{4}-\d\d-\d\d)\n", citation)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{kt.__version__}] - {day}\n" in changes
