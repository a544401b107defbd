"""The work of `kt-tune`: search options by validation score."""

import dataclasses
import json
import re
import time
import typing
from collections.abc import Callable, Iterable, Sequence

from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.files import write_atomically
from keras_transformer.metrics import make_metric
from keras_transformer.translation.requests import Sentences
from keras_transformer.workdir import WorkDirectory
from trainers.datasets.dataset import sources_of, to_translate
from trainers.scoring.evaluation import bleu_tokenizer_of
from trainers.scoring.options import MetricOptions
from trainers.scoring.test_sets import read_data, read_pairs
from trainers.translating.lines import open_translator
from trainers.translating.options import TranslatorChoice

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator

TUNED = ("beam_size", "length_penalty")


class Trial(typing.NamedTuple):
    """The score of one pair of search options."""

    beam_size: int
    length_penalty: float
    score: float


def try_options(
    translator: "Translator",
    sources: Sentences,
    score: Callable[[list[str]], float],
    beam_sizes: Iterable[int],
    length_penalties: Iterable[float],
) -> list[Trial]:
    """Translates once with each pair of options, and with the translator's own.

    The trials are sorted by beam size and length penalty.
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
    """The highest score; among equal ones the smallest beam, then penalty.

    >>> best_of([Trial(4, 0.6, 30.0), Trial(4, 0.4, 30.0), Trial(2, 1.0, 9.0)])
    Trial(beam_size=4, length_penalty=0.4, score=30.0)
    """
    return min(trials, key=lambda t: (-t.score, t.beam_size, t.length_penalty))


def table(trials: Sequence[Trial], label: str) -> list[str]:
    """The scores as lines: a row for each length penalty, the best starred."""
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

    ValueError: a training is running there, which would overwrite them.
    """
    with workdir.claimed():
        workdir.replace_section("decoding", decoding)
        if workdir.flags_path.exists():
            text = workdir.flags_path.read_text(encoding="utf-8")
            for name in TUNED:
                # Not by `splitlines`, which divides at U+2028 in a path.
                text = re.sub(
                    rf"^--{name}=.*$",
                    f"--{name}={getattr(decoding, name)}",
                    text,
                    flags=re.MULTILINE,
                )
            write_atomically(workdir.flags_path, text)


def run(
    choice: TranslatorChoice,
    options: MetricOptions,
    valid_files: tuple[str, ...],
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    save: bool,
) -> None:
    """Chooses the options of the search, and shows the scores."""
    path = choice.options.workdir
    started = time.monotonic()
    with flags.user_errors():
        data = read_data(path, choice.languages)
        if choice.read_search().sampling:
            raise ValueError(
                "expected a search, whose output is the same every time."
                " Received: sampling=True"
            )
        tokenizer = bleu_tokenizer_of(path, options)
        files = valid_files or data.valid_files
        metric = make_metric(data.directions_in(*files), tokenizer)
        found = read_pairs(data, "valid", valid_files)
        pairs = to_translate(data, metric.by_direction, found)
    sources = sources_of(pairs)
    translator = open_translator(choice)
    trials = try_options(
        translator,
        sources,
        lambda outputs: metric.score(outputs, pairs).mean,
        beam_sizes or [translator.decoding.beam_size],
        length_penalties,
    )
    flags.show(*table(trials, metric.label))
    best = best_of(trials)
    own = tuple(getattr(translator.decoding, name) for name in TUNED)
    [before] = [trial for trial in trials if trial[:2] == own]
    if save:
        workdir = WorkDirectory(path)
        kept = workdir.read_section("decoding", DecodingConfig)
        chosen = {name: getattr(best, name) for name in TUNED}
        with flags.user_errors():
            save_decoding(workdir, dataclasses.replace(kept, **chosen))

    def spelled(trial: Trial) -> dict[str, float]:
        tuned = {name: getattr(trial, name) for name in TUNED}
        return {**tuned, metric.key: trial.score}

    result = {
        **spelled(best),
        "before": spelled(before),
        "saved": save,
        "sentences": len(sources),
        "seconds": round(time.monotonic() - started, 3),
    }
    flags.show(json.dumps(result))
