"""Validation during a run, and the final result at its end."""

import dataclasses
import itertools

import numpy as np

from keras_transformer.config import NO_SAMPLING
from keras_transformer.data.batches import Batches
from keras_transformer.model import Transformer
from keras_transformer.translation.metrics import Scores
from keras_transformer.translator import Translator
from trainers.datasets.dataset import (
    PairsToTranslate,
    find_dataset,
    sources_of,
    to_translate,
)
from trainers.run.engine import LossSums
from trainers.run.experiment import Experiment
from trainers.run.progress import Log

MOST_CALIBRATED = 3000  # validation pairs for the confidence
SAMPLES = 3  # translations shown when training ends


@dataclasses.dataclass(frozen=True)
class Validation:
    """The results of a validation."""

    # Smoothed and plain cross-entropy, in nats per token.
    loss: float
    nll: float
    scores: Scores  # the metric's score for each direction


class Validator:
    """A model with the validation pairs that measure it.

    `run` uses the weights that the model has at that time. `loss_sums` is
    `Engine.make_loss_sums` of the model.
    """

    def __init__(
        self,
        model: Transformer,
        experiment: Experiment,
        batches: Batches,
        loss_sums: LossSums,
    ):
        self.model = model
        self.metric = experiment.metric
        self.batches = batches
        self.pairs = pairs_to_translate(experiment)
        self.loss_sums = loss_sums
        self.translator = experiment.make_translator(
            model, beam_size=experiment.training.valid_beam_size, **NO_SAMPLING
        )

    def run(self) -> Validation:
        """Computes the loss and the scores of the model's current weights."""
        batches = self.batches.arrays(epochs=1)
        sums = [self.loss_sums(*batch) for batch in batches]
        loss, nll, tokens = sum(sums, np.zeros(3)).tolist()
        outputs = self.translator.translate(sources_of(self.pairs))
        return Validation(
            loss / tokens, nll / tokens, self.metric.score(outputs, self.pairs)
        )


def pairs_to_translate(experiment: Experiment) -> PairsToTranslate:
    """Returns each direction's first `valid_sentences` validation pairs."""
    limit = experiment.training.valid_sentences
    found = to_translate(
        experiment.data, experiment.metric.by_direction, experiment.valid_pairs
    )
    return {name: pairs[:limit] for name, pairs in found.items()}


def show_result(experiment: Experiment, log: Log) -> None:
    """Translates the test pairs with the averaged weights, and logs the score.

    Without test pairs, translates the validation pairs. Also calibrates the
    confidence. The last line is the score.
    """
    data, metric = experiment.data, experiment.metric
    name, tested = "test", experiment.test_pairs
    groups = to_translate(data, metric.by_direction, tested)
    if not tested:
        name, groups = "validation", pairs_to_translate(experiment)
    pairs = list(itertools.chain.from_iterable(groups.values()))
    if not pairs:
        return
    translator = Translator.load(experiment.workdir.path, checkpoint="averaged")
    outputs = translator.translate(sources_of(groups))
    samples = zip(pairs[:SAMPLES], outputs, strict=False)
    for (source, reference), output in samples:
        log(f"  source:    {getattr(source, 'text', source)}")
        log(f"  reference: {reference}")
        log(f"  ours:      {output}")
    for line in find_dataset(data.dataset).limits():
        log(line)
    calibrate(experiment, translator, log)
    log(
        f"{name} {metric.label} {metric.score(outputs, groups)}"
        f" on {len(pairs)} sentences, averaged checkpoints, beam"
        f" {translator.decoding.beam_size}"
    )


def calibrate(experiment: Experiment, translator: Translator, log: Log) -> None:
    """Fits the confidence of the averaged weights to validation pairs.

    Writes it into the work directory, and logs what it is worth, or why it
    cannot be fitted.
    """
    pairs = [
        pair
        for group in to_translate(
            experiment.data,
            experiment.metric.by_direction,
            experiment.valid_pairs,
        ).values()
        for pair in group
    ]
    if not pairs or not translator.languages.source_language:
        return
    step = -(-len(pairs) // MOST_CALIBRATED)
    try:
        measured = translator.calibrate(pairs[::step]).measured
    except ValueError as error:
        log(f"confidence: not calibrated: {error}")
        return
    log(
        f"confidence: calibrated on {measured['pairs']:,} validation pairs;"
        f" calibration error {measured['calibration_error']:.3f},"
        f" correlation with chrF {measured['correlation']:.2f}"
    )
