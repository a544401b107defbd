"""Mutation testing: the share of random faults that the tests catch.

    python benchmarks/mutants.py --number=200 --seed=0 --jobs=2 --record

A mutant is the product with one change: another comparison, operator, number or
truth value, a negated condition, a result that is None, or a missing statement.
The first run of all tests writes which tests execute which line, and their
seconds, into the file `--map`, which later runs read. This needs the package
coverage. The tests that execute a mutant's line run in a copy of the tree until
one fails: first the tests of `make test`, then the others, the fastest first.
The limit is `--seconds`. A mutant is also caught if a test takes 30 s longer
than 10 times its usual time. If only imports or other processes execute a line,
the tests of its file's other lines run.
"""

import argparse
import ast
import collections
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import typing

import pytest
from _pytest.runner import runtestprotocol
from results import ROOT, add_flag, markdown, record

PRODUCT = "keras_transformer", "trainers", "savedmodel"
# Tests of a line, in each of the two suites: at most, and from one file.
MOST_TESTS, MOST_OF_A_FILE = 40, 4
SUITES = "make test", "make test-all"
PYTEST = ["-p", "mutants", "-q"]
# What the tests import, except for the product. Each mutant's process is forked
# from a process that has imported these.
PRELOADED = "tensorflow tensorflow_text keras sacrebleu sentencepiece pytest"
EVERYTHING = "not argos and not beam and not browser and not npm"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--map", type=pathlib.Path, help="file of the map")
    parser.add_argument("--tests", nargs="*", help="of the map; default: all")
    add_flag(parser)
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    path = arguments.map or root / "build/mutants.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_map(root, path, arguments.jobs, arguments.tests or [])
    tests = Tests(json.loads(path.read_text()))
    chosen = choose(root, tests, arguments.number, arguments.seed)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    FORKS.set_forkserver_preload(PRELOADED.split())
    rows = try_all(root, chosen, tests, arguments.jobs, arguments.seconds)
    tables = {"caught": summary(rows), "mutants": rows}
    for heading, table in tables.items():
        print(f"\n{heading}\n\n{markdown(table)}")
    if arguments.record:
        record("mutants", "Mutants that the tests catch", tables)


# Mutants


class Mutant(typing.NamedTuple):
    """A change of one line: bytes from begin to end become `text`."""

    file: str
    line: int
    begin: int
    end: int
    text: str
    kind: str


SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr, ast.MatMult: ast.Add,
}  # fmt: skip


def mutants_of(source):
    """Returns (node, its replacement, kind) for each change of a module.

    >>> [(ast.unparse(new), kind) for _, new, kind in mutants_of("x = a < 2")]
    [('a <= 2', 'comparison'), ('3', 'constant')]
    """
    found = []
    stack = [(ast.parse(source), False)]
    while stack:
        node, is_inside = stack.pop()
        found += [c for c in changes(node) if is_inside or c[2] != "statement"]
        is_inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack += [(child, is_inside) for child in children(node)]
    return found


def children(node):
    """Yields the executed nodes below a node: no hints, no docstrings."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params", "type_ignores"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or is_text(child):
                continue
            yield child


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def is_none(node):
    return node is None or isinstance(node, ast.Constant) and node.value is None


def changes(node):
    """Yields (node, a replacement, kind) for each change of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        ops = [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        yield node, ast.Compare(node.left, ops, node.comparators), "comparison"
    elif isinstance(node, ast.BoolOp):
        new = ast.BoolOp(SWAPS[type(node.op)](), node.values)
        yield node, new, "boolean"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        new = ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
        yield node, new, "arithmetic"
    elif isinstance(node, ast.UnaryOp):
        yield node, node.operand, "boolean"
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield node, ast.Constant(not node.value), "constant"
        elif isinstance(node.value, int | float):
            yield node, ast.Constant(node.value + 1), "constant"
    elif isinstance(node, ast.Return) and not is_none(node.value):
        yield node, ast.Return(ast.Constant(None)), "return"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, ast.UnaryOp(ast.Not(), node.test), "branch"
    elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Raise):
        yield node, ast.Pass(), "statement"


def choose(root, tests, number, seed):
    """Draws mutants from all of the product that a test can see."""
    everything = []
    for path in sorted(p for d in PRODUCT for p in (root / d).rglob("*.py")):
        source, file = path.read_text("utf-8"), str(path.relative_to(root))
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode()))
        for node, new, kind in mutants_of(source):
            text = ast.unparse(ast.fix_missing_locations(new))
            if isinstance(new, ast.expr) and not isinstance(new, ast.Constant):
                text = f"({text})"
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            everything.append(Mutant(file, node.lineno, begin, end, text, kind))
    known = [m for m in everything if tests.known(m.file)]
    return random.Random(seed).sample(known, min(number, len(known)))


