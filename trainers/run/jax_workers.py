"""The workers of JAX: processes that `jax.distributed` connects.

TF_CONFIG names the workers, as for TensorFlow, and the first one coordinates.
On a TPU pod or under Slurm, JAX finds the workers by itself with
`--strategy=multi_worker` and no TF_CONFIG.
"""

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

from trainers.run import engine
from trainers.run.cluster import read_cluster

SIGNS = ("gloo", "heartbeat", "connection", "unavailable", "deadline", "peer")


def connect(strategy: str) -> None:
    """Connects this process with the other workers, if there are any.

    Call this before anything else makes JAX look at its devices. Raises
    ValueError if the workers cannot connect.
    """
    if (
        strategy not in ("auto", "multi_worker")
        or jax.distributed.is_initialized()
    ):
        return
    cluster = read_cluster()
    if cluster is None and strategy == "auto":
        return
    try:
        if cluster is None:
            jax.distributed.initialize()
        elif len(cluster.hosts) > 1 or strategy == "multi_worker":
            cluster.tell_waiting()
            jax.distributed.initialize(
                cluster.hosts[0], len(cluster.hosts), cluster.index
            )
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"strategy={strategy} cannot connect the workers:"
            f" {_first_line(error)}"
        ) from error


class Workers(engine.Workers):
    """The `engine.Workers` of JAX."""

    def __init__(self):
        self.size, self.index = jax.process_count(), jax.process_index()
        self.is_chief = self.index == 0
        self.name = f"worker {self.index} of {self.size}"

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        if self.size == 1:
            return list(values)
        # Sent as pairs of 32 bits, because JAX would round to float32.
        bits = np.array(values, np.float64).view(np.uint32)
        every = np.asarray(multihost_utils.process_allgather(bits))
        every = np.ascontiguousarray(every).reshape(self.size, -1)
        return every.view(np.float64).sum(axis=0).tolist()

    def part(self) -> None:
        super().part()
        if self.size > 1:
            # Otherwise, JAX would wait five minutes at exit for the chief,
            # which still translates the test set, and then abort all workers.
            jax.distributed.shutdown()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            is_lost = any(sign in str(error).lower() for sign in SIGNS)
            if self.size == 1 or not is_lost:
                raise
            atexit.register(_exit_at_once)
            raise self.lost_another(_first_line(error)) from error


def _exit_at_once() -> None:
    """Ends this process now: JAX would wait for the lost worker, then abort."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(1)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]
