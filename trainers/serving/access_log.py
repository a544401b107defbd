"""The access log: a line for each answer, in the Common Log Format.

The lines contain no user text: the path is that of a route, without the query.
"""

import ipaddress
import logging
import logging.handlers
import os
import stat
import sys
import time

import absl.logging
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_transformer.base.refusals import expect
from trainers.serving.metrics import Metrics

METHODS = "GET", "HEAD", "POST", "OPTIONS"  # other words are logged as "-"


def open_log(path: str) -> logging.Handler:
    """Opens a log file, or standard error if the path is "-".

    If the file is renamed, a new one is made, so rotation needs no signal.
    Raises ValueError if it is a FIFO, which would stop the server.
    """
    return logging.StreamHandler() if path == "-" else _File(path)


class _File(logging.handlers.WatchedFileHandler):
    """A log file. If it cannot be written, the first lost line is an error."""

    lost = 0

    def _open(self):
        path = self.baseFilename
        is_pipe = os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)
        expect(
            not is_pipe or path.startswith("/dev/"),
            "a file that is no FIFO",
            access_log=path,
        )
        return super()._open()

    def emit(self, record):
        """Writes a line, and after lost ones tells their number."""
        lost = self.lost
        try:
            super().emit(record)
        except (OSError, ValueError):
            self.handleError(record)
        if lost and lost == self.lost:
            absl.logging.warning("the access log lacks %d lines", lost)
            self.lost = 0

    def handleError(self, record):  # noqa: N802
        """Counts a lost line."""
        if not self.lost:
            absl.logging.error("the access log: %s", sys.exc_info()[1])
        self.lost += 1


class AccessLog:
    """Middleware that counts refusals, and logs answers if it has a path."""

    def __init__(self, app: ASGIApp, metrics: Metrics, path: str):
        self._app, self._metrics = app, metrics
        self._log = open_log(path) if path else logging.NullHandler()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Passes a request to the application, and logs the answer."""
        began = time.strftime("%d/%b/%Y:%H:%M:%S %z")
        status, size = 0, 0

        async def watch(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            path = scope["route"].path if "route" in scope else "-"
            self._metrics.observe_answer(path, status)
            method = scope["method"] if scope["method"] in METHODS else "-"
            request = f"{method} {path} HTTP/{scope['http_version']}"
            line = (
                f'{_address(scope)} - - [{began}] "{request}" {status} {size}'
            )
            self._log.handle(logging.makeLogRecord({"msg": line}))


def _address(scope):
    """Returns the client's IP address, or "-" if there is no valid one."""
    try:
        return ipaddress.ip_address(scope["client"][0])
    except (TypeError, ValueError):  # missing, or a proxy sent other text
        return "-"
