"""Compares an export, token by token, with the translator behind it.

    python -m savedmodel.verify --workdir=DIR --export=DIR --text=FILE

--export is the --output of savedmodel.export; of several versions the greatest
is compared. A process that does not import this package loads it. Both sides
compute on the CPU: a GPU rounds differently, and the process that runs a
SavedModel would find the GPU's memory taken.

The last line is the verdict. Float32 weights pass if every translation has the
same tokens or, where rounding decides, the same score. Quantized weights pass
if at most half of the translations are far from the translator's in score. The
text must match the tokens, whatever the weights. Every signature of a format is
asked, those that are not the main one about the first sentences.
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
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.fields import Fields, check_values, hp, is_of_kind
from keras_transformer.vocabulary import EOS, PAD, UNK
from savedmodel import reload
from savedmodel.formats import FORMATS

TIE = 1e-3  # two searches may part where scores are closer than this
FAR = 0.25  # between scores: more than quantized weights explain
NUM_ASKED = 16  # sentences that every signature is asked about
# The required fields of `export.json`, with their types.
FIELDS = {
    "format": str,
    "precision": str,
    "checkpoint": str,
    "max_source_length": int,
    "decoding": dict,
}
KIND_NAMES = {str: "text", int: "a whole number", dict: "an object"}


class ExportError(Exception):
    """An export that does not run, or translates differently."""


@dataclasses.dataclass(frozen=True)
class VerifyOptions(Fields):
    """The comparison."""

    workdir: str = hp("", "Work directory of trainers.wmt. Required.")
    export: str = hp(
        "", "The --output of savedmodel.export, or a version. Required."
    )
    text: str = hp("", "File of source sentences, one per line. Required.")

    def __post_init__(self):
        super().__post_init__()
        for name in ("workdir", "export", "text"):
            if not getattr(self, name):
                raise ValueError(f"expected --{name}=. Received: no {name}")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How the translations of an export differ from the translator's.

    Attributes:
        number: Number of sentences.
        ties: Sentences, counted from 1, whose tokens differ although both
            scores are the same: rounding decided.
        different: The other sentences whose tokens differ.
        far: The sentences in `different` whose scores differ by `FAR` or more.
        exact: Whether the weights are not quantized, so that `different` should
            be empty.
        computed_in: The type that the export computes in, if its runtime says
            so.
        texts: Sentences whose text does not match the tokens.
        signatures: Names of signatures whose answers are wrong, each with its
            sentences.
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
        """Whether the export is right.

        Quantized weights may find other translations, but their scores seldom
        differ much.
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
            (self.texts, "text does not match the tokens"),
            *(
                (lines, f"wrong answer of the signature {name}")
                for name, lines in self.signatures
            ),
        ):
            if lines:
                text += f"; {kind}: sentence {', '.join(map(str, lines))}"
        if not self.passed:
            if self.texts or self.signatures:
                allowed = "the texts and answers of the translator"
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
    expected = translator.search(sentences)
    asked = slice(NUM_ASKED)
    checks = None
    if description["format"] == "saved_model":
        checks = Checks(translator, sentences[asked], expected[asked])
    found = run(
        directory, sentences, beam_size, checks.requests if checks else None
    )
    comparison = _compare(translator, expected, found, description)
    signatures = checks.differing(found["answers"]) if checks else ()
    if description["format"] == "tflite":
        greedy = translator.with_decoding(beam_size=1)
        found = run(directory, sentences[asked], beam_size=1)
        signature = _compare(
            greedy, greedy.search(sentences[asked]), found, description
        )
        if not signature.passed:
            wrong = {*signature.different, *signature.texts}
            signatures = (("greedy", tuple(sorted(wrong))),)
    return dataclasses.replace(comparison, signatures=signatures)


def _compare(translator, expected, found, description) -> Comparison:
    """Compares the best translations.

    Args:
        translator: The `Translator`.
        expected: The `Translation` of each sentence.
        found: Output of `run`.
        description: The `export.json`.
    """
    ties: list[int] = []
    different: list[int] = []
    far: list[int] = []
    texts: list[int] = []
    for number, (translation, result) in enumerate(
        zip(expected, found["translations"], strict=True), 1
    ):
        if not _is_text_of(result, translator, description["format"]):
            texts.append(number)
        if translation.ids[0] != result["ids"]:
            distance = abs(translation.scores[0] - result["score"])
            (ties if distance < TIE else different).append(number)
            if not distance < FAR:
                far.append(number)
    return Comparison(
        number=len(expected),
        ties=tuple(ties),
        different=tuple(different),
        far=tuple(far),
        exact=description["precision"] == "float32",
        computed_in=found["computed_in"],
        texts=tuple(texts),
    )


