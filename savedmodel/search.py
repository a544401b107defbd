"""Ids to ids: the translator's search as every exported format runs it.

`source_ids` is int32 `[N, S]`. A row is tokens, then `EOS`; all that follows
the first `EOS` is padding, whatever its value: TensorFlow Serving pads the
tensor of a request with the tensor's own first element. A row of `PAD` alone is
an empty source, like `[EOS]`. All else is not a source: ids outside [0, V), a
row without `EOS`, `PAD` before `EOS`.
"""

import typing

import tensorflow as tf

from keras_transformer.graph_tokenization import truncate
from keras_transformer.model import Transformer
from keras_transformer.translator import Translator
from keras_transformer.vocabulary import EOS, PAD


class Sources(typing.NamedTuple):
    """Rows of ids as the search takes them.

    Attributes:
        ids: int32 `[N', S']`, at least one row and one column, at most
            `max_source_length` columns: tokens, EOS, then PAD.
        valid: bool `[N]`, whether the row was a source; if not, it is PAD now.
        truncated: bool `[N]`, whether the row had more tokens.
    """

    ids: tf.Tensor
    valid: tf.Tensor
    truncated: tf.Tensor


def read_sources(
    source_ids: tf.Tensor, vocab_size: int, max_source_length: int
) -> Sources:
    """Ids from outside, int32 `[N, S]`, as `Sources`: the one place for it."""
    number = tf.shape(source_ids)[0]
    ids = source_ids
    if not (ids.shape.is_fully_defined() and ids.shape.num_elements()):
        ids = at_least_one(ids)
    ids = end_rows(ids)
    valid = are_sources(ids, vocab_size)
    ids = tf.where(valid[:, None], ids, PAD)
    ids, truncated = truncate(ids, max_source_length)
    return Sources(ids, valid[:number], truncated[:number])


def end_rows(ids: tf.Tensor) -> tf.Tensor:
    """Makes everything after the first EOS of each row PAD: int32 [N, S]."""
    is_eos = tf.cast(ids == EOS, tf.int32)
    return tf.where(tf.cumsum(is_eos, axis=1, exclusive=True) > 0, PAD, ids)


def are_sources(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Whether rows that `end_rows` made are sources: [N, S] -> bool [N]."""
    in_range = tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1)
    lengths = count_tokens(ids)
    is_last = tf.range(tf.shape(ids)[1]) == lengths[:, None] - 1
    ends = tf.reduce_any(is_last & (ids == EOS), axis=1) | (lengths == 0)
    return in_range & ends


def count_tokens(ids: tf.Tensor) -> tf.Tensor:
    """Tokens of each row, EOS included: int32 [N, S] -> [N]."""
    return tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1)


def at_least_one(ids: tf.Tensor) -> tf.Tensor:
    """Pads to at least one row and one column: an empty batch is legal."""
    missing = tf.maximum(1 - tf.shape(ids), 0)
    return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1))


def make_search(
    translator: Translator, length: int | None = None
) -> tf.types.experimental.PolymorphicFunction:
    """The search as a function for formats that cannot raise an error.

    It takes `source_ids`, int32 `[N, S]`; with a length, one source of this
    length. It returns `ids` int32 `[N, W, T]`, `scores` float32 `[N, W]`,
    `lengths` int32 `[N, W]`; and with free S `truncated` bool `[N]`: the source
    was longer than `max_source_length`, of which the beginning was translated.
    A row that is not a source has the score NaN, and no tokens.
    """
    shape = [None, None] if length is None else [1, length]
    vocab_size = translator.tokenizer.source.vocab_size

    def search(source_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        sources = read_sources(
            source_ids, vocab_size, length or translator.max_source_length
        )
        # Converters know one loop, in which a batch stays as it is.
        found = translator.inference.translate_ids(
            sources.ids, shapes="growing"
        )
        number = tf.shape(source_ids)[0]
        outputs = {
            "ids": found.ids[:number],
            "scores": tf.where(
                sources.valid[:, None], found.scores[:number], float("nan")
            ),
            "lengths": found.lengths[:number],
        }
        if length is None:
            outputs["truncated"] = sources.truncated
        return outputs

    return tf.function(
        search,
        input_signature=[tf.TensorSpec(shape, tf.int32, "source_ids")],
        autograph=False,
    )


def hold_variables(model: Transformer) -> tf.Module:
    """A module that owns the model's variables in a SavedModel.

    Without the model itself, which Keras would save in its own way.
    """
    module = tf.Module(name="translator")
    module.variables_of_model = [weight.value for weight in model.weights]
    return module
