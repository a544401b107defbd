"""Metrics, in one place: validation, `trainers.evaluate`, end of training."""

import dataclasses

import sacrebleu
import tensorflow as tf
from sacrebleu.metrics import BLEU, CHRF

from keras_transformer.loss import smoothed_cross_entropy, token_weights
from keras_transformer.translator import Translator
from trainers.checkpoints import average

SAMPLES = 3  # translations shown when training ends


def corpus_bleu(translations, references):
    """sacreBLEU's score object: 13a tokenization, case kept."""
    return sacrebleu.corpus_bleu(translations, [references])


def measure(translations, references):
    """BLEU (13a, cased and lower-cased) and chrF, with their signatures."""
    bleu, lowercase, chrf = BLEU(), BLEU(lowercase=True), CHRF()
    references = [references]
    return {
        "bleu": bleu.corpus_score(translations, references).score,
        "bleu_lowercase": lowercase.corpus_score(
            translations, references
        ).score,
        "chrf": chrf.corpus_score(translations, references).score,
        "signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(translations),
    }


@dataclasses.dataclass(frozen=True)
class Validation:
    """What a validation found; `nll` and `loss` are means over tokens."""

    loss: float
    nll: float
    bleu: float


class Validator:
    """Measures the model at hand on the validation pairs.

    Args:
        model: The model; its weights of the moment are measured.
        experiment: The `Experiment`, whose validation pairs are used.
    """

    def __init__(self, model, experiment):
        self.model = model
        self.batches = experiment.valid_batches.dataset(epochs=1)
        self.pairs = experiment.valid_pairs
        self.pairs = self.pairs[: experiment.training.valid_sentences]
        self.label_smoothing = experiment.training.label_smoothing
        self.translator = experiment.make_translator(
            model,
            beam_size=experiment.training.valid_beam_size,
            sampling=False,
        )

    def run(self):
        """A `Validation` of the model's weights of now."""
        loss, nll, tokens = 0.0, 0.0, 0.0
        for inputs, labels in self.batches:
            sums = self._losses(inputs, labels)
            loss, nll, tokens = (
                total + float(part)
                for total, part in zip((loss, nll, tokens), sums, strict=True)
            )
        ours = self.translator.translate([source for source, _ in self.pairs])
        bleu = corpus_bleu(ours, [reference for _, reference in self.pairs])
        return Validation(loss / tokens, nll / tokens, bleu.score)

    @tf.function(reduce_retracing=True, autograph=False)
    def _losses(self, inputs, labels):
        """Sums of a batch: smoothed loss, loss, tokens."""
        logits = self.model(inputs, training=False)
        losses, nll = smoothed_cross_entropy(
            labels, logits, self.label_smoothing
        )
        weights = token_weights(labels)
        return (
            tf.reduce_sum(losses * weights),
            tf.reduce_sum(nll * weights),
            tf.reduce_sum(weights),
        )


def finish(experiment, workdir, tell=print):
    """Averages the last checkpoints and shows what came of the training.

    Args:
        experiment: The `Experiment`.
        workdir: Its `WorkDirectory`, with checkpoints.
        tell: Function that shows a line.
    """
    averaged, _ = average(workdir, experiment.training.average_last)
    translator = Translator.load(workdir.path, checkpoint="averaged")
    tell(f"averaged {len(averaged)} checkpoints")
    pairs = experiment.test_pairs or experiment.valid_pairs
    if not pairs:
        return
    name = "test" if experiment.test_pairs else "validation"
    if not experiment.test_pairs:
        pairs = pairs[: experiment.training.valid_sentences]
    ours = translator.translate([source for source, _ in pairs])
    bleu = corpus_bleu(ours, [reference for _, reference in pairs])
    shown = list(zip(pairs, ours, strict=True))[:SAMPLES]
    for (source, reference), translation in shown:
        tell(f"  source:    {source}")
        tell(f"  reference: {reference}")
        tell(f"  ours:      {translation}")
    tell(
        f"{name} BLEU {bleu.score:.2f} on {len(pairs)} sentences,"
        f" averaged checkpoints, beam {translator.decoding.beam_size}"
    )
