"""What the server does with texts, whatever the API they came by."""

import asyncio
import dataclasses
import functools
import itertools
import typing
import uuid
from collections.abc import Mapping, Sequence

from starlette.concurrency import run_in_threadpool

from keras_transformer.translation import documents
from trainers.serving.batcher import Batcher, ClosedError, QueueFullError, Work
from trainers.serving.config import Limits, Options
from trainers.serving.languages import Detector
from trainers.serving.metrics import Metrics
from trainers.serving.pairs import (
    Alignment,
    Attention,
    Found,
    Pair,
    Search,
    Sentence,
)
from trainers.serving.requests import ApiError, bad_values

RETRY_WHILE_STARTING = 10  # seconds
RETRY_WHILE_DRAINING = 30


class Wish(typing.NamedTuple):
    """How texts are to be translated.

    Attributes:
        format: One of `requests.FORMATS`.
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
            hypothesis of each sentence, or its last one. Of a text with markup
            only the best.
        sentences: What was translated.
        before: What stands before each sentence.
        found: The `Found` of each sentence.
    """

    texts: list[str]
    sentences: list[str]
    before: list[str]
    found: list[Found]

    @property
    def notes(self) -> list[str]:
        """What is to be said about truncated sentences."""
        return [note for of in self.found for note in of.translation.notes]


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
            options.request_seconds,
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
            raise ApiError(503, "the server is starting", RETRY_WHILE_STARTING)
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
        has_prefixes = prefixes is not None
        by_pair = {
            pair: self._make_search(pair, wish, has_prefixes, seed)
            for pair in dict.fromkeys(pairs)
        }
        searches = [by_pair[pair] for pair in pairs]
        parsed = await run_in_threadpool(
            lambda: list(map(functools.partial(_parse, wish), texts, pairs))
        )
        found = await self._search(
            searches, [text.sentences for text in parsed], prefixes
        )
        results = await run_in_threadpool(
            lambda: [
                _write(text, of_text, wish.n_best)
                for text, of_text in zip(parsed, found, strict=True)
            ]
        )
        if wish.split:
            await self._place_markup(searches, parsed, results)
        return results

    async def _search(self, searches, texts, prefixes=None):
        """The `Found`s of lists of sentences."""
        jobs = []
        for i, (search, sentences) in enumerate(
            zip(searches, texts, strict=True)
        ):
            prefix = prefixes[i] if prefixes else ""
            items = [Sentence(sentence, prefix) for sentence in sentences]
            ids = search.pair.translator.tokenizer.source.to_ids(sentences)
            jobs.append((search, items, list(map(len, ids))))
        return await self._run(jobs)

    async def _place_markup(self, searches, parsed, results):
        """Writes texts again whose markup follows the alignment.

        A sentence that lost placeholders is translated again without them.
        """
        best = [
            [of.translation.texts[0] for of in result.found]
            for result in results
        ]
        changed = [
            text.document.hide_placeholders(translations)
            for text, translations in zip(parsed, best, strict=True)
        ]
        again = await self._search(
            searches,
            [
                [text.document.sentences[i] for i in indices]
                for text, indices in zip(parsed, changed, strict=True)
            ],
        )
        jobs = []
        for search, text, translations, indices, found in zip(
            searches, parsed, best, changed, again, strict=True
        ):
            for i, of in zip(indices, found, strict=True):
                translations[i] = of.translation.texts[0]
            items = [
                pair
                for pair, is_needed in zip(
                    zip(text.document.sentences, translations, strict=True),
                    text.document.needs_alignment,
                    strict=True,
                )
                if is_needed
            ]
            sizes = [1 + len(source) // 4 for source, _ in items]
            jobs.append((Alignment(search.pair), items, sizes))
        for text, translations, result, links in zip(
            parsed, best, results, map(iter, await self._run(jobs)), strict=True
        ):
            needed = text.document.needs_alignment
            if any(needed):
                result.texts[:] = [
                    text.document.write(
                        translations,
                        [next(links) if of else () for of in needed],
                    )
                ]

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
        return max(
            self.limits.max_beam_size, pair.translator.decoding.beam_size
        )

    async def _run(
        self, jobs: Sequence[tuple[Work, Sequence, Sequence[int]]]
    ) -> list[list]:
        """The results of jobs, none of which has to have items."""
        futures = []
        try:
            for work, items, sizes in jobs:
                if items:
                    job = self.batcher.submit(work, items, sizes)
                    futures.append(asyncio.wrap_future(job))
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


class _Text(typing.NamedTuple):
    """A text that is parsed; without a document it is one sentence."""

    document: documents.Document | None
    sentences: list[str]
    before: list[str]


def _parse(wish, text, pair):
    """The `_Text` of a text."""
    if not wish.split:
        return _Text(None, [text], [""])
    with bad_values():
        document = documents.parse(
            text, wish.format, pair.source, pair.translator.fits
        )
    sentences = document.sentences
    # No text has this mark: it shows what stands between the sentences.
    mark = uuid.uuid4().hex
    between = document.write([mark] * len(sentences)).split(mark)
    return _Text(document, sentences, between[: len(sentences)])


def _write(text, found, n_best):
    """The `Translated` of a text."""
    hypotheses = [of.translation.texts for of in found]
    number = min(n_best, max(map(len, hypotheses), default=1))
    texts = []
    for i in range(number):
        chosen = [texts[min(i, len(texts) - 1)] for texts in hypotheses]
        texts.append(
            text.document.write(chosen) if text.document else chosen[0]
        )
    return Translated(
        list(dict.fromkeys(texts)), text.sentences, text.before, found
    )
