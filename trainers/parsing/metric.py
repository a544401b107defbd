"""The score of a parser: labeled bracketing F1."""

from collections.abc import Sequence

from keras_transformer.translation.metrics import DirectionalMetric
from trainers.datasets.constituency import leaves
from trainers.datasets.linearization import is_tree, read_reference, repair
from trainers.parsing.bracketing import DELETED, count_brackets, sum_counts
from trainers.run.training_config import Configuration


class ParsingMetric:
    """A `Metric`: F1 of labeled brackets, counted as in EVALB.

    Outputs and references are linear trees. An output that is not a tree over
    the reference's words is repaired first.
    """

    key = "f1"
    label = "F1"

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> float:
        """Computes F1 over the brackets of all sentences, in [0, 100]."""
        return float(self.measure(outputs, references)["f1"])

    def measure(
        self, outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float | str]:
        """Computes F1, precision, recall, and two percentages of sentences.

        `complete_match` is the percentage of sentences with all brackets right,
        `well_formed` that of outputs that needed no repair.
        """
        counts, well_formed = [], []
        for output, reference in zip(outputs, references, strict=True):
            gold = read_reference(reference)
            words = leaves(gold)
            well_formed.append(is_tree(output, len(words)))
            # EVALB skips sentences that have only punctuation.
            if any(leaf.tag not in DELETED for leaf in words):
                found = repair(output, [leaf.word for leaf in words])
                counts.append(count_brackets(gold, found))
        total = sum_counts(counts)
        return {
            "f1": total.f1,
            "precision": total.precision,
            "recall": total.recall,
            "complete_match": _percentage([c.is_complete for c in counts]),
            "well_formed": _percentage(well_formed),
            "sentences": len(well_formed),
        }


def make_parsing_metric(configuration: Configuration) -> DirectionalMetric:
    """Makes the metric of a parser's training."""
    return DirectionalMetric({"": ParsingMetric()})


def _percentage(values):
    return 100 * sum(values) / max(len(values), 1)
