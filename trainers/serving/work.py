"""The work that the model does for a request, and how it gets to the model."""

import asyncio
import dataclasses
import functools
import itertools
import math
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from starlette.exceptions import HTTPException

from keras_transformer import documents
from keras_transformer.base.refusals import expect
from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.alignment import SpanLink
from keras_transformer.translation.requests import (
    Request,
    Terminology,
    text_tokenizer,
)
from trainers.serving.batcher import Batcher, QueueFullError
from trainers.serving.pairs import Model, Pair
from trainers.serving.requests import bad_values

if typing.TYPE_CHECKING:
    from keras_transformer.translation.results import (
        PairReading,
        Translation,
    )
    from keras_transformer.translator import Translator

# Characters that a thread prepares at once, since it cannot be stopped; and how
# many characters take as long as the other work on a sentence.
PREPARED, PREPARED_SENTENCE = 100_000, 50
MOST_TERM_TOKENS = 512  # per sentence


class Answer(typing.NamedTuple):
    """The model's answer to a sentence.

    Attributes:
        translation: The hypotheses, best first.
        details: For each hypothesis, if wanted: "tokens" without EOS and
            "words" split at white space, each with "text" and "probability";
            and "alignment", the links of source and target words, from 0. Of a
            calibrated model, the first also has "confidence".
    """

    translation: "Translation"
    details: list[dict[str, typing.Any]]


@dataclasses.dataclass(frozen=True)
class SearchWork:
    """Work for the batcher: `Answer`s to `Request`s, each with a direction."""

    model: Model
    decoding: DecodingConfig
    # Whether to return all hypotheses, or only the best. Each number between
    # would need a program of its own.
    everything: bool = False
    details: bool = False
    adapter: str = ""  # its name

    @property
    def cost(self) -> float:
        """The cost of a token, compared with the server's own search.

        Details read each hypothesis once more.
        """
        own = self.model.translator.decoding.num_hypotheses
        rows = self.decoding.num_hypotheses
        read = rows if self.everything else 1
        return (rows + self.details * read) / own

    def __call__(self, items: Sequence[Request]) -> list[Answer]:
        """Translates sentences; see `trainers.serving.batcher.Work`."""
        self.model.use(self.adapter)
        translator = self.model.translator_for(self.decoding)
        is_assessed = self.details and not self.adapter
        is_assessed &= not self.decoding.sampling
        assessor = self.model.assessor if is_assessed else None
        # An assessor compares hypotheses.
        every = self.everything or assessor is not None
        found = translator.search(
            items, num_best=self.decoding.num_hypotheses if every else 1
        )
        shown = found if self.everything else [one.best for one in found]
        if not self.details:
            return [Answer(translation, []) for translation in shown]
        pairs = [
            (request.as_source, text)
            for request, translation in zip(items, shown, strict=True)
            for text in translation.texts
        ]
        read = zip(pairs, translator.read(pairs), strict=True)
        hypotheses = [[*itertools.islice(read, len(t.texts))] for t in shown]
        answers = [
            Answer(translation, [*_details(translator, own)])
            for translation, own in zip(shown, hypotheses, strict=True)
        ]
        if assessor:
            best = [own[0][1] for own in hypotheses]
            for answer, one in zip(
                answers, assessor.assess(items, found, best), strict=True
            ):
                answer.details[0]["confidence"] = {
                    "probability": one.probability,
                    "reasons": one.reasons,
                    "words": one.words,
                }
        return answers


class AlignSpans(typing.NamedTuple):
    """Work for the batcher: `Request`s and translations -> `SpanLink`s."""

    model: Model
    adapter: str

    def __call__(self, items: Sequence[tuple[Request, str]]) -> list:
        """Aligns words of pairs; see `Translator.align_spans`."""
        self.model.use(self.adapter)
        return self.model.translator.align_spans(items)


class DrawAttention(typing.NamedTuple):
    """Work for the batcher: texts and translations -> pages of attention."""

    pair: Pair
    adapter: str

    def __call__(self, items: Sequence[tuple[str, str]]) -> list[str]:
        """Makes an HTML page for each item; see `attention_figure`."""
        self.pair.model.use(self.adapter)
        figures = load("keras_transformer.figures.attention")
        languages = self.pair.source, self.pair.target
        return [
            figures.attention_figure(
                self.pair.translator, *item, languages
            ).html()
            for item in items
        ]


def _details(
    translator: "Translator",
    read: Iterable[tuple[tuple[Request, str], "PairReading"]],
) -> Iterator[dict[str, typing.Any]]:
    """Yields the details of each pair of a sentence and its translation."""
    for (request, text), reading in read:
        both = text_tokenizer(translator.tokenizer, request.direction)
        [tokens] = both.target.tokens([text])
        yield {
            "tokens": _probable(
                [t.text for t in tokens], reading.score.log_probs
            ),
            "words": _probable(text.split(), reading.word_log_probs),
            "alignment": reading.alignment.links,
        }


def _probable(texts, log_probs):
    return [
        {"text": text, "probability": math.exp(log_prob)}
        for text, log_prob in zip(texts, log_probs, strict=False)
    ]


