"""Options that several commands share."""

import dataclasses
import typing
from collections.abc import Mapping

from keras_transformer.commands.flags import Arguments
from keras_transformer.commands.startup import (
    BACKENDS,
    DEVICES,
    choose_backend,
    prepare_search,
)
from keras_transformer.config import (
    CHECKPOINT_KINDS,
    PRECISIONS,
    DecodingConfig,
)
from keras_transformer.fields import Fields, hp, required
from keras_transformer.workdir import WorkDirectory


@dataclasses.dataclass(frozen=True)
class DeviceOptions(Fields):
    """The device."""

    backend: str | None = hp(
        None,
        "Framework that computes. Default: the environment variable"
        " KERAS_BACKEND, else tensorflow.",
        choices=BACKENDS,
    )
    device: str | None = hp(
        None,
        "Kind of device that must compute: the command ends with an error if"
        " there is none. Default: the fastest kind that there is.",
        choices=DEVICES,
    )


@dataclasses.dataclass(frozen=True)
class WorkdirOptions(Fields):
    """The work directory."""

    workdir: str = required("DIR", "Directory that trainers.wmt made.")


@dataclasses.dataclass(frozen=True)
class SearchDeviceOptions(DeviceOptions):
    """How a translator computes."""

    precision: str = hp(
        "float32",
        "Precision of weights and products. bfloat16 is faster on processors"
        " that support it; some translations then differ.",
        choices=PRECISIONS,
    )
    jit_compile: bool = hp(
        False, "Compile with XLA: slow to start, fast with many sentences."
    )

    def prepare_process(self) -> None:
        """Chooses backend, device and threads; call it before `load`."""
        choose_backend(self.backend, self.device)
        prepare_search(self.jit_compile)

    def of_workdir(self, path: str) -> "TranslatorOptions":
        """The options of a translator that computes so."""
        return TranslatorOptions(
            workdir=path,
            backend=self.backend,
            device=self.device,
            precision=self.precision,
            jit_compile=self.jit_compile,
        )


@dataclasses.dataclass(frozen=True)
class TranslatorOptions(SearchDeviceOptions, WorkdirOptions):
    """The translator."""

    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path. Default: the first of these that"
        " exists.",
    )
    max_source_length: int | None = hp(
        None,
        "Maximum length of a source in tokens, EOS included; longer ones are"
        " truncated. Default: the maximum in training.",
        low=2,
    )
    num_threads: int | None = hp(
        None,
        "Batches translated in parallel. Default: one per CPU core, or 1 with a"
        " GPU.",
        low=1,
    )

    def in_workdir(self, path: str) -> "TranslatorOptions":
        """The options for another work directory.

        Its checkpoint is of the same kind; if `checkpoint` is a path, which
        belongs to the first work directory, it is the first that exists.
        """
        is_kind = self.checkpoint in CHECKPOINT_KINDS
        return dataclasses.replace(
            self, workdir=path, checkpoint=self.checkpoint if is_kind else None
        )


@dataclasses.dataclass(frozen=True)
class ShortlistOptions(Fields):
    """The tokens of the output."""

    shortlist: bool = hp(
        False,
        "Score only the tokens of a shortlist, DIR/shortlist.txt, which"
        " trainers.shortlist makes: faster on a CPU if the vocabulary is"
        " large.",
    )


@dataclasses.dataclass(frozen=True)
class LanguageOptions(Fields):
    """The direction."""

    target_language: str | None = hp(
        None,
        "For models with several target languages: the language to translate"
        " into, e.g. fr; sources then have no tags. Default: each source starts"
        " with a tag such as <2fr>.",
    )


# What `TranslatorChoice.of` reads.
TRANSLATOR = (TranslatorOptions, ShortlistOptions, LanguageOptions)


@dataclasses.dataclass(frozen=True)
class OutputOptions(Fields):
    """The output."""

    n_best: int = hp(
        0,
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'. 0 writes only the best one.",
        low=0,
    )
    alignments: bool = hp(
        False,
        "After each translation write ' ||| ' and the links of its words:"
        " source-target, from 0, by the attention of --alignment_layer.",
    )


class TranslatorChoice(typing.NamedTuple):
    """The translator that a command line asks for.

    `translating.lines.open_translator` takes these values.

    Attributes:
        options: The options.
        search: Fields of `DecodingConfig` on the command line, which override
            those of the work directory.
        target_language, shortlist: As in `LanguageOptions`, `ShortlistOptions`.
    """

    options: TranslatorOptions
    search: Mapping[str, typing.Any]
    target_language: str | None = None
    shortlist: bool = False

    @classmethod
    def of(cls, arguments: Arguments) -> "TranslatorChoice":
        """The choice of a command line with some of these options."""
        return cls(
            arguments.build(TranslatorOptions),
            arguments.given_of(DecodingConfig),
            arguments.build(LanguageOptions).target_language,
            arguments.build(ShortlistOptions).shortlist,
        )

    def at(self, path: str) -> "TranslatorChoice":
        """The same in a work directory, if it is another: see `in_workdir`."""
        options = self.options
        there = options if path == options.workdir else options.in_workdir(path)
        return self._replace(options=there)

    def read_search(self) -> DecodingConfig:
        """The search of the work directory, with the fields of `search`."""
        workdir = WorkDirectory(self.options.workdir)
        before = workdir.read_section("decoding", DecodingConfig)
        return dataclasses.replace(before, **self.search)

    def check(self) -> None:
        """Raises what opening the translator would, without a framework."""
        options = self.options
        workdir = WorkDirectory(options.workdir)
        search, length = self.read_search(), options.max_source_length
        workdir.read_languages().choose_tags(self.target_language)
        workdir.check_translator(
            search, options.checkpoint, length, self.shortlist
        )
