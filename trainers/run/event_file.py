"""The file that TensorBoard shows, written without TensorFlow."""

import os
import pathlib
import platform
import time
import typing

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.record_writer import RecordWriter


class EventFile:
    """A file of records in a directory, for TensorBoard and `read_records`.

    Records of an earlier session that were made after the step are purged: a
    killed session may have recorded steps that the next one makes again.
    TensorBoard (event_processing/plugin_event_accumulator.py) drops them at an
    event that says that a session has started at a step, unless it is the first
    such event; two such events are written.

    Args:
        logs: The directory.
        step: Updates made so far.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, logs: str | os.PathLike, step: int):
        directory = pathlib.Path(logs)
        directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files in the order of their names.
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
        """Writes a `Summary` at a step."""
        self._write(step=step, summary=summary)

    def close(self) -> None:
        self._records.close()

    def _write(self, **event):
        event = Event(wall_time=time.time(), **event)
        self._records.write(event.SerializeToString())
