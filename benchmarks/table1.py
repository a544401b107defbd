"""Measures Table 1 of the paper: the cost of layers over length and width.

    python benchmarks/table1.py --picture=docs/table1.svg --record

Times one forward and backward pass of each kind of layer over the length n and
over the width d, fits the exponents of both, and counts the operations that
must follow each other: the iterations of loops, counted while they run. As in
the table, self-attention is softmax(Q K^T / sqrt(d)) V alone, without the four
projections, which the table leaves out; attention with them is shown beside it.
The sizes, and the rows of recurrent layers, are such that products of matrices
take the time, not the softmax, memory or the start of operations.

A time is the CPU time of one thread, the least of --rounds: other load on the
machine hardly changes it. The sizes of a sweep take turns, after a pass of each
that is not timed.
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
import numpy as np
import tensorflow as tf
from results import add_flag, cpu_name, parse_table, record, write

import keras_transformer as kt

KERNEL_SIZE = 3  # k
RESTRICTION = 128  # r
LOOP_LENGTHS = (16, 32)  # at which sequential operations are counted


class WithoutProjections:
    """Eq. 1 alone: one head, and the identity for each projection."""

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
    """A layer of attention of a sequence to itself, as a function of it."""
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
    """A Keras layer as wide as its input, and itself as the function."""
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
        name: Of the layer.
        make: Function of d that returns the layer, and a function of its input
            `[batch, n, d]`.
        complexity: O(...) in the table.
        exponents: Of n and of d in it, where the other is small.
        operations: Multiplications of a forward pass of a row, by n and d.
        sequential: Operations that must follow each other, as in the table.
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
        # A chunk of queries meets the keys of its own places and of a margin.
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
    document = {"machine": arguments.machine, "layers": results}
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
    parser.add_argument("--machine", default=cpu_name(), help="its name")
    return parser.parse_args()


# Measuring


def measure(kind, rounds):
    """Times, exponents and sequential operations of a kind of layer."""
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
    """CPU seconds of a forward and backward pass, for each (n, d)."""
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
    """A function that runs a forward and a backward pass to its end."""
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
    """The slope of the line through the logarithms.

    >>> round(exponent([2, 4, 8], [3, 12, 48]), 3)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def count_iterations(make, n, d):
    """How often the bodies of a layer's loops run in a forward pass."""
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
    """The results in Markdown, theory beside each."""
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
    """The name of a layer, with the rows of its input if there are several."""
    rows = f", {layer['batch']} rows" if layer["batch"] > 1 else ""
    return layer["name"] + rows


def theory_of(sweep):
    """The exponent in the table, or of the operations if it differs."""
    counted = f"{sweep['exponent_of_operations']:.2f}"
    if float(counted) == sweep["theory"]:
        return str(sweep["theory"])
    return f"{sweep['theory']} (operations {counted})"


WIDTH, HEIGHT = 900, 560
PANELS = {"n": (64, 440), "d": (508, 884)}  # left and right of each
TOP, BOTTOM = 44, 330
INK = "#767d86"
COLORS = (
    "#3987e5",
    "#17a398",
    "#e07b39",
    "#c9a227",
    "#9a6fd0",
    "#d1556f",
    "#6d9b3a",
)


def draw(document):
    """The times over n and over d as SVG: points, and the theory's slopes."""
    parts = []
    for variable, words in (("n", "length n"), ("d", "width d")):
        sweeps = [layer[variable] for layer in document["layers"]]
        parts += draw_panel(sweeps, *PANELS[variable], words)
    turned = f' transform="rotate(-90 16 {(TOP + BOTTOM) / 2})"'
    label = "CPU seconds, forward and backward pass"
    parts.append(text(16, (TOP + BOTTOM) / 2, label, "middle", turned))
    for i, layer in enumerate(document["layers"]):
        y = BOTTOM + 66 + 20 * i
        n, d = layer["n"], layer["d"]
        words = (
            f"{name_of(layer)}: measured n^{n['exponent']:.2f} (theory"
            f" {n['theory']}) at d = {n['fixed']}, d^{d['exponent']:.2f}"
            f" (theory {d['theory']}) at n = {d['fixed']}"
        )
        color = COLORS[i % len(COLORS)]
        parts.append(f'<circle cx="72" cy="{y - 4}" r="5" fill="{color}"/>')
        parts.append(text(86, y, words, "start"))
    caption = f"One thread of {document['machine']}; dashed: slopes of Table 1"
    parts.append(text(WIDTH / 2, 18, escape(caption), "middle"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
        f' {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="13" role="img" aria-label="Time'
        f' of layers by length and by width">\n{body}\n</svg>\n'
    )


def draw_panel(sweeps, left, right, words):
    """The parts of one of the two diagrams, both axes logarithmic."""
    sizes = [size for sweep in sweeps for size in sweep["sizes"]]
    seconds = [s for sweep in sweeps for s in sweep["seconds"]]
    powers = range(
        math.floor(math.log10(min(seconds))),
        math.ceil(math.log10(max(seconds))) + 1,
    )

    def x_of(size):
        share = math.log(size / min(sizes)) / math.log(max(sizes) / min(sizes))
        return left + 12 + share * (right - left - 24)

    def y_of(value):
        share = (math.log10(value) - powers[0]) / (powers[-1] - powers[0])
        return BOTTOM - share * (BOTTOM - TOP)

    parts = []
    for power in powers:
        y = y_of(10.0**power)
        parts.append(line(left, y, right, y, INK, ' stroke-opacity="0.3"'))
        parts.append(text(left - 6, y + 4, f"{10.0**power:g}", "end"))
    for size in sorted(set(sizes)):
        parts.append(text(x_of(size), BOTTOM + 18, size, "middle"))
    parts.append(text((left + right) / 2, BOTTOM + 38, words, "middle"))
    for i, sweep in enumerate(sweeps):
        color = COLORS[i % len(COLORS)]
        points = list(zip(sweep["sizes"], sweep["seconds"], strict=True))
        # The slope of the theory, through the last point.
        (first, _), (last, value) = points[0], points[-1]
        start = value * (first / last) ** sweep["theory"]
        start = max(start, 10.0 ** powers[0])
        where = last * (start / value) ** (1 / sweep["theory"])
        parts.append(
            line(
                x_of(where),
                y_of(start),
                x_of(last),
                y_of(value),
                color,
                ' stroke-dasharray="4 4"',
            )
        )
        joined = " ".join(f"{x_of(s):.1f},{y_of(v):.1f}" for s, v in points)
        parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{color}"'
            ' stroke-width="2" stroke-linejoin="round"/>'
        )
        for size, value in points:
            parts.append(
                f'<circle cx="{x_of(size):.1f}" cy="{y_of(value):.1f}" r="4"'
                f' fill="{color}"/>'
            )
    return parts


def line(x1, y1, x2, y2, color, more=""):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="{color}"{more}/>'
    )


def text(x, y, words, anchor, more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' fill="{INK}"{more}>{words}</text>'
    )


def escape(words):
    """Words as XML has them."""
    return words.replace("&", "&amp;").replace("<", "&lt;")


if __name__ == "__main__":
    main()
