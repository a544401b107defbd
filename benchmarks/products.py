"""Every matrix product of training and of searching, timed alone.

    python benchmarks/products.py [--models tiny base opus] [--record]

The products are read from TensorFlow's graphs of a training step (one slice of
2,048 tokens on each side; 1,024 with OPUS-MT's size) and of one position of a
search (1, 16 and 64 rows, the 17th position, sources of 32 tokens), with their
real shapes, and run one by one on one core: by TensorFlow, by NumPy, by XLA in
TensorFlow and by JAX. A share is the rate of a product divided by the rate
of a product of two square matrices of width 2,048 by TensorFlow in the same
dtype. Products that take less than 1 % of the time of their graph are added up
in one row. If TensorFlow reaches less than half, the cause is

    call     half of the time passes without the product, in calling it
    memory   half of the time is needed to read and write the matrices
    kernel   neither: the kernel is slow with this shape

TF_ENABLE_ONEDNN_OPTS=0 makes TensorFlow multiply with Eigen, as it does by
itself on CPUs without AVX-512 VNNI. ONEDNN_MAX_CPU_ISA=AVX2 limits oneDNN; then
there is no bfloat16. With --record each kind of CPU has a file of its own in
benchmarks/results, and one without oneDNN.
"""

# ruff: noqa: E402 (the libraries read their variables when they are imported)
import argparse
import collections
import os
import time
import typing

os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])  # one thread for all
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["JAX_PLATFORMS"] = "cpu"

import keras_transformer as kt  # before TensorFlow, for which it chooses oneDNN

# isort: split
import jax
import ml_dtypes
import numpy as np
import results
import tensorflow as tf

from keras_transformer.training.step import TrainStep

SQUARE = 2048
LENGTH = 32  # tokens of a row
POSITION = 16  # of a search, counted from 0
ROWS = 1, 16, 64  # that a position is computed for
SECONDS = 0.05  # at least, of the repetitions of a product
SMALL = 0.01  # share of the time of a graph below which a product has no row
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
MODELS = {
    "tiny": (kt.preset("tiny", vocab_size=8000), 2048),
    "base": (kt.preset("base", vocab_size=37000), 2048),
    "opus": (
        kt.preset("base", vocab_size=58101, activation="swish"),
        1024,
    ),
}


