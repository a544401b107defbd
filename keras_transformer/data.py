"""From sentence pairs to training batches of a few fixed shapes.

    read_parallel_files, read_tfds    pairs of strings, read again at will
    encode_corpus                     ids of all pairs, once, flat in memory
    make_batches                      buckets by length, epochs, tf.data

The ids of a corpus fit into memory (two bytes each), so an epoch is planned in
NumPy before it begins: the shuffle is over the whole corpus, every pair is in
exactly one batch, and a run that stopped goes on with the batch that was next.
"""

import collections
import concurrent.futures
import dataclasses
import gzip
import hashlib
import itertools
import os
import pathlib
import zlib

import numpy as np
import tensorflow as tf
import tqdm

from keras_transformer.vocabulary import BOS, PAD

NUM_BUCKETS = 8  # different shapes of a batch, unless told otherwise

# ------------------------------------------------------------------- sources


class Pairs:
    """Sentence pairs that can be read more than once.

    Args:
        read: Function without arguments that returns an iterator over pairs
            `(source, target)` of `str`.
        num_pairs: How many it gives.
    """

    def __init__(self, read, num_pairs):
        self._read = read
        self._num_pairs = num_pairs

    def __len__(self):
        return self._num_pairs

    def __iter__(self):
        return self._read()


def read_parallel_files(prefixes, source_language, target_language):
    """Pairs of line-aligned files `PREFIX.LANGUAGE` or `PREFIX.LANGUAGE.gz`.

    A line ends at a newline and nowhere else; in a line, white space of any
    kind and length counts as one space. All files are checked at once, before
    the first pair is read.

    Args:
        prefixes: List of paths without the language; the corpora are read one
            after the other.
        source_language: Ending of the files to translate from, as in `"en"`.
        target_language: Ending of the files to translate to, as in `"de"`.

    Returns:
        `Pairs`, read from the files anew each time.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The two files of a corpus have different numbers of lines, a
            line is not UTF-8, or there is no line at all.
    """
    if isinstance(prefixes, str):
        raise ValueError(
            f"prefixes must be a list. Received: prefixes={prefixes!r}"
        )
    corpora = [
        (
            find_file(prefix, source_language),
            find_file(prefix, target_language),
        )
        for prefix in prefixes
    ]
    num_pairs = sum(_count_pairs(*paths) for paths in corpora)
    if not num_pairs:
        raise ValueError(
            "The corpus has no lines."
            f" Received: prefixes={[str(prefix) for prefix in prefixes]}"
        )

    def read():
        for source_path, target_path in corpora:
            yield from zip(
                _read_lines(source_path), _read_lines(target_path), strict=True
            )

    return Pairs(read, num_pairs)


def find_file(prefix, language):
    """`PREFIX.LANGUAGE`, or else its `.gz`.

    Raises:
        FileNotFoundError: There is neither.
    """
    plain = pathlib.Path(f"{prefix}.{language}")
    zipped = pathlib.Path(f"{prefix}.{language}.gz")
    for path in (plain, zipped):
        if path.is_file():
            return path
    raise FileNotFoundError(f"No such file: {plain}, nor {zipped}")


def _count_pairs(source_path, target_path):
    """Reads two files to their ends and returns their number of lines."""
    source_lines = sum(1 for _ in _read_lines(source_path))
    target_lines = sum(1 for _ in _read_lines(target_path))
    if source_lines != target_lines:
        raise ValueError(
            "Parallel files must have as many lines as each other. Received:"
            f" {source_path} with {source_lines:,} lines,"
            f" {target_path} with {target_lines:,} lines"
        )
    return source_lines


