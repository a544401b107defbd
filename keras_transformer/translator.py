"""`Translator`: tokenizer, model and search as one object, strings to strings.

Validation, `kt-evaluate`, `kt-translate` and every exporter use a
`Translator`.
"""

import functools
import importlib
import os
import typing
from collections.abc import Callable, Iterator, Sequence

from keras_transformer.base.fields import check_positive
from keras_transformer.config import (
    DecodingConfig,
    changed_search,
    check_alignment,
)
from keras_transformer.data.languages import Direction
from keras_transformer.storage import box
from keras_transformer.text import signs
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation import abilities, engines, loading
from keras_transformer.translation.alignment import CLEAR, SpanLink
from keras_transformer.translation.loading import UNKNOWN, About
from keras_transformer.translation.pairs import PairReader
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Encoding,
    Request,
    SentencePairs,
    Sentences,
    Terminology,
    encode,
    fits,
    given_ids,
    make_requests,
    phrase_ids,
)
from keras_transformer.translation.results import (
    Alignment,
    PairReading,
    PairScore,
    Translation,
    check_finite,
    warn_of_notes,
)
from keras_transformer.translation.search import Setup, Step
from keras_transformer.translation.shortlist import Shortlist

if typing.TYPE_CHECKING:
    from keras_transformer.translation.inference import Inference

# Modules that few translators need are imported on first use.
CONFIDENCE = "keras_transformer.confidence.assessment"
IMPORTERS = "keras_transformer.importers"
INFERENCE = "keras_transformer.translation.inference"
DEFAULTS = abilities.EngineOptions()


