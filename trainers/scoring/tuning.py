"""Chooses options of the search by the score of validation pairs."""

import dataclasses
import re
import typing
from collections.abc import Callable, Iterable, Sequence

from keras_transformer.config import DecodingConfig
from keras_transformer.workdir import WorkDirectory, write_atomically

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

TUNED = ("beam_size", "length_penalty")


class Trial(typing.NamedTuple):
    """What a search with some options scored.

    Attributes:
        beam_size, length_penalty: Of the `DecodingConfig`.
        score: The metric's.
    """

    beam_size: int
    length_penalty: float
    score: float


def try_options(
    translator: "Translator",
    sources: Sequence[str],
    score: Callable[[list[str]], float],
    beam_sizes: Iterable[int],
    length_penalties: Iterable[float],
) -> list[Trial]:
    """Translates once with each pair of options.

    Args:
        translator: The `Translator`; its own options are tried, too.
        sources: Sentences.
        score: Function of their translations.
        beam_sizes, length_penalties: To try, each of one with each of the
            other.

    Returns:
        A `Trial` each, by beam size and length penalty; no pair twice.
    """
    own = tuple(getattr(translator.decoding, name) for name in TUNED)
    grid = {(b, p) for b in beam_sizes for p in length_penalties} | {own}
    trials = []
    for beam_size, length_penalty in sorted(grid):
        searching = translator.with_decoding(
            beam_size=beam_size, length_penalty=length_penalty
        )
        outputs = searching.translate(sources)
        trials.append(Trial(beam_size, length_penalty, score(outputs)))
    return trials


def best_of(trials: Iterable[Trial]) -> Trial:
    """The greatest score; of equal ones the smallest beam, then penalty.

    >>> best_of([Trial(4, 0.6, 30.0), Trial(4, 0.4, 30.0), Trial(2, 1.0, 9.0)])
    Trial(beam_size=4, length_penalty=0.4, score=30.0)
    """
    return min(trials, key=lambda t: (-t.score, t.beam_size, t.length_penalty))


def table(trials: Sequence[Trial], label: str) -> list[str]:
    """The scores as lines: a row for each length penalty, the best starred.

    Args:
        trials: Trials.
        label: The metric's.
    """
    beam_sizes = sorted({trial.beam_size for trial in trials})
    scores = {(t.beam_size, t.length_penalty): t.score for t in trials}
    best = best_of(trials)
    lines = [f"{label} by length penalty and beam size"]
    lines.append(" " * 8 + "".join(f"{size:>10}" for size in beam_sizes))
    for penalty in sorted({trial.length_penalty for trial in trials}):
        cells = []
        for size in beam_sizes:
            is_best = (size, penalty) == best[:2]
            cell = "-"
            if (size, penalty) in scores:
                cell = f"{scores[size, penalty]:.2f}{'*' if is_best else ''}"
            cells.append(f"{cell:>10}")
        lines.append(f"{penalty:>8g}" + "".join(cells))
    return lines


def save_decoding(workdir: WorkDirectory, decoding: DecodingConfig) -> None:
    """Writes options of the search into `config.json` and `flags.txt`.

    Raises:
        ValueError: A training is going on there: it would write its own.
        OSError: They cannot be written.
    """
    with workdir.claimed():
        workdir.replace_section("decoding", decoding)
        if workdir.flags_path.exists():
            text = workdir.flags_path.read_text(encoding="utf-8")
            for name in TUNED:
                # Not by `splitlines`: a path may have a U+2028, or its like.
                text = re.sub(
                    rf"^--{name}=.*$",
                    f"--{name}={getattr(decoding, name)}",
                    text,
                    flags=re.MULTILINE,
                )
            write_atomically(workdir.flags_path, text)


def changed(decoding: DecodingConfig, trial: Trial) -> DecodingConfig:
    """Options of a search with those of a trial in them."""
    return dataclasses.replace(
        decoding,
        beam_size=trial.beam_size,
        length_penalty=trial.length_penalty,
    )
