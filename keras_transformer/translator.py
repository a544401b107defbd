"""Strings to strings: vocabulary, model and search as one object.

What is evaluated is what is served: validation, `trainers.evaluate`,
`trainers.translate` and the exporters all use a `Translator`.
"""

import collections

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from keras_transformer.config import (
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.decoding import MISSING_SCORE, beam_search, sample
from keras_transformer.model import Transformer
from keras_transformer.vocabulary import EOS, PAD
from keras_transformer.workdir import WorkDirectory, named_weights

SHOWN = 60  # characters of a long line that a warning shows


class Translator(tf.Module):
    """Translates sentences: tokenizer, model and search (sec. 6.1).

    The same sentence gets the same translation in whatever company: sentences
    are sorted by length, put together into batches of a few fixed lengths, and
    given back in the order they came.

    Args:
        tokenizer: The `Tokenizer`.
        model: A `Transformer`; the weights it has at a call are used.
        decoding: The `DecodingConfig`.
        max_source_length: Longest source in tokens, end mark included; of a
            longer one the beginning is translated.
        batch_tokens: Source tokens in a batch, padding included, at most; a
            single sentence may have more.
        jit_compile: Whether XLA compiles the search, once for each shape: worth
            it for many sentences, or for one at a time in a long-lived process.
        seed: Of the draws, if `decoding` is sampling; every call draws anew.
    """

    def __init__(
        self,
        tokenizer,
        model,
        decoding,
        max_source_length,
        *,
        batch_tokens=2048,
        jit_compile=False,
        seed=0,
    ):
        super().__init__(name="translator")
        if max_source_length < 2:
            raise ValueError(
                "max_source_length must be at least 2: a token and the end"
                f" mark. Received: max_source_length={max_source_length}"
            )
        if tokenizer.vocab_size != model.config.vocab_size:
            raise ValueError(
                "Tokenizer and model must have the same vocabulary. Received:"
                f" {tokenizer.vocab_size} and {model.config.vocab_size} pieces"
            )
        self.tokenizer = tokenizer
        self.model = model
        self.decoding = decoding
        self.max_source_length = max_source_length
        self.batch_tokens = batch_tokens
        self.jit_compile = jit_compile
        # Not by assignment: tf.Module would take them for parts of a model
        # that is saved.
        object.__setattr__(self, "_graphs", {})
        self._draws = keras.random.SeedGenerator(seed)
        self._draws_state = self._draws.state.value  # tracked for exporters

    @classmethod
    def load(cls, workdir, decoding=None, checkpoint=None, **options):
        """The translator that training made.

        Args:
            workdir: Path of a work directory of `trainers.wmt`.
            decoding: A `DecodingConfig`; None: that of the work directory.
            checkpoint: "averaged", "best", "latest" or a checkpoint's path;
                None: the first of these three that there is.
            **options: Of `Translator`, in place of the usual.

        Raises:
            ValueError: It is no work directory, or has no checkpoint that can
                be read.
        """
        workdir = WorkDirectory(workdir)
        config = workdir.read_section("model", TransformerConfig)
        if "max_source_length" not in options:
            options["max_source_length"] = workdir.read_max_length()
        if decoding is None:
            decoding = workdir.read_section("decoding", DecodingConfig)
        tokenizer = workdir.load_tokenizer()
        model = Transformer(config)
        workdir.restore_weights(named_weights(model), checkpoint)
        return cls(tokenizer, model, decoding, **options)

    def translate(self, strings):
        """Translations of sentences, in their order.

        An empty or blank sentence has an empty translation. One that is too
        long is cut, with a warning that names its line.

        Args:
            strings: List of `str`.

        Returns:
            List of `str`, as many.

        Raises:
            TypeError: It is no list of `str`.
        """
        return [hypotheses[0][0] for hypotheses in self.n_best(strings)]

    def n_best(self, strings, first_line=1):
        """As `translate`, with all hypotheses and their scores.

        Args:
            strings: List of `str`.
            first_line: Number of the first sentence, for warnings.

        Returns:
            For each sentence a list of `(translation, score)`, best first, as
            many as the beam is wide; of a blank sentence `[("", 0.0)]`.
        """
        rows = self._encode(strings, first_line)
        results = [[("", 0.0)]] * len(rows)
        for batch, found in self._search_batches(rows):
            for i, hypotheses in zip(batch, self._read(found), strict=False):
                results[i] = hypotheses
        return results

    def best_ids(self, strings):
        """As `translate`, in ids: what exported models are compared with.

        Args:
            strings: List of `str`.

        Returns:
            List of lists of `int`, end mark included unless the length limit
            cut it off; of a blank sentence `[]`.
        """
        rows = self._encode(strings, first_line=1)
        results = [[] for _ in rows]
        for batch, found in self._search_batches(rows):
            best = zip(
                batch,
                found.ids[:, 0].numpy(),
                found.lengths[:, 0].numpy(),
                strict=False,
            )
            for i, ids, length in best:
                results[i] = ids[:length].tolist()
        return results

    def search(self, source_ids, prefix=None):
        """Ids to ids, as a graph: what `translate` and the exporters run.

        The output of each sentence has at most as many tokens as the source,
        end mark not counted, and `extra_length` more (sec. 6.1). A row without
        a source has no output.

        Args:
            source_ids: int32 `[B, S]`; rows end with `EOS`, then `PAD`. Where S
                is not known, it counts as `max_source_length`.
            prefix: int32 `[B, P]`, the first tokens of each output, `PAD`
                after them; None: free.

        Returns:
            A `SearchResult`.
        """
        longest = source_ids.shape[1] or self.max_source_length
        special = (source_ids == PAD) | (source_ids == EOS)
        lengths = ops.sum(ops.cast(~special, "int32"), axis=1)
        extra_length = self.decoding.extra_length
        return self._run_search(
            source_ids,
            max_lengths=ops.where(lengths > 0, lengths + extra_length, 0),
            max_length=longest + extra_length,
            prefix=prefix,
        )

    def _run_search(self, source_ids, max_lengths, max_length, prefix=None):
        """The search that `decoding` asks for: `SearchResult`."""
        config = self.decoding
        num_beams = 1 if config.sampling else config.beam_size
        memory = self.model.encode(source_ids)
        num_rows = ops.shape(source_ids)[0] * num_beams
        cache = self.model.make_cache(num_rows, max_length)

        def step(ids, cache, index):
            return self.model.decode_step(ids, memory, cache, index)

        common = {
            "max_length": max_length,
            "length_penalty": config.length_penalty,
            "min_length": config.min_length,
            "prefix": prefix,
        }
        if config.sampling:
            return sample(
                step,
                cache,
                max_lengths,
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=self._draws,
                **common,
            )
        return beam_search(
            step, cache, max_lengths, beam_size=num_beams, **common
        )

    # The stages of `translate`

    def _encode(self, strings, first_line):
        """Ids of each sentence, `[EOS]` if it is blank; cut if too long."""
        _check_strings(strings)
        if not strings:
            return []
        rows = self.tokenizer.encode([string.strip() for string in strings])
        rows = rows.to_list()
        for i, row in enumerate(rows):
            if len(row) > self.max_source_length:
                logging.warning(
                    "line %d has %d tokens: translating the first %d of"
                    " it (%s ...)",
                    first_line + i,
                    len(row) - 1,
                    self.max_source_length - 1,
                    strings[i].strip()[:SHOWN],
                )
                rows[i] = row[: self.max_source_length - 1] + [EOS]
        return rows

    def _batches(self, rows):
        """Lists of indices of rows that are translated together.

        Shortest first; blank rows are left out.
        """
        by_length = collections.defaultdict(list)
        for i, row in sorted(enumerate(rows), key=lambda pair: len(pair[1])):
            if len(row) > 1:
                by_length[bucket(len(row))].append(i)
        for length, indices in by_length.items():
            size = power_of_two(max(1, self.batch_tokens // length))
            for start in range(0, len(indices), size):
                yield indices[start : start + size]

    def _search_batches(self, rows):
        """Yields indices of rows, and the `SearchResult` of these rows."""
        for batch in self._batches(rows):
            yield batch, self._search(pad_source([rows[i] for i in batch]))

    def _search(self, source_ids):
        """`search` by one graph for each length of the source."""
        length = source_ids.shape[1]
        if length not in self._graphs:
            # Concrete at once: TensorFlow warns of a function that is traced
            # for many shapes, which is what is wanted here.
            self._graphs[length] = tf.function(
                self.search,
                input_signature=[tf.TensorSpec([None, length], tf.int32)],
                jit_compile=self.jit_compile,
                autograph=False,  # it would take most of the tracing time
            ).get_concrete_function()
        return self._graphs[length](tf.constant(source_ids))

    def _read(self, found):
        """`(translation, score)` of each hypothesis of each sentence."""
        batch_size, beam_size, length = found.ids.shape
        ids = tf.reshape(found.ids, (batch_size * beam_size, length))
        strings = [
            string.decode("utf-8", "replace")
            for string in self.tokenizer.decode(ids).numpy()
        ]
        scores = found.scores.numpy()  # [B, W]
        results = []
        for i, row in enumerate(scores):
            texts = strings[i * beam_size : (i + 1) * beam_size]
            first, *others = zip(texts, map(float, row), strict=True)
            others = [h for h in others if h[1] > MISSING_SCORE]
            results.append([first, *others])
        return results


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


def bucket(length):
    """The length that a source of this length is padded to.

    Few lengths, so that few graphs are made, and none far above the source's.

    >>> [bucket(length) for length in (1, 8, 9, 33, 200)]
    [8, 8, 16, 48, 256]
    """
    step = 8 if length <= 32 else 16 if length <= 128 else 64
    return -(-length // step) * step


def power_of_two(number):
    """The greatest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)


def pad_source(rows):
    """Rows of ids as int32 `[B, S]`, in one of a few shapes.

    B is a power of two: XLA compiles for each. What it has more than there are
    rows is filled with sources that are nothing but `EOS`.

    >>> pad_source([[5, 2], [6, 7, 2], [8, 2]]).shape
    (4, 8)
    """
    batch_size = 1 << (len(rows) - 1).bit_length()
    length = bucket(max(map(len, rows)))
    source_ids = np.full((batch_size, length), PAD, np.int32)
    source_ids[:, 0] = EOS
    for source, row in zip(source_ids, rows, strict=False):
        source[: len(row)] = row
    return source_ids
