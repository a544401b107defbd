"""Batches: the order of an epoch, and its batches as arrays or a data set.

The ids of a corpus fit into memory (two bytes each), so the order of an epoch
is computed in NumPy before the epoch begins. So the shuffle spans the whole
corpus, every pair is in exactly one batch unless corpora are mixed, and a
resumed run continues with the next batch.
"""

import functools
import hashlib
import itertools
import math
import sys
import typing
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.base.fields import check_positive
from keras_transformer.base.refusals import expect
from keras_transformer.data.buckets import NUM_BUCKETS, choose_shapes
from keras_transformer.data.changing.corpus import ChangingCorpus
from keras_transformer.data.changing.mixture import Mixture
from keras_transformer.data.corpus import Corpus, SameEveryEpoch, TokenRows
from keras_transformer.data.labels import shift_right
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer.data.word_links import TokenLinks
from keras_transformer.text.vocabulary import PAD
from keras_transformer.text.writing import counted

if typing.TYPE_CHECKING:
    import tensorflow as tf

AnyCorpus = Corpus | PreparedCorpus | ChangingCorpus
PREFETCHED = 2  # batches that are made in advance
Shape = tuple[int, int]  # rows, tokens per row


def make_batches(
    corpus: AnyCorpus,
    batch_tokens: int,
    *,
    num_buckets: int = NUM_BUCKETS,
    rows_multiple: int = 1,
    steps_per_call: int = 1,
    seed: int | None = None,
    links: TokenLinks | None = None,
    mixture: Mixture | None = None,
) -> "Batches":
    """Makes batches of at most `batch_tokens` tokens on each side.

    Source and target of a batch are padded to the same length. XLA compiles
    once for each of at most `num_buckets` shapes.

    Args:
        corpus: A `Corpus`, `PreparedCorpus` or `ChangingCorpus`, such as a
            `SampledCorpus`.
        batch_tokens: Maximum number of tokens on each side of a batch, padding
            included.
        num_buckets: Maximum number of shapes.
        rows_multiple: The rows of a batch are a multiple of this: replicas x
            micro-batches.
        steps_per_call: Training steps in one call of the compiled function. If
            above 1, groups of this many batches of one shape follow each other,
            where there are enough, and are one element of the data set.
        seed: Non-negative. Decides the order of pairs and batches in every
            epoch. None sorts batches by shape, shortest first, and keeps the
            order of the corpus within a shape.
        links: `TokenLinks` of the corpus. Batches then have `links`, bool
            `[B, T, S]`.
        mixture: Decides which pairs each epoch has. None means every pair once.

    Returns:
        `Batches`; train on its `dataset()`.
    """
    shapes = choose_shapes(
        corpus.longer_side, batch_tokens, num_buckets, rows_multiple
    )
    return Batches(corpus, shapes, seed, steps_per_call, links, mixture)


class _Division(typing.NamedTuple):
    """The division of an epoch's pairs into batches."""

    corpus: Corpus | PreparedCorpus  # with the ids of the epoch
    buckets: np.ndarray  # uint16 [pairs]: the shape that each pair belongs to
    spans: list[tuple[int, int, int]]  # as `_batch_spans` returns them


