"""The package's surface: public names, lazy imports, quiet commands."""

import ast
import importlib
import inspect
import os
import pathlib
import platform
import re
import sys

import pytest
from commands import NAMES, SCRIPTS, run_bad_commands, run_python
from later import later

import keras_transformer as kt
from keras_transformer.base import machine
from keras_transformer.commands import quiet, startup
from trainers import (
    align,
    evaluate,
    parse_evaluate,
    parse_text,
    score,
    translate,
    tune,
)
from trainers.translating import options

ROOT = pathlib.Path(__file__).parents[2]
THREADS = "TF_NUM_INTRAOP_THREADS"
SIDE_BY_SIDE = "TF_NUM_INTEROP_THREADS"
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
COMMANDS = (
    *sorted(
        f"trainers.{path.stem}"
        for path in (ROOT / "trainers").glob("*.py")
        if path.stem != "__init__"
    ),
    "savedmodel.export",
    "savedmodel.verify",
)


# Public names


def homes():
    """Returns {public name: the module that the stub imports it from}."""
    tree = ast.parse((ROOT / "keras_transformer/__init__.pyi").read_text())
    return {
        alias.name: f"keras_transformer.{node.module}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", kt.__all__)
def test_every_public_name_is_where_the_stub_says(name):
    home = importlib.import_module(homes()[name])
    assert getattr(kt, name) is getattr(home, name)
    module = getattr(getattr(kt, name), "__module__", home.__name__)
    in_home = f"{module}.".startswith(f"{home.__name__}.")
    assert in_home or module == "builtins"
    assert name in dir(kt)


