"""Runs an export without this package: a script for a process of its own.

    python -I savedmodel/reload.py DIR [BEAM] < sentences.json > found.json

It imports what the format needs and nothing else of this repository, so it is
also the example of how to run each format. Input is a JSON list of strings;
output a JSON object with a list of `translations` (ids, text, score) and the
`seconds` that they took, loading not counted. BEAM is for the formats that
leave the choice: ctranslate2 any; tflite 1 or the export's.
"""

import json
import pathlib
import sys
import time

DESCRIPTION = "export.json"  # beside each model: its format and its limits
PAD, EOS = 0, 2
BATCH_SIZE = 32  # sentences of about the same length translated together


def main():
    directory = pathlib.Path(sys.argv[1])
    sentences = json.load(sys.stdin)
    description = json.loads((directory / DESCRIPTION).read_text())
    if sys.argv[2:]:
        description["decoding"]["beam_size"] = int(sys.argv[2])
    translate = LOADERS[description["format"]](directory, description)
    by_length = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translate([sentences[i] for i in by_length[-BATCH_SIZE:]])  # warms up
    started, results = time.perf_counter(), {}
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = by_length[start : start + BATCH_SIZE]
        translations = translate([sentences[i] for i in batch])
        results.update(zip(batch, translations, strict=True))
    seconds = time.perf_counter() - started
    ours = {name.split(".")[0] for name in sys.modules}
    if ours & {"keras_transformer", "savedmodel"}:
        raise SystemExit("an export must run without this package")
    translations = [results[i] for i in range(len(sentences))]
    json.dump({"translations": translations, "seconds": seconds}, sys.stdout)


def load_saved_model(directory, description):
    """The `n_best` signature."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations

    model = tf.saved_model.load(str(directory))
    signature = model.signatures["n_best"]

    def translate(sentences):
        found = signature(text=tf.constant(sentences, tf.string))
        ids, scores = found["ids"][:, 0].numpy(), found["scores"][:, 0].numpy()
        strings = found["hypotheses"][:, 0].numpy()
        return [
            answer(row, string.decode("utf-8", "replace"), score)
            for row, string, score in zip(ids, strings, scores, strict=True)
        ]

    return translate


def load_tflite(directory, description):
    """A signature of LiteRT's interpreter, one sentence at a time."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    encode, decode = load_tokenizer(directory, description)
    interpreter = Interpreter(str(directory / "model.tflite"))
    beam_size = description["decoding"]["beam_size"]
    search = interpreter.get_signature_runner(
        "greedy" if beam_size == 1 else "beam"
    )

    def translate_one(sentence):
        source_ids = np.full(
            (1, description["max_source_length"]), PAD, "int32"
        )
        ids = encode(sentence)
        source_ids[0, : len(ids)] = ids
        found = search(source_ids=source_ids)
        best, score = found["ids"][0, 0], found["scores"][0, 0]
        return answer(best, decode(best), score)

    return lambda sentences: [translate_one(line) for line in sentences]


def load_onnx(directory, description):
    """A session of ONNX Runtime."""
    import numpy as np
    import onnxruntime

    encode, decode = load_tokenizer(directory, description)
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))

    def translate(sentences):
        rows = [encode(sentence) for sentence in sentences]
        shape = len(rows), max(map(len, rows), default=0)
        source_ids = np.full(shape, PAD, "int32")
        for source, row in zip(source_ids, rows, strict=True):
            source[: len(row)] = row
        ids, scores = session.run(
            ["ids", "scores"], {"source_ids": source_ids}
        )  # [N, W, T], [N, W]
        return [
            answer(best, decode(best), score)
            for best, score in zip(ids[:, 0], scores[:, 0], strict=True)
        ]

    return translate


def load_ctranslate2(directory, description):
    """CTranslate2's translator, sentences of the same length together.

    So that `max_decoding_length`, which is one number a call, is right for all.
    The length penalty is the paper's only where the search is greedy.
    """
    import ctranslate2

    decoding = description["decoding"]
    encode, decode = load_tokenizer(directory, description)
    # Threads wait for each other at every layer: for small models one is best,
    # and the default, four, on fewer cores by far the worst.
    translator = ctranslate2.Translator(str(directory), intra_threads=1)
    pieces = load_processor(directory)

    def penalty(length):
        return ((5 + length) / 6) ** decoding["length_penalty"]

    def translate_alike(rows):
        found = translator.translate_batch(
            [pieces.id_to_piece(row[:-1]) for row in rows],
            beam_size=decoding["beam_size"],
            length_penalty=0
            if decoding["beam_size"] == 1
            else decoding["length_penalty"],
            max_decoding_length=len(rows[0]) - 1 + decoding["extra_length"],
            min_decoding_length=max(0, decoding["min_length"] - 1),
            return_scores=True,
            return_end_token=True,
        )
        for result in found:
            ids = pieces.piece_to_id(result.hypotheses[0])
            score = result.scores[0]
            if decoding["beam_size"] == 1:
                score /= penalty(len(ids))
            yield answer(ids, decode(ids), score)

    def translate(sentences):
        rows = [encode(sentence) for sentence in sentences]
        results = [answer([], "", 0.0)] * len(rows)
        for length in {len(row) for row in rows} - {1}:
            alike = [i for i, row in enumerate(rows) if len(row) == length]
            found = translate_alike([rows[i] for i in alike])
            for i, result in zip(alike, found, strict=True):
                results[i] = result
        return results

    return translate


def load_processor(directory):
    """The tokenizer beside a model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(
        model_file=str(directory / "tokenizer.model")
    )


def load_tokenizer(directory, description):
    """Functions from a string to ids that end with EOS, and back."""
    processor = load_processor(directory)
    limit = description["max_source_length"]

    def encode(sentence):
        return processor.encode(sentence)[: limit - 1] + [EOS]

    def decode(ids):
        return processor.decode([int(i) for i in ids if i not in (PAD, EOS)])

    return encode, decode


def answer(ids, text, score):
    """One translation, as JSON has it."""
    ids = [int(i) for i in ids if i != PAD]
    return {"ids": ids, "text": text, "score": float(score)}


LOADERS = {
    "saved_model": load_saved_model,
    "tflite": load_tflite,
    "onnx": load_onnx,
    "ctranslate2": load_ctranslate2,
}

if __name__ == "__main__":
    main()
