"""The imports that ARCHITECTURE.md allows, checked by reading code."""

import ast
import dataclasses
import graphlib
import io
import pathlib
import re
import sys
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("keras_transformer", "trainers", "savedmodel")


def read_orders():
    """Reads ARCHITECTURE.md: package -> its folders and files, in order."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    [block] = re.findall(r"## Who may import whom.*?```\n(.*?)```", text, re.S)
    lines = (line.partition(": ") for line in block.splitlines())
    return {package: names.split() for package, _, names in lines}


ORDERS = read_orders()
# Mathematics in keras.ops, so that it runs on every backend.
ON_EVERY_BACKEND = (
    "layers.stacks layers.attention layers.sublayers layers.embeddings "
    "kernels.layers layers model training.loss training.metrics "
    "training.schedule training.token_losses layers.masking "
    "decoding.row_loop training.update training.fit decoding decoding.searches "
    "decoding.selection decoding.rules decoding.greedy "
    "decoding.beam decoding.stopping kernels.cross_entropy "
    "kernels.projected_loss"
)
# Read before a command's flags are checked, so that bad ones are refused at
# once.
WITHOUT_TENSORFLOW = (
    "text.vocabulary base.fields config base.machine commands.flags "
    "commands.startup"
)

# Their strings are tables of modules, of which a process uses few. In the core,
# only these may name modules of a shelf.
TABLES = {
    "keras_transformer.data.files.records",
    "keras_transformer.importers",
    "keras_transformer.translation.engines",
    "keras_transformer.translator",  # the package of importers
    "savedmodel.formats",
    "trainers.datasets",
    "trainers.run.session",
}
# How many modules a command may need, besides those that a table names.
REACHED = {
    "trainers.serve": 135,
    "trainers.translate": 80,
    "trainers.wmt": 120,
}
# What still has to be cut: (importing module, imported module).
FORBIDDEN_IMPORTS: set = set()


def modules():
    """Finds the modules: {name: path}."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(module, of_types=True):
    """Returns the full names that a module imports, also inside functions.

    Names given to `load` count; those that only types need may be left out.
    """
    found, tree = set(), ast.parse(MODULES[module].read_text("utf-8"))
    if not of_types:
        tree.body = [n for n in tree.body if not is_for_types(n)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module
            if node.level:  # of a folder that can be copied
                assert module.startswith("savedmodel.reload") and node.module
                origin = f"savedmodel.reload.{node.module}"
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                found.add(name if name in MODULES else origin)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "load":
            [name] = map(ast.literal_eval, node.args)
            assert name in MODULES or name == "tensorflow", name
            found.add(name)
    return found


def is_for_types(node):
    """Tells whether a statement is `if typing.TYPE_CHECKING`."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(
        node.test
    )


def named(module):
    """Returns modules that strings name: they are loaded, or run, when used.

    A class is named by its module, too. Names of the three packages mark what
    Keras saves; those of a command's own module are for its messages.
    """
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            loads = ast.unparse(node.func).endswith("import_module")
            assert not (loads and isinstance(node.args[0], ast.JoinedStr)), (
                f"{module}: a name that no reader of the code finds"
            )
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name, _, last = node.value.rpartition(".")
            name = name if last[:1].isupper() else node.value
            if name in MODULES and name not in PACKAGES:
                found.add(name)
    return found - {module}


def reach(module):
    """Returns all modules that a module needs, except those a table names."""
    found, new = set(), {module}
    while new:
        found |= new
        names = {n for m in new for n in imports(m, False)}
        names |= {n for m in new - TABLES for n in named(m)}
        new = names & set(MODULES) - found
    return found


def room_of(module):
    """Returns a module's package, and its folder or file there."""
    return (*module.split("."), "")[:2]


def test_every_folder_has_a_place():
    """In trainers, a module outside the folders is a command."""
    for package, order in ORDERS.items():
        rooms = {
            room_of(module)[1]
            for module, path in MODULES.items()
            if room_of(module)[0] == package
            and (package != "trainers" or path.name == "__init__.py")
        }
        assert sorted(order) == sorted(rooms - {""})


@pytest.mark.parametrize("module", MODULES)
def test_imports_come_from_the_folders_before(module):
    package, room = room_of(module)
    order = ORDERS.get(package, [])
    for name in imports(module):
        other, other_room = room_of(name)
        if other not in PACKAGES:
            assert not name.startswith("keras.src"), f"{module}: {name}"
            continue
        assert other in (package, "keras_transformer"), f"{module}: {name}"
        if other == package and room in order and other_room not in (room, ""):
            assert other_room in order[: order.index(room)], (
                f"{module} must not import {name}"
            )


def test_imports_have_no_circles():
    below = {module: imports(module) & set(MODULES) for module in MODULES}
    assert list(graphlib.TopologicalSorter(below).static_order())


def test_modules_that_strings_name_are_listed():
    """`load`, which names a module itself, counts as an import."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    [block] = re.findall(r"named by strings.*?```\n(.*?)```", text, re.S)
    listed = {
        (module, name)
        for line in block.splitlines()
        for module, _, names in [line.partition(": ")]
        for name in names.split()
    }
    assert listed == {
        (module, name)
        for module in MODULES
        for name in named(module) - imports(module, False)
    }


@pytest.mark.parametrize(("module", "most"), REACHED.items())
def test_a_command_reaches_few_modules(module, most):
    assert len(reach(module)) <= most


@dataclasses.dataclass(frozen=True)
class Part:
    """The core or a shelf, as a row of ARCHITECTURE.md declares it."""

    tokens: int  # at most
    imports: tuple[str, ...]  # other parts
    modules: tuple[str, ...]  # and all below them


def read_parts():
    """Reads the table of parts. The core has all modules outside shelves."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    _, found = text.split(
        "| part | tokens | imports | modules |\n|---|---|---|---|\n"
    )
    rows = found.partition("\n\n")[0].splitlines()
    cells = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in rows
    ]
    return {
        name: Part(
            int(tokens.replace(",", "")),
            tuple(imports.split()),
            tuple(re.findall("`(.*?)`", modules)),
        )
        for name, tokens, imports, modules in cells
    }


