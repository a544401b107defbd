"""TensorFlow's start, without the lines that it prints on every start.

A command calls `load_tensorflow` after its flags are parsed and before it
imports what needs TensorFlow: bad flags are refused at once, and what a user
reads on stderr is the command's own.
"""

import contextlib
import importlib
import os
import sys
import tempfile

# TensorFlow's C++ libraries print these while they are loaded and while they
# look for devices, some before TF_CPP_MIN_LOG_LEVEL is read. They are about the
# machine, and the same on every start.
ROUTINE_LINES = (
    "All log messages before absl::InitializeLog",
    "oneDNN custom operations are on",
    "Could not find cuda drivers",
    "failed call to cuInit",
    "To enable the following instructions",
    "This TensorFlow binary is optimized",
)


def count_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def prepare_cpu(cpu_threads: int | None) -> None:
    """Sets how TensorFlow uses the cores and the memory for training on a CPU.

    Operations run side by side rather than each in several threads: the slices
    of a training step have work for all cores, and small operations are not
    worth dividing. Memory that an array leaves is kept for the next one: the
    kernel would have to clear it anew in every step.

    Call it before `load_tensorflow`; it does nothing afterwards. Environment
    variables that are set already stay.

    Args:
        cpu_threads: Operations at the same time; None: one for each core; 1:
            TensorFlow decides how many.
    """
    if "tensorflow" in sys.modules:
        return
    cpu_threads = cpu_threads or count_cores()
    if cpu_threads > 1:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(cpu_threads))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(memory // 2**20))


def load_tensorflow() -> None:
    """Imports TensorFlow and lets it find its devices, without routine lines.

    Anything else that is printed on stderr meanwhile is shown afterwards, an
    error's message included. Does nothing if TensorFlow is imported already.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_routine_lines():
        tensorflow = importlib.import_module("tensorflow")
        tensorflow.config.list_physical_devices()


@contextlib.contextmanager
def _without_routine_lines():
    """Holds stderr back, the C++ libraries' too, and shows what is left."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held_back.seek(0)
            for line in held_back.read().decode(errors="replace").splitlines():
                if not any(routine in line for routine in ROUTINE_LINES):
                    print(line, file=sys.stderr)
