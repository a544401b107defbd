"""Somebody's own Keras model: bodies x forms x what Keras users do with it.

Each cell of the table is equal to the functional model on one device, or
refused in one sentence; see `own_models` and `own_cells`.
"""

import itertools
import json
import sys

import keras
import numpy as np
import own_cells
import own_models
import pytest
import references
import tensorflow as tf
from commands import run_python
from later import later
from own_cells import COLUMNS, Cell
from tolerance import assert_close

import keras_transformer as kt

FORM, BODY = "subclass", "Attention"


# Cells that no rule moves: a stack of layers, and the model itself.
LAWS = {("DecoderLayer", FORM, "keras_file"), ("Whole", FORM, "two_replicas")}


def rule_of(body, form, column):
    """The marks of a cell: `make test` has each form and column once."""
    usual = (form == FORM) + (column == "keras_file")
    if (body, form, column) in LAWS or body == BODY and usual:
        return ()
    if body == BODY or usual == 2 or form == "functional":
        return pytest.mark.slow("options")
    return pytest.mark.product


CELLS = [
    pytest.param(*cell, marks=rule_of(*cell), id="-".join(cell))
    for cell in itertools.product(own_models.BODIES, own_models.FORMS, COLUMNS)
]


@pytest.fixture(scope="module")
def strategies():
    """One of each number of replicas.

    In one process, a second strategy uses the keys of the first one's
    collectives, and TensorFlow refuses other shapes.
    """
    return {
        n: tf.distribute.MirroredStrategy([f"cpu:{i}" for i in range(n)])
        for n in (1, 2)
    }


@pytest.mark.parametrize("body, form, column", CELLS)
def test_a_cell_is_equal_or_refused(body, form, column, strategies, tmp_path):
    cell, run = Cell(body, form, tmp_path, strategies), COLUMNS[column]
    if sentence := own_cells.refusal(body, form, column):
        with pytest.raises(ValueError, match=sentence):
            run(cell)
    else:
        run(cell)


def test_the_reference_is_that_of_numpy():
    """Loss and metrics of `fit` at a learning rate of 0, and of `evaluate`."""
    model = own_models.compiled(
        own_models.make(BODY, "functional"), keras.optimizers.SGD(0.0)
    )
    ids, labels = own_models.batches()
    logits = model.predict(ids, verbose=0)
    token = labels != 0

    def mean(values, rows=slice(None)):
        return values[rows][token[rows]].mean()

    losses = references.smoothed_cross_entropy(labels, logits, 0.1)
    nll = references.smoothed_cross_entropy(labels, logits, 0.0)
    batches = [mean(losses, slice(i, i + 4)) for i in range(0, 12, 4)]
    found = own_models.trained(model)
    assert_close(found["loss"], [np.mean(batches)] * 2)
    assert_close(found["perplexity"], [np.exp(mean(nll))] * 2)
    hits = logits.argmax(-1) == labels
    assert_close(found["token_accuracy"], [mean(hits.astype(float))] * 2)


