"""Compares an export, token by token, with the translator that it is from.

    python -m savedmodel.verify --workdir=DIR --export=DIR --text=FILE

--export is what was given to savedmodel.export as --output; of several versions
the greatest is compared. A process that does not import this package loads it.
Both sides compute on the CPU: a GPU rounds differently, and the process that
runs a SavedModel would find its memory taken.

The last line is the verdict. Float32 weights pass if every translation has the
same tokens or, where rounding decides, the same score. Quantized weights pass
if at most half of the translations are far from the translator's in score.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.startup import load_tensorflow
from savedmodel import reload
from savedmodel.formats import FORMATS

TIE = 1e-3  # two searches may part where scores are closer than this
FAR = 0.25  # between scores: more than quantized weights explain
FIELDS = ("format", "precision", "checkpoint", "max_source_length", "decoding")


class ExportError(Exception):
    """An export that does not run, or not as the translator does."""


@dataclasses.dataclass(frozen=True)
class VerifyOptions(Fields):
    """The comparison."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    export: str = hp(
        "", "The --output of savedmodel.export, or a version. Required."
    )
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
        ties: Numbers of sentences, from 1, whose tokens differ where both have
            the same score: rounding decided.
        different: Numbers of the other sentences whose tokens differ.
        far: Numbers of those of them whose scores differ by `FAR` or more.
        exact: Whether there should be no such sentences: the weights are not
            quantized.
        computed_in: The type that the export was computed in, if its runtime
            says so.
    """

    number: int
    ties: tuple[int, ...]
    different: tuple[int, ...]
    far: tuple[int, ...]
    exact: bool
    computed_in: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the export is what it should be.

        Quantized weights may find other translations, but seldom of far other
        scores.
        """
        if self.exact:
            return not self.different
        return 2 * len(self.far) <= self.number

    def __str__(self):
        same = self.number - len(self.ties) - len(self.different)
        text = "passed" if self.passed else "failed"
        text += f": {same} of {self.number} translations identical"
        if self.computed_in:
            text += f", computed in {self.computed_in}"
        near = tuple(line for line in self.different if line not in self.far)
        for lines, kind in (
            (self.ties, f"other tokens of the same score (within {TIE:g})"),
            (near, f"other tokens, score within {FAR:g}"),
            (self.far, f"other tokens, score {FAR:g} or more apart"),
        ):
            if lines:
                text += f"; {kind}: sentence {', '.join(map(str, lines))}"
        if not self.passed:
            allowed = (
                "only ties may differ: the weights are not quantized"
                if self.exact
                else f"at most {self.number // 2} may be that far apart"
            )
            text += f". Expected: {allowed}"
        return text


def compare(translator, directory, sentences: list[str]) -> Comparison:
    """Compares an export with the live translator.

    Args:
        translator: The `Translator`, with the decoding of the export.
        directory: The export.
        sentences: List of `str`.

    Returns:
        A `Comparison`.

    Raises:
        ValueError: There is no export.
        ExportError: It is corrupt, or cannot be loaded or run.
    """
    description = read_description(directory)
    check_files(directory, description)
    beam_size = 1 if FORMATS[description["format"]].own_search else None
    if beam_size:
        translator = translator.with_decoding(beam_size=beam_size)
    found = run(directory, sentences, beam_size)
    ties: list[int] = []
    different: list[int] = []
    far: list[int] = []
    for number, (hypotheses, result) in enumerate(
        zip(
            translator.n_best_ids(sentences), found["translations"], strict=True
        ),
        1,
    ):
        ids, score = hypotheses[0]
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
        computed_in=found["computed_in"],
    )


def run(directory, sentences, beam_size=None) -> dict:
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
            # This process, or a training, may have taken the GPU's memory.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["no message"]
        raise ExportError(f"{directory} does not run: {lines[-1]}")
    return json.loads(process.stdout)


def read_description(directory) -> dict:
    """`export.json` of an export.

    Raises:
        ValueError: There is none, or it lacks something.
    """
    path = reload.find_export(directory) / reload.DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(description, dict):
        description = {}
    if missing := [field for field in FIELDS if field not in description]:
        raise ValueError(
            f"{path} is of no export: without {', '.join(missing)}"
        )
    if description["format"] not in FORMATS:
        raise ValueError(
            f"{path}: format must be one of {', '.join(FORMATS)}."
            f" Received: format={description['format']!r}"
        )
    return description


def checksums(directory) -> dict[str, str]:
    """SHA-256 of each file of an export but its description, by path."""
    directory = pathlib.Path(directory)
    sums = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name != reload.DESCRIPTION:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            sums[name] = digest.hexdigest()
    return sums


def check_files(directory, description) -> None:
    """Holds the files of an export against the checksums of its description.

    Raises:
        ExportError: A file is missing or corrupt.
    """
    found = checksums(reload.find_export(directory))
    for name, expected in description.get("sha256", {}).items():
        if found.get(name) != expected:
            reason = "corrupt" if name in found else "missing"
            raise ExportError(
                f"{directory}: {name} is {reason}. Expected SHA-256 {expected}."
                f" Received: {found.get(name)}"
            )


def read_sentences(path) -> list[str]:
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
    """The `Translator` that an export is from.

    Raises:
        ValueError: There is no export, or the work directory is another one.
    """
    # Not at the top: bad flags are refused before TensorFlow is imported.
    load_tensorflow()
    from keras_transformer.translator import Translator

    description = read_description(options.export)
    checkpoint = os.path.join(options.workdir, description["checkpoint"])
    if os.path.isdir(options.workdir) and not os.path.exists(
        f"{checkpoint}.index"
    ):
        raise ValueError(
            "expected the work directory that the export is from, with its"
            f" checkpoint {description['checkpoint']}."
            f" Received: {options.workdir}"
        )
    return Translator.load(
        options.workdir,
        DecodingConfig(**description["decoding"]),
        checkpoint,
        max_source_length=description["max_source_length"],
    )


def hide_gpus() -> None:
    """Makes this process and its children compute on the CPU.

    Must be called before TensorFlow is imported.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def main(argv: list[str] | None = None) -> None:
    """Runs the command; status 1 if the export is not what it should be."""
    with flags.exit_status("savedmodel.verify"):
        arguments = flags.parse(argv, __doc__, VerifyOptions)
        options = arguments.build(VerifyOptions)
        hide_gpus()
        with flags.user_errors():
            sentences = read_sentences(options.text)
            translator = load_translator(options)
        try:
            comparison = compare(translator, options.export, sentences)
        except ExportError as error:
            raise flags.RunError(str(error)) from None
    print(comparison)
    if not comparison.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
