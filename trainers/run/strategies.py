"""TensorFlow's strategies and workers, and how rows are divided among them.

    one_device     the first device
    mirrored       every GPU of this machine; without any, every CPU device
    multi_worker   several machines, named in TF_CONFIG

TPUs need JAX: TensorFlow's support for them ended with version 2.20.

A worker is a process. Every worker runs the same command. The chief, which is
the first worker, logs the progress and writes the work directory; all workers
must be able to read it.
"""

import contextlib
import re
import typing
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from keras_transformer.base.fields import unhandled
from keras_transformer.base.machine import count_cores
from keras_transformer.base.refusals import expect
from keras_transformer.commands import startup
from trainers.run import engine
from trainers.run.cluster import Cluster, find_cluster, read_cluster

# Beginnings of lines in which TensorFlow tells where in the graph an error is.
TRACE = ("Graph execution error", "Detected at", "File ", "<", "[[")

# A function of the indices of some replicas and the number of all replicas. It
# returns the rows of these replicas.
MakeDataset: typing.TypeAlias = Callable[[Sequence[int], int], tf.data.Dataset]


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Makes the `tf.distribute.Strategy` of a name in `STRATEGIES`.

    "auto" is multi_worker if TF_CONFIG names several workers, else mirrored if
    there are several GPUs, else one_device. Several workers connect here: call
    this before anything else makes TensorFlow look at its devices.

    Raises ValueError for "tpu", and if workers cannot connect.
    """
    expect(
        name != "tpu",
        "--backend=jax with strategy=tpu: TensorFlow's support for TPUs ended"
        " with 2.20",
        f"TensorFlow {tf.__version__}",
    )
    if cluster := find_cluster(name):  # of auto and multi_worker
        return _make_workers_strategy(cluster)
    gpus = tf.config.list_logical_devices("GPU")
    if name == "auto":
        name = "mirrored" if len(gpus) > 1 else "one_device"
    if name == "mirrored":
        gpus = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([d.name for d in gpus])
    if name == "one_device":
        return tf.distribute.get_strategy()
    raise unhandled(strategy=name)


def count_slices(
    strategy: tf.distribute.Strategy,
    num_workers: int,
    cpu_threads: int | None,
    num_tokens: int,
    jit_compile: bool,
) -> int:
    """Counts the slices of a replica's rows that are computed in parallel.

    With a GPU, there is one. The replicas of this process share `cpu_threads`,
    by default one per core. `num_tokens` is the number of tokens on each side
    of a replica's micro-batch.
    """
    if tf.config.list_logical_devices("GPU"):
        return 1
    local_replicas = strategy.num_replicas_in_sync // num_workers
    threads = (cpu_threads or count_cores()) // local_replicas
    return startup.count_slices(max(1, threads), num_tokens, jit_compile)


def has_bfloat16(gpu: typing.Any) -> bool:
    """Tells whether a GPU is NVIDIA's Ampere or later, and fast in bfloat16."""
    details = tf.config.experimental.get_device_details(gpu)
    return details.get("compute_capability", (0, 0)) >= (8, 0)


def _make_workers_strategy(
    cluster: Cluster,
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Waits for all workers of a cluster, and makes their strategy."""
    cluster.tell_waiting()
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        raise ValueError(
            f"{cluster.task} cannot join the workers of TF_CONFIG:"
            f" {_reason(error)}"
        ) from error


def distribute(
    strategy: tf.distribute.Strategy, make_dataset: MakeDataset
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Makes this worker's data set for `strategy.run`.

    The data set gives every replica its rows of each batch. `make_dataset`
    returns the rows of all replicas of this worker in the first batch, then in
    the second, and so on.
    """
    num_replicas = strategy.num_replicas_in_sync
    if num_replicas == 1:
        return make_dataset((0,), 1)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = num_replicas // context.num_input_pipelines
        first = local * context.input_pipeline_id
        return make_dataset(range(first, first + local), num_replicas)

    return strategy.distribute_datasets_from_function(of_worker)


class Workers(engine.Workers):
    """The `engine.Workers` of a strategy."""

    LOST = (
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.InternalError,
        tf.errors.UnavailableError,
    )

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self.size, index = 1, 0
        cluster = None
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = read_cluster()
        if cluster:
            self.size, index = len(cluster.hosts), cluster.index
        self.is_chief = index == 0
        self.name = f"worker {index} of {self.size}"

    def all_reduce_sum(self, values: list[float]) -> list[float]:
        if self.size == 1:
            return list(values)
        local = self._strategy.num_replicas_in_sync // self.size
        zeros = [0.0] * len(values)

        def of_replica(context: tf.distribute.ReplicaContext) -> tf.Tensor:
            is_first = context.replica_id_in_sync_group % local == 0
            return tf.constant(values if is_first else zeros, tf.float64)

        per_replica = (
            self._strategy.experimental_distribute_values_from_function(
                of_replica
            )
        )
        total = self._strategy.reduce("SUM", per_replica, axis=None)
        return total.numpy().tolist()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        try:
            yield
        except self.LOST as error:
            if self.size == 1:
                raise
            raise self.lost_another(_reason(error)) from error


def _reason(error: tf.errors.OpError) -> str:
    """Returns the first line of an error's message that is not graph trace."""
    for line in str(error.message).splitlines():
        line = " ".join(re.sub(r"\{\{[^{}]*\}\}", "", line).split())
        if line and not line.startswith(TRACE):
            return line[:200]
    return type(error).__name__
