"""SavedModel: text in, text out, as TensorFlow Serving runs it.

Signatures (N sentences, W hypotheses, S source and T target pieces):

    serving_default  text [N] -> translation [N], score [N]
    n_best           text [N] -> hypotheses [N, W], scores [N, W], ids [N, W, T]
    forced           text [N], target_prefix [N] -> as serving_default
    tokens           source_ids [N, S] -> ids [N, W, T], scores, lengths [N, W]
    score            text [N], reference [N] -> log_probs [N, T], log_prob [N]
    attention        text [N] -> translation [N], source_pieces [N, S],
                     target_pieces [N, T], attention [N, layer, head, T, S]

Every signature runs the graph of `Translator.search`, or the model itself. A
source that is too long is cut and a blank one has an empty translation, as in
`Translator.translate`; whatever bytes come in, as many answers go out.
"""

import tensorflow as tf

from keras_transformer.vocabulary import BOS, EOS, PAD
from savedmodel.graph import at_least_one, hold_variables

PRECISIONS = ("float32",)
REQUIREMENTS = ()


def write(translator, directory, options, examples):
    """Writes a SavedModel with warm-up requests.

    Args:
        translator: The `Translator`.
        directory: A `pathlib.Path` that exists and is empty.
        options: The `ExportOptions`.
        examples: Some sentences, list of `str`, none of them blank, for the
            warm-up.
    """
    signatures = Signatures(translator, options.jit_compile).make()
    module = hold_variables(translator.model)
    tf.saved_model.save(module, str(directory), signatures=signatures)
    extra = directory / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(
        str(extra / "tf_serving_warmup_requests")
    ) as file:
        for name, inputs in make_warmup_inputs(translator, examples):
            file.write(make_prediction_log(name, inputs))


