"""Checks that a SavedModel's signatures answer what the translator does."""

import numpy as np
import tensorflow as tf

from keras_transformer.text.vocabulary import EOS, PAD, UNK
from savedmodel.verify import TIE


def assert_answers(signatures, translator, sentences):
    """Calls every signature, and compares the answers with the translator's.

    Prefixes and references come from the translator's own translations.
    """
    source, target = translator.tokenizer.source, translator.tokenizer.target
    translations = translator.search(sentences)
    texts = [translation.texts[0] for translation in translations]
    prefixes = [" ".join(text.split()[:1]) for text in texts]
    forced = translator.search(sentences, prefixes=prefixes)
    references = translator.score(list(zip(sentences, texts, strict=True)))
    limit = translator.max_source_length
    rows = [
        row if len(row) <= limit else [*row[: limit - 1], EOS]
        for row in source.to_ids(sentences)
    ]
    text = {"text": tf.constant(sentences)}
    pairs = {**text, "reference": tf.constant(texts)}
    ids = tf.ragged.constant(rows, tf.int32).to_tensor(PAD)
    requests = {
        "n_best": text,
        "serving_default": text,
        "forced": {**text, "target_prefix": tf.constant(prefixes)},
        "tokens": {"source_ids": ids},
        "score": pairs,
        "attention_maps": pairs,
    }
    assert set(requests) == set(signatures)
    answers = {}
    for name, inputs in requests.items():
        found = signatures[name](**inputs).items()
        answers[name] = {key: as_lists(value) for key, value in found}
    for i, translation in enumerate(translations):
        of_name = {
            name: {key: values[i] for key, values in outputs.items()}
            for name, outputs in answers.items()
        }
        row = of_name["n_best"]
        assert row["hypotheses"] == target.to_strings(row["ids"])
        assert_hypotheses(translation, row)
        row = of_name["tokens"]
        assert row["lengths"] == [len(without_padding(r)) for r in row["ids"]]
        assert_hypotheses(translation, row)
        assert_found(translation, of_name["serving_default"])
        assert_found(forced[i], of_name["forced"])
        row, expected = of_name["score"], references[i].log_probs
        log_probs = np.zeros(len(row["log_probs"]))
        log_probs[: len(expected)] = expected
        np.testing.assert_allclose(row["log_probs"], log_probs, atol=TIE)
        assert abs(row["log_prob"] - sum(expected)) < TIE
        row = of_name["attention_maps"]
        pieces = [piece for piece in row["source_pieces"] if piece]
        assert pieces == [source.pieces[id] for id in rows[i]]
        # An empty reference is replaced by the translation. PAD has no piece.
        allowed = [references[i].ids]
        if allowed == [[EOS]]:
            allowed = translation.ids
        id_of = {piece: id for id, piece in enumerate(target.pieces)}
        pieces = [piece for piece in row["target_pieces"] if piece]
        found = [id_of.get(piece, UNK) for piece in pieces]
        assert found in allowed
        assert [row["translation"]] == target.to_strings([found])


def as_lists(tensor):
    """Converts a tensor to lists, and bytes to text."""
    values = tensor.numpy()
    if values.dtype == object:
        values = np.vectorize(bytes.decode, otypes=[object])(values)
    return values.tolist()


def assert_found(translation, row):
    """Checks that a row has the best text, or one with the same score."""
    best = translation.scores[0]
    assert abs(row["score"] - best) < TIE
    assert any(
        row["translation"] == text and best - score < TIE
        for text, score in zip(
            translation.texts, translation.scores, strict=True
        )
    )


def assert_hypotheses(translation, row):
    """Checks that a row's ids and scores are the translator's hypotheses.

    Rounding may decide which hypothesis is the last.
    """
    expected = list(zip(translation.ids, translation.scores, strict=True))
    number, last = len(expected), translation.scores[-1]
    assert not any(map(any, row["ids"][number:]))
    for ids, score in zip(row["ids"][:number], row["scores"], strict=False):
        assert abs(score - last) < TIE or any(
            without_padding(ids) == its_ids and abs(score - its_score) < TIE
            for its_ids, its_score in expected
        )


def without_padding(ids):
    return [id for id in ids if id != PAD]
