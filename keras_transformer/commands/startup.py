"""How a command starts: backend, TensorFlow's threads and log, Ctrl-C.

A command imports nothing that needs a backend, whose import takes seconds,
before its flags and its input are checked: what is wrong is told at once. Then
`load` imports the modules that need one.
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
from concurrent.futures import ThreadPoolExecutor

from keras_transformer.base.fields import Fields, hp
from keras_transformer.base.machine import count_cores, find_gpus, memory_limit
from keras_transformer.commands.flags import CommandError

BACKENDS = ("tensorflow", "jax")
DEVICES = ("gpu", "tpu", "cpu")
SLICE_TOKENS = 256  # minimum on each side in a slice of a training batch
# Each slice has gradients of its own: more slices cost more memory and time
# than they save.
MAX_SLICES = 8
_prepared = {"num_slices": 1}  # for `fit`, as `prepare_cpu` has decided


class DeviceOptions(Fields):
    """The device."""

    backend: str | None = hp(
        None,
        "Framework that computes. Default: the environment variable"
        " KERAS_BACKEND, else tensorflow.",
        choices=BACKENDS,
    )
    device: str | None = hp(
        None,
        "Kind of device that must compute: the command ends with an error if"
        " there is none. Default: the fastest kind that there is.",
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
    """Counts the slices of a batch that are computed in parallel.

    `num_tokens` counts the tokens on each side, with padding. `cpu_threads` is
    one per core by default. XLA would run the slices one after the other.

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

    Operations run in parallel rather than each in several threads: the slices
    of a training step have work for all cores, and small operations are not
    worth dividing. Operations are divided only if there are more threads than
    slices. TensorFlow keeps freed memory for the next array, since the kernel
    would have to clear it again in every step.

    Call it before `load_tensorflow`; it does nothing afterwards. Environment
    variables that are already set stay. `cpu_threads` is one per core by
    default; with 1, TensorFlow chooses the number. `num_slices`, into which
    `fit` divides its batches, is as many by default, up to `MAX_SLICES`.
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
    """Returns the slices of a step that `prepare_cpu` decided, or 1."""
    return _prepared["num_slices"]


def choose_backend(options: DeviceOptions) -> None:
    """Sets the Keras backend of this process; on request, hides accelerators.

    Call it before `load`. Whether there is the wanted device is checked when
    the backend looks at its devices.
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
    """Sets whether JAX stores its programs; a folder that is set stays.

    JAX itself tells programs of other versions and devices apart. They have
    folders of their own so that one can delete them.
    """
    if not wanted:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        name = f"jax-{importlib.metadata.version('jaxlib')}-{gpu}"
        folder = os.path.join(base, "keras_transformer", name.replace(" ", "-"))
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        # Those that take less than a second take seconds together.
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def prepare_search(jit_compile: bool) -> None:
    """Sets how TensorFlow uses the cores for translating on a CPU.

    The operations of one position are too short to be divided among threads: a
    search runs several of them, and several batches, in parallel instead. XLA's
    programs are not affected.

    Call it before `load_tensorflow`; it does nothing afterwards. A number of
    threads that is already set stays.
    """
    if not jit_compile and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def backend_name() -> str:
    """Names this process's Keras backend: `KERAS_BACKEND`, or TensorFlow."""
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    if name not in BACKENDS:
        raise CommandError(
            "the environment variable KERAS_BACKEND must be one of"
            f" {', '.join(BACKENDS)}. Received: KERAS_BACKEND={name!r}"
        )
    return name


def load_tensorflow() -> None:
    """Imports TensorFlow, if it is not there yet; see `QuietTensorFlow`."""
    _import_without("tensorflow", "jax", "matplotlib")


def _import_without(name: str, *others: str) -> None:
    """Imports a package as if others were not installed.

    TensorFlow and Keras import JAX, for a converter, and matplotlib, for plots,
    which takes a third of the time in which both start.
    """
    if name in sys.modules:
        return
    new = [other for other in others if other not in sys.modules]
    # None says that there is no such module.
    modules = typing.cast(dict[str, types.ModuleType | None], sys.modules)
    modules.update(dict.fromkeys(new))
    try:
        importlib.import_module(name)
    finally:
        for other in new:
            del modules[other]


def start_jax() -> None:
    """Starts JAX' device in a thread, if JAX is the backend.

    A GPU takes seconds, in which `load` imports Keras. A training must tell JAX
    of other hosts before.
    """
    if backend_name() == "jax" and importlib.util.find_spec("jax"):
        # Whoever uses the device meets the error of a start.
        ThreadPoolExecutor(1).submit(importlib.import_module("jax").devices)


def load(name: str) -> types.ModuleType:
    """Imports the Keras backend, then a module that needs it."""
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


def end_on_interrupt() -> None:
    """Makes Ctrl-C end this process at once, even while TensorFlow computes.

    Python would run its handler, and print a traceback, only after the current
    batch, which may take minutes. Output must have been flushed. SIGINT stays
    ignored where it is ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
