"""Strings to strings: vocabulary, model and search as one object.

Validation, `trainers.evaluate`, `trainers.translate` and every exporter use a
`Translator`.
"""

import copy
import dataclasses
import functools
import importlib
import math
import os
import typing
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from keras_transformer.config import (
    SEARCH_PRECISIONS,
    DecodingConfig,
    TransformerConfig,
    check_alignment,
    check_position_limit,
)
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.fields import check_positive
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.alignment import (
    SpanLink,
    align_words,
    span_side,
    word_side,
    word_spans,
)
from keras_transformer.translation.automaton import missing_terms
from keras_transformer.translation.consensus import rank
from keras_transformer.translation.engines import (
    Model,
    check_choice,
    check_request,
    check_search,
    engine_of,
    load_models,
    make_search,
)
from keras_transformer.translation.forbidden import (
    notes_on_words,
    search_without_words,
)
from keras_transformer.translation.limits import Limits, shortened_outputs
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Encoding,
    Request,
    SentencePairs,
    Sentences,
    Terminology,
    direction_ids,
    encode,
    encode_pairs,
    fits,
    make_requests,
    pair_requests,
    phrase_ids,
    shown,
)
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.workdir import open_ensemble

# Imported by name when it is needed: it needs Keras.
FAR_BELOW = 2.0  # a score of forced terms, below the score without them
PRETRAINED = "keras_transformer.importers.pretrained"


class Translation(typing.NamedTuple):
    """The hypotheses of a sentence, best first.

    Attributes:
        texts: The text of each hypothesis; one empty text for a blank sentence.
        ids: The tokens of each, EOS included unless the length limit truncated
            it.
        scores: The score of each: log-probability after length penalty.
        notes: A sentence for each truncation of the input, such as "has 120
            tokens, truncated to 99 (A man ...)".
    """

    texts: list[str]
    ids: list[list[int]]
    scores: list[float]
    notes: list[str]


class PairScore(typing.NamedTuple):
    """The model's probability of a given translation.

    Attributes:
        ids: The tokens of the translation, EOS included.
        log_probs: The log-probability of each of them after those before it,
            natural logarithm.
        notes: As in `Translation`: the rest of a truncated sentence does not
            count.
    """

    ids: list[int]
    log_probs: list[float]
    notes: list[str]

    @property
    def truncated(self) -> bool:
        """Whether source or translation exceeded the translator's limits."""
        return bool(self.notes)


class Alignment(typing.NamedTuple):
    """The words of a pair that translate each other.

    Attributes:
        links: Pairs of word indices, source and target, from 0, sorted; words
            are separated by white space.
        truncated: As in `PairScore`; words after the limit have no links.
    """

    links: list[tuple[int, int]]
    truncated: bool


