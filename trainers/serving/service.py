"""Translation, detection and pictures of attention, for all APIs."""

import asyncio
import contextlib
import dataclasses
import functools
import gc
import itertools
import pathlib
import secrets
import typing
from collections.abc import Iterator, Mapping, Sequence

import regex
import tqdm
from starlette.exceptions import HTTPException

from keras_transformer import documents
from keras_transformer.base.refusals import expect
from keras_transformer.config import changed_search
from keras_transformer.data.languages import shortened
from keras_transformer.documents.tables import Columns
from keras_transformer.translation.glossary import Glossary
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Request,
    Sentences,
    Terminology,
    encode_pairs,
    make_requests,
)
from trainers.serving.batcher import Batcher
from trainers.serving.downloads import Downloads
from trainers.serving.languages import Detector, choose_pair, is_same
from trainers.serving.metrics import Metrics
from trainers.serving.options import Limits, ServeOptions
from trainers.serving.pairs import Pair
from trainers.serving.reading import Readers
from trainers.serving.requests import (
    AUTO,
    BadRequest,
    TranslationRequest,
    bad_values,
    check,
    read_keys,
)
from trainers.serving.work import (
    Answer,
    DrawAttention,
    Plan,
    SearchWork,
    Worker,
    try_again,
)

LONGEST_CODE = 35  # characters of a language code (RFC 5646)
NAME = regex.compile(r"\P{L}*+\p{Lu}")  # or the first word of a sentence
SURE = 90  # percent confidence that a text is in the target language
RETRY_START = 10  # seconds after which a client retries during warm-up


class TranslatedText(typing.NamedTuple):
    """A translated text.

    Attributes:
        source: The language code of the source.
        confidence: From 0 to 100, or None if the language was given.
        texts: The whole text's translations, best first: the n-th has the n-th
            hypothesis of each sentence, or its last one.
        sentences: Each sentence, the text before it, and its `Answer`.
    """

    source: str
    confidence: float | None
    texts: list[str]
    sentences: list[tuple[str, str, Answer]]

    @property
    def notes(self) -> list[str]:
        """The notes on truncated sentences."""
        return _notes(answer for *_, answer in self.sentences)


def read_glossaries(path: str | None, tell: bool = True) -> dict[str, Glossary]:
    """Reads the glossaries of a directory, by name.

    `tell` is that of `Glossary.parse`.

    Raises:
        ValueError, OSError: As `Glossary.read`, or ValueError if there are no
            glossaries or two share a name.
    """
    if path is None:
        return {}
    found: dict[str, Glossary] = {}
    for file in sorted(pathlib.Path(path).iterdir()):
        if file.suffix in (".tsv", ".csv"):
            expect(
                file.stem not in found,
                "one glossary of each name",
                f"{file.stem}.csv and {file.name}",
            )
            found[file.stem] = Glossary.read(file, tell=tell)
    expect(found, "files NAME.tsv", f"glossaries={path!r}")
    return found


