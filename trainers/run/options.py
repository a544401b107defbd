"""Options that several commands share."""

import dataclasses

from keras_transformer.commands.startup import (
    BACKENDS,
    DEVICES,
    choose_backend,
    prepare_search,
)
from keras_transformer.config import CHECKPOINT_KINDS, PRECISIONS
from keras_transformer.fields import GIVEN, Fields, hp, required, same_field
from trainers.run.config import TrainingConfig


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
class TranslatorOptions(DeviceOptions, WorkdirOptions):
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
    precision: str = hp(
        "float32",
        "Precision of weights and products. bfloat16 is faster on processors"
        " that support it; some translations then differ.",
        choices=PRECISIONS,
    )
    jit_compile: bool = hp(
        False, "Compile with XLA: slow to start, fast with many sentences."
    )
    num_threads: int | None = hp(
        None,
        "Batches translated in parallel. Default: one per CPU core, or 1 with a"
        " GPU.",
        low=1,
    )

    def prepare_process(self) -> None:
        """Chooses backend, device and threads; call it before `load`."""
        choose_backend(self.backend, self.device)
        prepare_search(self.jit_compile)

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


@dataclasses.dataclass(frozen=True)
class TestOptions(Fields):
    """The sentence pairs."""

    test_files: tuple[str, ...] = hp(
        (),
        "PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or several, separated by"
        " commas. Default, without test_set: the test pairs of the data set"
        " that the model was trained on.",
        excludes={"test_set": GIVEN},
    )
    test_set: str = hp(
        "",
        "A test set by sacreBLEU's name, such as wmt14/full, which sacreBLEU"
        " downloads at its first use.",
    )


@dataclasses.dataclass(frozen=True)
class MetricOptions(Fields):
    """The score."""

    bleu_tokenizer: str = same_field(TrainingConfig, "bleu_tokenizer")
