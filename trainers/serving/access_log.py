"""A line for each answer, in the Common Log Format of web servers.

It has no texts of users: the path is that of a route, without the query.
"""

import ipaddress
import logging
import logging.handlers
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainers.serving.metrics import Metrics

METHODS = "GET", "HEAD", "POST", "OPTIONS"  # a client may send any word


def open_log(path: str) -> logging.Handler:
    """Opens a log, a file or, if the path is "-", standard error.

    A file that is renamed is made again, so rotation needs no signal.
    """
    if path == "-":
        return logging.StreamHandler()
    return logging.handlers.WatchedFileHandler(path)


class AccessLog:
    """Middleware that counts refusals, and writes lines unless `path` is ""."""

    def __init__(self, app: ASGIApp, metrics: Metrics, path: str):
        self._app, self._metrics = app, metrics
        self._log = open_log(path) if path else logging.NullHandler()

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answers as the application does."""
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
    """Returns the address of the client, which a proxy may have given."""
    try:
        return ipaddress.ip_address(scope["client"][0])
    except (TypeError, ValueError):  # there is none, or any text
        return "-"