class Signatures:
    """The signatures of a translator as graphs.

    Encoding, decoding and search are graphs of their own, which all signatures
    share.

    Args:
        translator: The `Translator`.
        jit_compile: Whether XLA compiles the search, once for each shape.
    """

    def __init__(self, translator, jit_compile=False):
        self.translator = translator
        self.model = translator.model
        limit = translator.max_source_length
        self.max_source_length = limit
        self.max_target_length = limit + translator.decoding.extra_length
        self._encode = tf.function(
            lambda text: translator.tokenizer.encode(
                # As commands read their input: U+FFFD for what is not UTF-8.
                tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
            ).to_tensor(PAD),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        self._decode = tf.function(
            translator.tokenizer.decode,
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )
        self._search = tf.function(
            translator.translate_ids, jit_compile=jit_compile, autograph=False
        )

    def make(self):
        """The signatures by name, as concrete functions."""

        def lines(name):
            return tf.TensorSpec([None], tf.string, name)

        text = lines("text")
        source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
        inputs = {
            "serving_default": (self.serving_default, [text]),
            "n_best": (self.n_best, [text]),
            "forced": (self.forced, [text, lines("target_prefix")]),
            "tokens": (self.tokens, [source_ids]),
            "score": (self.score, [text, lines("reference")]),
            "attention": (self.attention, [text]),
        }
        return {
            name: tf.function(
                function, input_signature=specs, autograph=False
            ).get_concrete_function()
            for name, (function, specs) in inputs.items()
        }

    def serving_default(self, text):
        """Best translations."""
        found = self._search(self._read(text))
        return self._best(found, tf.shape(text)[0])

    def forced(self, text, target_prefix):
        """Best translations that begin with given text."""
        tf.debugging.assert_equal(tf.shape(text), tf.shape(target_prefix))
        prefix = self._encode(target_prefix)
        prefix = at_least_one(tf.where(prefix == EOS, PAD, prefix))
        found = self._search(self._read(text), prefix)
        return self._best(found, tf.shape(text)[0])

    def n_best(self, text):
        """All hypotheses, best first; "" where fewer than W exist."""
        found = self.tokens(self._encode(text))
        shape = tf.shape(found["ids"])  # [N, W, T]
        rows = tf.reshape(found["ids"], [shape[0] * shape[1], shape[2]])
        strings = self._decode(rows)
        return {
            "hypotheses": tf.reshape(strings, shape[:2]),
            "scores": found["scores"],
            "ids": found["ids"],
        }

    def tokens(self, source_ids):
        """Ids to ids; rows of `source_ids` end with EOS, then PAD."""
        number = tf.shape(source_ids)[0]
        found = self._search(cut(source_ids, self.max_source_length))
        longest = tf.maximum(1, tf.reduce_max(found.lengths))
        return {
            "ids": found.ids[:number, :, :longest],
            "scores": found.scores[:number],
            "lengths": found.lengths[:number],
        }

    def score(self, text, reference):
        """Log-probabilities of given translations, end mark included.

        The end of a reference that is longer than any translation can be is not
        scored.
        """
        tf.debugging.assert_equal(tf.shape(text), tf.shape(reference))
        labels = cut(self._encode(reference), self.max_target_length)
        logits = self.model.decode(
            shift_right(labels), self.model.encode(self._read(text))
        )
        log_probs = tf.gather(
            tf.nn.log_softmax(logits), labels, batch_dims=2
        )  # [N, T, V] -> [N, T]
        log_probs = tf.where(labels == PAD, 0.0, log_probs)
        log_probs = log_probs[: tf.shape(text)[0]]
        return {
            "log_probs": log_probs,
            "log_prob": tf.reduce_sum(log_probs, axis=1),
        }

    def attention(self, text):
        """Best translations, and what the decoder attended to in the source."""
        source_ids = self._read(text)
        found = self._search(source_ids)
        longest = tf.maximum(1, tf.reduce_max(found.lengths[:, 0]))
        target_ids = found.ids[:, 0, :longest]
        maps = self.model.attention_maps(
            {"source_ids": source_ids, "target_ids": shift_right(target_ids)}
        )
        number = tf.shape(text)[0]
        pieces = ["", *self.translator.tokenizer.pieces[PAD + 1 :]]
        return {
            "translation": self._decode(target_ids)[:number],
            "source_pieces": tf.gather(pieces, source_ids[:number]),
            "target_pieces": tf.gather(pieces, target_ids[:number]),
            "attention": maps.cross[:number],
        }

    def _read(self, text):
        """Strings [N] -> ids [N, S], at least one row and column."""
        return cut(self._encode(text), self.max_source_length)

    def _best(self, found, number):
        """The outputs of `serving_default`."""
        return {
            "translation": self._decode(found.ids[:number, 0]),
            "score": found.scores[:number, 0],
        }


def cut(ids, max_length):
    """Cuts rows to a length, end mark included: int32 [N, S] -> [N', S'].

    As `Translator` does: the last piece that is left becomes the end mark.
    """
    lengths = tf.reduce_sum(
        tf.cast(ids != PAD, tf.int32), axis=1, keepdims=True
    )
    ids = ids[:, :max_length]
    is_last = tf.range(tf.shape(ids)[1]) == max_length - 1
    return at_least_one(tf.where((lengths > max_length) & is_last, EOS, ids))


def shift_right(labels):
    """Labels -> what the decoder reads: BOS, then all but the last."""
    return tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)


# ---- Warm-up requests, which TensorFlow Serving runs before it serves --------


def make_warmup_inputs(translator, examples):
    """Signature names with the inputs of one request."""
    text = tf.constant(examples, tf.string)
    ids = translator.tokenizer.encode(examples).to_tensor(PAD)
    return [
        ("serving_default", {"text": text[:1]}),
        ("serving_default", {"text": text}),
        ("n_best", {"text": text}),
        ("forced", {"text": text, "target_prefix": text}),
        ("tokens", {"source_ids": ids}),
        ("score", {"text": text, "reference": text}),
        ("attention", {"text": text}),
    ]


def make_prediction_log(signature_name, inputs):
    """A serialized `tensorflow.serving.PredictionLog`.

    Put together by field number, since its Python classes are not part of
    TensorFlow: PredictionLog.predict_log = 6, PredictLog.request = 1,
    PredictRequest.model_spec = 1 and .inputs = 2, ModelSpec.signature_name = 3.

    Args:
        signature_name: The signature.
        inputs: Tensors by input name.

    Returns:
        The bytes of a record.
    """
    request = _field(1, _field(3, signature_name.encode()))
    for name, tensor in inputs.items():
        proto = tf.make_tensor_proto(tensor).SerializeToString()
        entry = _field(1, name.encode()) + _field(2, proto)
        request += _field(2, entry)
    return _field(6, _field(1, request))


def _field(number, payload):
    """One length-delimited field of a protocol buffer."""
    tag, length, size = number << 3 | 2, len(payload), []
    while length > 127:  # seven bits a byte, the lowest first
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([tag, *size, length]) + payload
