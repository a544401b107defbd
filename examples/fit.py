"""Trains a translator with `model.fit` and translates with it.

    python examples/fit.py

The corpus is a few short pairs of the built-in phrasebook; within seconds the
model memorizes most of them. A model that translates new sentences needs more
pairs and more weights: see `trainers/configs/quickstart.flags`.
"""

import keras

import keras_transformer as kt
from trainers import phrasebook


def read_pairs(number):
    """Short pairs of the phrasebook: (English, German)."""
    pairs = phrasebook.make_split("train", 20 * number)
    return [pair for pair in pairs if len(pair[1]) < 32][:number]


def train(pairs, epochs):
    """A `Translator` that has seen the pairs `epochs` times."""
    keras.utils.set_random_seed(1)
    lines = [line for pair in pairs for line in pair]
    tokenizer = kt.Tokenizer.train(lines, vocab_size=120)
    corpus = kt.encode_corpus(pairs, tokenizer, max_length=50)
    batches = kt.make_batches(corpus, batch_tokens=500, num_buckets=1, seed=1)

    small = dict(d_model=64, d_ff=128, num_heads=4, num_layers=1, dropout=0.0)
    model = kt.Transformer(
        vocab_size=tokenizer.vocab_size, pre_norm=True, **small
    )
    model.compile(
        optimizer=kt.paper_adam(model.config.d_model, warmup_steps=30),
        loss=kt.SmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
    )
    # The data set shuffles each of its epochs; Keras sees one epoch.
    model.fit(batches.dataset(epochs=epochs), shuffle=False, verbose=2)
    decoding = kt.DecodingConfig(beam_size=1)
    return kt.Translator(tokenizer, model, decoding, max_source_length=50)


def main(num_pairs=20, epochs=120):
    pairs = read_pairs(num_pairs)
    translator = train(pairs, epochs)
    translations = translator.translate([english for english, _ in pairs])
    for (english, _), translation in zip(pairs, translations, strict=True):
        print(f"{english} -> {translation}")
    references = [german for _, german in pairs]
    learned = sum(map(str.__eq__, translations, references))
    print(f"{learned} of {len(pairs)} translated as in the corpus")
    return learned


if __name__ == "__main__":
    main()
