"""Validation during a run, and the result that is shown at its end."""

import dataclasses

from keras_transformer.translator import Translator
from trainers import phrasebook

SAMPLES = 3  # translations shown when training ends


@dataclasses.dataclass(frozen=True)
class Validation:
    """The results of a validation.

    Attributes:
        loss, nll: Smoothed and plain cross entropy, means over tokens.
        score: Score of the metric.
    """

    loss: float
    nll: float
    score: float


class Validator:
    """Measures the model at hand on the validation pairs.

    Args:
        model: The model; its weights at the time of `run` are measured.
        experiment: The `Experiment`, whose validation pairs and metric are
            used.
        loss_sums: `Engine.make_loss_sums` of the model.
    """

    def __init__(self, model, experiment, loss_sums):
        self.model = model
        self.metric = experiment.metric
        self.batches = experiment.valid_batches
        self.pairs = experiment.valid_pairs
        self.pairs = self.pairs[: experiment.training.valid_sentences]
        self.loss_sums = loss_sums
        self.translator = experiment.make_translator(
            model,
            beam_size=experiment.training.valid_beam_size,
            sampling=False,
        )

    def run(self):
        """The `Validation` of the model's weights as they are now."""
        batches = self.batches.arrays(epochs=1)
        sums = sum(self.loss_sums(*batch) for batch in batches)
        loss, nll, tokens = sums.tolist()
        sources, references = zip(*self.pairs, strict=True)
        outputs = self.translator.translate(list(sources))
        return Validation(
            loss / tokens,
            nll / tokens,
            self.metric.score(outputs, list(references)),
        )


def show_result(experiment, workdir, log):
    """Translates the test pairs, or the validation pairs; shows the score.

    Args:
        experiment: The `Experiment`.
        workdir: Its `WorkDirectory`, with averaged weights.
        log: Function that shows a line.
    """
    name, pairs = "test", experiment.test_pairs
    if not pairs:
        limit = experiment.training.valid_sentences
        name, pairs = "validation", experiment.valid_pairs[:limit]
    if not pairs:
        return
    translator = Translator.load(workdir.path, checkpoint="averaged")
    sources, references = zip(*pairs, strict=True)
    outputs = translator.translate(list(sources))
    samples = zip(sources, references, outputs, strict=True)
    for source, reference, output in list(samples)[:SAMPLES]:
        log(f"  source:    {source}")
        log(f"  reference: {reference}")
        log(f"  ours:      {output}")
    if experiment.data.dataset == "phrasebook":
        for line in phrasebook.LIMITS:
            log(line)
    metric = experiment.metric
    log(
        f"{name} {metric.label} {metric.score(outputs, list(references)):.2f}"
        f" on {len(pairs)} sentences, averaged checkpoints, beam"
        f" {translator.decoding.beam_size}"
    )
