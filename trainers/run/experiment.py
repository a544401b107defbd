"""The parts of a training run: its data, its recipe and its model."""

import contextlib
import dataclasses
import functools
import platform
import typing

import keras

from keras_transformer import __version__
from keras_transformer.base.machine import count_cores
from keras_transformer.base.refusals import expect
from keras_transformer.commands.startup import load_tensorflow
from keras_transformer.config import find_alignment_layer
from keras_transformer.data.batches import Batches, make_batches
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.model import Transformer
from keras_transformer.storage.adapters import Base, add_adapters
from keras_transformer.storage.checkpoints import check_weights, named_weights
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.writing import counted
from keras_transformer.training.update import GuidedHead, StepOptions
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.metrics import DirectionalMetric
from keras_transformer.translator import Translator
from trainers.datasets.dataset import SPLITS, read_split
from trainers.run.corpora import (
    encode_valid_corpus,
    open_links,
    open_mixture,
    open_train_corpus,
)
from trainers.run.data_config import RunData
from trainers.run.engine import Devices
from trainers.run.freezing import freeze
from trainers.run.inheritance import check_same, find_base
from trainers.run.optimization import make_optimizer, make_schedule
from trainers.run.progress import Log
from trainers.run.training_config import Configuration, TrainingConfig
from trainers.run.vocabularies import open_tokenizer, with_sizes


@dataclasses.dataclass
class Experiment:
    """A configuration with its vocabulary, its pairs and its batches."""

    workdir: WorkDirectory
    configuration: Configuration
    devices: Devices
    metric: DirectionalMetric  # of validation and test
    # One for each language without `share_vocabulary`.
    tokenizer: Tokenizer | TokenizerPair
    train_batches: Batches
    valid_batches: Batches | None  # none without validation pairs
    # Both are in memory, and may be empty.
    valid_pairs: Pairs
    test_pairs: Pairs
    # The weights that adapters are added to; None without adapters.
    base: Base | None = None

    @property
    def data(self) -> RunData:
        return self.configuration.data

    @property
    def training(self) -> TrainingConfig:
        return self.configuration.training

    def with_training(self, training: TrainingConfig) -> "Experiment":
        """Returns the experiment with other options of its training."""
        configuration = dataclasses.replace(
            self.configuration, training=training
        )
        return dataclasses.replace(self, configuration=configuration)

    @property
    def rows_multiple(self) -> int:
        """Number of micro-batches in a batch, over all replicas."""
        return count_micro_batches(self.training, self.devices)

    def facts(self) -> dict[str, str]:
        """Returns texts for TensorBoard that describe the run, by name."""
        valid = "no pairs"
        if self.valid_batches:
            valid = str(self.valid_batches.corpus.counts)
        return {
            "host": f"{platform.node()}, {platform.machine()},"
            f" {counted(count_cores(), 'CPU core')},"
            f" {counted(self.devices.num_gpus, 'GPU')}",
            "versions": f"keras_transformer {__version__},"
            f" {self.devices.framework}, Keras {keras.__version__},"
            f" Python {platform.python_version()}",
            "training data": str(self.train_batches.corpus.counts),
            "validation data": valid,
            "test data": f"{len(self.test_pairs):,} pairs",
        }

    def make_model(self) -> Transformer:
        """Makes a model whose weights, or adapters, are drawn with the seed."""
        with contextlib.suppress(ImportError):  # Keras imports it on JAX, too
            load_tensorflow()
        keras.utils.set_random_seed(self.training.seed)
        model = Transformer(
            self.configuration.model, dtype=self.training.precision
        )
        freeze(model, self.training.freeze)
        if self.base is not None:
            add_adapters(
                model,
                self.base,
                self.training.lora_targets,
                self.training.lora_rank,
            )
        return model

    @functools.cached_property
    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """The learning-rate schedule, made when the engine first uses it."""
        return make_schedule(self.configuration.model, self.training)

    def make_optimizer(self, model: Transformer) -> keras.optimizers.Optimizer:
        """Makes the optimizer of a built model."""
        return make_optimizer(self.schedule, self.training, model)

    def step_options(self, model: Transformer) -> StepOptions:
        """Returns the options for a model's updates."""
        training = self.training
        return StepOptions(
            training.label_smoothing,
            training.accumulate_steps,
            training.clip_norm,
            training.r_drop,
            training.ema_decay,
            self._guided_head(model),
        )

    def _guided_head(self, model: Transformer) -> GuidedHead | None:
        if not self.training.guided_alignment:
            return None
        decoding = self.configuration.decoding
        layer = find_alignment_layer(model.config, decoding)
        return GuidedHead(
            model.decoder.blocks[layer - 1].cross_attention,
            decoding.alignment_head,
            self.training.guided_alignment_weight,
        )

    def make_translator(
        self, model: Transformer, **decoding: typing.Any
    ) -> Translator:
        """Makes a `Translator` with a model.

        `decoding` replaces fields of the configuration's `DecodingConfig`.
        """
        return Translator(
            self.tokenizer,
            model,
            dataclasses.replace(self.configuration.decoding, **decoding),
            max_source_length=self.data.max_length,
            num_threads=self.devices.num_searches,
        )


def count_micro_batches(training: TrainingConfig, devices: Devices) -> int:
    """Counts the micro-batches in a batch, over all replicas."""
    return devices.num_replicas * training.accumulate_steps


