"""Whether one system is better than another: sacreBLEU's paired tests.

Differences of a point of BLEU are often chance. Both tests ask how probable a
difference at least as great is between two systems that are equally good: the
p-value. sacreBLEU does the computing (`sacrebleu.significance`); its samples
depend on the environment variable SACREBLEU_SEED (12345).
"""

import typing
from collections.abc import Iterator, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

# sacreBLEU's names of the tests -> ours.
TESTS = {"bs": "paired_bootstrap", "ar": "approximate_randomization"}
SIGNIFICANT = 0.05  # below it, a line of the table has a mark


class System(typing.NamedTuple):
    """A system that is compared.

    Attributes:
        name: What the user called it: a path.
        outputs: Its translations.
    """

    name: str
    outputs: list[str]


def compare(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    metrics: dict[str, Metric],
    samples: dict[str, int] | None = None,
) -> dict:
    """Compares systems with the first of them, the baseline.

    Args:
        systems: The baseline, then the others.
        references: As many translations as each system has, one list for each
            reference.
        metrics: sacreBLEU's metrics by name.
        samples: For each key of `TESTS` the number of samples; None:
            sacreBLEU's (1000 and 10000).

    Returns:
        A dictionary that JSON can hold: `baseline` and, for each other system
        in `systems`, `name` and for each metric its `score`, its `difference`
        from the baseline, and of each test the p-value; of the bootstrap also
        the mean and half the 95 % interval, and those of the baseline. A system
        that says what the baseline says has the p-value None; see
        `least_p_value`.
    """
    found = {}
    signatures = {}
    for test, name in TESTS.items():
        paired = PairedTest(
            [(system.name, system.outputs) for system in systems],
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
    for i, system in enumerate(systems):
        results = {metric: _describe(found, metric, i) for metric in metrics}
        if i:
            number = sum(map(str.__ne__, system.outputs, systems[0].outputs))
            for result in results.values():
                least = least_p_value(number, result["difference"])
                for name, value in least.items():
                    result[name] = max(result[name], value) if number else None
        described.append({"name": system.name, **results})
    return {
        "baseline": described[0],
        "systems": described[1:],
        "signatures": signatures,
    }


def least_p_value(number: int, difference: float) -> dict[str, float]:
    """The smallest p-value that each test can find.

    sacreBLEU counts the samples whose difference is greater than that of the
    systems, and none whose difference is as great: where all samples are so,
    as with equal scores, its p-value is near 0, and should be 1. Randomization
    exchanges outputs: to exchange none that differ, or all, makes 2 of its
    2^n samples as different as the systems are.

    Args:
        number: Outputs that differ.
        difference: Of the scores.

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
    """A p-value as the table shows it."""
    if number is None:
        return "same "
    return f"{number:.4f}{'*' if number < SIGNIFICANT else ' '}"
