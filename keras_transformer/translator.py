"""Strings to strings: vocabulary, model and search as one object.

Validation, `trainers.evaluate`, `trainers.translate` and every exporter use a
`Translator`.
"""

import dataclasses
import functools
import os
import typing
from collections.abc import Sequence

import numpy as np
from absl import logging

from keras_transformer.config import (
    PRECISIONS,
    DecodingConfig,
    TransformerConfig,
    check_alignment_layer,
    check_position_limit,
)
from keras_transformer.decoding import MISSING_SCORE, UNFINISHED
from keras_transformer.model import Transformer
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.alignment import Side, align_words
from keras_transformer.translation.batching import (
    Graphs,
    batches_of,
    first_positions,
    in_threads,
    pad_prefixes,
    pad_rows,
    room,
)
from keras_transformer.translation.inference import Inference, shortened_outputs
from keras_transformer.vocabulary import EOS
from keras_transformer.workdir import WorkDirectory, named_weights

SHOWN = 60  # characters of a long sentence that a message shows


class Translation(typing.NamedTuple):
    """The hypotheses of a sentence, best first.

    Attributes:
        texts: The text of each hypothesis; one empty text for a blank sentence.
        ids: The tokens of each, EOS included unless the length limit truncated
            it.
        scores: The score of each: log-probability after length penalty.
        notes: What was cut from the input, each in words, such as "has 120
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
        notes: As in `Translation`: the truncated part of a sentence does not
            count.
    """

    ids: list[int]
    log_probs: list[float]
    notes: list[str]

    @property
    def truncated(self) -> bool:
        """Whether source or translation exceeded the translator's limit."""
        return bool(self.notes)


class Alignment(typing.NamedTuple):
    """The words of a pair that translate each other.

    Attributes:
        links: Pairs of word indices, source and target, from 0, sorted; words
            are separated by white space.
        truncated: As in `PairScore`: words after the limit have no links.
    """

    links: list[tuple[int, int]]
    truncated: bool


