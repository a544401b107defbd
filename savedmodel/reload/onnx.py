"""Runs an ONNX model."""

import math
import pathlib

from .sentences import PAD, Languages, Sentence, Translate, answer, keep_signs
from .tokenizer import load_tokenizer


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads a model into ONNX Runtime."""
    import numpy as np
    import onnxruntime

    # The graph truncates sources and reports it.
    encode, decode, knows = load_tokenizer(
        directory, {"max_source_length": math.inf}
    )
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    names = {tensor.name for tensor in session.get_inputs()} - {"source_ids"}
    languages = Languages(description)

    def translate(sentences: list[Sentence]) -> list[dict]:
        rows = [encode(sentence)[0] for sentence in sentences]
        longest = max(map(len, rows), default=0)
        padded = [row + [PAD] * (longest - len(row)) for row in rows]
        source_ids = np.array(padded, "int32").reshape(len(rows), longest)
        inputs = {"source_ids": source_ids}
        for name in names:
            ids = [languages.id(sentence, name) for sentence in sentences]
            inputs[name] = np.array(ids, "int32")
        outputs = ["ids", "scores", "truncated"]  # [N, W, T], [N, W], [N]
        ids, scores, truncated = session.run(outputs, inputs)
        best = zip(ids[:, 0], scores[:, 0], truncated, strict=True)
        return [answer(row, decode(row), *others) for row, *others in best]

    return keep_signs(translate, knows)
