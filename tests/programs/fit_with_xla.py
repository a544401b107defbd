"""`fit` under XLA, in a process whose XLA dumps every program it compiles.

    XLA_FLAGS=--xla_dump_to=DIR python fit_with_xla.py DATA.npz DIR WORK

The last line is a JSON object with the number of programs of each stage.
"""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_transformer as kt


class Stages:
    """Counts the programs that XLA dumps, stage by stage."""

    def __init__(self, dump):
        self.dump = pathlib.Path(dump)
        self.seen = set()
        self.counts = {}

    def end(self, name):
        files = set(self.dump.glob("*before_optimizations.txt"))
        self.counts[name] = len(files - self.seen)
        self.seen = files


def make_model(weights, sizes, **arguments):
    model = kt.Transformer(**sizes)
    model.set_weights(weights)
    model.compile(
        keras.optimizers.SGD(0.5), kt.SmoothedCrossEntropy(0.1), **arguments
    )
    return model


def main(data, dump, work):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    with np.load(data) as file:
        sizes = json.loads(str(file["sizes"]))
        inputs = {n: file[n] for n in ("source_ids", "target_ids")}
        labels = file["labels"]
        weights = [file[f"weight_{i}"] for i in range(int(file["count"]))]
    batch = tf.data.Dataset.from_tensors((inputs, labels))
    stages = Stages(dump)
    result = {}

    model = make_model(weights, sizes)  # "auto" on a machine without a GPU
    model.fit(batch, verbose=0)
    stages.end("auto")

    model = make_model(weights, sizes, jit_compile=True)
    model.fit(batch, verbose=0)
    stages.end("one_device")
    result["one_device"] = model.get_weights()

    path = f"{work}/model.keras"
    model.save(path)
    keras.saving.load_model(path).fit(batch, verbose=0)
    stages.end("loaded")

    # Without collectives: TensorFlow keeps their shapes under keys that every
    # strategy of a process counts from the same start.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = make_model(weights, sizes, jit_compile=True)
    model.fit(batch, verbose=0)
    stages.end("mirrored")
    result["mirrored"] = model.get_weights()

    for name, values in result.items():
        np.savez(f"{work}/{name}.npz", *values)
    print(json.dumps(stages.counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
