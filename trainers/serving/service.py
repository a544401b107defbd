"""The work on texts, shared by all APIs of the server."""

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import gc
import itertools
import pathlib
import secrets
import typing
from collections.abc import Iterator, Mapping, Sequence

from starlette.exceptions import HTTPException

from keras_transformer import documents
from keras_transformer.config import changed_search
from keras_transformer.data.languages import shortened
from keras_transformer.translation import assemble
from keras_transformer.translation.glossary import Glossary
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Request,
    Sentences,
    Terminology,
    encode_pairs,
    make_requests,
)
from trainers.serving.batcher import Batcher, QueueFullError
from trainers.serving.downloads import Downloads
from trainers.serving.languages import Detector, choose_pair, is_same
from trainers.serving.metrics import Metrics
from trainers.serving.options import Limits, ServeOptions
from trainers.serving.pairs import (
    AlignSpans,
    DrawAttention,
    Found,
    Pair,
    Search,
)
from trainers.serving.reading import Readers
from trainers.serving.requests import AUTO, TranslationRequest, bad_values

# Characters that a thread prepares at once, since nothing stops it; a sentence
# takes as long as so many.
PREPARED, PREPARED_SENTENCE = 100_000, 50
LONGEST_CODE = 35  # characters of a language code (RFC 5646)
MOST_TERM_TOKENS = 512  # of a sentence
SURE = 90  # percent, that a text is in the target language already
RETRY_START = 10  # seconds, of a client that comes while the server warms up


class _Turn(asyncio.Semaphore):
    """Held while a thread works for the request.

    Attributes:
        is_accepted: Whether work of the request has been in the queue.
    """

    is_accepted = False


_turn: contextvars.ContextVar[_Turn] = contextvars.ContextVar("turn")


