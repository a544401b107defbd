"""Data of the comparison: Multi30k En-De with one joint vocabulary.

    python benchmarks/peers/prepare.py --data=DATA --output=FOLDER

DATA has `train` and `test_2016_flickr`, .en and .de, plain or as .gz. FOLDER
gets the lines; their pieces as `train.pieces.en` and `train.pieces.de`; the
SentencePiece model `tokenizer.model` of 8,000 pieces; and `vocabulary.txt`, the
pieces in the order of their ids.
"""

import pathlib

import measurement

import keras_transformer as kt
from keras_transformer.data.files.records import read_parallel_files

LANGUAGES = "en", "de"
TEST_SET = "test_2016_flickr"


def main():
    parser = measurement.make_parser(__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)
    prepare(arguments.data, arguments.output)


def prepare(data, folder):
    """Writes all files."""
    sides = {}
    for split in ("train", TEST_SET):
        pairs = read_parallel_files([data / split], *LANGUAGES)
        sides[split] = list(zip(*pairs, strict=True))
        for language, lines in zip(LANGUAGES, sides[split], strict=True):
            measurement.write_lines(folder / f"{split}.{language}", lines)
    training = sides["train"]
    tokenizer = kt.Tokenizer.train(
        [line for side in training for line in side],
        vocab_size=measurement.VOCAB_SIZE,
    )
    tokenizer.save(folder / "tokenizer.model")
    pieces = tokenizer.pieces
    measurement.write_lines(folder / "vocabulary.txt", pieces)
    for language, lines in zip(LANGUAGES, training, strict=True):
        rows = tokenizer.to_ids(lines)
        measurement.write_lines(
            folder / f"train.pieces.{language}",
            # Without EOS, which every system adds.
            [" ".join(pieces[i] for i in row[:-1]) for row in rows],
        )


if __name__ == "__main__":
    main()
