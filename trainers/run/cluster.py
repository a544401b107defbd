"""TF_CONFIG: the workers of a training, read without TensorFlow."""

import dataclasses
import json
import os
import re

TF_CONFIG_FORM = (
    '{"cluster": {"worker": ["HOST:PORT", ...]},'
    ' "task": {"type": "worker", "index": 0}}'
)
SHOWN = 200  # characters of a wrong TF_CONFIG that a message shows


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The contents of TF_CONFIG.

    Attributes:
        hosts: HOST:PORT of each worker, the chief first.
        index: Which of them this process is.
        task: Name of this process, as in "worker 0".
    """

    hosts: tuple[str, ...]
    index: int
    task: str


def find_cluster(strategy: str) -> Cluster | None:
    """The `Cluster` to train in; None if this process trains alone.

    Args:
        strategy: A name in `STRATEGIES`.

    Raises:
        ValueError: As `read_cluster`, or the strategy needs a cluster and there
            is none.
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
    """The `Cluster` in TF_CONFIG; None if it names no workers.

    Raises:
        ValueError: TF_CONFIG has another form.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    except ValueError:
        raise wrong_tf_config("it is not JSON") from None
    except RecursionError:
        raise wrong_tf_config("it is nested too deeply") from None
    if not isinstance(config, dict):
        raise wrong_tf_config("it is not an object")
    jobs = config.get("cluster", {})
    if not isinstance(jobs, dict):
        raise wrong_tf_config("'cluster' is not an object")
    hosts_of = {}
    for job in ("chief", "worker"):
        hosts = jobs.get(job, [])
        texts = isinstance(hosts, list) and [h for h in hosts if _is_host(h)]
        if texts != hosts:
            raise wrong_tf_config(f"'{job}' is not a list of HOST:PORT")
        hosts_of[job] = hosts
    every = (*hosts_of["chief"], *hosts_of["worker"])
    if not every:
        return None
    task = config.get("task")
    if not isinstance(task, dict):
        raise wrong_tf_config("'task' is not an object")
    kind, index = task.get("type"), task.get("index")
    if (
        not isinstance(kind, str)
        or not isinstance(index, int)
        or index not in range(len(hosts_of.get(kind, [])))
    ):
        raise wrong_tf_config("'task' is none of the cluster's")
    before = len(hosts_of["chief"]) if kind == "worker" else 0
    return Cluster(every, before + index, f"{kind} {index}")


def _is_host(value):
    return isinstance(value, str) and re.fullmatch(r"\S+:\d+", value)


def wrong_tf_config(problem: str) -> ValueError:
    """The error of a TF_CONFIG that has another form."""
    received = os.environ.get("TF_CONFIG")
    if received and len(received) > SHOWN:
        received = received[:SHOWN] + " ..."
    return ValueError(
        f"the environment variable TF_CONFIG must be {TF_CONFIG_FORM}:"
        f" {problem}. Received: TF_CONFIG={received!r}"
    )
