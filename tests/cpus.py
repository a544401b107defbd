"""Runs the tests of numbers with the kernels of other CPUs: `make test-cpus`.

Each row is a setting of oneDNN, TensorFlow, XLA or NumPy, which choose kernels
by CPU. `rounding` is a pytest plugin, tests/rounding.py. Before a row's tests,
a process with its setting computes some products and reports which kernels ran.
A row whose setting changes no kernel fails, unless the CPU has no better ones
than the setting, which is reported. A row leaves out the tests of a
half-precision dtype whose products crash, and reports this.

    python tests/cpus.py [--rows=avx2,numpy] [arguments of pytest]
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import half_precision

from keras_transformer.base import machine

TESTS = pathlib.Path(__file__).parent
# A file touches numbers if it compares them, or names what a model computes.
NUMBERS = re.compile(
    r"approx\(|allclose|array_equal|assert_close|log_prob|losses_in"
)
XLA_FLAGS = "--xla_backend_optimization_level=0"  # as in tests/conftest.py


@dataclasses.dataclass(frozen=True)
class Row:
    """A setting, and the library whose kernels it changes.

    It changes them on CPUs with the feature `cpu`, as /proc/cpuinfo names it.
    """

    setting: dict[str, str]
    library: str = ""
    cpu: str = ""
    arguments: tuple[str, ...] = ()  # of pytest


ROWS = {
    "default": Row({}),
    "avx2": Row({"ONEDNN_MAX_CPU_ISA": "AVX2"}, "oneDNN", "avx512f"),
    "avx512_core": Row(
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, "oneDNN", "avx512_vnni"
    ),
    "no_onednn": Row({"TF_ENABLE_ONEDNN_OPTS": "0"}, "oneDNN", "sse2"),
    "xla_avx2": Row(
        {"XLA_FLAGS": f"{XLA_FLAGS} --xla_cpu_max_isa=AVX2"}, "XLA", "avx512f"
    ),
    # All features among which a NumPy build for any x86 CPU chooses.
    "numpy": Row({"NPY_DISABLE_CPU_FEATURES": "all"}, "NumPy", "avx2"),
    # The plugin adds operations, and some tests count operations.
    "rounding": Row({}, arguments=("-p=rounding", "-k=not operations")),
}


def environment(setting, **others):
    found = {"XLA_FLAGS": XLA_FLAGS, **os.environ, **setting, **others}
    if "NPY_DISABLE_CPU_FEATURES" in setting:
        from numpy._core import _multiarray_umath as numpy_core

        has = numpy_core.__cpu_features__
        names = [name for name in numpy_core.__cpu_dispatch__ if has[name]]
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(names)
    return found


def compute():
    """Computes products, a softmax and a function, plain and compiled."""
    import numpy as np

    import keras_transformer  # noqa: F401  # which chooses oneDNN

    import tensorflow as tf  # isort: skip

    def results(a, b, c):
        product = tf.matmul(tf.reshape(a, (-1, 33)), b)
        return tf.matmul(a, c), tf.nn.softmax(product), tf.tanh(product)

    numbers = np.random.default_rng(7).standard_normal
    shapes = [(2, 3, 6, 33), (33, 17), (2, 3, 33, 17)]
    arrays = [tf.constant(numbers(shape), tf.float32) for shape in shapes]
    for jit_compile in (False, True):
        tf.function(results, jit_compile=jit_compile)(*arrays)
    found = np.lib.introspect.opt_func_info()
    kernels = {k["current"] for f in found.values() for k in f.values()}
    print("NumPy", json.dumps(sorted(kernels)))


def kernels_of(setting):
    """Runs the products with a setting. Returns {library: its kernels}."""
    with tempfile.TemporaryDirectory() as dump:
        env = environment(setting, ONEDNN_VERBOSE="1", TF_CPP_MIN_LOG_LEVEL="3")
        env["XLA_FLAGS"] += f" --xla_dump_to={dump}"
        env["PYTHONPATH"] = str(TESTS.parent)
        command = [sys.executable, __file__, "--compute"]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        objects = sorted(pathlib.Path(dump).glob("*.o"))
        assert objects, "expected object files of XLA"
        code = b"".join(path.read_bytes() for path in objects)
    isa = re.search(r"info,cpu,isa:(.*)", done.stdout)[1]
    ran = re.findall(r"exec,cpu,(\w+),([^,]*),", done.stdout)
    names = sorted({f"{kind} {name}".strip() for kind, name in ran})
    [numpy_kernels] = re.findall(r"^NumPy (.*)", done.stdout, re.M)
    return {
        "oneDNN": f"{isa}; {', '.join(names)}",
        "XLA": f"object code {hashlib.sha256(code).hexdigest()[:8]}",
        "NumPy": ", ".join(json.loads(numpy_kernels)),
    }


def void(name, usual):
    """Prints the kernels of a row. Returns why the row fails, or ""."""
    row = ROWS[name]
    kernels = kernels_of(row.setting) if row.setting else usual
    print(f"{name}: {row.setting or 'nothing set'}")
    for library, words in kernels.items():
        print(f"  {library}: {words}", flush=True)
    if not row.library or kernels[row.library] != usual[row.library]:
        return ""
    cpu = re.findall(r"\S+", pathlib.Path("/proc/cpuinfo").read_text())
    if row.cpu in cpu:
        return f"{row.library} runs the same kernels as without the setting"
    print(f"  as without the setting: this CPU has no {row.cpu}", flush=True)
    return ""


def without(row):
    """Returns the flag that leaves out dtypes whose products crash here."""
    found = []
    for dtype in half_precision.DTYPES:
        if ending := machine.ending_of_products(
            dtype, environment(row.setting)
        ):
            print(
                f"  left out: tests of {dtype}, whose products end in {ending}"
            )
            found.append(dtype)
    sys.stdout.flush()
    return f"--without={','.join(found)}"


def run_tests(row, arguments):
    files = [
        str(path)
        for path in sorted(TESTS.rglob("*_test.py"))
        if path.parent.name != "jax_engine"
        and NUMBERS.search(path.read_text("utf-8"))
    ]
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = environment(row.setting, PYTHONPATH=os.pathsep.join(paths))
    command = [sys.executable, "-m", "pytest", *row.arguments, without(row)]
    done = subprocess.run([*command, *arguments, *files], env=env)
    return done.returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--compute", action="store_true", help="for itself")
    given, arguments = parser.parse_known_args()
    if given.compute:
        return compute()
    names = given.rows.split(",") if given.rows else list(ROWS)
    if unknown := sorted(set(names) - set(ROWS)):
        parser.error(f"expected rows of {list(ROWS)}. Received: {unknown}")
    usual, failed = kernels_of({}), []
    for name in names:
        if reason := void(name, usual):
            failed.append(f"{name}: {reason}")
        elif run_tests(ROWS[name], arguments):
            failed.append(f"{name}: a test fails")
    print("\n".join(failed) or f"passed: {', '.join(names)}")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
