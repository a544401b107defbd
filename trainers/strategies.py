"""Devices and workers: which there are, and what reaches each of them.

    one_device     the first device
    mirrored       every GPU of this machine; without any, every CPU device
    multi_worker   several machines, named in TF_CONFIG
    tpu            a Cloud TPU

A worker is a process. Every worker runs the same command; the chief, the first
of them, tells the progress and writes the work directory, which all can read.
"""

import contextlib
import json
import os
import re
import sys

import tensorflow as tf

from keras_transformer.flags import RunError

# How lines begin with which TensorFlow tells where in the graph an error was.
TRACE = ("Graph execution error", "Detected at", "File ", "<", "[[")


def make_strategy(name, tpu):
    """The `tf.distribute.Strategy` of a name in `STRATEGIES`.

    Several workers find each other here: make it before anything else makes
    TensorFlow look at its devices.

    Args:
        name: The strategy; "auto" is multi_worker where TF_CONFIG names other
            workers, else mirrored where there are several GPUs.
        tpu: Name of the TPU, as `TPUClusterResolver` takes it; "local" on a
            TPU VM.

    Raises:
        ValueError: TF_CONFIG is no description of workers, or there is no such
            TPU.
    """
    if name == "tpu":
        return _make_tpu_strategy(tpu)
    if name == "multi_worker" or (name == "auto" and _num_workers() > 1):
        if not _num_workers():
            raise ValueError(
                "strategy=multi_worker needs the environment variable TF_CONFIG"
                ' with {"cluster": {"worker": ["HOST:PORT", ...]}, "task":'
                ' {"type": "worker", "index": 0}}.'
                f" Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
            )
        return _make_workers_strategy()
    devices = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        devices = devices or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([d.name for d in devices])
    return tf.distribute.get_strategy()


def _make_workers_strategy():
    """The strategy of the workers in TF_CONFIG; waits for all of them."""
    task = json.loads(os.environ["TF_CONFIG"]).get("task", {})
    name = f"{task.get('type')} {task.get('index')}"
    print(f"{name}: waiting for the other workers", file=sys.stderr, flush=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())
        raise ValueError(
            f"{name} cannot join the workers of TF_CONFIG: {reason}"
        ) from error


def _make_tpu_strategy(tpu):
    """A `TPUStrategy` on the TPU of that name."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"no TPU to be reached as tpu={tpu!r}: {error}") from (
            error
        )
    return tf.distribute.TPUStrategy(resolver)


def _num_workers():
    """The workers that TF_CONFIG names; 0 if it names none."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        cluster = config.get("cluster", {})
        return len(cluster.get("chief", [])) + len(cluster.get("worker", []))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            "TF_CONFIG must be a JSON object."
            f" Received: TF_CONFIG={os.environ['TF_CONFIG']!r}"
        ) from None


def is_tpu(strategy):
    """Whether each replica is a TPU core: static shapes, XLA by itself."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def distribute(strategy, make_dataset):
    """A data set that gives every replica its slice of each batch.

    Args:
        strategy: The strategy.
        make_dataset: Function of `(slices, num_slices)`; returns a
            `tf.data.Dataset` with these slices of the first batch, then
            those of the second, and so on.

    Returns:
        The data set of this worker, for `strategy.run`.
    """
    num_replicas = strategy.num_replicas_in_sync
    if num_replicas == 1:
        return make_dataset((0,), 1)

    def of_worker(context):
        local = num_replicas // context.num_input_pipelines
        first = local * context.input_pipeline_id
        return make_dataset(range(first, first + local), num_replicas)

    return strategy.distribute_datasets_from_function(of_worker)


class LostWorkerError(RunError):
    """Another worker is gone, and the run cannot go on without it."""


class Team:
    """The workers of a strategy, and what they tell each other.

    Args:
        strategy: The strategy.

    Attributes:
        size: Number of workers.
        is_chief: Whether this worker tells and writes.
        name: As in "worker 1 of 2".
    """

    LOST = (
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.InternalError,
        tf.errors.UnavailableError,
    )

    def __init__(self, strategy):
        self._strategy = strategy
        self.size, index = 1, 0
        resolver = strategy.cluster_resolver
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = resolver.cluster_spec().as_dict()
            chiefs = len(cluster.get("chief", []))
            self.size = chiefs + len(cluster.get("worker", []))
            index = resolver.task_id
            index += chiefs if resolver.task_type == "worker" else 0
        self.is_chief = index == 0
        self.name = f"worker {index} of {self.size}"

    def sum(self, values):
        """Adds up numbers over the workers; a meeting of all of them.

        Args:
            values: List of floats, as many on each worker.

        Returns:
            List of floats, the same on each worker.
        """
        if self.size == 1:
            return list(values)
        local = self._strategy.num_replicas_in_sync // self.size

        def of_replica(context):
            first = context.replica_id_in_sync_group % local == 0
            return tf.constant(values, tf.float64) * float(first)

        per_replica = (
            self._strategy.experimental_distribute_values_from_function(
                of_replica
            )
        )
        total = self._strategy.reduce("SUM", per_replica, axis=None)
        return total.numpy().tolist()

    def wait(self):
        """Goes on when all workers are here."""
        self.sum([0.0])

    @contextlib.contextmanager
    def watch(self):
        """Turns what TensorFlow says of a lost worker into one line.

        Raises:
            LostWorkerError: In place of the network's errors, if there are
                several workers.
        """
        try:
            yield
        except self.LOST as error:
            if self.size == 1:
                raise
            raise LostWorkerError(
                f"{self.name} has lost another worker ({_reason(error)})."
                " Start the same command on every worker again: it resumes at"
                " the last checkpoint"
            ) from error


def _reason(error):
    """What an error of the network says, without the graph's trace."""
    for line in str(error.message).splitlines():
        line = " ".join(re.sub(r"\{\{.*?\}\}", "", line).split())
        if line and not line.startswith(TRACE):
            return line[:200]
    return type(error).__name__