@pytest.mark.parametrize("rows", [12, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_counts_once_on_two_replicas(rows, weighted, strategies):
    """With unequal tokens, and with a last batch of one row."""
    ids, labels = own_models.batches(rows)
    weights = np.linspace(0.5, 2, rows) if weighted else None
    found = {}
    for number in (1, 2):
        with strategies[number].scope():
            keras.utils.set_random_seed(1)
            model = own_models.compiled(own_models.make(BODY))
        history = model.fit(
            ids,
            labels,
            sample_weight=weights,
            batch_size=4,
            epochs=2,
            shuffle=False,
            verbose=0,
        ).history
        values = model.evaluate(ids, labels, batch_size=4, verbose=0)
        found[number] = history, values, model.get_weights()
    assert_close(found[2], found[1])


OPTIMIZERS = {
    "paper_adam": lambda: kt.paper_adam(8, warmup_steps=4),
    "scheduled_adam": lambda: kt.scheduled_adam(kt.NoamSchedule(8, 4), 0.98),
    "constant": lambda: keras.optimizers.SGD(kt.ConstantSchedule(0.1, 3)),
    "cosine": lambda: keras.optimizers.SGD(kt.CosineSchedule(0.1, 3, 12)),
    "linear": lambda: keras.optimizers.SGD(kt.LinearSchedule(0.1, 3, 12)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_schedules_go_on_after_loading(name, tmp_path):
    cell = Cell(BODY, FORM, tmp_path)
    model = cell.make(OPTIMIZERS[name]())
    cell.trained(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 6
    assert_close(
        float(loaded.optimizer.learning_rate),
        float(model.optimizer.learning_rate),
    )
    assert_close(cell.trained(loaded), cell.trained(model))


@pytest.mark.parametrize(
    "name", [*OPTIMIZERS][:1] + later("options", *[*OPTIMIZERS][1:])
)
def test_optimizers_take_the_same_steps_on_two_replicas(name, strategies):
    """Adam magnifies the rounding of gradients: losses are compared."""
    losses = []
    for number in (1, 2):
        with strategies[number].scope():
            model = Cell(BODY, FORM, None).make(OPTIMIZERS[name]())
        losses.append(own_models.trained(model)["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@pytest.mark.slow("process")
def test_a_new_process_loads_a_model(tmp_path):
    model = Cell("Decoder", FORM, tmp_path).make()
    model.save(tmp_path / "model.keras")
    ids, _ = own_models.batches()
    np.save(tmp_path / "ids.npy", ids)
    code = f"""
import json, sys
sys.path.insert(0, {sys.path[0]!r})
import keras_transformer as kt, numpy as np, own_models, keras
model = keras.saving.load_model("model.keras")
print(json.dumps(model.predict(np.load("ids.npy"), verbose=0).tolist()))
"""
    (tmp_path / "load.py").write_text(code)
    found = run_python(
        tmp_path / "load.py",
        cwd=tmp_path,
        PYTHONPATH=":".join(sys.path),
    )
    assert_close(np.array(json.loads(found)), model.predict(ids, verbose=0))


@own_models.register
class Unbuildable(keras.Model):
    """Keras cannot call it on placeholders: its mask is an input."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = kt.PositionalEmbedding(13, 8)
        self.first = kt.MultiHeadAttention(2, 4)
        self.second = kt.FeedForward(12)

    def call(self, inputs):
        x = self.embedding(inputs["ids"])
        x = self.first(x, x, attention_mask=inputs["mask"])
        return self.second(x)


@own_models.register
class Gathers(keras.Model):
    """What fails is not a layer of ours; what it leaves unbuilt is."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.second = kt.FeedForward(12)

    def call(self, inputs):
        if "int" not in keras.backend.standardize_dtype(inputs.dtype):
            raise TypeError("no integers")
        return self.second(keras.ops.one_hot(inputs, 8))


@pytest.mark.parametrize("kind", [Unbuildable, Gathers])
def test_weights_are_not_lost_in_silence(kind, tmp_path):
    """Keras swallows the error of a model that it cannot build."""
    ids = np.ones((2, 3), "int32")
    inputs = ids if kind is Gathers else {"ids": ids, "mask": ids == 1}
    model = kind()
    model(inputs)
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="cannot be built automatically"):
        with pytest.raises(ValueError, match="give it a method `build`"):
            keras.saving.load_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    other = kind()
    other(inputs)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(inputs), model(inputs))


def test_a_functional_model_trains_the_matrix_of_its_logits():
    """Beside the embedding alone, whose gradient is another."""
    ids = keras.Input((None,), dtype="int32")
    embedding = kt.PositionalEmbedding(13, 8)
    model = keras.Model(ids, embedding.logits(embedding(ids)))
    table = tf.Variable(embedding.embeddings.numpy())
    rows, labels = own_models.batches()

    def own(table):
        x = tf.gather(table, rows) * 8**0.5 + kt.positional_encoding(5, 8)
        return x @ tf.transpose(table)

    loss = kt.SmoothedCrossEntropy(0.1)
    with tf.GradientTape() as tape:
        expected = tape.gradient(loss(labels, own(table)), table)
    with tf.GradientTape() as tape:
        value = loss(labels, model(rows))
    [found] = tape.gradient(value, model.trainable_variables)
    assert_close(tf.convert_to_tensor(found), tf.convert_to_tensor(expected))
    with pytest.raises(ValueError, match="the matrix would be a constant"):
        embedding.sum(ids)
