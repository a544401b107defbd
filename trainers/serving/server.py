"""The process of the server: socket, connections, start and end."""

import asyncio
import functools
import json
import math
import socket
import threading

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from keras_transformer.commands import flags
from trainers.serving.app import make_app
from trainers.serving.config import Limits, Options
from trainers.serving.pairs import load_pairs
from trainers.serving.service import Service

MAX_HEADER_BYTES = 16384
KEEP_ALIVE_SECONDS = 30
GRACE_SECONDS = 0.5  # between the last connection and the end
RETRY_CONNECTION = 5  # seconds, of a client that finds too many others


def run(arguments: flags.Arguments, options: Options, limits: Limits) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        arguments: The command line.
        options, limits: Its options.

    Raises:
        CommandError: A work directory, the address or an option is wrong.
        RunError: The model cannot translate.
    """
    with flags.user_errors():
        # Before the models, whose loading takes long. Nobody can connect yet.
        bound = bind(options.host, options.port)
    with bound:
        pairs = load_pairs(arguments, options.max_searches)
        with flags.user_errors():
            service = Service(pairs, options, limits)
            app = make_app(service)
        server = Server(service, app)
        server.run([bound])
    if server.failure is not None:
        raise flags.RunError(f"the model cannot translate: {server.failure}")


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that has an address, and does not listen yet.

    Raises:
        OSError: The address is wrong or in use.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno, f"{error.strerror}: host={host}, port={port}"
        ) from error
    return bound


class Server(uvicorn.Server):
    """uvicorn, which warms up after it listens, and drains before it ends.

    Attributes:
        failure: What the warm-up raised, or None.
    """

    def __init__(self, service, app):
        limits = service.limits
        seconds = service.options.request_seconds + limits.read_seconds
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(_Protocol, limits),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,  # a path may have a user's text
                server_header=False,
                headers=[("X-Content-Type-Options", "nosniff")],
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=math.ceil(seconds),
            )
        )
        self.failure = None
        self._service = service

    async def startup(self, sockets=None):
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        flags.show(f"listening at http://{host}:{port}, warming up")
        threading.Thread(target=self._warm_up, daemon=True).start()

    def _warm_up(self):
        try:
            self._service.warm_up()
        except Exception as error:
            self.failure = error
            self.should_exit = True
            return
        flags.show("ready")

    async def on_tick(self, counter):
        """Ends the server when what was accepted is done."""
        if self._service.phase == "draining" and not self._service.running:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets=None):
        self._service.batcher.close()
        for server in self.servers:
            server.close()
        # Who has just connected is told to try again.
        await asyncio.sleep(GRACE_SECONDS)
        await super().shutdown(sockets)

    def handle_exit(self, sig, frame):
        """Begins to drain at the first signal, ends at the second one."""
        self.should_exit = self.force_exit = self._service.phase == "draining"
        self._service.phase = "draining"


class _Protocol(H11Protocol):
    """A connection of uvicorn with more limits, and errors in JSON.

    Slow clients are cut off, both those that send slowly and those that do not
    read their answer.
    """

    def __init__(self, limits, **options):
        super().__init__(**options)
        self._limits = limits
        self._timers = {}
        self._has_ended = False

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._end(503, "too many connections", RETRY_CONNECTION)
        else:
            self._start("read", self._end_slow)

    def data_received(self, data):
        if self._has_ended:
            return
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop("read")
        elif "read" not in self._timers:
            self._start("read", self._end_slow)

    def pause_writing(self):
        super().pause_writing()
        self._start("write", self.transport.abort)

    def resume_writing(self):
        super().resume_writing()
        self._stop("write")

    def connection_lost(self, exc):
        for name in list(self._timers):
            self._stop(name)
        super().connection_lost(exc)

    def send_400_response(self, msg):
        self._end(400, msg)

    def _start(self, name, act):
        """Starts one of the connection's timers."""
        seconds = self._limits.read_seconds
        self._timers[name] = self.loop.call_later(seconds, act)

    def _stop(self, name):
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _end_slow(self):
        """Cuts off a client that has not sent its request."""
        seconds = self._limits.read_seconds
        self._end(408, f"the request took longer than {seconds:g} seconds")

    def _end(self, status, message, retry_after=None):
        """Answers with an error, unless an answer has begun, and closes."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": message}).encode()
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
            ]
            if retry_after is not None:
                headers.append(("Retry-After", str(retry_after)))
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
        # If it were closed with data unread, the client might not get the
        # answer. So it is only ended, and what still comes is not looked at.
        self._has_ended = True
        if self.cycle is not None:  # its application waits for the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._stop("read")
        self._start("read", self.transport.abort)
