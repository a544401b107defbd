"""The TensorBoard records of a run, as curves."""

import dataclasses
import math
import pathlib

import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)


@dataclasses.dataclass(frozen=True)
class Records:
    """The curves of a run.

    Attributes:
        curves: Points `(step, value)` by name, such as "train/loss", in the
            order of their steps; finite ones only.
        not_finite: Number of values that are not finite, and not in `curves`.
        facts: Texts that `Reporter.describe` wrote in the last session, by
            name.
    """

    curves: dict[str, list[tuple[int, float]]]
    not_finite: int
    facts: dict[str, str] = dataclasses.field(default_factory=dict)

    def last_step(self) -> int:
        """The last step of any curve; 0 without records."""
        return max(
            (points[-1][0] for points in self.curves.values()), default=0
        )


def read_records(logs: pathlib.Path) -> Records:
    """The `Records` in a directory of TensorBoard's files; it may be missing.

    Steps that a killed session recorded and the next one repeated count once,
    as in TensorBoard. Warns about a file whose records cannot all be read.
    """
    if not logs.is_dir():
        return Records({}, 0)
    for path in sorted(logs.glob("*tfevents*")):
        _warn_if_corrupt(path)
    events = EventAccumulator(str(logs), STORE_EVERYTHING_SIZE_GUIDANCE)
    events.Reload()
    curves, not_finite, facts = {}, 0, {}
    for name in events.Tags()["tensors"]:
        if events.SummaryMetadata(name).plugin_data.plugin_name == "text":
            last = tf.make_ndarray(events.Tensors(name)[-1].tensor_proto)
            facts[name.split("/")[-1]] = last.item().decode()
            continue
        points = {
            event.step: tf.make_ndarray(event.tensor_proto).item()
            for event in events.Tensors(name)
        }
        finite = {
            step: value
            for step, value in points.items()
            if math.isfinite(value)
        }
        not_finite += len(points) - len(finite)
        if finite:
            curves[name] = sorted(finite.items())
    return Records(curves, not_finite, facts)


def _warn_if_corrupt(path):
    """Warns about records that `EventAccumulator` silently ignores."""
    number = 0
    try:
        for _ in tf.data.TFRecordDataset(str(path)):
            number += 1
    except tf.errors.DataLossError:
        logging.warning(
            "%s is corrupt after %d records: the curves lack the rest of it",
            path,
            number,
        )