# The map: which tests execute a line


class Tests:
    """The map: seconds and suite of each test, and the tests of each line."""

    def __init__(self, read):
        self.seconds = {name: row[0] for name, row in read["tests"].items()}
        self.is_slow = {name: row[1] for name, row in read["tests"].items()}
        self._lines = read["lines"]
        self._names = list(read["tests"])

    def known(self, file):
        return file in self._lines

    def of(self, mutant):
        """Returns a mutant's tests, by suite (`make test` first) and time."""
        lines = self._lines[mutant.file]
        # The map may have a statement of several lines at an earlier line.
        near = (lines.get(str(mutant.line - n)) for n in range(8))
        found = next(filter(None, near), None)
        if not found:
            found = set().union(*lines.values())
        names = [self._names[number] for number in found]
        names.sort(key=lambda name: (self.is_slow[name], self.seconds[name]))
        quick = [name for name in names if not self.is_slow[name]]
        slow = [name for name in names if self.is_slow[name]]
        return some_of_each_file(quick) + some_of_each_file(slow)


def some_of_each_file(names):
    """Returns the first names, at most a few of each file.

    >>> some_of_each_file([*"abcdefgh", "x::1"])[-1]
    'x::1'
    """
    counts, found = collections.Counter(), []
    for name in names:
        file = name.split("::")[0]
        counts[file] += 1
        if counts[file] <= MOST_OF_A_FILE and len(found) < MOST_TESTS:
            found.append(name)
    return found


def write_map(root, path, jobs, given):
    """Runs all tests once, and writes the map to a file."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", *PYTEST, "-m", EVERYTHING]
        argv += [f"--rootdir={root}", *given]
        if jobs > 1:
            argv += ["-n", str(jobs), "--dist", "loadfile"]
        subprocess.run(
            argv,
            cwd=root,
            env=environment(root) | {"MUTANTS_MAP": folder},
            check=False,  # failing tests are left out of the map
        )
        tests, lines = {}, {}
        for part in map(json.loads, read_all(folder)):
            first = len(tests)
            tests |= part["tests"]
            for file, by_line in part["lines"].items():
                of_file = lines.setdefault(file, {})
                for line, numbers in by_line.items():
                    found = of_file.setdefault(line, [])
                    found += [first + number for number in numbers]
    path.write_text(json.dumps({"tests": tests, "lines": lines}))


def read_all(folder):
    return [p.read_text() for p in sorted(pathlib.Path(folder).iterdir())]


def environment(root):
    """Returns the environment of a pytest whose plugin is this file."""
    paths = [str(root), str(ROOT / "benchmarks"), str(root / "tests")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


# Trying


def try_all(root, chosen, tests, jobs, seconds):
    """Tries all mutants, and returns a row for each."""
    copies = threading.local()
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):

        def one(number):
            if not hasattr(copies, "path"):
                copies.path = copy_tree(root, pathlib.Path(folder, str(number)))
            mutant = chosen[number]
            file = copies.path / mutant.file
            before = file.read_bytes()
            after = before[: mutant.begin] + mutant.text.encode()
            file.write_bytes(after + before[mutant.end :])
            try:
                found = run_tests(copies.path, tests, tests.of(mutant), seconds)
            finally:
                file.write_bytes(before)
            was = before[mutant.begin : mutant.end].decode().split("\n")[0]
            row = {
                "place": f"{mutant.file}:{mutant.line}",
                "kind": mutant.kind,
                "change": f"`{was[:40]}` -> `{mutant.text[:40]}`",
            } | found
            row["change"] = row["change"].replace("|", "\\|")
            print(number, *row.values(), sep=" | ", flush=True)
            return row

        return list(pool.map(one, range(len(chosen))))


def copy_tree(root, target):
    """Copies the files that git does not ignore, in their present state."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=root, text=True).splitlines()
    for name in names:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


def run_tests(root, tests, names, seconds):
    """Returns whether a mutant is caught, by which test of which suite."""
    notes = root / ".mutants"
    order = {name: number for number, name in enumerate(names)}
    notes.write_text(json.dumps(order))
    events, output = root / ".mutants.events", root / ".mutants.output"
    events.write_text("")
    argv = [*PYTEST, "-x", "-m", EVERYTHING, "-p", "no:cacheprovider"]
    argv += [f"--rootdir={root}", *{name.split("::")[0] for name in names}]
    variables = {"MUTANTS_ORDER": str(notes), "MUTANTS_EVENTS": str(events)}
    variables = environment(root) | variables
    begin = time.monotonic()
    process = FORKS.Process(
        target=run_pytest, args=(root, argv, variables, output)
    )
    process.start()
    process.join(seconds)
    status = process.exitcode
    if status is None:
        os.killpg(process.pid, 9)
        process.join()
    lines = [line.split(" ", 1) for line in events.read_text().splitlines()]
    by, result = "", "survived"
    if status is None:
        name, since = lines[-1][1], time.time() - float(lines[-1][0])
        result = "not decided"
        if since > 10 * tests.seconds.get(name, 0) + 30:
            by, result = name, "caught"
    elif status:
        failed = [name for word, name in lines if word == "failed"]
        if not failed and "loading conftest" in output.read_text():
            failed = ["an import"]
        by = failed[0] if failed else ""
        result = "caught" if failed else f"pytest's status is {status}"
    suite = SUITES[tests.is_slow.get(by, False)] if by else ""
    took = round(time.monotonic() - begin, 1)
    return {
        "result": result, "by": by, "suite": suite, "tests": len(names),
        "seconds": took,
    }  # fmt: skip


