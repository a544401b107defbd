"""Compares an export, token by token, with the translator that it is from.

    python -m savedmodel.verify --workdir=DIR --export=DIR --text=FILE

The export is loaded by a process that does not import this package.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl import logging

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.translator import Translator
from savedmodel import reload
from savedmodel.graph import with_beam_size

GREEDY = ("ctranslate2",)  # formats whose beam search is another's
TIE = 1e-3  # two searches may part where scores are closer than this
FAR = 0.25  # between scores: more than rounded weights explain
FIELDS = ("format", "precision", "checkpoint", "max_source_length", "decoding")


class ExportError(Exception):
    """An export that does not run, or not as the translator does."""


@dataclasses.dataclass(frozen=True)
class VerifyOptions(Fields):
    """The comparison."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    export: str = hp("", "What savedmodel.export printed. Required.")
    text: str = hp("", "File of source sentences, one a line. Required.")

    def __post_init__(self):
        super().__post_init__()
        for name in ("workdir", "export", "text"):
            if not getattr(self, name):
                raise ValueError(f"expected --{name}=. Received: no {name}")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How the translations of an export differ from the translator's.

    Attributes:
        number: Sentences compared.
        ties: Numbers of lines, from 1, whose tokens differ where both have the
            same score: rounding decided.
        different: Numbers of the other lines whose tokens differ.
        far: Numbers of those of them whose scores differ by `FAR` or more.
        exact: Whether the export should not have such lines: its weights were
            not rounded.
    """

    number: int
    ties: tuple
    different: tuple
    far: tuple
    exact: bool

    @property
    def passed(self):
        """Whether the export is what it should be.

        Rounded weights may find other translations, but seldom of far other
        scores.
        """
        if self.exact:
            return not self.different
        return 2 * len(self.far) <= self.number

    def __str__(self):
        same = self.number - len(self.ties) - len(self.different)
        text = f"{same} of {self.number} translations identical"
        for name in ("ties", "different"):
            if lines := getattr(self, name):
                text += f"; {name}: line {', '.join(map(str, lines))}"
        return text


def compare(translator, directory, sentences):
    """Compares an export with the live translator.

    Args:
        translator: The `Translator`, with the decoding of the export.
        directory: The export.
        sentences: List of `str`.

    Returns:
        A `Comparison`.

    Raises:
        ValueError: There is no export.
        ExportError: It cannot be loaded or run.
    """
    description = read_description(directory)
    beam_size = 1 if description["format"] in GREEDY else None
    if beam_size:
        translator = with_beam_size(translator, beam_size)
    results = run(directory, sentences, beam_size)["translations"]
    ties, different, far = [], [], []
    for number, ([(ids, score), *_], _, result) in enumerate(
        zip(translator.n_best_ids(sentences), sentences, results, strict=True),
        1,
    ):
        if ids != result["ids"]:
            distance = abs(score - result["score"])
            (ties if distance < TIE else different).append(number)
            if not distance < FAR:
                far.append(number)
    return Comparison(
        number=len(sentences),
        ties=tuple(ties),
        different=tuple(different),
        far=tuple(far),
        exact=description["precision"] == "float32",
    )


def run(directory, sentences, beam_size=None):
    """What an export answers, from a process of its own; see `reload.py`.

    Args:
        directory: The export.
        sentences: List of `str`.
        beam_size: For formats that leave the choice; None: the export's.

    Raises:
        ExportError: It cannot be loaded or run.
    """
    # Isolated: neither PYTHONPATH nor the script's directory count.
    command = [sys.executable, "-I", reload.__file__]
    command.append(str(pathlib.Path(directory).resolve()))
    if beam_size is not None:
        command.append(str(beam_size))
    with tempfile.TemporaryDirectory() as elsewhere:
        process = subprocess.run(
            command,
            input=json.dumps(list(sentences)),
            cwd=elsewhere,
            capture_output=True,
            text=True,
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["no message"]
        raise ExportError(f"{directory} does not run: {lines[-1]}")
    return json.loads(process.stdout)


def read_description(directory):
    """`export.json` of an export.

    Raises:
        ValueError: There is none, or it lacks something.
    """
    path = pathlib.Path(directory) / reload.DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{directory} is no export: {error}") from error
    if not isinstance(description, dict):
        description = {}
    if missing := [field for field in FIELDS if field not in description]:
        raise ValueError(
            f"{path} is of no export: without {', '.join(missing)}"
        )
    return description


def read_sentences(path):
    """Lines of a file, without their ends.

    Raises:
        ValueError: There are none, or they are not UTF-8.
        OSError: There is no such file.
    """
    text = pathlib.Path(path).read_text(encoding="utf-8")
    # Not by splitlines: it takes more than line feeds for the end of a line.
    lines = text.removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"expected sentences. Received: nothing in {path}")
    return lines


def load_translator(options):
    """The `Translator` that an export is from."""
    description = read_description(options.export)
    return Translator.load(
        options.workdir,
        DecodingConfig(**description["decoding"]),
        os.path.join(options.workdir, description["checkpoint"]),
        max_source_length=description["max_source_length"],
    )


def main(argv=None):
    """Runs the command; status 1 if the export is not what it should be."""
    logging.set_verbosity(logging.ERROR)  # else a line for each cut sentence
    with flags.exit_status("savedmodel.verify"):
        arguments = flags.parse(argv, __doc__, VerifyOptions)
        options = arguments.build(VerifyOptions)
        with flags.user_errors():
            sentences = read_sentences(options.text)
            translator = load_translator(options)
    try:
        comparison = compare(translator, options.export, sentences)
    except ExportError as error:
        raise SystemExit(f"savedmodel.verify: {error}") from None
    print(comparison)
    if not comparison.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
