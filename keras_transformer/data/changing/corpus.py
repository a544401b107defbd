"""Sentence pairs whose ids differ from epoch to epoch."""

from __future__ import annotations

import abc
import concurrent.futures
import threading
import zlib

import numpy as np

from keras_transformer.data.corpus import Corpus, TokenRows

CHUNK_PAIRS = 2**15  # drawn with one seed; another size would give other ids


class ChangingCorpus(abc.ABC):
    """Sentence pairs whose ids are drawn anew for every epoch.

    The ids of an epoch depend only on the pairs, the tokenizer, the options of
    the subclass, the seed and the epoch. So a resumed training continues with
    the same ids. `make_batches` accepts this class like a `Corpus`. Lengths
    differ from epoch to epoch, so the batches of an epoch are made when it
    begins.

    The canonical ids, from `Tokenizer.encode`, decide once which pairs are
    dropped. The lengths of the first epoch decide the shapes of batches. A row
    that is too long for `max_length` or, after the first epoch, for these
    shapes has its canonical ids in that epoch.

    `source` and `target` are the `TokenRows` of the first epoch. `longer_side`
    is the maximum of their lengths and the canonical lengths. In later epochs,
    no row has more than `longest` tokens.
    """

    def __init__(self, canonical: Corpus):
        self.canonical = canonical
        self.counts = canonical.counts
        self._lock = threading.RLock()
        self._epochs: dict[int, concurrent.futures.Future] = {}
        self._counts: dict[int, dict[str, int]] = {}
        self.longest = self.counts.max_length
        self.first, self._counts[0] = self._draw_epoch(0)
        self.source: TokenRows = self.first.source
        self.target: TokenRows = self.first.target
        self.longer_side = np.maximum(
            canonical.longer_side, self.first.longer_side
        )
        self.longest = int(self.longer_side.max())

    @abc.abstractmethod
    def _draw_epoch(self, epoch: int) -> tuple[Corpus, dict[str, int]]:
        """Draws the `Corpus` of an epoch. Also returns counts by description.

        No row may have more than `longest` tokens.
        """

    def __len__(self):
        return self.counts.kept

    @property
    def growth(self) -> float:
        """The tokens of the first epoch, divided by the canonical tokens."""
        return _num_tokens(self.first) / _num_tokens(self.canonical)

    @property
    def checksum(self) -> int:
        """A checksum of the canonical ids and those of the first epoch.

        It depends on the text, the vocabulary, the options and the seed, and on
        the code that draws ids.
        """
        content = repr((self.canonical.checksum, self.first.checksum))
        return zlib.crc32(content.encode())

    def of_epoch(self, epoch: int) -> Corpus:
        """Returns the corpus with the ids of an epoch, counted from 0.

        This epoch and the next stay in memory; see `prepare`.
        """
        if epoch == 0:
            return self.first
        with self._lock:
            self.prepare(epoch)
            made = self._epochs[epoch]
            for other in list(self._epochs):
                if other not in (epoch, epoch + 1):
                    del self._epochs[other]
        return made.result()

    def describe(self, epoch: int) -> str:
        """Lists the counts of an epoch whose ids have been drawn."""
        counts = self._counts[epoch].items()
        return ", ".join(f"{number:,} {what}" for what, number in counts)

    def prepare(self, epoch: int) -> None:
        """Starts to draw the ids of an epoch in the background."""
        with self._lock:
            if epoch in self._epochs:
                return
            future: concurrent.futures.Future = concurrent.futures.Future()
            self._epochs[epoch] = future
            # A daemon ends with the process, even while it draws ids.
            threading.Thread(
                target=self._resolve,
                args=(future, epoch),
                name=f"epoch {epoch}",
                daemon=True,
            ).start()

    def _resolve(self, future: concurrent.futures.Future, epoch: int) -> None:
        """Sets a future's result: the `Corpus` of an epoch, or the error."""
        try:
            corpus, self._counts[epoch] = self._draw_epoch(epoch)
        except BaseException as error:
            future.set_exception(error)
            return
        future.set_result(corpus)


def _num_tokens(corpus: Corpus) -> int:
    return len(corpus.source.ids) + len(corpus.target.ids)
