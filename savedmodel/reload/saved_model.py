"""Runs a SavedModel."""

import os
import pathlib
import platform
import sys

from .sentences import (
    Languages,
    Sentence,
    Translate,
    answer,
    keep_signs,
    text_of,
)
from .tokenizer import load_vocabularies


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads the signature `n_best`.

    The operations of one position are too short to divide among threads. On x86
    CPUs without AVX-512 VNNI, TensorFlow uses oneDNN only if a variable is set.
    """
    if "tensorflow" not in sys.modules:  # it reads these when it is imported
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
        if platform.machine() in ("x86_64", "AMD64"):
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations

    model = tf.saved_model.load(str(directory))
    signature = model.signatures["n_best"]
    names = signature.structured_input_signature[1].keys() - {"text"}
    languages = Languages(description)

    def translate(sentences: list[Sentence]) -> list[dict]:
        inputs = {"text": list(map(text_of, sentences))}
        for name in names:
            inputs[name] = [languages.code(s, name) for s in sentences]
        found = signature(
            **{name: tf.constant(inputs[name], tf.string) for name in inputs}
        )
        best = [
            found[name][:, 0].numpy()
            for name in ("ids", "hypotheses", "scores")
        ]
        truncated = found["truncated"].numpy()
        return [
            answer(row, string.decode("utf-8", "replace"), score, is_cut)
            for row, string, score, is_cut in zip(*best, truncated, strict=True)
        ]

    extra = directory / "assets.extra"
    if not any(extra.glob("*tokenizer.model")):  # of an earlier version
        return translate
    return keep_signs(translate, load_vocabularies(extra)[0].knows)
