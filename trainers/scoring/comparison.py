"""Tests of whether one system is better than another.

A difference of one BLEU point is often due to chance. Two paired tests estimate
the p-value: the probability of a difference at least as large between two
equally good systems. sacreBLEU computes them (`sacrebleu.significance`); their
samples depend on the environment variable SACREBLEU_SEED (default: 12345).
"""

from collections.abc import Iterator, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

# sacreBLEU's names of the tests -> ours.
TESTS = {"bs": "paired_bootstrap", "ar": "approximate_randomization"}
SIGNIFICANT = 0.05  # the table marks p-values below this


def compare(
    systems: dict[str, list[str]],
    references: Sequence[Sequence[str]],
    metrics: dict[str, Metric],
) -> dict:
    """Compares systems with the first of them, the baseline.

    Returns a dictionary for JSON: `baseline`, the other `systems`, and the
    `signatures` of the tests. A system has its `name` and, for each metric, its
    `score`, and the bootstrap's `mean` and `confidence`, half the 95 %
    interval. All but the baseline also have the `difference` from the baseline
    and the p-value of each test, None if all outputs are the baseline's. See
    `least_p_value`.
    """
    described: list[dict] = [
        {"name": name} | {metric: {} for metric in metrics} for name in systems
    ]
    signatures = {}
    baseline, *_ = systems.values()
    changed = [
        sum(map(str.__ne__, outputs, baseline)) for outputs in systems.values()
    ]
    for test, name in TESTS.items():
        paired = PairedTest(
            list(systems.items()), metrics, references, test_type=test
        )
        test_signatures, found = paired()
        signatures[name] = {
            metric: str(signature)
            for metric, signature in test_signatures.items()
        }
        for metric in metrics:
            for i, result in enumerate(found[metric]):
                values = described[i][metric]
                if test == "bs":
                    values["score"] = float(result.score)
                    values["mean"] = float(result.mean)
                    values["confidence"] = float(result.ci)
                if i:  # the baseline is not compared with itself
                    difference = float(result.score - found[metric][0].score)
                    values.setdefault("difference", difference)
                    least = least_p_value(changed[i], values["difference"])
                    p_value = max(float(result.p_value), least[name])
                    values[name] = p_value if changed[i] else None
    return {
        "baseline": described[0],
        "systems": described[1:],
        "signatures": signatures,
    }


def least_p_value(number: int, difference: float) -> dict[str, float]:
    """Computes the smallest p-value that each test can find.

    sacreBLEU counts samples with a larger difference than the systems have, but
    not those with an equal difference. With equal scores, all differences are
    equal, and its p-value is near 0 where it should be 1. Randomization
    exchanges outputs: 2 of its 2^n samples exchange all or none of the
    n = `number` outputs that differ, so they have the systems' difference.

    >>> least_p_value(3, -0.5)
    {'paired_bootstrap': 0.0, 'approximate_randomization': 0.25}
    """
    bootstrap, randomization = TESTS.values()
    if not difference:
        return {bootstrap: 1.0, randomization: 1.0}
    return {bootstrap: 0.0, randomization: 2.0 ** (1 - number)}


def table(comparison: dict, metrics: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a table with the result of `compare`."""
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
    base = rows[0]["name"]
    yield f"*: p below {SIGNIFICANT}, against {base}"
    for row in rows[1:]:
        yield _verdict(row["name"], base, metrics[0], row[metrics[0]])


def _verdict(name: str, base: str, metric: str, result: dict) -> str:
    """Says in a sentence which of two systems is better by BLEU."""
    p_values = [result[test] for test in TESTS.values()]
    if None in p_values:
        return f"{name} has the translations of {base}"
    if max(p_values) >= SIGNIFICANT:
        return f"by {metric}, {name} and {base} differ no more than by chance"
    winner, loser = (name, base) if result["difference"] > 0 else (base, name)
    difference = abs(result["difference"])
    return f"{winner} is better than {loser}, by {difference:.2f} {metric}"


def _p_value(number: float | None) -> str:
    if number is None:
        return "same "
    return f"{number:.4f}{'*' if number < SIGNIFICANT else ' '}"
