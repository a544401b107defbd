"""The server's process: its socket, uvicorn, startup and shutdown.

It relies on uvicorn's documented options and on its behavior at SIGTERM, and
leaves slow clients to a proxy. See docs/serving.md.
"""

import concurrent.futures
import contextlib
import gc
import math
import os
import queue
import signal
import socket
import sys
import threading
import typing
from collections.abc import Mapping

import uvicorn
from absl import logging

from keras_transformer.commands import flags
from trainers.serving.access_log import open_log
from trainers.serving.app import make_app
from trainers.serving.options import Limits, ServeOptions
from trainers.serving.pairs import load_pairs
from trainers.serving.requests import read_keys
from trainers.serving.service import Service, read_glossaries
from trainers.translating.options import TranslatorOptions

MAX_HEADER_BYTES = 16384
KEEP_ALIVE_SECONDS = 30
# Seconds that a thread computing in Python, such as one reading a glossary, may
# make others wait.
SWITCH_SECONDS = 2e-4


def run(
    translator: TranslatorOptions,
    search: Mapping[str, typing.Any],
    options: ServeOptions,
    limits: Limits,
) -> None:
    """Serves the pairs of `load_pairs` until SIGTERM, SIGINT or SIGHUP.

    With glossaries or API keys, SIGHUP reloads them instead. Raises
    CommandError for wrong options, and RunError if the warm-up fails.
    """
    with flags.user_errors():
        # Loading the models takes long, so this is checked first. Nobody can
        # connect yet.
        read_keys(options.api_keys)
        if options.access_log:
            open_log(options.access_log).close()
        read_glossaries(options.glossaries, tell=False)
        bound = bind(options.host, options.port)
    with bound:
        pairs = load_pairs(
            translator,
            search,
            options.max_searches,
            options.adapters,
            options.glossaries,
        )
        with flags.user_errors():
            sys.setswitchinterval(SWITCH_SECONDS)
            service = Service(pairs, options, limits)
            server = make_server(service)
        with contextlib.closing(service):
            # uvicorn has its own handlers while it runs. When it has finished
            # the accepted requests, it raises the signal again. No handler
            # raises an exception: that could interrupt any line of Python, such
            # as the start of a thread, or be ignored there.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: _end(server))
            if options.glossaries or options.api_keys:
                reload_at_sighup(service)
            elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
                signal.signal(signal.SIGHUP, _hang_up)
            bound.listen()
            host, port = bound.getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            flags.show(f"listening at http://{host}:{port}, warming up")
            threading.Thread(
                target=_warm_up, args=(service,), daemon=True
            ).start()
            server.run([bound])
    if service.failure is not None:
        raise flags.RunError(f"the model cannot translate: {service.failure}")


def bind(host: str, port: int) -> socket.socket:
    """Returns a TCP socket that is bound, and does not listen yet.

    Raises OSError with the address if it cannot be bound.
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


def make_server(service: Service) -> uvicorn.Server:
    """Makes the uvicorn server for the application of a service."""
    return uvicorn.Server(
        uvicorn.Config(
            make_app(service),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,  # it has whole paths, which may have user text
            server_header=False,
            headers=[("X-Content-Type-Options", "nosniff")],
            # uvicorn also counts the connection that makes the request.
            limit_concurrency=service.limits.max_connections + 1,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(
                service.options.request_seconds
            ),
        )
    )


def _warm_up(service):
    """Warms up the service. A failure ends the process."""
    try:
        for line in service.warm_up():
            flags.show(line)
    except concurrent.futures.CancelledError:
        pass  # the server is shutting down
    except Exception as error:
        service.failure = error
        os.kill(os.getpid(), signal.SIGTERM)


def reload(service: Service) -> None:
    """Reads keys and glossaries again. Logs an error if they are wrong."""
    try:
        gc.disable()  # a collection would stop all threads to scan all terms
        service.read_files()
        gc.freeze()
    except (ValueError, OSError) as error:
        logging.error("glossaries, or wrong keys, stay as they were: %s", error)
    else:
        flags.show(
            f"glossaries: {', '.join(service.glossaries) or 'none'};"
            f" API keys: {len(service.keys or ())}"
        )
    finally:
        gc.enable()


def reload_at_sighup(service: Service) -> None:
    """Makes each SIGHUP read the files again, one after the other.

    The thread for this starts now: a handler that starts a thread may wait
    forever if the signal comes while the main thread starts another.
    """
    signals: queue.SimpleQueue = queue.SimpleQueue()

    def read():
        while signals.get():
            reload(service)

    threading.Thread(target=read, daemon=True).start()
    signal.signal(signal.SIGHUP, lambda number, _: signals.put(number))


def _end(server):
    """Makes the server end, now or as soon as it runs."""
    server.should_exit = True


def _hang_up(*_):
    signal.raise_signal(signal.SIGTERM)
