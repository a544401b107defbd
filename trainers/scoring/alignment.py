"""The work of `kt-align`: linking words, and choosing the best layer for it."""

import collections
import json
import re
import sys
import typing
from collections.abc import Iterator, Sequence

from keras_transformer.commands import flags
from keras_transformer.config import find_alignment_layer
from keras_transformer.data.word_links import parse_links
from trainers.scoring.options import TestOptions
from trainers.scoring.test_sets import (
    check_lines,
    read_data,
    read_test_pairs,
    read_text,
)
from trainers.translating.lines import open_translator, pharaoh, write_lines
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.translation.results import Alignment
    from keras_transformer.translator import Translator

Links = set[tuple[int, int]]  # (source word, target word), both from 0
Gold = Sequence[tuple[Links, Links]]  # for each pair, sure links and all links


def read_gold(path: str, pairs: Sequence[tuple[str, str]]) -> Gold:
    """Reads the sure links and all links of each pair from a file.

    Raises ValueError if a line is wrong, or if there is not one for each pair.
    """
    lines = read_text(path)
    check_lines(path, lines, pairs)
    found = []
    for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), 1):
        sizes = [len(text.split()) for text in pair]
        links = list(parse_links(line, sizes, f"{path}, line {number}"))
        sure = {(link.source, link.target) for link in links if link.sure}
        found.append((sure, {(link.source, link.target) for link in links}))
    return found


def error_rate(
    alignments: Sequence[Sequence[tuple[int, int]]], gold: Gold
) -> float:
    """Computes the alignment error rate of a corpus.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), with the links A that were
    found, the sure links S, and all links P of the gold alignment.

    >>> error_rate([[(0, 0), (1, 1)]], [({(0, 0)}, {(0, 0), (1, 0)})])
    0.33333333333333337
    """
    right = total = 0
    for links, (sure, possible) in zip(alignments, gold, strict=True):
        right += len(sure & set(links)) + len(possible & set(links))
        total += len(links) + len(sure)
    return 1 - right / total if total else 0.0


def find_anchors(source: str, target: str) -> Links:
    """Links equal words that occur once in the source and once in the target.

    Case, and punctuation at both ends of a word, are ignored.

    >>> find_anchors("On May 3 Ann left.", "Am 3. Mai ging Ann weg.")
    {(2, 1), (3, 4)}
    """
    sides = []
    for text in (source, target):
        words = [re.sub(r"^\W+|\W+$", "", w).lower() for w in text.split()]
        counts = collections.Counter(words)
        sides.append(
            {word: i for i, word in enumerate(words) if counts[word] == 1}
        )
    one, other = sides
    return {(one[word], other[word]) for word in one.keys() & other if word}


def choose_layer(
    translator: "Translator",
    pairs: Sequence[tuple[str, str]],
    gold: Gold | None,
) -> tuple[list["Alignment"], dict[str, typing.Any]]:
    """Aligns with the decoder layer that fits the gold alignment best.

    Without gold, the layer is chosen by the share of anchors that it finds.
    Returns the alignments, and a dictionary of `layer`, `criterion`, and the
    criterion's value for each layer in `layers`.
    """
    anchors = [find_anchors(*pair) for pair in pairs]
    num_anchors = sum(map(len, anchors))
    if gold is None and not num_anchors:
        raise flags.CommandError(
            "expected pairs with a word in common, gold=FILE or"
            " alignment_layer=NUMBER. Received: none of them"
        )
    tried = []
    for layer in range(1, translator.model.config.decoder_depth + 1):
        by_layer = translator.with_decoding(alignment_layer=layer)
        alignments = by_layer.align(pairs)
        links = [alignment.links for alignment in alignments]
        if gold is None:
            found = zip(anchors, links, strict=True)
            value = sum(len(a & set(b)) for a, b in found) / num_anchors
            rank = -value
        else:
            rank = value = error_rate(links, gold)
        tried.append((rank, layer, value, alignments))
    _, layer, _, alignments = min(tried, key=lambda one: one[:2])
    return alignments, {
        "layer": layer,
        "criterion": "anchors" if gold is None else "aer",
        "layers": [value for _, _, value, _ in tried],
    }


def output_lines(
    translator: "Translator",
    pairs: Sequence[tuple[str, str]],
    gold: Gold | None,
    given: int | None,
) -> Iterator[str]:
    """Yields a line of links for each pair, then a summary in JSON.

    The links come from the layer `given`, or else from the best one.
    """
    if given is None:
        alignments, summary = choose_layer(translator, pairs, gold)
    else:
        alignments = translator.align(pairs)
        summary = {"layer": given, "criterion": "given"}
    links = [alignment.links for alignment in alignments]
    if gold is not None:
        summary["aer"] = error_rate(links, gold)
    summary["pairs"] = len(pairs)
    summary["truncated"] = sum(a.truncated for a in alignments)
    yield from map(pharaoh, links)
    yield json.dumps(summary)


def run(
    choice: TranslatorChoice,
    test: TestOptions,
    alignment_layer: int | None,
    gold: str | None,
) -> None:
    """Aligns the test pairs with the given layer, or else with the best one."""
    links = None
    with flags.user_errors():
        data = read_data(choice.options.workdir, choice.languages)
        pairs = list(read_test_pairs(data, test))
        if gold:
            links = read_gold(gold, pairs)
    translator = open_translator(choice)
    if translator.decoding.alignment_head:
        alignment_layer = find_alignment_layer(
            translator.model.config, translator.decoding
        )
    lines = output_lines(translator, pairs, links, alignment_layer)
    write_lines(lines, sys.stdout.buffer)
