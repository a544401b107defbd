"""Strings to strings: vocabulary, model and search as one object.

Validation, `trainers.evaluate`, `trainers.translate` and every exporter use a
`Translator`.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import os
import threading
import typing
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from keras_transformer.config import (
    PRECISIONS,
    DecodingConfig,
    TransformerConfig,
    check_position_limit,
)
from keras_transformer.data.batches import shift_right
from keras_transformer.decoding import (
    MISSING_SCORE,
    UNFINISHED,
    SearchResult,
    beam_search,
    rerank,
    sample,
)
from keras_transformer.layers import recorded_weights
from keras_transformer.model import Memory, Transformer
from keras_transformer.padding import (
    first_positions,
    pad_prefixes,
    pad_rows,
    padded_length,
    power_of_two,
    room,
)
from keras_transformer.row_loop import pick_rows
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.vocabulary import EOS, PAD, UNK
from keras_transformer.workdir import WorkDirectory, named_weights

SHOWN = 60  # characters of a long line that a warning shows
# The least that a source token counts as attended to: the logarithm of nothing
# would be infinite.
LEAST_COVERAGE = 1e-9


class PairScore(typing.NamedTuple):
    """What the model thinks of a given translation.

    Attributes:
        ids: The tokens of the translation, EOS included.
        log_probs: The log-probability of each of them after those before it,
            natural logarithm.
        truncated: Whether the source or the translation was longer than the
            translator's limit, so that only its beginning counts.
    """

    ids: list[int]
    log_probs: list[float]
    truncated: bool


class Alignment(typing.NamedTuple):
    """Which words of a pair translate each other.

    Attributes:
        links: Pairs of word indices, source and target, from 0, sorted; words
            are what `str.split` finds.
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
            search cannot keep busy. Samples are always of one worker, in one
            order.

    Attributes:
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
        depth = model.config.decoder_depth
        if (decoding.alignment_layer or 1) > depth:
            raise ValueError(
                f"alignment_layer must be at most {depth}, the layers of the"
                " decoder. Received:"
                f" alignment_layer={decoding.alignment_layer}"
            )
        self.tokenizer = tokenizer
        self.model = model
        self.decoding = decoding
        self.max_source_length = max_source_length
        self.batch_tokens = batch_tokens
        self.jit_compile = jit_compile
        self.seed = seed
        self.workers = workers
        self.checkpoint: str | None = None
        self._seed_generator = keras.random.SeedGenerator(seed)
        self._graphs: dict[tuple, Callable] = {}
        self._one_traces = threading.Lock()

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
        """Longest output in tokens, EOS included, of any source."""
        return self._output_limit(self.max_source_length)

    def _output_limit(self, source_length):
        """Longest output in tokens, of a source without its EOS."""
        longest = self._limited(source_length + self.decoding.extra_length)
        limit = self.decoding.max_output_length
        return longest if limit is None else min(longest, limit)

    def _limited(self, length):
        """A length, or the number of learned positions if that is less."""
        limit = self.model.config.position_limit
        return length if limit is None else min(length, limit)

    def translate(
        self, strings: Sequence[str], prefixes: Sequence[str] | None = None
    ) -> list[str]:
        """Translations of sentences, in their order.

        An empty or blank sentence has an empty translation. One that is too
        long is truncated, with a warning that names its line.

        Args:
            strings: List of `str`.
            prefixes: What each translation must begin with, a list of `str`,
                "" where it is free; None: all are free. A prefix is forced
                token by token: after "hou", the model cannot go on to "house"
                if that is one token.

        Returns:
            List of `str`, as many.

        Raises:
            TypeError: It is no list of `str`.
            ValueError: There are not as many prefixes as strings.
            FloatingPointError: The model's logits are not finite.
        """
        found = self.n_best(strings, prefixes=prefixes, num_best=1)
        return [hypotheses[0][0] for hypotheses in found]

    def n_best(
        self,
        strings: Sequence[str],
        first_line: int = 1,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[str, float]]]:
        """As `translate`, with all hypotheses and their scores.

        Args:
            strings: List of `str`.
            first_line: Number of the first sentence, for warnings.
            prefixes: As in `translate`.
            num_best: How many hypotheses are wanted, at most the beam size;
                None: all. The fewer, the earlier a search ends; those wanted
                are the same.

        Returns:
            For each sentence a list of `(translation, score)`, best first, at
            most `num_best`; of a blank sentence `[("", 0.0)]`.
        """
        if self.decoding.replace_unknown:
            found = self.n_best_ids(strings, first_line, prefixes, num_best)
            return self._texts_without_unknown(strings, found)
        return self._search_lines(
            strings, first_line, prefixes, num_best, self._texts_of, str
        )

    def n_best_ids(
        self,
        strings: Sequence[str],
        first_line: int = 1,
        prefixes: Sequence[str] | None = None,
        num_best: int | None = None,
    ) -> list[list[tuple[list[int], float]]]:
        """As `n_best`, in ids.

        Args:
            strings: List of `str`.
            first_line: Number of the first sentence, for warnings.
            prefixes: As in `translate`.
            num_best: As in `n_best`.

        Returns:
            For each sentence a list of `(ids, score)`; the ids include EOS
            unless the length limit truncated the output. Of a blank sentence
            `[([], 0.0)]`.
        """
        return self._search_lines(
            strings, first_line, prefixes, num_best, _ids_of, list
        )

    def translate_ids(
        self,
        source_ids: tf.Tensor,
        prefix: tf.Tensor | None = None,
        num_best: int | None = None,
        fixed_shapes: bool = False,
        max_positions: int | None = None,
        longest_source: int | None = None,
        leaving: bool = True,
    ) -> SearchResult:
        """Ids to ids: the one search, as a graph, of everything else.

        Args:
            source_ids: int32 `[B, S]`; rows end with `EOS`, then `PAD`.
            prefix: int32 `[B, P]`, the first tokens of each output, `PAD`
                after them; None: free.
            num_best: How many hypotheses of a beam are wanted; None: all. The
                fewer, the earlier the search ends.
            fixed_shapes: Whether no shape may change while the search runs, as
                XLA demands it. Where B is known, none does.
            max_positions: As in `beam_search`; not for samples.
            longest_source: What S is at most where it is not known; None:
                `max_source_length`.
            leaving: Whether sentences leave the batch as their searches end,
                wherever shapes may change and there is no prefix.

        Returns:
            A `SearchResult`; a failed search has scores NaN.
        """
        config = self.decoding
        num_beams = 1 if config.sampling else config.beam_size
        max_lengths, max_length = self.output_limits(source_ids, longest_source)
        memory = self.model.encode(source_ids)
        growing = not fixed_shapes and source_ids.shape[0] is None
        cache = self.model.make_cache(
            ops.shape(source_ids)[0],
            min(max_positions or max_length, max_length),
            num_beams,
            growing,
        )

        leaving = leaving and growing and prefix is None and not config.sampling
        step, reorder = self._steps(None if leaving else memory)
        arguments = {
            "step": step,
            "cache": (cache, memory) if leaving else cache,
            "max_lengths": max_lengths,
            "max_length": max_length,
            "length_penalty": config.length_penalty,
            "length_normalization": config.length_normalization,
            "min_length": config.min_length,
            "no_repeat_ngram": config.no_repeat_ngram,
            "prefix": prefix,
        }
        if config.sampling:
            found = sample(
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=self._seed_generator,
                **arguments,
            )
        else:
            found = beam_search(
                beam_size=num_beams,
                reorder=reorder,
                max_positions=max_positions,
                pick=pick_rows if leaving else None,
                num_best=None if config.coverage_penalty else num_best,
                stopping=config.stopping,
                **arguments,
            )
        if config.coverage_penalty:
            found = rerank(found, self._coverage(source_ids, memory, found.ids))
        return found

    def _steps(self, memory):
        """`step` and `reorder` of a search, functions of its cache.

        Args:
            memory: The `Memory` of all sentences; None: each cache has that of
                its own sentences beside it, with which they leave.
        """
        model = self.model
        if memory is not None:

            def step(ids, cache, index):
                return model.decode_step(ids, memory, cache, index)

            return step, model.reorder_cache

        def step_of_pair(ids, pair, index):
            cache, memory = pair
            logits, cache = model.decode_step(ids, memory, cache, index)
            return logits, (cache, memory)

        def reorder_pair(pair, parents):
            cache, memory = pair
            return model.reorder_cache(cache, parents), memory

        return step_of_pair, reorder_pair

    def _coverage(self, source_ids, memory, ids):
        """The coverage penalty of hypotheses, eq. 14 of Wu et al. 2016.

        cp = beta * sum over source tokens i of log(min(coverage_i, 1)), where
        coverage_i is the attention to i, summed over the target tokens. EOS is
        no source token here.

        Args:
            source_ids: int32 [B, S].
            memory: The `Memory` of them.
            ids: int32 [B, W, T].

        Returns:
            float32 [B, W], 0 or below.
        """
        num_beams, length = ids.shape[1:]
        ids = ops.reshape(ids, (-1, length))  # [B * W, T]
        memory = keras.tree.map_structure(
            lambda x: ops.repeat(x, num_beams, axis=0), memory
        )
        attention = self._cross_attention(memory, shift_right(ids))
        attention = ops.where((ids != PAD)[:, :, None], attention, 0.0)
        covered = ops.clip(ops.sum(attention, axis=1), LEAST_COVERAGE, 1.0)
        covered = ops.reshape(
            ops.log(covered), (-1, num_beams, ops.shape(source_ids)[1])
        )  # [B * W, S] -> [B, W, S]
        real = (source_ids != PAD) & (source_ids != EOS)
        penalties = ops.where(real[:, None], covered, 0.0)
        return self.decoding.coverage_penalty * ops.sum(penalties, axis=-1)

    def _cross_attention(self, memory: Memory, target_ids):
        """What the decoder's alignment layer attends to, mean of its heads.

        Args:
            memory: The `Memory` of N sources.
            target_ids: int32 [N, T], what the decoder reads.

        Returns:
            float32 [N, T, S].
        """
        depth = self.model.config.decoder_depth
        layer = self.decoding.alignment_layer or (depth + 1) // 2
        block = self.model.decoder.blocks[layer - 1]
        with recorded_weights() as weights:
            self.model.decode(target_ids, memory)
        attention = ops.cast(weights[block.cross_attention], "float32")
        return ops.mean(attention, axis=1)  # [N, H, T, S] -> [N, T, S]

    def output_limits(
        self, source_ids: tf.Tensor, longest_source: int | None = None
    ) -> tuple[tf.Tensor, int]:
        """The greatest length of each output, in tokens, EOS included.

        As many tokens as the source has, EOS not counted, and `extra_length`
        more (sec. 6.1); no more than `max_output_length`, or than the model has
        learned positions. A row without a source has no output.

        Args:
            source_ids: int32 `[B, S]`.
            longest_source: As in `translate_ids`.

        Returns:
            int32 `[B]`, and what none of them can exceed.
        """
        special = (source_ids == PAD) | (source_ids == EOS)
        lengths = ops.sum(ops.cast(~special, "int32"), axis=1)
        extra_length = self.decoding.extra_length
        limits = ops.where(lengths > 0, lengths + extra_length, 0)
        longest = (
            source_ids.shape[1] or longest_source or self.max_source_length
        )
        max_length = self._output_limit(longest)
        return ops.minimum(limits, max_length), max_length

    def score(
        self, pairs: Sequence[tuple[str, str]], first_line: int = 1
    ) -> list[PairScore]:
        """How probable given translations are, token by token.

        A translation is scored in the tokens that `Tokenizer.encode` makes of
        it: another segmentation of the same text has another probability.

        Args:
            pairs: List of `(source, translation)`, both `str`.
            first_line: Number of the first pair, for warnings.

        Returns:
            A `PairScore` for each pair, in their order.

        Raises:
            TypeError: It is no list of pairs of `str`.
            FloatingPointError: The model's logits are not finite.
        """
        sources, labels, truncated = self._encode_pairs(pairs, first_line)
        found = self._of_pairs(self.score_ids, sources, labels, first_line)
        return [
            PairScore(ids, log_probs[: len(ids)].tolist(), short)
            for ids, log_probs, short in zip(
                labels, found, truncated, strict=True
            )
        ]

    def align(
        self, pairs: Sequence[tuple[str, str]], first_line: int = 1
    ) -> list[Alignment]:
        """Which words of given translations translate which of the source.

        Each target word has one link: to the source word that its tokens attend
        to most, in the decoder layer `alignment_layer` (mean of the heads, EOS
        left out), when the decoder reads them (Chen et al. 2020, "Shift-Att"):
        when it is about to write a token it has not seen it yet.

        Args:
            pairs: List of `(source, translation)`, both `str`.
            first_line: Number of the first pair, for errors.

        Returns:
            An `Alignment` for each pair, in their order.

        Raises:
            TypeError: It is no list of pairs of `str`.
            FloatingPointError: The model's attention is not finite.
        """
        sources, labels, truncated = self._encode_pairs(
            pairs, first_line, warn=False
        )
        tokens = [
            tokenizer.tokens([pair[side] for pair in pairs])
            for side, tokenizer in enumerate(
                (self.tokenizer.source, self.tokenizer.target)
            )
        ]
        found = self._of_pairs(self.alignment_ids, sources, labels, first_line)
        alignments = []
        for i, attention in enumerate(found):
            of_words = _attention_of_words(
                attention[: len(labels[i]) - 1],
                *(
                    ([token.word for token in side[i]], len(text.split()))
                    for side, text in zip(tokens, pairs[i], strict=True)
                ),
            )
            links = sorted((one, two) for two, one in _greatest(of_words))
            alignments.append(Alignment(links, truncated[i]))
        return alignments

    def alignment_ids(
        self, source_ids: tf.Tensor, labels: tf.Tensor
    ) -> tf.Tensor:
        """What each token of given translations attends to, as a graph.

        Args:
            source_ids: int32 `[B, S]`; rows end with `EOS`, then `PAD`.
            labels: int32 `[B, T]`, likewise.

        Returns:
            float32 `[B, T - 1, S]`, of the tokens but the last; 0 where the
            source is `EOS` or `PAD`.
        """
        memory = self.model.encode(source_ids)
        attention = self._cross_attention(memory, shift_right(labels))[:, 1:]
        real = (source_ids != PAD) & (source_ids != EOS)
        return ops.where(real[:, None], attention, 0.0)

    def score_ids(self, source_ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Log-probability of every token of given translations, as a graph.

        Args:
            source_ids: int32 `[B, S]`; rows end with `EOS`, then `PAD`.
            labels: int32 `[B, T]`, likewise.

        Returns:
            float32 `[B, T]`, 0 where `labels` is `PAD`.
        """
        memory = self.model.encode(source_ids)
        logits = self.model.decode(shift_right(labels), memory)
        chosen = ops.take_along_axis(logits, labels[:, :, None], axis=-1)
        log_probs = chosen[:, :, 0] - ops.logsumexp(logits, axis=-1)  # [B, T]
        return ops.where(labels == PAD, 0.0, log_probs)

    # The stages of `translate`, `score` and `align`

    def _encode_pairs(self, pairs, first_line, warn=True):
        """Ids of sources and translations, and whether either was truncated."""
        _check_pairs(pairs)
        sources, short = self._encode(
            self.tokenizer.source,
            [source for source, _ in pairs],
            first_line,
            self.max_source_length,
            warn,
        )
        labels, whole = self._encode(
            self.tokenizer.target,
            [translation for _, translation in pairs],
            first_line,
            self.max_target_length,
            warn,
        )
        truncated = [
            one or other for one, other in zip(short, whole, strict=True)
        ]
        return sources, labels, truncated

    def _of_pairs(self, function, sources, labels, first_line=1):
        """A row of a method's result for each pair of rows of ids."""
        lengths = [
            max(len(source), len(row))
            for source, row in zip(sources, labels, strict=True)
        ]
        results: list = [None] * len(sources)
        for batch in self._batches(lengths):
            found = self._graph(
                function,
                self._padded([sources[i] for i in batch]),
                self._padded([labels[i] for i in batch]),
            ).numpy()
            for i, row in zip(batch, found, strict=False):
                _check_finite(row, first_line + i)
                results[i] = row
        return results

    def _encode(self, tokenizer, strings, first_line, max_length, warn=True):
        """Ids of each sentence, and whether it was truncated.

        `[EOS]` if it is blank.
        """
        if not strings:
            return [], []
        rows = tokenizer.to_ids([string.strip() for string in strings])
        truncated = [len(row) > max_length for row in rows]
        for i in np.flatnonzero(truncated):
            if warn:
                logging.warning(
                    "line %d has %d tokens, truncated to %d (%s ...)",
                    first_line + i,
                    len(rows[i]) - 1,
                    max_length - 1,
                    strings[i].strip()[:SHOWN],
                )
            rows[i] = [*rows[i][: max_length - 1], EOS]
        return rows, truncated

    def _batches(self, lengths) -> Iterator[list[int]]:
        """Lists of indices of rows that are computed together, shortest first.

        Args:
            lengths: Of each row, in tokens; rows of length 0 are left out.
        """
        by_length = collections.defaultdict(list)
        for i in np.argsort(lengths, kind="stable"):
            if lengths[i] > 0:
                by_length[padded_length(lengths[i])].append(int(i))
        for length, indices in by_length.items():
            size = power_of_two(max(1, self.batch_tokens // length))
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    def _search_lines(
        self, strings, first_line, prefixes, num_best, read, kind
    ):
        """Hypotheses of each sentence, as `read` takes them from a result.

        Args:
            strings, first_line, prefixes, num_best: As in `n_best`.
            read: Function of a `SearchResult`, of which it takes the hypotheses
                of each sentence.
            kind: Their type; an empty one is the hypothesis of a blank line.
        """
        _check_strings(strings)
        rows, _ = self._encode(
            self.tokenizer.source, strings, first_line, self.max_source_length
        )
        forced = self._encode_prefixes(prefixes, rows, first_line)
        num_found = 1 if self.decoding.sampling else self.decoding.beam_size
        num_best = min(num_best or num_found, num_found)

        def search(batch, in_first_positions):
            arrays = [self._padded([rows[i] for i in batch])]
            options = {}
            if in_first_positions:
                options["max_positions"] = first_positions(arrays[0].shape[1])
            if not self.jit_compile:
                options["longest_source"] = room(arrays[0].shape[1])
            if any(forced[i] for i in batch):
                longest = self._output_limit(arrays[0].shape[1])
                arrays.append(pad_prefixes([forced[i] for i in batch], longest))
            found = self._graph(
                self.translate_ids,
                *arrays,
                num_best=num_best,
                fixed_shapes=self.jit_compile,
                **options,
            )
            ended = found.lengths.numpy()[:, 0] != UNFINISHED  # [B]
            return ended, read(found), found.scores.numpy()  # [B, W]

        results = [[(kind(), 0.0)] for _ in rows]
        lengths = [len(row) if len(row) > 1 else 0 for row in rows]
        for in_first_positions in self._rounds():
            batches = list(self._batches(lengths))
            lengths = [0] * len(rows)  # of those whose search goes on
            each = self._each(
                functools.partial(
                    search, in_first_positions=in_first_positions
                ),
                batches,
            )
            for batch, found in zip(batches, each, strict=True):
                for i, ended, hypotheses, scores in zip(
                    batch, *found, strict=False
                ):
                    if not ended:
                        lengths[i] = len(rows[i])
                        continue
                    _check_finite(scores, first_line + i)
                    pairs = zip(hypotheses, map(float, scores), strict=True)
                    first, *others = list(pairs)[:num_best]
                    others = [one for one in others if one[1] > MISSING_SCORE]
                    results[i] = [first, *others]
        return results

    def _rounds(self):
        """Whether a search is limited to its first positions, each time.

        With XLA a cache has room for the longest output, and a position costs
        what there is room for. So few positions are searched at first, which
        most sentences need no more of; the others are searched again.
        """
        if self.jit_compile and not self.decoding.sampling:
            return True, False
        return (False,)

    def _each(self, function, batches):
        """Yields a function's result of each batch, in their order.

        As many batches as there are workers are computed at the same time, the
        longest sentences first: what is last keeps one worker busy alone.
        """
        if self.workers == 1 or self.decoding.sampling:
            yield from map(function, batches)
            return
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            last_first = [pool.submit(function, b) for b in reversed(batches)]
            try:
                for future in reversed(last_first):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _padded(self, rows):
        """`pad_rows`, no longer than the model has learned positions."""
        return pad_rows(rows, self.model.config.position_limit)

    def _encode_prefixes(self, prefixes, rows, first_line):
        """Ids of each prefix, without EOS; no longer than the output may be."""
        if prefixes is None:
            return [[] for _ in rows]
        _check_strings(prefixes)
        if len(prefixes) != len(rows):
            raise ValueError(
                "prefixes must be as many as strings."
                f" Received: {len(prefixes)} and {len(rows)}"
            )
        forced = []
        encoded = self.tokenizer.target.to_ids(
            [prefix.strip() for prefix in prefixes]
        )
        for line, (ids, row) in enumerate(
            zip(encoded, rows, strict=True), first_line
        ):
            limit = len(row) - 1
            if limit:
                limit = self._output_limit(limit)
            if len(ids) - 1 > limit:
                logging.warning(
                    "line %d: of its prefix, %d tokens, only %d can be in the"
                    " output",
                    line,
                    len(ids) - 1,
                    limit,
                )
            forced.append(ids[:-1][:limit])
        return forced

    def _texts_without_unknown(self, strings, found):
        """Texts and scores of hypotheses, unknown tokens replaced.

        If the source token that an unknown one attends to most is unknown, too,
        its characters are copied; else its word.

        Args:
            strings: The sources.
            found: What `n_best_ids` returned.
        """
        if not found:
            return []
        flat = [
            (line, ids[:-1] if ids[-1:] == [EOS] else ids)
            for line, hypotheses in enumerate(found)
            for ids, _ in hypotheses
        ]
        texts = self.tokenizer.target.to_strings([ids for _, ids in flat])
        places = [place for place, (_, ids) in enumerate(flat) if UNK in ids]
        lines = [strings[flat[place][0]] for place in places]
        tokenizer = self.tokenizer.source
        sources, _ = self._encode(
            tokenizer, lines, 1, self.max_source_length, warn=False
        )
        # A token is aligned when the decoder reads it: the last one that there
        # is a learned position for never is, and stays unknown.
        labels = [[*flat[place][1], EOS] for place in places]
        labels = [row[: self._limited(len(row))] for row in labels]
        attention = self._of_pairs(self.alignment_ids, sources, labels)
        tokens = tokenizer.tokens(lines)
        for place, line, weights, row, source in zip(
            places, lines, attention, labels, tokens, strict=True
        ):
            words = line.split()
            filled = {
                position: _copied(source[weights[position].argmax()], words)
                for position, id in enumerate(row[:-1])
                if id == UNK
            }
            texts[place] = self.tokenizer.target.fill(flat[place][1], filled)
        remaining = iter(texts)
        return [
            [(next(remaining), score) for _, score in hypotheses]
            for hypotheses in found
        ]

    def _graph(self, function, *arrays, **options):
        """Calls a method through a graph; with XLA, one for each length.

        A graph takes a second or two to make, so without XLA, which compiles
        for every shape, lengths are not known in it.

        Args:
            function: The method.
            *arrays: Its tensors, int32 `[B, T]` each.
            **options: Other arguments of it, which the graph is made for.
        """
        lengths = tuple(
            array.shape[1] if self.jit_compile else None for array in arrays
        )
        key = (function.__name__, lengths, tuple(options.items()))
        with self._one_traces:
            if key not in self._graphs:
                # Concrete at once: TensorFlow warns of a function that is
                # traced for many shapes, which XLA needs. Without default
                # values: with them it looks for two signatures in each call.
                self._graphs[key] = tf.function(
                    lambda *arrays: function(*arrays, **options),
                    input_signature=[
                        tf.TensorSpec([None, length], tf.int32)
                        for length in lengths
                    ],
                    jit_compile=self.jit_compile,
                    autograph=False,  # it would take most of the tracing time
                ).get_concrete_function()
        return self._graphs[key](*map(tf.constant, arrays))

    def _texts_of(self, found):
        """The text of each hypothesis of each sentence."""
        batch_size, beam_size, length = found.ids.shape
        ids = found.ids.numpy().reshape(batch_size * beam_size, length)
        strings = self.tokenizer.target.to_strings(ids.tolist())
        return [
            strings[start : start + beam_size]
            for start in range(0, len(strings), beam_size)
        ]


def shortened_outputs(
    config: TransformerConfig, decoding: DecodingConfig, max_source_length: int
) -> str | None:
    """What learned positions do to long outputs, in a line; None: nothing."""
    limit = config.position_limit
    wanted = max_source_length + decoding.extra_length
    if limit is None or wanted <= limit:
        return None
    return (
        f"outputs end at max_positions={limit} tokens; max_source_length="
        f"{max_source_length} and extra_length={decoding.extra_length} would"
        f" allow {wanted}"
    )


def _copied(token, words):
    """What stands for an unknown token that attends to a source token."""
    if token.id == UNK or token.word >= len(words):
        return token.text
    return f" {words[token.word]} "


def _attention_of_words(attention, source, target):
    """Sums attention of tokens over words: float [T, S] -> [words, words].

    Args:
        attention: Further columns than tokens are of padding.
        source: The word of each source token, and the number of words.
        target: The same of the target, which may have more tokens than rows:
            it was truncated.
    """
    (source_words, num_source), (target_words, num_target) = source, target
    source_words = source_words[: attention.shape[1]]
    target_words = target_words[: attention.shape[0]]
    attention = attention[: len(target_words), : len(source_words)]
    # One more of each: tokens of white space at the end are part of no word.
    of_words = np.zeros((num_target + 1, num_source + 1))
    np.add.at(of_words, np.ix_(target_words, source_words), attention)
    return of_words[:-1, :-1]


def _greatest(of_words):
    """Yields (row, column of its greatest value), but for rows of zeros."""
    if of_words.size:
        for row, values in enumerate(of_words):
            if values.any():
                yield row, int(values.argmax())


def _ids_of(found):
    """The ids of each hypothesis of each sentence, EOS included."""
    return [
        [ids[:length].tolist() for ids, length in zip(*row, strict=True)]
        for row in zip(found.ids.numpy(), found.lengths.numpy(), strict=True)
    ]


def _check_finite(numbers, line):
    """Raises FloatingPointError if a search or a score failed."""
    if not np.all(np.isfinite(numbers)):
        raise FloatingPointError(
            f"line {line}: the model's logits are not finite. Its weights are"
            " corrupt, or its training diverged"
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
