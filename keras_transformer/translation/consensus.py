"""Consensus decoding: chooses the sample that is most like the others.

Minimum Bayes risk decoding (Kumar and Byrne 2004) chooses the translation with
the highest expected utility, not the most probable one. The expectation is the
mean over samples, which serve as references for each other (Freitag et al.
2022). The utility is sentence-level chrF or BLEU. Matrix products compute it
for all pairs at once.
"""

import collections
from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer.base.refusals import expect

CHAR_ORDER = 6  # chrF: characters of the longest n-gram
BETA = 2  # chrF: weight of recall
WORD_ORDER = 4  # BLEU: words of the longest n-gram
BLOCK = 2**22  # maximum number of counts in memory


def rank(texts: Sequence[str], metric: str) -> list[int]:
    """Ranks the indices of samples by mean utility, the highest first.

    The mean is over all samples, the sample itself included, each counted as
    often as it was drawn. Samples with equal means keep their order. `metric`
    is as in `utilities`.

    >>> rank(["eine Katze", "ein Hund", "ein Hund da"], "bleu")
    [1, 2, 0]
    """
    times = collections.Counter(texts)
    values = utilities(list(times), metric)
    # Rounded, so that floating-point errors break no tie.
    means = values @ np.array(list(times.values()), "float64") / len(texts)
    of_text = dict(zip(times, np.round(means, 9), strict=True))
    return sorted(range(len(texts)), key=lambda i: -of_text[texts[i]])


def utilities(texts: Sequence[str], metric: str) -> np.ndarray:
    """Compares all pairs of texts; returns float64 [N, N] in [0, 100].

    Rows are translations, columns are references. The metric is "chrf" or
    "bleu", as `sacrebleu.sentence_chrf` or `sacrebleu.sentence_bleu`. Raises
    ValueError for other metrics, or if there are no texts.
    """
    expect(texts, "samples", "none")
    expect(metric in METRICS, "chrf or bleu", f"{metric=}")
    return METRICS[metric](texts)


def _chrf(texts: Sequence[str]) -> np.ndarray:
    """Computes chrF2, the F-score of character n-grams without white space."""
    joined = ["".join(text.split()) for text in texts]
    codes = [text.encode("utf-32-le", "surrogatepass") for text in joined]
    tokens = [np.frombuffer(code, "<u4").astype("int64") for code in codes]
    precision = recall = orders = np.zeros((len(texts), len(texts)))
    for matches, totals in _matches(tokens, CHAR_ORDER):
        precision = precision + _ratio(matches, totals[:, None])
        recall = recall + _ratio(matches, totals)
        # Only orders with n-grams in both texts count.
        orders = orders + (np.minimum(totals[:, None], totals) > 0)
    precision, recall = _ratio(precision, orders), _ratio(recall, orders)
    weighted = BETA**2 * precision + recall
    return 100 * _ratio((1 + BETA**2) * precision * recall, weighted)


def _bleu(texts: Sequence[str]) -> np.ndarray:
    """Computes BLEU: tokenizer 13a, smoothing "exp", `effective_order`."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize, ids = Tokenizer13a(), dict[str, int]()
    rows = [tokenize(text.rstrip()).split() for text in texts]
    rows_of_ids = [[ids.setdefault(w, len(ids)) for w in row] for row in rows]
    tokens = [np.array(row, "int64") for row in rows_of_ids]
    lengths = np.array([len(row) for row in rows], "float64")
    smooth = np.ones((len(texts), len(texts)))
    logs = orders = some = np.zeros_like(smooth)
    for matches, totals in _matches(tokens, WORD_ORDER):
        some = some + matches
        # The nth order without matches counts as 1 / 2^n matches.
        smooth = np.where(matches == 0, smooth / 2, smooth)
        matches = np.where(matches == 0, smooth, matches)
        counts = totals[:, None] > 0  # whether the translation has n-grams
        log = np.log(matches / np.where(counts, totals[:, None], 1))
        logs, orders = logs + counts * log, orders + counts
    brevity = np.minimum(0, 1 - _ratio(lengths, lengths[:, None]))
    return 100 * np.exp(brevity + _ratio(logs, orders)) * (some > 0)


METRICS = {"chrf": _chrf, "bleu": _bleu}


def _ratio(dividend: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """Divides; returns the dividend where the divisor is 0."""
    return dividend / np.where(divisor == 0, 1, divisor)


def _matches(
    tokens: Sequence[np.ndarray], max_order: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields for each order the matches [N, N] and numbers of n-grams [N]."""
    lengths = np.array([len(row) for row in tokens])
    flat = np.concatenate(tokens)
    texts = np.repeat(np.arange(len(tokens)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(flat))
    base = flat.max(initial=0) + 1
    ids = np.zeros_like(flat)  # of the (order - 1)-gram that begins here
    for order in range(1, max_order + 1):
        begins = np.flatnonzero(left >= order)
        keys = ids[begins] * base + flat[begins + order - 1]
        _, ids[begins] = np.unique(keys, return_inverse=True)
        totals = np.maximum(lengths - order + 1, 0).astype("float64")
        yield _shared(ids[begins], texts[begins], len(tokens)), totals


def _shared(ids: np.ndarray, texts: np.ndarray, num_texts: int) -> np.ndarray:
    """Counts the n-grams that each pair of texts shares, with repetitions.

    For counts a and b, min(a, b) is the number of k > 0 with a >= k and b >= k.
    """
    shared = np.zeros((num_texts, num_texts))
    step = max(1, BLOCK // num_texts)
    for first in range(0, ids.max(initial=-1) + 1, step):
        here = (ids >= first) & (ids < first + step)
        cells = (ids[here] - first) * num_texts + texts[here]
        size = (cells.max() // num_texts + 1) * num_texts
        counts = np.bincount(cells, minlength=size).reshape(-1, num_texts)
        while len(counts):
            has = (counts > 0).astype("float32")
            shared += has.T @ has
            counts = counts[(counts > 1).any(axis=1)] - 1
    return shared
