"""Metrics for validation, for `kt-evaluate` and for the end of a run.

A `Metric` scores the outputs of a task; a `DirectionalMetric` has one for each
direction. `session.run` takes the function that makes the latter, so tasks
other than translation pass their own. To report one more score of translations,
extend `TranslationMetric.measure`.
"""

import functools
import itertools
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from absl import logging
from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.commands import flags
from keras_transformer.data.languages import base_language

# Tokenizer of sacreBLEU -> the extra that installs the package it needs.
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
FALLBACK = "char"  # the tokenizer if that package is not installed
# Written without spaces, and without a tokenizer in sacreBLEU.
UNSPACED_LANGUAGES = ("bo", "dz", "km", "lo", "my", "th", "yue")
# Written without spaces: Moses' tokens would be whole sentences.
WITHOUT_MOSES = ("zh", "ja", *UNSPACED_LANGUAGES)
SPLIT_COMPOUNDS = ("de",)  # as papers measure BLEU for German


class Metric(Protocol):
    """A metric for the outputs of a task."""

    key: str  # the name of a TensorBoard curve, for example: "bleu"
    label: str  # the name in log lines: "BLEU (13a)"

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> float:
        """Computes a score of at least 0, highest for the best checkpoint."""

    def measure(
        self, outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float | str]:
        """Computes all scores that `kt-evaluate` reports, by name."""


def sentence_chrf(output: str, reference: str) -> float:
    """Computes the chrF of a sentence, 100 if it is its reference."""
    if output == reference:
        return 100.0
    return CHRF().sentence_score(output, [reference]).score


class TranslationMetric:
    """BLEU, tokenized BLEU, chrF, chrF++, TER by sacreBLEU; see `Metric`."""

    key = "bleu"

    def __init__(self, target_language: str, bleu_tokenizer: str = "auto"):
        self.tokenizer = choose_tokenizer(target_language, bleu_tokenizer)
        self.label = f"BLEU ({self.tokenizer})"
        self._language = base_language(target_language)
        self._bleu = BLEU(tokenize=self.tokenizer)

    def score(self, outputs: Sequence[str], references: Sequence[str]) -> float:
        """Computes case-sensitive BLEU, in [0, 100]."""
        return self._bleu.corpus_score(outputs, [references]).score

    def metrics(self):
        """Returns sacreBLEU's metrics for comparing systems, by name."""
        return {
            "BLEU": BLEU(tokenize=self.tokenizer),
            "chrF2": CHRF(),
            "TER": TER(),
        }

    def measure(
        self,
        outputs: Sequence[str],
        references: Sequence[str],
        *more_references: Sequence[str],
    ) -> dict[str, float | str]:
        """Computes all scores, with signatures, for one or more references."""
        streams = [references, *more_references]
        result: dict[str, float | str] = {}

        def add(
            name: str,
            metric: BLEU | CHRF | TER,
            outputs: Sequence[str] = outputs,
            streams: Sequence[Sequence[str]] = streams,
        ):
            result[name] = metric.corpus_score(outputs, streams).score
            return metric.get_signature()

        # These keys are older than the others, and keep their form.
        result["signature"] = str(add("bleu", self._bleu))
        lowercase = BLEU(lowercase=True, tokenize=self.tokenizer)
        add("bleu_lowercase", lowercase)
        others = {"chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": TER()}
        for name, metric in others.items():
            result[f"{name}_signature"] = str(add(name, metric))
        for name, tokenize, tokenizer in self._tokenized_bleus():
            signature = add(
                name,
                # multi-bleu.perl: words as they are, no smoothing.
                BLEU(tokenize="none", smooth_method="none", force=True),
                [tokenize(line) for line in outputs],
                [[tokenize(line) for line in stream] for stream in streams],
            )
            signature.update("tok", tokenizer)
            result[f"{name}_signature"] = str(signature)
        return {**result, "sentences": len(outputs)}

    def _tokenized_bleus(self):
        """Yields key, tokenizer and tokenizer's name of each tokenized BLEU.

        The paper reports this kind of BLEU.
        """
        if self._language in WITHOUT_MOSES:
            return
        name, tokenize = f"moses-{self._language}", moses(self._language)
        yield "bleu_tokenized", tokenize, name
        if self._language in SPLIT_COMPOUNDS:
            yield (
                "bleu_compound_split",
                lambda line: split_compounds(tokenize(line)),
                f"{name}-atat",
            )


