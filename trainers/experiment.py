"""What a training run is made of: its data, its recipe, its parts."""

import dataclasses
import random
import tempfile

import keras

from keras_transformer.data.batches import make_batches
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.model import Transformer
from keras_transformer.schedule import NoamSchedule, paper_adam
from keras_transformer.translator import Translator
from trainers.config import FIXED_FIELDS
from trainers.corpora import open_corpus, open_tokenizer, read_splits


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
            rows_multiple=self.rows_multiple,
            steps_per_call=self.training.steps_per_call,
            seed=self.training.seed,
        )
        self.valid_batches = None
        if valid_pairs:
            corpus = encode_corpus(valid_pairs, tokenizer, self.data.max_length)
            # One device computes them whole: no more at once than in training.
            share = self.data.batch_tokens // self.rows_multiple
            self.valid_batches = make_batches(
                corpus,
                max(share, int(corpus.longer_side.max())),
                num_buckets=self.data.num_buckets,
            )

    @property
    def rows_multiple(self):
        """What the rows of a training batch divide by."""
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
