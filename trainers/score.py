"""Scores given translations: their log-probabilities under the model.

    python -m trainers.score --workdir=DIR --test_files=PREFIX[,PREFIX...]

For each pair one line: the natural logarithm of the translation's probability,
a tab, and its number of tokens, EOS included. With --tokens, two more columns:
the tokens, and the log-probability of each, both separated by spaces. The last
line is a JSON object with the perplexity of a token.
"""

import dataclasses
import itertools
import json
import math
import sys
import typing
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer import flags
from keras_transformer.fields import Fields, hp
from trainers.run.config import DataConfig
from trainers.scoring.test_sets import TestOptions, read_test_pairs
from trainers.translate import (
    CHUNK,
    TranslatorOptions,
    load_tensorflow_for,
    load_translator,
    write_lines,
)

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The output."""

    tokens: bool = hp(
        False, "Show the tokens of each pair, and their log-probabilities."
    )


@dataclasses.dataclass
class Totals:
    """Sums over pairs.

    Attributes:
        log_prob: Of all translations.
        tokens: Of all translations, EOS included.
        pairs: Their number.
        truncated: Pairs of which the model could score only the beginning.
    """

    log_prob: float = 0.0
    tokens: int = 0
    pairs: int = 0
    truncated: int = 0

    def summary(self) -> dict[str, float | int | None]:
        """What the last line of the command says.

        A perplexity beyond what a float holds is None, as JSON has no infinity.
        """
        nll = -self.log_prob / self.tokens
        return {
            "perplexity": math.exp(nll) if nll < 700 else None,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
            "pairs": self.pairs,
            "truncated": self.truncated,
        }


def score_lines(
    translator: "Translator",
    pairs: Iterable[tuple[str, str]],
    show_tokens: bool,
    chunk_size: int = CHUNK,
) -> Iterator[str]:
    """Yields the lines of the command, chunk by chunk.

    Args:
        translator: The `Translator`.
        pairs: Iterable of (source, translation).
        show_tokens: As the flag.
        chunk_size: Pairs that are read, sorted and scored together.

    Raises:
        RunError: The model's logits are not finite.
    """
    pieces = translator.tokenizer.target.pieces
    totals, pairs = Totals(), iter(pairs)
    while chunk := list(itertools.islice(pairs, chunk_size)):
        try:
            scores = translator.score(chunk)
        except FloatingPointError as error:
            raise flags.RunError(str(error)) from error
        for number, score in enumerate(scores, totals.pairs + 1):
            for note in score.notes:
                logging.warning("line %d %s", number, note)
            log_prob = math.fsum(score.log_probs)
            columns = [f"{log_prob:.6f}", str(len(score.ids))]
            if show_tokens:
                columns.append(" ".join(pieces[id] for id in score.ids))
                columns.append(" ".join(f"{x:.6f}" for x in score.log_probs))
            yield "\t".join(columns)
            totals.log_prob += log_prob
            totals.tokens += len(score.ids)
            totals.truncated += score.truncated
            totals.pairs += 1
    yield json.dumps(totals.summary())


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.score"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, TestOptions, Options
        )
        options = arguments.build(Options)
        test = arguments.build(TestOptions)
        flags.check_streams("stdout")
        path = load_tensorflow_for(arguments, searches=False).workdir
        # Not at the top: see `trainers.evaluate`.
        from keras_transformer.workdir import WorkDirectory

        with flags.user_errors():
            data = WorkDirectory(path).read_section("data", DataConfig)
            pairs = read_test_pairs(data, test)
        translator = load_translator(arguments)
        lines = score_lines(translator, pairs, options.tokens)
        write_lines(lines, sys.stdout.buffer)


if __name__ == "__main__":
    main()
