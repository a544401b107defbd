"""The training recipe, and the sections of `config.json`."""

import dataclasses
import os
import pathlib
import typing
from collections.abc import Mapping

from keras_transformer.base.fields import GIVEN, Fields, check_options, hp
from keras_transformer.base.refusals import expect
from keras_transformer.config import (
    PAPER_BETA_2,
    PAPER_SCALE,
    DecodingConfig,
    TransformerConfig,
    check_alignment,
    check_position_limit,
)
from keras_transformer.data.files.pairs import read_lines
from trainers.datasets import OF_TEXT_FILES
from trainers.datasets.dataset import SPLITS, find_dataset
from trainers.run.data_config import RunData

# sacreBLEU's tokenizers without a download; auto chooses by target language.
BLEU_TOKENIZERS = (
    "auto",
    "13a",
    "intl",
    "zh",
    "ja-mecab",
    "ko-mecab",
    "char",
    "none",
)
TRAINING_PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
# The linear layers of attention and of the feed-forward network.
LORA_TARGETS = ("query", "key", "value", "output", "inner", "outer")
REMATS = ("none", "layers")
SCHEDULES = ("noam", "constant", "linear", "cosine")
DECAYING_SCHEDULES = ("linear", "cosine")  # they decay to 0 at the end
PAPER_WARMUP_STEPS = 4000
GUIDED_ALIGNMENT_WEIGHT = 0.05  # Garg et al. 2019


def shorter_warmup(
    given: Mapping[str, typing.Any], updates: float
) -> dict[str, typing.Any]:
    """Returns fields that make the warm-up a tenth of the updates.

    The peak learning rate stays that of the fields `given`. That of noam is
    learning_rate_scale * (d_model * warmup_steps)^-0.5.

    >>> shorter_warmup({"warmup_steps": 400, "learning_rate_scale": 2.0}, 600)
    {'warmup_steps': 60, 'learning_rate_scale': 0.775}
    """
    steps = max(1, int(updates / 10))
    if given.get("schedule", TrainingConfig.schedule) != "noam":
        return {"warmup_steps": steps}
    scale = given.get("learning_rate_scale", PAPER_SCALE)
    scale *= (steps / given["warmup_steps"]) ** 0.5
    return {
        "warmup_steps": steps,
        "learning_rate_scale": float(f"{scale:.3g}"),
    }


def as_flags(fields: Mapping[str, typing.Any]) -> str:
    """Spells numbers as a command line does.

    >>> as_flags({"warmup_steps": 60, "learning_rate_scale": 0.775})
    '--warmup_steps=60 --learning_rate_scale=0.775'
    """
    return " ".join(f"--{name}={value}" for name, value in fields.items())


