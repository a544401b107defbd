"""The plan of `kt-synthesize`: a YAML file, checked field by field."""

import contextlib
import pathlib
import re
import typing
from collections.abc import Iterator

from keras_transformer.base.fields import (
    Fields,
    check_values,
    from_values,
    hp,
    kinds_of,
    same_field,
)
from keras_transformer.base.foreign_files import check_file, shown
from keras_transformer.config import DecodingConfig
from keras_transformer.data.files.pairs import find_file
from keras_transformer.storage.yaml_files import read_options
from trainers.preparing.options import CleaningOptions
from trainers.run.data_config import DataConfig
from trainers.translating.options import split_workdirs

# The directions of the models that each kind of step needs.
KINDS = {
    "back_translation": ("backward",),
    "diversification": ("forward", "backward"),
    "distillation": ("forward",),
}
SEARCHES = ("beam", "sampling", "noised_beam")


class CorpusOptions(Fields):
    """The original corpus, and where the synthetic ones are written."""

    source_language: str = same_field(DataConfig, "source_language")
    target_language: str = same_field(DataConfig, "target_language")
    train_files: tuple[str, ...] = hp(
        (), "Prefixes of the original corpora, as in kt-train. Required."
    )
    output: str = hp("", "Directory to write. Required.")

    def __post_init__(self):
        super().__post_init__()
        _check_given(self, "train_files", "output")
        for path in (*self.train_files, self.output):
            if re.search(r"[\s,;]", path):
                raise ValueError(
                    "train_files and output must not contain white space,"
                    " commas or semicolons, which separate names in mixture."
                    f" Received: {path!r}"
                )
        if self.source_language == self.target_language:
            raise ValueError(
                "source_language and target_language must differ. Received:"
                f" {self.source_language!r} for both"
            )
        self.find_files()

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.source_language, self.target_language

    def find_files(self) -> dict[str, list[pathlib.Path]]:
        """Finds the files of the original corpora, by language."""
        return {
            language: [
                find_file(prefix, language) for prefix in self.train_files
            ]
            for language in self.languages
        }


class Filters(CleaningOptions):
    """Filters of synthetic pairs: those of kt-prepare, and three more."""

    check_language: bool = hp(
        True,
        "Drop pairs with a side in another language, by trigrams.",
        needs={"clean": True},
    )
    min_log_prob: float | None = hp(
        None,
        "Minimum mean log-probability of the tokens of a translation.",
        below=0.0,
    )
    min_confidence: float | None = hp(
        None,
        "Minimum probability that a reader would accept a translation as it is."
        " kt-evaluate --calibrate prepares a model for it.",
        low=0.0,
        high=1.0,
    )


def _kinds_without(direction: str) -> tuple[str, ...]:
    return tuple(kind for kind, used in KINDS.items() if direction not in used)


class StepOptions(Fields):
    """One step: its models, and what they translate."""

    name: str = hp("", "Name of its files in the output directory. Required.")
    kind: str = hp(
        "back_translation",
        "Kind of synthetic data; see docs/synthesis.md.",
        choices=tuple(KINDS),
    )
    forward: tuple[str, ...] = hp(
        (),
        "Work directories of models from source to target. With commas in one"
        " text, such as 'a,b', they are an ensemble.",
        excludes={"kind": _kinds_without("forward")},
    )
    backward: tuple[str, ...] = hp(
        (),
        "Work directories of models from target to source, likewise.",
        excludes={"kind": _kinds_without("backward")},
    )
    text: tuple[str, ...] = hp(
        (),
        "Text files or .gz: with back_translation in the target language, with"
        " distillation additional text in the source language.",
        excludes={"kind": "diversification"},
    )
    search: str = hp(
        "beam",
        "noised_beam: beam search, then noise (Edunov et al. 2018).",
        choices=SEARCHES,
        needs={"kind": "back_translation"},
    )
    tag: str = hp(
        "",
        "Word before each source, such as <BT> (Caswell et al. 2019).",
        needs={"kind": "back_translation"},
    )

    def __post_init__(self):
        super().__post_init__()
        _check_given(self, "name", *KINDS[self.kind])
        if self.kind == "back_translation":
            _check_given(self, "text")
        for name, pattern in (("name", r"[\w-]+"), ("tag", r"[^\s,]*")):
            if not re.fullmatch(pattern, getattr(self, name)):
                raise ValueError(
                    f"{name} must be one word of the form {pattern}. Received:"
                    f" {name}={getattr(self, name)!r}"
                )
        for _, _, paths in self.models:
            for path in split_workdirs(paths):
                check_file(pathlib.Path(path, "config.json"))
        for path in self.text:
            check_file(pathlib.Path(path))

    @property
    def models(self) -> list[tuple[str, int, str]]:
        """The direction, number from 1, and work directory of each model.

        An ensemble is one model. Its work directories are separated by commas.
        """
        return [
            (direction, number, paths)
            for direction in ("forward", "backward")
            for number, paths in enumerate(getattr(self, direction), 1)
        ]


class Step(typing.NamedTuple):
    """A step. `decoding` overrides fields of its models' `DecodingConfig`."""

    options: StepOptions
    decoding: dict[str, typing.Any]


class Plan(typing.NamedTuple):
    """A plan: the corpus, the filters and the steps in order."""

    corpus: CorpusOptions
    filters: Filters
    steps: list[Step]


def read_plan(path: str) -> Plan:
    """Reads a plan from a YAML file.

    Raises ValueError, with the place in the plan, if a value is wrong.
    """
    values = read_options(pathlib.Path(path))
    given = values.pop("steps", None)
    with _place(path, "filters"):
        filters = from_values(Filters, _fields(values.pop("filters", {})))
    with _place(path):
        corpus = from_values(CorpusOptions, values)
        if not isinstance(given, list) or not given:
            raise ValueError(f"steps must be a list. Received: {shown(given)}")
    steps: list[Step] = []
    for number, step in enumerate(given, 1):
        with _place(path, f"step {number}"):
            steps.append(_read_step(_fields(step)))
            names = [step.options.name for step in steps]
            if names[-1] in names[:-1]:
                raise ValueError(f"name must be new. Received: {names[-1]!r}")
    return Plan(corpus, filters, steps)


def _read_step(values: dict) -> Step:
    """Makes a `Step` from its fields. `search` decides whether it samples."""
    searching = kinds_of(DecodingConfig).keys() - {"sampling"}
    decoding = {n: v for n, v in values.items() if n in searching}
    check_values(DecodingConfig, **decoding)
    options = from_values(
        StepOptions, {n: v for n, v in values.items() if n not in decoding}
    )
    return Step(options, decoding | {"sampling": options.search == "sampling"})


def _fields(values: typing.Any) -> dict:
    """Returns values. Raises ValueError unless they are fields by name."""
    if not isinstance(values, dict):
        raise ValueError(f"expected fields by name. Received: {shown(values)}")
    return values


@contextlib.contextmanager
def _place(*names: str) -> Iterator[None]:
    """Prefixes errors in the block with a place in the plan."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise ValueError(f"{': '.join(names)}: {error}") from None


def _check_given(options: Fields, *names: str) -> None:
    for name in names:
        if not getattr(options, name):
            raise ValueError(f"expected {name}. Received: none")
