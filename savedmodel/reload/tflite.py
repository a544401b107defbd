"""Runs a LiteRT model."""

import pathlib

from .sentences import PAD, Languages, Sentence, Translate, answer, keep_signs
from .tokenizer import load_tokenizer


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads a signature of the model. It translates one sentence at a time."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    languages = Languages(description)
    limit = description["max_source_length"]
    # The graph adds the tokens of languages.
    added = len(languages.places.keys() - {"output"})
    encode, decode, knows = load_tokenizer(
        directory, {"max_source_length": limit - added}
    )
    interpreter = Interpreter(str(directory / "model.tflite"))
    beam_size = description["decoding"]["beam_size"]
    search = interpreter.get_signature_runner(
        "greedy" if beam_size == 1 else "beam"
    )
    names = search.get_input_details().keys() - {"source_ids"}

    def translate_one(sentence: Sentence) -> dict:
        ids, truncated = encode(sentence)
        inputs: dict[str, list] = {
            "source_ids": [ids + [PAD] * (limit - len(ids))]
        }
        for name in names:
            inputs[name] = [languages.id(sentence, name)]
        found = search(
            **{name: np.array(inputs[name], "int32") for name in inputs}
        )
        best, score = found["ids"][0, 0], found["scores"][0, 0]
        return answer(best, decode(best), score, truncated)

    return keep_signs(
        lambda sentences: [translate_one(line) for line in sentences], knows
    )
