"""Uses the package's layers in a Keras model that is no translator.

    python examples/own_model.py

A classifier: does a sentence ask a question? It reads the English side of the
phrasebook without the final mark, so it has to look at the order of the words.
"""

import tempfile

import keras
import numpy as np

import keras_transformer as kt
from trainers import phrasebook


def read_examples(split, number, tokenizer=None):
    """Ids `[N, S]` of sentences, whether each is a question, the tokenizer."""
    sentences = [pair[0] for pair in phrasebook.make_split(split, number)]
    questions = np.array([line.endswith("?") for line in sentences], "int32")
    sentences = [line.rstrip(".?!") for line in sentences]
    tokenizer = tokenizer or kt.Tokenizer.train(sentences, vocab_size=300)
    ids = tokenizer.encode(sentences).to_tensor(shape=[None, 40])
    return ids.numpy(), questions, tokenizer


def make_classifier(vocab_size, d_model=32):
    ids = keras.Input([None], dtype="int32")
    mask = kt.padding_mask(ids)  # [B, 1, 1, S]: True = may be attended
    x = kt.PositionalEmbedding(vocab_size, d_model)(ids)  # [B, S, D]
    layer = kt.EncoderLayer(d_model=d_model, d_ff=64, num_heads=4, dropout=0.0)
    x = layer(x, attention_mask=mask)
    first = x[:, 0]  # [B, S, D] -> [B, D]
    question = keras.layers.Dense(1, activation="sigmoid")(first)
    return keras.Model(ids, question)


def main(num_sentences=2000, epochs=4):
    keras.utils.set_random_seed(1)
    ids, questions, tokenizer = read_examples("train", num_sentences)
    test_ids, test_questions, _ = read_examples("test", 500, tokenizer)
    model = make_classifier(tokenizer.vocab_size)
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(ids, questions, batch_size=50, epochs=epochs, verbose=2)

    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/classifier.keras")
        model = keras.saving.load_model(f"{folder}/classifier.keras")
    _, accuracy = model.evaluate(test_ids, test_questions, verbose=0)
    common = max(test_questions.mean(), 1 - test_questions.mean())
    print(f"accuracy on new sentences {accuracy:.3f}; by guessing {common:.3f}")
    return accuracy, common


if __name__ == "__main__":
    main()
