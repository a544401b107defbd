"""How well probabilities fit translations: as numbers, a table and a figure."""

import dataclasses
import typing

import numpy as np
from numpy.typing import ArrayLike

from keras_transformer.confidence.regression import (
    Bin,
    bins_of,
    calibration_error,
    rank_correlation,
)
from keras_transformer.figures.colors import COLORS, INK
from keras_transformer.figures.saving import STYLE, save_figure

ACCEPTABLE = 70.0  # minimum chrF of a translation that counts as acceptable
HIGH = 0.9  # sentences with at least this probability are counted
WIDTH = 5.0  # of the figure, inches


@dataclasses.dataclass(frozen=True)
class Report:
    """Probabilities, measured with the chrF of the translations.

    Attributes:
        bins: Tenths of the sentences, least probable first.
        values: The numbers, by name: "calibration_error", "correlation" with
            chrF, "acceptable" (the share of translations), "share_of_90" (of
            those given 90 % or more), "acceptable_of_90" (the share among
            these, None if there are none).
    """

    bins: list[Bin]
    values: dict[str, float | None]

    @classmethod
    def of(cls, chances: ArrayLike, chrf: ArrayLike) -> typing.Self:
        """Makes the report of translations from their probabilities."""
        own, scores = np.array(chances), np.array(chrf)
        truth, high = (scores >= ACCEPTABLE).astype(float), own >= HIGH
        bins, best = bins_of(own, truth), truth[high]
        values = {
            "calibration_error": calibration_error(bins),
            "correlation": rank_correlation(own, scores),
            "acceptable": float(truth.mean()),
            "share_of_90": float(high.mean()),
            "acceptable_of_90": float(best.mean()) if len(best) else None,
        }
        return cls(bins, values)

    def table(self) -> list[str]:
        """Formats the bins.

        >>> print("\\n".join(Report([Bin(0.1, 0.25, 0.5, 8)], {}).table()))
          sentences  from %  probability %  acceptable %
                  8      10           25.0          50.0
        """
        rows = ["  sentences  from %  probability %  acceptable %"]
        for low, probability, share, number in self.bins:
            rows.append(
                f"{number:>11}{100 * low:>8.0f}{100 * probability:>15.1f}"
                f"{100 * share:>14.1f}"
            )
        return rows

    def save(self, path: str) -> None:
        """Saves the figure: the share of each bin over its probability."""
        import matplotlib  # an extra
        from matplotlib.figure import Figure

        number = sum(one.number for one in self.bins)
        error = self.values["calibration_error"]
        with matplotlib.rc_context(STYLE):
            title = "Calibration of confidence"
            figure = Figure((WIDTH, WIDTH), layout="constrained", label=title)
            axes = figure.subplots()
            axes.axline((0, 0), slope=1, color=INK, alpha=0.4, linewidth=1)
            axes.plot(
                [100 * one.probability for one in self.bins],
                [100 * one.share for one in self.bins],
                color=COLORS[0],
                label=f"tenths of {number:,} sentences; error {error:.3f}",
                linewidth=2,
                marker="o",
                markersize=6,
            )
            axes.set(
                xlim=(0, 100),
                ylim=(0, 100),
                aspect="equal",
                xticks=range(0, 101, 20),
                yticks=range(0, 101, 20),
                xlabel="probability, %",
                ylabel="acceptable translations, %",
            )
            axes.grid()
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
        save_figure(figure, path)
