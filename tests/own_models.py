"""Models that users may compose from our layers: bodies in forms.

A body is the layers of a model from ids `[B, T]` to logits `[B, T, V]`. A form
is a way to write a Keras model with them. All forms of a body with the same
weights compute the same function. The module runs on every Keras backend.
"""

import keras
import numpy as np

import keras_transformer as kt

V, D = 13, 8
SIZES = dict(d_model=D, d_ff=12, num_heads=2, dropout=0.0)
STACK = dict(SIZES, num_layers=2)


def register(cls):
    return keras.saving.register_keras_serializable("own_models")(cls)


class Body:
    """Layers by name, and the calls of them."""

    def layers(self):
        return {
            "embedding": kt.PositionalEmbedding(V, D),
            **self.middle(),
            "softmax": keras.layers.Dense(V),
        }

    def run(self, layers, ids):
        x = self.hidden(layers, layers["embedding"](ids), ids)
        return layers["softmax"](x)

    def build(self, layers, stream):
        """Builds the layers, as the model's method `build` does."""
        layers["embedding"].build(stream[:2])
        for name in self.middle():
            layers[name].build(*[stream] * self.inputs)
        layers["softmax"].build(stream)

    inputs = 1  # sequences that the middle layer reads


class Embedding(Body):
    def middle(self):
        return {}

    def hidden(self, layers, x, ids):
        return x


class Tied(Embedding):
    """A body whose softmax shares the matrix of the embedding."""

    def layers(self):
        return {"embedding": kt.PositionalEmbedding(V, D, logits_bias=True)}

    def run(self, layers, ids):
        return layers["embedding"].logits(layers["embedding"](ids))

    def build(self, layers, stream):
        layers["embedding"].build(stream[:2])


class FeedForward(Body):
    def middle(self):
        return {"middle": kt.FeedForward(12, activation=keras.activations.gelu)}

    def hidden(self, layers, x, ids):
        return layers["middle"](x)


class Attention(Body):
    inputs = 2

    def middle(self):
        return {"middle": kt.MultiHeadAttention(2, 4)}

    def hidden(self, layers, x, ids):
        mask = kt.padding_mask(ids) & kt.causal_mask(ids)
        return x + layers["middle"](x, x, attention_mask=mask)


class EncoderLayer(Body):
    def middle(self):
        return {"middle": kt.EncoderLayer(**SIZES)}

    def hidden(self, layers, x, ids):
        return layers["middle"](x, attention_mask=kt.padding_mask(ids))


class RelativeEncoder(EncoderLayer):
    def middle(self):
        return {"middle": kt.Encoder(**STACK, positions="relative")}


class RestrictedEncoder(EncoderLayer):
    def middle(self):
        return {"middle": kt.Encoder(**STACK, attention_window=3)}


class Encoder(EncoderLayer):
    def middle(self):
        return {"middle": kt.Encoder(**STACK, pre_norm=True)}


class DecoderLayer(Body):
    inputs = 2

    def middle(self):
        return {"middle": kt.DecoderLayer(**SIZES)}

    def hidden(self, layers, x, ids):
        return layers["middle"](
            x,
            x,
            self_attention_mask=kt.causal_mask(ids),
            cross_attention_mask=kt.padding_mask(ids),
        )


class Decoder(DecoderLayer):
    def middle(self):
        return {"middle": kt.Decoder(**STACK)}


class Whole(Body):
    """A `Transformer` that reads its source as its target."""

    def layers(self):
        return {"model": kt.Transformer(vocab_size=V, **STACK)}

    def run(self, layers, ids):
        return layers["model"]({"source_ids": ids, "target_ids": ids})

    def build(self, layers, stream):
        pass  # it already is built


BODIES = {
    body.__name__: body
    for body in (
        *(Embedding, Tied, FeedForward, Attention, EncoderLayer, Encoder),
        *(RelativeEncoder, RestrictedEncoder, DecoderLayer, Decoder, Whole),
    )
}


ROWS = ("Embedding", "FeedForward")  # bodies that are layers in a row


