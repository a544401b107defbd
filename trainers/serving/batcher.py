"""Shared batches for many clients: one thread, one bounded queue.

This module knows neither HTTP nor models. A job is a list of items and the work
to do on them. Items with equal work share batches, in the order of their turns.
A long job may take several batches, and a batch may have items of several jobs.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import threading
import time
import typing
from collections.abc import Callable, Sequence

# Weight of the last batch in the moving averages of the speed.
RECENT = 0.2
# A job has priority over later ones only for this share of the throughput. So a
# short job behind several long jobs waits only for the running batch, and a
# long job advances even if others keep coming.
SHARE = 1 / 8
# Seconds without a job after which other work may begin: clients that wait for
# an answer send their next request immediately.
IDLE_SECONDS = 1.0
# Seconds after which more of this other work begins whenever the queue is
# empty, without waiting IDLE_SECONDS.
PATIENCE = 60.0

# Makes one result per item, in order. Items share batches if their works are
# equal, such as the same method of one object.
Work = Callable[[list], Sequence]


class QueueFullError(Exception):
    """The queue is full. It may have room after `retry_after` seconds."""

    def __init__(self, retry_after: int):
        super().__init__("the queue is full")
        self.retry_after = retry_after


class Batch(typing.NamedTuple):
    """Measurements of a finished batch.

    Attributes:
        waits: Seconds that each job waited, if this is its first batch.
        items: Number of items.
        tokens: Sum of the items' sizes.
    """

    waits: list[float]
    items: int
    tokens: int


@dataclasses.dataclass(eq=False)
class _Job:
    """The work of one request, and the results of the items that are done."""

    work: Work
    num_items: int
    future: concurrent.futures.Future
    arrival: float
    results: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False, slots=True)
class _Entry:
    """A waiting item.

    It precedes jobs that arrive when more than `turn` tokens are done.
    """

    job: _Job
    item: typing.Any
    size: int
    is_first: bool
    turn: float


class Batcher:
    """Runs jobs in batches, in its own thread.

    To abandon a job, cancel its future: its items that are not yet in a batch
    are dropped.

    Args:
        max_batch_tokens: Maximum sum of the sizes of a batch's items; a single
            item may be larger.
        max_wait_seconds: How long the first job waits for others to fill its
            batch, while the thread has nothing else to do.
        max_queue_tokens: Maximum sum of the sizes in the queue; a single job
            may be larger.
        max_queue_seconds: Maximum time to drain the queue, estimated from the
            speed of the last batches. Jobs beyond it are rejected.
        observe: Called after each batch with its measurements.

    Attributes:
        waiting_tokens: Sum of the waiting items' sizes.
    """

    def __init__(
        self,
        max_batch_tokens: int,
        max_wait_seconds: float,
        max_queue_tokens: int,
        max_queue_seconds: float = math.inf,
        observe: Callable[[Batch], None] = lambda batch: None,
    ):
        self._max_batch_tokens = max_batch_tokens
        self._max_wait = max_wait_seconds
        self._max_queue_tokens = max_queue_tokens
        self._max_queue_seconds = max_queue_seconds
        self._observe = observe
        self._entries: list[_Entry] = []  # in the order of their turns
        self._idle: collections.deque = collections.deque()
        self._done_tokens = 0
        # The ends of the last batch and of the last other work.
        self._busy_until = self._other_until = -math.inf
        self._changed = threading.Condition()
        self._is_closed = False
        self._recent_seconds = self._recent_tokens = 0.0  # moving averages
        self.waiting_tokens = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(
        self, work: Work, items: Sequence, sizes: Sequence[int]
    ) -> concurrent.futures.Future:
        """Queues a job of at least one item. `sizes` are in tokens.

        Returns a future with the list of results. Raises QueueFullError if
        there is no room or no time, and RuntimeError after `close`.
        """
        job = _Job(
            work, len(items), concurrent.futures.Future(), time.monotonic()
        )
        tokens = sum(sizes)
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the batcher is closed")
            if self._is_full(tokens):
                self._drop_cancelled()
            if self._is_full(tokens):
                seconds = self.waiting_tokens * self._seconds_per_token()
                raise QueueFullError(max(1, math.ceil(seconds)))
            turn = float(self._done_tokens)
            for i, (item, size) in enumerate(zip(items, sizes, strict=True)):
                entry = _Entry(job, item, size, i == 0, turn)
                bisect.insort(self._entries, entry, key=lambda e: e.turn)
                turn += size / SHARE
            self.waiting_tokens += tokens
            self._changed.notify()
        return job.future

    def when_idle(
        self, work: Callable[[], object]
    ) -> concurrent.futures.Future:
        """Does other work in the thread when no job has come for a while.

        Returns a future with the result. `close` cancels it.
        """
        future: concurrent.futures.Future = concurrent.futures.Future()
        with self._changed:
            if self._is_closed:
                future.cancel()
            else:
                self._idle.append((work, future))
                self._changed.notify()
        return future

    def rest(self) -> None:
        """Delays other work as if a job had just been done."""
        with self._changed:
            self._busy_until = time.monotonic()

    def close(self) -> None:
        """Refuses new jobs, cancels other work, and lets accepted jobs end."""
        with self._changed:
            self._is_closed = True
            for _, future in self._idle:
                future.cancel()
            self._changed.notify()

    def join(self) -> None:
        """Waits for the thread to end, after `close`."""
        self._thread.join()

    # The queue

    def _is_full(self, tokens):
        """Tells whether `tokens` do not fit. An empty queue is never full."""

        tokens += self.waiting_tokens
        seconds = tokens * self._seconds_per_token()
        return self.waiting_tokens > 0 and (
            tokens > self._max_queue_tokens or seconds > self._max_queue_seconds
        )

    def _keep(self, entries):
        self._entries = list(entries)
        self.waiting_tokens = sum(entry.size for entry in self._entries)

    def _drop_cancelled(self):
        """Removes the entries of jobs that are cancelled or have failed."""
        self._keep(e for e in self._entries if not e.job.future.done())

    def _wait_for_work(self):
        """Waits for the next work, and returns it. Returns None at the end."""
        while True:
            self._drop_cancelled()
            if self._entries:
                batch, is_full = self._collect()
                ready = self._entries[0].job.arrival + self._max_wait
                seconds = ready - time.monotonic()
                if is_full or seconds <= 0 or self._is_closed:
                    taken = set(batch)
                    self._keep(e for e in self._entries if e not in taken)
                    return functools.partial(self._run_batch, batch)
                self._changed.wait(seconds)
            elif self._is_closed:
                return None
            elif self._idle:
                begin = min(
                    self._busy_until + IDLE_SECONDS,
                    self._other_until + PATIENCE,
                )
                seconds = begin - time.monotonic()
                if seconds <= 0:
                    return functools.partial(
                        self._do_other, *self._idle.popleft()
                    )
                self._changed.wait(seconds)
            else:
                self._changed.wait()

    def _collect(self):
        """Returns the first entry's batch, and whether it is full."""
        work, room = self._entries[0].job.work, self._max_batch_tokens
        batch: list[_Entry] = []
        for entry in self._entries:
            if entry.job.work != work:
                continue
            if batch and entry.size > room:
                return batch, True
            batch.append(entry)
            room -= entry.size
        return batch, room <= 0

    # The thread

    def _run(self):
        while True:
            with self._changed:
                work = self._wait_for_work()
            if work is None:
                return
            work()

    def _run_batch(self, batch):
        begin = time.monotonic()
        _process(batch)
        self._busy_until = time.monotonic()
        tokens = sum(entry.size for entry in batch)
        self._learn(self._busy_until - begin, tokens)
        self._done_tokens += tokens
        waits = [begin - e.job.arrival for e in batch if e.is_first]
        self._observe(Batch(waits, len(batch), tokens))

    def _do_other(self, work, future):
        try:
            _settle(future.set_result, work())
        except Exception as error:
            _settle(future.set_exception, error)
        self._other_until = time.monotonic()

    def _learn(self, seconds, tokens):
        """Updates the moving averages. A small batch has little weight."""
        if not self._recent_tokens:
            self._recent_seconds, self._recent_tokens = seconds, tokens
        self._recent_seconds += RECENT * (seconds - self._recent_seconds)
        self._recent_tokens += RECENT * (tokens - self._recent_tokens)

    def _seconds_per_token(self):
        return self._recent_seconds / max(1, self._recent_tokens)


def _process(batch):
    """Runs a batch. If it fails, runs its jobs one by one: one may be bad."""
    job = batch[0].job
    try:
        results = job.work([entry.item for entry in batch])
    except Exception as error:
        parts: dict[_Job, list[_Entry]] = {}
        for entry in batch:
            parts.setdefault(entry.job, []).append(entry)
        if len(parts) > 1:
            for part in parts.values():
                _process(part)
        else:
            _settle(job.future.set_exception, error)
        return
    for entry, result in zip(batch, results, strict=True):
        job = entry.job
        job.results.append(result)
        if len(job.results) == job.num_items:
            _settle(job.future.set_result, job.results)


def _settle(setter, value):
    """Calls the setter of a future, unless the caller has cancelled it."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        setter(value)
