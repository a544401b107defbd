"""Whether XLA compiles the training step: a short trial decides, once a run.

On CPUs XLA has been faster for some models and slower for others. A trial costs
a compilation, so only a run that is long enough has one.
"""

import statistics
import time
import typing
from collections.abc import Callable

ROUNDS = 5  # in which each program makes a step
WORTH_SECONDS = 900.0  # of a run that is long enough for a trial
MARGIN = 0.95  # XLA's step takes at most this share of the other


class Trial(typing.NamedTuple):
    """What a trial has measured, in seconds.

    Attributes:
        plain: Of a step without XLA, median.
        xla: Of a step with XLA, median.
        compilation: Of XLA's first step.
    """

    plain: float
    xla: float
    compilation: float


def measure(plain: Callable[[], object], xla: Callable[[], object]) -> Trial:
    """Times two programs of the same step, in turn.

    Args:
        plain, xla: Functions that make a step and wait for it.
    """
    plain()  # traces it
    compilation = _seconds(xla)
    rounds = [(_seconds(plain), _seconds(xla)) for _ in range(ROUNDS)]
    plain_seconds, xla_seconds = zip(*rounds, strict=True)
    return Trial(
        statistics.median(plain_seconds),
        statistics.median(xla_seconds),
        compilation,
    )


def is_worth_it(trial: Trial, num_programs: int, steps: float) -> bool:
    """Whether XLA is faster by more than it costs to compile.

    Args:
        trial: The `Trial`.
        num_programs: How many XLA compiles.
        steps: Updates that the run has yet to make.

    >>> is_worth_it(Trial(1.0, 0.8, 10.0), num_programs=4, steps=300)
    True
    >>> is_worth_it(Trial(1.0, 0.8, 10.0), num_programs=4, steps=100)
    False
    """
    gain = (trial.plain - trial.xla) * steps
    is_faster = trial.xla <= MARGIN * trial.plain
    return is_faster and gain > num_programs * trial.compilation


def choice_line(use_xla: bool, trial: Trial, shape: tuple[int, int]) -> str:
    """What was chosen, and why."""
    rows, length = shape
    return (
        f"XLA is {'used' if use_xla else 'not used'}: a step of {rows} x"
        f" {length} tokens takes {trial.plain:.3g} s without and"
        f" {trial.xla:.3g} s with it (medians of {ROUNDS}), a compilation"
        f" {trial.compilation:.0f} s. --jit_compile or --nojit_compile decides"
        " without a trial"
    )


def _seconds(step):
    """Seconds of a call."""
    started = time.monotonic()
    step()
    return time.monotonic() - started
