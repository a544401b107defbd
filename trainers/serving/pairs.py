"""The language pairs of a server, and the work of its model thread."""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import logging

from keras_transformer.adapters import SwitchedAdapters, read_factors
from keras_transformer.checkpoints import Checkpoint
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.translation import assemble
from keras_transformer.translation.requests import Request, text_tokenizer
from keras_transformer.workdir import WorkDirectory
from trainers.translating.lines import open_translator
from trainers.translating.options import TranslatorChoice, TranslatorOptions

if typing.TYPE_CHECKING:
    from keras_transformer.translation.results import Translation
    from keras_transformer.translator import Translator

# Sources of at most this many tokens are translated as soon as the server is
# ready; for longer ones a program may still be missing.
USUAL_TOKENS = 64
Step = Callable[[], object]  # of the warm-up


class Model:
    """A translator of one direction or many, also with other search options.

    The programs of `max_searches` other search options stay in memory.
    """

    def __init__(self, translator: "Translator", max_searches: int):
        self.translator = translator
        self.switched: SwitchedAdapters | None = None
        self._with_decoding = functools.lru_cache(max_searches)(
            lambda decoding: translator.with_decoding(
                **dataclasses.asdict(decoding)
            )
        )

    def translator_for(self, decoding: DecodingConfig) -> "Translator":
        """The translator with certain search options."""
        if decoding == self.translator.decoding:
            return self.translator
        return self._with_decoding(decoding)

    def warm_up_steps(self) -> tuple[Sequence[Step], ...]:
        """Three lists of functions that make a program each.

        A translation of a usual sentence needs the first ones, also with what
        the page asks for: details and alternatives. Long sentences need the
        second ones. The last are `Translator.compile_steps`.
        """
        translator = self.translator
        languages = translator.languages
        direction = languages.direction(*languages.pairs[0])
        request = Request("a", direction=direction)
        usual: list[Step] = []
        late: list[Step] = []
        for num_best in sorted({1, translator.decoding.num_hypotheses}):
            for length, make in translator.warm_up_steps(num_best):
                (late if length > USUAL_TOKENS else usual).append(make)
        usual += [
            functools.partial(translator.score, [(request, "a")]),
            functools.partial(translator.align, [(request, "a")]),
        ]
        return usual, late, translator.compile_steps(num_best=1)

    def use(self, adapter: str) -> None:
        """Makes it the model with an adapter, or with "" without one.

        Only the thread that computes calls it.
        """
        if self.switched is not None:
            self.switched.use(adapter)


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A language pair."""

    # The codes of its languages.
    source: str
    target: str
    model: Model  # the model, which may serve others, too: all share batches
    direction: Direction | None  # what tells it these languages

    @property
    def is_same(self) -> bool:
        """Whether its texts are in the target language already."""
        return self.source == self.target

    @property
    def translator(self) -> "Translator":
        """The translator for its sentences."""
        languages = self.model.translator.languages
        if not languages.language_tokens and not languages.tags:
            return self.model.translator
        return self.model.translator.with_languages(self.source, self.target)


class Found(typing.NamedTuple):
    """What a search has found for a sentence."""

    translation: "Translation"  # the hypotheses, best first
    # Of each hypothesis, if they are wanted: "tokens" without EOS and "words"
    # as white space separates them, with the "text" and the "probability" of
    # each; "alignment": links of words, source and target, from 0.
    details: list[dict[str, list]]


@dataclasses.dataclass(frozen=True)
class Search:
    """Work for the batcher: `Request`s -> `Found`."""

    # The model. Each request has a direction.
    model: Model
    decoding: DecodingConfig  # the search options
    # Whether all hypotheses are wanted, or the best one. A number between would
    # need a program of its own.
    everything: bool = False
    details: bool = False  # whether details are wanted
    adapter: str = ""  # the name of an adapter, or ""

    def __call__(self, items: Sequence[Request]) -> list[Found]:
        """Translates sentences; see `trainers.serving.batcher.Work`."""
        self.model.use(self.adapter)
        translator = self.model.translator_for(self.decoding)
        found = translator.search(
            items,
            num_best=self.decoding.num_hypotheses if self.everything else 1,
        )
        if not self.details:
            return [Found(translation, []) for translation in found]
        pairs = [
            (request.as_source, text)
            for request, translation in zip(items, found, strict=True)
            for text in translation.texts
        ]
        details = iter(_details(translator, pairs))
        return [
            Found(translation, [next(details) for _ in translation.texts])
            for translation in found
        ]


class AlignSpans(typing.NamedTuple):
    """Work for the batcher: `Request`s and translations -> `SpanLink`s."""

    model: Model
    adapter: str

    def __call__(self, items: Sequence[tuple[Request, str]]) -> list:
        """As `Translator.align_spans`."""
        self.model.use(self.adapter)
        return self.model.translator.align_spans(items)


class DrawAttention(typing.NamedTuple):
    """Work for the batcher: texts and translations -> pages of attention."""

    pair: Pair
    adapter: str

    def __call__(self, items: Sequence[tuple[str, str]]) -> list[str]:
        """As `attention_figure`."""
        self.pair.model.use(self.adapter)
        figures = load("keras_transformer.figures.attention")
        languages = self.pair.source, self.pair.target
        return [
            figures.attention_figure(
                self.pair.translator, *item, languages
            ).html()
            for item in items
        ]


def load_pairs(
    options: TranslatorOptions,
    search: Mapping[str, typing.Any],
    max_searches: int,
    adapters: Sequence[tuple[str, str]] = (),
) -> list[Pair]:
    """The pairs of work directories; those with the same languages are one.

    A multilingual model gives a pair for each of its directions. `search` has
    fields of `DecodingConfig` that override the work directories'. `adapters`
    are names and work directories.
    """
    pairs: dict[tuple[str, str], Pair] = {}
    models: dict[Languages, list[str]] = {}
    for path in options.workdirs:
        with flags.user_errors():
            languages = WorkDirectory(path).read_languages()
        models.setdefault(languages, []).append(path)
    choice = TranslatorChoice(options, search, languages=None)
    choices = [choice.at(",".join(paths)) for paths in models.values()]
    with flags.user_errors():
        for one in choices:  # all, before the first is loaded
            one.check()
        if adapters and not assemble.runs_keras(options.engine):
            raise ValueError(
                "adapter needs engine=native. Received:"
                f" engine={options.engine}"
            )
        for _, path in adapters:
            WorkDirectory(path).need_base("adapter")
            WorkDirectory(path).check_checkpoint(None)
        if adapters and len(options.workdirs) > 1:
            raise ValueError(
                "adapter needs one work directory. Received:"
                f" workdir={options.workdir}"
            )
    for languages, one in zip(models, choices, strict=True):
        if len(one.options.workdirs) > 1:
            logging.info("an ensemble: %s", one.options.workdir)
        model = Model(open_translator(one), max_searches)
        if adapters:
            with flags.user_errors():
                model.switched = _open_adapters(model.translator, adapters)
        for codes in languages.pairs:
            source, target = codes[0] or "source", codes[1] or "target"
            if (source, target) in pairs:
                raise flags.CommandError(
                    f"expected one work directory for {source}-{target}."
                    f" Received: workdir={options.workdir}"
                )
            direction = languages.direction(*codes)
            pairs[source, target] = Pair(source, target, model, direction)
    return list(pairs.values())


def _open_adapters(translator, adapters):
    """The `SwitchedAdapters` of a model, by name and work directory."""
    [own] = translator.checkpoints
    found = {}
    for name, path in adapters:
        workdir = WorkDirectory(path)
        base = workdir.need_base("adapter")
        if base.sha256 != (weights := Checkpoint(own)).weights_sha256:
            raise ValueError(
                f"expected adapters of {own}. Received: {name}={path}, of"
                f" {base.checkpoint}"
            )
        found[name] = read_factors(workdir.choose_checkpoint(), weights)
    return SwitchedAdapters(translator.model, found)


def _details(translator, pairs):
    """Yields the details of each pair of a sentence and its translation."""
    scores, alignments = translator.score(pairs), translator.align(pairs)
    tokens_of = [
        text_tokenizer(translator.tokenizer, request.direction).target.tokens(
            [text]
        )[0]
        for request, text in pairs
    ]
    for (_, text), score, alignment, tokens in zip(
        pairs, scores, alignments, tokens_of, strict=True
    ):
        words = text.split()
        log_probs = np.zeros(len(words) + 1)  # one more for white space
        # Without EOS; a translation may be longer than what can be scored.
        for token, log_prob in zip(tokens, score.log_probs, strict=False):
            log_probs[token.word] += log_prob
        yield {
            "tokens": _probable([t.text for t in tokens], score.log_probs),
            "words": _probable(words, log_probs),
            "alignment": alignment.links,
        }


def _probable(texts, log_probs):
    return [
        {"text": text, "probability": math.exp(log_prob)}
        for text, log_prob in zip(texts, log_probs, strict=False)
    ]