def test_the_stub_lists_the_public_names():
    assert sorted(homes()) == sorted(kt.__all__)
    assert {"Transformer", "Translator", "preset"} < set(kt.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kt.no_such_name


@pytest.mark.parametrize(
    "program",
    [
        "import keras; import keras_transformer",
        *later(
            "process",
            "from keras_transformer import layers; import keras_transformer as"
            " kt; kt.Transformer; import keras",
        ),
    ],
)
@pytest.mark.slow("process")
def test_serializable_classes_are_registered(program):
    """Keras loads files with these classes once they are imported."""
    expected = set()
    for path in (ROOT / "keras_transformer").rglob("*.py"):
        expected.update(
            re.findall(
                r'^@keras\.saving\.register_keras_serializable\("'
                r'keras_transformer"\)\n(?:class|def) (\w+)',
                path.read_text("utf-8"),
                re.MULTILINE,
            )
        )
    assert "Transformer" in expected
    show = "print(*keras.saving.get_custom_objects())"
    found = run_python("-c", f"{program}; {show}").split()
    assert {f"keras_transformer>{name}" for name in expected} <= set(found)


def test_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", kt.__version__)
    for name in ("setup.py", "pyproject.toml"):
        assert f'"{kt.__version__}"' not in (ROOT / name).read_text("utf-8")


def test_setup_runs_on_a_python_that_pip_then_refuses():
    """Python 3.10 has no tomllib."""
    tree = ast.parse((ROOT / "setup.py").read_text("utf-8"))
    found = {
        getattr(node, "module", None) or node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert found == {"pathlib", "re", "setuptools"}


def test_the_package_lists_its_commands():
    lines = run_python("-m", "keras_transformer").splitlines()[1:]
    assert [line.split()[0] for line in lines] == sorted(SCRIPTS)
    assert all(len(line.split()) > 3 for line in lines)


def unannotated(function):
    """Returns a function's parameters and result that have no type hint."""
    signature = inspect.signature(function)
    names = [
        p.name
        for p in signature.parameters.values()
        if p.annotation is p.empty
        and p.name not in ("self", "cls")
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if signature.return_annotation is signature.empty:
        names += ["return"] if function.__name__ != "__init__" else []
    return names


@pytest.mark.parametrize("name", kt.__all__)
def test_public_names_have_type_hints(name):
    """Functions, constructors, and the methods that are documented."""
    value = getattr(kt, name)
    if inspect.isfunction(value):
        assert not unannotated(value)
    elif inspect.isclass(value):
        for method_name, method in vars(value).items():
            if isinstance(method, (classmethod, staticmethod)):
                method = method.__func__
            if not inspect.isfunction(method) or not method.__module__:
                continue
            if not method.__module__.startswith("keras_transformer"):
                continue
            public = not method_name.startswith("_")
            if method_name == "__init__" or (public and method.__doc__):
                assert not unannotated(method), f"{name}.{method_name}"


# Quiet and quick commands


def test_bad_flags_are_refused_before_anything_slow_is_imported():
    given = [[command, "--no_such_flag=1"] for command in COMMANDS]
    assert run_bad_commands(given) == [
        {
            "status": 2,
            "err": f"{NAMES[command]}: Unknown command line flag"
            " 'no_such_flag'\n",
            "slow": [],
        }
        for command in COMMANDS
    ]


@pytest.mark.slow("process")
def test_translating_imports_neither_training_nor_what_frameworks_import():
    """JAX and matplotlib can be imported all the same."""
    program = (
        "import sys; from keras_transformer.commands.startup import load;"
        "load('keras_transformer.translation.batched');"
        "load('keras_transformer.model');"
        "others = {'jax', 'matplotlib'} | {f'keras_transformer.training.{name}'"
        " for name in ('loss', 'metrics', 'schedule', 'step')};"
        "print(others & set(sys.modules));"
        "import matplotlib.pyplot, jax"
    )
    assert run_python("-c", program) == "set()\n"


@pytest.mark.parametrize("gpus, level", [([], "2"), (["NVIDIA A"], "0")])
def test_tensorflow_tells_why_it_cannot_use_a_gpu(gpus, level, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(machine, "find_gpus", lambda: gpus)
    assert quiet.choose_log_level() == (not gpus)
    assert os.environ == {"TF_CPP_MIN_LOG_LEVEL": level}
    monkeypatch.setattr(os, "environ", {"TF_CPP_MIN_LOG_LEVEL": "1"})
    quiet.choose_log_level()
    assert os.environ == {"TF_CPP_MIN_LOG_LEVEL": "1"}


@pytest.fixture
def prepare(monkeypatch):
    """Returns the variables that a function sets before TensorFlow is imported.

    Once TensorFlow is imported, the function sets none.
    """

    def prepare_with(function, before, *arguments):
        monkeypatch.setattr(os, "environ", dict(before))
        monkeypatch.setitem(sys.modules, "tensorflow", None)  # it has begun
        function(*arguments)
        assert os.environ == before
        monkeypatch.delitem(sys.modules, "tensorflow")
        function(*arguments)
        return dict(os.environ.items() - before.items())

    monkeypatch.setattr(startup, "count_cores", lambda: 6)
    monkeypatch.setattr(startup, "_prepared", dict(startup._prepared))
    return prepare_with


@pytest.mark.parametrize(
    ("processor", "before", "added"),
    [
        ("x86_64", {}, {ONEDNN: "1"}),
        ("AMD64", {}, {ONEDNN: "1"}),
        ("x86_64", {ONEDNN: "0"}, {}),
        ("aarch64", {}, {}),
    ],
)
def test_onednn_multiplies_on_x86(
    processor, before, added, prepare, monkeypatch
):
    monkeypatch.setattr(platform, "machine", lambda: processor)
    assert prepare(machine.prefer_onednn, before) == added


@pytest.mark.parametrize("switch", [None, "0"])
def test_importing_the_package_switches_onednn_on(switch, monkeypatch):
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    expected = "1" if switch is None and is_x86 else switch
    monkeypatch.delenv(ONEDNN, raising=False)
    environment = {} if switch is None else {ONEDNN: switch}
    program = "import os, keras_transformer; print(os.environ.get('%s'))"
    found = run_python("-c", program % ONEDNN, **environment)
    assert found == f"{expected}\n"


def test_training_divides_the_cores_and_keeps_memory(prepare):
    found = prepare(startup.prepare_cpu, {}, None)
    memory = int(found.pop("TF_CPU_BFC_MEM_LIMIT_IN_MB")) * 2**20
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 <= physical - memory < 2**20
    threads = {THREADS: "1", SIDE_BY_SIDE: "6"}
    assert found == {**threads, "TF_CPU_ALLOCATOR_USE_BFC": "true"}
    own = {THREADS: "4", "TF_CPU_ALLOCATOR_USE_BFC": "false"}
    found = prepare(startup.prepare_cpu, own, 3)
    assert found[SIDE_BY_SIDE] == "3" and not found.keys() & own.keys()


@pytest.mark.parametrize(
    ("arguments", "within", "side_by_side", "num_slices"),
    [
        ((None, 6), "1", "6", 6),
        ((None, 4), "1", "4", 4),
        ((None, 2), "3", "2", 2),
        ((4, 1), "4", "4", 1),  # as with XLA
        ((1, 1), None, None, 1),  # TensorFlow decides
        ((16,), "2", "8", 8),  # of a script, which says no number
    ],
)
def test_threads_beyond_the_slices_divide_operations(
    arguments, within, side_by_side, num_slices, prepare
):
    found = prepare(startup.prepare_cpu, {}, *arguments)
    assert found.get(THREADS) == within
    assert found.get(SIDE_BY_SIDE) == side_by_side
    assert startup.prepared_slices() == num_slices


def test_a_tensorflow_that_has_begun_has_one_slice(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    startup.prepare_cpu(None)
    assert startup.prepared_slices() == 1


@pytest.mark.parametrize(
    ("jit_compile", "before", "added"),
    [
        (False, {}, {THREADS: "1"}),
        (True, {}, {}),
        (False, {THREADS: "4"}, {}),
    ],
)
def test_searches_do_not_divide_operations(jit_compile, before, added, prepare):
    assert prepare(startup.prepare_search, before, jit_compile) == added


@pytest.mark.parametrize("flag", ["--jit_compile", "--nojit_compile"])
def test_commands_prepare_their_search(flag, tmp_path, monkeypatch):
    def prepare(jit_compile):
        raise Kept(jit_compile)

    expected = "True" if flag == "--jit_compile" else "False"
    argv = [f"--workdir={tmp_path}/run", flag]
    monkeypatch.setattr(options, "prepare_search", prepare)
    for command in (translate, evaluate, tune, parse_text, parse_evaluate):
        with pytest.raises(Kept, match=expected):
            command.main(argv)
    for command in (align, score):  # they do not search
        with pytest.raises(SystemExit):
            command.main(argv)


class Kept(Exception):
    """An exception that ends a command where it prepares variables."""
