"""Scores from another program, such as COMET in an environment of its own.

The program reads the texts from files. The score is the first number after = or
: in the last line that it prints, else the last number in that line.
"""

import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags

PLACEHOLDER = re.compile(r"\{(\w*)\}")
# In "sys.txt score (wmt22): -0.83." this finds -0.83, not the digits in names.
# It finds 0,83 so that it can be refused, as it may mean 0.83 or 83.
NUMBER = re.compile(
    r"(?<![\w.])([-+]?(?:\d*\.?\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
    r"(?:,[\d.]*\d)*)(?!\.?\w)",
    re.IGNORECASE,
)
NAMED = re.compile(  # but not the 30 of 12:30
    rf"(?:=|(?<!\d):|:(?=\s))\s*{NUMBER.pattern}", re.IGNORECASE
)


def parse_command(command: str) -> list[str]:
    """Splits a command into words as a shell does.

    Raises ValueError if the placeholders are wrong, or if there is no such
    program.
    """
    names = {*PLACEHOLDER.findall(command)}
    try:
        words = shlex.split(command)
        if not {"output"} <= names <= {"output", "source", "reference"}:
            raise ValueError("expected {output}, perhaps {source}, {reference}")
        expect(shutil.which(words[0]), f"a program, not {words[0]!r}")
    except ValueError as error:
        raise ValueError(
            f"score_command: {error}. Received: score_command={command!r}"
        ) from error
    return words


def run_command(words: Sequence[str], **texts: Sequence[str]) -> float:
    """Runs a program, shows its output live, and returns its score.

    `{name}` in a word is replaced by the path of a file with the texts of that
    name, one per line. Raises RunError if it fails or prints no score.
    """
    last = ""
    with flags.user_errors(), tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, f"{name}.txt") for name in texts}
        for name, lines in texts.items():
            write_atomically(paths[name], "".join(f"{x}\n" for x in lines))
        with subprocess.Popen(
            [PLACEHOLDER.sub(lambda m: paths[m[1]], word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    flags.show(line.rstrip("\n"))
                    last = line.strip() or last
            except BaseException:  # such as KeyboardInterrupt
                process.kill()
                raise
    score = read_score(last)
    if process.returncode or not math.isfinite(score):
        raise flags.RunError(
            "score_command must end with status 0 and a number in its last"
            f" line. Received: status {process.returncode}, {last!r}"
        )
    return score


def read_score(line: str) -> float:
    """Finds the score in a line: NaN if there is none or it has a comma.

    >>> read_score("BLEU = 31.4 60/40 (BP = 1.0)"), read_score("a 1 b 0,83")
    (31.4, nan)
    """
    line = line.replace("\u2212", "-")  # a minus sign
    found = NAMED.findall(line)[:1] or NUMBER.findall(line)
    return math.nan if "," in " ".join(found) else float(["nan", *found][-1])
