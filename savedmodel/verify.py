"""Compares an export, token by token, with the translator that it is from.

    python -m savedmodel.verify --workdir=DIR --export=DIR --text=FILE

--export is what was given to savedmodel.export as --output; of several versions
the greatest is compared. A process that does not import this package loads it.
Both sides compute on the CPU: a GPU rounds differently, and the process that
runs a SavedModel would find its memory taken.

The last line is the verdict. Float32 weights pass if every translation has the
same tokens or, where rounding decides, the same score. Quantized weights pass
if at most half of the translations are far from the translator's in score. The
text must be that of the tokens, whatever the weights. Of a SavedModel every
signature is asked, about the first sentences.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp, is_of_kind
from keras_transformer.vocabulary import EOS, PAD, UNK
from savedmodel import reload
from savedmodel.formats import FORMATS

TIE = 1e-3  # two searches may part where scores are closer than this
FAR = 0.25  # between scores: more than quantized weights explain
NUM_ASKED = 16  # sentences that all signatures of a SavedModel are asked about
# What `export.json` must say, and of which kind it is.
FIELDS = {
    "format": str,
    "precision": str,
    "checkpoint": str,
    "max_source_length": int,
    "decoding": dict,
}
KIND_NAMES = {str: "text", int: "a whole number", dict: "an object"}


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
        texts: Numbers of sentences whose text is not that of the tokens.
        signatures: Of signatures that answer otherwise than the translator,
            their names with the numbers of sentences.
    """

    number: int
    ties: tuple[int, ...]
    different: tuple[int, ...]
    far: tuple[int, ...]
    exact: bool
    computed_in: str | None = None
    texts: tuple[int, ...] = ()
    signatures: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the export is what it should be.

        Quantized weights may find other translations, but seldom of far other
        scores.
        """
        if self.texts or self.signatures:
            return False
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
            (self.texts, "not the text of the tokens"),
            *(
                (lines, f"another answer of the signature {name}")
                for name, lines in self.signatures
            ),
        ):
            if lines:
                text += f"; {kind}: sentence {', '.join(map(str, lines))}"
        if not self.passed:
            if self.texts or self.signatures:
                allowed = "texts and answers are the translator's"
            elif self.exact:
                allowed = "only ties may differ: the weights are not quantized"
            else:
                allowed = f"at most {self.number // 2} may be that far apart"
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
    expected = translator.n_best_ids(sentences)
    checks = None
    if description["format"] == "saved_model":
        asked = slice(NUM_ASKED)
        checks = Checks(translator, sentences[asked], expected[asked])
    found = run(
        directory, sentences, beam_size, checks.requests if checks else None
    )
    ties: list[int] = []
    different: list[int] = []
    far: list[int] = []
    texts: list[int] = []
    for number, (hypotheses, result) in enumerate(
        zip(expected, found["translations"], strict=True), 1
    ):
        if not _is_text_of(result, translator, description["format"]):
            texts.append(number)
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
        texts=tuple(texts),
        signatures=checks.differing(found["answers"]) if checks else (),
    )


def _is_text_of(result, translator, format_name):
    """Whether a translation of an export has the text of its tokens.

    transformers leaves unknown tokens out, so there the texts that have some
    are not compared.
    """
    if format_name == "huggingface" and UNK in result["ids"]:
        return True
    [text] = translator.tokenizer.target.to_strings([result["ids"]])
    return result["text"] == text


class Checks:
    """Requests to every signature of a SavedModel, and the right answers.

    Prefixes and references are those of the translator's own translations.

    Args:
        translator: The `Translator`.
        sentences: List of `str`.
        hypotheses: What `Translator.n_best_ids` returned of them.

    Attributes:
        requests: Inputs by name, by the name of the signature.
    """

    def __init__(self, translator, sentences, hypotheses):
        self._translator = translator
        source, target = (
            translator.tokenizer.source,
            translator.tokenizer.target,
        )
        self._ids = {piece: id for id, piece in enumerate(target.pieces)}
        self._hypotheses = [
            [(target.to_strings([ids])[0], score) for ids, score in row]
            for row in hypotheses
        ]
        texts = [row[0][0] for row in self._hypotheses]
        prefixes = [" ".join(text.split()[:1]) for text in texts]
        self._forced = translator.n_best(sentences, prefixes=prefixes)
        self._scores = translator.score(
            list(zip(sentences, texts, strict=True))
        )
        limit = translator.max_source_length
        self._sources = [
            row if len(row) <= limit else [*row[: limit - 1], EOS]
            for row in source.to_ids(sentences)
        ]
        longest = max(map(len, self._sources), default=0)
        rows = [row + [PAD] * (longest - len(row)) for row in self._sources]
        text, pairs = (
            {"text": sentences},
            {"text": sentences, "reference": texts},
        )
        self.requests = {
            "n_best": text,
            "serving_default": text,
            "forced": {**text, "target_prefix": prefixes},
            "tokens": {"source_ids": rows},
            "score": pairs,
            "attention": text,
            "attention_maps": pairs,
        }

    def differing(self, answers) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names of signatures, with the numbers of wrong answers, from 1.

        Args:
            answers: Outputs by name, by the name of the signature; None where
                there is no such signature.
        """
        found = []
        for name in self.requests:
            is_right, outputs = getattr(self, f"_is_{name}"), answers[name]
            wrong = tuple(
                number + 1
                for number in range(len(self._sources))
                if outputs is None
                or not is_right(
                    number, {key: rows[number] for key, rows in outputs.items()}
                )
            )
            if wrong:
                found.append((name, wrong))
        return tuple(found)

    # Each takes the number of a sentence, from 0, and the outputs of its row.

    def _is_n_best(self, number, row):
        return row["hypotheses"] == self._texts_of(row["ids"])

    def _is_tokens(self, number, row):
        text = self._texts_of(row["ids"][:1])[0]
        return _is_among(self._hypotheses[number], text, row["scores"][0])

    def _is_serving_default(self, number, row):
        found = row["translation"], row["score"]
        return _is_among(self._hypotheses[number], *found)

    def _is_forced(self, number, row):
        found = row["translation"], row["score"]
        return _is_among(self._forced[number], *found)

    def _is_score(self, number, row):
        expected = self._scores[number].log_probs
        found = row["log_probs"]
        padding = [0.0] * (len(found) - len(expected))
        return (
            all(
                abs(one - other) < TIE
                for one, other in zip([*expected, *padding], found, strict=True)
            )
            and abs(sum(found) - row["log_prob"]) < TIE
        )

    def _is_attention(self, number, row):
        texts = [text for text, _ in self._hypotheses[number]]
        return row["translation"] in texts and self._has_pieces(number, row)

    def _is_attention_maps(self, number, row):
        reference = self._scores[number].ids
        if len(reference) == 1:  # EOS: the translation stands in its place
            return self._is_attention(number, row)
        return self._has_pieces(number, row) and self._target(row) == reference

    def _has_pieces(self, number, row):
        """Whether pieces are those of the source, and of the translation."""
        pieces = self._translator.tokenizer.source.pieces
        source = [pieces[id] for id in self._sources[number]]
        [text] = self._texts_of([self._target(row)])
        return [
            piece for piece in row["source_pieces"] if piece
        ] == source and text == row["translation"]

    def _target(self, row):
        """The ids of the target's pieces; PAD has the piece ""."""
        return [self._ids.get(p, UNK) for p in row["target_pieces"] if p]

    def _texts_of(self, ids):
        return self._translator.tokenizer.target.to_strings(ids)


