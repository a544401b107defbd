"""Runs a CTranslate2 model."""

import math
import pathlib

from .sentences import (
    Languages,
    Sentence,
    Translate,
    answer,
    keep_signs,
    penalty,
)
from .tokenizer import load_tokenizer, load_vocabularies

# A length penalty that changes no score. With 0, a search for all hypotheses
# would end when the most probable one has finished.
NO_PENALTY = 1e-30


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads CTranslate2's translator.

    `max_decoding_length` is one number per call, so a call has only sentences
    with the same limit. The hypotheses of a beam are ranked by our scores.
    """
    import ctranslate2

    decoding = description["decoding"]
    max_positions = description.get("max_positions") or math.inf
    encode, decode, knows = load_tokenizer(directory, description)
    # Threads wait for each other at every layer. One is best for small models.
    # The default, four, is by far the worst on fewer cores.
    translator = ctranslate2.Translator(str(directory), intra_threads=1)
    sources, targets = load_vocabularies(directory)
    languages = Languages(description)
    # CTranslate2 adds EOS, except if a language token follows it.
    end = None if "after" in languages.places else -1

    def limit(row: list[int]) -> float:
        return min(
            len(row) - 1 + decoding["extra_length"],
            decoding["max_output_length"] or math.inf,
            max_positions,
        )

    beam_size, power = decoding["beam_size"], NO_PENALTY
    if beam_size > 1 and decoding["length_normalization"] == "power":
        power = decoding["length_penalty"] or NO_PENALTY

    def translate(sentences: list[Sentence]) -> list[dict]:
        rows = [encode(sentence) for sentence in sentences]
        first = [languages.tokens(sentence, "output") for sentence in sentences]
        results = [answer([], "", 0.0, False)] * len(rows)
        by_limit: dict[float, list[int]] = {}
        for i, (row, _) in enumerate(rows):
            if len(row) > 1:
                by_limit.setdefault(limit(row), []).append(i)
        for longest, alike in by_limit.items():
            found = translator.translate_batch(
                [
                    sources.processor.id_to_piece(rows[i][0][:end])
                    for i in alike
                ],
                [targets.processor.id_to_piece(first[i]) for i in alike],
                beam_size=beam_size,
                num_hypotheses=beam_size,
                length_penalty=power,
                max_decoding_length=longest,
                min_decoding_length=max(0, decoding["min_length"] - 1),
                return_scores=True,
                return_end_token=True,
            )
            for i, result in zip(alike, found, strict=True):
                scores = [
                    score
                    * len(pieces) ** power
                    / penalty(decoding, len(pieces))
                    for pieces, score in zip(
                        result.hypotheses, result.scores, strict=True
                    )
                ]
                score = max(scores)
                best = result.hypotheses[scores.index(score)]
                ids = targets.processor.piece_to_id(best)
                results[i] = answer(ids, decode(ids), score, rows[i][1])
        return results

    # Not every CPU computes in the type that the weights are stored in.
    vars(translate)["computed_in"] = translator.compute_type
    return keep_signs(translate, knows)
