"""The work on texts, shared by all APIs of the server."""

import asyncio
import dataclasses
import itertools
import pathlib
import secrets
import typing
from collections.abc import Coroutine, Iterator, Mapping, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from keras_transformer import documents
from keras_transformer.translation.glossary import Glossary
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Sentences,
    Terminology,
    make_requests,
)
from trainers.serving.batcher import Batcher, QueueFullError
from trainers.serving.config import Limits, Options
from trainers.serving.languages import Detector
from trainers.serving.metrics import Metrics
from trainers.serving.pairs import Found, Pair, Search
from trainers.serving.requests import TranslationRequest, bad_values

RETRY_START = 10  # seconds, of a client that comes while the server warms up


class Translated(typing.NamedTuple):
    """A translated text.

    Attributes:
        source: The language code of its source.
        confidence: From 0 to 100, if the language was detected.
        texts: The whole text's translations, best first: the n-th has the n-th
            hypothesis of each sentence, or its last one. Of a text with markup
            only the best.
        sentences: Each sentence, what stands before it, and the `Found` of it.
    """

    source: str
    confidence: float | None
    texts: list[str]
    sentences: list[tuple[str, str, Found]]

    @property
    def notes(self) -> list[str]:
        """The notes on truncated sentences."""
        return [n for *_, of in self.sentences for n in of.translation.notes]


