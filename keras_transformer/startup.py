"""TensorFlow's start, without the lines that it prints on every start.

A command calls `load_tensorflow` after its flags are parsed and before it
imports what needs TensorFlow: bad flags are refused at once, and what a user
reads on stderr is the command's own.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import os
import platform
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

XLA_CACHE = "tf_xla_persistent_cache_directory"  # an option of TF_XLA_FLAGS
SLICE_TOKENS = 256  # of each side, at least, in a slice of a training batch


def count_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


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
    """
    if jit_compile:
        return 1
    threads = cpu_threads or count_cores()
    return max(1, min(threads, num_tokens // SLICE_TOKENS))


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
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
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


def keep_xla_programs(directory: str) -> None:
    """Lets XLA write its compiled programs to a directory, and read them again.

    A process that needs the same programs then does not compile them. Another
    CPU, number of cores, version of TensorFlow or value of XLA_FLAGS has a
    folder of its own. When TensorFlow reads a program it logs an error about
    features that no CPU has; so its errors are raised, but not logged.

    Call it before `load_tensorflow`.

    Args:
        directory: Its path; it is made if there is none. "": nothing is kept.

    Raises:
        OSError: It cannot be made.
        ValueError: TensorFlow is imported already, and reads no such option any
            more.
    """
    if not directory:
        return
    folder = os.path.join(os.path.abspath(directory), _machine_name())
    option = f'--{XLA_CACHE}="{folder}"'
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if option in flags:
        return
    if "tensorflow" in sys.modules:
        raise ValueError(
            "xla_cache must be given to a new process, in which TensorFlow is"
            f" not imported yet. Received: xla_cache={directory!r}"
        )
    os.makedirs(folder, exist_ok=True)
    os.environ["TF_XLA_FLAGS"] = f"{flags} {option}".strip()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _machine_name():
    """A folder's name for what XLA compiles here."""
    cpu = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        cpu = next((line for line in file if line.startswith("flags")), cpu)
    xla_flags = os.environ.get("XLA_FLAGS", "")
    text = f"{platform.machine()} {cpu} {count_cores()} {xla_flags}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"tensorflow-{importlib.metadata.version('tensorflow')}-{digest}"


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
