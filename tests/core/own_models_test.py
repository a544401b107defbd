"""Keras models of users: bodies x forms x what Keras users do with them.

Each cell of the table is equal to the functional model on one device, or
refused in one sentence; see `own_models` and `own_cells`.
"""

import inspect
import itertools
import json

import keras
import numpy as np
import own_cells
import own_models
import pytest
import references
import tensorflow as tf
from later import later
from own_cells import COLUMNS, Cell
from tolerance import assert_close

import keras_transformer as kt
from keras_transformer import layers

FORM, BODY = "subclass", "Attention"


# Cells that no rule moves: a stack of layers, for one.
LAWS = {
    ("DecoderLayer", FORM, "keras_file"),
    (BODY, "nested", "keras_file"),
    (BODY, "sequential", "keras_file"),
    ("Tied", "functional", "fit"),
}


def rule_of(body, form, column):
    """Returns the marks of a cell. `make test` has each column once."""
    usual = (form == FORM) + (column == "keras_file")
    if (body, form, column) in LAWS or body == BODY and form == FORM:
        return ()
    is_model = (body, form, column) == ("Whole", FORM, "two_replicas")
    if body == BODY or usual == 2 or form == "functional" or is_model:
        return pytest.mark.slow("options")
    return pytest.mark.product


CELLS = [
    pytest.param(*cell, marks=rule_of(*cell), id="-".join(cell))
    for cell in itertools.product(own_models.BODIES, own_models.FORMS, COLUMNS)
]


@pytest.fixture(scope="module")
def strategies():
    """A strategy for each number of replicas, with its own collective keys.

    All strategies of a process count the keys of their collectives from the
    same start, and TensorFlow refuses another shape under a key that a training
    of another file has used.
    """

    def make(number):
        class Mirrored(tf.distribute.MirroredStrategy):
            _collective_key_base = 1000 * number

        return Mirrored([f"cpu:{i}" for i in range(number)])

    return {number: make(number) for number in (1, 2)}


@pytest.mark.parametrize("body, form, column", CELLS)
def test_a_cell_is_equal_or_refused(body, form, column, strategies, tmp_path):
    cell = Cell(body, form, tmp_path, strategies)
    if sentence := own_cells.refusal(body, form, column):
        with pytest.raises(ValueError, match=sentence):
            cell.run(column)
    else:
        cell.run(column)


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


@pytest.mark.parametrize(  # 9 rows: replicas get different numbers
    ("rows", "weighted"),
    [(9, True), *later("options", (12, False), (12, True), (9, False))],
)
def test_the_loss_counts_once_on_two_replicas(rows, weighted, strategies):
    """Replicas have unequal tokens, and the last batch has one row."""
    ids, labels = own_models.batches(rows)
    arrays = [ids, labels]
    arrays += [np.linspace(0.5, 2, rows)] * weighted
    data = tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(4)
    found = {}
    for number in (1, 2):
        with strategies[number].scope():
            keras.utils.set_random_seed(1)
            model = own_models.compiled(own_models.make(BODY))
        history = model.fit(data, epochs=2, verbose=0).history
        values = model.evaluate(data, verbose=0)
        found[number] = history, values, model.get_weights()
    assert_close(found[2], found[1])


@own_models.register
class Unbuildable(keras.Model):
    """A model that Keras cannot call on placeholders: a mask is an input."""

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
class KerasLoses(Unbuildable):
    """A model that leaves only Keras' layer unbuilt: ours reports failure."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.second = keras.layers.Dense(12)


@own_models.register
class Gathers(keras.Model):
    """A model that fails outside our layers, and leaves ours unbuilt."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.second = kt.FeedForward(12)

    def call(self, inputs):
        if "int" not in keras.backend.standardize_dtype(inputs.dtype):
            raise TypeError("no integers")
        return self.second(keras.ops.one_hot(inputs, 8))


@pytest.mark.parametrize("kind", [Unbuildable, KerasLoses, Gathers])
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
    with pytest.raises(ValueError, match="this method needs its weights"):
        embedding.sum(ids)


# ---- What Keras users type ---------------------------------------------------

X = np.ones((2, 5, 8), "float32")
MASK = np.ones((2, 5), "int32")
IDS, LABELS = own_models.batches()
INPUTS = {"source_ids": IDS, "target_ids": IDS}
RAGGED = tf.ragged.constant([[3, 4], [5]] * 6, dtype="int32")


