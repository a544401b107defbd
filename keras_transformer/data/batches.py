"""Buckets by length, the order of an epoch, and the data set of its batches.

The ids of a corpus fit into memory (two bytes each), so an epoch is planned in
NumPy before it begins: the shuffle is over the whole corpus, every pair is in
exactly one batch, and a run that stopped goes on with the batch that was next.
"""

import hashlib
import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.vocabulary import BOS, PAD

NUM_BUCKETS = 8  # different shapes of a batch, unless told otherwise

# ------------------------------------------------------------------- buckets


def choose_boundaries(lengths, num_buckets):
    """The bucket boundaries that need the least padding for these lengths.

    A row goes into the first bucket whose boundary is not below its length, and
    is padded up to the boundary. Exact: dynamic programming over the histogram,

        cost[k, b] = min over a < b of cost[k - 1, a] + b * rows in (a, b]

    Args:
        lengths: Integers `[rows]`, at least 1.
        num_buckets: Number of boundaries; fewer if there are fewer lengths.

    Returns:
        Increasing list of `int`; the last is the greatest length.

    >>> choose_boundaries([2, 2, 3, 9, 10], num_buckets=2)
    [3, 10]
    """
    counts = np.bincount(lengths)
    values = np.flatnonzero(counts)
    rows_up_to = np.concatenate([[0], np.cumsum(counts[values])])
    num_buckets = min(num_buckets, len(values))
    # cost[b]: least padded length of the first b values, in k buckets.
    cost = np.where(rows_up_to == 0, 0.0, np.inf)
    choices = []
    for _ in range(num_buckets):
        in_bucket = rows_up_to[1:, None] - rows_up_to[None, :]  # [b, a]
        total = cost + values[:, None] * in_bucket
        total[in_bucket <= 0] = np.inf
        choices.append(total.argmin(axis=1))
        cost = np.concatenate([[np.inf], total.min(axis=1)])
    boundaries = []
    last = len(values)
    for choice in reversed(choices):
        boundaries.append(int(values[last - 1]))
        last = int(choice[last - 1])
    return boundaries[::-1]


def choose_shapes(lengths, batch_tokens, num_buckets, rows_multiple):
    """A few shapes of batches for pairs of these lengths.

    With `batch_tokens=24` and boundaries at 3 and 10:

        8 rows of 3 tokens    pairs whose longer side has 1 to 3 tokens
        2 rows of 10 tokens   4 to 10

    Args:
        lengths: Tokens of the longer side of each pair, `[pairs]`.
        batch_tokens: Most tokens of a batch on one side, padding included.
        num_buckets: Greatest number of shapes.
        rows_multiple: The rows of a batch are a multiple of this.

    Returns:
        List of `(rows, length)`, by increasing length.

    >>> choose_shapes([2, 2, 3, 9, 10], 24, num_buckets=2, rows_multiple=1)
    [(8, 3), (2, 10)]
    """
    for name, value in (
        ("num_buckets", num_buckets),
        ("rows_multiple", rows_multiple),
    ):
        if value < 1:
            raise ValueError(
                f"{name} must be at least 1. Received: {name}={value}"
            )
    shapes = []
    for length in choose_boundaries(lengths, num_buckets):
        rows = batch_tokens // length // rows_multiple * rows_multiple
        if not rows:
            raise ValueError(
                f"batch_tokens must be at least {length * rows_multiple}, a"
                f" sentence of {length} tokens for each of {rows_multiple}"
                " (replicas, times parts of a step). Received:"
                f" batch_tokens={batch_tokens}"
            )
        shapes.append((rows, length))
    return shapes


# ------------------------------------------------------------------- batches


