"""Time of an epoch's segmentations: sampled, and encoded once as usual.

    python benchmarks/subword_sampling.py --data=DIR --vocab_size=6000

DIR has train.en[.gz] and train.de[.gz]. For a byte-pair and for a unigram
vocabulary: seconds to encode the pairs, to open the sampled corpus, and to
sample each of the next epochs, one after the other; tokens of the first epoch
as a multiple of the canonical ones.
"""

import argparse
import io
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import sentencepiece
from results import add_flag, record

import keras_transformer as kt
from keras_transformer.vocabulary import BOS, EOS, PAD, UNK

MAX_LENGTH = 256


def main():
    arguments = parse_arguments()
    pairs = list(
        kt.read_parallel_files([f"{arguments.data}/train"], "en", "de")
    )
    rows = []
    for model_type in ("bpe", "unigram"):
        tokenizer = train(model_type, pairs, arguments.vocab_size)
        seconds, _ = timed(kt.encode_corpus, pairs, tokenizer, MAX_LENGTH)
        opened, corpus = timed(
            kt.SampledCorpus,
            pairs,
            tokenizer,
            MAX_LENGTH,
            arguments.alpha,
            seed=1,
        )
        epochs = [
            timed(corpus.of_epoch, epoch)[0]
            for epoch in range(1, 1 + arguments.epochs)
        ]
        print(
            f"{model_type}: {len(corpus):,} pairs; encoded in {seconds:.1f} s;"
            f" opened in {opened:.1f} s; an epoch sampled in"
            f" {min(epochs):.1f} to {max(epochs):.1f} s"
        )
        print(f"  {corpus}")
        rows.append(
            {
                "vocabulary": model_type,
                "tokens of an epoch, by the canonical ones": round(
                    num_tokens(corpus.first) / num_tokens(corpus.canonical), 2
                ),
                "encoded, s": round(seconds, 1),
                "opened, s": round(opened, 1),
                "an epoch sampled, s, at least": round(min(epochs), 1),
                "at most": round(max(epochs), 1),
            }
        )
    if arguments.record:
        title = "Time to sample the segmentations of an epoch"
        record("subword_sampling", title, {"vocabularies": rows})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--vocab_size", type=int, default=6000)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=3)
    add_flag(parser)
    return parser.parse_args()


def train(model_type, pairs, vocab_size):
    """A `Tokenizer` of a type of SentencePiece's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for pair in pairs for line in pair),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        character_coverage=1.0,
        minloglevel=2,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
    )
    return kt.Tokenizer(model.getvalue())


def num_tokens(corpus):
    """Tokens of both sides of a `Corpus`."""
    return int(corpus.source.lengths.sum() + corpus.target.lengths.sum())


def timed(function, *arguments, **options):
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