def attention(**options):
    return kt.MultiHeadAttention(2, 4, **options)


def encoder_layer(**options):
    return kt.EncoderLayer(d_model=8, d_ff=12, num_heads=2, **options)


def positional(**options):
    return kt.PositionalEmbedding(13, 8, **options)


# What users of Keras' layers write, and what the refusal names.
WORDS = {
    "expected d_key": lambda: attention(key_dim=4),
    "set_weights": lambda: attention(kernel_initializer="he_normal"),
    "expected pre_norm": lambda: encoder_layer(normalize_first=True),
    r"kt.padding_mask\(ids\)": lambda: positional(mask_zero=True),
    "vocab_size": lambda: kt.PositionalEmbedding(input_dim=9, output_dim=8),
    "Unrecognized keyword arguments": lambda: attention(speed=1),
    "a third sequence is not read": lambda: attention()(X, X, X),
    "come from one sequence": lambda: attention()(X, X, key=X),
    "int32": lambda: attention()(X, X, attention_mask=MASK),
    "recorded_weights": lambda: attention()(X, X, return_attention_scores=True),
    "kt.causal_mask": lambda: attention()(X, X, use_causal_mask=True),
    "expected attention_mask": lambda: encoder_layer()(
        X, padding_mask=MASK > 0
    ),
    "'gelu_tanh'": lambda: kt.FeedForward(12, activation="tanh"),
    r"\[1, 2, 5, 8\]": lambda: attention()(X[None], X[None]),
    r"\[N, D\]": lambda: kt.FeedForward(12)(keras.Input((2, 5, 8))),
    r"shape \[5, 8\]": lambda: attention()(X, X[0]),
    "start=1": lambda: positional()(X, start=1, reverse=True),
    "dtype bool": lambda: positional()(IDS > 0),
    r"\[1, 12, 5\]": lambda: positional()(IDS[None]),
    "to_tensor": lambda: positional()(RAGGED),
}


@pytest.mark.parametrize("named", WORDS)
def test_words_of_keras_name_ours(named):
    with pytest.raises(ValueError, match=named):
        WORDS[named]()


@pytest.mark.parametrize(
    "activation, name",
    [
        ("silu", "swish"),
        (keras.activations.silu, "swish"),
        (keras.activations.gelu, "gelu"),
        (keras.activations.relu, "relu"),
    ],
)
def test_activations_of_keras(activation, name):
    """A layer with Keras' name or function is the layer with ours."""
    layer = encoder_layer(activation=activation)
    assert layer.config.activation == name
    other = type(layer).from_config(layer.get_config())
    layer(X), other(X)
    other.set_weights(layer.get_weights())
    np.testing.assert_array_equal(other(X), layer(X))
    dense = keras.layers.Dense(12, activation=activation)
    ours = kt.FeedForward(12, activation=activation)
    dense(X), ours(X)
    dense.set_weights(ours.inner.get_weights())
    assert_close(ours.inner(X), dense(X))


def test_a_value_is_as_wide_as_a_key():
    layer = attention()
    layer(X, X)
    other = type(layer).from_config(layer.get_config())
    other(X, X)
    shapes = [weight.shape for weight in layer.weights]
    assert shapes == [(8, 8), (8, 8), (8, 8), (8, 8)]
    assert [weight.shape for weight in other.weights] == shapes


LABEL_MISTAKES = {
    "one-hot": np.eye(13, dtype="float32")[LABELS],
    "too short": LABELS[:, :4],
    "of rows": LABELS[:, 0],
    "ragged": RAGGED,
}


@pytest.mark.parametrize("labels", LABEL_MISTAKES)
@pytest.mark.parametrize("whole", [False, True], ids=["own", "Transformer"])
def test_labels_are_the_ids_of_tokens(labels, whole):
    model = own_models.compiled(
        kt.Transformer(vocab_size=13, **own_models.STACK)
        if whole
        else own_models.make("Embedding")
    )
    sentence = "expected labels padded to one length"
    if labels != "ragged":
        sentence = r"expected labels int \[B, T\].*: \[None, 5\]. Received"
    with pytest.raises(ValueError, match=sentence):
        inputs = INPUTS if whole else IDS
        model.fit(inputs, LABEL_MISTAKES[labels], verbose=0)


