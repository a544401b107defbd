"""The work of `kt-tune`: choosing search options by validation score."""

import dataclasses
import itertools
import json
import re
import time
import typing
from collections.abc import Callable, Iterable, Sequence

from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.metrics import make_metric
from keras_transformer.translation.requests import Sentences
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
    """A beam size and a length penalty, with their score."""

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
    """Translates with each pair of options, and with the translator's own.

    `score` is called with the translations. Returns the trials, sorted by beam
    size and length penalty.
    """
    grid = {*itertools.product(beam_sizes, length_penalties)}
    trials = []
    for size, penalty in sorted(grid | {_tuned(translator)}):
        outputs = translator.with_decoding(
            beam_size=size, length_penalty=penalty
        ).translate(sources)
        trials.append(Trial(size, penalty, score(outputs)))
    return trials


def best_of(trials: Iterable[Trial]) -> Trial:
    """Finds the best trial. Ties go to the smallest beam, then penalty.

    >>> best_of([Trial(4, 0.6, 30.0), Trial(4, 0.4, 30.0), Trial(2, 1.0, 9.0)])
    Trial(beam_size=4, length_penalty=0.4, score=30.0)
    """
    return min(trials, key=lambda t: (-t.score, t.beam_size, t.length_penalty))


def table(trials: Sequence[Trial], label: str) -> list[str]:
    """Formats the scores, a row per length penalty, with the best starred."""
    beam_sizes = sorted({trial.beam_size for trial in trials})
    cells = {t[:2]: f"{t.score:.2f}" for t in trials}
    cells[best_of(trials)[:2]] += "*"
    lines = [f"{label} by length penalty and beam size"]
    lines.append(" " * 8 + "".join(f"{size:>10}" for size in beam_sizes))
    for penalty in sorted({trial.length_penalty for trial in trials}):
        row = [cells.get((size, penalty), "-") for size in beam_sizes]
        lines.append(f"{penalty:>8g}" + "".join(f"{c:>10}" for c in row))
    return lines


def save_trial(workdir: WorkDirectory, best: Trial) -> None:
    """Writes the options of a trial into `config.json` and `flags.txt`.

    Raises ValueError if a training run has the work directory locked.
    """
    chosen = {name: getattr(best, name) for name in TUNED}
    kept = workdir.read_section("decoding", DecodingConfig)
    with workdir.claimed():
        decoding = dataclasses.replace(kept, **chosen)
        workdir.replace_section("decoding", decoding)
        if workdir.flags_path.exists():
            text = workdir.flags_path.read_text(encoding="utf-8")
            for name, value in chosen.items():
                # `splitlines` would split a path at U+2028.
                text = re.sub(rf"(?m)^--{name}=.*$", f"--{name}={value}", text)
            write_atomically(workdir.flags_path, text)


def run(
    choice: TranslatorChoice,
    options: MetricOptions,
    valid_files: tuple[str, ...],
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    save: bool,
) -> None:
    """Tries search options and shows the scores. `save` keeps the best."""
    path = choice.options.workdir
    started = time.monotonic()
    with flags.user_errors():
        if save:
            WorkDirectory(path).check_path()
        data = read_data(path, choice.languages)
        expect(
            not choice.read_search().sampling,
            "a search, whose output is the same every time",
            "sampling=True",
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
    best, own = best_of(trials), _tuned(translator)
    if save:
        with flags.user_errors():
            save_trial(WorkDirectory(path), best)

    def spelled(trial: Trial) -> dict[str, float]:
        *options, score = trial
        return {**dict(zip(TUNED, options, strict=True)), metric.key: score}

    result = {
        **spelled(best),
        "before": spelled(next(t for t in trials if t[:2] == own)),
        "saved": save,
        "sentences": len(sources),
        "seconds": round(time.monotonic() - started, 3),
    }
    flags.show(json.dumps(result))


def _tuned(translator):
    return tuple(getattr(translator.decoding, name) for name in TUNED)
