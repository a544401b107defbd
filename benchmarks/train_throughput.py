"""Training speed, in real target tokens a second, as the peers measure theirs.

    python benchmarks/train_throughput.py --peers=DIR --data=DIR --size=tiny

Batches, model, loss and update are those of a training run on the peers' ids
of Multi30k: post-norm, label smoothing 0.1, at most 4,096 tokens of the longer
side, padding included. A step's time has its data and its update in it. Padding
is not counted, EOS is. Before the clock starts, a step is made with every shape
of a batch, so that neither tracing nor compiling is measured.
"""

# ruff: noqa: E402 (TensorFlow reads its threads when it is imported)
import argparse
import os
import sys

from keras_transformer.commands.startup import (
    count_cores,
    count_slices,
    prepare_cpu,
)

THREADS = int(os.environ.get("OMP_NUM_THREADS", count_cores()))
BATCH_TOKENS = 4096  # of the peers
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# As the trainer does, before TensorFlow is there.
SLICES = count_slices(THREADS, BATCH_TOKENS, "--jit_compile" in sys.argv)
prepare_cpu(THREADS, SLICES)

import keras
import tensorflow as tf
from peers import load_reporter, read_corpus

import keras_transformer as kt
from keras_transformer.data.batches import make_batches
from keras_transformer.training.step import TrainStep


def main():
    arguments = parse_arguments()
    reporter = load_reporter(arguments.peers)
    keras.utils.set_random_seed(1)
    step = make_step(arguments, reporter.VOCAB)
    corpus = read_corpus(f"{arguments.data or reporter.DATA}/train.ids.json")
    batches = make_batches(corpus, BATCH_TOKENS, seed=1)
    reporter.log(batches)
    warm_up(step, batches)
    records = measure(step, batches, arguments, reporter)
    variant = {"float32": "fp32", "mixed_bfloat16": "bf16"}[arguments.precision]
    if arguments.jit_compile:
        variant += "-xla"
    reporter.report_training(
        "keras-transformer", arguments.size, variant, records
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", required=True, help="the peers' scripts")
    parser.add_argument("--data", help="the peers' data; default: their own")
    parser.add_argument("--size", default="tiny", choices=["tiny", "base"])
    parser.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "mixed_bfloat16"],
    )
    parser.add_argument("--jit_compile", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--skip",
        type=int,
        default=2,
        help="steps after the warm-up that are not measured either",
    )
    return parser.parse_args()


def make_step(arguments, vocab_size):
    """The training step as the trainer runs it."""
    config = kt.preset(arguments.size, vocab_size=vocab_size)
    model = kt.Transformer(config, dtype=arguments.precision)
    optimizer = kt.paper_adam(config.d_model, warmup_steps=2000)
    train_step = TrainStep(
        model,
        optimizer,
        label_smoothing=0.1,
        jit_compile=arguments.jit_compile,
        accumulate_steps=1,
        clip_norm=0.0,
        num_slices=SLICES,
    )

    @tf.function(reduce_retracing=True, autograph=False)
    def step(inputs, labels):
        result = train_step(inputs, labels)
        return result.loss_sum / result.num_tokens

    return step


def warm_up(step, batches):
    """Makes a step with each shape of a batch."""
    for shape in batches.shapes:
        for inputs, labels in batches.largest_batch(shape):
            step(inputs, labels)


def measure(step, batches, arguments, reporter):
    """A dictionary of times and counts for every measured step."""
    records = []
    clock = reporter.Clock()
    dataset = batches.dataset().take(arguments.skip + arguments.steps)
    for inputs, labels in dataset:
        loss = float(step(inputs, labels))
        seconds, foreign = clock.lap()
        if not loss < 1e4:
            raise SystemExit(f"The loss is not finite: {loss}")
        records.append(
            {
                "sec": seconds,
                "src": int(tf.math.count_nonzero(inputs["source_ids"])),
                "trg": int(tf.math.count_nonzero(labels)),
                "pairs": int(tf.math.count_nonzero(labels[:, 0])),
                "padded_trg": int(tf.size(labels)),
                "foreign": foreign,
            }
        )
    return records[arguments.skip :]


if __name__ == "__main__":
    main()