def _is_among(hypotheses, text, score):
    """Whether the translator has found a text with this score, too."""
    return any(
        text == its_text and abs(score - its_score) < TIE
        for its_text, its_score in hypotheses
    )


def run(directory, sentences, beam_size=None, requests=None) -> dict:
    """What an export answers, from a process of its own; see `reload.py`.

    Args:
        directory: The export.
        sentences: List of `str`.
        beam_size: For formats that leave the choice; None: the export's.
        requests: Of a SavedModel: inputs by the name of the signature.

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
            input=json.dumps(
                {"sentences": list(sentences), "requests": requests or {}}
            ),
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
        ValueError: There is none, or it lacks something, or a value cannot be
            used: it is of another version of this package.
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
    name = description["format"]
    if name not in list(FORMATS):
        raise ValueError(
            f"{path}: format must be one of {', '.join(FORMATS)}."
            f" Received: format={name!r}"
        )
    for field, kind in [*FIELDS.items(), ("sha256", dict)]:
        if not is_of_kind(description.get(field, kind()), kind):
            raise ValueError(
                f"{path}: {field} must be {KIND_NAMES[kind]}."
                f" Received: {field}={description[field]!r}"
            )
    precision = description["precision"]
    if precision not in FORMATS[name].precisions:
        raise ValueError(
            f"{path}: precision must be one of"
            f" {', '.join(FORMATS[name].precisions)}."
            f" Received: precision={precision!r}"
        )
    known = {field.name for field in dataclasses.fields(DecodingConfig)}
    if unknown := sorted(set(description["decoding"]) - known):
        raise ValueError(
            f"{path}: decoding must have options of this version of the"
            f" package. Received: {', '.join(unknown)}"
        )
    try:
        DecodingConfig(**description["decoding"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
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
    translators = load("keras_transformer.translator")
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
    return translators.Translator.load(
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
        flags.show(str(comparison))
    if not comparison.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