class Plan(typing.NamedTuple):
    """How the sentences of a text are translated."""

    pair: Pair
    work: SearchWork
    terminology: Terminology
    seed: int
    request: Request = Request("")  # the text, and fields of its sentences


class Worker:
    """Does the work of one request, a part at a time.

    A request uses one thread at a time, so that others need not wait for all of
    its texts. It queues one batch at a time, so that a file does not fill the
    queue.
    """

    def __init__(self, batcher: Batcher, max_batch_tokens: int):
        self._batcher, self._max_batch_tokens = batcher, max_batch_tokens
        self._turn = asyncio.Semaphore()
        self._is_accepted = False  # whether any work has been in the queue

    async def in_thread(
        self, work: Callable[..., typing.Any], *arguments: typing.Any
    ) -> typing.Any:
        """Calls a function in a thread, after earlier calls have ended."""
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(
                None, work, *arguments
            )

    async def run(
        self, work: typing.Any, items: Sequence, sizes: Sequence[int]
    ) -> list:
        """Does a `Work` on items, if there are any, and returns the results.

        If the queue is full, the first items of a request raise HTTPException
        with status 429. Later items wait.
        """
        results: list = []
        for part in _batches(sizes, self._max_batch_tokens):
            while True:
                try:
                    future = self._batcher.submit(
                        work, items[part], sizes[part]
                    )
                    break
                except QueueFullError as error:
                    if not self._is_accepted:
                        raise try_again(
                            429,
                            "the server has too much work",
                            error.retry_after,
                        ) from error
                    await asyncio.sleep(1)
            self._is_accepted = True
            results += await asyncio.wrap_future(future)
        return results

    async def search(self, plan: Plan, texts: Sequence[str]) -> list[Answer]:
        """Prepares some sentences at a time, and translates them."""
        answers: list[Answer] = []
        sizes = [PREPARED_SENTENCE + len(text) for text in texts]
        for part in _batches(sizes, PREPARED):
            prepared = await self.in_thread(_prepare, plan, texts[part])
            answers += await self.run(plan.work, *prepared)
        return answers

    async def align(
        self, plan: Plan, pairs: Sequence[tuple[str, str]]
    ) -> list[list[SpanLink]]:
        """Aligns sentences with their translations."""
        sizes = [1 + len(source) // 4 for source, _ in pairs]
        items = [
            (Request(source, direction=plan.pair.direction), target)
            for source, target in pairs
        ]
        align = AlignSpans(plan.pair.model, plan.work.adapter)
        return await self.run(align, items, sizes)

    async def finish(
        self,
        plan: Plan,
        advance: Callable[[list], Awaitable[typing.Any]],
        answers: Sequence[Answer],
        rank: int = 0,
    ) -> documents.Translated:
        """Does the stages of a document after the search of its sentences.

        `advance` takes the results of a stage, and returns the next stage or
        the translated document. `answers` are those of the search. `rank`
        selects the hypothesis of each sentence, or else the last one.
        """
        results = _hypotheses(answers, rank)
        while isinstance(stage := await advance(results), documents.Stage):
            if stage.kind == "align":
                results = await self.align(plan, stage.items)
            else:
                found = await self.search(plan, stage.items)
                results = _hypotheses(found, rank)
        return stage


def try_again(status: int, message: str, seconds: int) -> HTTPException:
    """Makes the error of a request that may succeed later."""
    return HTTPException(status, message, {"Retry-After": str(seconds)})


def _batches(sizes, most):
    """Yields slices with sizes that sum to at most `most`, or of one item."""
    begin = total = 0
    for end, size in enumerate(sizes):
        if total and total + size > most:
            yield slice(begin, end)
            begin, total = end, 0
        total += size
    if sizes:
        yield slice(begin, len(sizes))


@functools.lru_cache(64)  # the texts of a request have the same terms
def _count_tokens(translator, forms, direction):
    """Counts the tokens of a term's forms, as `Translator.check_forms` does."""
    return translator.check_forms(forms, direction)


def _prepare(plan, texts):
    """Makes the requests of sentences, and the cost of each.

    Raises BadRequest if a request or its terms are wrong.
    """
    translator = plan.pair.model.translator
    shared = dataclasses.replace(
        plan.request, seed=plan.seed, direction=plan.pair.direction
    )
    requests = [
        plan.terminology.of(dataclasses.replace(shared, text=text))
        for text in texts
    ]
    with bad_values():
        for request in requests:
            translator.check(request)
            tokens = sum(
                _count_tokens(translator, forms, request.direction)
                for forms in request.terms
            )
            expect(
                tokens <= MOST_TERM_TOKENS,
                "translations of a sentence's terms with at most"
                f" {MOST_TERM_TOKENS} tokens",
                tokens,
            )
    ids = translator.tokenizer.source.to_ids([r.text for r in requests])
    return requests, [math.ceil(len(one) * plan.work.cost) for one in ids]


def _hypotheses(answers, rank):
    """Returns each answer's hypothesis of a rank, or else its last one."""
    texts = [answer.translation.texts for answer in answers]
    return [of[min(rank, len(of) - 1)] for of in texts]
