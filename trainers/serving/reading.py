"""Reads files in separate processes with limits on CPU time and memory.

A file may take CPU time in proportion to its size. A hostile file ends only its
own process. The server's process has a higher priority.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import heapq
import itertools
import os
import pickle
import resource
import signal
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable, Sequence

from absl import logging
from starlette.exceptions import HTTPException

from keras_transformer import documents
from keras_transformer.documents.tables import Columns
from trainers.serving.requests import BadRequest

NUM_PROCESSES = 2  # one of them reads only files of at most SMALL bytes
SMALL = 1 << 16
# Limit of the CPU seconds for a stage of a file, and more for each of its MiB.
SECONDS, SECONDS_PER_MIB = 4, 20
# More memory for each byte of a file. 4 MiB of lines of two words take 600 MiB.
MEMORY_PER_BYTE = 128
NICENESS = 10
READY = b"+"  # what a process says when it can read
# Ctrl-C and systemd send these signals to all processes. Readers block them and
# end with the server.
IGNORED = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
# The next stage of a file's translation, or the translated file; and
# `Document.summary()`.
Step = tuple[documents.Stage | documents.Translated, str]


def advance(
    data: bytes,
    name: str,
    languages: tuple[str, str],
    fits: Callable[[str], bool],
    results: Sequence[list],
    columns: Columns = (),
) -> Step:
    """Returns the next `Step` of a file, given the results of earlier stages.

    Each stage parses the file again, so that no process keeps a document while
    the model works. Raises ValueError if the file is wrong.
    """
    language, target = languages
    document = documents.parse(
        *(data, documents.AUTO, language, fits),
        name=name,
        target=target,
        columns=columns,
    )
    work = documents.stages(document)
    stage = next(work)
    for one in results:
        stage = work.send(one)
    return stage, document.summary()


class Turns:
    """Places that clients take in turns, so that none waits for all of another.

    A client's first request precedes the second one of each other client.
    """

    def __init__(self, places: int):
        self._free, self._now = places, 0
        self._waiting: list[tuple[int, int, str, asyncio.Future]] = []
        self._last: dict[str, int] = {}  # of clients in the queue
        self._count = itertools.count()

    async def acquire(self, client: str = "") -> None:
        """Waits for a place."""
        if self._free:
            self._free -= 1
            return
        turn = max(self._now, self._last.get(client, 0)) + 1
        self._last[client] = turn
        place = asyncio.get_running_loop().create_future()
        entry = turn, next(self._count), client, place
        heapq.heappush(self._waiting, entry)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Gives a place to the next who waits."""
        while self._waiting:
            self._now, _, client, place = heapq.heappop(self._waiting)
            if self._last[client] == self._now:
                del self._last[client]
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    @contextlib.asynccontextmanager
    async def of(self, client: str) -> typing.AsyncIterator[None]:
        """Has a place while the block runs."""
        await self.acquire(client)
        try:
            yield
        finally:
            self.release()


class Readers:
    """Processes that call `advance`, each for one file at a time.

    Args:
        memory: Bytes of memory that a stage may take besides
            `MEMORY_PER_BYTE`.
    """

    def __init__(self, memory: int):
        self._memory = memory
        self._threads = concurrent.futures.ThreadPoolExecutor(NUM_PROCESSES)
        self._free: list[subprocess.Popen] = []
        self._large = Turns(NUM_PROCESSES - 1)
        self._all = Turns(NUM_PROCESSES)

    async def advance(
        self,
        client: str,
        file: typing.BinaryIO,
        name: str,
        languages: tuple[str, str],
        fits: Callable,
        results: list,
        columns: Columns = (),
    ) -> Step:
        """Calls the function `advance` in a process.

        The server has the file in memory only while its process works. Clients
        take turns.

        Raises BadRequest if the file is wrong, or takes too much time or
        memory. Raises HTTPException with status 503 if no process can start,
        and RuntimeError if reading fails.
        """
        size = file.seek(0, os.SEEK_END)
        memory = self._memory + MEMORY_PER_BYTE * size
        call = memory, name, languages, pickle.dumps(fits), results, columns
        large: typing.Any = contextlib.nullcontext()
        if size > SMALL:
            large = self._large.of(client)
        async with large, self._all.of(client):
            self._free = [p for p in self._free if p.poll() is None]
            is_new = not self._free
            process = _start() if is_new else self._free.pop()
            loop = asyncio.get_running_loop()
            try:
                answer = await loop.run_in_executor(
                    self._threads, _ask, process, is_new, file, call
                )
            except BaseException:
                process.kill()
                raise
        if answer is None:
            process.kill()
            raise BadRequest(
                f"expected a file that is read within {_seconds(size)}"
                f" seconds and {memory >> 20} MiB. Received: one that"
                " takes more"
            )
        self._free.append(process)
        if isinstance(answer, ValueError):
            raise BadRequest(str(answer))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._free:
            process.kill()


def log_failure(error: BaseException) -> None:
    """Logs a failure without its message, which may contain user text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logging.error("%s\n%s", type(error).__name__, frames)


def _seconds(size):
    """Returns the CPU seconds allowed for a stage of a file of `size` bytes."""
    return SECONDS + SECONDS_PER_MIB * size // (1 << 20)


def _unable(problem):
    logging.error("no process that reads files can start: %s", problem)
    return HTTPException(
        503, "the server cannot read files at present", {"Retry-After": "10"}
    )


def _start():
    # The process inherits the mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        # With -P, no module of the working directory is imported.
        return subprocess.Popen(
            [sys.executable, "-Pc", f"import {__name__} as x; x.main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "OPENBLAS_NUM_THREADS": "1",  # each thread takes memory
            },
        )
    except OSError as error:
        raise _unable(error) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ask(process, is_new, file, question):
    """Returns a process's answer about a file, or None if it has ended.

    Raises HTTPException with status 503 if a new process does not get `READY`.
    """
    if is_new and process.stdout.read(len(READY)) != READY:
        raise _unable(f"it ended with status {process.wait()}")
    file.seek(0)
    data = file.read()
    try:
        pickle.dump((data, *question), process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def main() -> None:
    """Answers the questions of `_ask` until standard input ends."""
    os.nice(NICENESS)
    unpickle = functools.lru_cache(4)(pickle.loads)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print, which must not mix with answers
    output.write(READY)
    output.flush()
    while True:
        try:
            data, memory, *call = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        name, languages, fits, results, columns = call
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + 1 + _seconds(len(data))
        for kind, most in (
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_DATA, memory),
        ):
            resource.setrlimit(kind, (most, resource.RLIM_INFINITY))
        answer: Step | Exception
        try:
            read = unpickle(fits)
            answer = advance(data, name, languages, read, results, columns)
        except ValueError as error:
            answer = ValueError(str(error))
        except MemoryError:
            return
        except Exception as error:
            log_failure(error)
            answer = RuntimeError("a file cannot be read")
        pickle.dump(answer, output)
        output.flush()
        del call, data, results, answer
