"""Measures how the time of regular expressions grows on hostile texts.

    python benchmarks/patterns.py [--longest=160000] [NAME ...]

Each regular expression of the product reads texts that repeat the beginnings of
texts that it matches, and texts that repeat each of its unbounded parts without
what ends it (`pumps`). The table has the worst text of each, with the time for
10,000 and for `--longest` characters. The exit status is 1 if a ratio is above
`MOST`.
"""

import argparse
import ast
import collections
import importlib
import itertools
import pathlib
import re
import sys
import time
import typing
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import regex

ROOT = pathlib.Path(__file__).parent.parent
# The whole product.
FOLDERS = "keras_transformer", "trainers", "savedmodel"
ALIKE = re.I | re.M | re.S | re.X
CALLS = "compile match fullmatch search sub subn split findall finditer".split()
SHORT, MOST = 10_000, 20.0
SIGNS = "a1 \n<>{}[]()\"'&%$@_-.,:;=/\\#|~*+!?"
# Patterns that functions compose of values, and how to make them of values that
# occur. Those that "variable" explains are found as variables of their modules.
COMPOSED: dict[str, typing.Callable[[dict], list]] = {
    "f.sign": lambda names: [
        regex.compile(f.sign, regex.I | regex.S)
        for f in names["READERS"].values()
    ],
    "TOKEN.replace": lambda _: [],  # variables of their module
    "'|'.join": lambda _: [],
    r"'\\s++'.join": lambda names: [names["Term"]("a b c", ("d",)).pattern],
    "term": lambda names: [
        names["Term"]("a+ b", ("d",), frozenset(["pattern"])).pattern
    ],
    "pattern": lambda names: [
        *(rule for rule, _ in names.get("RULES", ())),
        *(r"[\w-]+", r"[^\s,]*"),
    ],
    "final": lambda _: [],
    "before + mark.name": lambda _: [r"\bk"],  # a letter
}
BRIEF = 0.0015  # seconds
FLOOR = 0.0005  # seconds; shorter times are noise