class TrainingConfig(Fields, changeable=True):
    """The training recipe (sec. 5.2 to 5.4, 6.1); defaults as for base."""

    init_from: str = hp(
        "",
        "Work directory whose weights and vocabulary the run begins with, as in"
        " fine-tuning. Its model, languages, max_length and decoding are the"
        " defaults. box: the package's model of these languages. Without it,"
        " weights are initialized at random.",
        resolved_by="init_from_path",
        changeable=False,
        common=True,
        group="Starting from another model.",
    )
    init_checkpoint: str | None = hp(
        None,
        "Checkpoint of init_from: averaged, best, latest, or a path. Default:"
        " the first of these that exists.",
        changeable=False,
        needs={"init_from": GIVEN},
    )
    train_steps: int = hp(
        100000,
        "Updates.",
        low=1,
        common=True,
        group="Length, schedule and optimizer.",
    )
    train_minutes: float = hp(
        0.0,
        "Wall-clock minutes after which training ends. They include earlier"
        " sessions and validation, but not reading the data. 0: no limit.",
        low=0.0,
        common=True,
    )
    schedule: str = hp(
        "noam",
        "How the learning rate changes after its warm-up: noam, as in eq. 3;"
        " constant; linear or cosine, to 0 at the end of train_steps or of"
        " train_minutes, whichever is nearer.",
        choices=SCHEDULES,
    )
    warmup_steps: int | None = hp(
        None,
        "Updates until the peak learning rate. Default:"
        f" {PAPER_WARMUP_STEPS} with noam (sec. 5.3), else 0.",
        low=0,
    )
    learning_rate: float | None = hp(
        None,
        "Peak learning rate; noam's follows from d_model, warmup_steps"
        " and learning_rate_scale.",
        low=1e-12,
        needs={"schedule": SCHEDULES[1:]},
    )
    learning_rate_scale: float = hp(
        PAPER_SCALE,
        "Factor of the learning rate of eq. 3.",
        low=1e-9,
        needs={"schedule": "noam"},
    )
    adam_beta_2: float = hp(
        PAPER_BETA_2,
        "Adam's decay of the mean of squared gradients (sec. 5.3).",
        low=0.0,
        below=1.0,
    )
    weight_decay: float = hp(
        0.0,
        "Decoupled weight decay (AdamW): an update subtracts learning rate *"
        " weight_decay * weight, except of norms and biases. 0 disables it.",
        low=0.0,
    )
    label_smoothing: float = hp(
        0.1,
        "Probability spread over all tokens.",
        low=0.0,
        below=1.0,
        group="The loss.",
    )
    r_drop: float = hp(
        0.0,
        "Alpha of R-Drop (Liang et al. 2021, 5 for translation): each row is"
        " computed twice, with different dropout, and the divergence of both"
        " outputs is added to the loss. 0 disables it.",
        low=0.0,
    )
    guided_alignment: tuple[str, ...] = hp(
        (),
        "Files of word links, one for each of train_files, with a line such as"
        " 0-0 1-2 for each pair: alignment_head is trained to attend to linked"
        " words (Chen et al. 2016).",
        needs={"dataset": OF_TEXT_FILES, "remat": "none"},
        excludes={"modifiers": GIVEN, "language_tokens": GIVEN},
    )
    guided_alignment_weight: float = hp(
        GUIDED_ALIGNMENT_WEIGHT,
        "Weight of the loss of guided_alignment, a cross-entropy for each"
        " target token with links (Garg et al. 2019: 0.05).",
        low=0.0,
        needs={"guided_alignment": GIVEN},
    )
    ema_decay: float = hp(
        0.0,
        "Decay of an exponential moving average of the weights, such as 0.999:"
        " validation and every checkpoint then use the average. 0 disables it.",
        low=0.0,
        below=1.0,
        changeable=False,
        group="The weights.",
    )
    freeze: tuple[str, ...] = hp(
        (),
        "Weights that are not trained: embeddings, encoder, decoder, or"
        " prefixes of their names, such as encoder.layer_0 or"
        " decoder.*.cross_attention, separated by commas.",
        changeable=False,
    )
    lora_rank: int = hp(
        0,
        "Trains adapters of this rank beside the frozen weights of init_from"
        " (Hu et al. 2022): checkpoints are small. 0: trains the weights.",
        low=0,
        changeable=False,
        needs={"init_from": GIVEN},
        excludes={"freeze": GIVEN},
    )
    lora_targets: tuple[str, ...] = hp(
        ("query", "value"),
        "Matrices that have adapters, in every layer, separated by commas:"
        f" {', '.join(LORA_TARGETS)}.",
        changeable=False,
        needs={"lora_rank": GIVEN},
    )
    valid_steps: int = hp(
        2000, "Updates between two validations.", low=1, group="Validation."
    )
    valid_sentences: int = hp(
        1000,
        "Maximum number of validation pairs, for each target language, that are"
        " translated and scored.",
        low=1,
    )
    valid_beam_size: int = hp(
        1, "Beam size of these translations; 1 is greedy decoding.", low=1
    )
    bleu_tokenizer: str = hp(
        "auto",
        "sacreBLEU's tokenizer; auto: by the target language as sacreBLEU does"
        " (zh, ja-mecab, ko-mecab, else 13a).",
        choices=BLEU_TOKENIZERS,
    )
    patience: int = hp(
        0,
        "Training ends after this many validations without a better score; 0"
        " disables this.",
        low=0,
    )
    checkpoint_steps: int = hp(
        1500,
        "Updates between two checkpoints (the paper: 10 minutes).",
        low=1,
        group="Checkpoints and reports.",
    )
    keep_checkpoints: int = hp(
        5, "Number of newest checkpoints to keep.", low=1
    )
    average_last: int = hp(
        5, "Checkpoints to average when training ends (sec. 6.1).", low=1
    )
    log_steps: int = hp(100, "Updates between two reports.", low=1)
    seed: int = hp(
        1,
        "Seed of initial weights, dropout and batch order.",
        low=0,
        high=2**32 - 1,
    )
    strategy: str = hp(
        "auto",
        "Devices to use; auto: multi_worker if TF_CONFIG names several workers,"
        " else mirrored if there is more than one GPU, else one_device. tpu"
        " needs JAX.",
        choices=STRATEGIES,
        group="Time and memory.",
    )
    shard_parameters: bool = hp(
        False,
        "With JAX: every device stores a part of the weights and of the"
        " optimizer's values instead of all of them, to save memory.",
    )
    remat: str = hp(
        "none",
        "layers: the backward pass computes each layer again instead of storing"
        " its activations, to save memory; the losses are the same.",
        choices=REMATS,
    )
    accumulate_steps: int = hp(
        1,
        "Micro-batches into which a device divides its rows of a batch, to save"
        " memory; the update is the same.",
        low=1,
    )
    clip_norm: float = hp(
        0.0, "Maximum norm of the gradient; 0: no limit.", low=0.0
    )
    steps_per_call: int = hp(
        1,
        "Updates in one call from the host. Above 1, the batch order contains"
        " runs of this many batches of one shape.",
        low=1,
    )
    cpu_threads: int | None = hp(
        None,
        "On CPUs: threads that compute a step together, each for a part of the"
        " rows of a batch, or with jit_compile for a part of each operation."
        " Default: one for each core. 1: TensorFlow divides each operation"
        " among the cores.",
        low=1,
    )
    jit_compile: bool | None = hp(
        None,
        "Compile forward and backward pass with XLA. Default: on accelerators,"
        " not on CPUs.",
    )
    precision: str | None = hp(
        None,
        "Precision of computation; weights stay float32. Default:"
        " mixed_bfloat16 on TPUs and on GPUs that compute it faster, else"
        " float32.",
        choices=TRAINING_PRECISIONS,
        changeable=False,
        common=True,
    )

    @property
    def updates_to_peak(self) -> int:
        """`warmup_steps`, or its default for the schedule."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return PAPER_WARMUP_STEPS if self.schedule == "noam" else 0

    @property
    def init_from_path(self) -> str:
        """`init_from` as an absolute path; empty without `init_from`."""
        return os.path.realpath(self.init_from) if self.init_from else ""

    def __post_init__(self):
        super().__post_init__()
        self._check_schedule()
        expect(
            self.lora_targets and {*self.lora_targets} <= {*LORA_TARGETS},
            f"lora_targets among {', '.join(LORA_TARGETS)}",
            lora_targets=",".join(self.lora_targets),
        )
        expect(
            self.average_last <= self.keep_checkpoints,
            "average_last of at most keep_checkpoints",
            f"{self.average_last=}, {self.keep_checkpoints=}",
        )

    def _check_schedule(self):
        is_noam = self.schedule == "noam"
        where = f"schedule={self.schedule}"
        expect(
            not is_noam or self.updates_to_peak,
            "warmup_steps of at least 1",
            f"{self.warmup_steps=}",
            where=where,
        )
        expect(
            is_noam or self.learning_rate is not None,
            "learning_rate, its peak",
            "no learning_rate",
            where=where,
        )
        expect(
            self.schedule not in DECAYING_SCHEDULES
            or self.updates_to_peak < self.train_steps,
            "warmup_steps below train_steps",
            f"{self.warmup_steps=}, {self.train_steps=}",
            where=where,
        )


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The sections of `config.json`.

    Tasks other than translation have another class for `data`.
    """

    model: TransformerConfig
    data: RunData
    training: TrainingConfig
    decoding: DecodingConfig

    def __post_init__(self):
        check_position_limit(self.model, max_length=self.data.max_length)
        check_alignment(self.model, self.decoding)
        check_options(*self.sections().values())
        self._check_guided_alignment()
        model = self.model
        expect(
            self.data.share_vocabulary == (model.source_vocab_size is None),
            "source_vocab_size with share_vocabulary=False, and only with it",
            f"source_vocab_size={model.source_vocab_size},"
            f" share_vocabulary={self.data.share_vocabulary}",
        )
        expect(
            not self.training.r_drop
            or model.dropout
            or model.attention_dropout
            or model.activation_dropout,
            "dropout with r_drop: without it, both outputs are the same",
            f"r_drop={self.training.r_drop:g}, no dropout",
        )

    def check_vocabulary(self) -> None:
        """Raises ValueError if a built-in corpus is too small for a vocabulary.

        Checks only vocabularies that are to be trained.
        """
        corpus = find_dataset(self.data.dataset).built_in(self.data)
        if corpus is None or self.training.init_from:
            return
        limit = corpus.max_vocab_size + len(self.data.vocabulary_symbols)
        for field, path in self.data.given_tokenizers.items():
            size = getattr(self.model, field)
            expect(
                path or size <= limit,
                f"{field} of at most {limit} with the built-in corpus, which"
                f" is small; --recipe={corpus.recipe} is made for it",
                f"{field}={size}",
            )

    def check_files(self) -> None:
        """Raises OSError or ValueError if a data file cannot be read."""
        dataset = find_dataset(self.data.dataset)
        for split in SPLITS:
            for path in dataset.find_files(self.data, split):
                dataset.check_file(self.data, path, split)
        for name in self.training.guided_alignment:
            next(read_lines(pathlib.Path(name)), None)

    def _check_guided_alignment(self):
        paths, data = self.training.guided_alignment, self.data
        if not paths:
            return
        expect(
            len(paths) == len(data.train_files),
            "a file of guided_alignment for each of train_files",
            guided_alignment=",".join(paths),
            train_files=",".join(data.train_files),
        )
        expect(
            not data.tags,
            "one target language with guided_alignment",
            f"target_language={data.target_language!r}",
        )
        expect(
            self.decoding.alignment_head,
            "a head that guided_alignment trains",
            "alignment_head=0",
        )

    def sections(self):
        """Returns the sections by name: model, data, training, decoding."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
