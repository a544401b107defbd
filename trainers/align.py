"""Aligns the words of sentence pairs by attention, and chooses the layer.

    python -m trainers.align --workdir=DIR --test_files=PREFIX [--gold=FILE]

For each pair one line: the links of its words, source-target, counted from 0,
as in 0-0 1-2 (Pharaoh's form, which fast_align writes, too). The last line is a
JSON object. Without --alignment_layer, every decoder layer is tried and the
best taken:

- with --gold, that of the lowest alignment error rate (Och and Ney 2003);
- without, that which links most anchors: words that stand once in the source
  and once in the target, such as names and numbers.

What is chosen is the value for --alignment_layer of other commands.
"""

import collections
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Sequence

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from trainers.run.config import DataConfig, same_field
from trainers.scoring.test_sets import (
    TestOptions,
    check_lines,
    read_test_pairs,
    read_text,
)
from trainers.translate import (
    TranslatorOptions,
    load_tensorflow_for,
    load_translator,
    pharaoh,
    write_lines,
)

Links = set[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The alignment."""

    alignment_layer: int | None = same_field(DecodingConfig, "alignment_layer")
    gold: str | None = hp(
        None,
        "File with the right links of each pair: 0-0 where they are sure, 0p0"
        " where they are possible.",
    )


def read_gold(path: str) -> list[tuple[Links, Links]]:
    """The sure and the possible links of each line; the sure are possible, too.

    Raises:
        ValueError: A link is none, or the file is not UTF-8.
        OSError: It cannot be read.
    """
    found = []
    for number, line in enumerate(read_text(path), 1):
        sure: Links = set()
        possible: Links = set()
        for link in line.split():
            match = re.fullmatch(r"(\d+)([-p])(\d+)", link)
            if not match:
                raise ValueError(
                    f"{path}, line {number}: a link must be as 0-0 or 0p0."
                    f" Received: {link!r}"
                )
            place = int(match[1]), int(match[3])
            possible.add(place)
            if match[2] == "-":
                sure.add(place)
        found.append((sure, possible))
    return found


def check_gold(
    path: str,
    gold: Sequence[tuple[Links, Links]],
    pairs: Sequence[tuple[str, str]],
) -> None:
    """Raises ValueError if a link is beyond the words of its pair."""
    for number, (pair, (_, possible)) in enumerate(
        zip(pairs, gold, strict=True), 1
    ):
        sizes = tuple(len(text.split()) for text in pair)
        for source, target in sorted(possible):
            if source >= sizes[0] or target >= sizes[1]:
                raise ValueError(
                    f"{path}, line {number}: the pair has {sizes[0]} and"
                    f" {sizes[1]} words, counted from 0. Received: a link of"
                    f" {source} and {target}"
                )


def error_rate(
    alignments: Sequence[Sequence[tuple[int, int]]],
    gold: Sequence[tuple[Links, Links]],
) -> float:
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|) of a whole corpus.

    >>> error_rate([[(0, 0), (1, 1)]], [({(0, 0)}, {(0, 0), (1, 0)})])
    0.33333333333333337
    """
    right = total = 0
    for links, (sure, possible) in zip(alignments, gold, strict=True):
        right += len(sure & set(links)) + len(possible & set(links))
        total += len(links) + len(sure)
    return 1 - right / total if total else 0.0


def find_anchors(source: str, target: str) -> Links:
    """Links of words that stand once in the source and once in the target.

    Case and punctuation at their ends do not matter.

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


def choose_layer(translator, pairs, gold):
    """Aligns by the best layer, as the command's text says.

    Args:
        translator: The `Translator`.
        pairs: List of (source, target).
        gold: What `read_gold` returns; None: anchors decide.

    Returns:
        The alignments of the best layer, and a dictionary: `layer`, `criterion`
        and its value for each layer in `layers`.

    Raises:
        CommandError: There is neither gold nor an anchor.
    """
    anchors = [find_anchors(*pair) for pair in pairs]
    num_anchors = sum(map(len, anchors))
    if gold is None and not num_anchors:
        raise flags.CommandError(
            "expected pairs with a word that both sides have, gold=FILE or"
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


def output_lines(translator, pairs, gold, given) -> Iterator[str]:
    """Yields the lines of the command.

    Args:
        translator, pairs, gold: As in `choose_layer`.
        given: The layer that was asked for; None: the best is chosen.

    Raises:
        CommandError: No layer can be chosen.
        RunError: The model's attention is not finite.
    """
    try:
        if given is None:
            alignments, summary = choose_layer(translator, pairs, gold)
        else:
            alignments = translator.align(pairs)
            summary = {"layer": given, "criterion": "given"}
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error
    links = [alignment.links for alignment in alignments]
    if gold is not None:
        summary["aer"] = error_rate(links, gold)
    summary["pairs"] = len(pairs)
    summary["truncated"] = sum(a.truncated for a in alignments)
    yield from map(pharaoh, links)
    yield json.dumps(summary)


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.align"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, TestOptions, Options
        )
        options = arguments.build(Options)
        test = arguments.build(TestOptions)
        flags.check_streams("stdout")
        path = load_tensorflow_for(arguments, searches=False).workdir
        # Not at the top: see `trainers.evaluate`.
        from keras_transformer.workdir import WorkDirectory

        gold = None
        with flags.user_errors():
            data = WorkDirectory(path).read_section("data", DataConfig)
            pairs = list(read_test_pairs(data, test))
            if options.gold:
                gold = read_gold(options.gold)
                check_lines(options.gold, gold, pairs)
                check_gold(options.gold, gold, pairs)
        translator = load_translator(arguments)
        lines = output_lines(translator, pairs, gold, options.alignment_layer)
        write_lines(lines, sys.stdout.buffer)


if __name__ == "__main__":
    main()