class Translator:
    """Translates sentences: tokenizer, model and search (sec. 6.1).

    Without a shortlist, a sentence's translation does not depend on the other
    sentences, up to rounding (docs/equality.md). They are sorted by length, put
    into batches of a few fixed lengths, and returned in their original order.

    Args:
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        model: A `Transformer`; the weights it has at a call are used. Or
            several with this vocabulary, an ensemble: they search and score by
            their mean, as `DecodingConfig.ensemble` says. Or the model of
            another engine, which `load` makes.
        decoding: The `DecodingConfig`.
        max_source_length: Maximum length of a source in tokens, EOS included;
            a longer one is truncated.
        batch_tokens: Maximum number of source tokens in a batch, padding
            included; a single sentence may have more.
        jit_compile: Whether XLA compiles the search, once for each shape. None:
            only in `warm_up`, for sentences of up to 64 tokens that come alone,
            and where that is faster.
        seed: Seed for sampling, from 0 to 2^64 - 1. The samples of a sentence
            depend on it and on the sentence, their scores also on rounding.
        num_threads: Maximum number of batches that are searched in parallel.
            More than one pays for many sentences on a CPU: one search cannot
            keep its cores busy.
        shortlist: The `Shortlist` of the tokens that outputs may have; None for
            all. It pays for a large vocabulary on a CPU. Probabilities are then
            those among the tokens of a batch.

    Attributes:
        inference: The `Inference`, ids to ids; of another engine the `Limits`.
        engine: One of `SEARCH_ENGINES`.
        models: The models, a tuple; `model` is the first of them, whose
            attention `align` reads.
        checkpoints: Paths of the checkpoints that `load` read, one for each
            model; `checkpoint` is the first. None, and no paths, if the models
            were made elsewhere.
        languages: The `Languages` of the model.
        direction: The `Direction` of sentences without one of their own. None
            if the model has several: then each has its own, or begins with a
            tag.
        terminology: As `with_terminology` was given it.

    Raises:
        ValueError: A number is too small, the decoder has no such
            `alignment_layer`, tokenizer, model and shortlist have vocabularies
            of different sizes, or the model has learned fewer positions than
            `max_source_length`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | TokenizerPair,
        model: "Model | Sequence[Model]",
        decoding: DecodingConfig,
        max_source_length: int,
        *,
        batch_tokens: int = 2048,
        jit_compile: bool | None = None,
        seed: int = 0,
        num_threads: int = 1,
        shortlist: Shortlist | None = None,
    ):
        if max_source_length < 2:
            raise ValueError(
                "max_source_length must be at least 2: a token and EOS."
                f" Received: max_source_length={max_source_length}"
            )
        check_positive(batch_tokens=batch_tokens, num_threads=num_threads)
        models = model if isinstance(model, Sequence) else [model]
        for config in (one.config for one in models):
            _check_vocabulary(tokenizer, config)
            if shortlist is not None:
                shortlist.check(config)
            check_position_limit(config, max_source_length=max_source_length)
        self.tokenizer = tokenizer
        self.models = tuple(models)
        self.model = self.models[0]
        self.engine = engine_of(self.model)
        self.max_source_length = max_source_length
        self.batch_tokens = batch_tokens
        self.jit_compile = jit_compile
        self.seed = seed
        self.num_threads = num_threads
        self.shortlist = shortlist
        self.checkpoints: tuple[str, ...] = ()
        self.checkpoint: str | None = None
        self.languages = Languages()
        self.direction: Direction | None = Direction()
        self.terminology = NO_TERMINOLOGY
        self._set_decoding(decoding)

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike | Sequence[str | os.PathLike],
        decoding: DecodingConfig | None = None,
        checkpoint: str | None = None,
        *,
        precision: str = "float32",
        shortlist: bool = False,
        engine: str = "native",
        compute_type: str = "default",
        device: str | None = None,
        **options,
    ) -> "Translator":
        """The translator that training made.

        Logs the checkpoint that it reads, and why it skips another one.

        Args:
            workdir: Path of a work directory of `trainers.wmt`; or of several,
                an ensemble of models with the same vocabulary and languages.
                Options and shortlist are those of the first.
            decoding: A `DecodingConfig`, by default the work directory's.
            checkpoint: "averaged", "best", "latest" or a checkpoint's path,
                which excludes several models; by default the first of these
                three that exists, for each model.
            precision: Dtype of weights and products, one of
                `SEARCH_PRECISIONS`. With bfloat16 translations differ slightly
                from float32.
            shortlist: Whether to use the work directory's shortlist, which
                `trainers.shortlist` makes.
            engine: What searches, one of `SEARCH_ENGINES`. "ctranslate2" needs
                the extra of this name. It runs an export in the work directory,
                which is made at the first call; `num_threads` is by default one
                for each core.
            compute_type: Type in which CTranslate2 computes, one of
                `COMPUTE_TYPES`; by default float32.
            device: Kind of device of CTranslate2, "cpu" or "gpu"; by default
                the fastest that there is.
            **options: Keyword arguments that replace the defaults of
                `Translator`, and `max_source_length`, by default the maximum
                length in training, of several models the smallest.

        Raises:
            ValueError: It is not a work directory, has no checkpoint or
                shortlist that can be read, there is no such precision, several
                models are not an ensemble, or the engine lacks an option.
        """
        _check_precision(precision)
        if isinstance(workdir, str | os.PathLike):
            workdir = [workdir]
        check_choice(
            engine,
            compute_type,
            device,
            num_models=len(workdir),
            precision=precision,
            jit_compile=options.get("jit_compile"),
            shortlist=shortlist,
        )
        directories = open_ensemble(workdir, checkpoint)
        first = directories[0]
        configs = [
            d.read_section("model", TransformerConfig) for d in directories
        ]
        if "max_source_length" not in options:
            lengths = [d.read_max_length() for d in directories]
            options["max_source_length"] = min(lengths)
        if decoding is None:
            decoding = first.read_section("decoding", DecodingConfig)
        check_search(engine, decoding)
        tokenizer = first.load_tokenizer()
        if shortlist:
            options["shortlist"] = _read_shortlist(first, tokenizer)
        models, prefixes = load_models(
            engine,
            directories,
            checkpoint,
            tokenizer,
            Limits(configs, decoding, options["max_source_length"]),
            precision=precision,
            compute_type=compute_type,
            device=device,
            num_threads=options.get("num_threads"),
        )
        if engine != "native":
            options["num_threads"] = models[0].num_threads
        translator = cls(tokenizer, models, decoding, **options)
        translator = translator._of_model(first.read_languages())
        translator.checkpoints = tuple(prefixes)
        translator.checkpoint = prefixes[0]
        translator._warn_of_shortened_outputs()
        return translator

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike,
        decoding: DecodingConfig | None = None,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str = "float32",
        **options,
    ) -> "Translator":
        """The translator of a published model, of this or another system.

        Logs known differences from the system that it comes from. To train or
        export a model of another system, import it with
        `trainers.import_model`.

        Args:
            name: A directory with a model of a system that
                `trainers.import_model` knows, such as OPUS-MT, or a work
                directory; or `hf://OWNER/NAME`, a repository of the
                Hugging Face Hub that holds one of these, with `@REVISION` for
                a branch, tag or commit. A download is kept: see
                `keras_transformer.hub`.
            decoding: A `DecodingConfig`, by default the model's own.
            source_language, target_language: As in `with_languages`:
                "deu_Latn" in NLLB-200, "de" in M2M-100, "de_DE" in mBART-50.
                Without them, each `Request` to such a model has a direction.
            precision: As in `load`.
            **options: As in `load`; `shortlist` for a work directory only.

        Raises:
            ValueError: There is no such model, or it cannot be used, or
                huggingface_hub is not installed.
            OSError: It cannot be read or downloaded.
        """
        _check_precision(precision)
        # A shelf: most translators need no importer.
        pretrained = importlib.import_module(PRETRAINED)
        with pretrained.opened(name) as (directory, imported):
            if imported is None:
                return cls.load(
                    directory, decoding, precision=precision, **options
                ).with_languages(source_language, target_language)
        for option, value in (
            ("shortlist", False),
            ("engine", "native"),
            ("compute_type", "default"),
            ("device", None),
        ):
            if options.pop(option, value) != value:
                raise ValueError(
                    f"{option} needs a work directory, which"
                    f" trainers.import_model makes. Received: {name}"
                )
        languages = imported.languages
        languages.direction(source_language, target_language)
        model = pretrained.make_model(imported, precision)
        options = {"max_source_length": imported.max_length, **options}
        translator = cls(
            imported.tokenizer,
            model,
            decoding or imported.decoding,
            **options,
        )
        translator = translator._of_model(
            languages, source_language, target_language
        )
        for note in imported.notes:
            logging.warning("%s: %s", name, note)
        translator._warn_of_shortened_outputs()
        return translator

    def _warn_of_shortened_outputs(self):
        """Warns if learned positions limit the length of outputs."""
        shortest = min(
            (model.config for model in self.models),
            key=lambda config: config.position_limit or math.inf,
        )
        line = shortened_outputs(
            shortest, self.decoding, self.max_source_length
        )
        if line:
            logging.warning("%s", line)

    def __copy__(self):
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __reduce__(self):
        raise TypeError(
            "A Translator cannot be pickled: its programs belong to a process."
            " Load it in each worker instead, by Translator.load(workdir)"
        )

    def with_decoding(self, **changes) -> "Translator":
        """The same translator with other fields of its `DecodingConfig`.

        Args:
            **changes: Fields of `DecodingConfig`, such as `beam_size=1`.
        """
        translator = copy.copy(self)
        translator._set_decoding(dataclasses.replace(self.decoding, **changes))
        return translator

    def with_seed(self, seed: int) -> "Translator":
        """The same translator with another seed: other samples."""
        translator = copy.copy(self)
        translator.seed = seed
        return translator

    def with_languages(
        self, source: str | None = None, target: str | None = None
    ) -> "Translator":
        """The same translator for one direction of a multilingual model.

        Args:
            source, target: Languages of the model, such as "en"; None for the
                only one that it has.

        Raises:
            ValueError: The model does not have such a language.
        """
        return self._of_model(self.languages, source, target)

    def _of_model(self, languages, source=None, target=None):
        """The same translator for a model with these languages."""
        translator = copy.copy(self)
        translator.languages = languages
        translator.direction = languages.direction(source, target)
        return translator

    def with_terminology(self, terminology: Terminology) -> "Translator":
        """The same translator with a glossary and forbidden words.

        Args:
            terminology: What holds for every sentence, beside the terms and
                words of its `Request`.

        Raises:
            ValueError: There are terms, and the translator samples.
        """
        terminology.check(self.decoding)
        translator = copy.copy(self)
        translator.terminology = terminology
        return translator

    def check_forms(
        self, forms: Sequence[str], direction: Direction | None = None
    ) -> int:
        """How many tokens forms of a term have; ValueError if there are none.

        They are of sentences of a direction, by default the translator's.
        """
        request = Request("", terms=(tuple(forms),), direction=direction)
        self.check_request(request)
        target = self._encoding.tokenizer_of(request).target
        return sum(map(len, phrase_ids(target, forms)))

    def check_search(self, decoding: DecodingConfig) -> None:
        """Raises ValueError for a search that the engine does not have."""
        check_search(self.engine, decoding)

    def check_request(self, request: Request) -> None:
        """Raises ValueError for what the engine does not have in a sentence."""
        check_request(self.engine, request)

    def without_shortlist(self) -> "Translator":
        """The same translator, with the whole vocabulary for its outputs."""
        if self.shortlist is None:
            return self
        translator = copy.copy(self)
        translator.shortlist = None
        translator._set_decoding(self.decoding)
        return translator

    def _set_decoding(self, decoding):
        """Makes the search; what it has in memory is not shared by copies."""
        check_alignment(self.model.config, decoding)
        self.decoding = decoding
        self.inference, self._batched = make_search(
            self.models,
            decoding,
            self.max_source_length,
            self.batch_tokens,
            self.jit_compile,
            self.num_threads,
            self.shortlist,
        )

    @property
    def max_target_length(self) -> int:
        """Maximum length of an output in tokens, EOS included."""
        return self.inference.max_target_length

    def warm_up(self, num_best: int = 1) -> None:
        """Makes the programs of a search in advance: seconds to minutes.

        Without it, each is made when the first sentence needs it. With XLA and
        JAX there are as many programs as shapes of batches. With a shortlist,
        batches of more tokens need more programs, which are made later.

        Args:
            num_best: As in `search`: another number needs other programs.
        """
        for _, make in self.warm_up_steps(num_best):
            make()
        for step in self.compile_steps(num_best):
            step()

    def warm_up_steps(
        self, num_best: int
    ) -> list[tuple[int, Callable[[], object]]]:
        """As `warm_up`, program by program.

        Returns:
            Functions that make a program each, with the longest source in
            tokens that it is for, shortest first.
        """
        return self._batched.warm_up_steps(num_best, self._given())

    def compile_steps(self, num_best: int) -> list[Callable[[], bool | None]]:
        """The rest of `warm_up`, if `jit_compile` is None.

        Returns:
            Functions that compile the search of a sentence alone, to be called
            in turn. For each length, the last one returns whether XLA is
            faster and will be used, the others return None.
        """
        return self._batched.compile_steps(num_best, self._given())

    def _given(self):
        """The tokens that each output begins with; of any direction."""
        direction = self.direction
        if direction is None:  # all have as many tokens
            direction = self.languages.direction(*self.languages.pairs[0])
        output = direction.output if direction else ""
        return direction_ids(self.tokenizer.target, output)

    def translate(
        self, strings: Sentences, prefixes: Sequence[str] | None = None
    ) -> list[str]:
        """Translations of sentences, in their order.

        A sentence without tokens, such as a blank one, has an empty
        translation. A sentence that is too long is truncated, with a warning.
        The vocabulary decides about white space: nothing is stripped before
        SentencePiece reads a sentence.

        Args:
            strings: List of `str`, or of `Request`s.
            prefixes: The beginning of each translation, a list of `str`, ""
                for a free one; by default those of the `Request`s.

        Returns:
            List of `str`, one for each string.

        Raises:
            TypeError: An argument is not a list of `str`.
            ValueError: There are not as many prefixes as strings.
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
        """As `translate`, with all hypotheses and their scores.

        Args:
            strings, prefixes: As in `translate`.
            num_best: As in `search`.

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
        """As `n_best`, in ids.

        Returns:
            For each sentence a list of `(ids, score)`; the ids include EOS
            unless the length limit truncated the output. `[([], 0.0)]` for a
            blank sentence.
        """
        found = self._search_and_warn(strings, prefixes, num_best)
        return [list(zip(t.ids, t.scores, strict=True)) for t in found]

    def search(
        self,
        strings: Sentences,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[Translation]:
        """As `translate`, with all hypotheses, their scores, and notes.

        It logs nothing: the caller reports the notes on truncated sentences.

        Args:
            strings, prefixes: As in `translate`.
            num_best: Number of wanted hypotheses, at most and by default the
                beam size, in sampling `num_samples`. A search for fewer finds
                the same ones, and ends earlier if `stopping` is "exact".

        Returns:
            A `Translation` for each sentence, in their order.

        Raises:
            ValueError: As `translate`, or `num_best` is out of range.
            FloatingPointError: As `translate`.
        """
        requests = [
            self.terminology.of(request)
            for request in make_requests(strings, prefixes)
        ]
        for request in requests:
            self.check_request(request)
        num_found = self.decoding.num_hypotheses
        num_best = num_found if num_best is None else num_best
        check_positive(num_best=num_best)
        if num_best > num_found:
            raise ValueError(
                "num_best must be at most beam_size, in sampling num_samples,"
                f" which is {num_found}. Received: num_best={num_best}"
            )
        consensus = self.decoding.consensus
        num_searched = num_found if consensus else num_best
        rows, found = search_without_words(
            lambda rows: self._batched.search(rows, num_searched),
            encode(requests, self._encoding),
            requests,
            lambda request: self._encoding.tokenizer_of(request).target,
        )
        to_strings = self.tokenizer.target.to_strings
        on_force = self._notes_on_force(rows, found)
        results = []
        for request, row, (ids, scores) in zip(
            requests, rows, found, strict=True
        ):
            _check_finite(scores, request.text)
            texts = to_strings(ids)
            if consensus:
                order = rank(texts, consensus)[:num_best]
                texts, ids = [texts[i] for i in order], [ids[i] for i in order]
                scores = scores[order]
            notes = [
                *row.notes,
                *self._notes_on_terms(request, row, ids[0]),
                *next(on_force, ()),
                *notes_on_words(request, texts),
            ]
            results.append(Translation(texts, ids, scores.tolist(), notes))
        return results

    def _notes_on_terms(self, request, row, ids):
        """A note for each term that a translation lacks."""
        if row.automaton is None or not ids:
            return []
        reason = ""
        if self.decoding.glossary_mode == "force":
            reason = (
                ": it does not fit beside the other terms, or is forbidden, too"
            )
        return [
            f"lacks the term {' or '.join(request.terms[number])!r} in its"
            f" translation{reason}"
            for number in missing_terms(row.automaton, ids)
        ]

    def _notes_on_force(self, rows, found):
        """Yields notes on each row: a forced term may break the sentence."""
        is_forced = self.decoding.glossary_mode == "force"
        chosen = [
            i
            for i, row in enumerate(rows)
            if is_forced and row.automaton is not None and row.automaton.sizes
        ]
        free = self._batched.search(
            [rows[i]._replace(automaton=None) for i in chosen], 1
        )
        notes: list[list[str]] = [[] for _ in rows]
        for i, (_, scores) in zip(chosen, free, strict=True):
            (forced, *_), (by_choice, *_) = found[i][1], scores
            if forced < by_choice - FAR_BELOW:
                notes[i].append(
                    "may be broken by its terms: it has the score"
                    f" {forced:.2f}, without terms {by_choice:.2f}"
                    " (glossary_mode=prefer lets the model choose)"
                )
        yield from notes

    def _search_and_warn(self, strings, prefixes, num_best):
        """As `search`, with a warning for each truncation."""
        found = self.search(strings, prefixes, num_best)
        for number, translation in enumerate(found, 1):
            for note in translation.notes:
                logging.warning("sentence %d %s", number, note)
        return found

    def score(self, pairs: SentencePairs) -> list[PairScore]:
        """The probability of given translations, token by token.

        A translation is scored in the segmentation that `Tokenizer.encode`
        finds: another segmentation of the same text has another probability.

        Args:
            pairs: List of `(source, translation)`, both `str`; or a `Request`
                for its text and direction, and `str`.

        Returns:
            A `PairScore` for each pair, in their order.

        Raises:
            TypeError: `pairs` is not a list of pairs of `str`.
            FloatingPointError: The model's logits are not finite.
        """
        rows = encode_pairs(pairs, self._encoding)
        found = self._of_pairs(self._batched.score, pairs, rows)
        return [
            PairScore(
                row.target_ids[row.num_given :],
                log_probs[row.num_given : len(row.target_ids)].tolist(),
                row.notes,
            )
            for row, log_probs in zip(rows, found, strict=True)
        ]

    def align(self, pairs: SentencePairs) -> list[Alignment]:
        """Links between the words of sources and given translations.

        Each target word has one link, to the source word that its tokens attend
        to most: in the decoder layer `alignment_layer` (`alignment_head`, or
        the mean of the heads, without EOS), at the step that reads the token
        (Chen et al. 2020, "Shift-Att"), or, in a pre-norm model without a
        guided head, at the step that writes it. Of an ensemble, the first model
        aligns.

        Args:
            pairs: List of `(source, translation)`, both `str`; or a `Request`
                for its text and direction, and `str`.

        Returns:
            An `Alignment` for each pair, in their order.

        Raises:
            TypeError: `pairs` is not a list of pairs of `str`.
            FloatingPointError: The model's attention is not finite.
        """
        return [
            Alignment(links, bool(note))
            for links, note in self._align(pairs, word_side)
        ]

    def align_spans(self, pairs: SentencePairs) -> list[list[SpanLink]]:
        """As `align`, for words without their punctuation, by position.

        Each word or sign (see `word_spans`) of a translation that has attention
        has one link.

        Args:
            pairs: List of `(source, translation)`, both `str`; or a `Request`
                for its text and direction, and `str`.

        Returns:
            The `SpanLink`s of each pair, sorted by their target.

        Raises:
            TypeError, FloatingPointError: As `align`.
        """
        results = []
        aligned = self._align(pairs, span_side)
        for request, (_, target), (links, _) in zip(
            pair_requests(pairs), pairs, aligned, strict=True
        ):
            sources, targets = word_spans(request.text), word_spans(target)
            found = [SpanLink(sources[i], targets[j]) for i, j in links]
            results.append(sorted(found, key=lambda link: link.target))
        return results

    @property
    def fits(self) -> Callable[[str], bool]:
        """Tells whether `translate` reads a string completely.

        The function does not need the model, also in another process.
        """
        shape = self.inference.configs, self.decoding, self.max_source_length
        encoding = self._encoding._replace(inference=Limits(*shape))
        return functools.partial(fits, encoding)

    # The stages of `translate`, `score` and `align`

    @property
    def _encoding(self):
        """How sentences become ids."""
        return Encoding(
            self.tokenizer,
            self.inference,
            tuple(self.languages.tags.values()),
            self.direction,
            self.seed,
        )

    def _align(self, pairs, make_side):
        """Links of the words of each pair, and its notes on truncation.

        `make_side` makes the `Side` of a string from its tokens.
        """
        rows = encode_pairs(pairs, self._encoding)
        found = self._of_pairs(self._batched.attention, pairs, rows)
        results = []
        for attention, row, request, (_, target) in zip(
            found, rows, pair_requests(pairs), pairs, strict=True
        ):
            of_text = self._encoding.tokenizer_of(request)
            both = [
                make_side(text, *side.tokens([text]))
                for side, text in (
                    (of_text.source, request.text),
                    (of_text.target, target),
                )
            ]
            # Tags are no words.
            words = attention[
                row.num_given : len(row.target_ids) - 1, row.tag_length :
            ]
            results.append((align_words(words, *both), row.notes))
        return results

    def _of_pairs(self, method, pairs, rows):
        """A row of a method's result for each pair, checked."""
        results = method(rows)
        for request, result in zip(pair_requests(pairs), results, strict=True):
            _check_finite(result, request.text)
        return results


