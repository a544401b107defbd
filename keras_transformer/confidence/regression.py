"""Logistic regression, and measures of the probabilities that it gives."""

import typing

import numpy as np

PENALTY = 1.0  # of half the squared weights, beside the sum over examples
STEPS = 50  # of Newton's method, which converges in fewer than ten
NUM_BINS = 10


class Regression(typing.NamedTuple):
    """A logistic regression on standardized features `[F]`."""

    means: np.ndarray  # float64 [F]
    scales: np.ndarray  # float64 [F], positive
    weights: np.ndarray  # float64 [1 + F]; the first is the bias

    @classmethod
    def fit(cls, features: np.ndarray, truth: np.ndarray) -> "Regression":
        """Fits the regression to features `[N, F]` and truths `[N]`, 0 or 1.

        The probabilities of all examples have the mean of their truths.
        """
        means, scales = features.mean(axis=0), features.std(axis=0)
        scales = np.where(scales > 1e-9, scales, 1.0)
        x = _with_bias((features - means) / scales)
        penalties = np.full(x.shape[1], PENALTY)
        penalties[0] = 1e-9  # the bias is free
        weights = np.zeros(x.shape[1])
        for _ in range(STEPS):
            chances = _sigmoid(x @ weights)
            gradient = x.T @ (chances - truth) + penalties * weights
            curvature = (x.T * (chances * (1 - chances))) @ x
            weights -= np.linalg.solve(curvature + np.diag(penalties), gradient)
        return cls(means, scales, weights)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Computes the probabilities `[N]` of features `[N, F]`."""
        return _sigmoid(self.parts(features).sum(axis=1))

    def parts(self, features: np.ndarray) -> np.ndarray:
        """Computes what the bias and each feature add to the logit."""
        x = _with_bias((features - self.means) / self.scales)
        return x * self.weights


class Bin(typing.NamedTuple):
    """Examples with similar probabilities."""

    low: float  # the smallest probability
    probability: float  # the mean
    share: float  # the share that is acceptable
    number: int


def bins_of(chances: np.ndarray, truth: np.ndarray) -> list[Bin]:
    """Divides examples into bins of equal count, least probable first."""
    order = np.argsort(chances, kind="stable")
    return [
        Bin(
            float(chances[part[0]]),
            float(chances[part].mean()),
            float(truth[part].mean()),
            len(part),
        )
        for part in np.array_split(order, NUM_BINS)
        if len(part)
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Computes the expected calibration error (Naeini et al. 2015).

    It is the mean difference between a bin's probability and its share.
    """
    total = sum(one.number for one in bins)
    gaps = (abs(one.probability - one.share) * one.number for one in bins)
    return sum(gaps) / total


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Computes Spearman's rank correlation; equal values share a mean rank."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values):
    _, places, numbers = np.unique(
        values, return_inverse=True, return_counts=True
    )
    ends = np.cumsum(numbers)
    return (ends - (numbers - 1) / 2)[places]


def _sigmoid(logits):
    return 1 / (1 + np.exp(-np.clip(logits, -50, 50)))


def _with_bias(x):
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)
