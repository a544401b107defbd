"""The package's surface: public names, lazy imports, quiet commands."""

import ast
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import keras_transformer as kt
from keras_transformer import startup
from trainers import align, evaluate, score, translate, wmt

ROOT = pathlib.Path(__file__).parents[1]
THREADS = "TF_NUM_INTRAOP_THREADS"
PROGRAMS = pathlib.Path(__file__).with_name("programs")
COMMANDS = (
    "trainers.average",
    "trainers.evaluate",
    "trainers.prepare",
    "trainers.visualize",
    "trainers.report",
    "trainers.translate",
    "trainers.wmt",
    "savedmodel.client",
    "savedmodel.export",
    "savedmodel.verify",
)


# Public names


@pytest.mark.parametrize("name", kt.__all__)
def test_every_public_name_is_where_the_table_says(name):
    home = importlib.import_module(f"keras_transformer.{kt._HOMES[name]}")
    assert getattr(kt, name) is getattr(home, name)
    module = getattr(getattr(kt, name), "__module__", home.__name__)
    in_home = f"{module}.".startswith(f"{home.__name__}.")
    assert in_home or module == "builtins"
    assert name in dir(kt)


def test_type_checkers_see_the_same_names():
    """What is imported under TYPE_CHECKING, as `from module import X as X`."""
    tree = ast.parse(pathlib.Path(kt.__file__).read_text("utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "typing.TYPE_CHECKING"
    )
    seen = {}
    for node in block.body:
        for alias in node.names:
            assert alias.asname == alias.name
            seen[alias.name] = node.module.removeprefix("keras_transformer.")
    assert seen == kt._HOMES


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'no_such_name'"):
        _ = kt.no_such_name


def test_serializable_classes_are_registered():
    """Each class that registers itself is in a module that the hook imports."""
    for path in (ROOT / "keras_transformer").rglob("*.py"):
        if "@keras.saving.register" in path.read_text("utf-8"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            home = module.split(".")[1]
            assert home in kt._SERIALIZABLE
            if path.stem != home:  # a part of a package, which imports it
                package = (path.parent / "__init__.py").read_text("utf-8")
                assert f"\nfrom {module} import " in package


def test_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", kt.__version__)
    assert kt.__version__ not in (ROOT / "setup.py").read_text("utf-8")


def unannotated(function):
    """Parameters of a function, and its result, that have no type hint."""
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
    run = subprocess.run(
        [sys.executable, str(PROGRAMS / "bad_flags.py"), *COMMANDS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    results = json.loads(run.stdout.splitlines()[-1])
    assert results == {
        command: {
            "status": 2,
            "err": f"{command}: Unknown command line flag 'no_such_flag'\n",
            "slow": [],
        }
        for command in COMMANDS
    }


def test_routine_lines_are_left_out(capfd):
    with startup._without_routine_lines():
        os.write(2, b"I0000 Could not find cuda drivers on your machine\n")
        os.write(2, b"E0000 something else\n")
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "E0000 something else\nafterwards\n"


def test_an_error_during_the_start_is_shown(capfd):
    with pytest.raises(ZeroDivisionError):
        with startup._without_routine_lines():
            os.write(2, b"why\n")
            raise ZeroDivisionError
    assert capfd.readouterr().err == "why\n"


def prepared_environment(monkeypatch, environment, *arguments):
    """What `prepare_cpu` adds to an environment before TensorFlow is there."""
    monkeypatch.setattr(os, "environ", dict(environment))
    monkeypatch.setattr(startup, "count_cores", lambda: 6)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    startup.prepare_cpu(*arguments)
    return dict(os.environ.items() - environment.items())


def test_training_divides_the_cores_and_keeps_memory(monkeypatch):
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "6"}
    found = prepared_environment(monkeypatch, {}, None)
    memory = int(found.pop("TF_CPU_BFC_MEM_LIMIT_IN_MB")) * 2**20
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 <= physical - memory < 2**20
    assert found == {**threads, "TF_CPU_ALLOCATOR_USE_BFC": "true"}
    own = {"TF_NUM_INTRAOP_THREADS": "4", "TF_CPU_ALLOCATOR_USE_BFC": "false"}
    found = prepared_environment(monkeypatch, own, 3)
    assert found["TF_NUM_INTEROP_THREADS"] == "3"
    assert not found.keys() & own.keys()


@pytest.mark.parametrize(
    ("cpu_threads", "num_slices", "within", "side_by_side"),
    [
        (None, 6, "1", "6"),
        (None, 4, "1", "4"),
        (None, 2, "3", "2"),
        (4, 1, "4", "4"),  # as with XLA
        (1, 1, None, None),  # TensorFlow decides
    ],
)
def test_threads_beyond_the_slices_divide_operations(
    cpu_threads, num_slices, within, side_by_side, monkeypatch
):
    found = prepared_environment(monkeypatch, {}, cpu_threads, num_slices)
    assert found.get("TF_NUM_INTRAOP_THREADS") == within
    assert found.get("TF_NUM_INTEROP_THREADS") == side_by_side


def test_nothing_is_prepared_for_a_tensorflow_that_has_begun(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    startup.prepare_cpu(None)
    assert not os.environ


@pytest.mark.parametrize(
    ("jit_compile", "before", "expected"),
    [(False, {}, "1"), (True, {}, None), (False, {THREADS: "4"}, "4")],
)
def test_searches_do_not_divide_operations(
    jit_compile, before, expected, monkeypatch
):
    monkeypatch.setattr(os, "environ", dict(before))
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # it has begun
    startup.prepare_search(jit_compile)
    assert os.environ == before
    monkeypatch.delitem(sys.modules, "tensorflow")
    startup.prepare_search(jit_compile)
    assert os.environ.get(THREADS) == expected


@pytest.mark.parametrize("flag", ["--jit_compile", "--nojit_compile"])
def test_commands_prepare_their_search(flag, tmp_path, monkeypatch):
    def prepare(jit_compile):
        raise Kept(jit_compile)

    monkeypatch.setattr(translate, "prepare_search", prepare)
    expected = "True" if flag == "--jit_compile" else "False"
    argv = [f"--workdir={tmp_path}/run", flag]
    for command in (translate, evaluate):
        with pytest.raises(Kept, match=expected):
            command.main(argv)
    for command in (align, score):  # they do not search
        with pytest.raises(SystemExit):  # there is no such directory
            command.main([*argv, "--test_files=some"])


def test_a_second_process_compiles_nothing(tmp_path):
    """XLA writes what it compiles; there is nothing if it does not compile."""
    dump, cache = tmp_path / "dump", tmp_path / "a cache"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"--xla_dump_to={dump}",
    }
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    for compiles in (True, False):
        run = subprocess.run(
            [sys.executable, str(PROGRAMS / "keep_xla_programs.py"), cache],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr[-2000:]
        assert run.stdout == "[[3.0, 3.0], [3.0, 3.0]]\n"
        assert run.stderr == ""
        assert dump.exists() == compiles
        [folder] = cache.iterdir()
        assert len(list(folder.iterdir())) == 1
        shutil.rmtree(dump, ignore_errors=True)


def test_programs_of_other_conditions_are_kept_apart(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    for environment, cores in (
        ({}, 2),
        ({}, 3),
        ({"XLA_FLAGS": "--one"}, 2),
        ({}, 2),
    ):
        environment["TF_XLA_FLAGS"] = "--another"
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(startup, "count_cores", lambda n=cores: n)
        startup.keep_xla_programs(str(tmp_path / "cache"))
        another, option = environment["TF_XLA_FLAGS"].split(" ", 1)
        assert another == "--another"
        assert option.startswith(f'--{startup.XLA_CACHE}="{tmp_path}')
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_programs_are_kept_from_the_start_or_not_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    startup.keep_xla_programs("")
    assert not os.environ
    with pytest.raises(ValueError, match="not imported yet"):
        startup.keep_xla_programs(str(tmp_path / "cache"))
    assert not list(tmp_path.iterdir())
    monkeypatch.delitem(sys.modules, "tensorflow")
    startup.keep_xla_programs(str(tmp_path / "cache"))
    before = dict(os.environ)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    startup.keep_xla_programs(str(tmp_path / "cache"))  # a second time
    assert before == os.environ


class Kept(Exception):
    """Ends a command where it prepares what TensorFlow reads."""


@pytest.mark.parametrize(
    "command",
    [
        "align",
        "evaluate",
        "parse",
        "parse_evaluate",
        "parse_text",
        "score",
        "translate",
        "wmt",
    ],
)
def test_commands_keep_the_programs_of_xla(command, tmp_path, monkeypatch):
    def keep(directory):
        raise Kept(directory)

    monkeypatch.setattr(translate, "keep_xla_programs", keep)
    monkeypatch.setattr(wmt, "keep_xla_programs", keep)
    main = importlib.import_module(f"trainers.{command}").main
    argv = [f"--workdir={tmp_path}/run", "--xla_cache=here"]
    if command in ("align", "evaluate", "score"):
        argv.append("--test_files=some")
    with pytest.raises(Kept, match="^here$"):
        main(argv)