class Translator:
    """Translates sentences: tokenizer, model and search (sec. 6.1).

    A sentence's translation does not depend on the other sentences: they are
    sorted by length, put together into batches of a few fixed lengths, and
    given back in the order they came.

    Args:
        tokenizer: The `Tokenizer`, or a `TokenizerPair`.
        model: A `Transformer`; the weights it has at a call are used.
        decoding: The `DecodingConfig`.
        max_source_length: Longest source in tokens, EOS included; a longer one
            is truncated.
        batch_tokens: Source tokens in a batch, padding included, at most; a
            single sentence may have more.
        jit_compile: Whether XLA compiles the search, once for each shape: worth
            it for many sentences, or for one at a time in a long-lived process.
        seed: Of the samples, if `decoding` is sampling; every call samples
            anew.
        workers: Batches that are searched at the same time, each on a thread.
            More than one pays for many sentences on a CPU, whose cores one
            search cannot keep busy. Sampling has one thread, so that samples
            are drawn in one order.

    Attributes:
        inference: The `Inference`, ids to ids.
        checkpoint: Path of the checkpoint that `load` read the weights from;
            None if the model was made elsewhere.

    Raises:
        ValueError: A number is too small, or the decoder has no such
            `alignment_layer`, or tokenizer and model have vocabularies of
            different sizes, or the model has learned fewer positions than
            `max_source_length`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | TokenizerPair,
        model: Transformer,
        decoding: DecodingConfig,
        max_source_length: int,
        *,
        batch_tokens: int = 2048,
        jit_compile: bool = False,
        seed: int = 0,
        workers: int = 1,
    ):
        if max_source_length < 2:
            raise ValueError(
                "max_source_length must be at least 2: a token and EOS."
                f" Received: max_source_length={max_source_length}"
            )
        for name, number in (
            ("batch_tokens", batch_tokens),
            ("workers", workers),
        ):
            if number < 1:
                raise ValueError(
                    f"{name} must be at least 1. Received: {name}={number}"
                )
        for of_side, size in (
            (tokenizer.source, model.config.num_source_tokens),
            (tokenizer.target, model.config.vocab_size),
        ):
            if of_side.vocab_size != size:
                raise ValueError(
                    "Tokenizer and model must have the same vocabulary."
                    f" Received: {of_side.vocab_size} and {size} tokens"
                )
        check_position_limit(model.config, max_source_length=max_source_length)
        check_alignment_layer(model.config, decoding.alignment_layer)
        self.tokenizer = tokenizer
        self.model = model
        self.decoding = decoding
        self.max_source_length = max_source_length
        self.batch_tokens = batch_tokens
        self.jit_compile = jit_compile
        self.seed = seed
        self.workers = workers
        self.checkpoint: str | None = None
        self.inference = Inference(model, decoding, max_source_length, seed)
        self._graph = Graphs(jit_compile)

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike,
        decoding: DecodingConfig | None = None,
        checkpoint: str | None = None,
        *,
        precision: str = "float32",
        **options,
    ) -> "Translator":
        """The translator that training made.

        Which checkpoint is used, and which ones are passed over and why, is
        logged.

        Args:
            workdir: Path of a work directory of `trainers.wmt`.
            decoding: A `DecodingConfig`; None: that of the work directory.
            checkpoint: "averaged", "best", "latest" or a checkpoint's path;
                None: the first of these three that there is.
            precision: Dtype of weights and products, one of `PRECISIONS`. In
                bfloat16 translations differ a little from those in float32.
            **options: Keyword arguments of `Translator`, instead of its
                defaults; and `max_source_length`, instead of the longest
                sentence in training.

        Raises:
            ValueError: It is no work directory, or has no checkpoint that can
                be read; or there is no such precision.
        """
        if precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}. Received:"
                f" precision={precision!r}"
            )
        directory = WorkDirectory(workdir)
        config = directory.read_section("model", TransformerConfig)
        if "max_source_length" not in options:
            options["max_source_length"] = directory.read_max_length()
        if decoding is None:
            decoding = directory.read_section("decoding", DecodingConfig)
        tokenizer = directory.load_tokenizer()
        model = Transformer(config)
        prefix = directory.restore_weights(named_weights(model), checkpoint)
        if precision != model.dtype:
            exact = model
            model = Transformer(config, dtype=precision)
            for weight, value in zip(model.weights, exact.weights, strict=True):
                weight.assign(value)
        translator = cls(tokenizer, model, decoding, **options)
        translator.checkpoint = prefix
        line = shortened_outputs(config, decoding, translator.max_source_length)
        if line:
            logging.warning("%s", line)
        return translator

    def with_decoding(self, **changes) -> "Translator":
        """The same translator with other fields of its `DecodingConfig`.

        Args:
            **changes: Fields of `DecodingConfig`, such as `beam_size=1`.
        """
        translator = Translator(
            self.tokenizer,
            self.model,
            dataclasses.replace(self.decoding, **changes),
            self.max_source_length,
            batch_tokens=self.batch_tokens,
            jit_compile=self.jit_compile,
            seed=self.seed,
            workers=self.workers,
        )
        translator.checkpoint = self.checkpoint
        return translator

    @property
    def max_target_length(self) -> int:
        """Longest output of any source in tokens, EOS included."""
        return self.inference.max_target_length

    def translate(
        self, strings: Sequence[str], prefixes: Sequence[str] | None = None
    ) -> list[str]:
        """Translations of sentences, in their order.

        A sentence without tokens, such as a blank one, has an empty
        translation. One that is too long is truncated, with a warning. What is
        white space is the vocabulary's matter: nothing is stripped before
        SentencePiece reads a sentence.

        Args:
            strings: List of `str`.
            prefixes: The beginning of each translation, a list of `str`, ""
                where it is free. By default all are free. A prefix is forced
                token by token: after "hou", the model cannot go on to "house"
                if that is one token.

        Returns:
            List of `str`, as many.

        Raises:
            TypeError: It is no list of `str`.
            ValueError: There are not as many prefixes as strings.
            FloatingPointError: The model's logits are not finite.
        """
        found = self._search_and_warn(strings, prefixes, num_best=1)
        return [translation.texts[0] for translation in found]

    def n_best(
        self,
        strings: Sequence[str],
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[str, float]]]:
        """As `translate`, with all hypotheses and their scores.

        Args:
            strings: List of `str`.
            prefixes: As in `translate`.
            num_best: As in `search`.

        Returns:
            For each sentence a list of `(translation, score)`, best first, at
            most `num_best`; of a blank sentence `[("", 0.0)]`.
        """
        found = self._search_and_warn(strings, prefixes, num_best)
        return [list(zip(t.texts, t.scores, strict=True)) for t in found]

    def n_best_ids(
        self,
        strings: Sequence[str],
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[list[int], float]]]:
        """As `n_best`, in ids.

        Returns:
            For each sentence a list of `(ids, score)`; the ids include EOS
            unless the length limit truncated the output. Of a blank sentence
            `[([], 0.0)]`.
        """
        found = self._search_and_warn(strings, prefixes, num_best)
        return [list(zip(t.ids, t.scores, strict=True)) for t in found]

    def search(
        self,
        strings: Sequence[str],
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[Translation]:
        """As `translate`, with everything that is known of each sentence.

        Nothing is logged: the caller reports the notes of truncated sentences.

        Args:
            strings: List of `str`.
            prefixes: As in `translate`.
            num_best: Wanted hypotheses, at most and by default the beam size.
                The fewer, the earlier a search ends; those wanted are the same.

        Returns:
            A `Translation` for each sentence, in their order.

        Raises:
            As `translate`.
        """
        _check_strings(strings)
        rows, notes = self._encode(
            self.tokenizer.source, strings, self.max_source_length
        )
        forced = self._encode_prefixes(prefixes, rows, notes)
        num_found = 1 if self.decoding.sampling else self.decoding.beam_size
        num_best = min(num_best or num_found, num_found)
        results = [Translation([""], [[]], [0.0], note) for note in notes]
        lengths = [len(row) if len(row) > 1 else 0 for row in rows]
        for in_first_positions in self._rounds():
            batches = list(batches_of(lengths, self.batch_tokens))
            lengths = [0] * len(rows)  # of those whose search goes on
            search = functools.partial(
                self._search_batch,
                rows=rows,
                forced=forced,
                num_best=num_best,
                in_first_positions=in_first_positions,
            )
            num_threads = 1 if self.decoding.sampling else self.workers
            each = in_threads(search, batches, num_threads)
            for batch, found in zip(batches, each, strict=True):
                for i, ended, texts, ids, scores in zip(
                    batch, *found, strict=False
                ):
                    if not ended:
                        lengths[i] = len(rows[i])
                        continue
                    _check_finite(scores, strings[i])
                    number = _count_existing(scores[:num_best])
                    results[i] = Translation(
                        list(texts[:number]),
                        ids[:number],
                        scores[:number].tolist(),
                        notes[i],
                    )
        return results

    def _search_and_warn(self, strings, prefixes, num_best):
        """`search`; logs what was cut."""
        found = self.search(strings, prefixes, num_best)
        for number, translation in enumerate(found, 1):
            for note in translation.notes:
                logging.warning("sentence %d %s", number, note)
        return found

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        """The probability of given translations, token by token.

        A translation is scored in the tokens that `Tokenizer.encode` makes of
        it: another segmentation of the same text has another probability.

        Args:
            pairs: List of `(source, translation)`, both `str`.

        Returns:
            A `PairScore` for each pair, in their order.

        Raises:
            TypeError: It is no list of pairs of `str`.
            FloatingPointError: The model's logits are not finite.
        """
        sources, labels, notes = self._encode_pairs(pairs)
        found = self._of_pairs(self.inference.score_ids, pairs, sources, labels)
        return [
            PairScore(ids, log_probs[: len(ids)].tolist(), note)
            for ids, log_probs, note in zip(labels, found, notes, strict=True)
        ]

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Alignment]:
        """Links between the words of sources and given translations.

        Each target word has one link: to the source word that its tokens attend
        to most, in the decoder layer `alignment_layer` (mean of the heads, EOS
        left out), when the decoder reads them (Chen et al. 2020, "Shift-Att"):
        when it is about to write a token it has not seen it yet.

        Args:
            pairs: List of `(source, translation)`, both `str`.

        Returns:
            An `Alignment` for each pair, in their order.

        Raises:
            TypeError: It is no list of pairs of `str`.
            FloatingPointError: The model's attention is not finite.
        """
        sources, labels, notes = self._encode_pairs(pairs)
        source_sides = _sides(self.tokenizer.source, [s for s, _ in pairs])
        target_sides = _sides(self.tokenizer.target, [t for _, t in pairs])
        found = self._of_pairs(
            self.inference.alignment_ids, pairs, sources, labels
        )
        return [
            Alignment(
                align_words(attention[: len(ids) - 1], source, target),
                bool(note),
            )
            for attention, ids, source, target, note in zip(
                found, labels, source_sides, target_sides, notes, strict=True
            )
        ]

    # The stages of `translate`, `score` and `align`

    def _encode_pairs(self, pairs):
        """Ids of sources and translations, and the notes of each pair."""
        _check_pairs(pairs)
        sources, notes = self._encode(
            self.tokenizer.source,
            [source for source, _ in pairs],
            self.max_source_length,
        )
        labels, others = self._encode(
            self.tokenizer.target,
            [translation for _, translation in pairs],
            self.max_target_length,
        )
        both = [one + other for one, other in zip(notes, others, strict=True)]
        return sources, labels, both

    def _of_pairs(self, method, pairs, sources, labels):
        """A row of a method's result for each pair of rows of ids."""
        lengths = [
            max(len(source), len(row))
            for source, row in zip(sources, labels, strict=True)
        ]
        results: list = [None] * len(sources)
        for batch in batches_of(lengths, self.batch_tokens):
            found = self._graph(
                method,
                self._padded([sources[i] for i in batch]),
                self._padded([labels[i] for i in batch]),
            ).numpy()
            for i, row in zip(batch, found, strict=False):
                _check_finite(row, pairs[i][0])
                results[i] = row
        return results

    def _encode(self, tokenizer, strings, max_length):
        """Ids of each sentence, and a list of notes on each.

        `[EOS]` if it is blank.
        """
        if not strings:
            return [], []
        rows = tokenizer.to_ids(strings)
        notes: list[list[str]] = [[] for _ in rows]
        for i, row in enumerate(rows):
            if len(row) > max_length:
                rows[i] = [*row[: max_length - 1], EOS]
                notes[i].append(
                    f"has {len(row) - 1} tokens, truncated to {max_length - 1}"
                    f" ({_shown(strings[i])})"
                )
        return rows, notes

    def _encode_prefixes(self, prefixes, rows, notes):
        """Ids of each prefix, without EOS; no longer than the output may be.

        Adds to the notes on a sentence if its prefix is truncated.
        """
        if prefixes is None:
            return [[] for _ in rows]
        _check_strings(prefixes)
        if len(prefixes) != len(rows):
            raise ValueError(
                "prefixes must be as many as strings."
                f" Received: {len(prefixes)} and {len(rows)}"
            )
        forced = []
        encoded = self.tokenizer.target.to_ids(prefixes)
        for ids, row, note in zip(encoded, rows, notes, strict=True):
            limit = len(row) - 1
            if limit:
                limit = self.inference.output_limit(limit)
            if len(ids) - 1 > limit:
                note.append(
                    f"has a prefix of {len(ids) - 1} tokens, of which only"
                    f" {limit} can be in the output"
                )
            forced.append(ids[:-1][:limit])
        return forced

    def _search_batch(self, batch, rows, forced, num_best, in_first_positions):
        """Whether each search has ended; texts, ids and scores `[B, W]`.

        Args:
            batch: Indices of the rows.
            rows, forced: Ids of all sources and of all prefixes.
            num_best: As in `search`.
            in_first_positions: Whether the search ends after a few positions.
        """
        arrays = [self._padded([rows[i] for i in batch])]
        length = arrays[0].shape[1]
        options = {}
        if in_first_positions:
            options["max_positions"] = first_positions(length)
        inference, shapes = self.inference, "static"
        if not self.jit_compile:
            inference, shapes = (
                inference.for_sources_up_to(room(length)),
                "free",
            )
        if any(forced[i] for i in batch):
            longest = self.inference.output_limit(length)
            arrays.append(pad_prefixes([forced[i] for i in batch], longest))
        found = self._graph(
            inference.translate_ids,
            *arrays,
            num_best=num_best,
            shapes=shapes,
            **options,
        )
        ids, lengths = found.ids.numpy(), found.lengths.numpy()
        ended = lengths[:, 0] != UNFINISHED  # [B]
        strings = self.tokenizer.target.to_strings(
            ids.reshape(-1, ids.shape[2]).tolist()
        )
        texts = np.array(strings, object).reshape(lengths.shape)
        return (
            ended,
            texts,
            _without_padding(ids, lengths),
            found.scores.numpy(),
        )

    def _rounds(self):
        """Whether a search is limited to its first positions, each time.

        With XLA a cache has room for the longest output, and a position costs
        what there is room for. So few positions are searched at first, which
        most sentences need no more of; the others are searched again.
        """
        if self.jit_compile and not self.decoding.sampling:
            return True, False
        return (False,)

    def _padded(self, rows):
        """`pad_rows`, no longer than the model has learned positions."""
        return pad_rows(rows, self.model.config.position_limit)


