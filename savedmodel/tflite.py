"""TFLite: greedy and beam search in one file, with builtin operations only.

Signatures `greedy` and `beam`: `source_ids` int32 [1, S], tokens, then EOS (see
`search.py`) -> `ids` int32 [1, W, T], `scores` float32 [1, W], `lengths` int32
[1, W]. A call translates one sentence. S is always the translator's
`max_source_length`. The graph is `Inference.translate_ids`. If the model takes
language tokens and has several languages, `source_language` and
`target_language` are further inputs, int32 [1]: ids of `language_ids` in
`export.json`.

TFLite has no assertions. An invalid row (an id outside the vocabulary, no EOS),
or one with an unknown language, has the score NaN and no tokens.
"""

import tempfile

import tensorflow as tf

from keras_transformer.translator import Translator
from savedmodel.formats import Export, save_vocabulary
from savedmodel.search import hold_variables, make_search

# The optimizations and the weight types of each precision.
OPTIMIZATIONS = {
    "float32": ([], []),
    "float16": ([tf.lite.Optimize.DEFAULT], [tf.float16]),
    "int8": ([tf.lite.Optimize.DEFAULT], []),
}


def write(export: Export) -> None:
    """Writes `model.tflite` and the tokenizer; see `formats`."""
    translator, directory = export.translator, export.directory
    # Inside the directory: a killed export leaves nothing elsewhere.
    with tempfile.TemporaryDirectory(dir=directory) as saved_model:
        save_searches(translator, saved_model)
        content = convert(saved_model, export.options.precision)
    (directory / "model.tflite").write_bytes(content)
    save_vocabulary(translator.tokenizer, directory)


def save_searches(translator: Translator, directory: str) -> None:
    """Saves the searches with static shapes as a SavedModel."""
    beams = {"greedy": 1, "beam": translator.decoding.beam_size}
    signatures = {
        name: make_search(
            translator.with_decoding(beam_size=beam_size),
            translator.max_source_length,
        )
        for name, beam_size in beams.items()
    }
    module = hold_variables(translator.model)
    tf.saved_model.save(module, directory, signatures=signatures)


def convert(saved_model: str, precision: str) -> bytes:
    """Converts a SavedModel to the bytes of a TFLite model."""
    optimizations, types = OPTIMIZATIONS[precision]
    converter = tf.lite.TFLiteConverter.from_saved_model(saved_model)
    converter.optimizations = optimizations
    converter.target_spec.supported_types = types
    return converter.convert()
