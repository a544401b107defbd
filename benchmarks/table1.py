"""Measures Table 1 of the paper: the cost of layers over length and width.

    python benchmarks/table1.py --picture=docs/table1.svg --record

Times one forward and backward pass of each kind of layer over the length n and
over the width d, fits the exponents of both, and counts the sequential
operations, which are the iterations of loops. As in the table, self-attention
is softmax(Q K^T / sqrt(d)) V, without the four projections. Attention with them
is shown beside it. The sizes, and the rows of recurrent layers, are chosen so
that matrix products take most of the time, not the softmax, memory or the start
of operations.

A time is the least CPU time of one thread over --rounds, which other load on
the machine hardly changes. The sizes of a sweep take turns, after an untimed
pass of each.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from plots import transparent_svg
from results import INK, add_flag, cpu_name, parse_table, record, write

import keras_transformer as kt
from keras_transformer.figures.saving import STYLE

KERNEL_SIZE = 3  # k
RESTRICTION = 128  # r
LOOP_LENGTHS = (16, 32)  # n for counting sequential operations


class WithoutProjections:
    """A mixin for eq. 1 alone, with the identity for each projection."""

    def build(self, query_shape, value_shape):
        self.query_projection = keras.layers.Identity()
        self.key_projection = keras.layers.Identity()
        self.value_projection = keras.layers.Identity()
        self.output_projection = keras.layers.Identity()


class BareAttention(WithoutProjections, kt.MultiHeadAttention):
    pass


class BareRestrictedAttention(
    WithoutProjections, kt.layers.RestrictedAttention
):
    pass


def self_attention(d, kind=BareAttention, **options):
    """Makes a layer of self-attention. Returns it, and a function of x."""
    layer = kind(num_heads=1, d_key=d, d_value=d, **options)
    layer.build((None, None, d), (None, None, d))
    return layer, lambda x: layer(x, x)


def restricted_attention(d):
    before, after = RESTRICTION // 2, (RESTRICTION - 1) // 2
    return self_attention(
        d, BareRestrictedAttention, neighborhood=(before, after)
    )


def projected_attention(d):
    return self_attention(d, kt.MultiHeadAttention)


def keras_layer(kind, d, *arguments, **options):
    """Makes a Keras layer as wide as its input. Returns it twice."""
    layer = kind(d, *arguments, **options)
    layer.build((None, None, d))
    return layer, layer


def recurrent(kind):
    return lambda d: keras_layer(kind, d, return_sequences=True)


def convolutional(kind):
    return lambda d: keras_layer(kind, d, KERNEL_SIZE, padding="same")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A row of Table 1.

    Attributes:
        name: The name of the layer.
        make: Function of d that returns the layer, and a function of its input
            `[batch, n, d]`.
        complexity: O(...) in the table.
        exponents: The exponents of n and of d in it, where the other is small.
        operations: Function of n and d: multiplications of a row's forward
            pass.
        sequential: Sequential operations, as in the table.
        batch: Rows of the input.
        lengths, width: The sweep over n, at a width d.
        widths, length: The sweep over d, at a length n.
    """

    name: str
    make: Callable
    complexity: str
    exponents: tuple[int, int]
    operations: Callable[[int, int], float]
    sequential: str
    batch: int
    lengths: tuple[int, ...]
    width: int
    widths: tuple[int, ...]
    length: int