# Opening a work directory finds all errors in the user's input before training
# begins.


class Opening(typing.NamedTuple):
    """The arguments of `open_experiment`."""

    workdir: WorkDirectory
    configuration: Configuration
    devices: Devices
    metric: DirectionalMetric  # of validation and test
    log: Log


def open_experiment(opening: Opening, keep: bool) -> Experiment:
    """Reads the data for a work directory, which may be new.

    With `keep`, locks the work directory and writes the configuration and the
    vocabulary to it. Raises ValueError or OSError for bad input.
    """
    workdir = opening.workdir
    # The lock comes first: reading takes long, and no other process may write
    # the vocabulary or the weights meanwhile.
    with workdir.claimed() if keep else contextlib.nullcontext():
        check_same(workdir, opening.configuration)
        experiment = read_experiment(opening)
        check_start(experiment)
        configuration = experiment.configuration
        if configuration.training.freeze:
            experiment.make_model()  # raises for names that match no weight
        if keep:
            workdir.save_tokenizer(experiment.tokenizer)
            base = {"base": experiment.base} if experiment.base else {}
            workdir.write_config(**configuration.sections(), **base)
    return experiment


def check_start(experiment: Experiment) -> None:
    """Checks that a new run's `init_from` has a checkpoint for its model."""
    training = experiment.training
    if experiment.base is not None:  # `find_base` has found its checkpoint
        return
    if training.init_from and not experiment.workdir.latest.prefixes():
        parent = WorkDirectory(training.init_from)
        prefix = parent.choose_checkpoint(training.init_checkpoint)
        weights = named_weights(experiment.make_model())
        check_weights(weights, prefix, parent.config_path)


def read_experiment(opening: Opening) -> Experiment:
    """Reads the `Experiment` of a configuration, without writing anything."""
    workdir, configuration, devices, metric, log = opening
    data, training = configuration.data, configuration.training
    train, *others = (read_split(data, name) for name in SPLITS)
    valid, test = (pairs.in_memory() for pairs in others)
    if data.valid_share:
        what = f"{len(valid):,} of {len(train) + len(valid):,} pairs"
        none = f"fewer than 100 of {len(train):,} pairs, so no validation"
        log(f"valid_share={data.valid_share:g}: {what if valid else none}")
    expect(
        valid or not training.patience,
        "validation pairs with patience",
        f"patience={training.patience}, no pairs",
    )
    read = {target for _, target in data.pairs_in(*data.train_files)}
    missing = data.tags.keys() - read
    expect(
        training.init_from or not missing,
        "training pairs of each target language of a new model",
        f"none of {', '.join(sorted(missing))}",
    )
    seen: set[tuple[str, str]] = set()
    train = train.noting({*valid, *test}, seen)
    tokenizer = open_tokenizer(workdir, configuration, train, log)
    configuration = with_sizes(configuration, tokenizer)
    corpus = open_train_corpus(data, train, tokenizer, training.seed)
    links = open_links(configuration, corpus, tokenizer)
    mixture = open_mixture(data, train, corpus, training.seed)
    rows_multiple = count_micro_batches(training, devices)
    train_batches = make_batches(
        corpus,
        data.batch_tokens,
        num_buckets=data.num_buckets,
        rows_multiple=rows_multiple,
        steps_per_call=training.steps_per_call,
        seed=training.seed,
        links=links,
        mixture=mixture,
    )
    valid_batches = None
    if valid:
        # One device computes the validation loss, with at most as many tokens
        # in a batch as a micro-batch of training has.
        valid_batches = make_valid_batches(
            valid, tokenizer, data, data.batch_tokens // rows_multiple
        )
    log(f"training: {corpus.counts}; {train_batches}")
    if data.subword_sampling:
        log(f"subword sampling: {corpus}")
    if data.modifiers:
        log(f"modifiers: {corpus}")
    if mixture:
        log(f"mixture: {mixture}")
    if links:
        log(f"guided alignment: {links}")
    counts = valid_batches.corpus.counts if valid_batches else "no pairs"
    log(f"validation: {counts}; test: {len(test):,} pairs")
    for name, pairs in (("validation", valid), ("test", test)):
        if number := sum(pair in seen for pair in pairs):
            log(
                f"note: {number:,} of {len(pairs):,} {name} pairs are training"
                " pairs, too: their scores say little about new text"
            )
    model, decoding = configuration.model, configuration.decoding
    for warning in Limits([model], decoding, data.max_length).warnings:
        log(warning)
    return Experiment(
        workdir=workdir,
        configuration=configuration,
        devices=devices,
        metric=metric,
        tokenizer=tokenizer,
        train_batches=train_batches,
        valid_batches=valid_batches,
        valid_pairs=valid,
        test_pairs=test,
        base=find_base(workdir, training),
    )


def make_valid_batches(
    pairs: Pairs,
    tokenizer: Tokenizer | TokenizerPair,
    data: RunData,
    batch_tokens: int,
) -> Batches:
    """Makes batches of validation pairs.

    `batch_tokens` is raised if the longest pair does not fit into a batch.
    """
    corpus = encode_valid_corpus(data, pairs, tokenizer)
    return make_batches(
        corpus,
        max(batch_tokens, int(corpus.longer_side.max())),
        num_buckets=data.num_buckets,
    )