def _check_finite(numbers, string):
    """Raises FloatingPointError if the search or score of a string failed."""
    if not np.isfinite(numbers).all():
        raise FloatingPointError(
            f"the model's logits are not finite ({shown(string)}). Its weights"
            " are corrupt, or its training diverged"
        )


def _check_vocabulary(
    tokenizer: Tokenizer | TokenizerPair, config: TransformerConfig
) -> None:
    """Refuses vocabularies of another size than a model's."""
    for of_side, size in (
        (tokenizer.source, config.num_source_tokens),
        (tokenizer.target, config.vocab_size),
    ):
        if of_side.vocab_size != size:
            raise ValueError(
                "Tokenizer and model must have the same vocabulary."
                f" Received: {of_side.vocab_size} and {size} tokens"
            )


def _check_precision(precision: str) -> None:
    """Refuses another dtype than those of `SEARCH_PRECISIONS`."""
    if precision not in SEARCH_PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(SEARCH_PRECISIONS)}."
            f" Received: precision={precision!r}"
        )


def _read_shortlist(directory, tokenizer):
    """The `Shortlist` of a `WorkDirectory`."""
    path = directory.shortlist_path
    if not path.exists():
        raise ValueError(
            f"expected {path}, which trainers.shortlist makes. Received: no"
            " such file"
        )
    return Shortlist.read(path, tokenizer)