KINDS = (
    Kind(
        "self-attention",
        self_attention,
        "n^2 d",
        (2, 1),
        lambda n, d: 2 * n * n * d,
        "1",
        batch=1,
        lengths=(1024, 2048, 4096),
        width=512,
        widths=(512, 1024, 2048),
        length=1024,
    ),
    Kind(
        f"restricted self-attention, r = {RESTRICTION}",
        restricted_attention,
        "r n d",
        (1, 1),
        # A chunk of queries reads the keys at its own positions and a margin.
        lambda n, d: 2 * 2 * RESTRICTION * n * d,
        "1",
        batch=1,
        lengths=(1024, 2048, 4096, 8192),
        width=256,
        widths=(512, 1024, 2048),
        length=2048,
    ),
    Kind(
        "recurrent: LSTM",
        recurrent(keras.layers.LSTM),
        "n d^2",
        (1, 2),
        lambda n, d: 8 * n * d * d,
        "n",
        batch=256,
        lengths=(8, 16, 32, 64),
        width=256,
        widths=(256, 512, 1024),
        length=8,
    ),
    Kind(
        "recurrent: GRU",
        recurrent(keras.layers.GRU),
        "n d^2",
        (1, 2),
        lambda n, d: 6 * n * d * d,
        "n",
        batch=256,
        lengths=(8, 16, 32, 64),
        width=256,
        widths=(256, 512, 1024),
        length=8,
    ),
    Kind(
        f"convolutional, k = {KERNEL_SIZE}",
        convolutional(keras.layers.Conv1D),
        "k n d^2",
        (1, 2),
        lambda n, d: KERNEL_SIZE * n * d * d,
        "1",
        batch=1,
        lengths=(1024, 2048, 4096, 8192),
        width=512,
        widths=(1024, 1536, 2048),
        length=512,
    ),
    Kind(
        f"separable convolutional, k = {KERNEL_SIZE}",
        convolutional(keras.layers.SeparableConv1D),
        "k n d + n d^2",
        (1, 2),
        lambda n, d: KERNEL_SIZE * n * d + n * d * d,
        "1",
        batch=1,
        lengths=(1024, 2048, 4096, 8192),
        width=512,
        widths=(1024, 2048, 4096),
        length=1024,
    ),
    Kind(
        "self-attention with its projections",
        projected_attention,
        "n^2 d + n d^2",
        (2, 2),
        lambda n, d: 2 * n * n * d + 4 * n * d * d,
        "1",
        batch=1,
        lengths=(1024, 2048, 4096),
        width=128,
        widths=(512, 1024, 2048),
        length=256,
    ),
)


def main():
    arguments = parse_arguments()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    chosen = [kind for kind in KINDS if arguments.only in kind.name]
    results = []
    for kind in chosen:
        keras.utils.set_random_seed(1)
        results.append(measure(kind, arguments.rounds))
        print(json.dumps(results[-1]), flush=True)
    document = {"machine": cpu_name(), "layers": results}
    print(table(document))
    if arguments.record:
        title = "Table 1: exponents of time, and loop iterations"
        record("table1", title, {"layers": parse_table(table(document))})
    if arguments.picture:
        write(arguments.picture, draw(document))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=pathlib.Path, help="SVG to write")
    add_flag(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="layers with this in them")
    return parser.parse_args()


# Measuring


def measure(kind, rounds):
    """Measures a kind of layer: times, exponents, sequential operations."""
    over_n = [(n, kind.width) for n in kind.lengths]
    over_d = [(kind.length, d) for d in kind.widths]
    result = {"name": kind.name, "complexity": kind.complexity}
    result["batch"] = kind.batch
    for index, (variable, shapes) in enumerate((("n", over_n), ("d", over_d))):
        sizes = [shape[index] for shape in shapes]
        seconds = time_shapes(kind, shapes, rounds)
        operations = [kind.operations(*shape) for shape in shapes]
        result[variable] = {
            "sizes": sizes,
            "fixed": shapes[0][1 - index],
            "seconds": seconds,
            "theory": kind.exponents[index],
            "exponent": exponent(sizes, seconds),
            "exponent_of_operations": exponent(sizes, operations),
        }
    result["sequential"] = kind.sequential
    result["loops"] = [
        count_iterations(kind.make, n, kind.widths[0]) for n in LOOP_LENGTHS
    ]
    return result


def time_shapes(kind, shapes, rounds):
    """Returns the CPU seconds of a forward and backward pass by (n, d)."""
    passes = [make_pass(kind, *shape) for shape in shapes]
    for run in passes:
        run()  # traces, and allocates
    least = [math.inf] * len(passes)
    for _ in range(rounds):
        for i, run in enumerate(passes):
            started = time.process_time()
            run()
            least[i] = min(least[i], time.process_time() - started)
    return least


def make_pass(kind, n, d):
    """Returns a function that runs a forward and a backward pass, and waits."""
    layer, function = kind.make(d)
    x = tf.random.normal((kind.batch, n, d))

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    compute = gradients.get_concrete_function()

    def run():
        for gradient in compute():
            gradient.numpy()

    return run


