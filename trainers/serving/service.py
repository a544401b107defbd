"""What the server does with texts, whatever the API they came by."""

import asyncio
import dataclasses
import itertools
import typing
from collections.abc import Mapping, Sequence

from starlette.concurrency import run_in_threadpool

from keras_transformer.translation import documents
from trainers.serving.batcher import Batcher, ClosedError, QueueFullError, Work
from trainers.serving.config import Limits, Options
from trainers.serving.languages import Detector
from trainers.serving.metrics import Metrics
from trainers.serving.pairs import Attention, Found, Pair, Search, Sentence
from trainers.serving.requests import ApiError, bad_values

RETRY_WHILE_STARTING = 10  # seconds
RETRY_WHILE_DRAINING = 30


class Wish(typing.NamedTuple):
    """How texts are to be translated.

    Attributes:
        format: One of `documents.FORMATS`.
        split: Whether a text is split into sentences.
        search: Fields of `DecodingConfig` that differ from the server's.
        n_best: Number of translations.
        details: Whether `Details` are wanted.
        seed: As in `TranslationRequest`.
    """

    format: str = "text"
    split: bool = True
    search: Mapping[str, typing.Any] = {}
    n_best: int = 1
    details: bool = False
    seed: int | None = None


class Translated(typing.NamedTuple):
    """A translated text.

    Attributes:
        texts: The whole text's translations, best first: the n-th has the n-th
            hypothesis of each sentence, or its last one.
        sentences: What was translated.
        found: The `Found` of each sentence.
    """

    texts: list[str]
    sentences: list[str]
    found: list[Found]


