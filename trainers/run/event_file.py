"""TensorBoard's event files, written and read without TensorFlow."""

import os
import pathlib
import platform
import time
import typing
from collections.abc import Iterator

from absl import logging
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.tensorflow_stub.errors import (
    DataLossError,
    OutOfRangeError,
)
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import (
    PyRecordReader_New,
)
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_ndarray

# For each name, such as "train/loss", the values by step, in order.
Curves = dict[str, dict[int, float]]


class EventFile:
    """A file of records in a directory, for TensorBoard and `read_curves`.

    Records of an earlier session after `step` are purged: a killed session may
    have recorded steps that the next one repeats. TensorBoard
    (event_processing/plugin_event_accumulator.py) drops them at the start event
    of a session, but not at the first such event, so two are written.

    TensorBoard's own writer would take seconds to import TensorFlow if that is
    installed, and would write only every two minutes.
    """

    def __init__(self, logs: str | os.PathLike, step: int):
        directory = pathlib.Path(logs)
        directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names.
        name = f"{time.time():017.6f}.{platform.node()}.{os.getpid()}"
        file = (directory / f"events.out.tfevents.{name}").open(
            "wb", buffering=0
        )
        self._records = RecordWriter(file)
        self._write(file_version="brain.Event:2")
        for _ in range(2):
            start = SessionLog(status=SessionLog.START)
            self._write(session_log=start, step=step + 1)

    def add(self, step: int, summary: typing.Any) -> None:
        """Writes a `Summary` protocol buffer at a step."""
        self._write(step=step, summary=summary)

    def close(self) -> None:
        self._records.close()

    def _write(self, **fields: typing.Any) -> None:
        event = Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())


def read_curves(logs: pathlib.Path) -> Curves:
    """Reads the numbers from TensorBoard's files in a directory.

    Returns no curves if the directory does not exist. As in TensorBoard, a step
    that a later session repeated has the later value. Warns about a file whose
    records cannot all be read.
    """
    curves: Curves = {}
    for path in sorted(logs.glob("*tfevents*")):
        for event in _events(path):
            if event.session_log.status == SessionLog.START:
                curves = {
                    name: {s: y for s, y in points.items() if s < event.step}
                    for name, points in curves.items()
                }
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    points = curves.setdefault(value.tag, {})
                    points[event.step] = make_ndarray(value.tensor).item()
    return curves


def _events(path: pathlib.Path) -> Iterator[Event]:
    """Yields the events of a file. Warns and ends at the first corrupt one."""
    reader, number = PyRecordReader_New(str(path)), 0
    try:
        while True:
            reader.GetNext()
            yield Event.FromString(reader.record())
            number += 1
    except OutOfRangeError:
        return
    except DataLossError:
        logging.warning(
            "%s is corrupt after %d records: the curves lack the rest of it",
            path,
            number,
        )
