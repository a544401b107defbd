"""The CPU cores, their kernels, the memory and the GPUs of this machine.

In a container a process may use fewer cores and less memory than the machine
has: Linux control groups (cgroups, version 1 and 2) limit them but do not hide
the rest.
"""

import math
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

from keras_transformer.base.refusals import expect

# The products that `ending_of_products` tries: of one matrix, and of a batch.
PRODUCTS = """
import sys
import tensorflow as tf
with tf.device("CPU:0"):
    for batch in (), (2,):
        a = tf.ones((*batch, 4, 8), sys.argv[1])
        tf.matmul(a, tf.linalg.matrix_transpose(a))
"""


def count_cores(root: str = "/") -> int:
    """Counts the CPU cores that this process may use, at least 1.

    This is the number of cores that it may be scheduled on or, if lower, the
    CPU quota of its control group, rounded up.
    """
    cores = len(os.sched_getaffinity(0))
    quotas = [
        quota / period
        for quota, period in _quotas(pathlib.Path(root))
        if period
    ]
    return max(1, min([cores, *map(math.ceil, quotas)]))


def memory_limit(root: str = "/") -> int:
    """Returns the bytes of memory that this process may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = []
    for group in _groups(pathlib.Path(root), "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += _numbers(group / name)
    own, _ = resource.getrlimit(resource.RLIMIT_AS)  # ulimit -v
    return min([physical, *limits, *([own] if own >= 0 else [])])


def free_memory(root: str = "/") -> int:
    """Returns the bytes of memory that this process may still take, about."""
    text = pathlib.Path(root, "proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    limit = memory_limit(root)
    return min(limit, int(found[1]) * 1024) if found else limit


def find_gpus(root: str = "/") -> list[str]:
    """Names this machine's NVIDIA GPUs, even if no framework can use them."""
    folder = pathlib.Path(root, "proc/driver/nvidia/gpus")
    names = []
    for path in sorted(folder.glob("*/information")):
        found = re.search(r"^Model:\s*(.+)$", path.read_text(), re.MULTILINE)
        names.append(found[1].strip() if found else "NVIDIA GPU")
    if not names:
        devices = pathlib.Path(root, "dev").glob("nvidia[0-9]*")
        names = ["NVIDIA GPU" for _ in devices]
    return names


def prefer_onednn() -> None:
    """Makes TensorFlow use oneDNN for matrix products on every x86 CPU.

    By default it does so only on CPUs with AVX-512 VNNI, and uses Eigen on
    others. Every position of a search multiplies a few rows by the transposed
    embedding matrix; Eigen takes up to ten times as long for this.

    Does nothing if `TF_ENABLE_ONEDNN_OPTS` is set, or if TensorFlow, which
    reads this variable when it starts, is already loaded.
    """
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    if is_x86 and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def check_products(precision: str) -> None:
    """Raises ValueError if matrix products in a precision would crash.

    `ONEDNN_MAX_CPU_ISA` forbids oneDNN the newer instructions of a CPU.
    TensorFlow 2.21 ignores this variable: it asks for the half-precision
    kernels that the CPU supports, and crashes where oneDNN may not run them.
    Nothing is tried without this variable, in float32 or under JAX.

    Args:
        precision: A dtype, or a policy of Keras such as "mixed_bfloat16".
    """
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA")
    dtype = precision.removeprefix("mixed_")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if isa and dtype.endswith("float16") and backend == "tensorflow":
        ending = ending_of_products(dtype)
        expect(
            not ending,
            "precision=float32, or no ONEDNN_MAX_CPU_ISA, with which TensorFlow"
            f" crashes in products of {dtype} on this CPU ({ending})",
            f"{precision=}",
            f"ONEDNN_MAX_CPU_ISA={isa}",
        )


def ending_of_products(
    dtype: str, environment: Mapping[str, str] | None = None
) -> str:
    """Tries TensorFlow's matrix products in a dtype, in a separate process.

    Args:
        dtype: A dtype of TensorFlow.
        environment: That process's environment, by default this process's.

    Returns:
        The name of the signal that ended the process, such as "SIGSEGV", or ""
        if no signal did, even if the process failed.
    """
    status = subprocess.run(
        [sys.executable, "-c", PRODUCTS, dtype],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode
    return signal.Signals(-status).name if status < 0 else ""


def _quotas(root: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Yields each control group's CPU time per period, and period, in us."""
    for group in _groups(root, "cpu"):
        values = _numbers(group / "cpu.max")  # version 2 has one file
        values = values or [
            *_numbers(group / "cpu.cfs_quota_us"),
            *_numbers(group / "cpu.cfs_period_us"),
        ]
        if len(values) == 2:
            quota, period = values
            yield quota, period


def _groups(root: pathlib.Path, controller: str) -> Iterator[pathlib.Path]:
    """Yields the directories of the process's control group and its parents."""
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # In a container, the path is that on the host or in the container.
        for base in (mount / controllers, mount):
            group = base / path.lstrip("/")
            yield from (group, *group.parents)


def _numbers(path: pathlib.Path) -> list[int]:
    """Reads numbers. Returns [] if the file is missing or has "max" or -1."""
    try:
        values = path.read_text().split()
    except OSError:
        return []
    if not values or not all(value.isdigit() for value in values):
        return []
    return [int(value) for value in values]