@register
class Subclass(keras.Model):
    """A model without a method `build`, as most are."""

    def __init__(self, body, **kwargs):
        super().__init__(**kwargs)
        self.body = body
        self.parts = BODIES[body]().layers()
        # Keras finds layers in attributes.
        for name, layer in self.parts.items():
            setattr(self, f"{name}_layer", layer)

    def call(self, ids):
        return BODIES[self.body]().run(self.parts, ids)

    def get_config(self):
        return {**super().get_config(), "body": self.body}


@register
class Built(Subclass):
    def build(self, ids_shape):
        BODIES[self.body]().build(self.parts, (*ids_shape, D))


@register
class Nested(keras.Model):
    """A model in a model, beside a layer of Keras."""

    def __init__(self, body, **kwargs):
        super().__init__(**kwargs)
        self.body = body
        self.inner = Subclass(body)
        self.outer = keras.layers.Activation("linear")

    def call(self, ids):
        return self.outer(self.inner(ids))

    def get_config(self):
        return {**super().get_config(), "body": self.body}


@register
class Named(Subclass):
    """A model whose inputs are a dictionary."""

    def call(self, inputs):
        return super().call(inputs["ids"])


def functional(body):
    ids = keras.Input((None,), dtype="int32")
    body = BODIES[body]()
    return keras.Model(ids, body.run(body.layers(), ids))


def nested_functional(body):
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, functional(body)(ids))


@register
class Run(keras.layers.Layer):
    """A body as one layer, for `Sequential`."""

    def __init__(self, body, **kwargs):
        super().__init__(**kwargs)
        self.body = body
        self.inner = Built(body)

    def build(self, ids_shape):
        self.inner.build(ids_shape)

    def call(self, ids):
        return self.inner(ids)

    def get_config(self):
        return {**super().get_config(), "body": self.body}


def sequential(body):
    """Makes a `Sequential` of the layers, or of the body as one layer."""
    if body in ROWS:
        return keras.Sequential([*BODIES[body]().layers().values()])
    ids = keras.Input((None,), dtype="int32")
    return keras.Sequential([ids, Run(body)])


FORMS = {
    "functional": functional,
    "subclass": Subclass,
    "built": Built,
    "nested": Nested,
    "nested_functional": nested_functional,
    "sequential": sequential,
    "named": Named,
}


def make(body, form="subclass", weights=None):
    """Makes a model with new weights, or the given ones."""
    model = FORMS[form](body)
    model(inputs_of(form, np.ones((2, 5), "int32")))
    if weights is not None:
        model.set_weights(weights)
    return model


def inputs_of(form, ids):
    return {"ids": ids} if form == "named" else ids


def batches(rows=12, length=5, seed=7):
    """Returns ids and labels, each row with padding of its own length."""
    rng = np.random.default_rng(seed)
    ids, labels = rng.integers(3, V, (2, rows, length)).astype("int32")
    padding = np.arange(length) >= rng.integers(1, length + 1, rows)[:, None]
    return np.where(padding, 0, ids), np.where(padding, 0, labels)


def compiled(model, optimizer=None, **options):
    model.compile(
        optimizer or keras.optimizers.SGD(0.5),
        kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        **options,
    )
    return model


def arrays(ids, labels):
    """Returns arguments of `fit` with NumPy arrays."""
    return dict(x=ids, y=labels, batch_size=4, shuffle=False)


def dataset(ids, labels):
    """Returns arguments of `fit` with a data set.

    Under a strategy, TensorFlow 2.21 sometimes crashes in `evaluate` with
    arrays, even for a model of Keras' own layers.
    """
    import tensorflow as tf

    return dict(x=tf.data.Dataset.from_tensor_slices((ids, labels)).batch(4))


def trained(model, form="subclass", as_data=arrays):
    """Trains two epochs of three batches with validation. Returns history."""
    (ids, labels), (other, others) = batches(), batches(seed=8)
    valid = as_data(inputs_of(form, other), others)
    history = model.fit(
        **as_data(inputs_of(form, ids), labels),
        validation_data=(valid["x"], others) if "y" in valid else valid["x"],
        validation_batch_size=valid.get("batch_size"),
        epochs=2,
        verbose=0,
    ).history
    return {name: np.array(values) for name, values in history.items()}