PARTS = read_parts()


def part_of(module):
    for name, part in PARTS.items():
        if any(f"{module}.".startswith(f"{own}.") for own in part.modules):
            return name
    return "core"


def test_a_part_has_the_modules_that_it_names():
    for part in PARTS.values():
        assert set(part.modules) <= set(MODULES)
        assert set(part.imports) <= set(PARTS)


def count_tokens(code):
    """Counts the tokens of code without comments, docstrings and layout.

    A formatted string is one token: Python 3.12 and later divide it.
    """
    layout = (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
        *(tokenize.DEDENT, tokenize.ENDMARKER),
    )
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(code))
        if isinstance(
            node,
            ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        )
        and ast.get_docstring(node, clean=False) is not None
    }
    found = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        name = tokenize.tok_name[token.type]
        depth -= name == "FSTRING_END"
        if not depth and token.type not in layout:
            found += name != "FSTRING_START" and token.start not in docstrings
        depth += name == "FSTRING_START"
    return found


def test_tokens_are_those_of_code():
    code = '''"""A module."""
import a  # why

def f(x):
    """A function."""
    return f"{x + 1:{a}} is {f'{x}'}"
'''
    assert count_tokens(code) == len("import a def f ( x ) : return F".split())


@pytest.mark.parametrize("name", PARTS)
def test_a_part_keeps_its_budget(name):
    tokens = sum(
        count_tokens(path.read_text("utf-8"))
        for module, path in MODULES.items()
        if part_of(module) == name
    )
    assert 0 < tokens <= PARTS[name].tokens


def test_the_core_imports_no_shelf_and_a_shelf_those_of_its_row():
    """Imports inside functions, and modules that a string names, count, too."""
    found = set()
    for module in MODULES:
        own = part_of(module)
        names = imports(module) | named(module)
        if module in TABLES:
            names -= named(module)
        for name in names & set(MODULES):
            if part_of(name) not in (own, *PARTS[own].imports):
                found.add((module, name))
    assert found == FORBIDDEN_IMPORTS


def test_the_reloading_of_exports_stands_alone():
    for module in MODULES:
        if module.startswith("savedmodel.reload"):
            for name in imports(module):
                is_own = name.startswith("savedmodel.reload.")
                others = (*PACKAGES, "keras")
                assert is_own or name.partition(".")[0] not in others


@pytest.mark.parametrize("name", ON_EVERY_BACKEND.split())
def test_mathematics_imports_no_tensorflow(name):
    assert "tensorflow" not in imports(f"keras_transformer.{name}")


@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW.split())
def test_what_flags_need_imports_little(name):
    allowed = {"absl", "keras_transformer", *sys.stdlib_module_names}
    found = {m.partition(".")[0] for m in imports(f"keras_transformer.{name}")}
    assert found <= allowed


def test_commands_show_lines_by_one_function():
    """`flags.show` knows what to do where standard output cannot be written."""
    paths = [
        path
        for package in ("trainers", "savedmodel")
        for path in (ROOT / package).rglob("*.py")
    ]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                keywords = [keyword.arg for keyword in node.keywords]
                assert node.func.id != "print" or "file" in keywords, (
                    f"{path}, line {node.lineno}"
                )
