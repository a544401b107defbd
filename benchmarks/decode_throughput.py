"""Decoding speed, in sentences a second, as the peers measure theirs.

    python benchmarks/decode_throughput.py --peers=DIR --data=DIR --size=tiny

Sources come from test_2016_flickr, the output is forced to 20 tokens, the
weights are random: they do not matter then. Every length that the translator
pads sources to, and XLA compiles for, is warmed up before it is measured. With
--workers=2 two batches are translated at the same time; the batches are then
timed in four groups, like the batches of CTranslate2's pools.
"""

import argparse
import concurrent.futures
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from peers import load_reporter, read_corpus

import keras_transformer as kt
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.batching import pad_rows
from keras_transformer.translation.inference import Inference
from keras_transformer.translation.programs import make_runner


def main():
    arguments = parse_arguments()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.within)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    reporter = load_reporter(arguments.peers)
    keras.utils.set_random_seed(1)
    config = kt.preset(arguments.size, vocab_size=reporter.VOCAB)
    model = kt.Transformer(config)
    folder = arguments.data or reporter.DATA
    corpus = read_corpus(f"{folder}/test_2016_flickr.ids.json", arguments.limit)
    rows = np.split(corpus.source.ids, corpus.source.offsets[1:-1])
    for beam_size in arguments.beams:
        decoding = DecodingConfig(
            beam_size=beam_size, min_length=arguments.length
        )
        inference = ForcedLengthInference(
            model, decoding, max_source_length=256
        )
        for batch_size in arguments.batches:
            batches = [
                rows[i : i + batch_size]
                for i in range(0, len(rows), batch_size)
            ]
            reporter.report_decoding(
                "keras-transformer",
                arguments.size,
                variant_of(arguments),
                batch_size,
                beam_size,
                arguments.length,
                measure(
                    inference,
                    arguments.jit_compile,
                    batches,
                    arguments.workers,
                    reporter.Clock(),
                ),
            )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", required=True, help="the peers' scripts")
    parser.add_argument("--data", help="the peers' data; default: their own")
    parser.add_argument("--size", default="tiny", choices=["tiny", "base"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--length", type=int, default=20, help="forced output length, in tokens"
    )
    parser.add_argument(
        "--limit", type=int, default=1000, help="sentences to translate"
    )
    parser.add_argument(
        "--jit_compile", action=argparse.BooleanOptionalAction, default=True
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="batches that are translated at the same time",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())),
        help="operations at the same time",
    )
    parser.add_argument(
        "--within",
        type=int,
        help="threads within an operation (default: as in the commands)",
    )
    arguments = parser.parse_args()
    if arguments.within is None:
        arguments.within = arguments.threads if arguments.jit_compile else 1
    return arguments


def variant_of(arguments):
    """Name of the case: "graph-fp32", "graph-fp32-xla 2 workers"."""
    compiled = "-xla" if arguments.jit_compile else ""
    several = f" {arguments.workers} workers" if arguments.workers > 1 else ""
    return f"graph-fp32{compiled}{several}"


class ForcedLengthInference(Inference):
    """Inference whose every output has the same length."""

    def output_limits(self, source_ids):
        length = self.decoding.min_length
        limits = ops.full((ops.shape(source_ids)[0],), length, "int32")
        return limits, length


def measure(inference, jit_compile, batches, workers, clock):
    """A dictionary of times and counts for every group of batches."""
    length = inference.decoding.min_length
    graph = make_runner(jit_compile)
    padded = [pad_rows(batch) for batch in batches]
    by_shape = {source_ids.shape: source_ids for source_ids in padded}

    def search(source_ids):
        found = graph(
            inference.translate_ids,
            source_ids,
            shapes="static" if jit_compile else "free",
        )
        return found.lengths[:, 0]

    for source_ids in [*by_shape.values(), *padded[:2]]:
        search(source_ids)  # traces, compiles, warms up
    parts = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for group in groups_of(
            list(zip(batches, padded, strict=True)), workers
        ):
            clock.lap()
            found = list(pool.map(search, [ids for _, ids in group]))
            seconds, foreign = clock.lap()
            lengths = np.concatenate(
                [
                    row[: len(batch)]
                    for (batch, _), row in zip(group, found, strict=True)
                ]
            )
            if set(lengths) != {length}:
                raise SystemExit(f"Other lengths: {sorted(set(lengths))}")
            parts.append(
                {
                    "sec": seconds,
                    "foreign": foreign,
                    "sentences": len(lengths),
                    "tokens": int(lengths.sum()),
                }
            )
    return parts


def groups_of(batches, workers):
    """Batches that are timed at once: one, or a quarter for several workers."""
    size = 1 if workers == 1 else -(-len(batches) // 4)
    return [batches[i : i + size] for i in range(0, len(batches), size)]


if __name__ == "__main__":
    main()