class Batches:
    """The batches of a corpus in every epoch, as `make_batches` returns them.

    Pairs are bucketed by their longer side. Pairs that do not fill a batch of
    their bucket go into the first batch of the next longer one, so that only
    the last batch of an epoch may have rows that are all `PAD`:

        shape          tokens of its pairs    batches
        4 rows of 3    2 3 3 2 3              [2 3 3 2]
        2 rows of 6    5 6 4                  [3 5] [6 4]

    Args:
        corpus: As in `make_batches`.
        shapes: List of `(rows, length)` by increasing length; every batch has
            one of these shapes.
        seed, steps_per_call, links, mixture: As in `make_batches`.

    Attributes:
        corpus, shapes: As given.
        steps_per_epoch: Number of batches of the first epoch. All epochs have
            as many, unless the corpus changes or is mixed.
        tokens_per_epoch: Source and target tokens of the first epoch.
        padding_share: Share of all positions of the first epoch, source and
            target, that are `PAD`, in [0, 1).
    """

    def __init__(
        self,
        corpus: AnyCorpus,
        shapes: list[Shape],
        seed: int | None,
        steps_per_call: int,
        links: TokenLinks | None = None,
        mixture: Mixture | None = None,
    ):
        check_positive(steps_per_call=steps_per_call)
        self.corpus = corpus
        self.shapes = shapes
        self._seed = seed
        self._steps_per_call = steps_per_call
        self._links = links
        self._mixture = mixture
        self._first: _Division | None = None
        self._first = self._divide(0)
        self._steps_of: dict[int, int] = {}  # numbers of batches, by epoch
        self.steps_per_epoch = len(self._first.spans)
        positions = sum(
            2 * math.prod(shapes[bucket]) for _, _, bucket in self._first.spans
        )
        pairs = self._pairs_of(0)
        self.tokens_per_epoch = [
            int(rows.lengths[pairs].sum())
            for rows in (corpus.source, corpus.target)
        ]
        self.padding_share = 1 - sum(self.tokens_per_epoch) / positions

    def __str__(self):
        shapes = ", ".join(f"{rows} x {length}" for rows, length in self.shapes)
        limited = ""
        if self.shapes[-1][0] >= len(self.corpus):
            limited = f", limited to the {len(self.corpus):,} pairs available"
        number = counted(self.steps_per_epoch, "batch", "batches")
        return (
            f"{number} an epoch, padding"
            f" {self.padding_share:.1%}; rows x tokens: {shapes}{limited}"
        )

    # The order of an epoch

    def steps_of(self, epoch: int) -> int:
        """Counts the batches of an epoch. Epochs count from 0.

        If the corpus changes, this draws the epoch's ids, unless they exist.
        """
        if epoch not in self._steps_of:
            self._steps_of[epoch] = len(self._divide(epoch).spans)
        return self._steps_of[epoch]

    def describe(self, epoch: int) -> str:
        """Describes the mixture and the changes of an epoch that has begun."""
        texts = [self.corpus.describe(epoch)]
        if self._mixture:
            texts.insert(0, self._mixture.describe(epoch))
        return "; ".join(filter(None, texts))

    def epoch_order(self, epoch: int) -> list[tuple[np.ndarray, Shape]]:
        """Returns the pairs of each batch, in the order of the batches.

        Args:
            epoch: Counted from 0.

        Returns:
            List of `(indices, shape)`, one for each batch: the pairs, at most
            `shape[0]`, and the shape that they are padded to.
        """
        division = self._divide(epoch)
        pairs = self._pairs_of(epoch)
        batches = np.arange(len(division.spans))
        if self._seed is not None:
            random = np.random.default_rng([self._seed, epoch])
            random.shuffle(pairs)
            batches = random.permutation(batches)
            if self._steps_per_call > 1:
                batches = self._group_shapes(batches, division.spans, random)
        # Each bucket keeps the order of the shuffle. A stable sort would, too,
        # but takes several times the memory.
        buckets = division.buckets[pairs]
        pairs = np.concatenate(
            [pairs[buckets == bucket] for bucket in range(len(self.shapes))]
        )
        order = []
        for batch in batches:
            start, stop, bucket = division.spans[batch]
            order.append((pairs[start:stop], self.shapes[bucket]))
        return order

    def _pairs_of(self, epoch):
        """Returns the pairs of an epoch, not shuffled, int32 `[pairs]`."""
        if self._mixture:
            return self._mixture.pairs_of(epoch)
        return np.arange(len(self.corpus), dtype=np.int32)

    def _divide(self, epoch):
        corpus = self.corpus.of_epoch(epoch)
        if self._first and corpus is self._first.corpus and not self._mixture:
            return self._first
        buckets = np.searchsorted(
            [length for _, length in self.shapes], corpus.longer_side
        ).astype(np.uint16)  # two bytes sort in linear time
        if buckets.max() == len(self.shapes):
            raise ValueError(
                "shapes must have room for the longest pair,"
                f" {corpus.longer_side.max()} tokens."
                f" Received: shapes={self.shapes}"
            )
        spans = _batch_spans(
            np.bincount(
                buckets[self._pairs_of(epoch)], minlength=len(self.shapes)
            ),
            [rows for rows, _ in self.shapes],
        )
        return _Division(corpus, buckets, spans)

    def _group_shapes(self, batches, spans, random):
        """Shuffles groups of up to `steps_per_call` batches of one shape."""
        buckets = np.array([spans[batch][2] for batch in batches])
        size = self._steps_per_call
        groups = []
        for bucket in np.unique(buckets):
            of_bucket = batches[buckets == bucket]
            groups += np.split(of_bucket, range(size, len(of_bucket), size))
        order = random.permutation(len(groups))
        return np.concatenate([groups[i] for i in order])

    @functools.cached_property
    def order_id(self) -> int:
        """A number that identifies the batch order, in [1, 2^60].

        Batches with the same number have the same ids at every step of every
        epoch. It depends on the contents of the corpus, not only on its size.
        """
        settings = self.shapes, self._seed, self._steps_per_call
        identity = repr((settings, self.corpus.checksum))
        if self._mixture:
            identity += self._mixture.identity
        digest = hashlib.sha256(identity.encode()).digest()
        return 1 + int.from_bytes(digest[:8], "big") % 2**60

    # The data set

    def dataset(
        self,
        start_step: int = 0,
        epochs: int | None = None,
        *,
        start_epoch: int = 0,
        end_step: int | None = None,
        replicas: Sequence[int] = (0,),
        num_replicas: int = 1,
    ) -> "tf.data.Dataset":
        """Makes a `tf.data.Dataset` with the elements of `arrays`.

        Args: As in `arrays`.
        """
        import tensorflow as tf

        self._check_replicas(replicas, num_replicas)
        stacked = self._steps_per_call > 1
        arrays = functools.partial(
            self.arrays,
            start_step,
            epochs,
            start_epoch=start_epoch,
            end_step=end_step,
            replicas=replicas,
            num_replicas=num_replicas,
        )
        dataset = self._as_dataset(arrays, rank=3 if stacked else 2)
        count = self._count(start_epoch, start_step, epochs, end_step)
        if not stacked and count is not None:
            count *= len(replicas)
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(
                    tf.data.INFINITE_CARDINALITY if count == math.inf else count
                )
            )
        # The end of an unfinished iterator would wait for the thread that tunes
        # the pipeline, which sleeps for up to a minute (TensorFlow 2.21).
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.prefetch(PREFETCHED).with_options(options)

    def arrays(
        self,
        start_step: int = 0,
        epochs: int | None = None,
        *,
        start_epoch: int = 0,
        end_step: int | None = None,
        replicas: Sequence[int] = (0,),
        num_replicas: int = 1,
    ) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """Yields the batches as NumPy arrays.

        Args:
            start_step: Batches to skip, counted from the start of
                `start_epoch`, over all epochs: the batches continue as if they
                had never stopped.
            epochs: Number of epochs, including those before `start_epoch`. None
                for endless batches.
            start_epoch: Epochs to skip. A corpus that changes need not draw
                them.
            end_step: Batch to stop before, counted like `start_step`.
            replicas: Replicas of this worker, in [0, num_replicas). Their rows
                are separate batches, one after the other.
            num_replicas: Replicas that share the rows of each batch.

        Yields:
            `({"source_ids": [B, S], "target_ids": [B, T]}, labels [B, T])`,
            int32. If `steps_per_call` is above 1, every element has a leading
            axis of steps. Its size is `steps_per_call` where as many batches of
            one shape follow each other, else 1.
        """
        self._check_replicas(replicas, num_replicas)
        steps = self._steps(start_epoch, start_step, epochs, end_step)
        for group in self._groups(steps):
            for number in replicas:
                batches = [
                    self._assemble_rows(number, num_replicas, *batch)
                    for batch in group
                ]
                yield (
                    _stack(batches) if self._steps_per_call > 1 else batches[0]
                )

    def largest_batch(
        self,
        shape: Shape,
        replicas: Sequence[int] = (0,),
        num_replicas: int = 1,
    ) -> "tf.data.Dataset":
        """Makes a data set of one batch: the longest pairs that fit a shape.

        Args:
            shape: One of `shapes`.
            replicas, num_replicas: As in `arrays`.

        Returns:
            Data set with that batch for each of `replicas`, without an axis of
            steps.
        """

        def generate():
            for number in replicas:
                yield self.largest_rows(shape, number, num_replicas)

        return self._as_dataset(generate, rank=2)

    def largest_rows(
        self, shape: Shape, replica: int = 0, num_replicas: int = 1
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns a replica's rows of `largest_batch`, in `assemble`'s form."""
        rows, length = shape
        pairs = np.argsort(self.corpus.longer_side, kind="stable")
        fitting = int(np.sum(self.corpus.longer_side <= length))
        pairs = pairs[max(0, fitting - rows) : fitting]
        return self._assemble_rows(replica, num_replicas, pairs, shape, 0)

    def assemble(
        self, indices: np.ndarray, shape: Shape, epoch: int = 0
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Makes a batch of some pairs.

        Args:
            indices: The numbers of the pairs, at most `shape[0]`.
            shape: `(B, T)`, for both source and target.
            epoch: The epoch whose ids are used, counted from 0.

        Returns:
            `({"source_ids", "target_ids"}, labels)`, each int32 `[B, T]`. If
            there are links, the inputs also have `links`, bool `[B, T, T]`.
        """
        corpus = self.corpus.of_epoch(epoch)
        labels = pad_rows(corpus.target, indices, shape)
        inputs = {
            "source_ids": pad_rows(corpus.source, indices, shape),
            "target_ids": shift_right(labels),
        }
        if self._links:
            inputs["links"] = self._links.of_batch(
                indices, inputs["source_ids"], labels
            )
        return inputs, labels

    def _as_dataset(self, generate: Callable, rank: int) -> "tf.data.Dataset":
        """Makes a data set of what `generate` yields; labels have this rank."""
        import tensorflow as tf

        ids = tf.TensorSpec([None] * rank, tf.int32)
        inputs = {"source_ids": ids, "target_ids": ids}
        if self._links:
            inputs["links"] = tf.TensorSpec([None] * (rank + 1), tf.bool)
        return tf.data.Dataset.from_generator(
            generate, output_signature=(inputs, ids)
        )

    def _steps(
        self, start_epoch, start_step, epochs, end_step
    ) -> Iterator[tuple[np.ndarray, Shape, int]]:
        """Yields `(indices, shape, epoch)`. Arguments are as in `arrays`."""
        last = sys.maxsize if epochs is None else epochs
        stop = sys.maxsize if end_step is None else end_step
        epoch, begin = start_epoch, 0  # the first step of the epoch
        while epoch < last and begin < stop:
            end = begin + self.steps_of(epoch)
            if end > start_step:
                if epoch + 1 < last and end < stop:
                    self.corpus.prepare(epoch + 1)
                section = slice(
                    max(0, start_step - begin), min(end, stop) - begin
                )
                for indices, shape in self.epoch_order(epoch)[section]:
                    yield indices, shape, epoch
            epoch, begin = epoch + 1, end

    def _count(self, start_epoch, start_step, epochs, end_step):
        """Counts the batches that `_steps` yields. Returns None if unknown."""
        ends: list[float] = [math.inf]
        if end_step is not None:
            ends.append(end_step)
        if epochs is not None:
            if self._mixture or not isinstance(self.corpus, SameEveryEpoch):
                return None
            ends.append((epochs - start_epoch) * self.steps_per_epoch)
        return max(0, min(ends) - start_step)

    def _groups(self, steps) -> Iterator[list]:
        """Yields lists of one batch, or `steps_per_call` of the same shape."""
        for _, run in itertools.groupby(steps, key=lambda batch: batch[1]):
            while group := list(itertools.islice(run, self._steps_per_call)):
                if len(group) == self._steps_per_call:
                    yield group
                else:
                    yield from ([single] for single in group)

    def _assemble_rows(self, number, num_replicas, indices, shape, epoch):
        rows = shape[0] // num_replicas
        indices = indices[number * rows : (number + 1) * rows]
        return self.assemble(indices, (rows, shape[1]), epoch)

    def _check_replicas(self, replicas, num_replicas):
        """Raises ValueError unless the replicas can divide every batch."""
        expect(
            all(0 <= number < num_replicas for number in replicas)
            and not any(rows % num_replicas for rows, _ in self.shapes),
            "num_replicas to divide the rows, and replicas below it",
            f"{replicas=}, {num_replicas=}, {self.shapes=}",
        )


def pad_rows(
    rows: TokenRows, indices: Sequence[int] | np.ndarray, shape: Shape
) -> np.ndarray:
    """Copies rows into an int32 array, with `PAD` to the right and below.

    For a shape `(B, T)`, there may be at most B rows of at most T tokens.

    >>> rows = TokenRows(np.array([5, 6, 2, 7, 2]), np.array([0, 3, 5]))
    >>> pad_rows(rows, [0, 1], (2, 4))
    array([[5, 6, 2, 0],
           [7, 2, 0, 0]], dtype=int32)
    """
    starts = rows.offsets[indices]
    lengths = rows.offsets[np.add(indices, 1)] - starts
    positions = np.arange(shape[1])
    inside = positions < lengths[:, None]  # [rows, T]
    padded = np.full(shape, PAD, np.int32)
    padded[: len(starts)][inside] = rows.ids[
        (starts[:, None] + positions)[inside]
    ]
    return padded


def _batch_spans(
    counts: Sequence[int], rows: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Divides pairs, sorted by bucket, into batches: `(start, stop, bucket)`.

    The remainder of a bucket goes into the next; only the last span may be
    short. `counts` has the number of pairs in each bucket, `rows` the number of
    rows in its batches.

    >>> _batch_spans([5, 3], [4, 2])
    [(0, 4, 0), (4, 6, 1), (6, 8, 1)]
    """
    spans = []
    start = stop = 0
    for bucket, (count, size) in enumerate(zip(counts, rows, strict=True)):
        stop += int(count)
        while stop - start >= size:
            spans.append((start, start + size, bucket))
            start += size
    if start < stop:
        spans.append((start, stop, len(rows) - 1))
    return spans


def _stack(batches):
    """Stacks batches of one shape along a new first axis of steps."""
    inputs, labels = zip(*batches, strict=True)
    stacked = {name: np.stack([x[name] for x in inputs]) for name in inputs[0]}
    return stacked, np.stack(labels)
