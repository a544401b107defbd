"""Runs a function with XLA, and keeps its program: `DIRECTORY`."""

import sys

from keras_transformer import startup

startup.keep_xla_programs(sys.argv[1])
startup.load_tensorflow()

import tensorflow as tf  # noqa: E402

multiply = tf.function(lambda x: x @ x + 1, jit_compile=True)
print(multiply(tf.ones((2, 2))).numpy().tolist())
