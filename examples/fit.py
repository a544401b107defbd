"""Trains a translator with `model.fit` and translates with it.

    python examples/fit.py

The built-in phrasebook is the corpus, and so small a part of it that the model
learns it by heart in seconds. To learn to translate, take more pairs and a
larger model: see `trainers/configs/quickstart.flags`.
"""

import keras

import keras_transformer as kt
from trainers import phrasebook


def train(pairs, epochs):
    """A `Translator` that has seen the pairs `epochs` times."""
    keras.utils.set_random_seed(1)
    lines = [line for pair in pairs for line in pair]
    tokenizer = kt.Tokenizer.train(lines, vocab_size=200)
    corpus = kt.encode_corpus(pairs, tokenizer, max_length=50)
    batches = kt.make_batches(corpus, batch_tokens=1000, num_buckets=1, seed=1)

    model = kt.Transformer(
        vocab_size=tokenizer.vocab_size,
        d_model=64,
        d_ff=128,
        num_heads=4,
        num_layers=1,
        pre_norm=True,
        dropout=0.0,
    )
    model.compile(
        optimizer=kt.paper_adam(model.config.d_model, warmup_steps=60),
        loss=kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
    )
    # The data set shuffles anew in each of its epochs; Keras sees one.
    model.fit(batches.dataset(epochs=epochs), shuffle=False, verbose=2)
    decoding = kt.DecodingConfig(beam_size=1)
    return kt.Translator(tokenizer, model, decoding, max_source_length=50)


def main(num_pairs=40, epochs=100):
    pairs = phrasebook.make_split("train", num_pairs)
    translator = train(pairs, epochs)
    translations = translator.translate([english for english, _ in pairs])
    learned = sum(t == german for t, (_, german) in zip(translations, pairs))
    for (english, _), translation in list(zip(pairs, translations))[:3]:
        print(f"{english} -> {translation}")
    print(f"{learned} of {num_pairs} translated as in the corpus")


if __name__ == "__main__":
    main()
