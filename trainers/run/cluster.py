"""The workers of a training run in TF_CONFIG, read without TensorFlow."""

import dataclasses
import json
import os
import re
import sys

TF_CONFIG_FORM = (
    '{"cluster": {"worker": ["HOST:PORT", ...]},'
    ' "task": {"type": "worker", "index": 0}}'
)
SHOWN = 200  # characters of a wrong TF_CONFIG that a message shows


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The contents of TF_CONFIG."""

    hosts: tuple[str, ...]  # HOST:PORT of each worker, the chief first
    index: int  # index of this process in `hosts`
    task: str  # name of this process, as in "worker 0"

    def tell_waiting(self) -> None:
        """Prints to standard error that this process waits for the others."""
        print(
            f"{self.task}: waiting for the other workers",
            file=sys.stderr,
            flush=True,
        )


def find_cluster(strategy: str) -> Cluster | None:
    """Finds the `Cluster` to train in. Returns None to train alone.

    Raises ValueError if the strategy needs a cluster and TF_CONFIG names none.
    """
    if strategy not in ("auto", "multi_worker"):
        return None
    cluster = read_cluster()
    if strategy == "multi_worker":
        if not cluster:
            raise wrong_tf_config("strategy=multi_worker needs it")
        return cluster
    return cluster if cluster and len(cluster.hosts) > 1 else None


def read_cluster() -> Cluster | None:
    """Reads the `Cluster` in TF_CONFIG. Returns None if it names no workers.

    Raises ValueError if TF_CONFIG is malformed.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        jobs = config.get("cluster", {})
        chiefs, workers = jobs.get("chief", []), jobs.get("worker", [])
        every = (*chiefs, *workers)
        if not every:
            return None
        kind, index = config["task"]["type"], config["task"]["index"]
        first = {"chief": 0, "worker": len(chiefs)}[kind]
        is_host = [re.fullmatch(r"\S{1,300}:\d+", host) for host in every]
        if not all(is_host) or index not in range(len(jobs[kind])):
            raise ValueError
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise wrong_tf_config("it has a different form") from None
    return Cluster(every, first + index, f"{kind} {index}")


def wrong_tf_config(problem: str) -> ValueError:
    """Makes the error for an unusable TF_CONFIG."""
    received = os.environ.get("TF_CONFIG")
    if received and len(received) > SHOWN:
        received = received[:SHOWN] + " ..."
    return ValueError(
        f"the environment variable TF_CONFIG must be {TF_CONFIG_FORM}:"
        f" {problem}. Received: TF_CONFIG={received!r}"
    )
