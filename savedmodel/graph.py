"""The translator's search as a graph from ids to ids."""

import tensorflow as tf


def make_search(translator, length=None):
    """`Translator.search` as a function with named outputs.

    Args:
        translator: The `Translator`.
        length: S, the length of all sources, of which there is one at a time;
            None: any number of any length.

    Returns:
        A `tf.function` of `source_ids`, int32 `[N, S]`: rows end with EOS, then
        PAD. It returns `ids` int32 `[N, W, T]`, `scores` float32 `[N, W]`,
        `lengths` int32 `[N, W]`.
    """
    shape = [None, None] if length is None else [1, length]
    source_ids = tf.TensorSpec(shape, tf.int32, "source_ids")

    def search(source_ids):
        found = translator.translate_ids(source_ids)
        return {
            "ids": found.ids,
            "scores": found.scores,
            "lengths": found.lengths,
        }

    def search_of_any_number(source_ids):
        found = search(at_least_one(source_ids))
        number = tf.shape(source_ids)[0]
        return {name: rows[:number] for name, rows in found.items()}

    return tf.function(
        search_of_any_number if length is None else search,
        input_signature=[source_ids],
        autograph=False,
    )


def at_least_one(ids):
    """Pads to at least one row and one column: an empty batch is legal."""
    missing = tf.maximum(1 - tf.shape(ids), 0)
    return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1))


def hold_variables(model):
    """A module that owns the model's variables in a SavedModel.

    The model itself, which Keras would save in its own way, is left out.
    """
    module = tf.Module(name="translator")
    module.variables_of_model = [weight.value for weight in model.weights]
    return module


def with_beam_size(translator, beam_size):
    """The same translator with another beam."""
    return translator.with_decoding(beam_size=beam_size)