class Translator:
    """Translates sentences with a tokenizer, a model and a search (sec. 6.1).

    Without a shortlist, a sentence's translation does not depend on the other
    sentences, up to rounding (docs/equality.md). Sentences are sorted by
    length and put into batches of a few fixed lengths. Translations are
    returned in the original order.

    Args:
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        model: A `Transformer`; each call uses its current weights. Or several
            with this vocabulary, an ensemble: search and scores use their mean,
            as `DecodingConfig.ensemble` says. Or the model of another engine,
            which `load` makes.
        decoding: The `DecodingConfig`.
        max_source_length: Maximum length of a source in tokens, EOS included.
            Longer sources are truncated.
        batch_tokens: Maximum number of source tokens in a batch, padding
            included; a single sentence may have more.
        jit_compile: Whether XLA compiles the search, once for each shape. With
            None, only `warm_up` compiles: for single sentences of up to 64
            tokens, where XLA is faster.
        seed: Seed for sampling, from 0 to 2^64 - 1. The samples of a sentence
            depend on the seed and the sentence; their scores vary with
            rounding.
        num_threads: Maximum number of batches that are searched in parallel.
            On a CPU, more than one is faster for many sentences, since one
            search cannot keep all cores busy.
        shortlist: The `Shortlist` of the tokens that outputs may have; None
            allows all. It is faster for a large vocabulary on a CPU.
            Probabilities are then among the shortlisted tokens of a batch.
        about: Languages and checkpoints of the model, an `About` that `load`
            makes.

    Attributes:
        limits: The `Limits` of sources and outputs, in tokens.
        engine: One of `SEARCH_ENGINES`.
        models: The models, a tuple. `model` is the first of them, whose
            attention `align` uses.
        languages, direction, checkpoints: As in `About`. `checkpoint` is the
            first of `checkpoints`, or None.
        terminology: The argument of `with_terminology`.

    Raises:
        ValueError: A number is too small, the decoder has no such
            `alignment_layer`, tokenizer, model and shortlist have vocabularies
            of different sizes, or the model has learned fewer positions than
            `max_source_length`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | TokenizerPair,
        model: typing.Any,
        decoding: DecodingConfig,
        max_source_length: int,
        *,
        batch_tokens: int = 2048,
        jit_compile: bool | None = None,
        seed: int = 0,
        num_threads: int = 1,
        shortlist: Shortlist | None = None,
        about: About = UNKNOWN,
    ):
        check_positive(batch_tokens=batch_tokens, num_threads=num_threads)
        self.tokenizer = tokenizer
        self.models = tuple(model if isinstance(model, Sequence) else [model])
        self.model = self.models[0]
        self.max_source_length = max_source_length
        self.batch_tokens = batch_tokens
        self.jit_compile = jit_compile
        self.seed = seed
        self.num_threads = num_threads
        self.shortlist = shortlist
        self.languages, self.direction = about.languages, about.direction
        self.checkpoints = about.checkpoints
        self.checkpoint = next(iter(about.checkpoints), None)
        self.terminology = NO_TERMINOLOGY
        self._set_decoding(decoding)

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
        decoding: DecodingConfig | None = None,
        checkpoint: str | None = None,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str = DEFAULTS.precision,
        shortlist: bool = DEFAULTS.shortlist,
        engine: str = DEFAULTS.engine,
        compute_type: str = DEFAULTS.compute_type,
        device: str | None = DEFAULTS.device,
        **options: typing.Any,
    ) -> typing.Self:
        """Loads a translator from a work directory of `kt-train`.

        Logs which checkpoint it reads, and why it skips others.

        Args:
            workdir: Path of a work directory of `kt-train`. Several paths make
                an ensemble of models with the same vocabulary and languages;
                options and shortlist are those of the first. None is the
                package's model of these languages.
            decoding: A `DecodingConfig`, by default the work directory's.
            checkpoint: "averaged", "best", "latest" or the path of a
                checkpoint, which is for one model only. By default, for each
                model, the first of these three that exists.
            source_language, target_language: As in `with_languages`.
            precision: Dtype of weights and products, one of
                `SEARCH_PRECISIONS`. With bfloat16 translations differ slightly
                from float32.
            shortlist: Whether to use the work directory's shortlist, which
                `kt-shortlist` makes.
            engine: The engine that searches, one of `SEARCH_ENGINES`.
                "ctranslate2" needs the extra of this name. It runs an export in
                the work directory, which the first call makes; `num_threads` is
                by default one for each core. Without a `decoding`, the options
                of the work directory are adapted to the engine.
            compute_type: Type in which CTranslate2 computes, one of
                `COMPUTE_TYPES`; by default float32.
            device: Kind of device for CTranslate2, "cpu" or "gpu". By default
                the fastest available.
            **options: Further keyword arguments of `Translator`.
                `max_source_length` is by default the maximum length in
                training; for several models, the smallest of these.

        Raises:
            ValueError: `workdir` is not a work directory or has no checkpoint
                or shortlist that can be read, there is no such precision,
                several models are not an ensemble, or the engine lacks an
                option.
        """
        if workdir is None:
            workdir = box.choose(source_language, target_language)
        if isinstance(workdir, str | os.PathLike):
            workdir = [workdir]
        own = abilities.EngineOptions(
            engine,
            precision,
            compute_type,
            device,
            options.get("jit_compile"),
            shortlist,
            len(workdir),
        )
        parts = loading.open_workdirs(
            workdir, decoding, checkpoint, own, options
        )
        translator = cls(*parts[:-1], **parts.options)
        return translator.with_languages(source_language, target_language)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike,
        decoding: DecodingConfig | None = None,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str = DEFAULTS.precision,
        **options: typing.Any,
    ) -> typing.Self:
        """Loads a published model of this or another system.

        Logs known differences from the original system. To train or export a
        model of another system, import it with `kt-import`.

        Args:
            name: A directory with a model of a system that `kt-import` knows,
                such as OPUS-MT, or a work directory; or `hf://OWNER/NAME`, a
                repository of the Hugging Face Hub that holds one of these, with
                `@REVISION` for a branch, tag or commit. Downloads are cached:
                see `keras_transformer.storage.hub`.
            decoding: A `DecodingConfig`, by default the model's own.
            source_language, target_language: As in `with_languages`:
                "deu_Latn" in NLLB-200, "de" in M2M-100, "de_DE" in mBART-50.
                Without them, each `Request` to such a model needs a direction.
            precision: As in `load`.
            **options: As in `load`; `shortlist`, `engine`, `compute_type` and
                `device` for a work directory only.

        Raises:
            ValueError: There is no such model, it cannot be used, or
                huggingface_hub is not installed.
            OSError: The model cannot be read or downloaded.
        """
        languages = source_language, target_language
        opened = importlib.import_module(IMPORTERS).opened
        with opened(name) as (directory, imported):
            if imported is None:
                translator = cls.load(
                    directory, decoding, precision=precision, **options
                )
                return translator.with_languages(*languages)
        parts = loading.open_imported(
            name, imported, decoding, languages, precision, options
        )
        return cls(*parts[:-1], **parts.options)

    def __copy__(self):
        return self._with()

    def _with(self, **changes):
        """Copies with other attributes; models and search stay shared."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self), **changes)
        return copied

    def __reduce__(self):
        raise TypeError(
            "A Translator cannot be pickled: its programs belong to a process."
            " Load it in each worker instead, by Translator.load(workdir)"
        )

    def with_decoding(self, **changes) -> typing.Self:
        """Returns a copy with other fields in its `DecodingConfig`."""
        translator = self._with()
        translator._set_decoding(changed_search(self.decoding, changes))
        return translator

    def with_seed(self, seed: int) -> typing.Self:
        """Returns a copy with another seed for sampling."""
        return self._with(seed=seed)

    def with_languages(
        self, source: str | None = None, target: str | None = None
    ) -> typing.Self:
        """Returns a copy for one direction of a multilingual model.

        `source` and `target` are languages of the model, such as "en". None
        means the only language on that side. Raises ValueError for languages
        that the model does not have.
        """
        return self._with(direction=self.languages.direction(source, target))

    def with_terminology(self, terminology: Terminology) -> typing.Self:
        """Returns a copy with a glossary and forbidden words.

        They apply to every sentence, in addition to those of its `Request`.
        Raises ValueError if there are terms and the translator samples.
        """
        terminology.check(self.decoding)
        return self._with(terminology=terminology)

    def check_forms(
        self, forms: Sequence[str], direction: Direction | None = None
    ) -> int:
        """Counts the tokens of a term's forms.

        Raises ValueError if the vocabulary cannot write one. `direction`, by
        default the translator's, chooses the tokenizer.
        """
        request = Request("", terms=(tuple(forms),), direction=direction)
        self.check(request)
        target = self.encoding.tokenizer_of(request).target
        return sum(map(len, phrase_ids(target, forms)))

    def check(self, record: DecodingConfig | Request) -> None:
        """Raises ValueError if the engine does not support an option."""
        abilities.check(self._column, record)

    def has(self, use: str) -> bool:
        """Tells whether the engine supports a use, such as "align"."""
        return abilities.has(self._column, use)

    def check_use(self, use: str) -> None:
        """Raises ValueError unless the engine supports a use; see `has`."""
        abilities.check_value(self._column, use, True)

    def without_shortlist(self) -> typing.Self:
        """Returns a copy whose outputs may have any token of the vocabulary."""
        translator = self._with(shortlist=None)
        translator._set_decoding(self.decoding)
        return translator

    def _set_decoding(self, decoding):
        """Sets the `DecodingConfig` and makes a new search for it."""
        self.decoding = decoding
        vars(self).pop("inference", None)  # made for the old decoding
        setup = Setup(**{name: getattr(self, name) for name in Setup._fields})
        setup.check()
        check_alignment(self.model.config, decoding)
        engine = getattr(self.model, "engine", "native")
        self._search = engines.find_engine(engine).make_search(setup)
        self.engine, self.limits = self._search.name, self._search.limits
        self._column = engines.column_of(self.engine)

    @functools.cached_property
    def inference(self) -> "Inference":
        """The `Inference` of the models, from ids to ids, which exports use."""
        make = importlib.import_module(INFERENCE).Inference
        return make(self.models, self.decoding, self.max_source_length)

    @property
    def max_target_length(self) -> int:
        """Maximum length of an output in tokens, EOS included."""
        return self.limits.max_target_length

    def warm_up(self, num_best: int = 1) -> None:
        """Makes the programs of a search in advance, in seconds to minutes.

        Without `warm_up`, each program is made when a sentence first needs it.
        XLA and JAX need a program for each shape of a batch. With a shortlist,
        batches with more shortlisted tokens need further programs, which are
        made later.

        Args:
            num_best: As in `search`. Another number needs other programs.
        """
        for step in self.programs(num_best):
            step.make()

    def programs(self, num_best: int) -> Iterator[Step]:
        """Yields the steps of `warm_up`."""
        languages = self.languages
        # Outputs begin with equally many given tokens in all directions.
        one = self.direction or languages.direction(*languages.pairs[0])
        return self._search.programs(num_best, given_ids(self.encoding, one))

    def translate(
        self, strings: Sentences, prefixes: Sequence[str] | None = None
    ) -> list[str]:
        """Translates sentences and returns their translations in order.

        A sentence without tokens, such as a blank one, has an empty
        translation. A sentence that is too long is truncated, with a warning.
        The tokenizer handles white space: nothing is stripped before
        SentencePiece reads a sentence.

        Args:
            strings: List of `str` or `Request`s.
            prefixes: The beginning of each translation, a list of `str`, "" for
                none. By default those of the `Request`s.

        Raises:
            TypeError: `strings` is not a list of `str` or `Request`s, or
                `prefixes` not a list of `str`.
            ValueError: There are not as many prefixes as strings, a sentence
                names no target language where it must, or the engine does not
                support what a `Request` has.
            FloatingPointError: The model's logits are not finite.
        """
        found = self._search_and_warn(strings, prefixes, num_best=1)
        return [translation.texts[0] for translation in found]

    def n_best(
        self,
        strings: Sentences,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Works as `search`, but returns texts and scores and logs the notes.

        Returns:
            For each sentence a list of `(translation, score)`, best first, at
            most `num_best`; `[("", 0.0)]` for a blank sentence.
        """
        found = self._search_and_warn(strings, prefixes, num_best)
        return [list(zip(t.texts, t.scores, strict=True)) for t in found]

    def n_best_ids(
        self,
        strings: Sentences,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[list[int], float]]]:
        """Works as `n_best`, but returns ids instead of texts.

        The ids include EOS unless the length limit truncated the output. A
        blank sentence has `[([], 0.0)]`.
        """
        found = self._search_and_warn(strings, prefixes, num_best)
        return [list(zip(t.ids, t.scores, strict=True)) for t in found]

    def search(
        self,
        strings: Sentences,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[Translation]:
        """Translates sentences into several hypotheses with scores and notes.

        Logs nothing: the caller reports the notes, such as those on truncation.

        Args:
            strings, prefixes: As in `translate`.
            num_best: Number of hypotheses, at most and by default the beam
                size, or `num_samples` in sampling. A search for fewer finds the
                same ones, and ends earlier if `stopping` is "exact".

        Returns:
            A `Translation` for each sentence, in order.

        Raises:
            ValueError: As `translate`, or `num_best` is out of range.
            FloatingPointError: As `translate`.
        """
        requests = [
            self.terminology.of(request)
            for request in make_requests(strings, prefixes)
        ]
        for request in requests:
            if request != request.as_source:
                self.check(request)
        if num_best is None:
            num_best = self.decoding.num_hypotheses
        self.decoding.check_number(num_best)
        rows = encode(requests, self.encoding)
        found = self._search.search(rows, num_best)
        results = []
        for request, row, one in zip(requests, rows, found, strict=True):
            check_finite(one.scores, request.text)
            texts = self.tokenizer.target.to_strings(one.ids)
            notes = [*row.notes, *one.notes, *_notes_on_words(row.reading)]
            scores = one.scores.tolist()
            results.append(Translation(texts, one.ids, scores, notes))
        self._restore_signs(requests, rows, results)
        return results

    def _restore_signs(self, requests, rows, results):
        """Puts what the vocabulary cannot write into the translations."""
        found = [
            (row, request, result.texts, n)
            for row, request, result in zip(
                rows, requests, results, strict=True
            )
            for n, text in enumerate(result.texts)
            if row.reading.signs or row.prefix.signs or signs.UNKNOWN in text
        ]
        aligned = [
            (Request(row.reading.text, direction=request.direction), texts[n])
            for row, request, texts, n in found
            if signs.needs_links(texts[n], row.reading)
        ]
        links = iter(self.align_spans(aligned, least=0.0))
        for row, _, texts, n in found:
            needs_links = signs.needs_links(texts[n], row.reading)
            of_text = next(links) if needs_links else ()
            texts[n] = signs.restore(texts[n], row.reading, of_text, row.prefix)

    def _search_and_warn(self, strings, prefixes, num_best):
        """Works as `search`, and logs each note as a warning."""
        found = self.search(strings, prefixes, num_best)
        warn_of_notes(found)
        return found

    def score(self, pairs: SentencePairs) -> list[PairScore]:
        """Computes the probability of given translations, token by token.

        The score is that of the segmentation that `Tokenizer.encode` finds.
        Another segmentation of the same text has another probability.

        Args:
            pairs: List of `(source, translation)`, both `str`. A source may
                also be a `Request` with a text and a direction.

        Returns:
            A `PairScore` for each pair, in order.

        Raises:
            TypeError: `pairs` is not a list of such pairs.
            ValueError: A `Request` has more than a text and a direction.
            FloatingPointError: The model's logits are not finite.
        """
        return self._pairs.score(pairs)

    def align(self, pairs: SentencePairs) -> list[Alignment]:
        """Links the words of sources and given translations.

        Each target word has one link, to the source word that its tokens attend
        to most. The attention is that of decoder layer `alignment_layer`
        (`alignment_head`, or the mean of the heads, without EOS), at the step
        that reads the token (Chen et al. 2020, "Shift-Att") or, in a pre-norm
        model without a guided head, at the step that writes it. In an ensemble,
        the first model aligns.

        Args:
            pairs: As in `score`.

        Returns:
            An `Alignment` for each pair, in order.

        Raises:
            TypeError, ValueError, FloatingPointError: As `score`.
        """
        return self._pairs.align(pairs)

    def align_spans(
        self, pairs: SentencePairs, least: float = CLEAR
    ) -> list[list[SpanLink]]:
        """Works as `align`, but links words without punctuation, by position.

        Each word or sign of a translation (see `word_spans`) has one link,
        unless it has no attention, or less than `least` times that of another
        word (see `align_words`). Returns the `SpanLink`s of each pair, sorted
        by target position. Other arguments and errors are as in `align`.
        """
        return self._pairs.align_spans(pairs, least)

    def read(self, pairs: SentencePairs) -> list[PairReading]:
        """Computes `score`, `align` and `align_spans` with all links.

        Arguments and errors are as in `score`. Returns a `PairReading` for each
        pair, in order.
        """
        return self._pairs.read(pairs)

    def assessor(self) -> typing.Any:
        """Returns the `Assessor`, which tells how sure translations are.

        Raises ValueError if the model is not calibrated, or if the translator
        is an ensemble or samples.
        """
        assessment = importlib.import_module(CONFIDENCE)
        return assessment.Assessor.of(self)

    def calibrate(self, pairs: SentencePairs) -> typing.Any:
        """Fits the confidence to validation pairs, and keeps it in a file.

        The file is `confidence.json` in the work directory. Returns the
        `Calibration`.

        Raises ValueError if the pairs are too few, and as `assessor`.
        """
        assessment = importlib.import_module(CONFIDENCE)
        calibration = assessment.calibrate(self, pairs)
        calibration.write(assessment.path_of(self))
        return calibration

    @property
    def fits(self) -> Callable[[str], bool]:
        """A function that tells whether a string needs no truncation.

        It needs no model, so it can be sent to another process.
        """
        return functools.partial(fits, self.encoding)

    @property
    def _pairs(self) -> PairReader:
        return PairReader(self._search, self.encoding)

    @property
    def encoding(self) -> Encoding:
        """The `Encoding` that turns sentences into ids."""
        return Encoding(
            self.tokenizer,
            self.limits,
            tuple(self.languages.tags.values()),
            self.direction,
            self.seed,
        )


def _notes_on_words(reading: signs.Reading) -> Iterator[str]:
    """Yields a note for each word that the vocabulary cannot write."""
    for sign in reading.signs:
        if sign.has_letters:
            yield (
                f"has {sign.text!r}, which the vocabulary cannot write. It was"
                " not translated"
            )
