"""Compares an export, token by token, with its translator.

    kt-verify --workdir=DIR --export=DIR --text=FILE

--export is the --output of kt-export. If it has several versions, the highest
one is compared. A process that does not import this package runs the export.
Both sides compute on the CPU: a GPU rounds differently, and this process would
take the memory that the process with the export needs.

The last line of the output is the verdict. Float32 weights pass if every
translation has the same tokens or, where rounding decides, the same score.
Quantized weights pass if at most half of the scores are far from the
translator's. With any weights, the text must match the tokens. LiteRT's greedy
search is also compared, with the first sentences. If sentences need a
direction, each gets a random one.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import typing
from collections.abc import Sequence

from keras_transformer.base.fields import Fields, required
from keras_transformer.base.files import check_checksum, check_sums, read_json
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.text.vocabulary import UNK
from keras_transformer.translation.requests import Request, read_text
from savedmodel import reload
from savedmodel.formats import FORMATS, check_precision

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

TIE = 1e-3  # two searches may differ if their scores are closer than this
FAR = 0.25  # difference of scores that quantized weights do not explain
NUM_GREEDY = 16  # sentences to compare a second, greedy search with


class ExportError(flags.RunError):
    """An export that does not run, or translates differently."""


class VerifyOptions(Fields):
    """The comparison."""

    workdir: str = required("DIR", "Work directory of kt-train.")
    export: str = required("DIR", "The --output of kt-export, or a version.")
    text: str = required("FILE", "File of source sentences, one per line.")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How the translations of an export differ from the translator's."""

    number: int  # of sentences; tuples below have sentence numbers, from 1
    ties: tuple[int, ...]  # other tokens, the same score: rounding decided
    different: tuple[int, ...]  # other tokens, another score
    far: tuple[int, ...]  # in `different`, scores `FAR` or more apart
    exact: bool  # weights are not quantized: nothing should be different
    computed_in: str | None = None  # a type, if the runtime reports one
    texts: tuple[int, ...] = ()  # text does not match the tokens
    greedy: tuple[int, ...] = ()  # wrong results of the greedy search

    @property
    def passed(self) -> bool:
        """Whether the export is correct. If quantized, half may be `far`."""
        if self.texts or self.greedy:
            return False
        if self.exact:
            return not self.different
        return 2 * len(self.far) <= self.number

    def __str__(self):
        same = self.number - len(self.ties) - len(self.different)
        near = tuple(line for line in self.different if line not in self.far)
        kinds = {
            f"other tokens of the same score (within {TIE:g})": self.ties,
            f"other tokens, score within {FAR:g}": near,
            f"other tokens, score {FAR:g} or more apart": self.far,
            "text does not match the tokens": self.texts,
            "wrong answer of the greedy search": self.greedy,
        }
        text = "passed" if self.passed else "failed"
        text += f": {same} of {self.number} sentences equal"
        if same < self.number:
            text += f", {self.number - same} not"
        if self.computed_in:
            text += f", computed in {self.computed_in}"
        for kind, lines in kinds.items():
            if lines:
                text += f"; {kind}: sentence {', '.join(map(str, lines))}"
        if self.passed and not self.different:
            return text
        allowed = f"at most {self.number // 2} may be {FAR:g} or more apart"
        if self.texts or self.greedy:
            allowed = "the texts and answers of the translator"
        elif self.exact:
            allowed = "only ties may differ: the weights are not quantized"
        return f"{text}. {'Limit' if self.passed else 'Expected'}: {allowed}"


def compare(
    translator: "Translator",
    directory: str | os.PathLike,
    sentences: list[str],
    both_searches: bool = True,
) -> Comparison:
    """Compares an export with its live translator of the same decoding.

    With `both_searches`, a format's second, greedy search is also compared, on
    the first sentences. Raises ValueError if there is no export, and
    ExportError if it is corrupt, or cannot be loaded or run.
    """
    description = read_description(directory)
    try:
        check_sums(reload.find_export(directory), description["sha256"])
    except ValueError as error:
        raise ExportError(str(error)) from error
    format = FORMATS[description["format"]]
    beam_size = 1 if format.own_search else None
    arguments = translator, directory, description
    comparison = _compare_search(*arguments, sentences, beam_size)
    if not (format.greedy_search and both_searches):
        return comparison
    other = _compare_search(*arguments, sentences[:NUM_GREEDY], beam_size=1)
    wrong = () if other.passed else {*other.different, *other.texts}
    return dataclasses.replace(comparison, greedy=tuple(sorted(wrong)))