class Translated(typing.NamedTuple):
    """A translated text.

    Attributes:
        source: The language code of its source.
        confidence: From 0 to 100, if the language was detected.
        texts: The whole text's translations, best first: the n-th has the n-th
            hypothesis of each sentence, or its last one.
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


def read_glossaries(path: str | None, tell: bool = True) -> dict[str, Glossary]:
    """The glossaries of a directory by name; `tell` as in `Glossary.parse`.

    Raises:
        ValueError, OSError: As `Glossary.read`, or there are none.
    """
    if path is None:
        return {}
    found: dict[str, Glossary] = {}
    for file in sorted(pathlib.Path(path).iterdir()):
        if file.stem in found and file.suffix == ".tsv":
            raise ValueError(
                "expected one glossary of each name. Received:"
                f" {file.stem}.csv and {file.name}"
            )
        if file.suffix in (".tsv", ".csv"):
            found[file.stem] = Glossary.read(file, tell=tell)
    if not found:
        raise ValueError(
            f"expected files NAME.tsv. Received: glossaries={path!r}"
        )
    return found


class Service:
    """Translates for many clients.

    Attributes:
        glossaries: Its glossaries by name.
        downloads: The translated files.
        is_ready: Whether it has warmed up.
        failure: What the warm-up raised, or None.
    """

    def __init__(
        self, pairs: Sequence[Pair], options: ServeOptions, limits: Limits
    ):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.models = list(dict.fromkeys(pair.model for pair in pairs))
        self.options, self.limits = options, limits
        self.glossaries: dict[str, Glossary] = {}
        self.read_glossaries()
        sources, targets = map(list, zip(*self.pairs, strict=True))
        self.detector = Detector(sources, targets)
        self._has_pair = functools.lru_cache(1000)(self._is_usable)
        self.metrics = Metrics()
        first = pairs[0].model.translator
        self.metrics.engine.info(
            {"engine": first.engine, "computed_in": first.model.dtype}
        )
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
        self.downloads = Downloads(options.download_seconds)
        self._readers = Readers(limits.max_reader_mib << 20)
        self.is_ready = False
        self.failure: Exception | None = None

    def read_glossaries(self) -> None:
        """As the function; the glossaries stay if one is wrong."""
        found = read_glossaries(self.options.glossaries)
        for glossary in found.values():
            glossary.find("")  # makes its index before a request does
        self.glossaries = found

    def warm_up(self) -> Iterator[str]:
        """Makes the programs of all models; yields a line after each.

        The service is ready when those of usual requests are made; the others
        are made when no request has come for a while.
        """
        kinds = zip(
            *(model.warm_up_steps() for model in self.models), strict=True
        )
        usual, late, compiled = (
            list(itertools.chain(*steps)) for steps in kinds
        )
        steps = [*usual, *late, *compiled]
        results = []
        for number, make in enumerate(steps, 1):
            results.append(self.batcher.when_idle(make).result())
            what = "warming up"
            if self.is_ready:
                what = "answering; in the background, for long texts and speed"
            yield f"{what}: {number} of {len(steps)} programs"
            if number >= len(usual):
                gc.freeze()  # a collection of graphs stops all for 0.5 s
            if number == len(usual):
                self.is_ready = True
                self.batcher.rest()  # clients have waited for this
                yield "ready"
        faster = [
            result
            for result in results[len(steps) - len(compiled) :]
            if result is not None
        ]
        if faster:
            yield (
                f"single sentences: XLA is faster for {sum(faster)} of"
                f" {len(faster)} lengths, and is used there"
            )

    def close(self) -> None:
        """Ends when all accepted work is done; removes all files."""
        self.batcher.close()
        self._readers.close()
        self.downloads.close()

    def check_ready(self) -> None:
        """Raises HTTPException with status 503 before the server is ready."""
        if not self.is_ready:
            raise _try_again(503, "the server is starting", RETRY_START)

    def find_pair(
        self, source: str, target: str, is_detected: bool = False
    ) -> Pair:
        """The pair of two languages.

        If the source is detected, it may be the target: see `Pair.is_same`.
        """
        _check_codes(source, target)
        codes = choose_pair(source, target, self.pairs)
        if codes is None and is_detected and is_same(source, target):
            for pair in self.pairs.values():
                if is_same(target, pair.target):
                    return dataclasses.replace(pair, source=pair.target)
        if codes is None:
            loaded = shortened(["-".join(codes) for codes in self.pairs])
            raise HTTPException(
                400,
                f"expected one of the language pairs {loaded}. Received:"
                f" source={source!r}, target={target!r}",
            )
        return self.pairs[codes]

    def _detect(self, text, target):
        """The language of a text that there is a translation of, confidence."""
        _check_codes(target)  # before they are cached
        ranked = self.detector.rank(text)
        usable = (
            (code, confidence)
            for code, confidence in ranked
            if self._has_pair(code, target)
            # A word such as "two" may look like any language.
            and (confidence >= SURE or not is_same(code, target))
        )
        return next(usable, ranked[0])

    def _is_usable(self, source, target):
        """Whether there is a pair of a detected language."""
        with contextlib.suppress(HTTPException):
            return bool(self.find_pair(source, target, is_detected=True))
        return False

    @property
    def max_n_best(self) -> int:
        """The number of translations that a request may ask for."""
        return self.limits.max_alternatives + 1

    def max_beam_size(self, pair: Pair) -> int:
        """The widest beam: the limit, or the pair's own if it is wider."""
        return max(
            self.limits.max_beam_size, pair.model.translator.decoding.beam_size
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
        _turn.set(_Turn())
        seed = options.seed
        if seed is None:
            seed = secrets.randbits(32)
        requests = [
            dataclasses.replace(request, seed=seed)
            for request in make_requests(texts)
        ]
        languages: list[tuple[str, float | None]] = [
            self._detect(request.text, options.target)
            if options.source.lower() == AUTO
            else (options.source, None)
            for request in requests
        ]
        found = {
            code: self.find_pair(code, options.target, share is not None)
            for code, share in dict(languages).items()
        }
        pairs = [found[code] for code, _ in languages]
        searches = {
            pair: self._make_search(pair, options, search or {}, may_be_fewer)
            for pair in dict.fromkeys(pairs)
        }
        requests = [
            dataclasses.replace(request, direction=pair.direction)
            for request, pair in zip(requests, pairs, strict=True)
        ]
        with bad_values():
            for one in searches.values():
                terminology.check(one.decoding)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        self._translate_text(
                            request, pair, searches[pair], terminology, options
                        )
                    )
                    for request, pair in zip(requests, pairs, strict=True)
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [
            Translated(*language, *task.result())
            for language, task in zip(languages, tasks, strict=True)
        ]

    async def translate_file(
        self,
        name: str,
        file: typing.BinaryIO,
        source: str,
        target: str,
        terminology: Terminology,
        adapter: str = "",
    ) -> tuple[str, list[str]]:
        """Translates a file; returns its key in `downloads`, and notes.

        Its format follows from its name; `source` may be `AUTO`. The notes are
        on truncated sentences, and on what is left as it was.
        """
        _turn.set(_Turn())
        self._check_adapter(adapter)

        async def advance(*arguments):
            with bad_values():
                return await self._readers.advance(file, name, *arguments)

        is_detected = source.lower() == AUTO
        if is_detected:
            stage, _ = await advance(("en", ""), bool, [])
            text = "\n".join(stage.items)[: self.limits.max_characters]
            source, _ = self._detect(text, target)
        pair = self.find_pair(source, target, is_detected)
        decoding = pair.model.translator.decoding
        search = Search(pair.model, decoding, adapter=adapter)
        with bad_values():
            terminology.check(search.decoding)
        path = pathlib.PurePath(name)
        output = f"{path.stem}_{pair.target}{path.suffix}"
        if pair.is_same:
            file.seek(0)
            data = await _in_thread(file.read)
            key = await self.downloads.add(output, data)
            return key, [f"the file is in {pair.target} already"]
        request = Request(
            "", seed=secrets.randbits(32), direction=pair.direction
        )
        results: list[list] = []
        rows: list[Found] = []
        sentences: list[str] = []
        while True:
            stage, left = await advance(
                (pair.source, pair.target), pair.translator.fits, results
            )
            if not isinstance(stage, documents.Stage):
                break
            if stage.kind == "align":
                found = await self._align(search, request, stage.items)
            else:
                translated = await self._search(
                    search, _of_texts(request, stage.items), terminology
                )
                sentences = sentences or stage.items
                rows = rows or translated
                found = _texts(translated, 0)
            results.append(found)
        self._count(pair, sentences)
        key = await self.downloads.add(output, stage.data)
        notes = [n for found in rows for n in found.translation.notes]
        return key, [*notes, *filter(None, [left])]

    def _make_search(self, pair, options, search, may_be_fewer):
        """The `Search` of a request, checked."""
        with bad_values():
            before = pair.model.translator
            decoding = changed_search(before.decoding, search)
            before.check_search(decoding)
        self._check_adapter(options.adapter)
        if options.seed is not None and not decoding.sampling:
            raise HTTPException(400, "seed needs sampling")
        found = decoding.num_hypotheses
        n_best = min(options.n_best, found) if may_be_fewer else options.n_best
        most_samples = max(
            self.limits.max_beam_size, before.decoding.num_samples
        )
        for name, value, limit in (
            ("beam_size", decoding.beam_size, self.max_beam_size(pair)),
            ("num_samples", decoding.num_samples, most_samples),
            ("n_best", n_best, min(found, self.max_n_best)),
        ):
            if value > limit:
                raise HTTPException(
                    400,
                    f"{name} must be at most {limit}. Received: {name}={value}",
                )
        return Search(
            pair.model,
            decoding,
            everything=n_best > 1,
            details=options.details,
            adapter=options.adapter,
        )

    async def _translate_text(
        self, request, pair, search, terminology, options
    ):
        """The translations of a text, and its sentences with `Found`."""
        if pair.is_same:
            return [request.text], []
        if not options.split:
            [found] = await self._search(search, [request], terminology)
            self._count(pair, [request.text])
            return found.translation.texts, [(request.text, "", found)]
        parse = functools.partial(_parse, request.text, options.format)
        translated, rows = await self._translate_document(
            parse, request, pair, search, terminology, options.n_best
        )
        return list(dict.fromkeys(one.text for one in translated)), rows

    async def _translate_document(
        self, parse, request, pair, search, terminology, n_best=1
    ):
        """The `documents.Translated`s, best first; each sentence's `Found`."""

        async def find(texts):
            requests = _of_texts(request, texts)
            return await self._search(search, requests, terminology)

        parse = functools.partial(
            parse, pair.source, pair.target, pair.translator.fits
        )
        document = await _in_thread(parse)
        sentences, before = document.sentences, document.texts_before()
        found = await find(sentences)
        most = max((len(of.translation.texts) for of in found), default=1)
        translated = []
        for rank in range(min(n_best, most)):
            if rank:  # a new one, of which no placeholder is hidden
                document = await _in_thread(parse)
            work = documents.stages(document)
            stage, now = next(work), found
            while isinstance(stage, documents.Stage):
                if stage.kind == "align":
                    results = await self._align(search, request, stage.items)
                else:
                    results = _texts(now or await find(stage.items), rank)
                    now = None
                stage = await _in_thread(work.send, results)
            translated.append(stage)
        self._count(pair, sentences)
        return translated, list(zip(sentences, before, found, strict=True))

    async def _search(self, search, requests, terminology):
        """The `Found`s of sentences, which are prepared some at a time."""
        found: list[Found] = []
        sizes = [PREPARED_SENTENCE + len(r.text) for r in requests]
        for part in _batches(sizes, PREPARED):
            prepared = await _in_thread(
                _prepare, search.model.translator, requests[part], terminology
            )
            found += await self._run(search, *prepared)
        return found

    async def _align(self, search, request, pairs):
        """The `SpanLink`s of pairs of a sentence and its translation."""
        sizes = [1 + len(source) // 4 for source, _ in pairs]
        items = [
            (Request(source, direction=request.direction), target)
            for source, target in pairs
        ]
        align = AlignSpans(search.model, search.adapter)
        return await self._run(align, items, sizes)

    def _count(self, pair, sentences):
        """Counts characters that are translated."""
        of_pair = self.metrics.characters.labels(pair.source, pair.target)
        of_pair.inc(sum(map(len, sentences)))

    def _check_adapter(self, adapter):
        """Raises HTTPException if there is no adapter with a name."""
        names = [name for name, _ in self.options.adapters]
        if adapter not in ("", *names):
            raise HTTPException(
                400,
                f"adapter must be of: {', '.join(names) or 'there are none'}."
                f" Received: adapter={adapter!r}",
            )

    async def draw_attention(
        self, pair: Pair, text: str, translation: str, adapter: str
    ) -> str:
        """The page of attention for a text and its translation."""
        self._check_adapter(adapter)
        translator = pair.translator
        if not assemble.runs_keras(translator.engine):
            raise HTTPException(
                400, f"engine={translator.engine} has no maps of attention"
            )
        for name, value in (("text", text), ("translation", translation)):
            if not value.strip():
                raise HTTPException(400, f"{name} must have a word")
        source = Request(text, direction=pair.direction)
        [row] = encode_pairs([(source, translation)], translator.encoding)
        for note in row.notes:
            raise HTTPException(
                400,
                f"expected texts that fit into the model. Received: one {note}",
            )
        [page] = await self._run(
            DrawAttention(pair, adapter),
            [(text, translation)],
            [len(row.target_ids)],
        )
        return page

    async def _run(self, work, items, sizes):
        """The results of items, which may be none.

        They go into the queue by batches, one after the other: a file must not
        fill it. Only the first of a request is refused, the others wait.
        """
        results: list = []
        turn = _turn.get(_Turn())
        for part in _batches(sizes, self.options.max_batch_tokens):
            while True:
                try:
                    future = self.batcher.submit(work, items[part], sizes[part])
                    turn.is_accepted = True
                    break
                except QueueFullError as error:
                    if not turn.is_accepted:
                        raise _try_again(
                            429,
                            "the server has too much work",
                            error.retry_after,
                        ) from error
                    await asyncio.sleep(1)
            results += await asyncio.wrap_future(future)
        return results


def _check_codes(*codes):
    """Raises HTTPException if a code is too long to be a language's."""
    longest = max(map(len, codes))
    if longest > LONGEST_CODE:
        raise HTTPException(
            400,
            f"language codes must have at most {LONGEST_CODE} characters."
            f" Received: {longest}",
        )


def _try_again(status, message, seconds):
    """The error of a request that may succeed later."""
    return HTTPException(status, message, {"Retry-After": str(seconds)})


def _batches(sizes, most):
    """Yields the slices of items whose sizes make a batch."""
    begin = total = 0
    for end, size in enumerate(sizes):
        if total and total + size > most:
            yield slice(begin, end)
            begin, total = end, 0
        total += size
    if sizes:
        yield slice(begin, len(sizes))


async def _in_thread(work, *arguments):
    """The result of work in a thread, where each request has one at most.

    So a request waits for others, but not for all of their texts.
    """
    loop = asyncio.get_running_loop()
    async with _turn.get(_Turn()):
        return await loop.run_in_executor(None, work, *arguments)


def _of_texts(request, texts):
    return [dataclasses.replace(request, text=text) for text in texts]


@functools.lru_cache(64)  # the texts of a request have the same terms
def _count_tokens(translator, forms, direction):
    """The tokens of a term's forms; ValueError as `check_forms`."""
    return translator.check_forms(forms, direction)


def _prepare(translator, requests, terminology):
    """The requests with their terms, and their sizes in tokens."""
    requests = list(map(terminology.of, requests))
    with bad_values():
        for request in requests:
            translator.check_request(request)
            tokens = sum(
                _count_tokens(translator, forms, request.direction)
                for forms in request.terms
            )
            if tokens > MOST_TERM_TOKENS:
                raise ValueError(
                    "the translations of a sentence's terms must have at most"
                    f" {MOST_TERM_TOKENS} tokens. Received: {tokens} tokens"
                )
    ids = translator.tokenizer.source.to_ids([r.text for r in requests])
    return requests, list(map(len, ids))


def _parse(text, format, source, target, fits):
    """The document that a text is, of two languages and what `fits`."""
    with bad_values():
        return documents.parse(text, format, source, fits, target=target)


def _texts(found, rank):
    """The hypothesis of a rank of each sentence, or its last one."""
    return [
        of.translation.texts[min(rank, len(of.translation.texts) - 1)]
        for of in found
    ]
