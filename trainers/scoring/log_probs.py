"""The work of `kt-score`: log-probabilities of given translations."""

import itertools
import json
import math
import sys
import typing
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer.commands import flags
from keras_transformer.text.case_marks import GLYPHS
from trainers.scoring.options import TestOptions
from trainers.scoring.test_sets import read_data, read_test_pairs
from trainers.translating.lines import CHUNK, open_translator, write_lines
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator


def score_lines(
    translator: "Translator",
    pairs: Iterable[tuple[str, str]],
    show_tokens: bool,
    chunk_size: int = CHUNK,
) -> Iterator[str]:
    """Yields a line of scores for each pair, then a summary in JSON.

    A line has the log-probability, in nats, and the number of tokens. With
    `show_tokens`, the tokens and their log-probabilities follow. `chunk_size`
    pairs are scored together.
    """
    pieces = [GLYPHS.get(p, p) for p in translator.tokenizer.target.pieces]
    pairs = iter(pairs)
    total, num_tokens, num_pairs, truncated = 0.0, 0, 0, 0
    while chunk := list(itertools.islice(pairs, chunk_size)):
        scores = translator.score(chunk)
        for number, score in enumerate(scores, num_pairs + 1):
            for note in score.notes:
                logging.warning("line %d %s", number, note)
            log_prob = math.fsum(score.log_probs)
            columns = [f"{log_prob:.6f}", str(len(score.ids))]
            if show_tokens:
                columns.append(" ".join(pieces[id] for id in score.ids))
                columns.append(" ".join(f"{x:.6f}" for x in score.log_probs))
            yield "\t".join(columns)
            total += log_prob
            num_tokens += len(score.ids)
            truncated += score.truncated
        num_pairs += len(scores)
    nll = -total / num_tokens
    summary = {
        # JSON has no infinity.
        "perplexity": math.exp(nll) if nll < 700 else None,
        "log_prob": total,
        "tokens": num_tokens,
        "pairs": num_pairs,
        "truncated": truncated,
    }
    yield json.dumps(summary)


def run(choice: TranslatorChoice, test: TestOptions, show_tokens: bool) -> None:
    """Scores the test pairs, and writes the lines of `score_lines`."""
    with flags.user_errors():
        data = read_data(choice.options.workdirs[0], choice.languages)
        pairs = read_test_pairs(data, test)
    lines = score_lines(open_translator(choice), pairs, show_tokens)
    write_lines(lines, sys.stdout.buffer)