def _shown(string):
    """The beginning of a long sentence, for a message."""
    return f"{string.strip()[:SHOWN]} ..."


def _sides(tokenizer, strings):
    """The `Side` of each string."""
    return [
        Side([token.word for token in tokens], len(string.split()))
        for tokens, string in zip(
            tokenizer.tokens(strings), strings, strict=True
        )
    ]


def _without_padding(ids, lengths):
    """Lists of the ids of each hypothesis of each sentence, EOS included."""
    return [
        [row[:length].tolist() for row, length in zip(*each, strict=True)]
        for each in zip(ids, lengths, strict=True)
    ]


def _count_existing(scores):
    """Hypotheses that exist: the first, and those after it with a score."""
    missing = np.flatnonzero(scores[1:] <= MISSING_SCORE)
    return 1 + int(missing[0]) if missing.size else len(scores)


def _check_finite(numbers, string):
    """Raises FloatingPointError if the search or score of a string failed."""
    if not np.all(np.isfinite(numbers)):
        raise FloatingPointError(
            f"the model's logits are not finite ({_shown(string)}). Its weights"
            " are corrupt, or its training diverged"
        )


def _check_pairs(pairs):
    """Raises TypeError unless it is a list of pairs of `str`."""
    if not isinstance(pairs, (list, tuple)):
        raise TypeError(
            "pairs must be a list of (source, translation)."
            f" Received: {type(pairs).__name__}"
        )
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                "pairs must be a list of (source, translation)."
                f" Received: {pair!r} at index {i}"
            )
        _check_strings(pair)


def _check_strings(strings):
    """Raises TypeError unless it is a list of `str`."""
    if not isinstance(strings, (list, tuple)):
        raise TypeError(
            f"strings must be a list of str. Received: {type(strings).__name__}"
        )
    for i, string in enumerate(strings):
        if not isinstance(string, str):
            raise TypeError(
                "strings must be a list of str."
                f" Received: {type(string).__name__} at index {i}"
            )
