"""The trainers' configuration: data, recipe, sections of `config.json`."""

import dataclasses
import pathlib

from keras_transformer.config import (
    DecodingConfig,
    LengthConfig,
    TransformerConfig,
)
from keras_transformer.data.batches import NUM_BUCKETS
from keras_transformer.data.shards import TOKENIZER
from keras_transformer.fields import Fields, hp
from keras_transformer.schedule import PAPER_SCALE

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


@dataclasses.dataclass(frozen=True)
class DataConfig(LengthConfig):
    """The sentence pairs, and how they become batches (sec. 5.1)."""

    dataset: str = hp(
        "phrasebook",
        "phrasebook (built in), files, prepared (by trainers.prepare), or"
        " tfds:NAME such as tfds:wmt14_translate/de-en.",
    )
    source_language: str = hp("en", "Language to translate from.")
    target_language: str = hp("de", "Language to translate into.")
    train_files: tuple[str, ...] = hp(
        (),
        "With files: PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or many; with"
        " prepared: the directory.",
    )
    valid_files: tuple[str, ...] = hp(
        (), "Prefixes of the validation pairs; none: no validation."
    )
    test_files: tuple[str, ...] = hp(
        (), "Prefixes of the test pairs, translated when training ends."
    )
    data_dir: str = hp("", "Where TFDS keeps prepared data; its default if ''.")
    phrasebook_pairs: int = hp(
        40000, "With phrasebook: training pairs to generate.", low=1
    )
    tokenizer: str = hp(
        "",
        "A SentencePiece model to use; none: train one from the text, or take"
        " that of prepared pairs.",
    )
    batch_tokens: int = hp(
        25000, "Source tokens, and target tokens, at most in a batch.", low=1
    )
    num_buckets: int = hp(
        NUM_BUCKETS, "Different shapes of a batch, at most.", low=1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.dataset not in ("phrasebook", "files", "prepared") and not (
            self.dataset.startswith("tfds:") and len(self.dataset) > 5
        ):
            raise ValueError(
                "dataset must be phrasebook, files, prepared or tfds:NAME."
                f" Received: dataset={self.dataset!r}"
            )
        if self.dataset == "files" and not self.train_files:
            raise ValueError("dataset=files needs train_files=PREFIX[,PREFIX].")
        if self.dataset == "prepared" and (
            len(self.train_files) != 1 or self.tokenizer
        ):
            raise ValueError(
                "dataset=prepared needs train_files=DIR, one directory, and"
                " takes its tokenizer from there. Received:"
                f" train_files={','.join(self.train_files)!r},"
                f" tokenizer={self.tokenizer!r}"
            )
        files = self.train_files + self.valid_files + self.test_files
        if files and self.dataset not in ("files", "prepared"):
            raise ValueError(
                "Files of sentence pairs need dataset=files or prepared."
                f" Received: dataset={self.dataset!r}, {', '.join(files)}"
            )
        if self.source_language == self.target_language:
            raise ValueError(
                "source_language and target_language must differ. Received:"
                f" source_language={self.source_language!r},"
                f" target_language={self.target_language!r}"
            )

    @property
    def given_tokenizer(self):
        """Path of the SentencePiece model to use; empty: train one."""
        if self.dataset == "prepared":
            return str(pathlib.Path(self.train_files[0]) / TOKENIZER)
        return self.tokenizer


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Fields):
    """The training recipe (sec. 5.2 to 5.4, 6.1); defaults as for base."""

    train_steps: int = hp(100000, "Updates.", low=1)
    train_minutes: float = hp(
        0.0,
        "Wall-clock minutes after which training ends, earlier sessions and"
        " validation included, reading the data left out; 0: no limit.",
        low=0.0,
    )
    warmup_steps: int = hp(4000, "Updates until the peak rate (eq. 3).", low=1)
    learning_rate_scale: float = hp(
        PAPER_SCALE, "Factor of the learning rate of eq. 3.", low=1e-9
    )
    label_smoothing: float = hp(
        0.1, "Probability spread over the vocabulary.", low=0.0, high=1.0
    )
    valid_steps: int = hp(2000, "Updates between two validations.", low=1)
    valid_sentences: int = hp(
        1000, "Validation pairs translated for BLEU, at most.", low=1
    )
    valid_beam_size: int = hp(
        1, "Beam of these translations; 1 is greedy search.", low=1
    )
    patience: int = hp(
        0,
        "Validations without a better BLEU that end training; 0: never.",
        low=0,
    )
    checkpoint_steps: int = hp(
        1500, "Updates between two checkpoints (the paper: 10 minutes).", low=1
    )
    keep_checkpoints: int = hp(5, "Newest checkpoints kept.", low=1)
    average_last: int = hp(
        5, "Checkpoints averaged when training ends (sec. 6.1).", low=1
    )
    log_steps: int = hp(100, "Updates between two reports.", low=1)
    seed: int = hp(1, "Of initial weights, dropout and data order.", low=0)
    strategy: str = hp(
        "auto",
        "Devices; auto: multi_worker if TF_CONFIG names several workers, else"
        " mirrored if there is more than one GPU.",
        choices=STRATEGIES,
    )
    tpu: str = hp("", "With strategy=tpu: its name; local on a TPU VM.")
    accumulate_steps: int = hp(
        1,
        "Parts that a device computes its rows of a batch in, to save memory;"
        " the update is the same.",
        low=1,
    )
    clip_norm: float = hp(
        0.0, "Greatest norm of the gradient; 0: no limit.", low=0.0
    )
    steps_per_call: int = hp(
        1,
        "Updates that the devices make before the host looks again; batches of"
        " one shape then come in runs of that length.",
        low=1,
    )
    jit_compile: bool | None = hp(
        None, "Compile the training step with XLA; left out: on GPUs only."
    )
    precision: str = hp(
        "float32", "Of computation; weights stay float32.", choices=PRECISIONS
    )

    def __post_init__(self):
        super().__post_init__()
        if self.average_last > self.keep_checkpoints:
            raise ValueError(
                "average_last must be at most keep_checkpoints. Received:"
                f" average_last={self.average_last},"
                f" keep_checkpoints={self.keep_checkpoints}"
            )
        if (self.strategy == "tpu") != bool(self.tpu):
            raise ValueError(
                "strategy=tpu and tpu=NAME go together. Received:"
                f" strategy={self.strategy!r}, tpu={self.tpu!r}"
            )


# What may change between the sessions of a run. Every other field of the model
# and of the data, and so every new one, must stay as it is: it decides which
# weights there are, or what they were trained on. Decoding may change freely.
CHANGEABLE_FIELDS = {
    "model": ("dropout", "attention_dropout", "activation_dropout"),
    "data": (
        "max_length",
        "train_files",
        "valid_files",
        "test_files",
        "data_dir",
        "phrasebook_pairs",
        "tokenizer",
        "batch_tokens",
        "num_buckets",
    ),
    "training": tuple(
        field.name
        for field in dataclasses.fields(TrainingConfig)
        if field.name != "precision"
    ),
}
# Fields that may be left out, and the properties that resolve them.
RESOLVED_BY = {
    "num_decoder_layers": "decoder_depth",
    "d_key": "key_size",
    "d_value": "value_size",
}


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The sections of `config.json`."""

    model: TransformerConfig
    data: DataConfig
    training: TrainingConfig
    decoding: DecodingConfig

    def sections(self):
        """The sections by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