def _compare_search(
    translator: "Translator",
    directory: str | os.PathLike,
    description: dict[str, typing.Any],
    sentences: list[str],
    beam_size: int | None,
) -> Comparison:
    """Compares one search. `beam_size` is as in `run`."""
    if beam_size is not None:
        translator = translator.with_decoding(beam_size=beam_size)
    source = translator.tokenizer.source
    sentences = [read_text(source, sentence).text for sentence in sentences]
    requests, inputs = _with_languages(translator, sentences)
    expected = translator.search(requests)
    if FORMATS[description["format"]].is_workdir:
        found = run_workdir(directory, translator, requests)
    else:
        found = run(directory, inputs, beam_size)
    drops_unknown = FORMATS[description["format"]].drops_unknown
    kinds: dict[str, list[int]] = {
        kind: [] for kind in ("ties", "different", "far", "texts")
    }
    to_strings = translator.tokenizer.target.to_strings
    for number, (translation, result) in enumerate(
        zip(expected, found["translations"], strict=True), 1
    ):
        ids = result["ids"]
        is_whole = not drops_unknown or UNK not in ids
        if is_whole and to_strings([ids]) != [result["text"]]:
            kinds["texts"].append(number)
        if translation.ids[0] != ids:
            distance = abs(translation.scores[0] - result["score"])
            kinds["ties" if distance < TIE else "different"].append(number)
            if not distance < FAR:
                kinds["far"].append(number)
    return Comparison(
        number=len(expected),
        exact=description["precision"] == "float32",
        computed_in=found["computed_in"],
        **{kind: tuple(numbers) for kind, numbers in kinds.items()},
    )


def _with_languages(translator, sentences):
    """Gives sentences random directions, if the model needs them.

    Returns requests to the translator, and the input of `reload`.
    """
    languages = translator.languages
    if languages.direction() is not None:
        return sentences, sentences
    pairs = random.Random(1).choices(languages.pairs, k=len(sentences))
    if tags := languages.tags:
        texts = [
            text
            if {*text.split()[:1]} <= {*tags.values()}  # blank, or has a tag
            else f"{tags[target]} {text}"
            for text, (_, target) in zip(sentences, pairs, strict=True)
        ]
        return texts, texts
    requests = [
        Request(text, direction=languages.direction(*pair))
        for text, pair in zip(sentences, pairs, strict=True)
    ]
    inputs = [
        {"text": text, "source_language": source, "target_language": target}
        for text, (source, target) in zip(sentences, pairs, strict=True)
    ]
    return requests, inputs


def run(
    directory: str | os.PathLike,
    sentences: Sequence[str | dict[str, str]],
    beam_size: int | None = None,
) -> dict:
    """Runs an export in a separate process. Returns the output of `reload`.

    `beam_size` is for formats whose callers choose it. Raises ExportError if
    the export cannot be loaded or run.
    """
    # Isolated: PYTHONPATH and the script's directory are ignored.
    command = [sys.executable, "-I", str(pathlib.Path(reload.__file__).parent)]
    command += [str(pathlib.Path(directory).resolve())]
    command += [] if beam_size is None else [str(beam_size)]
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


def run_workdir(
    directory: str | os.PathLike,
    translator: "Translator",
    requests: Sequence[str | Request],
) -> dict:
    """Runs an export that is a work directory. Returns output as `run` does.

    `translator` has the search.
    """
    own = type(translator).load(
        directory,
        translator.decoding,
        max_source_length=translator.max_source_length,
    )
    translations = [
        {"ids": one.ids[0], "score": one.scores[0], "text": one.texts[0]}
        for one in own.search(requests)
    ]
    return {"computed_in": None, "translations": translations}


def read_description(directory: str | os.PathLike) -> dict:
    """Reads the `export.json` of an export. Raises ValueError if invalid."""
    path = reload.find_export(directory) / reload.DESCRIPTION
    description = read_json(path)
    try:
        check_checksum(description)
        check_precision(description["format"], description["precision"])
        DecodingConfig(**description["decoding"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} does not describe an export: {error}"
        ) from error
    return description


def read_sentences(path: str | os.PathLike) -> list[str]:
    """Reads the lines of a file. Raises ValueError if it is empty."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    # Not by splitlines: it splits at more characters than line feeds.
    lines = text.removesuffix("\n").split("\n")
    expect(lines != [""], "sentences", f"nothing in {path}")
    return lines


def load_translator(options: VerifyOptions) -> "Translator":
    """Loads the `Translator` that an export was made from."""
    description = read_description(options.export)
    return load("keras_transformer.translator").Translator.load(
        options.workdir,
        DecodingConfig(**description["decoding"]),
        os.path.join(options.workdir, description["checkpoint"]),
        max_source_length=description["max_source_length"],
    )


def hide_gpus() -> None:
    """Makes this process and its children compute on the CPU.

    Must be called before TensorFlow is imported.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


@flags.command("kt-verify", __doc__, VerifyOptions)
def main(arguments: flags.Arguments) -> None:
    options = arguments.build(VerifyOptions)
    hide_gpus()
    with flags.user_errors():
        sentences = read_sentences(options.text)
        translator = load_translator(options)
    comparison = compare(translator, options.export, sentences)
    flags.show(str(comparison))
    if not comparison.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