def pad_rows(rows, indices, shape):
    """Some rows as an array, filled up with `PAD` to the right and below.

    Args:
        rows: `TokenRows`.
        indices: Integers, which rows; at most as many as the shape has.
        shape: `(B, T)`; no row may be longer than `T`.

    Returns:
        int32 `[B, T]`.

    >>> from keras_transformer.data.corpus import TokenRows
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


def shift_right(labels):
    """What the decoder sees when it predicts the labels.

    Args:
        labels: int `[B, T]`, a NumPy array or a tensor; rows end with `EOS`,
            then `PAD`.

    Returns:
        The same kind of array: `BOS` first, then the labels one position
        later, without their `EOS`.

    >>> shift_right(np.array([[5, 6, 2, 0],
    ...                       [7, 2, 0, 0]]))
    array([[1, 5, 6, 0],
           [1, 7, 0, 0]])
    """
    ops = np if isinstance(labels, np.ndarray) else keras.ops
    begin = ops.full_like(labels[:, :1], BOS)  # [B, 1]
    shifted = ops.concatenate([begin, labels[:, :-1]], axis=1)
    return ops.where(labels == PAD, ops.full_like(labels, PAD), shifted)


class Batches:
    """The batches of a corpus, epoch after epoch; `make_batches` makes one.

    Pairs are bucketed by their longer side. What does not fill a batch of one
    bucket goes into the first batch of the next longer one, so that only the
    last batch of an epoch may have rows that are all `PAD`:

        shape          tokens of its pairs    batches
        4 rows of 3    2 3 3 2 3              [2 3 3 2]
        2 rows of 6    5 6 4                  [3 5] [6 4]

    Args:
        corpus: The `Corpus`.
        shapes: List of `(rows, length)` by increasing length; every batch has
            one of these shapes.
        seed, run_length: As in `make_batches`.

    Attributes:
        corpus, shapes: As given.
        steps_per_epoch: Number of batches of an epoch, the same for all.
        padding_share: Part of all positions, source and target, that is `PAD`,
            in [0, 1).
    """

    def __init__(self, corpus, shapes, seed, run_length):
        self.corpus = corpus
        self.shapes = shapes
        self._seed = seed
        self._run_length = run_length
        self._buckets = np.searchsorted(
            [length for _, length in shapes], corpus.longer_side
        ).astype(np.uint16)  # two bytes sort in linear time
        if self._buckets.max() == len(shapes):
            raise ValueError(
                "shapes must have room for the longest pair,"
                f" {corpus.longer_side.max()} tokens."
                f" Received: shapes={shapes}"
            )
        self._slices = _slice_batches(
            np.bincount(self._buckets, minlength=len(shapes)),
            [rows for rows, _ in shapes],
        )
        positions = sum(
            2 * shapes[bucket][0] * shapes[bucket][1]
            for _, _, bucket in self._slices
        )
        tokens = len(corpus.source.ids) + len(corpus.target.ids)
        self.padding_share = 1 - tokens / positions

    @property
    def steps_per_epoch(self):
        return len(self._slices)

    @property
    def plan_id(self):
        """A number for what `plan_epoch` depends on, in [1, 2^60].

        Batches of the same number have the same pairs at every step.
        """
        corpus = self.corpus
        sizes = len(corpus), len(corpus.source.ids), len(corpus.target.ids)
        parts = self.shapes, self._seed, self._run_length, sizes
        digest = hashlib.sha256(repr(parts).encode()).digest()
        return 1 + int.from_bytes(digest[:8], "big") % 2**60

    def __str__(self):
        shapes = ", ".join(f"{rows} x {length}" for rows, length in self.shapes)
        return (
            f"{self.steps_per_epoch:,} batches an epoch, padding"
            f" {self.padding_share:.1%}; rows x tokens: {shapes}"
        )

    def plan_epoch(self, epoch):
        """Which pairs are in which batch.

        Args:
            epoch: Counted from 0.

        Returns:
            List of `(indices, shape)`, one for each batch: the pairs, at most
            `shape[0]`, and the shape that they are padded to.
        """
        order = np.arange(len(self._buckets), dtype=np.int32)
        batches = np.arange(self.steps_per_epoch)
        if self._seed is not None:
            random = np.random.default_rng([self._seed, epoch])
            random.shuffle(order)
            batches = random.permutation(batches)
            if self._run_length > 1:
                batches = self._in_runs(batches, random)
        # Each bucket keeps the order of the shuffle. Sorting would, too, with
        # several times the memory.
        buckets = self._buckets[order]
        order = np.concatenate(
            [order[buckets == bucket] for bucket in range(len(self.shapes))]
        )
        plan = []
        for batch in batches:
            start, stop, bucket = self._slices[batch]
            plan.append((order[start:stop], self.shapes[bucket]))
        return plan

    def _in_runs(self, batches, random):
        """Brings batches of one shape together, `run_length` at a time."""
        buckets = np.array([self._slices[batch][2] for batch in batches])
        runs = []
        for bucket in np.unique(buckets):
            of_bucket = batches[buckets == bucket]
            cuts = range(self._run_length, len(of_bucket), self._run_length)
            runs += np.split(of_bucket, cuts)
        return np.concatenate([runs[i] for i in random.permutation(len(runs))])

    def assemble(self, indices, shape):
        """The batch of some pairs.

        Args:
            indices: Integers, the pairs; at most `shape[0]`.
            shape: `(B, T)`, of source and target alike.

        Returns:
            `({"source_ids", "target_ids"}, labels)`, each int32 `[B, T]`.
        """
        labels = pad_rows(self.corpus.target, indices, shape)
        inputs = {
            "source_ids": pad_rows(self.corpus.source, indices, shape),
            "target_ids": shift_right(labels),
        }
        return inputs, labels

    def dataset(
        self,
        start_step=0,
        epochs=None,
        *,
        end_step=None,
        shards=(0,),
        num_shards=1,
        stack=False,
    ):
        """The batches as a `tf.data.Dataset`.

        Args:
            start_step: Batches to leave out, counted over all epochs: the data
                set goes on as if it had never stopped.
            epochs: Where to end, in epochs from step 0; None: nowhere.
            end_step: The same in steps.
            shards: Which slices of the rows to make, in [0, num_shards): those
                of a worker's replicas. They come one after the other.
            num_shards: Replicas that share each batch, each a slice of its
                rows.
            stack: Whether to give every element one more axis, of steps: 1, or
                the run length of these batches where as many of one shape
                follow each other.

        Returns:
            Data set of `({"source_ids": [B, S], "target_ids": [B, T]}, labels
            [B, T])`, int32; stacked, `[steps, B, S]` and so on.
        """
        self._check_shards(shards, num_shards)
        if epochs is not None:
            end_step = epochs * self.steps_per_epoch

        def generate():
            for run in self._runs(start_step, end_step, stack):
                for shard in shards:
                    parts = [
                        self._assemble_shard(*batch, shard, num_shards)
                        for batch in run
                    ]
                    yield _stack(parts) if stack else parts[0]

        dataset = self._as_dataset(generate, rank=3 if stack else 2)
        if not stack:
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(
                    tf.data.INFINITE_CARDINALITY
                    if end_step is None
                    else max(0, end_step - start_step) * len(shards)
                )
            )
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _as_dataset(self, generate, rank):
        """What a function yields, batches of some rank, as a data set."""
        ids = tf.TensorSpec([None] * rank, tf.int32)
        return tf.data.Dataset.from_generator(
            generate,
            output_signature=({"source_ids": ids, "target_ids": ids}, ids),
        )

    def fullest(self, shape, shards=(0,), num_shards=1):
        """The longest pairs that a shape has room for, as `dataset` has them.

        Args:
            shape: One of `shapes`.
            shards, num_shards: As in `dataset`.

        Returns:
            Data set of one batch.
        """
        rows, length = shape
        pairs = np.argsort(self.corpus.longer_side, kind="stable")
        fitting = np.sum(self.corpus.longer_side <= length)
        pairs = pairs[max(0, fitting - rows) : fitting]

        def generate():
            for shard in shards:
                yield self._assemble_shard(pairs, shape, shard, num_shards)

        return self._as_dataset(generate, rank=2)

    def _steps(self, start_step, end_step):
        """Yields `(indices, shape)` from one step to another."""
        first_epoch, skip = divmod(start_step, self.steps_per_epoch)
        step = start_step
        for epoch in itertools.count(first_epoch):
            if end_step is not None and step >= end_step:
                return  # before it plans an epoch for nothing
            for batch in self.plan_epoch(epoch)[skip:]:
                if step == end_step:
                    return
                yield batch
                step += 1
            skip = 0

    def _runs(self, start_step, end_step, stack):
        """Yields lists of batches of one shape: as many as a run, or one."""
        run_length = self._run_length if stack else 1
        run = []
        for batch in self._steps(start_step, end_step):
            if run and run[0][1] != batch[1]:
                yield from ([single] for single in run)
                run = []
            run.append(batch)
            if len(run) == run_length:
                yield run
                run = []
        yield from ([single] for single in run)

    def _assemble_shard(self, indices, shape, shard, num_shards):
        """A slice of the rows of a batch."""
        rows = shape[0] // num_shards
        indices = indices[shard * rows : (shard + 1) * rows]
        return self.assemble(indices, (rows, shape[1]))

    def _check_shards(self, shards, num_shards):
        """The rows of every batch must divide among the replicas."""
        if not all(0 <= shard < num_shards for shard in shards) or any(
            rows % num_shards for rows, _ in self.shapes
        ):
            raise ValueError(
                "The rows of a batch must divide by num_shards, and shards be"
                f" in [0, num_shards). Received: shards={tuple(shards)},"
                f" num_shards={num_shards}, rows"
                f" {[rows for rows, _ in self.shapes]}"
            )


def _stack(batches):
    """Batches of one shape as one, with an axis of steps before the rows."""
    return tf.nest.map_structure(lambda *parts: np.stack(parts), *batches)


def _slice_batches(counts, rows):
    """Cuts a sequence of pairs, sorted by bucket, into batches.

    Args:
        counts: Pairs of each bucket.
        rows: Rows of a batch of each bucket.

    Returns:
        List of `(start, stop, bucket)`. The remainder of a bucket belongs to
        the next; only the last slice may be short.

    >>> _slice_batches([5, 3], [4, 2])
    [(0, 4, 0), (4, 6, 1), (6, 8, 1)]
    """
    slices = []
    start = stop = 0
    for bucket, (count, size) in enumerate(zip(counts, rows, strict=True)):
        stop += int(count)
        while stop - start >= size:
            slices.append((start, start + size, bucket))
            start += size
    if start < stop:
        slices.append((start, stop, len(rows) - 1))
    return slices


def make_batches(
    corpus,
    batch_tokens,
    *,
    num_buckets=NUM_BUCKETS,
    rows_multiple=1,
    run_length=1,
    seed=None,
):
    """Batches of at most `batch_tokens` tokens on each side.

    Source and target of a batch are padded to one length, one of `num_buckets`;
    XLA compiles once for each.

    Args:
        corpus: The `Corpus`.
        batch_tokens: Most tokens of a batch on one side, padding included.
        num_buckets: Greatest number of shapes.
        rows_multiple: The rows of a batch are a multiple of this: of the
            replicas, times the parts that each computes its rows in.
        run_length: Batches of one shape that follow each other, where there are
            enough of them; 1: the order is a plain shuffle.
        seed: Non-negative; decides the order of pairs and batches in every
            epoch. None: as in the corpus, by increasing length.

    Returns:
        `Batches`; train on its `dataset()`.
    """
    shapes = choose_shapes(
        corpus.longer_side, batch_tokens, num_buckets, rows_multiple
    )
    return Batches(corpus, shapes, seed, run_length)
