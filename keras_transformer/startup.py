"""TensorFlow's start: its threads, its memory, its log.

A command calls `load_tensorflow` after its flags are parsed and before it
imports modules that need TensorFlow: bad flags are refused at once.
"""

import importlib
import os
import sys

from keras_transformer.machine import count_cores, find_gpus, memory_limit

SLICE_TOKENS = 256  # of each side, at least, in a slice of a training batch
# Each slice has gradients of its own: with more slices they take more memory
# and time than the slices save.
MAX_SLICES = 8


def count_slices(
    cpu_threads: int | None, num_tokens: int, jit_compile: bool
) -> int:
    """How many parts a batch is divided into, to be computed side by side.

    XLA would run the programs of the parts one after the other.

    Args:
        cpu_threads: Threads that compute the batch; None: one for each core.
        num_tokens: Tokens on each side, padding included, that are computed at
            once.
        jit_compile: Whether XLA compiles the step.

    Returns:
        As many as the threads, unless slices would be too small; 1 with XLA.

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

    Operations run side by side rather than each in several threads: the slices
    of a training step have work for all cores, and small operations are not
    worth dividing. More threads than slices divide operations after all. Memory
    that an array leaves is kept for the next one: the kernel would have to
    clear it anew in every step.

    Call it before `load_tensorflow`; it does nothing afterwards. Environment
    variables that are set already stay.

    Args:
        cpu_threads: Threads that compute a step; None: one for each core; 1:
            TensorFlow decides how many.
        num_slices: Slices of a step, at most as many; None: as many.
    """
    if "tensorflow" in sys.modules:
        return
    threads = cpu_threads or count_cores()
    if threads > 1:
        slices = threads if num_slices is None else num_slices
        side_by_side = threads if slices == 1 else slices
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads // slices))
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(side_by_side))
    memory = memory_limit()
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(memory // 2**20))


def prepare_search(jit_compile: bool) -> None:
    """Sets how TensorFlow uses the cores for translating on a CPU.

    The operations of a position are too short to be divided among threads: a
    search has several of them side by side, and several batches, instead. XLA's
    programs are not concerned.

    Call it before `load_tensorflow`; it does nothing afterwards. A number of
    threads that is set already stays.

    Args:
        jit_compile: Whether XLA compiles the search.
    """
    if not jit_compile and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def load_tensorflow() -> None:
    """Imports TensorFlow, which then logs warnings and errors alone.

    Where there is a GPU it logs everything, so that the reason is seen if it
    cannot use it. TensorFlow prints a few lines before it reads the level; they
    are not hidden. A level that is set already stays. Does nothing if
    TensorFlow is imported already.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if find_gpus() else "2")
    importlib.import_module("tensorflow")
