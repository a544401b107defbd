"""Requests of many clients in shared batches: one thread, one bounded queue.

It knows neither HTTP nor models. A job is a list of items and the work that
they need; items of equal work are done together, in the order of their jobs. A
long job may take several batches, a batch may have items of several jobs.
"""

import concurrent.futures
import contextlib
import dataclasses
import math
import threading
import time
import typing
from collections.abc import Callable, Sequence

# Weight of the last batch in the moving averages of the speed.
RECENT = 0.2


class Work(typing.Protocol):
    """What is done with items. Hashable: equal works share batches."""

    def run(self, items: list) -> Sequence:
        """The result of each item, in their order."""


class QueueFullError(Exception):
    """There is no room in the queue.

    Attributes:
        retry_after: Whole seconds until there may be room.
    """

    def __init__(self, retry_after: int):
        super().__init__("the queue is full")
        self.retry_after = retry_after


class ClosedError(Exception):
    """The batcher takes no more jobs."""


class Batch(typing.NamedTuple):
    """What is known of a batch when it is done.

    Attributes:
        waits: Seconds that each job waited for its first batch.
        items: Number of items.
        tokens: Sum of their sizes.
    """

    waits: list[float]
    items: int
    tokens: int


@dataclasses.dataclass(eq=False)
class _Job:
    """Items of one request; `taken` of them are in a batch or done."""

    work: Work
    items: Sequence
    sizes: Sequence[int]
    future: concurrent.futures.Future
    arrival: float
    taken: int = 0
    results: list = dataclasses.field(default_factory=list)

    def waiting_tokens(self):
        return sum(self.sizes[self.taken :])


class _Part(typing.NamedTuple):
    """The items of a job, from `start` to `stop`, that are in a batch."""

    job: _Job
    start: int
    stop: int


class Batcher:
    """Runs jobs in batches, in a thread of its own.

    A caller that does not wait any more cancels the future of its job: what is
    not in a batch yet is dropped.

    Args:
        max_batch_tokens: Sum of the sizes of a batch's items, at most; a single
            item may be larger.
        max_wait_seconds: How long the first job waits for others to fill its
            batch, while the thread has nothing else to do.
        max_queue_tokens: Sum of the sizes that wait, at most; a single job may
            be larger.
        max_queue_seconds: How long what waits may take, at most, by the speed
            of the last batches: whoever comes later would wait for nothing.
        observe: Called with the `Batch` after each.
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
        self._jobs: list[_Job] = []  # in the order of their arrival
        self._changed = threading.Condition()
        self._is_closed = False
        self._recent_seconds = self._recent_tokens = 0.0  # moving averages
        self.waiting_tokens = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(
        self, work: Work, items: Sequence, sizes: Sequence[int]
    ) -> concurrent.futures.Future:
        """Puts a job into the queue.

        Args:
            work: The `Work`.
            items: Its items, at least one.
            sizes: The size of each in tokens.

        Returns:
            The future of the list of results.

        Raises:
            QueueFullError: Too many tokens wait, or too much time would pass.
            ClosedError: See there.
        """
        job = _Job(
            work, items, sizes, concurrent.futures.Future(), time.monotonic()
        )
        tokens = job.waiting_tokens()
        with self._changed:
            if self._is_closed:
                raise ClosedError("the batcher is closed")
            room = max(0, self._most_waiting_tokens() - tokens)
            if self.waiting_tokens > room:
                self._drop_done()
            if self.waiting_tokens > room:
                seconds = self.waiting_tokens * self._seconds_per_token()
                raise QueueFullError(max(1, math.ceil(seconds)))
            self._jobs.append(job)
            self.waiting_tokens += tokens
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Takes no more jobs; those that were taken are done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self) -> None:
        """Waits until the thread has ended, after `close`."""
        self._thread.join()

    # The thread

    def _run(self):
        while True:
            with self._changed:
                parts = self._wait_for_batch()
            if not parts:
                return
            now = time.monotonic()
            first = [part.job for part in parts if part.start == 0]
            sizes = [sum(p.job.sizes[p.start : p.stop]) for p in parts]
            items = sum(part.stop - part.start for part in parts)
            self._process(parts)
            waits = [now - job.arrival for job in first]
            self._learn(time.monotonic() - now, sum(sizes))
            self._observe(Batch(waits, items, sum(sizes)))

    def _wait_for_batch(self):
        """The parts of the next batch; none if the batcher is closed."""
        while True:
            self._drop_done()
            if self._jobs:
                parts, is_full = self._collect()
                ready = self._jobs[0].arrival + self._max_wait
                seconds = ready - time.monotonic()
                if is_full or seconds <= 0 or self._is_closed:
                    return self._take(parts)
                self._changed.wait(seconds)
            elif self._is_closed:
                return []
            else:
                self._changed.wait()

    def _drop_done(self):
        """Removes jobs that are cancelled, or have failed or been taken."""
        left = []
        for job in self._jobs:
            if job.future.done():
                self.waiting_tokens -= job.waiting_tokens()
            elif job.taken < len(job.items):
                left.append(job)
        self._jobs = left

    def _collect(self):
        """The parts of a batch that begins with the first job, if it is full.

        Returns:
            A list of `_Part`, and whether no more items fit.
        """
        work, room = self._jobs[0].work, self._max_batch_tokens
        parts: list[_Part] = []
        for job in self._jobs:
            if job.work != work:
                continue
            stop = job.taken
            while stop < len(job.items):
                is_first = not parts and stop == job.taken
                if job.sizes[stop] > room and not is_first:
                    break
                room -= job.sizes[stop]
                stop += 1
            if stop > job.taken:
                parts.append(_Part(job, job.taken, stop))
            if stop < len(job.items) or room <= 0:
                return parts, True
        return parts, False

    def _take(self, parts):
        """Takes parts from the queue; the same list."""
        for job, start, stop in parts:
            self.waiting_tokens -= sum(job.sizes[start:stop])
            job.taken = stop
        return parts

    def _process(self, parts):
        """Runs a batch, and each part alone if it fails: one may be bad."""
        items = [
            item for job, start, stop in parts for item in job.items[start:stop]
        ]
        try:
            results = iter(parts[0].job.work.run(items))
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    self._process([part])
                return
            with _cancelled_meanwhile():
                parts[0].job.future.set_exception(error)
            return
        for job, start, stop in parts:
            job.results += [next(results) for _ in range(start, stop)]
            if len(job.results) == len(job.items):
                with _cancelled_meanwhile():
                    job.future.set_result(job.results)

    # The speed

    def _learn(self, seconds, tokens):
        """Updates the moving averages: a small batch counts for little."""
        if not self._recent_tokens:
            self._recent_seconds, self._recent_tokens = seconds, tokens
        self._recent_seconds += RECENT * (seconds - self._recent_seconds)
        self._recent_tokens += RECENT * (tokens - self._recent_tokens)

    def _seconds_per_token(self):
        """0 before the first batch."""
        return self._recent_seconds / max(1, self._recent_tokens)

    def _most_waiting_tokens(self):
        seconds_per_token = self._seconds_per_token()
        if not seconds_per_token:
            return self._max_queue_tokens
        return min(
            self._max_queue_tokens, self._max_queue_seconds / seconds_per_token
        )


def _cancelled_meanwhile():
    """Context that may settle a future that its caller has cancelled."""
    return contextlib.suppress(concurrent.futures.InvalidStateError)