class Service:
    """Translates for many clients.

    Attributes:
        glossaries: Its glossaries by name.
        is_ready: Whether it has warmed up.
        failure: What the warm-up raised, or None.
    """

    def __init__(self, pairs: Sequence[Pair], options: Options, limits: Limits):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.options, self.limits = options, limits
        self.glossaries: dict[str, Glossary] = {}
        self.read_glossaries()
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
        self.is_ready = False
        self.failure: Exception | None = None

    def read_glossaries(self) -> None:
        """Reads the glossaries; those that it has stay if one is wrong.

        Raises:
            ValueError, OSError: As `Glossary.read`, or there are none.
        """
        if self.options.glossaries is None:
            return
        paths = sorted(pathlib.Path(self.options.glossaries).iterdir())
        found = {p.stem: Glossary.read(p) for p in paths if p.suffix == ".tsv"}
        if not found:
            raise ValueError(
                "expected files NAME.tsv. Received:"
                f" glossaries={self.options.glossaries!r}"
            )
        self.glossaries = found

    def warm_up(self) -> Iterator[str]:
        """Makes the programs of all pairs; yields a line after each.

        The service is ready when those of usual requests are made; the others
        are made while no request waits.
        """
        usual, late = zip(
            *(pair.warm_up_steps() for pair in self.pairs.values()), strict=True
        )
        steps = [*itertools.chain(*usual), *itertools.chain(*late)]
        for number, make in enumerate(steps, 1):
            self.batcher.when_idle(make).result()
            yield f"warming up: {number} of {len(steps)} programs"
            if number == sum(map(len, usual)):
                self.is_ready = True
                yield "ready"

    def check_ready(self) -> None:
        """Raises HTTPException with status 503 before the server is ready."""
        if not self.is_ready:
            raise _try_again(503, "the server is starting", RETRY_START)

    def find_pair(self, source: str, target: str) -> Pair:
        """The pair of two languages."""
        pair = self.pairs.get((source, target))
        if pair is None:
            loaded = ", ".join("-".join(codes) for codes in self.pairs)
            raise HTTPException(
                400,
                f"expected one of the language pairs {loaded}. Received:"
                f" source={source!r}, target={target!r}",
            )
        return pair

    @property
    def max_n_best(self) -> int:
        """The number of translations that a request may ask for."""
        return self.limits.max_alternatives + 1

    def max_beam_size(self, pair: Pair) -> int:
        """The widest beam: the limit, or the pair's own if it is wider."""
        return max(
            self.limits.max_beam_size, pair.translator.decoding.beam_size
        )

    async def translate(
        self,
        texts: Sentences,
        options: TranslationRequest,
        search: Mapping[str, typing.Any] | None = None,
        terminology: Terminology = NO_TERMINOLOGY,
        may_be_fewer: bool = False,
    ) -> list[Translated]:
        """Translates texts. The sentences of a `Request` have its other fields.

        `search` has fields of `DecodingConfig` that differ from the server's;
        `terminology` holds for each sentence; `may_be_fewer`: `n_best` may be
        more than a search finds.
        """
        seed = options.seed
        if seed is None:
            seed = secrets.randbits(32)
        requests = [
            dataclasses.replace(request, seed=seed)
            for request in make_requests(texts)
        ]
        languages: list[tuple[str, float | None]] = [
            self.detector.rank(request.text)[0]
            if options.source == "auto"
            else (options.source, None)
            for request in requests
        ]
        pairs = [self.find_pair(code, options.target) for code, _ in languages]
        searches = {
            pair: self._make_search(pair, options, search or {}, may_be_fewer)
            for pair in dict.fromkeys(pairs)
        }
        with bad_values():
            for one in searches.values():
                terminology.check(one.decoding)
        work: list[Coroutine[typing.Any, typing.Any, tuple]]
        if options.split:
            parsed = await run_in_threadpool(
                lambda: [
                    _parse(request.text, options.format, pair)
                    for request, pair in zip(requests, pairs, strict=True)
                ]
            )
            work = [
                self._translate_document(
                    document,
                    request,
                    searches[pair],
                    terminology,
                    options.n_best,
                )
                for document, request, pair in zip(
                    parsed, requests, pairs, strict=True
                )
            ]
        else:
            work = [
                self._translate_sentence(request, searches[pair], terminology)
                for request, pair in zip(requests, pairs, strict=True)
            ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in work]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [
            Translated(*language, *task.result())
            for language, task in zip(languages, tasks, strict=True)
        ]

    def _make_search(self, pair, options, search, may_be_fewer):
        """The `Search` of a request, checked."""
        with bad_values():
            decoding = dataclasses.replace(pair.translator.decoding, **search)
        found = decoding.num_hypotheses
        n_best = min(options.n_best, found) if may_be_fewer else options.n_best
        for name, value, limit in (
            ("beam_size", decoding.beam_size, self.max_beam_size(pair)),
            ("num_samples", decoding.num_samples, self.max_beam_size(pair)),
            ("n_best", n_best, min(found, self.max_n_best)),
        ):
            if value > limit:
                raise HTTPException(
                    400,
                    f"{name} must be at most {limit}. Received: {name}={value}",
                )
        return Search(
            pair,
            decoding,
            everything=n_best > 1,
            details=options.details,
        )

    async def _translate_sentence(self, request, search, terminology):
        """The translations of a text that is one sentence, and its `Found`."""
        [found] = await self._search(search, [request], terminology)
        return found.translation.texts, [(request.text, "", found)]

    async def _translate_document(
        self, document, request, search, terminology, n_best
    ):
        """The translations of a document, and its sentences with `Found`."""
        sentences, before = document.sentences, document.texts_before()
        searched: list[list[Found]] = []

        async def run(stage):
            if stage.kind == "align":
                sizes = [1 + len(source) // 4 for source, _ in stage.items]
                align = search.pair.translator.align_spans
                return await self._run(align, stage.items, sizes)
            requests = [
                dataclasses.replace(request, text=text) for text in stage.items
            ]
            searched.append(await self._search(search, requests, terminology))
            return [found.translation.texts[0] for found in searched[-1]]

        work = documents.stages(document)
        stage = next(work)
        while isinstance(stage, documents.Stage):
            stage = await run_in_threadpool(work.send, await run(stage))
        texts, found = [stage.text], searched[0]
        if n_best > 1 and not any(document.needs_alignment):
            texts += await run_in_threadpool(
                _alternatives, document, found, n_best
            )
        rows = list(zip(sentences, before, found, strict=True))
        return list(dict.fromkeys(texts)), rows

    async def _search(self, search, requests, terminology):
        """The `Found`s of sentences."""
        requests = list(map(terminology.of, requests))
        with bad_values():
            for request in requests:
                for forms in request.terms:
                    search.pair.translator.check_forms(forms)
        ids = search.pair.translator.tokenizer.source.to_ids(
            [request.text for request in requests]
        )
        return await self._run(search, requests, list(map(len, ids)))

    async def draw_attention(
        self, pair: Pair, text: str, translation: str
    ) -> str:
        """The page of attention for a text and its translation."""
        translator, tokenizer = pair.translator, pair.translator.tokenizer
        longest = translator.max_source_length, translator.max_target_length
        for name, value, side, limit in (
            ("text", text, tokenizer.source, longest[0]),
            ("translation", translation, tokenizer.target, longest[1]),
        ):
            [ids] = side.to_ids([value])
            if not value.strip() or len(ids) > limit:
                raise HTTPException(
                    400,
                    f"{name} must have a word, and at most {limit - 1} tokens."
                    f" Received: {len(ids) - 1} tokens",
                )
        [page] = await self._run(
            pair.draw_attention, [(text, translation)], [len(ids)]
        )
        return page

    async def _run(self, work, items, sizes):
        """The results of items, which may be none."""
        if not items:
            return []
        try:
            future = self.batcher.submit(work, items, sizes)
        except QueueFullError as error:
            raise _try_again(
                429, "the server has too much work", error.retry_after
            ) from error
        return await asyncio.wrap_future(future)


def _try_again(status, message, seconds):
    """The error of a request that may succeed later."""
    return HTTPException(status, message, {"Retry-After": str(seconds)})


def _parse(text, format, pair):
    """The document that a text is."""
    with bad_values():
        return documents.parse(text, format, pair.source, pair.translator.fits)


def _alternatives(document, found, n_best):
    """Translations of a document after the best one."""
    hypotheses = [of.translation.texts for of in found]
    most = max(map(len, hypotheses), default=1)
    return [
        document.write([texts[min(i, len(texts) - 1)] for texts in hypotheses])
        for i in range(1, min(n_best, most))
    ]