def find_patterns() -> dict[str, regex.Pattern]:
    """Finds every pattern of the product: in its code, and composed at import.

    One that only `match` or `fullmatch` uses is anchored. A name that only a
    function knows stands for a letter. Raises ValueError if a pattern is not
    composed of literals and names, and not in `COMPOSED`.
    """
    found: dict[str, tuple] = {}
    paths = sorted(p for f in FOLDERS for p in (ROOT / f).rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    uses = collections.defaultdict(set)  # of variables, by their names
    for node in itertools.chain(*map(ast.walk, trees.values())):
        if isinstance(node, ast.Attribute) and node.attr in CALLS:
            uses[ast.unparse(node.value).rpartition(".")[2]].add(node.attr)
    for path, tree in trees.items():
        where = path.relative_to(ROOT).with_suffix("")
        nodes = list(ast.walk(tree))
        variables = {
            n.value: n.targets[0] for n in nodes if isinstance(n, ast.Assign)
        }
        calls = [node for node in nodes if _is_call(node)]
        names = {}
        if not all(isinstance(c.args[0], ast.Constant) for c in calls):
            names = vars(importlib.import_module(".".join(where.parts)))
        for variable, value in names.items():
            values = value if isinstance(value, tuple) else (value,)
            for i, one in enumerate(values):
                if isinstance(one, (re.Pattern, regex.Pattern)):
                    found[f"{where}.{variable}.{i}"] = one, uses[variable]
        for call in calls:
            make = COMPOSED.get(ast.unparse(call.args[0]).partition("(")[0])
            used = {call.func.attr}
            if call.func.attr == "compile":
                used = uses[getattr(variables.get(call), "id", "")]
            made = make(names) if make else [_compiled(call, names, where)]
            for i, one in enumerate(made):
                found[f"{where}:{call.lineno}.{i}"] = one, used
    unique = {}
    for name, (pattern, used) in found.items():
        pattern = _anchored(pattern, used)
        unique.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    return dict(unique.values())


def _anchored(pattern, used):
    """Compiles a pattern for `search` as it is used; `re` has no time limit."""
    text, flags = pattern, 0
    if not isinstance(pattern, str):
        text, flags = pattern.pattern, pattern.flags & ALIKE
    begin = end = ""
    if used and used <= {"match", "fullmatch"}:
        begin, end = r"\A(?:", "\n" * bool(flags & re.X) + ")"
        end += r"\Z" * (used == {"fullmatch"})
    if isinstance(text, bytes):
        begin, end = begin.encode(), end.encode()
    return regex.compile(begin + text + end, flags)


def _is_call(node):
    """Tells whether a node calls `re` or `regex` with a pattern."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and getattr(node.func.value, "id", "") in ("regex", "re")
        and node.func.attr in CALLS
    )


def _compiled(call, names, where):
    """Compiles the pattern of a call."""
    pattern = call.args[0]
    if isinstance(pattern, ast.JoinedStr):
        for part in pattern.values:
            if isinstance(part, ast.FormattedValue) and not _is_global(
                part.value, names
            ):
                part.value = ast.Constant("a")
    elif not _is_global(pattern, names):
        raise ValueError(f"{where}: {ast.unparse(pattern)} cannot be attacked")
    flags = 0
    for flag in [*call.args[1:], *(k.value for k in call.keywords)]:
        for node in ast.walk(flag):
            if getattr(getattr(node, "value", 0), "id", "") in ("regex", "re"):
                flags |= getattr(regex, node.attr)
    text = ast.fix_missing_locations(ast.Expression(pattern))
    made = eval(compile(text, where, "eval"), {"re": re, **names})
    return made if hasattr(made, "pattern") else regex.compile(made, flags)


def _is_global(node, names):
    """Tells whether all names in an expression are those of the module."""
    used = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    return all(name in names or name in ("re", "regex") for name in used)


def pumps(pattern: regex.Pattern, most: int = 2) -> list[tuple[str, str]]:
    """Returns beginnings and repeated parts for each unbounded part.

    After a text that leads to the part, they repeat: the part's own text; the
    whole way to it; the beginnings of what follows, which is never complete;
    and both of these in turns.
    """
    found: dict[tuple[str, str], None] = {}

    def walk(tree, leads, ends):
        for i, (kind, value) in enumerate(tree):
            befores = [
                lead + text
                for lead in leads
                for text in _few(_texts(tree[:i]), most)
            ][: 2 * most]
            afters = [
                text + end
                for text in _few(_texts(tree[i + 1 :]), most)
                for end in ends
            ][: 2 * most]
            name = str(kind)
            if name.endswith("REPEAT") and value[1] == constants.MAXREPEAT:
                insides = [x for x in _few(_texts(value[2]), most) if x]
                for before in befores:
                    for inside in ["", *insides]:
                        found[before, inside or before] = None
                        found["", before + inside] = None
                        for after in afters:
                            last = len(after) - 1
                            for end in {1, last // 2, last - 1, last} - {0}:
                                found[before, inside + after[:end]] = None
                                found[before, after[:end] + inside] = None
            for inner in _inner(kind, value):
                walk(inner, befores, afters or [""])

    walk(parsed(pattern), [""], [""])
    return [(head, part) for head, part in found if part]


def _few(texts, most):
    return list(dict.fromkeys(itertools.islice(texts, most))) or [""]


def _inner(kind, value):
    """Lists the sequences inside an element of a parsed pattern."""
    match kind:
        case constants.BRANCH:
            return value[1]
        case constants.ATOMIC_GROUP:
            return [value]
        case constants.SUBPATTERN | constants.ASSERT | constants.ASSERT_NOT:
            return [value[-1]]
        case _ if str(kind).endswith("REPEAT"):
            return [value[2]]
    return []


def parsed(pattern: regex.Pattern) -> typing.Any:
    """Returns the tree of a pattern, as `re` has it."""
    text = pattern.pattern
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    text = regex.sub(r"\\[pP]\{\^?\w+\}|\\X", "a", text)
    text = regex.sub(r"--\[[^\]]*\]", "", text)  # a set minus another
    text = regex.sub(r"\(\?<(?![=!])\w+>", "(", text)
    text = regex.sub(r"\(\?<([=!])", r"(?\1", text)  # of any width
    text = regex.sub(r"\(\?[a-z]+\)|\\[GK]", "", text)  # places, not characters
    flags = re.DOTALL | (re.VERBOSE if pattern.flags & regex.VERBOSE else 0)
    try:
        return parser.parse(text, flags)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{pattern.pattern!r}: {error}") from error


def samples(pattern: regex.Pattern, most: int = 24) -> list[str]:
    """Makes texts that a pattern matches, roughly one for each alternative."""
    return _few(_texts(parsed(pattern)), most)


def _texts(tree):
    """Yields texts of a sequence: the first, then with one element changed."""
    options = [list(itertools.islice(_element(*e), 24)) or [""] for e in tree]
    yield "".join(o[0] for o in options)
    for i, those in enumerate(options):
        for other in those[1:]:
            yield "".join(
                other if i == j else o[0] for j, o in enumerate(options)
            )


def _element(kind, value):
    """Yields texts of an element of a parsed pattern."""
    match kind:
        case constants.LITERAL:
            yield chr(value)
        case constants.NOT_LITERAL:
            yield "a" if value != ord("a") else "b"
        case constants.ANY:
            yield "a"
        case constants.IN:
            yield from _class(value)
        case constants.BRANCH:
            for branch in value[1]:
                yield from itertools.islice(_texts(branch), 6)
        case constants.SUBPATTERN:
            yield from _texts(value[-1])
        case constants.ATOMIC_GROUP:
            yield from _texts(value)
        case (
            constants.MAX_REPEAT
            | constants.MIN_REPEAT
            | constants.POSSESSIVE_REPEAT
        ):
            least, most, item = value
            inside = list(itertools.islice(_texts(item), 12))
            if not least:
                yield ""
            for one in inside:
                yield one * max(least, 1)
            yield inside[0] * min(max(least, 1) + 1, most)
        case _:
            yield ""


def _class(items):
    negated = items[0][0] is constants.NEGATE
    allowed = []
    for sign in " a1\n<-.x>{[(\"'=;#":
        inside = any(_has(item, sign) for item in items)
        if inside != negated:
            allowed.append(sign)
    for kind, value in items:
        if kind is constants.LITERAL and not negated:
            allowed.append(chr(value))
        elif kind is constants.RANGE and not negated:
            allowed.append(chr(value[0]))
    yield from list(dict.fromkeys(allowed))[:5] or ["a"]


def _has(item, sign):
    kind, value = item
    match kind:
        case constants.LITERAL:
            return chr(value) == sign
        case constants.RANGE:
            return value[0] <= ord(sign) <= value[1]
        case constants.CATEGORY:
            name = str(value)
            inside = {
                "SPACE": sign.isspace(),
                "DIGIT": sign.isdigit(),
                "WORD": sign.isalnum() or sign == "_",
            }[name.rpartition("_")[2]]
            return inside != ("NOT" in name)
    return False


def attacks(pattern: regex.Pattern) -> list[tuple[str, str]]:
    """Returns the beginning and the repeated part of each hostile text."""
    found: dict[tuple[str, str], None] = {}
    for text in samples(pattern):
        for end in range(1, min(len(text), 24) + 1):
            head = text[:end]
            found["", head] = None
            found[head, head[-1]] = None
        found["", text[:24] + " "] = found["", "\n" + text[:24]] = None
    for sign in SIGNS:
        found["", sign] = None
    return list(dict.fromkeys([*found, *pumps(pattern)]))


def seconds(pattern: regex.Pattern, text: str, limit: float) -> float:
    """Returns the CPU seconds to find all matches, inf above a limit."""
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1", "replace")
    begin = time.process_time()
    try:
        if isinstance(pattern, regex.Pattern):
            for _ in pattern.finditer(text, timeout=limit):
                pass
        else:
            for _ in pattern.finditer(text):
                pass
    except TimeoutError:
        return float("inf")
    return time.process_time() - begin


def worst(
    pattern: regex.Pattern, longest: int
) -> tuple[float, float, float, str]:
    """Returns the greatest ratio, both of its times, and its text."""
    result = (0.0, 0.0, 0.0, "")
    for head, part in attacks(pattern):
        if result[0] > MOST:
            break

        def text(size: int, head=head, part=part) -> str:
            return (head + part * (size // len(part) + 1))[:size]

        # A short trial first: most texts are harmless.
        trial = seconds(pattern, text(longest // 8), 0.5)
        if trial < 0.006 and result[0]:
            continue
        times = [seconds(pattern, text(SHORT), 4.0) for _ in range(3)]
        short = min(times)
        limit = max(2 * short * MOST, 1.0)
        long = seconds(pattern, text(longest), limit)
        for _ in range(4):  # other processes may have disturbed it
            if 0.8 * MOST < long / max(short, FLOOR) < 2 * MOST:
                long = min(long, seconds(pattern, text(longest), limit))
        ratio = long / max(short, FLOOR)
        if ratio > result[0]:
            result = ratio, short, long, f"{head!r} {part!r}"
    return result


def growing(pattern: regex.Pattern) -> str:
    """Returns a text of `pumps` that takes more than linear time, or ""."""
    # `regex` does not search a text without the characters that a match needs,
    # so they come at the end, after signs that end most parts.
    end = samples(pattern)[0]
    for (head, part), tail in itertools.product(
        pumps(pattern), ("", "\0\n,;<>{}()[]|\"'" + end)
    ):
        if _grows(pattern, head, part, tail):
            return f"{head!r} {part!r} {tail!r}"
    return ""


def _grows(pattern, head, part, tail):
    """Compares the CPU seconds of a text and of an eighth of it.

    It does so again and again, so that other processes do not matter. A text of
    which `BRIEF` seconds tell nothing is followed by a longer one.
    """
    for size in (4_000, 32_000):
        count = size // len(part)
        long, short = (head + part * n + tail for n in (count, count // 8))
        for _ in range(5):
            found = seconds(pattern, long, 1.0)
            if found < max(BRIEF, 24 * seconds(pattern, short, 1.0)):
                break
        else:
            return True
        if found >= BRIEF:
            return False
    return False


def main() -> int:
    """Prints the table. Returns 1 if a time grows faster than its text."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--longest", type=int, default=160_000)
    options.add_argument("names", nargs="*")
    chosen = options.parse_args()
    failed = 0
    print("pattern | ratio | 10,000 | longest | text")
    for name, pattern in find_patterns().items():
        if chosen.names and not any(n in name for n in chosen.names):
            continue
        ratio, short, long, text = worst(pattern, chosen.longest)
        is_bad = ratio > MOST
        failed += is_bad
        print(
            f"{name} | {ratio:.1f} | {short:.5f} | {long:.5f} | {text}"
            + " | too fast" * is_bad,
            flush=True,
        )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
