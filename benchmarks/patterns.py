"""Measures how the time of regular expressions grows on hostile texts.

    python benchmarks/patterns.py [--longest=160000] [NAME ...]

Each regular expression of `MODULES` reads texts that repeat the beginnings of
texts that it matches, the whole beginning or only its last character. The table
has the worst text of each, with the time for 10,000 and for `--longest`
characters. The exit status is 1 if a ratio is above `MOST`.
"""

import argparse
import ast
import importlib
import itertools
import pathlib
import pkgutil
import re
import sys
import time
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import regex

MODULES = (
    *("keras_transformer.documents", "keras_transformer.translation.alignment"),
    *("keras_transformer.translation.glossary", "trainers.serving"),
    *("keras_transformer.data.files.tmx", "trainers.preparing.cleaning"),
)
SHORT, MOST = 10_000, 20.0
SIGNS = "a1 \n<>{}[]()\"'&%$@_-.,:;=/\\#|~*+!?"
FLOOR = 0.0005  # seconds; shorter times are noise


def find_patterns() -> dict[str, regex.Pattern]:
    """Finds all compiled patterns of the modules, and those in their code."""
    found: dict[str, regex.Pattern] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        names = [name]
        if hasattr(module, "__path__"):
            names += [
                f"{name}.{m.name}"
                for m in pkgutil.iter_modules(module.__path__)
            ]
        for each in names:
            module = importlib.import_module(each)
            short = each.rpartition(".")[2]
            for variable, value in vars(module).items():
                values = value if isinstance(value, tuple) else (value,)
                for i, one in enumerate(values):
                    if isinstance(one, (re.Pattern, regex.Pattern)):
                        key = f"{short}.{variable}" + f"[{i}]" * bool(i)
                        found[key] = one
            tree = ast.parse(pathlib.Path(module.__file__ or "").read_text())
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and getattr(node.func.value, "id", "") in ("regex", "re")
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                    and isinstance(node.args[0].value, str)
                ):
                    found[f"{short}:{node.lineno}"] = regex.compile(
                        node.args[0].value
                    )
    unique = {}
    for name, pattern in found.items():
        unique.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    return dict(unique.values())


def samples(pattern: regex.Pattern, most: int = 24) -> list[str]:
    """Makes texts that a pattern matches, roughly one for each alternative."""
    text = pattern.pattern
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    text = regex.sub(r"\\p\{\w+\}|\\X", "a", text)
    text = regex.sub(r"--\[[^\]]*\]", "", text)  # a set minus another
    text = regex.sub(r"\(\?<(?![=!])\w+>", "(", text)
    text = regex.sub(r"\\\b", r"\\", text)
    text = regex.sub(r"\\[GK]", "", text)  # places, not characters
    flags = re.DOTALL | (re.VERBOSE if pattern.flags & regex.VERBOSE else 0)
    try:
        tree = parser.parse(text, flags)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{pattern.pattern!r}: {error}") from error
    return list(dict.fromkeys(itertools.islice(_texts(tree), most)))


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
            for one in inside:
                yield one * max(least, 1)
            yield inside[0] * min(max(least, 1) + 1, most)
        case _:
            yield ""


def _class(items):
    negated = items[0][0] is constants.NEGATE
    allowed = []
    for sign in "a1 \n<-.x>{[(\"'=;#":
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
    return list(found)


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