def _is_text_of(result, translator, format_name):
    """Whether the text of an export's translation matches its tokens.

    transformers drops unknown tokens, so its texts with unknown tokens are not
    compared.
    """
    if format_name == "huggingface" and UNK in result["ids"]:
        return True
    [text] = translator.tokenizer.target.to_strings([result["ids"]])
    return result["text"] == text


class Checks:
    """Requests to every signature of a SavedModel, and the right answers.

    Prefixes and references come from the translator's own translations.

    Args:
        translator: The `Translator`.
        sentences: List of `str`.
        translations: Output of `Translator.search` for them.

    Attributes:
        requests: Inputs by name, by the name of the signature.
    """

    def __init__(self, translator, sentences, translations):
        self._translator = translator
        source, target = (
            translator.tokenizer.source,
            translator.tokenizer.target,
        )
        self._ids = {piece: id for id, piece in enumerate(target.pieces)}
        self._translations = translations
        texts = [translation.texts[0] for translation in translations]
        prefixes = [" ".join(text.split()[:1]) for text in texts]
        self._forced = translator.search(sentences, prefixes=prefixes)
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
            answers: Outputs by name, by the name of the signature; None if
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
        return row["hypotheses"] == self._texts_of(
            row["ids"]
        ) and _are_hypotheses(self._translations[number], row)

    def _is_tokens(self, number, row):
        lengths = [len(_without_padding(ids)) for ids in row["ids"]]
        return row["lengths"] == lengths and _are_hypotheses(
            self._translations[number], row
        )

    def _is_serving_default(self, number, row):
        return _is_among(self._translations[number], row)

    def _is_forced(self, number, row):
        return _is_among(self._forced[number], row)

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
        ids = self._translations[number].ids
        return self._target(row) in ids and self._has_pieces(number, row)

    def _is_attention_maps(self, number, row):
        reference = self._scores[number].ids
        if len(reference) == 1:  # EOS: the translation replaces it
            return self._is_attention(number, row)
        return self._has_pieces(number, row) and self._target(row) == reference

    def _has_pieces(self, number, row):
        """Whether the pieces spell the source and the translation."""
        pieces = self._translator.tokenizer.source.pieces
        source = [pieces[id] for id in self._sources[number]]
        [text] = self._texts_of([self._target(row)])
        return [
            piece for piece in row["source_pieces"] if piece
        ] == source and text == row["translation"]

    def _target(self, row):
        """The ids of the target's pieces; the piece of PAD is empty."""
        return [self._ids.get(p, UNK) for p in row["target_pieces"] if p]

    def _texts_of(self, ids):
        return self._translator.tokenizer.target.to_strings(ids)


def _is_among(translation, row):
    """Whether the translator has found the row's text with the same score."""
    return any(
        row["translation"] == text and abs(row["score"] - score) < TIE
        for text, score in zip(
            translation.texts, translation.scores, strict=True
        )
    )


def _are_hypotheses(translation, row):
    """Whether the ids and scores of a row are the translator's hypotheses.

    Rounding may decide which one is the last.
    """
    number = len(translation.ids)
    expected = list(zip(translation.ids, translation.scores, strict=True))
    return not any(map(any, row["ids"][number:])) and all(
        abs(score - expected[-1][1]) < TIE
        or any(
            _without_padding(ids) == its_ids and abs(score - its_score) < TIE
            for its_ids, its_score in expected
        )
        for ids, score in zip(
            row["ids"][:number], row["scores"][:number], strict=True
        )
    )


def _without_padding(ids):
    return [id for id in ids if id != PAD]


def run(directory, sentences, beam_size=None, requests=None) -> dict:
    """Runs an export in a process of its own; see `reload.py`.

    Args:
        directory: The export.
        sentences: List of `str`.
        beam_size: The beam size, for formats that leave the choice; by default
            the export's.
        requests: Inputs by the name of the signature, for a SavedModel.

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
        ValueError: There is none, a field is missing, or a value cannot be
            used: another version of this package wrote it.
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
            f"{path} does not describe an export: without {', '.join(missing)}"
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
    if not description["checkpoint"]:
        raise ValueError(f"{path}: checkpoint must be a path. Received: ''")
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
        check_values(
            TransformerConfig, max_positions=description.get("max_positions")
        )
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
    """Compares the files of an export with the checksums in `export.json`.

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
    # Not by splitlines: it splits at more characters than line feeds.
    lines = text.removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"expected sentences. Received: nothing in {path}")
    return lines


def load_translator(options):
    """The `Translator` behind an export.

    Raises:
        ValueError: There is no export, or the work directory is another one.
    """
    translators = load("keras_transformer.translator")
    is_there = load("keras_transformer.checkpoints").is_there
    description = read_description(options.export)
    checkpoint = os.path.join(options.workdir, description["checkpoint"])
    if os.path.isdir(options.workdir) and not is_there(checkpoint):
        raise ValueError(
            "expected the work directory of the export, with its"
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
    """Runs the command; status 1 if the export is wrong."""
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