def run_pytest(root, argv, variables, output):
    """Runs pytest in a process that has what the tests import."""
    os.setsid()
    os.environ.update(variables)
    sys.path[:0] = variables["PYTHONPATH"].split(os.pathsep)
    os.chdir(root)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = pytest.main(argv)
    sys.stdout.flush()
    os._exit(status)


def summary(rows):
    """Returns a row for each suite with the share of mutants it catches."""
    counts = collections.Counter(row["suite"] for row in rows)
    quick = counts[SUITES[0]]
    whole = quick + counts[SUITES[1]]
    decided = ("caught", "survived")
    undecided = sum(row["result"] not in decided for row in rows)
    return [
        {
            "suite": suite,
            "mutants": len(rows),
            "caught": caught,
            "share": round(caught / max(1, len(rows)), 3),
            "of test-all's": round(caught / max(1, whole), 3),
            "not decided": undecided,
        }
        for suite, caught in zip(SUITES, (quick, whole), strict=True)
    ]


# The pytest plugin: writes the map, or orders and records tests


class _Map:
    """The lines of the product that each test executes."""

    def __init__(self):
        import coverage

        self.tests = {}
        include = [f"{root}*" for root in ROOTS]
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, include=include
        )
        self._coverage.start()

    def begin(self, item):
        self._coverage.switch_context(item.nodeid)

    def end(self, item, seconds, passed):
        self._coverage.switch_context("")
        if passed:
            is_slow = item.get_closest_marker("slow") is not None
            self.tests[item.nodeid] = [round(seconds, 3), is_slow]

    def write(self, folder):
        self._coverage.stop()
        data = self._coverage.get_data()
        names = sorted(self.tests, key=lambda name: self.tests[name])
        numbers = {name: number for number, name in enumerate(names)}
        found = collections.defaultdict(dict)
        for path in data.measured_files():
            file = os.path.relpath(path, os.getcwd())
            for line, contexts in data.contexts_by_lineno(path).items():
                of_line = sorted(numbers[c] for c in contexts if c in numbers)
                suites = ([], [])
                for number in of_line:
                    name = names[number]
                    suites[self.tests[name][1]].append(name)
                kept = sum(map(some_of_each_file, suites), [])
                if kept:
                    found[file][line] = sorted(numbers[n] for n in kept)
        tests = {name: self.tests[name] for name in names}
        path = pathlib.Path(folder, str(os.getpid()))
        path.write_text(json.dumps({"tests": tests, "lines": found}))


ROOTS = tuple(os.path.join(os.getcwd(), name, "") for name in PRODUCT)
MAP, EVENTS = os.environ.get("MUTANTS_MAP"), os.environ.get("MUTANTS_EVENTS")
_map = _Map() if MAP else None
FORKS = multiprocessing.get_context("forkserver")


def _event(word, name):
    if EVENTS:
        with open(EVENTS, "a") as file:
            file.write(f"{word} {name}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    if path := os.environ.get("MUTANTS_ORDER"):
        order = json.loads(pathlib.Path(path).read_text())
        items[:] = [item for item in items if item.nodeid in order]
        items.sort(key=lambda item: order[item.nodeid])


def pytest_runtest_protocol(item, nextitem):
    _event(time.time(), item.nodeid)
    if MAP:
        begin = time.process_time()
        _map.begin(item)
        item.ihook.pytest_runtest_logstart(
            nodeid=item.nodeid, location=item.location
        )
        reports = runtestprotocol(item, nextitem=nextitem)
        item.ihook.pytest_runtest_logfinish(
            nodeid=item.nodeid, location=item.location
        )
        passed = all(report.passed for report in reports)
        _map.end(item, time.process_time() - begin, passed)
        return True
    return None


def pytest_runtest_logreport(report):
    if report.failed:
        _event("failed", report.nodeid)


def pytest_collectreport(report):
    if report.failed:
        _event("failed", "an import")


def pytest_sessionfinish():
    if _map and _map.tests:
        _map.write(MAP)


if __name__ == "__main__":
    main()
