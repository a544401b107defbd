"""What a training run is made of: its data, its recipe, its parts."""

import dataclasses
import pathlib
import random
import tempfile

import keras

from keras_transformer import phrasebook
from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
    check_fields,
    hp,
)
from keras_transformer.data import (
    NUM_BUCKETS,
    MissingSplitError,
    encode_corpus,
    make_batches,
    read_parallel_files,
    read_tfds,
)
from keras_transformer.model import Transformer
from keras_transformer.schedule import PAPER_SCALE, NoamSchedule, paper_adam
from keras_transformer.shards import TOKENIZER, read_index, read_prepared
from keras_transformer.tokenization import Tokenizer
from keras_transformer.translator import Translator
from trainers.strategies import STRATEGIES

PHRASEBOOK_HELD_OUT = 1000  # pairs of its validation, and of its test
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class DataConfig:
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
    max_length: int = hp(
        256, "Training pairs with more tokens on a side are dropped.", low=2
    )
    num_buckets: int = hp(
        NUM_BUCKETS, "Different shapes of a batch, at most.", low=1
    )

    def __post_init__(self):
        check_fields(self)
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
class TrainingConfig:
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
        check_fields(self)
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


# What a work directory is for; everything else may change between sessions.
FIXED_FIELDS = {
    "model": (
        "vocab_size",
        "d_model",
        "d_ff",
        "num_heads",
        "num_layers",
        "decoder_depth",
        "key_size",
        "value_size",
        "pre_norm",
    ),
    "data": ("dataset", "source_language", "target_language"),
    "training": ("precision",),
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


class Experiment:
    """A configuration with its vocabulary and its sentence pairs.

    Args:
        configuration: The `Configuration`.
        tokenizer: The `Tokenizer`.
        train_corpus: `Corpus` of the training pairs.
        valid_pairs: Validation pairs, a list of (source, target); may be empty.
        test_pairs: The same for the test.
        strategy: The `tf.distribute.Strategy` to train under.
    """

    def __init__(
        self,
        configuration,
        tokenizer,
        train_corpus,
        valid_pairs,
        test_pairs,
        strategy,
    ):
        self.configuration = configuration
        self.data = configuration.data
        self.training = configuration.training
        self.tokenizer = tokenizer
        self.valid_pairs = valid_pairs
        self.test_pairs = test_pairs
        self.strategy = strategy
        self.train_batches = make_batches(
            train_corpus,
            self.data.batch_tokens,
            num_buckets=self.data.num_buckets,
            rows_multiple=self.parts_of_a_batch,
            run_length=self.training.steps_per_call,
            seed=self.training.seed,
        )
        self.valid_batches = None
        if valid_pairs:
            corpus = encode_corpus(valid_pairs, tokenizer, self.data.max_length)
            # One device computes them whole: no more at once than in training.
            share = self.data.batch_tokens // self.parts_of_a_batch
            self.valid_batches = make_batches(
                corpus,
                max(share, int(corpus.longer_side.max())),
                num_buckets=self.data.num_buckets,
            )

    @property
    def parts_of_a_batch(self):
        """Parts that a training batch is computed in, over all replicas."""
        return (
            self.strategy.num_replicas_in_sync * self.training.accumulate_steps
        )

    def make_model(self):
        """A new model, its weights drawn with the seed."""
        # Keras draws the seeds of its initializers and of dropout from here;
        # its own set_random_seed clears kernels that hold tokenizers, too.
        random.seed(self.training.seed)
        return Transformer(
            self.configuration.model, dtype=self.training.precision
        )

    def make_schedule(self):
        """The learning rate."""
        return NoamSchedule(
            self.configuration.model.d_model,
            self.training.warmup_steps,
            self.training.learning_rate_scale,
        )

    def make_optimizer(self):
        """A new optimizer; with a loss scale if half precision needs one."""
        optimizer = paper_adam(
            self.configuration.model.d_model,
            self.training.warmup_steps,
            self.training.learning_rate_scale,
        )
        if self.training.precision == "mixed_float16":
            return keras.optimizers.LossScaleOptimizer(optimizer)
        return optimizer

    def make_translator(self, model, **decoding):
        """A `Translator` with the model; `decoding` replaces fields."""
        return Translator(
            self.tokenizer,
            model,
            dataclasses.replace(self.configuration.decoding, **decoding),
            max_source_length=self.data.max_length,
        )


# Opening a work directory: whatever is wrong is found here, before work begins


def open_experiment(workdir, configuration, strategy, keep, tell=print):
    """Reads the data and readies a work directory, new or begun.

    Args:
        workdir: The `WorkDirectory`.
        configuration: The `Configuration`.
        strategy: The `tf.distribute.Strategy`.
        keep: Whether to write configuration and vocabulary.
        tell: Function that shows a line.

    Returns:
        The `Experiment`.

    Raises:
        ValueError: The data or the configuration is of no use, or the work
            directory was made with another configuration.
        FileNotFoundError: A file of sentence pairs is missing.
    """
    if workdir.config_path.exists():
        # Before there are weights all may change but what the vocabulary is of.
        begun = bool(workdir.latest.prefixes())
        check_same(workdir, configuration, FIXED_FIELDS if begun else ("data",))
    if keep:
        check_writable(workdir)
        workdir.lock()
    data = configuration.data
    train, valid, test = read_splits(data, "train", "valid", "test")
    valid, test = list(valid), list(test)
    tokenizer = open_tokenizer(workdir, configuration, train, tell)
    corpus = open_corpus(data, train, tokenizer)
    if configuration.training.patience and not valid:
        raise ValueError(
            "patience needs validation pairs. Received:"
            f" patience={configuration.training.patience}, no pairs"
        )
    experiment = Experiment(
        configuration, tokenizer, corpus, valid, test, strategy
    )
    tell(f"training: {corpus.counts}; {experiment.train_batches}")
    tell(f"validation: {len(valid):,} pairs; test: {len(test):,} pairs")
    if keep:
        workdir.path.mkdir(parents=True, exist_ok=True)
        workdir.lock()
        tokenizer.save(workdir.tokenizer_path)
        workdir.write_config(**configuration.sections())
    return experiment


def check_writable(workdir):
    """Makes a file for a moment where the work directory is or will be.

    Raises:
        OSError: It cannot be made.
    """
    path = workdir.path.absolute()
    there = next(p for p in (path, *path.parents) if p.exists())
    with tempfile.TemporaryFile(dir=there):
        pass


def check_same(workdir, configuration, names):
    """Holds sections of the configuration against the work directory's.

    Raises:
        ValueError: A field of `FIXED_FIELDS` differs.
    """
    differences = []
    for name in names:
        fields = FIXED_FIELDS[name]
        section = getattr(configuration, name)
        before = workdir.read_section(name, type(section))
        for field in fields:
            old, new = getattr(before, field), getattr(section, field)
            if old != new:
                differences.append(f"{field} was {old!r} and is {new!r}")
    if differences:
        raise ValueError(
            f"{workdir.path} was made with another configuration:"
            f" {'; '.join(differences)}"
        )


def read_splits(data, *names):
    """The pairs of a `DataConfig`.

    Args:
        data: The `DataConfig`.
        *names: Of the splits: "train", "valid" or "test".

    Returns:
        An iterable of (source, target) for each; for one name just that. Empty
        if there are no files.
    """
    if data.dataset == "phrasebook":
        read = read_phrasebook
    elif data.dataset in ("files", "prepared"):
        read = read_files
    else:
        read = read_dataset
    splits = tuple(read(data, name) for name in names)
    return splits if len(names) > 1 else splits[0]


def read_files(data, name):
    """A split of parallel files; prepared training pairs are no text."""
    prefixes = getattr(data, f"{name}_files")
    if not prefixes or (data.dataset == "prepared" and name == "train"):
        return []
    return read_parallel_files(
        list(prefixes), data.source_language, data.target_language
    )


def read_dataset(data, name):
    """A split of TensorFlow Datasets; those but for training may be missing."""
    try:
        return read_tfds(
            data.dataset.removeprefix("tfds:"),
            {"valid": "validation"}.get(name, name),
            data.source_language,
            data.target_language,
            data_dir=data.data_dir or None,
        )
    except MissingSplitError:
        if name == "train":
            raise
        return []


def read_phrasebook(data, name):
    """A split of the built-in English-German grammar."""
    languages = data.source_language, data.target_language
    if set(languages) != {"en", "de"}:
        raise ValueError(
            "dataset=phrasebook is English and German. Received:"
            f" source_language={languages[0]!r},"
            f" target_language={languages[1]!r}"
        )
    order = 1 if languages[0] == "en" else -1
    num_pairs = PHRASEBOOK_HELD_OUT
    if name == "train":
        num_pairs = data.phrasebook_pairs
    return [pair[::order] for pair in phrasebook.make_split(name, num_pairs)]


def open_tokenizer(workdir, configuration, pairs, tell):
    """The work directory's vocabulary; else the one given; else a new one.

    Raises:
        ValueError: Its size is not the model's, or the one given is not the
            work directory's.
    """
    given = configuration.data.given_tokenizer
    vocab_size = configuration.model.vocab_size
    tokenizer = Tokenizer.load(given) if given else None
    path = workdir.tokenizer_path
    if path.exists():
        used = Tokenizer.load(path)
        if tokenizer and tokenizer.model_bytes != used.model_bytes:
            raise ValueError(f"{path} is another vocabulary than {given}")
        tokenizer, given = used, path
    elif workdir.config_path.exists():
        raise ValueError(f"the vocabulary is gone: no {path}")
    elif tokenizer is None:
        tell(f"training a vocabulary of {vocab_size:,} pieces")
        lines = (line for pair in pairs for line in pair if line)
        return Tokenizer.train(lines, vocab_size)
    if tokenizer.vocab_size != vocab_size:
        raise ValueError(
            f"vocab_size must be {tokenizer.vocab_size}, the pieces of"
            f" {given}. Received: vocab_size={vocab_size}"
        )
    return tokenizer


def open_corpus(data, pairs, tokenizer):
    """The training pairs as ids: encoded now, or prepared before.

    Raises:
        ValueError: What was prepared has other languages, or longer pairs than
            this configuration takes, or is damaged.
    """
    if data.dataset != "prepared":
        return encode_corpus(pairs, tokenizer, data.max_length)
    (directory,) = data.train_files
    index = read_index(directory)
    for name in ("source_language", "target_language"):
        if getattr(data, name) != index[name]:
            raise ValueError(
                f"{name} must be {index[name]!r}, that of {directory}."
                f" Received: {name}={getattr(data, name)!r}"
            )
    if data.max_length < index["max_length"]:
        raise ValueError(
            f"max_length must be at least {index['max_length']}, that of"
            f" {directory}. Received: max_length={data.max_length}"
        )
    return read_prepared(directory)