def exponent(sizes, values):
    """Returns the slope of a line through the logarithms.

    >>> round(exponent([2, 4, 8], [3, 12, 48]), 3)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def count_iterations(make, n, d):
    """Counts the iterations of a layer's loops in a forward pass."""
    counter = tf.Variable(0)
    while_loop = tf.while_loop

    def counted_loop(cond, body, loop_vars, **options):
        def counted_body(*state):
            counter.assign_add(1)
            return body(*state)

        return while_loop(cond, counted_body, loop_vars, **options)

    _, function = make(d)
    with mock.patch.object(tf, "while_loop", counted_loop):
        tf.function(function, autograph=False)(tf.zeros((1, n, d)))
    return int(counter.numpy())


# Showing


def table(document):
    """Makes a Markdown table of the results beside the theory."""
    lengths = " / ".join(map(str, LOOP_LENGTHS))
    lines = [
        "| layer | operations | exponent of n: theory | of n: measured"
        " | n, at d | exponent of d: theory | of d: measured | d, at n"
        " | sequential: theory"
        f" | loop iterations at n = {lengths} |",
        "|" + "---|" * 10,
    ]
    for layer in document["layers"]:
        cells = [name_of(layer), layer["complexity"]]
        for variable in "nd":
            sweep = layer[variable]
            sizes = sweep["sizes"]
            cells += [
                theory_of(sweep),
                f"{sweep['exponent']:.2f}",
                f"{sizes[0]} to {sizes[-1]}, {sweep['fixed']}",
            ]
        cells += [layer["sequential"], " / ".join(map(str, layer["loops"]))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def name_of(layer):
    """Returns the name of a layer, with its input's rows if several."""
    rows = f", {layer['batch']} rows" if layer["batch"] > 1 else ""
    return layer["name"] + rows


def theory_of(sweep):
    """Returns the table's exponent, and the operations' if it differs."""
    counted = f"{sweep['exponent_of_operations']:.2f}"
    if float(counted) == sweep["theory"]:
        return str(sweep["theory"])
    return f"{sweep['theory']} (operations {counted})"


COLORS = (
    "#3987e5",
    "#17a398",
    "#e07b39",
    "#c9a227",
    "#9a6fd0",
    "#d1556f",
    "#6d9b3a",
)


@matplotlib.rc_context(STYLE)
def draw(document):
    """Draws the times over n and over d, with the slopes of the theory."""
    layers = document["layers"]
    figure = Figure(figsize=(12.5, 7.8))
    panels = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(0.07, 0.36, 0.98, 0.93, wspace=0.06)
    for axes, variable, words in zip(
        panels, "nd", ("length n", "width d"), strict=True
    ):
        axes.set(xscale="log", yscale="log", xlabel=words)
        axes.grid(axis="y")
        for i, layer in enumerate(layers):
            draw_sweep(axes, layer[variable], COLORS[i % len(COLORS)])
        sizes = {size for layer in layers for size in layer[variable]["sizes"]}
        axes.set_xticks(sorted(sizes), map(str, sorted(sizes)))
        axes.minorticks_off()
    panels[0].set_ylabel("CPU seconds, forward and backward pass")
    panels[0].yaxis.set_major_formatter("{x:g}")
    figure.suptitle(
        f"One thread of {document['machine']}; dashed: slopes of Table 1"
    )
    lines = panels[0].lines[::2]  # every other one is the theory's
    figure.legend(lines, map(summary, layers), loc="lower left")
    return transparent_svg(figure, INK)


def draw_sweep(axes, sweep, color):
    """Draws the times of a sweep, and the theory's slope through the last."""
    sizes, seconds = sweep["sizes"], sweep["seconds"]
    theory = [
        seconds[-1] * (size / sizes[-1]) ** sweep["theory"] for size in sizes
    ]
    axes.plot(sizes, seconds, color=color, marker="o", linewidth=2)
    axes.plot(sizes, theory, color=color, linestyle="--", linewidth=1)


def summary(layer):
    """Describes the exponents of a layer in words."""
    n, d = layer["n"], layer["d"]
    return (
        f"{name_of(layer)}: measured n^{n['exponent']:.2f} (theory"
        f" {n['theory']}) at d = {n['fixed']}, d^{d['exponent']:.2f}"
        f" (theory {d['theory']}) at n = {d['fixed']}"
    )


if __name__ == "__main__":
    main()
