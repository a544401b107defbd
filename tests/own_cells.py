"""What Keras users do with a model: a function for each column of a table.

Each compares a model of `own_models`, a body in a form, with the functional
model of the same weights, which trains on one device. A failure means that a
cell is silently different, a ValueError that it is refused.
"""

import copy
import dataclasses
import functools
import pickle
import typing
import warnings

import keras
import numpy as np
import own_models
from tolerance import assert_close


@dataclasses.dataclass
class Reference:
    """The functional model of a body: its weights, history, predictions."""

    weights: list
    before: np.ndarray
    history: dict
    after: np.ndarray


@functools.cache
def reference(body):
    keras.utils.set_random_seed(3)
    model = own_models.compiled(own_models.make(body, "functional"))
    ids, _ = own_models.batches()
    weights, before = model.get_weights(), model.predict(ids, verbose=0)
    history = own_models.trained(model, "functional")
    return Reference(weights, before, history, model.predict(ids, verbose=0))


@dataclasses.dataclass
class Cell:
    """A body in a form, and the folder of its files."""

    body: str
    form: str
    folder: typing.Any
    strategies: typing.Any = None  # by number of replicas

    @property
    def expected(self):
        return reference(self.body)

    @property
    def ids(self):
        return own_models.inputs_of(self.form, own_models.batches()[0])

    def make(self, *optimizer, **options):
        """Makes a compiled model with the reference's weights."""
        weights = self.expected.weights
        model = own_models.make(self.body, self.form, weights)
        return own_models.compiled(model, *optimizer, **options)

    def run(self, column):
        """Runs a column. It is a method because of `half_precision`."""
        return COLUMNS[column](self)

    def trained(self, model, as_data=own_models.arrays):
        return own_models.trained(model, self.form, as_data)

    def predicted(self, model):
        return model.predict(self.ids, verbose=0)

    def trains_as_expected(self, model, as_data=own_models.arrays):
        assert_close(self.trained(model, as_data), self.expected.history)
        assert_close(self.predicted(model), self.expected.after)

    def predicts_as_expected(self, model):
        assert_close(self.predicted(model), self.expected.before)


def fit(cell):
    cell.trains_as_expected(cell.make())


def several_steps(cell):
    cell.trains_as_expected(cell.make(steps_per_execution=3))


def xla(cell):
    cell.trains_as_expected(cell.make(jit_compile=True))


def train_on_batch(cell):
    model, other = cell.make(), cell.make()
    ids, labels = own_models.batches()
    for i in range(0, len(ids), 4):
        rows = own_models.inputs_of(cell.form, ids[i : i + 4])
        model.train_on_batch(rows, labels[i : i + 4])
    other.fit(cell.ids, labels, batch_size=4, shuffle=False, verbose=0)
    assert_close(cell.predicted(model), cell.predicted(other))


def keras_file(cell):
    """A loaded model continues with Adam's moments, and without warnings."""
    model, path = cell.make("adam"), cell.folder / "model.keras"
    cell.trained(model)
    model.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loaded = keras.saving.load_model(path)
    expected = cell.predicted(model)
    np.testing.assert_array_equal(cell.predicted(loaded), expected)
    assert_close(cell.trained(loaded), cell.trained(model))


def weights_file(cell):
    path = cell.folder / "model.weights.h5"
    cell.make().save_weights(path)
    other = own_models.make(cell.body, cell.form)
    other.load_weights(path)
    cell.predicts_as_expected(other)


def with_weights_of(cell, model, other):
    other(cell.ids)
    other.set_weights(model.get_weights())
    cell.predicts_as_expected(other)


def config(cell):
    model = cell.make()
    with_weights_of(cell, model, type(model).from_config(model.get_config()))


def clone_model(cell):
    model = cell.make()
    with_weights_of(cell, model, keras.models.clone_model(model))


def pickled(cell):
    cell.predicts_as_expected(pickle.loads(pickle.dumps(cell.make())))


def deepcopy(cell):
    cell.predicts_as_expected(copy.deepcopy(cell.make()))


def export(cell):
    import tensorflow as tf

    ids = keras.InputSpec(shape=(None, None), dtype="int32")
    signature = [own_models.inputs_of(cell.form, ids)]
    cell.make().export(
        cell.folder / "export", verbose=False, input_signature=signature
    )
    loaded = tf.saved_model.load(str(cell.folder / "export"))
    assert_close(loaded.serve(cell.ids).numpy(), cell.expected.before)


def under(replicas):
    def mirrored(cell):
        with cell.strategies[replicas].scope():
            model = cell.make()
        cell.trains_as_expected(model, own_models.dataset)

    return mirrored


def mixed(policy):
    def in_half_precision(cell):
        """Training is close to float32, and loading gives equal bits."""
        history, before = cell.expected.history, keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            model, path = cell.make(), cell.folder / "model.keras"
            found = cell.trained(model)
            np.testing.assert_allclose(
                found["loss"], history["loss"], rtol=0.03
            )
            model.save(path)
            loaded = keras.saving.load_model(path)
            expected = cell.predicted(model)
            np.testing.assert_array_equal(cell.predicted(loaded), expected)
        finally:
            keras.config.set_dtype_policy(before)

    return in_half_precision


ANYWHERE = {
    "fit": fit,
    "steps_per_execution": several_steps,
    "jit_compile": xla,
    "train_on_batch": train_on_batch,
    "keras_file": keras_file,
    "weights_file": weights_file,
    "config": config,
    "clone_model": clone_model,
    "pickle": pickled,
    "deepcopy": deepcopy,
    "mixed_bfloat16": mixed("mixed_bfloat16"),
}
ON_TENSORFLOW = {
    "mixed_float16": mixed("mixed_float16"),
    "export": export,
    "one_replica": under(1),
    "two_replicas": under(2),
}
COLUMNS = {**ANYWHERE, **ON_TENSORFLOW}


def refusal(body, form, column):
    """Returns the message that refuses a cell, or None if it works."""
    in_row = form == "sequential" and body in own_models.ROWS
    if column.startswith("mixed_") and (in_row or form == "nested"):
        return "floats of half precision cannot tell ids above 256 apart"
    return None