class Product(typing.NamedTuple):
    """A product of two matrices, or of two batches of them.

    Attributes:
        left, right: Shapes, `[..., rows, columns]`.
        transposed: For each factor, whether it is transposed first.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    transposed: tuple[bool, bool]

    @property
    def flops(self) -> int:
        rows, inner = self.left[-2:][:: -1 if self.transposed[0] else 1]
        columns = self.right[-2 if self.transposed[1] else -1]
        return 2 * int(np.prod(self.left[:-2])) * rows * inner * columns

    @property
    def numbers(self) -> int:
        """In the factors and in the product."""
        rows = self.left[-1 if self.transposed[0] else -2]
        columns = self.right[-2 if self.transposed[1] else -1]
        product = np.prod(self.left[:-2]) * rows * columns
        return int(np.prod(self.left) + np.prod(self.right) + product)

    def __str__(self):
        marks = ("^T" if flag else "" for flag in self.transposed)
        shapes = (
            " x ".join(map(str, shape)) for shape in (self.left, self.right)
        )
        return " by ".join(
            f"{shape}{mark}" for shape, mark in zip(shapes, marks, strict=True)
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    results.add_flag(parser)
    arguments = parser.parse_args()
    tables = {}
    for dtype in arguments.dtypes:
        limits = Limits(dtype)
        for model in arguments.models:
            heading = f"{model}, {dtype}"
            tables[heading] = rows = []
            for name, counts in graphs_of(*MODELS[model], dtype):
                rows += measure(name, counts, limits)
            print(f"{heading}: {limits}\n\n{results.markdown(rows)}")
    if arguments.record:
        off = os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0"
        kind = f"{results.cpu_kind()}{', oneDNN off' if off else ''}"
        results.record(
            results.of_this_cpu("products") + ("_eigen" if off else ""),
            f"Matrix products on one core, {kind}",
            tables,
            versions=results.versions((*results.PACKAGES, "jax")),
        )


# The products of a graph


def graphs_of(config, tokens, dtype):
    """Names of graphs, and how often each has which `Product`."""
    policy = "float32" if dtype == "float32" else f"mixed_{dtype}"
    model = kt.Transformer(config, dtype=policy)
    yield "training step", products_of(training_graph(model, tokens // LENGTH))
    for rows in ROWS:
        yield f"position, rows: {rows}", products_of(step_graph(model, rows))


def training_graph(model, rows):
    """Forward and backward."""
    step = TrainStep(
        model,
        kt.paper_adam(model.config.d_model, warmup_steps=2000),
        label_smoothing=0.1,
        jit_compile=False,
        accumulate_steps=1,
        clip_norm=0.0,
    )
    ids = tf.TensorSpec([rows, LENGTH], tf.int32)
    function = tf.function(step.gradients, autograph=False)
    return function.get_concrete_function(
        {"source_ids": ids, "target_ids": ids}, ids
    ).graph


def step_graph(model, rows):
    """The tokens of one position."""

    @tf.function(autograph=False)
    def step(source_ids, ids):
        memory = model.encode(source_ids)
        tf.identity(ids, name="first_of_the_position")
        cache = model.make_cache(rows, 2 * POSITION)
        return model.decode_step(ids, memory, cache, POSITION)

    return step.get_concrete_function(
        tf.TensorSpec([rows, LENGTH], tf.int32), tf.TensorSpec([rows], tf.int32)
    ).graph


def products_of(graph):
    """How often a graph has which `Product`; the encoder's are left out."""
    operations = graph.get_operations()
    names = [operation.name for operation in operations]
    if "first_of_the_position" in names:
        operations = operations[names.index("first_of_the_position") :]
    counts = collections.Counter()
    for operation in operations:
        flags = {
            "MatMul": ("transpose_a", "transpose_b"),
            "BatchMatMulV2": ("adj_x", "adj_y"),
        }.get(operation.type)
        if flags:
            shapes, transposed = zip(
                *(
                    as_multiplied(factor, operation.get_attr(flag))
                    for factor, flag in zip(
                        operation.inputs, flags, strict=True
                    )
                ),
                strict=True,
            )
            counts[Product(*shapes, transposed)] += 1
    return counts


def as_multiplied(factor, transposed):
    """Shape of a factor, and whether the product transposes it.

    TensorFlow makes a transposition of a matrix a part of the product.
    """
    if factor.op.type == "Transpose" and len(factor.shape) == 2:
        factor, transposed = factor.op.inputs[0], not transposed
    return tuple(factor.shape), transposed


# Time


class Limits:
    """What no product can exceed: measured on this thread.

    Attributes:
        dtype: "float32" or "bfloat16".
        square_rate: FLOP/s of the large square product.
        call: Seconds of a product of 1 x 1.
        bandwidth: Bytes that are read in a second.
    """

    def __init__(self, dtype):
        self.dtype = dtype
        shape = (SQUARE, SQUARE)
        square = Product(shape, shape, (False, False))
        seconds = seconds_of(tensorflow_call(square, dtype))
        self.square_rate = square.flops / seconds
        one = Product((1, 1), (1, 1), (False, False))
        self.call = seconds_of(tensorflow_call(one, dtype))
        numbers = np.ones(2**26, np.float32)
        self.bandwidth = numbers.nbytes / seconds_of(
            lambda: numbers.dot(numbers)
        )

    def __str__(self):
        return (
            f"{self.square_rate / 1e9:.0f} GFLOP/s,"
            f" {self.bandwidth / 1e9:.1f} GB/s,"
            f" {1e6 * self.call:.0f} us a call"
        )

    def share(self, product, seconds):
        """Of the rate of the square product; None if it did not run."""
        if seconds is None:
            return None
        return round(product.flops / seconds / self.square_rate, 2)

    def cause(self, product, seconds):
        """Why TensorFlow reaches less than half; "" if it reaches more."""
        if self.share(product, seconds) >= 0.5:
            return ""
        if self.call >= seconds / 2:
            return "call"
        size = np.dtype(DTYPES[self.dtype]).itemsize
        if product.numbers * size / self.bandwidth >= seconds / 2:
            return "memory"
        return "kernel"