class Service:
    """Translates for many clients.

    Attributes:
        cards: The cards of the models, as Markdown.
        glossaries: The glossaries, by name.
        keys: The digests of the API keys, see `read_keys`.
        downloads: The translated files.
        is_ready: Whether it has warmed up.
        failure: What the warm-up raised, or None.
    """

    def __init__(
        self, pairs: Sequence[Pair], options: ServeOptions, limits: Limits
    ):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.models = list(dict.fromkeys(pair.model for pair in pairs))
        self.cards = [card for model in self.models for card in model.cards]
        self.options, self.limits = options, limits
        self.read_files()
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

    def read_files(self) -> None:
        """Reads keys, then glossaries; the old ones stay if a file is wrong."""
        self.keys = read_keys(self.options.api_keys)
        found = read_glossaries(self.options.glossaries)
        for glossary in found.values():
            glossary.find("")  # makes its index before a request does
        self.glossaries = found

    def warm_up(self) -> Iterator[str]:
        """Makes the programs of all models, and yields what there is to tell.

        The service is ready when the programs of usual requests are made. The
        others are made when no request has come for a while. On a terminal a
        bar counts them.
        """
        kinds = zip(
            *(model.warm_up_steps() for model in self.models), strict=True
        )
        usual, late, compiled = (
            list(itertools.chain(*steps)) for steps in kinds
        )
        steps = [*usual, *late, *compiled]
        rest = len(steps) - len(usual)
        yield f"programs: {len(usual)}, then {rest} for long texts and speed"
        results = []
        bar = tqdm.tqdm(steps, "programs", disable=None)
        for number, make in enumerate(bar, 1):
            results.append(self.batcher.when_idle(make).result())
            if number >= len(usual):
                gc.freeze()  # collecting graphs stops all threads for 0.5 s
            if number == len(usual):
                self.is_ready = True
                self.batcher.rest()  # clients have waited for this
                bar.clear()
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
        """Refuses new work, ends the readers, and removes all files."""
        self.batcher.close()
        self._readers.close()
        self.downloads.close()

    def check_ready(self) -> None:
        """Raises HTTPException with status 503 until the server is ready."""
        if not self.is_ready:
            raise try_again(503, "the server is starting", RETRY_START)

    def find_pair(
        self, source: str, target: str, is_detected: bool | None = None
    ) -> Pair:
        """Finds the pair of two languages. Raises BadRequest if there is none.

        The source may also be the target, see `Pair.is_same`, if `is_detected`
        is not None. If it is False, both must be the same code.
        """
        _check_codes(source, target)
        codes = choose_pair(source, target, self.pairs)
        if codes is not None:
            return self.pairs[codes]
        if is_detected is not None and is_same(source, target, not is_detected):
            for pair in self.pairs.values():
                for code in (pair.target, pair.source):
                    if is_same(target, code):
                        return dataclasses.replace(
                            pair, source=code, target=code
                        )
        loaded = shortened(["-".join(codes) for codes in self.pairs])
        raise BadRequest(
            f"expected one of the language pairs {loaded}. Received:"
            f" source={source!r}, target={target!r}"
        )

    def _detect(self, text, source, target):
        """Returns a text's language and a confidence, None if it is given."""
        if source.lower() != AUTO:
            return source, None
        _check_codes(target)  # before they are cached
        ranked = self.detector.rank(text)
        usable = (
            (code, confidence)
            for code, confidence in ranked
            if self._has_pair(code, target)
            # A word such as "two" may look like any language.
            and (
                not is_same(code, target)
                or (confidence >= SURE and self._is_sure(text, code))
            )
        )
        return next(usable, ranked[0])

    def _is_sure(self, text, code):
        """Tells whether a text is in a language without its names, too."""
        words = (w for w in text.split() if not NAME.match(w))
        ranked = self.detector.rank(" ".join(words))
        return dict(ranked).get(code, 0) >= SURE

    def _is_usable(self, source, target):
        """Tells whether there is a pair with a detected source."""
        with contextlib.suppress(HTTPException):
            return bool(self.find_pair(source, target, is_detected=True))
        return False

    @property
    def max_n_best(self) -> int:
        """The most translations of a text that a request may ask for."""
        return self.limits.max_alternatives + 1

    def max_beam_size(self, pair: Pair) -> int:
        """Returns the limit of the beam size, or the pair's own if larger."""
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
    ) -> list[TranslatedText]:
        """Translates texts. A `Request`'s sentences share its other fields.

        `search` has fields of `DecodingConfig` that override the server's.
        `terminology` applies to each sentence. With `may_be_fewer`, `n_best`
        may be more than a search finds. Raises HTTPException.
        """
        worker = self._make_worker()
        seed = options.seed
        if seed is None:
            seed = secrets.randbits(32)
        requests = make_requests(texts)
        languages = [
            self._detect(request.text, options.source, options.target)
            for request in requests
        ]
        plans = {}
        for code, share in dict(languages).items():
            pair = self.find_pair(code, options.target, share is not None)
            work = self._make_work(pair, options, search or {}, may_be_fewer)
            with bad_values():
                terminology.check(work.decoding)
            plans[code] = Plan(pair, work, terminology, seed)
        text_plans = [
            plans[code]._replace(request=request)
            for request, (code, _) in zip(requests, languages, strict=True)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        self._translate_text(worker, plan, options)
                    )
                    for plan in text_plans
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [
            TranslatedText(code, share, *task.result())
            for (code, share), task in zip(languages, tasks, strict=True)
        ]

    async def _translate_text(
        self, worker: Worker, plan: Plan, options: TranslationRequest
    ) -> tuple[list[str], list[tuple[str, str, Answer]]]:
        """Returns the `texts` and `sentences` of a `TranslatedText`."""
        text, pair = plan.request.text, plan.pair
        if pair.is_same:
            return [text], []
        if not options.split:
            [answer] = await worker.search(plan, [text])
            self._count(pair, [text])
            return answer.translation.texts, [(text, "", answer)]
        document = await worker.in_thread(_parse, text, options.format, pair)
        sentences, before = document.sentences, document.texts_before()
        answers = await worker.search(plan, sentences)
        most = max((len(a.translation.texts) for a in answers), default=1)
        translations = []
        for rank in range(min(options.n_best, most)):
            stages = documents.stages(document)
            next(stages)  # the search
            advance = functools.partial(worker.in_thread, stages.send)
            translated = await worker.finish(plan, advance, answers, rank)
            translations.append(translated.text)
        self._count(pair, sentences)
        rows = zip(sentences, before, answers, strict=True)
        return list(dict.fromkeys(translations)), list(rows)

    async def translate_file(
        self,
        name: str,
        file: typing.BinaryIO,
        source: str,
        target: str,
        terminology: Terminology,
        adapter: str = "",
        client: str = "",
        columns: Columns = (),
    ) -> tuple[str, list[str]]:
        """Translates a file. Returns its key in `downloads`, and notes.

        The format follows from the file's name. `source` may be `AUTO`.
        `columns` are as in `documents.parse`. Files of each `client` are read
        in turns. The notes are about truncated sentences, and texts that were
        not translated.
        """
        worker = self._make_worker()
        self._check_adapter(adapter)
        read: typing.Any = functools.partial(
            self._readers.advance, client, file, name, columns=columns
        )
        share = None
        if source.lower() == AUTO:
            stage, _ = await read(("en", ""), bool, [])
            text = "\n".join(stage.items)[: self.limits.max_characters]
            source, share = self._detect(text, AUTO, target)
        pair = self.find_pair(source, target, share is not None)
        decoding = pair.model.translator.decoding
        with bad_values():
            terminology.check(decoding)
        path = pathlib.PurePath(name)
        output = f"{path.stem}_{pair.target}{path.suffix}"
        if pair.is_same:
            file.seek(0)
            data = await worker.in_thread(file.read)
            key = await self.downloads.add(output, data)
            return key, [f"the file is in {pair.target} already"]
        results: list[list] = []
        left = ""

        async def advance(*result: list) -> typing.Any:
            nonlocal left
            results.extend(result)
            languages = pair.source, pair.target
            stage, left = await read(languages, pair.translator.fits, results)
            return stage

        work = SearchWork(pair.model, decoding, adapter=adapter)
        plan = Plan(pair, work, terminology, secrets.randbits(32))
        sentences = (await advance()).items
        answers = await worker.search(plan, sentences)
        translated = await worker.finish(plan, advance, answers)
        self._count(pair, sentences)
        key = await self.downloads.add(output, translated.data)
        return key, [*_notes(answers), *filter(None, [left])]

    async def draw_attention(
        self, pair: Pair, text: str, translation: str, adapter: str
    ) -> str:
        """Returns an HTML page with the attention of a text and a translation.

        Raises BadRequest if a text is blank, or does not fit into the model.
        """
        self._check_adapter(adapter)
        translator = pair.translator
        with bad_values():
            translator.check_use("attention_figure")
        for name, value in (("text", text), ("translation", translation)):
            check(value.strip(), f"a word in {name}")
        source = Request(text, direction=pair.direction)
        [row] = encode_pairs([(source, translation)], translator.encoding)
        for note in row.notes:
            raise BadRequest(
                f"expected texts that fit into the model. Received: one {note}"
            )
        [page] = await self._make_worker().run(
            DrawAttention(pair, adapter),
            [(text, translation)],
            [len(row.target_ids)],
        )
        return page

    def _make_worker(self):
        return Worker(self.batcher, self.options.max_batch_tokens)

    def _make_work(self, pair, options, search, may_be_fewer):
        """Makes the search of a request. Raises BadRequest above a limit."""

        with bad_values():
            before = pair.model.translator
            decoding = changed_search(before.decoding, search)
            before.check(decoding)
            decoding.check_seed(options.seed)
        self._check_adapter(options.adapter)
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
            check(value <= limit, f"{name} of at most {limit}", value)
        return SearchWork(
            pair.model,
            decoding,
            everything=n_best > 1,
            details=options.details,
            adapter=options.adapter,
        )

    def _count(self, pair, sentences):
        of_pair = self.metrics.characters.labels(pair.source, pair.target)
        of_pair.inc(sum(map(len, sentences)))

    def _check_adapter(self, adapter):
        names = [name for name, _ in self.options.adapters]
        known = ", ".join(names) or "there are none"
        check(adapter in ("", *names), f"adapter of: {known}", adapter=adapter)


def _check_codes(*codes):
    longest = max(map(len, codes))
    check(
        longest <= LONGEST_CODE,
        f"language codes of at most {LONGEST_CODE} characters",
        longest,
    )


def _parse(text, format, pair):
    with bad_values():
        return documents.parse(
            text, format, pair.source, pair.translator.fits, target=pair.target
        )


def _notes(answers):
    return [note for one in answers for note in one.translation.notes]
