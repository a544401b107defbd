"""The plan of `trainers.synthesize`: a YAML file, checked field by field."""

import contextlib
import dataclasses
import pathlib
import re
import typing

from keras_transformer.config import DecodingConfig
from keras_transformer.data.pairs import find_file
from keras_transformer.fields import (
    Fields,
    check_values,
    from_values,
    hp,
    kinds_of,
)
from keras_transformer.importers.files import check_file, shown
from keras_transformer.importers.yaml_files import read_options
from trainers.preparing.rules import CleaningOptions
from trainers.run.config import DataConfig, same_field

# The models that each kind of step has, by direction.
KINDS = {
    "back_translation": ("backward",),
    "diversification": ("forward", "backward"),
    "distillation": ("forward",),
}
SEARCHES = ("beam", "sampling", "noised_beam")


@dataclasses.dataclass(frozen=True)
class CorpusOptions(Fields):
    """The original corpus, and where the synthetic ones are written."""

    source_language: str = same_field(DataConfig, "source_language")
    target_language: str = same_field(DataConfig, "target_language")
    train_files: tuple[str, ...] = hp(
        (), "Prefixes of the original corpora, as in trainers.wmt. Required."
    )
    output: str = hp("", "Directory to write. Required.")
    seed: int = hp(1, "Seed of samples and of noise.", low=0)

    def __post_init__(self):
        super().__post_init__()
        _check_given(self, "train_files", "output")
        languages = self.source_language, self.target_language
        DataConfig(
            dataset="files",
            source_language=self.source_language,
            target_language=self.target_language,
            train_files=self.train_files,
        )  # checks them
        for prefix in self.train_files:
            for language in languages:
                find_file(prefix, language)


@dataclasses.dataclass(frozen=True)
class Filters(CleaningOptions):
    """Which synthetic pairs are dropped, besides the rules of cleaning."""

    check_language: bool = hp(
        True,
        "Drop a pair with a side of which fewer than half of the character"
        " trigrams are more frequent in its language than in the other one, in"
        " the original corpus.",
        option_of=("clean", True),
    )
    min_log_prob: float | None = hp(
        None,
        "Drop a pair whose mean log-probability per token of the translation,"
        " by the model that made it, is lower. Default: no limit.",
        high=0.0,
    )


@dataclasses.dataclass(frozen=True)
class StepOptions(Fields):
    """One step: models, and the text that they translate.

    The text is the original corpus: its sources for models that translate
    forward, from source to target; its targets for the others.
    """

    name: str = hp("", "Name of its files in the output directory. Required.")
    kind: str = hp(
        "back_translation",
        "back_translation of text in the target language (Sennrich et al."
        " 2016); diversification of the original corpus by models of both"
        " directions (Nguyen et al. 2020); distillation, the original sources"
        " with the translations of a teacher (Kim and Rush 2016).",
        choices=tuple(KINDS),
    )
    forward: tuple[str, ...] = hp(
        (), "Work directories of models from source to target."
    )
    backward: tuple[str, ...] = hp(
        (), "Work directories of models from target to source."
    )
    text: tuple[str, ...] = hp(
        (),
        "Files of lines in the target language, or their .gz. Each line is"
        " translated once, however often it occurs.",
        option_of=("kind", "back_translation"),
    )
    search: str = hp(
        "beam",
        "beam; sampling; or noised_beam, whose translations lose words, get"
        " fillers for words, and change their order (Edunov et al. 2018).",
        choices=SEARCHES,
        option_of=("kind", "back_translation"),
    )
    tag: str = hp(
        "<BT>",
        "Word before each back-translated source (Caswell et al. 2019); empty:"
        " none.",
        option_of=("kind", "back_translation"),
    )

    def __post_init__(self):
        super().__post_init__()
        _check_given(self, "name", *KINDS[self.kind])
        if self.is_back_translation:
            _check_given(self, "text")
        if not re.fullmatch(r"[\w-]+", self.name):
            raise ValueError(
                "name must be letters, digits, _ and -. Received:"
                f" name={self.name!r}"
            )
        for name in {"forward", "backward"}.difference(KINDS[self.kind]):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is no option of kind={self.kind}. Received:"
                    f" {name}={getattr(self, name)!r}"
                )
        if not re.fullmatch(r"[^\s,]*", self.tag):
            raise ValueError(
                "tag must be one word without a comma, or empty. Received:"
                f" tag={self.tag!r}"
            )
        configs = (
            f"{path}/config.json" for path in self.forward + self.backward
        )
        for path in (*configs, *self.text):
            check_file(pathlib.Path(path))

    @property
    def is_back_translation(self) -> bool:
        """Whether it translates other text than the original corpus."""
        return self.kind == "back_translation"


class Step(typing.NamedTuple):
    """A step of a plan.

    Attributes:
        options: Its `StepOptions`.
        decoding: Fields of `DecodingConfig` that replace those of its work
            directories, by name.
    """

    options: StepOptions
    decoding: dict[str, typing.Any]


class Plan(typing.NamedTuple):
    """A whole plan.

    Attributes:
        corpus: Its `CorpusOptions`.
        filters: Its `Filters`.
        steps: Its steps, at least one.
    """

    corpus: CorpusOptions
    filters: Filters
    steps: list[Step]


def read_plan(path: str) -> Plan:
    """The plan in a file.

    Raises:
        ValueError, OSError: It cannot be read, or names what does not exist.
            The message says where in the plan that is.
    """
    values = read_options(pathlib.Path(path))
    with _at(path, "filters"):
        filters = from_values(Filters, _fields(values.pop("filters", {})))
    with _at(path, "steps"):
        steps = values.pop("steps", [])
        if not isinstance(steps, list) or not steps:
            raise ValueError(
                f"expected a list of steps. Received: {shown(steps)}"
            )
    with _at(path):
        corpus = from_values(CorpusOptions, values)
    planned: list[Step] = []
    for number, step in enumerate(steps, 1):
        with _at(path, f"step {number}"):
            planned.append(_read_step(step))
            names = [step.options.name for step in planned]
            if len(set(names)) < number:
                raise ValueError(f"name must be new. Received: {names[-1]!r}")
    return Plan(corpus, filters, planned)


def _read_step(values):
    """The `Step` of its fields."""
    searching = kinds_of(DecodingConfig).keys() - {"sampling"}
    values = _fields(values)
    decoding = {n: values.pop(n) for n in searching & values.keys()}
    options = from_values(StepOptions, values)
    check_values(DecodingConfig, **decoding)
    return Step(options, decoding | {"sampling": options.search == "sampling"})


def _fields(values):
    """Values, which must be fields by name."""
    if not isinstance(values, dict):
        raise ValueError(f"expected fields by name. Received: {shown(values)}")
    return values


@contextlib.contextmanager
def _at(*place):
    """Begins errors with the place in the plan."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise ValueError(f"{': '.join(place)}: {error}") from None


def _check_given(options, *names):
    """Raises ValueError if a field is empty."""
    for name in names:
        if not getattr(options, name):
            raise ValueError(f"expected {name}. Received: none")