@pytest.mark.parametrize("loss", ["ours", "keras", "own"])
def test_class_weight_is_refused(loss):
    """Keras makes weights of rows of it, by the place of the largest id."""
    model, inputs = own_models.make("Embedding"), IDS
    if loss != "own":
        model = kt.Transformer(vocab_size=13, **own_models.STACK)
        inputs = INPUTS
    own_models.compiled(model)
    if loss == "keras":
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy())
    weight = {i: 1.0 + i for i in range(13)}
    data = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(4)
    for act in (
        lambda: model.fit(inputs, LABELS, class_weight=weight, verbose=0),
        lambda: model.fit(data, class_weight=weight, verbose=0),
        lambda: model.train_on_batch(inputs, LABELS, None, weight),
    ):
        with pytest.raises(
            ValueError, match=r"expected sample_weight \[B, T\]"
        ):
            act()
    if loss != "keras":
        rows = np.linspace(0.5, 2, 12)
        model.fit(inputs, LABELS, sample_weight=rows, verbose=0)


# ---- Subclasses, and what surrounds a layer ----------------------------------


class Halved(kt.Transformer):
    """A model with other logits than the base class."""

    def call(self, inputs, training=None):
        return 0.5 * super().call(inputs, training=training)


class Decoded(kt.Transformer):
    def decode(self, target_ids, memory):
        return 0.5 * super().decode(target_ids, memory)


class Penalized(kt.Transformer):
    def compute_loss(self, *args, **options):
        return 3.0 + super().compute_loss(*args, **options)


class Tripled(kt.SmoothedCrossEntropy):
    def call(self, y_true, y_pred):
        return 3.0 * super().call(y_true, y_pred)


@pytest.mark.parametrize(
    "kind, loss, factor, added",
    [
        (kt.Transformer, kt.SmoothedCrossEntropy, 1.0, 0.0),
        (Halved, kt.SmoothedCrossEntropy, 0.5, 0.0),
        (Decoded, kt.SmoothedCrossEntropy, 0.5, 0.0),
        (Penalized, kt.SmoothedCrossEntropy, 1.0, 3.0),
        (kt.Transformer, Tripled, 1.0, 0.0),
    ],
)
def test_what_a_subclass_overrides_is_trained(kind, loss, factor, added):
    """`fit` has the loss of what the subclass computes, without metrics too."""
    keras.utils.set_random_seed(2)
    model = kind(vocab_size=13, **own_models.STACK)
    base = kt.Transformer(vocab_size=13, **own_models.STACK)
    base.set_weights(model.get_weights())
    logits = factor * base.predict(INPUTS, verbose=0)
    losses = references.smoothed_cross_entropy(LABELS, logits, 0.1)
    expected = losses[LABELS != 0].mean() * (3 if loss is Tripled else 1)
    model.compile(keras.optimizers.SGD(0.0), loss(0.1))
    history = model.fit(INPUTS, LABELS, batch_size=12, verbose=0).history
    assert_close(history["loss"], [expected + added])


@own_models.register
class Adds(own_models.Subclass):
    """A model whose layers add a loss."""

    def call(self, ids, training=None):
        x = super().call(ids)
        self.add_loss(keras.ops.mean(keras.ops.square(x)))
        return x


def test_added_losses_on_replicas_are_refused(strategies):
    """Replicas exchange numbers in the loss; others' losses would count."""
    data = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(4)
    with strategies[2].scope():
        model = Adds(BODY)
        model(IDS[:4])
        model.compile("sgd", kt.SmoothedCrossEntropy(0.1))
    with pytest.raises(ValueError, match="no add_loss and no activity_reg"):
        model.fit(data, verbose=0)
    one = Adds(BODY)
    one(IDS[:4])
    one.compile(keras.optimizers.SGD(0.0), kt.SmoothedCrossEntropy(0.1))
    found = one.fit(IDS, LABELS, batch_size=12, verbose=0).history["loss"]
    logits = one.predict(IDS, verbose=0)
    losses = references.smoothed_cross_entropy(LABELS, logits, 0.1)
    expected = losses[LABELS != 0].mean() + np.square(logits).mean()
    assert_close(found, [expected])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_causal_mask_of_half_precision_is_causal(dtype):
    """Half precision counts only to 256 or 2,048."""
    values = keras.ops.zeros((1, 2100), dtype)
    found = kt.causal_mask(values)[0, 0].numpy()
    np.testing.assert_array_equal(found, np.tri(2100, dtype=bool))