def measure(name, counts, limits):
    """Rows of a table: the products of a graph, the longest first."""
    seconds = {
        product: seconds_of(tensorflow_call(product, limits.dtype))
        for product in counts
    }
    total = sum(counts[product] * seconds[product] for product in counts)
    rows, rest = [], 0.0
    for product in sorted(
        counts, key=lambda p: counts[p] * seconds[p], reverse=True
    ):
        taken = counts[product] * seconds[product]
        if taken < SMALL * total:
            rest += taken
            continue
        others = {
            "NumPy": numpy_call(product, limits.dtype),
            "XLA": xla_call(product, limits.dtype),
            "JAX": jax_call(product, limits.dtype),
        }
        rows.append(
            {
                "graph": name,
                "product": str(product),
                "times": counts[product],
                "ms": milliseconds(seconds[product]),
                "share": limits.share(product, seconds[product]),
                **{
                    key: limits.share(product, call and seconds_of(call))
                    for key, call in others.items()
                },
                "cause": limits.cause(product, seconds[product]),
            }
        )
    if rest:
        empty = dict.fromkeys(rows[0], None)
        rows.append(
            {
                **empty,
                "graph": name,
                "product": "all others together",
                "ms": milliseconds(rest),
                "cause": "",
            }
        )
    return rows


def milliseconds(seconds):
    """With three digits."""
    return float(f"{1e3 * seconds:.3g}")


def seconds_of(call):
    """The least time of a call in five rounds, after two calls."""
    call(), call()
    start = time.perf_counter()
    call()
    repetitions = int(SECONDS / 5 / (time.perf_counter() - start)) + 1
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repetitions):
            call()
        best = min(best, (time.perf_counter() - start) / repetitions)
    return best


def factors(product, dtype):
    """Two arrays of random numbers."""
    random = np.random.default_rng(1)
    return [
        random.standard_normal(shape, np.float32).astype(DTYPES[dtype])
        for shape in (product.left, product.right)
    ]


def tensorflow_call(product, dtype):
    left, right = map(tf.constant, factors(product, dtype))
    first, second = product.transposed
    if len(product.left) == 2:
        return lambda: tf.raw_ops.MatMul(
            a=left, b=right, transpose_a=first, transpose_b=second
        )
    return lambda: tf.raw_ops.BatchMatMulV2(
        x=left, y=right, adj_x=first, adj_y=second
    )


def numpy_call(product, dtype):
    """None in bfloat16, for which NumPy has no kernel."""
    if dtype != "float32":
        return None
    left, right = (
        np.swapaxes(factor, -1, -2) if flag else factor
        for factor, flag in zip(
            factors(product, dtype), product.transposed, strict=True
        )
    )
    return lambda: left @ right


def xla_call(product, dtype):
    left, right = map(tf.constant, factors(product, dtype))
    first, second = product.transposed

    @tf.function(jit_compile=True, autograph=False)
    def multiply(left, right):
        return tf.matmul(left, right, transpose_a=first, transpose_b=second)

    return lambda: multiply(left, right)


def jax_call(product, dtype):
    left, right = map(jax.numpy.asarray, factors(product, dtype))
    first, second = product.transposed

    @jax.jit
    def multiply(left, right):
        if first:
            left = left.swapaxes(-1, -2)
        if second:
            right = right.swapaxes(-1, -2)
        return left @ right

    return lambda: jax.block_until_ready(multiply(left, right))


if __name__ == "__main__":
    main()
