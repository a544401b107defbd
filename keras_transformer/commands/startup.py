"""How a command starts: backend, TensorFlow's threads and log, Ctrl-C.

Importing a backend takes seconds. So a command first checks its flags and its
input, and reports errors at once. Then `load` imports the modules that need a
backend.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import signal
import sys
import types
import typing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from keras_transformer.base.fields import Fields, hp
from keras_transformer.base.machine import count_cores, find_gpus, memory_limit
from keras_transformer.commands.flags import CommandError

BACKENDS = ("tensorflow", "jax")
DEVICES = ("gpu", "tpu", "cpu")
SLICE_TOKENS = 256  # minimum on each side in a slice of a training batch
# Each slice has separate gradients: more slices would cost memory, and more
# time than they save.
MAX_SLICES = 8
_prepared = {"num_slices": 1}  # for `fit`, as `prepare_cpu` has decided


class DeviceOptions(Fields):
    """The backend and the device."""

    backend: str | None = hp(
        None,
        "Framework that computes. Default: the environment variable"
        " KERAS_BACKEND, else tensorflow.",
        choices=BACKENDS,
    )
    device: str | None = hp(
        None,
        "Kind of device that must compute; if there is none, the command ends"
        " with an error. Default: the fastest available kind.",
        choices=DEVICES,
        common=True,
    )
    keep_programs: bool = hp(
        True,
        "Whether JAX stores the programs that it compiles for a GPU, for the"
        " next process: in $JAX_COMPILATION_CACHE_DIR, by default a folder of"
        " ~/.cache/keras_transformer.",
    )


def count_slices(
    cpu_threads: int | None, num_tokens: int, jit_compile: bool
) -> int:
    """Returns the number of slices of a batch to compute in parallel.

    `num_tokens` counts the tokens on each side, with padding. `cpu_threads` is
    by default the number of cores. With `jit_compile` there is one slice, since
    XLA would run the slices one after the other.

    >>> count_slices(cpu_threads=4, num_tokens=25000, jit_compile=False)
    4
    >>> count_slices(cpu_threads=64, num_tokens=1024, jit_compile=False)
    4
    >>> count_slices(cpu_threads=64, num_tokens=25000, jit_compile=False)
    8
    """
    if jit_compile:
        return 1
    threads = cpu_threads or count_cores()
    return max(1, min(threads, num_tokens // SLICE_TOKENS, MAX_SLICES))


def prepare_cpu(cpu_threads: int | None, num_slices: int | None = None) -> None:
    """Sets how TensorFlow uses the cores and the memory for training on a CPU.

    Operations run in parallel, each in one thread: the slices of a training
    step keep all cores busy, and small operations are not worth dividing.
    Operations are divided only if there are more threads than slices.
    TensorFlow keeps freed memory for the next array, since the kernel would
    have to clear it again in every step.

    Call this before `load_tensorflow`; afterwards it does nothing. Environment
    variables that are already set are kept. `cpu_threads` is by default the
    number of cores; with 1, TensorFlow chooses the number. `num_slices` is the
    number of slices into which `fit` divides its batches, by default one per
    thread, up to `MAX_SLICES`.
    """
    if "tensorflow" in sys.modules:
        return
    threads = cpu_threads or count_cores()
    if threads > 1:
        slices = num_slices or min(threads, MAX_SLICES)
        _prepared["num_slices"] = slices
        side_by_side = threads if slices == 1 else slices
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads // slices))
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(side_by_side))
    memory = memory_limit()
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(memory // 2**20))


def prepared_slices() -> int:
    """Returns the number of slices that `prepare_cpu` chose, or 1."""
    return _prepared["num_slices"]


def choose_backend(options: DeviceOptions) -> None:
    """Sets the Keras backend of this process, and JAX's devices and programs.

    With the device "cpu", JAX's accelerators are hidden. Call it before `load`.
    The backend later checks whether the device exists. Raises CommandError if
    Keras already uses another backend.
    """
    chosen = options.backend or backend_name()
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != chosen:
        raise CommandError(
            f"this process uses the backend {keras.backend.backend()}."
            f" Received: backend={chosen}"
        )
    os.environ["KERAS_BACKEND"] = chosen
    if chosen != "jax" or "jax" in sys.modules:
        return
    if options.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    elif gpus := find_gpus():
        store_programs(options.keep_programs, gpus[0])


def store_programs(wanted: bool, gpu: str) -> None:
    """Sets whether, and where, JAX stores the programs that it compiles.

    A folder that is already set is kept. JAX itself distinguishes programs of
    different versions and devices. They have separate folders so that users can
    delete old ones.
    """
    if not wanted:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        name = f"jax-{importlib.metadata.version('jaxlib')}-{gpu}"
        folder = os.path.join(base, "keras_transformer", name.replace(" ", "-"))
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        # Programs that compile in under a second add up to seconds.
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def prepare_search(jit_compile: bool) -> None:
    """Sets how TensorFlow uses the cores for translating on a CPU.

    The operations of one position are too short to be divided among threads.
    Instead, a search runs several operations and several batches in parallel.
    XLA's programs are not affected.

    Call this before `load_tensorflow`; afterwards it does nothing. A number of
    threads that is already set is kept.
    """
    if not jit_compile and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def backend_name() -> str:
    """Names this process's Keras backend: `KERAS_BACKEND`, or "tensorflow".

    Raises CommandError if `KERAS_BACKEND` is not one of `BACKENDS`.
    """
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    if name not in BACKENDS:
        raise CommandError(
            "the environment variable KERAS_BACKEND must be one of"
            f" {', '.join(BACKENDS)}. Received: KERAS_BACKEND={name!r}"
        )
    return name


def load_tensorflow() -> None:
    """Imports TensorFlow if it is not yet imported; see `QuietTensorFlow`."""
    _import_without("tensorflow", "jax", "matplotlib")


def _import_without(name: str, *others: str) -> None:
    """Imports a package as if others were not installed.

    TensorFlow and Keras import JAX for a converter and matplotlib for plots.
    This would take a third of their start-up time.
    """
    if name in sys.modules:
        return
    new = [other for other in others if other not in sys.modules]
    # None makes Python's import fail as if there were no such module.
    modules = typing.cast(dict[str, types.ModuleType | None], sys.modules)
    modules.update(dict.fromkeys(new))
    try:
        importlib.import_module(name)
    finally:
        for other in new:
            del modules[other]


def start_jax() -> None:
    """Starts JAX's device in a thread, if JAX is the backend.

    A GPU takes seconds to start; meanwhile `load` imports Keras. Before this
    call, a training on several hosts must tell JAX about them.
    """
    if backend_name() == "jax" and importlib.util.find_spec("jax"):
        # An error is not lost: the first use of the device raises it.
        ThreadPoolExecutor(1).submit(importlib.import_module("jax").devices)


def load(name: str) -> types.ModuleType:
    """Imports the Keras backend, then a module that needs it.

    Raises CommandError if the backend is not installed.
    """
    backend = backend_name()
    try:
        if backend == "tensorflow":
            load_tensorflow()
        _import_without("keras", "matplotlib")
    except ModuleNotFoundError as error:
        if error.name not in BACKENDS:
            raise
        others = " or ".join(b for b in BACKENDS if b != backend)
        raise CommandError(
            f"backend={backend} is not installed:"
            f" pip install {backend}, or choose --backend={others}"
        ) from error
    return importlib.import_module(name)


@contextlib.contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """A context of `end_on_interrupt`, for threads that outlive Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    end_on_interrupt()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_on_interrupt() -> None:
    """Makes Ctrl-C end this process at once, even while TensorFlow computes.

    Python would run its handler, and print a traceback, only after the current
    batch, which may take minutes. Flush output before calling this. If SIGINT
    is ignored or has another handler, nothing changes.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