def moses(language: str) -> Callable[[str], str]:
    """Makes a tokenizer like Moses' tokenizer.perl.

    Papers of 2017 used it for BLEU. Special characters are not escaped
    (`-no-escape`), which changes no n-gram that matches.

    >>> moses("de")('Am 3. Mai, "heute"...')
    'Am 3. Mai , " heute " ...'
    """
    # Not at the top: the import takes half a second.
    from sacremoses import MosesTokenizer

    return functools.partial(
        MosesTokenizer(language).tokenize, escape=False, return_str=True
    )


def split_compounds(tokenized: str) -> str:
    """Splits compounds at hyphens: "rich-text" is three tokens.

    The paper's BLEU for English to German is measured this way, as in earlier
    papers: `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`.

    >>> split_compounds("a rich-text format")
    'a rich ##AT##-##AT## text format'
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


class Scores(typing.NamedTuple):
    """The scores of directions, by their names in `DirectionalMetric`.

    >>> str(Scores({"": 30.0})), str(Scores({"<2de>": 30.0, "<2fr>": 41.0}))
    ('30.00', '35.50 (<2de> 30.00, <2fr> 41.00)')
    """

    by_direction: dict[str, float]

    @property
    def mean(self) -> float:
        """The mean of the scores, which chooses the best checkpoint."""
        return sum(self.by_direction.values()) / len(self.by_direction)

    def __str__(self):
        parts = [f"{name} {x:.2f}" for name, x in self.by_direction.items()]
        listed = f" ({', '.join(parts)})" if len(parts) > 1 else ""
        return f"{self.mean:.2f}{listed}"


class DirectionalMetric:
    """A `Metric` for each direction of a model, by name.

    The name of a direction is the tag of its sources or, with
    `language_tokens`, its languages, such as "en-de". Most models have one
    direction, "".
    """

    def __init__(self, by_direction: Mapping[str, Metric]):
        self.by_direction = by_direction
        metrics = by_direction.values()
        self.key = next(iter(metrics)).key
        labels = dict.fromkeys(metric.label for metric in metrics)
        mean = "mean " if len(by_direction) > 1 else ""
        self.label = mean + ", ".join(labels)

    def score(
        self,
        outputs: Sequence[str],
        pairs: Mapping[str, Sequence[tuple[typing.Any, str]]],
    ) -> Scores:
        """Computes the score of the outputs of each direction.

        Args:
            outputs: The outputs for all pairs, direction after direction.
            pairs: Pairs of source and reference, by the name of the direction.
        """
        left, scores = iter(outputs), {}
        for name, rows in pairs.items():
            references = [reference for _, reference in rows]
            own = list(itertools.islice(left, len(rows)))
            scores[name] = self.by_direction[name].score(own, references)
        return Scores(scores)


def make_metric(
    directions: Mapping[str, str], bleu_tokenizer: str
) -> DirectionalMetric:
    """Makes a metric from the target language of each direction, by name."""
    return DirectionalMetric(
        {
            name: TranslationMetric(language, bleu_tokenizer)
            for name, language in directions.items()
        }
    )


def choose_tokenizer(target_language: str, choice: str = "auto") -> str:
    """Chooses sacreBLEU's tokenizer for a language, such as "zh-Hant".

    13a treats a sentence without spaces as one word, so that BLEU is near 0 for
    any translation. sacreBLEU has tokenizers for three such languages. "auto"
    chooses these, or `FALLBACK`, with a warning, if a package is missing.
    Raises ValueError if a tokenizer chosen by name lacks its package.

    >>> choose_tokenizer("de"), choose_tokenizer("zho_Hans")
    ('13a', 'zh')
    """
    if choice != "auto":
        if problem := _missing_package(choice):
            raise ValueError(f"{problem}. Received: bleu_tokenizer={choice!r}")
        return choice
    language = base_language(target_language)
    name = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}.get(language, "13a")
    if problem := _missing_package(name):
        logging.warning("%s; BLEU uses %s until then", problem, FALLBACK)
        return FALLBACK
    if language in UNSPACED_LANGUAGES:
        logging.warning(
            "BLEU with %s treats a sentence without spaces as one word:"
            " --bleu_tokenizer=%s suits %s better",
            name,
            FALLBACK,
            target_language,
        )
    return name


def _missing_package(name: str) -> str | None:
    """Returns why a tokenizer of sacreBLEU cannot be used, None if it can."""
    if name in EXTRAS:
        try:
            BLEU(tokenize=name)
        except RuntimeError:  # raised by sacreBLEU if the import has failed
            return (
                f"sacreBLEU's tokenizer {name} needs a package that is not"
                f" installed: {flags.how_to_install(EXTRAS[name])}"
            )
    return None
