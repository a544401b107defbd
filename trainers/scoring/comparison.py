"""Whether one system is better than another: sacreBLEU's paired tests.

Differences of a point of BLEU are often chance. Both tests estimate the
p-value: the probability of a difference at least as large between two equally
good systems. sacreBLEU computes it (`sacrebleu.significance`); its samples
depend on the environment variable SACREBLEU_SEED (12345).
"""

from collections.abc import Iterator, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

# sacreBLEU's names of the tests -> ours.
TESTS = {"bs": "paired_bootstrap", "ar": "approximate_randomization"}
SIGNIFICANT = 0.05  # below it, a line of the table has a mark


def compare(
    systems: dict[str, list[str]],
    references: Sequence[Sequence[str]],
    metrics: dict[str, Metric],
    samples: dict[str, int] | None = None,
) -> dict:
    """Compares systems with the first of them, the baseline.

    Args:
        systems: Translations by name: the baseline's, then the others'.
        references: Lists of reference translations, each as long as a system's
            outputs.
        metrics: sacreBLEU's metrics by name.
        samples: Number of samples for each key of `TESTS`, or None for
            sacreBLEU's defaults (1000 and 10000).

    Returns:
        A dictionary for JSON: `baseline`, and for each other system in
        `systems` its `name` and for each metric its `score`, its `difference`
        from the baseline, and the p-value of each test. Systems and baseline
        also have the bootstrap's mean and half its 95 % interval. A system with
        the outputs of the baseline has the p-value None; see `least_p_value`.
    """
    found = {}
    signatures = {}
    for test, name in TESTS.items():
        paired = PairedTest(
            list(systems.items()),
            metrics,
            references,
            test_type=test,
            n_samples=(samples or {}).get(test, 0),
        )
        test_signatures, found[name] = paired()
        signatures[name] = {
            metric: str(signature)
            for metric, signature in test_signatures.items()
        }
    described: list[dict] = []
    baseline = next(iter(systems.values()))
    for i, (name, outputs) in enumerate(systems.items()):
        results = {metric: _describe(found, metric, i) for metric in metrics}
        if i:
            number = sum(map(str.__ne__, outputs, baseline))
            for result in results.values():
                least = least_p_value(number, result["difference"])
                for test, value in least.items():
                    result[test] = max(result[test], value) if number else None
        described.append({"name": name, **results})
    return {
        "baseline": described[0],
        "systems": described[1:],
        "signatures": signatures,
    }


def least_p_value(number: int, difference: float) -> dict[str, float]:
    """The smallest p-value that each test can find.

    sacreBLEU counts samples with a larger difference than the systems have, but
    not those with an equal difference: if all are equal, as with equal scores,
    its p-value is near 0, and should be 1. Randomization exchanges outputs: in
    2 of its 2^n samples it exchanges all or none of the n that differ, and the
    samples are as different as the systems.

    Args:
        number: Number of outputs that differ.
        difference: Difference of the scores.

    >>> least_p_value(3, -0.5)
    {'paired_bootstrap': 0.0, 'approximate_randomization': 0.25}
    """
    bootstrap, randomization = TESTS.values()
    if not difference:
        return {bootstrap: 1.0, randomization: 1.0}
    return {bootstrap: 0.0, randomization: 2.0 ** (1 - number)}


def _describe(found, metric, index):
    """One system's results in one metric."""
    bootstrap, randomization = (
        found[name][metric][index] for name in TESTS.values()
    )
    result = {
        "score": float(bootstrap.score),
        "mean": float(bootstrap.mean),
        "confidence": float(bootstrap.ci),
    }
    if index:  # the baseline is not compared with itself
        baseline = found[TESTS["bs"]][metric][0]
        result["difference"] = float(bootstrap.score - baseline.score)
        result["paired_bootstrap"] = float(bootstrap.p_value)
        result["approximate_randomization"] = float(randomization.p_value)
    return result


def table(comparison: dict, metrics: Sequence[str]) -> Iterator[str]:
    """The lines of a table of `compare`'s result.

    Args:
        comparison: The result.
        metrics: The metrics' names, in order.
    """
    rows = [comparison["baseline"], *comparison["systems"]]
    width = max(len(row["name"]) for row in rows)
    for metric in metrics:
        yield (
            f"{metric:{width}}    score   mean +- 95 %   difference"
            "   p bootstrap  p randomization"
        )
        for row in rows:
            result = row[metric]
            line = (
                f"{row['name']:{width}}  {result['score']:7.2f}"
                f"  {result['mean']:6.2f} +- {result['confidence']:4.2f}"
            )
            if "difference" in result:
                line += f"  {result['difference']:+11.2f}"
                for test in TESTS.values():
                    line += f"  {_p_value(result[test]):>13}"
            yield line.rstrip()
        yield ""
    yield f"*: p below {SIGNIFICANT}, against {rows[0]['name']}"


def _p_value(number):
    """A p-value in the table."""
    if number is None:
        return "same "
    return f"{number:.4f}{'*' if number < SIGNIFICANT else ' '}"
