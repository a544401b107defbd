"""Alignment error of guided against unguided attention, and their BLEU.

    python benchmarks/alignment_error.py --unguided=DIR --guided=DIR \\
        --test_files=PREFIX --gold=LINKS

The runs in the work directories have the same flags, except that one has
--guided_alignment. LINKS has a statistical aligner's links for the test pairs,
which no run has seen. For each kind of attention, the script measures the
alignment error rate, precision and recall of its links, one for each target
word (`trainers.align`). The best head is chosen by these same links, which
favors the unguided model.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import sacrebleu
from results import add_flag, record

import keras_transformer as kt
from keras_transformer.config import aligns_when_read, find_alignment_layer
from keras_transformer.data.labels import shift_right
from keras_transformer.text.vocabulary import PAD
from keras_transformer.translation.alignment import align_words, word_side
from trainers.scoring.alignment import error_rate, read_gold

BATCH = 50  # pairs whose attention is computed at once


def main():
    arguments = parse_arguments()
    pairs = list(kt.read_parallel_files([arguments.test_files], "en", "de"))
    gold = read_gold(arguments.gold, pairs)
    unguided, guided = (
        kt.Translator.load(path)
        for path in (arguments.unguided, arguments.guided)
    )
    guided_links = [alignment.links for alignment in guided.align(pairs)]
    rows = [
        *unguided_rows(unguided, pairs, gold),
        row("guided head", guided_links, gold),
    ]
    scores = [
        {"model": name, "BLEU": round(bleu(translator, pairs), 2)}
        for name, translator in (("unguided", unguided), ("guided", guided))
    ]
    for each in rows + scores:
        print(each)
    if arguments.record:
        record(
            "alignment_error",
            "Alignment error of guided attention",
            {"attention": rows, "translation": scores},
            notes=arguments.notes,
        )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("unguided", "guided", "test_files", "gold"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--notes", default="", help="recorded with the result")
    add_flag(parser)
    return parser.parse_args()


def unguided_rows(translator, pairs, gold):
    """Returns rows for every layer, and for the best head of all.

    They are for the steps that read a token, and for those that write it.
    """
    attention = cross_attention(translator, pairs)
    sides = [sides_of(translator.tokenizer, pair) for pair in pairs]
    config, decoding = translator.model.config, translator.decoding
    default = (
        "read" if aligns_when_read(config, decoding) else "written",
        find_alignment_layer(config, decoding),
    )
    found = []
    for step, tokens in (("read", slice(1, None)), ("written", slice(-1))):

        def links(choose, tokens=tokens):
            """Aligns by the attention `[T, S]` that `choose` takes from all."""
            return [
                align_words(choose(of_pair)[tokens], *both)
                for of_pair, both in zip(attention, sides, strict=True)
            ]

        num_layers, num_heads = attention[0].shape[:2]
        found += [
            row(
                f"unguided, where a token is {step}, heads of layer {layer + 1}"
                + ", the default" * ((step, layer + 1) == default),
                links(lambda of_pair, layer=layer: of_pair[layer].mean(0)),
                gold,
            )
            for layer in range(num_layers)
        ]
        by_head = [
            row(
                f"unguided, where a token is {step}, the best head:"
                f" {head + 1} of layer {layer + 1}",
                links(lambda of_pair, at=(layer, head): of_pair[at]),
                gold,
            )
            for layer in range(num_layers)
            for head in range(num_heads)
        ]
        found.append(min(by_head, key=lambda one: one["AER, %"]))
    return found


def cross_attention(translator, pairs):
    """Returns each pair's attention `[L, H, T, S - 1]`, with a row per step."""
    tokenizer = translator.tokenizer
    found = []
    for start in range(0, len(pairs), BATCH):
        sources, targets = zip(*pairs[start : start + BATCH], strict=True)
        rows = tokenizer.source.to_ids(list(sources))
        labels = tokenizer.target.to_ids(list(targets))
        maps = translator.model.attention_maps(
            {
                "source_ids": padded(rows),
                "target_ids": shift_right(padded(labels)),
            }
        )
        for weights, row_ids, label_ids in zip(
            np.asarray(maps.cross), rows, labels, strict=True
        ):
            found.append(weights[:, :, : len(label_ids), : len(row_ids) - 1])
    return found


def padded(rows):
    """Converts lists of ids to a padded array, int32 `[B, T]`."""
    array = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for line, ids in zip(array, rows, strict=True):
        line[: len(ids)] = ids
    return array


def sides_of(tokenizer, pair):
    """Returns the `Side` of the source and of the target."""
    return [
        word_side(text, side.tokens([text])[0])
        for side, text in zip(
            (tokenizer.source, tokenizer.target), pair, strict=True
        )
    ]


def row(name, links, gold):
    """Returns a row: error rate, precision and recall of links, in percent."""
    found = sum(map(len, links))
    right = sum(
        len(possible & set(of_pair))
        for of_pair, (_, possible) in zip(links, gold, strict=True)
    )
    sure = sum(
        len(of_gold & set(of_pair))
        for of_pair, (of_gold, _) in zip(links, gold, strict=True)
    )
    wanted = sum(len(of_gold) for of_gold, _ in gold)
    return {
        "attention": name,
        "AER, %": round(100 * error_rate(links, gold), 1),
        "precision, %": round(100 * right / found, 1),
        "recall, %": round(100 * sure / wanted, 1),
    }


def bleu(translator, pairs):
    """Translates the sources, and returns sacreBLEU's BLEU."""
    sources, references = zip(*pairs, strict=True)
    outputs = translator.translate(list(sources))
    return sacrebleu.corpus_bleu(outputs, [list(references)]).score


if __name__ == "__main__":
    main()