class Service:
    """Translates for many clients.

    Args:
        pairs: The `Pair`s.
        options: The `Options`.
        limits: The `Limits`.

    Attributes:
        phase: "starting", "ready" or "draining".
    """

    def __init__(self, pairs: Sequence[Pair], options: Options, limits: Limits):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.options, self.limits = options, limits
        sources = list(dict.fromkeys(pair.source for pair in pairs))
        self.detector = Detector(sources)
        self.metrics = Metrics()
        self.batcher = Batcher(
            options.max_batch_tokens,
            options.max_wait_ms / 1000,
            options.max_queue_tokens,
            self.metrics.observe_batch,
        )
        self.metrics.waiting_tokens.set_function(
            lambda: self.batcher.waiting_tokens
        )
        self.phase = "starting"
        self._numbers = itertools.count()

    def warm_up(self) -> None:
        """Makes the programs of all pairs; then the service is ready."""
        for pair in self.pairs.values():
            pair.warm_up()
        if self.phase == "starting":
            self.phase = "ready"

    def drain(self) -> None:
        """Takes no more work."""
        self.phase = "draining"
        self.batcher.close()

    def check_ready(self) -> None:
        """Raises ApiError, with status 503, unless the service is ready."""
        if self.phase == "starting":
            raise ApiError(
                503, "the server is starting", RETRY_WHILE_STARTING
            )
        if self.phase == "draining":
            raise ApiError(
                503, "the server is shutting down", RETRY_WHILE_DRAINING
            )

    def find_pair(self, source: str, target: str) -> Pair:
        """The pair of two languages.

        Raises:
            ApiError: It is not loaded.
        """
        pair = self.pairs.get((source, target))
        if pair is None:
            loaded = ", ".join("-".join(codes) for codes in self.pairs)
            raise ApiError(
                400,
                f"expected one of the language pairs {loaded}. Received:"
                f" source={source[:20]!r}, target={target[:20]!r}",
            )
        return pair

    async def translate(
        self,
        texts: Sequence[str],
        pairs: Sequence[Pair],
        wish: Wish,
        prefixes: Sequence[str] | None = None,
    ) -> list[Translated]:
        """Translates texts.

        Args:
            texts: The texts.
            pairs: The pair of each.
            wish: The `Wish`.
            prefixes: The beginning of each translation; texts are not split.

        Returns:
            A `Translated` for each text.

        Raises:
            ApiError: A text or an option is wrong, or there is no room.
        """
        seed = None if wish.seed is None else (wish.seed, next(self._numbers))
        searches = {
            pair: self._make_search(pair, wish, prefixes is not None, seed)
            for pair in dict.fromkeys(pairs)
        }
        parsed = await run_in_threadpool(
            lambda: [
                _parse(text, wish, pair)
                for text, pair in zip(texts, pairs, strict=True)
            ]
        )
        jobs = []
        for i, (document, sizes) in enumerate(parsed):
            prefix = prefixes[i] if prefixes else ""
            items = [Sentence(text, prefix) for text in document.sentences]
            jobs.append((searches[pairs[i]], items, sizes))
        results = await self._run(jobs)
        return await run_in_threadpool(
            lambda: [
                _write(document, found, wish.n_best)
                for (document, _), found in zip(parsed, results, strict=True)
            ]
        )

    async def draw_attention(
        self, pair: Pair, text: str, translation: str
    ) -> str:
        """The page of attention for a text and its translation.

        Raises:
            ApiError: One of them is blank or too long, or there is no room.
        """
        translator = pair.translator
        for name, value, tokenizer, limit in (
            (
                "text",
                text,
                translator.tokenizer.source,
                translator.max_source_length,
            ),
            (
                "translation",
                translation,
                translator.tokenizer.target,
                translator.max_target_length,
            ),
        ):
            [ids] = tokenizer.to_ids([value])
            if not value.strip() or len(ids) > limit:
                raise ApiError(
                    400,
                    f"{name} must have a word, and at most {limit - 1} tokens."
                    f" Received: {len(ids) - 1} tokens",
                )
        job = (Attention(pair), [(text, translation)], [len(ids)])
        [[page]] = await self._run([job])
        return page

    def _make_search(self, pair, wish, has_prefixes, seed):
        """The `Search` of a wish, checked."""
        with bad_values():
            decoding = dataclasses.replace(
                pair.translator.decoding, **wish.search
            )
        found = 1 if decoding.sampling else decoding.beam_size
        for name, value, limit in (
            ("beam_size", decoding.beam_size, self.max_beam_size(pair)),
            ("n_best", wish.n_best, min(found, self.max_n_best)),
        ):
            if value > limit:
                raise ApiError(
                    400,
                    f"{name} must be at most {limit}. Received: {name}={value}",
                )
        return Search(
            pair,
            decoding,
            everything=found > 1 and wish.n_best > 1,
            has_prefixes=has_prefixes,
            details=wish.details,
            seed=seed if decoding.sampling else None,
        )

    @property
    def max_n_best(self) -> int:
        """The number of translations that a request may ask for."""
        return self.limits.max_alternatives + 1

    def max_beam_size(self, pair: Pair) -> int:
        """The widest beam: the limit, or the pair's own if it is wider."""
        return max(self.limits.max_beam_size, pair.translator.decoding.beam_size)

    async def _run(
        self, jobs: Sequence[tuple[Work, Sequence, Sequence[int]]]
    ) -> list[list]:
        """The results of jobs, none of which has to have items."""
        futures = []
        try:
            for work, items, sizes in jobs:
                if items:
                    future = self.batcher.submit(work, items, sizes)
                    futures.append(asyncio.wrap_future(future))
            found = iter(await asyncio.gather(*futures))
        except QueueFullError as error:
            raise ApiError(
                429, "the server has too much work", error.retry_after
            ) from error
        except ClosedError:
            self.check_ready()
            raise
        finally:
            for future in futures:
                future.cancel()
        return [next(found) if items else [] for _, items, _ in jobs]


class _Sentence:
    """A text that is not split, with the interface of a document."""

    def __init__(self, text):
        self.sentences = [text]

    def write(self, translations):
        return translations[0]


def _parse(text, wish, pair):
    """The document that a text is, and the tokens of each sentence."""
    if wish.split:
        try:
            document = documents.parse(text, wish.format, pair.source)
        except ValueError as error:
            raise ApiError(400, f"{wish.format}: {error}") from error
    else:
        document = _Sentence(text)
    rows = pair.translator.tokenizer.source.to_ids(document.sentences)
    return document, [len(row) for row in rows]


def _write(document, found, n_best):
    """The `Translated` of a document."""
    number = min(
        n_best, max((len(f.translation.texts) for f in found), default=1)
    )
    texts = [
        document.write(
            [
                of.translation.texts[min(i, len(of.translation.texts) - 1)]
                for of in found
            ]
        )
        for i in range(number)
    ]
    return Translated(
        list(dict.fromkeys(texts)), list(document.sentences), list(found)
    )