POLICY = keras.DTypePolicy("float64")
LAYERS = {
    "attention": lambda: kt.MultiHeadAttention(2, 4, 3, 0.1, True),
    "positions": lambda: kt.PositionalEmbedding(
        13, 8, 0.1, None, 0, False, True
    ),
    "feed_forward": lambda: kt.FeedForward(
        12, 0.1, keras.activations.silu, dtype=POLICY
    ),
    "encoder": lambda: encoder_layer(dropout=0.1, dtype=POLICY),
    "relative": lambda: layers.RelativeAttention(2, 4, 3, 5, dropout=0.1),
    "restricted": lambda: layers.RestrictedAttention(
        2, 4, 3, (2, 1), dtype=POLICY
    ),
    "learned": lambda: layers.LearnedPositions(7, 8),
    "residual": lambda: layers.Residual(0.1, True, 1e-5, dtype=POLICY),
    "softmax": lambda: layers.SoftmaxProjection(13, 8, True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_configuration_of_a_layer_is_complete(name):
    """Through JSON, as a file has it; every argument is there."""
    layer = LAYERS[name]()
    config = layer.get_config()
    read = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    other = keras.saving.deserialize_keras_object(read)
    assert other.get_config() == config
    arguments = inspect.signature(type(layer).__init__).parameters
    assert set(arguments) - {"self", "kwargs", "config"} <= set(config)
    assert other.dtype_policy.name == layer.dtype_policy.name


def test_a_subclass_may_have_the_words_of_others():
    class Masked(kt.EncoderLayer):
        def __init__(self, hidden_dim, **options):
            super().__init__(d_model=hidden_dim, d_ff=12, **options)

        def call(self, x, padding_mask=None):
            return super().call(x, padding_mask)

    layer = Masked(hidden_dim=8, num_heads=2)
    base = encoder_layer()
    base(X), layer(X)
    base.set_weights(layer.get_weights())
    mask = np.arange(5) < [[2], [4]]
    assert_close(layer(X, padding_mask=mask), base(X, attention_mask=mask))


def test_a_refused_call_of_a_built_model_loses_nothing(tmp_path):
    model = own_models.Built(BODY)
    model.build((None, 5))
    with pytest.raises(ValueError):
        model(IDS[None])
    other = own_models.make(BODY)
    other.save_weights(tmp_path / "a.weights.h5")
    model.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(model(IDS), other(IDS))


def test_methods_that_need_weights_say_so(tmp_path):
    for act in (
        lambda: attention().project(X),
        lambda: kt.PositionalEmbedding(13, 8).logits(X),
        lambda: kt.PositionalEmbedding(13, 8).sum(IDS),
    ):
        with pytest.raises(ValueError, match="Received: a layer that is not"):
            act()
    layer = attention()
    layer(X, X)
    symbolic = keras.Input((5, 8))
    model = keras.Model(symbolic, layer.project(symbolic).keys)
    with pytest.raises(NotImplementedError, match="of calls of layers"):
        model.save(tmp_path / "model.keras")


@own_models.register
class Scaled(kt.FeedForward):
    """A model with an argument that is not ours."""

    def __init__(self, d_ff, factor=2.0, **options):
        super().__init__(d_ff, **options)
        self.factor = factor

    def call(self, x):
        return self.factor * super().call(x)


def test_a_subclass_keeps_its_own_arguments(tmp_path):
    x = keras.Input((5, 8))
    model = keras.Model(x, Scaled(12, 3.0, activation="gelu")(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[1].get_config()["factor"] == 3.0
    np.testing.assert_array_equal(loaded(X), model(X))

    class Configured(Scaled):
        def get_config(self):
            factor = self.factor.tolist()
            return {**super().get_config(), "factor": factor}

    assert Configured(12, factor=np.ones(2)).get_config()["factor"] == [1, 1]
    with pytest.raises(NotImplementedError, match="get_config with factor"):
        Scaled(12, factor=np.ones(2)).get_config()


def test_regularizers_of_weights_count_once_on_two_replicas(strategies):
    data = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(4)
    found = []
    for number in (1, 2):
        with strategies[number].scope():
            keras.utils.set_random_seed(1)
            dense = keras.layers.Dense(13, kernel_regularizer="l2")
            ids = keras.Input((None,), dtype="int32")
            x = kt.PositionalEmbedding(13, 8)(ids)
            model = own_models.compiled(keras.Model(ids, dense(x)))
        history = model.fit(data, epochs=2, verbose=0).history
        found.append((history, model.get_weights()))
    assert_close(found[1], found[0])