def _read_lines(path):
    """Yields the lines of a file, white space made single spaces."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        try:
            # Bytes end their lines at \n alone; strings would, once split,
            # also end them at U+2028 and its like.
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield " ".join(text.split())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8"
                f" ({error.reason}, byte {error.start + 1} of the line)"
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: broken gzip file ({error})") from error


class MissingSplitError(ValueError):
    """A data set does not have the part that was asked for."""


def read_tfds(name, split, source_language, target_language, data_dir=None):
    """Pairs of a translation data set of TensorFlow Datasets.

    What is not in `data_dir` yet is downloaded.

    Args:
        name: Name of the data set, as in `"wmt14_translate/de-en"`.
        split: Its part, as in `"train"` or `"train[:10%]"`.
        source_language: Feature to translate from, as in `"en"`.
        target_language: Feature to translate to, as in `"de"`.
        data_dir: Directory of prepared data sets; None: TensorFlow Datasets'
            own, `~/tensorflow_datasets`.

    Returns:
        `Pairs`, read from the data set anew each time.

    Raises:
        MissingSplitError: The data set has no such part.
        ValueError: The data set, or one of the languages in it, is unknown.
    """
    import tensorflow_datasets as tfds  # slow to import, and seldom needed

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except ValueError as error:  # whose further lines list all there is
        reason = str(error).splitlines()[0]
        raise ValueError(f"No such data set: {name!r} ({reason})") from error
    features = builder.info.features
    for language in (source_language, target_language):
        if language not in features:
            raise ValueError(
                f"Languages of {name} must be among"
                f" {', '.join(sorted(features))}. Received: {language!r}"
            )
    builder.download_and_prepare()
    if split.split("[")[0] not in builder.info.splits:
        raise MissingSplitError(
            f"{name} has {', '.join(builder.info.splits)}."
            f" Received: split={split!r}"
        )
    dataset = builder.as_dataset(split=split).batch(1024)

    def read():
        for examples in dataset.as_numpy_iterator():
            yield from zip(
                _clean_strings(examples[source_language]),
                _clean_strings(examples[target_language]),
                strict=True,
            )

    return Pairs(read, builder.info.splits[split].num_examples)


def _clean_strings(values):
    """Decodes an array of UTF-8 strings; white space as in files."""
    return [" ".join(value.decode().split()) for value in values]


# -------------------------------------------------------------------- corpus


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """Rows of ids, one after the other in a flat array.

    The rows `[5, 6, 2]` and `[7, 2]` are

        ids      5 6 2 7 2
        offsets  0     3   5

    Attributes:
        ids: uint16 or int32 `[tokens]`.
        offsets: int64 `[rows + 1]`; where each row begins, and the end.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self):
        """Number of tokens of each row, int64 `[rows]`."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True)
class CorpusCounts:
    """What became of the pairs that were read."""

    read: int
    kept: int
    empty: int
    too_long: int
    max_length: int

    def __str__(self):
        return (
            f"{self.read:,} pairs read, {self.kept:,} kept; dropped:"
            f" {self.empty:,} with an empty side,"
            f" {self.too_long:,} with more than {self.max_length} tokens"
        )


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The ids of sentence pairs; each row ends with `EOS`.

    Attributes:
        source: `TokenRows` of the source sentences.
        target: `TokenRows` of the target sentences, as many.
        counts: How many pairs were read, kept and dropped.
    """

    source: TokenRows
    target: TokenRows
    counts: CorpusCounts

    def __len__(self):
        return self.counts.kept

    @property
    def longer_side(self):
        """Tokens of the longer side of each pair, int64 `[pairs]`."""
        return np.maximum(self.source.lengths, self.target.lengths)


def encode_corpus(pairs, tokenizer, max_length):
    """Ids of all pairs that have neither an empty nor a too long side.

    Args:
        pairs: Iterable of `(source, target)` strings, read once.
        tokenizer: The `Tokenizer`.
        max_length: Longest side that is kept, in tokens, `EOS` included.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: No pair is left.
    """
    if max_length < 2:
        raise ValueError(
            "max_length must be at least 2: a token and the end mark."
            f" Received: max_length={max_length}"
        )
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
    parts = []
    empty = too_long = 0
    for source, target in _encode_chunks(pairs, tokenizer):
        shortest = np.minimum(source.lengths, target.lengths)
        longest = np.maximum(source.lengths, target.lengths)
        keep = (shortest > 1) & (longest <= max_length)
        empty += int(np.sum(shortest <= 1))
        too_long += int(np.sum((shortest > 1) & (longest > max_length)))
        parts.append(
            [_select_rows(rows, keep, dtype) for rows in (source, target)]
        )
    kept = sum(len(source.lengths) for source, _ in parts)
    counts = CorpusCounts(
        read=kept + empty + too_long,
        kept=kept,
        empty=empty,
        too_long=too_long,
        max_length=max_length,
    )
    if not kept:
        raise ValueError(f"No pair is left to learn from. Received: {counts}")
    source, target = map(_concatenate_rows, zip(*parts, strict=True))
    return Corpus(source, target, counts)


def _encode_chunks(pairs, tokenizer, chunk_size=8192):
    """Yields source and target `TokenRows`, chunk by chunk, in order.

    TensorFlow encodes without Python's lock, so threads share the work. On a
    terminal a bar shows the progress.
    """
    pairs = iter(tqdm.tqdm(pairs, "encode", disable=None, unit=" pairs"))
    num_threads = os.cpu_count() or 1
    pending = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(num_threads) as threads:
        while chunk := list(itertools.islice(pairs, chunk_size)):
            pending.append(threads.submit(_encode_chunk, chunk, tokenizer))
            if len(pending) > num_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _encode_chunk(pairs, tokenizer):
    """Source and target `TokenRows` of a list of pairs."""
    sides = map(tokenizer.encode, zip(*pairs, strict=True))
    return [
        TokenRows(side.values.numpy(), side.row_splits.numpy())
        for side in sides
    ]


def _select_rows(rows, keep, dtype):
    """The rows where `keep` is true."""
    lengths = rows.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths[keep])])
    return TokenRows(rows.ids[np.repeat(keep, lengths)].astype(dtype), offsets)


def _concatenate_rows(parts):
    """The rows of all parts, in order."""
    lengths = np.concatenate([rows.lengths for rows in parts])
    return TokenRows(
        ids=np.concatenate([rows.ids for rows in parts]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
    )


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
        labels: int32 `[B, T]`; rows end with `EOS`, then `PAD`.

    Returns:
        int32 `[B, T]`: `BOS` first, then the labels one position later, without
        their `EOS`.

    >>> shift_right(np.array([[5, 6, 2, 0],
    ...                       [7, 2, 0, 0]]))
    array([[1, 5, 6, 0],
           [1, 7, 0, 0]])
    """
    shifted = np.full_like(labels, BOS)
    shifted[:, 1:] = labels[:, :-1]
    return np.where(labels == PAD, PAD, shifted)


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
