"""Training speed if a step were only one large matrix product.

    python benchmarks/peers/ceiling.py --data=FOLDER [--size=base] [--bfloat16]

Prints the target tokens per second that these cores would reach if every
product of a training step, forward and backward, ran as fast as a product of
two square matrices of width 2,048 in TensorFlow. A pair has the mean lengths of
the training set.
"""

import os
import pathlib
import sys

import measurement

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(pathlib.Path(__file__).parents[1]))

import formulas
import tensorflow as tf

import keras_transformer as kt

WIDTH = 2048
REPETITIONS = 10  # products per step, as the kernel's clock ticks are coarse


def main():
    parser = measurement.training_parser(__doc__)
    parser.add_argument("--bfloat16", action="store_true")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(measurement.CORES)
    multiply = make_product(tf.bfloat16 if arguments.bfloat16 else tf.float32)
    product_flops = formulas.FLOPS_OF_MULTIPLY_ADD * WIDTH**3
    tokens = product_flops / flops_per_token(arguments)

    def multiply_often():
        while True:
            for _ in range(REPETITIONS):
                multiply()
            yield 0.0, REPETITIONS * tokens  # there is no loss

    measurement.measure_training(multiply_often(), arguments, "tensorflow")


def make_product(dtype):
    """Returns a function that multiplies two matrices, and waits."""
    left, right = (
        tf.cast(tf.random.normal([WIDTH, WIDTH]), dtype) for _ in range(2)
    )
    product = tf.function(lambda: tf.linalg.matmul(left, right))
    return lambda: product().numpy()


def flops_per_token(arguments):
    """Returns the FLOPs of a training step's products, per target token."""
    config = kt.preset(arguments.size, vocab_size=measurement.VOCAB_SIZE)
    source, target = (
        mean_length(arguments.data / f"train.pieces.{language}")
        for language in ("en", "de")
    )
    forward = formulas.multiply_adds(config, source, target) / target
    return formulas.FLOPS_OF_MULTIPLY_ADD * formulas.PASSES * forward


def mean_length(path):
    """Returns the mean number of tokens of a sentence, EOS included."""
    lines = measurement.read_lines(path)
    return sum(len(line.split()) + 1 for line in lines) / len(lines)


if __name__ == "__main__":
    main()
