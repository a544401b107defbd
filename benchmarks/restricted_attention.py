"""Time and memory of restricted self-attention beside full self-attention.

    python benchmarks/restricted_attention.py
    python benchmarks/restricted_attention.py --step

Without --step: one layer of self-attention, forward and backward, for one
sentence, at d_model 512 and 8 heads. With --step: one training step of the base
model, dropout, loss and Adam included, on one pair of a long source and a short
target. Each measurement is a process of its own, whose peak is the kernel's
ru_maxrss; full and restricted take turns, round by round. Prints a JSON line
for each measurement, and a table of medians.

Full attention at n = 8,192 needs some 20 GiB for the layer and more for the
step. `--full_lengths` says up to where it is measured. For the lengths beyond,
the table has the memory of a curve a + b n + c n^2 through the measured ones,
and says so; nothing is said of the time.
"""

import argparse
import json
import resource
import statistics
import time

import numpy as np
from processes import measure_apart
from results import add_flag, parse_table, record

D_MODEL, NUM_HEADS = 512, 8  # of the base model
TARGET_TOKENS = 128  # of the training step
MIB = 2**20


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child))))
        return
    found = {}
    for _ in range(arguments.rounds):
        for length in arguments.lengths:
            for window in (None, arguments.window):
                if window is None and length not in arguments.full_lengths:
                    continue
                case = {
                    "step": arguments.step,
                    "length": length,
                    "window": window,
                    "repeats": arguments.repeats,
                }
                result = measure_apart(__file__, case, {})
                print(json.dumps({**case, **result}), flush=True)
                found.setdefault((length, window), []).append(result)
    shown = table(found, arguments.lengths, arguments.window)
    print(shown)
    if arguments.record:
        name, what = "restricted_attention", "One layer of self-attention"
        if arguments.step:
            name, what = f"{name}_step", "A training step of `base`"
        title = f"{what}, restricted and full, by length"
        record(name, title, {"lengths": parse_table(shown)})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )

    def lengths(text):
        return [int(number) for number in text.split(",")]

    parser.add_argument("--step", action="store_true", help="a training step")
    parser.add_argument("--window", type=int, default=128, help="r")
    parser.add_argument(
        "--lengths", type=lengths, default=[512, 1024, 2048, 4096, 8192]
    )
    parser.add_argument(
        "--full_lengths",
        type=lengths,
        default=[512, 1024, 2048, 4096],
        help="those at which full attention is measured, too",
    )
    parser.add_argument("--rounds", type=int, default=3)
    add_flag(parser)
    parser.add_argument("--repeats", type=int, default=3, help="in a process")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    measured = set(arguments.lengths) & set(arguments.full_lengths)
    if len(measured) < min(3, len(arguments.lengths)):
        parser.error(
            "a curve of memory needs full_lengths at three of the lengths."
            f" Received: {sorted(measured)}"
        )
    return arguments


def measure(case):
    """Seconds of each repeat after the first, and MiB: before, and at most."""
    make = make_step if case["step"] else make_layer
    run = make(case["length"], case["window"])
    before = peak()
    run()
    seconds = []
    for _ in range(case["repeats"]):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "mib_before": before, "mib_peak": peak()}


def peak():
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def make_layer(length, window):
    """A function that runs self-attention forward and backward."""
    import tensorflow as tf

    import keras_transformer as kt
    from keras_transformer.layers.chunks import centered_neighborhood

    sizes = NUM_HEADS, D_MODEL // NUM_HEADS, D_MODEL // NUM_HEADS
    if window is None:
        layer = kt.MultiHeadAttention(*sizes)
    else:
        layer = kt.layers.RestrictedAttention(
            *sizes, neighborhood=centered_neighborhood(window)
        )
    layer.build((1, length, D_MODEL), (1, length, D_MODEL))
    x = tf.random.normal((1, length, D_MODEL))

    @tf.function
    def forward_and_backward(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, x))
        gradients = tape.gradient(loss, [x, *layer.trainable_weights])
        return [tf.reduce_sum(gradient) for gradient in gradients]

    # So that the memory of tracing and of the libraries is no difference.
    forward_and_backward(tf.random.normal((1, 8, D_MODEL)))
    return lambda: [float(g) for g in forward_and_backward(x)]


def make_step(length, window):
    """A function that trains the base model on one long sentence."""
    import keras_transformer as kt

    config = kt.preset("base", attention_window=window)
    model = kt.Transformer(config)
    model.compile(
        kt.paper_adam(config.d_model, warmup_steps=4000),
        kt.SmoothedCrossEntropy(0.1),
    )

    def batch(length):
        random = np.random.default_rng(0)
        source_ids = random.integers(4, config.vocab_size, (1, length))
        pair = random.integers(4, config.vocab_size, (1, TARGET_TOKENS + 1))
        inputs = {"source_ids": source_ids, "target_ids": pair[:, :-1]}
        return inputs, pair[:, 1:]

    model.train_on_batch(*batch(8))
    inputs, labels = batch(length)
    return lambda: float(model.train_on_batch(inputs, labels))


def table(found, lengths, window):
    """The medians as a table; memory excludes the imported libraries."""

    def median(length, window, read):
        return statistics.median(map(read, found[length, window]))

    def mib(result):
        return result["mib_peak"] - result["mib_before"]

    def seconds(result):
        return statistics.median(result["seconds"])

    measured = [n for n in lengths if (n, None) in found]
    curve = None
    if len(measured) < len(lengths):
        memory = [median(n, None, mib) for n in measured]
        curve = np.polyfit(measured, memory, 2)
    lines = [
        f"| n | full, s | r = {window}, s | ratio of time | full, MiB |"
        f" r = {window}, MiB | ratio of memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in lengths:
        ours, our_mib = median(n, window, seconds), median(n, window, mib)
        if n in measured:
            full, full_mib = median(n, None, seconds), median(n, None, mib)
            times = f"{full:.3f} | {ours:.3f} | {ours / full:.2f}"
            memory = f"{full_mib:,.0f}"
        else:
            full_mib = np.polyval(curve, n)
            times = f"- | {ours:.3f} | -"
            memory = f"{full_mib:,.0f} (extrapolated)"
        lines.append(
            f"| {n:,} | {times} | {memory} | {our_mib:,.0f} |"
            f" {our_mib / full_mib:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
