"""Measures the speed of training with this package, by the trainer's step.

    python benchmarks/peers/train_ours.py --data=FOLDER [--size=base]
        [--bfloat16]

Before the clock starts, a step is made with every shape of a batch, so that no
tracing is measured. A step's time includes its data and its update.
"""

# ruff: noqa: E402 (TensorFlow reads its threads when it is imported)
import os

import measurement

from keras_transformer.commands.startup import count_slices, prepare_cpu

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
SLICES = count_slices(
    measurement.CORES, measurement.BATCH_TOKENS, jit_compile=False
)
prepare_cpu(measurement.CORES, SLICES)

import keras
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.data.batches import make_batches
from keras_transformer.data.corpus import encode_corpus
from keras_transformer.data.files.records import read_parallel_files
from keras_transformer.training.step import TrainStep
from keras_transformer.training.update import StepOptions


def main():
    parser = measurement.training_parser(__doc__)
    parser.add_argument("--bfloat16", action="store_true")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    corpus = encode_corpus(
        read_parallel_files([arguments.data / "train"], "en", "de"),
        kt.Tokenizer.load(arguments.data / "tokenizer.model"),
        measurement.MAX_LENGTH,
    )
    batches = make_batches(corpus, measurement.BATCH_TOKENS, seed=1)
    step = make_step(arguments)
    for shape in batches.shapes:
        for inputs, labels in batches.largest_batch(shape):
            step(inputs, labels)
    steps = (
        (float(step(inputs, labels)), int(tf.math.count_nonzero(labels)))
        for inputs, labels in batches.dataset()
    )
    measurement.measure_training(steps, arguments, "tensorflow")


def make_step(arguments):
    """Returns the trainer's step, a function from a batch to its loss."""
    config = kt.preset(arguments.size, vocab_size=measurement.VOCAB_SIZE)
    dtype = "mixed_bfloat16" if arguments.bfloat16 else "float32"
    train_step = TrainStep(
        kt.Transformer(config, dtype=dtype),
        kt.paper_adam(config.d_model, warmup_steps=2000),
        StepOptions(measurement.LABEL_SMOOTHING),
        num_slices=SLICES,
    )

    @tf.function(reduce_retracing=True, autograph=False)
    def step(inputs, labels):
        result = train_step(inputs, labels)
        return result.loss_sum / result.num_tokens

    return step


if __name__ == "__main__":
    main()
