"""The server: batches, HTTP, LibreTranslate's API, limits, start and end."""

import asyncio
import collections
import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import pathlib
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import types
import urllib.error
import urllib.request
from http.client import BadStatusLine, HTTPResponse
from unittest import mock

import commands
import exports
import hostile_requests
import httpx
import numpy as np
import pytest
from hostile_requests import http
from later import later
from starlette.responses import StreamingResponse

import keras_transformer as kt
from keras_transformer import documents
from keras_transformer.commands.flags import RunError
from keras_transformer.confidence.assessment import Assessor
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.decoding import UNCONSTRAINED, UNFINISHED
from keras_transformer.figures import attention
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation import glossary
from keras_transformer.translation.batched import BatchedSearch
from keras_transformer.translation.requests import (
    NO_TERMINOLOGY,
    Encoding,
    Request,
    Row,
    make_requests,
)
from keras_transformer.translation.results import (
    Alignment,
    PairReading,
    PairScore,
    Translation,
)
from keras_transformer.translation.search import Step
from trainers import serve
from trainers.run.data_config import DataConfig
from trainers.serving import app, languages, pairs, requests, server, spec
from trainers.serving import service as services
from trainers.serving import work as works
from trainers.serving.batcher import Batcher, QueueFullError
from trainers.serving.options import Limits, ServeOptions
from trainers.serving.service import Service
from trainers.serving.work import Plan, SearchWork

# ---- Batches -----------------------------------------------------------------


MINUTES = 600  # seconds, on a machine that is busy with other work


class Work:
    """Work that records its batches, and waits for `may_run`."""

    def __init__(self):
        self.batches = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.runs = threading.Semaphore(0)  # released when a batch begins

    def run(self, items):
        self.batches.append(items)
        self.runs.release()
        assert self.may_run.wait(MINUTES)
        if "bad" in items:
            raise ValueError("no such item")
        return [f"{item}!" for item in items]


class Stepped(Work):
    """Work whose batches each end with a step of the test."""

    def __init__(self):
        super().__init__()
        self.step = threading.Semaphore(0)

    def run(self, items):
        found = super().run(items)
        assert self.step.acquire(timeout=MINUTES)
        return found


@pytest.fixture
def make_batcher():
    """A function that makes batchers, which end with the test."""
    made = []

    def make(max_batch_tokens=4, max_wait=0.0, max_queue_tokens=1000, **others):
        made.append(
            Batcher(max_batch_tokens, max_wait, max_queue_tokens, **others)
        )
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()
        batcher.join()


@contextlib.contextmanager
def busy(batcher):
    """Keeps the model's thread busy while the block runs."""
    work = Work()
    work.may_run.clear()
    batcher.submit(work.run, ["x"], [1])
    work.runs.acquire()
    yield
    work.may_run.set()


def submit(batcher, work, *items, size=1):
    return batcher.submit(work.run, items, [size] * len(items))


def test_equal_work_shares_batches_in_order(make_batcher):
    batcher, one, other = make_batcher(), Work(), Work()
    works = zip([one, other, one, other, one], "abcde", strict=True)
    with busy(batcher):
        futures = [submit(batcher, work, item) for work, item in works]
    assert [f.result(MINUTES) for f in futures] == [[f"{i}!"] for i in "abcde"]
    assert one.batches == [["a", "c", "e"]] and other.batches == [["b", "d"]]


def test_a_batch_that_is_full_ends_there(make_batcher):
    batcher, work = make_batcher(max_batch_tokens=4), Work()
    with busy(batcher):
        first = submit(batcher, work, "a", "b", "c")
        second = submit(batcher, work, "d", "e", "f")
        third = batcher.submit(work.run, ["g", "h"], [9, 1])
    assert first.result(MINUTES) == ["a!", "b!", "c!"]
    assert second.result(MINUTES) == ["d!", "e!", "f!"]
    assert third.result(MINUTES) == ["g!", "h!"]
    # Each job in turn. An item larger than a batch has one of its own.
    assert work.batches == [["a", "d"], ["g"], ["b", "e", "c", "f"], ["h"]]


@pytest.mark.parametrize("is_same_work", [True, False])
@pytest.mark.parametrize("number", [1, 7])
def test_a_short_job_waits_for_one_batch(make_batcher, number, is_same_work):
    """Behind long jobs, of which each would take many batches."""
    batcher, long, short = make_batcher(max_batch_tokens=8), Stepped(), Work()
    futures = [submit(batcher, long, *"abcdefgh" * 4) for _ in range(number)]
    for _ in range(3 * number):
        long.runs.acquire()
        work = long if is_same_work else short
        found = submit(batcher, work, "short")
        long.step.release()
        if not is_same_work:
            assert found.result(MINUTES) == ["short!"]
            continue
        long.runs.acquire()
        assert "short" in long.batches[-1] and len(long.batches[-1]) == 8
        long.runs.release()
    assert not any(future.done() for future in futures)
    long.step.release(100)
    assert all(
        f.result(MINUTES) == [f"{i}!" for i in "abcdefgh"] * 4 for f in futures
    )


def test_a_long_job_goes_on_whatever_comes(make_batcher):
    """Short jobs alone could fill every batch."""
    batcher = make_batcher(max_batch_tokens=8)

    class Endless(Work):
        left = 9

        def run(self, items):
            self.left -= items.count("l")
            for _ in range(8 if self.left else 0):
                submit(batcher, self, "s")
            return super().run(items)

    work = Endless()
    with busy(batcher):
        for _ in range(8):
            submit(batcher, work, "s")
        long = submit(batcher, work, *"l" * 9)
    assert long.result(MINUTES) == ["l!"] * 9
    # An eighth of the speed: the last has the turn of the 64th token.
    done = "".join(itertools.chain(*work.batches))
    assert 64 <= done.rindex("l") < 64 + 3 * 8


def test_other_work_is_done_when_no_job_has_come_for_a_while(
    make_batcher, monkeypatch
):
    idle_seconds = "trainers.serving.batcher.IDLE_SECONDS"
    monkeypatch.setattr(idle_seconds, 0.0)
    batcher, work, order = make_batcher(), Work(), []
    batcher.when_idle(lambda: None).result(MINUTES)
    monkeypatch.setattr(idle_seconds, 1000.0)
    with busy(batcher):
        idle = [batcher.when_idle(lambda i=i: order.append(i)) for i in "xy"]
        first = submit(batcher, work, "a")
        first.add_done_callback(lambda _: order.append("a"))
    begin = time.monotonic()
    assert first.result(MINUTES) and not any(future.done() for future in idle)
    second = submit(batcher, work, "b")  # a client that has its answer
    second.add_done_callback(lambda _: order.append("b"))
    assert second.result(MINUTES)
    monkeypatch.setattr(idle_seconds, 0.3)
    batcher.when_idle(lambda: None)  # it looks at the clock again
    assert idle[1].result(MINUTES) is None and order == ["a", "b", "x", "y"]
    assert time.monotonic() - begin > 0.3
    fail = mock.Mock(side_effect=ValueError("no room"))
    with pytest.raises(ValueError, match="no room"):
        batcher.when_idle(fail).result(MINUTES)
    with busy(batcher):
        never = batcher.when_idle(fail)
        batcher.close()
    assert never.cancelled() and batcher.when_idle(fail).cancelled()


def test_other_work_does_not_wait_for_ever(make_batcher, monkeypatch):
    monkeypatch.setattr("trainers.serving.batcher.IDLE_SECONDS", 1000.0)
    monkeypatch.setattr("trainers.serving.batcher.PATIENCE", 0.3)
    batcher, work = make_batcher(), Work()
    batcher.when_idle(lambda: None).result(MINUTES)
    begin = time.monotonic()
    assert submit(batcher, work, "a").result(MINUTES)
    batcher.when_idle(lambda: None).result(MINUTES)
    assert time.monotonic() - begin > 0.25


def test_a_batch_that_is_full_does_not_wait(make_batcher):
    batcher, work = make_batcher(max_batch_tokens=2, max_wait=1000.0), Work()
    first = submit(batcher, work, "a")
    assert not work.batches
    second = submit(batcher, work, "b")
    assert first.result(MINUTES) == ["a!"] and second.result(MINUTES) == ["b!"]
    assert work.batches == [["a", "b"]]


def test_a_full_queue_refuses_work(make_batcher):
    batcher, work = make_batcher(max_queue_tokens=5), Work()
    with busy(batcher):
        long = submit(batcher, work, "a", size=9)  # it is empty
        with pytest.raises(QueueFullError) as error:
            submit(batcher, work, "b")
        assert error.value.retry_after >= 1
        assert batcher.waiting_tokens == 9
        long.cancel()  # makes room
        short = submit(batcher, work, "c", size=2)
        last = submit(batcher, work, "d", size=3)  # to its last token
        with pytest.raises(QueueFullError):
            submit(batcher, work, "e")
    assert short.result(MINUTES) == ["c!"] and last.result(MINUTES) == ["d!"]
    assert work.batches == [["c"], ["d"]] and batcher.waiting_tokens == 0


def test_a_queue_that_would_take_too_long_refuses_work(
    make_batcher, monkeypatch
):
    """A request that would be dropped unanswered is refused on arrival.

    The first batch takes half a second for each of its 2 tokens. By that, 10
    tokens take 5 seconds, and 11 take longer.
    """
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("trainers.serving.batcher.time", clock)

    class Slow(Work):
        def run(self, items):
            now[0] += 1.0
            return super().run(items)

    batcher = make_batcher(max_batch_tokens=64, max_queue_seconds=5.0)
    assert submit(batcher, Slow(), "a", size=2).result(MINUTES) == ["a!"]
    with busy(batcher):
        submit(batcher, Work(), "b", size=6)
        submit(batcher, Work(), "c", size=4)
        with pytest.raises(QueueFullError) as error:
            submit(batcher, Work(), "d")
    assert error.value.retry_after == 5


def test_cancelled_work_is_dropped(make_batcher):
    batcher, work = make_batcher(max_batch_tokens=2), Work()
    work.may_run.clear()
    running = submit(batcher, work, "a", "b", "c", "d")
    work.runs.acquire()
    waiting = submit(batcher, work, "e")
    assert running.cancel() and waiting.cancel()
    last = submit(batcher, work, "f")
    work.may_run.set()
    assert last.result(MINUTES) == ["f!"]
    assert work.batches == [["a", "b"], ["f"]]


def test_a_job_that_is_cancelled_in_its_last_batch_harms_no_other(make_batcher):
    """Neither does a job that fails there."""
    batcher, work = make_batcher(max_batch_tokens=2), Work()
    work.may_run.clear()
    for items in (["a"], ["bad"]):
        running = submit(batcher, work, *items)
        work.runs.acquire()
        assert running.cancel()
        work.may_run.set()
        assert submit(batcher, Work(), "b").result(MINUTES) == ["b!"]
        work.may_run.clear()


def test_the_wait_of_a_job_is_measured_once(make_batcher):
    seen = []
    batcher = make_batcher(max_batch_tokens=2, observe=seen.append)
    assert submit(batcher, Work(), *"abc").result(MINUTES) == ["a!", "b!", "c!"]
    batcher.close()
    batcher.join()
    measured = [(len(b.waits), b.items, b.tokens) for b in seen]
    assert measured == [(1, 2, 2), (0, 1, 1)]


def test_one_bad_item_fails_its_job_only(make_batcher):
    batcher, work = make_batcher(), Work()
    with busy(batcher):
        one, bad, other = [submit(batcher, work, i) for i in ("a", "bad", "b")]
    assert one.result(MINUTES) == ["a!"] and other.result(MINUTES) == ["b!"]
    with pytest.raises(ValueError, match="no such item"):
        bad.result(MINUTES)


def test_the_rest_of_a_job_that_has_failed_is_dropped(make_batcher):
    batcher, work = make_batcher(max_batch_tokens=2), Work()
    with busy(batcher):
        future = submit(batcher, work, "bad", "a", "b", "c")
        last = submit(batcher, work, "d")
    with pytest.raises(ValueError, match="no such item"):
        future.result(MINUTES)
    assert last.result(MINUTES) == ["d!"]
    assert "c" not in itertools.chain(*work.batches)


def test_a_closed_batcher_finishes_its_work(make_batcher):
    batcher, work = make_batcher(max_wait=1000.0), Work()
    futures = [submit(batcher, work, item) for item in "ab"]
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        submit(batcher, work, "c")
    batcher.join()
    assert [future.result(0) for future in futures] == [["a!"], ["b!"]]


def test_three_times_as_many_requests_as_can_be_done(make_batcher):
    """No answer is lost or wrong, and the queue is bounded."""
    seen, capacity = [], threading.Semaphore(0)

    class Slow(Work):
        def run(self, items):
            for _ in items:
                capacity.acquire()
            return super().run(items)

    batcher = make_batcher(64, max_queue_tokens=300, observe=seen.append)
    works = [Slow(), Slow()]
    accepted, refused, most = [], 0, 0
    for i in range(10_000):
        if i % 3 == 0:
            capacity.release()
        try:
            future = submit(batcher, works[i % 2], i, size=1 + i % 5)
        except QueueFullError:
            refused += 1
        else:
            accepted.append((i, future))
        most = max(most, batcher.waiting_tokens)
    capacity.release(10_000)
    assert all(future.result(MINUTES) == [f"{i}!"] for i, future in accepted)
    batcher.close()
    batcher.join()
    assert len(accepted) + refused == 10_000 and refused > 5000
    assert most <= 300 and batcher.waiting_tokens == 0
    assert sum(len(batch.waits) for batch in seen) == len(accepted)
    assert sum(batch.items for batch in seen) == len(accepted)


# ---- A server of scripted translations ---------------------------------------


class Script:
    """A translator that translates into capitals."""

    engine = "native"
    model = types.SimpleNamespace(dtype="float32")

    def __init__(self):
        self.decoding = kt.DecodingConfig(beam_size=3)
        self.is_faster = True  # with XLA
        self.languages = Languages("en", "de")
        self.direction = Direction()
        self.max_source_length = 100
        self.max_target_length = 100
        self.tokenizer = types.SimpleNamespace(source=self, target=self)
        self.calls = []  # of `search`: decoding, seed, requests, number
        self.made = []  # programs, by number and longest source
        self.may_run = threading.Event()
        self.may_run.set()

    @property
    def encoding(self):
        return Encoding(self.tokenizer, self)

    def is_byte(self, id):
        return False

    def to_ids(self, strings):
        return [[5] * len(string.split()) + [2] for string in strings]

    def tokens(self, strings):
        token = types.SimpleNamespace
        return [
            [token(text=word, word=i) for i, word in enumerate(string.split())]
            for string in strings
        ]

    @property
    def fits(self):  # also in another process
        return re.compile(".{0,999}", re.DOTALL).fullmatch

    def align_spans(self, pairs):
        return [[] for _ in pairs]

    def check(self, record):
        pass

    def has(self, use):
        return True

    def check_use(self, use):
        pass

    def check_forms(self, forms, direction):
        assert direction == Direction()  # the sentence's own
        if "\u00f1" in forms:
            raise ValueError(f"no tokens for {forms}")
        return sum(len(form.split()) for form in forms)

    def with_decoding(self, **changes):
        changed = copy.copy(self)
        changed.decoding = dataclasses.replace(self.decoding, **changes)
        return changed

    def warm_up_steps(self, num_best):
        def make(length):
            assert self.may_run.wait(MINUTES)
            self.made.append((num_best, length))

        return [(n, functools.partial(make, n)) for n in (32, 64, 128)]

    def programs(self, num_best):
        for longest, make in self.warm_up_steps(num_best):
            yield Step(longest, make)
        yield Step(64, lambda: self.made.append("XLA"), is_single=True)
        yield Step(64, lambda: self.is_faster, is_single=True)

    def search(self, requests, num_best):
        seeds = {request.seed for request in requests}
        requests = [
            dataclasses.replace(r, seed=None, direction=None) for r in requests
        ]
        self.calls.append((self.decoding, seeds, requests, num_best))
        assert self.may_run.wait(MINUTES)
        found = []
        for request in requests:
            if request.text == "fail":
                raise FloatingPointError(f"<{request.text}>")
            text = request.prefix + request.text.upper()
            texts = [text + "+" * n for n in range(num_best)]
            notes = ["is long"] if len(request.text) > 500 else []
            scores = [-float(n) for n in range(num_best)]
            found.append(Translation(texts, [], scores, notes))
        return found

    def read(self, pairs):
        return [
            PairReading(
                PairScore([], [-0.5] * (len(text.split()) + 1), []),
                [-0.5] * len(text.split()),
                *(Alignment([(0, 0)], False), []),
            )
            for _, text in pairs
        ]

    def align(self, pairs):
        return [Alignment([(0, 0)], False) for _ in pairs]


def warm_up(service, lines):
    """Warms up, and appends what the command prints."""
    with contextlib.suppress(concurrent.futures.CancelledError):
        lines.extend(service.warm_up())


BOTH = {"source": "en", "target": "de"}


CARDS = ["# A & B\n\n## Scores\n\n| 1 |\n| 2 |\n\n## Notice\n\n<i>\n"]


@contextlib.contextmanager
def running(scripts=None, warm=True, limits=None, idle_seconds=0.0, **options):
    """Runs a server in a thread, and yields it with its client and service.

    If `warm`, it has made all programs. With None, it has made those of usual
    requests. Its first pair has `script`, whose `calls` record the requests.
    """
    scripts = scripts or {("en", "de"): Script()}
    with mock.patch("trainers.serving.batcher.IDLE_SECONDS", idle_seconds):
        options = {"max_wait_ms": 0.0, "request_seconds": MINUTES, **options}
        service = Service(
            [
                pairs.Pair(*key, pairs.Model(script, 2, CARDS), Direction())
                for key, script in scripts.items()
            ],
            ServeOptions(**options),
            Limits(**(limits or {})),
        )
        if warm is False:
            for script in scripts.values():
                script.may_run.clear()
        bound = server.bind("127.0.0.1", 0)
        bound.listen()
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        running_server = server.make_server(service)
        lines = []
        threads = [
            threading.Thread(target=running_server.run, args=([bound],)),
            threading.Thread(target=warm_up, args=(service, lines)),
        ]
        for thread in threads:
            thread.start()
        try:
            with httpx.Client(base_url=url, timeout=MINUTES) as client:
                while warm is not False and client.get("/health").is_error:
                    time.sleep(0.01)
                if warm:
                    threads[1].join()
                yield types.SimpleNamespace(
                    client=client,
                    service=service,
                    server=running_server,
                    url=url,
                    lines=lines,
                    script=next(iter(scripts.values())),
                )
        finally:
            for script in scripts.values():
                script.may_run.set()
            running_server.should_exit = True
            threads[0].join()
            service.close()
            threads[1].join()


@pytest.fixture(scope="module")
def served():
    with running({("en", "de"): Script(), ("fr", "de"): Script()}) as found:
        yield found


def post(served, path, **fields):
    """Sends a JSON request that must succeed. Returns the answer."""
    response = served.client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def translate(served, text, **fields):
    """Returns the answer of the server's own API to a text."""
    [found] = post(served, "/v1/translate", text=text, **fields)["translations"]
    return found


def settings_of(served):
    return served.client.get("/frontend/settings").json()


def error_of(response, status):
    """Returns the error of a refused request."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    [(name, message)] = response.json().items()
    assert name == "error" and "\n" not in message
    return message


def refused(served, status, path, **fields):
    """Sends a JSON request that is refused. Returns the error."""
    content, kind = json.dumps(fields), {"Content-Type": "application/json"}
    response = served.client.post(path, content=content, headers=kind)
    return error_of(response, status)


# ---- LibreTranslate's API ----------------------------------------------------


def test_libretranslate_translates_a_text_and_a_list(served):
    def ask(q, **fields):
        return post(served, "/translate", q=q, **BOTH, **fields)

    text = "One dog. Two dogs!\n\n  A tree."
    assert ask(text) == {"translatedText": text.upper()}
    assert ask(["a", " ", "b"]) == {"translatedText": ["A", " ", "B"]}
    # Clients send more fields than there are.
    two = {"translatedText": "A", "alternatives": ["A+", "A++"]}
    assert ask("a", alternatives=2, secret="x") == two
    assert ask("a", alternatives=3) == two  # more than the beam of 3 has
    assert ask(["a"], alternatives=1) == {
        "translatedText": ["A"],
        "alternatives": [["A+"]],
    }
    assert ask("a " * 300)["notes"] == ["is long"]


def test_a_request_chooses_an_adapter():
    """Both APIs; batches of different adapters are different work."""
    used = []
    with running(adapter=("legal=run",)) as served:
        [pair] = served.service.pairs.values()
        pair.model.switched = types.SimpleNamespace(use=used.append)
        translate(served, "a", adapter="legal", **BOTH)
        post(served, "/translate", q="a", **BOTH)
        html = {"format": "html", "adapter": "legal"}
        post(served, "/translate", q="<b>a</b> b", **html, **BOTH)
        file = {"file": ("a.txt", "A dog.")}
        for name, status in (("legal", 200), ("x", 400)):
            answer = served.client.post(
                "/translate_file", data={"adapter": name, **BOTH}, files=file
            )
            assert answer.status_code == status
        assert settings_of(served)["adapters"] == ["legal"]
        texts = {"text": "a", "translation": "b", "adapter": "other"}
        message = refused(served, 400, "/v1/attention", **texts, **BOTH)
        assert "adapter of: legal. Received: " in message
    # The second of the HTML aligns; the last is the file's.
    assert used == ["legal", "", "legal", "legal", "legal"]


def translated(text, text_format="auto", rank=0, **options):
    """Translates a document by `documents` and a `Script`."""
    script = Script()
    document = documents.parse(
        text, text_format, "en", script.fits, target="de", **options
    )
    return documents.translate(
        document,
        lambda sentences: [
            found.texts[rank]
            for found in script.search(make_requests(sentences), rank + 1)
        ],
        script.align_spans,
    )


@pytest.mark.parametrize(
    ("text_format", "text"),
    [
        ("html", "<p>One <b>red</b> dog.\n%s <i>trees</i>.</p><pre>a</pre>"),
        ("html", "<html lang=en-GB><body>One dog.\n%s trees.</html>"),
        ("markdown", "# One *red* dog\n\n- %s `x` trees. Two\n"),
        ("po", 'msgid "%d ~dogs\\n"\nmsgstr ""\n'),
        ("text", " "),
    ],
)
def test_documents_are_translated_as_by_the_library(served, text_format, text):
    fields = {**BOTH, "format": text_format}
    expected, *others = (
        translated(text, text_format, rank).text for rank in range(3)
    )
    others = [] if others[0] == expected else others  # without a sentence
    assert post(served, "/translate", q=text, alternatives=2, **fields) == {
        "translatedText": expected,
        "alternatives": others,
    }
    assert translate(served, text, **fields)["text"] == expected


def test_the_slowest_text_is_translated_in_time(served):
    """Markdown of as many stars as the limit allows."""
    begin = time.process_time()
    text = "*" * 4990 + "abc" + "*" * 4990
    found = translate(served, text, format="markdown", **BOTH)["text"]
    assert "ABC" in found and found.count("*") == 2 * 4990
    assert time.process_time() - begin < 10


def test_libretranslate_reads_forms(served):
    fields = {"q": "ä b", **BOTH, "alternatives": "1"}
    for request in (
        {"data": fields},
        {"files": {name: (None, value) for name, value in fields.items()}},
        {"params": fields},
    ):
        response = served.client.post("/translate", **request)
        assert response.json() == {
            "translatedText": "Ä B",
            "alternatives": ["Ä B+"],
        }


def test_libretranslate_detects_the_languages_of_the_server(served):
    french = "Le chien court dans la forêt avec les enfants."
    english = "The dog runs through the forest with the children."
    found = post(
        served, "/translate", q=[french, english], source="auto", target="de"
    )
    codes = [d["language"] for d in found["detectedLanguage"]]
    assert codes == ["fr", "en"]
    assert all(50 < d["confidence"] <= 100 for d in found["detectedLanguage"])
    [best, *_] = post(served, "/detect", q=french)
    assert best["language"] == "fr" and best["confidence"] > 50
    assert languages.Detector(["en"]).rank(french) == [("en", 100.0)]


def test_a_request_has_one_thread_at_a_time(served, monkeypatch):
    """Its many texts must not make a short request wait."""
    parse, at_once, most = services._parse, [], []

    def counted(*arguments):
        at_once.append(arguments)
        most.append(len(at_once))
        time.sleep(0.005)  # others would begin now
        document = parse(*arguments)
        at_once.pop()
        return document

    monkeypatch.setattr(services, "_parse", counted)
    fields = {"source": "en", "target": "de"}
    post(served, "/translate", q=["One dog."] * 20, **fields)
    assert most == [1] * 20


def test_a_text_in_the_target_language_stays(served):
    """LibreTranslate does the same. Nothing is computed."""
    german, english = "Das Kind  schläft.\n", "The child is asleep."
    calls = len(served.script.calls)
    fields = {"source": "auto", "target": "DE"}
    found = post(served, "/translate", q=german, alternatives=2, **fields)
    assert (found["translatedText"], found["alternatives"]) == (german, [])
    detected = found["detectedLanguage"]
    assert detected["language"] == "de" and detected["confidence"] > 99
    found = translate(served, german, **fields)
    assert found == {"source": "de", "text": german, "sentences": []}
    assert len(served.script.calls) == calls
    found = post(served, "/translate", q=[german, english], **fields)
    assert found["translatedText"] == [german, english.upper()]
    # A word may look like any language.
    assert translate(served, "two", **fields)["text"] == "TWO"
    for bad in ({"beam_size": 999}, {"adapter": "x"}):
        assert refused(
            served, 400, "/v1/translate", text=german, **fields | bad
        )
    # Names alone say nothing, and English has German names in it.
    for name in ("Siemens", "Der Spiegel reports", "Angela Merkel"):
        assert translate(served, name, **fields)["text"] == name.upper()
    fields |= {"source": "de", "target": "fr"}
    message = refused(served, 400, "/translate", q=german, **fields)
    assert "expected one of the language pairs" in message


@pytest.mark.parametrize("code", ["en", "de", "EN", "eng"])
def test_source_and_target_may_be_the_same(served, code):
    """LibreTranslate does the same; its health check asks for that."""
    calls = len(served.script.calls)
    fields = {"source": code.lower(), "target": code}
    text = "<p>Hello  &amp; goodbye.</p>"
    for format in documents.TEXT_FORMATS:
        for q in (text, [text, "Hello."]):
            found = post(served, "/translate", q=q, format=format, **fields)
            assert found == {"translatedText": q}
    assert translate(served, text, **fields)["text"] == text
    english = "The old teacher reads a book to the children."
    found = post(served, "/translate", q=english, source="auto", target="en")
    assert found["translatedText"] == english
    assert len(served.script.calls) == calls
    for source, target in (("xx", "xx"), ("en-GB", "en-US")):
        fields = {"source": source, "target": target}
        assert refused(served, 400, "/translate", q=text, **fields)
    attention = {"text": "a", "translation": "b", "source": "en"}
    assert refused(served, 400, "/v1/attention", target="en", **attention)


def test_a_wide_search_and_details_count_more(served):
    """The limit of a batch is one of its work."""
    model = served.service.pairs["en", "de"].model
    own = model.translator.decoding
    wide = dataclasses.replace(own, beam_size=4 * own.beam_size)
    for work, cost in (
        (SearchWork(model, own), 1),
        (SearchWork(model, wide), 4),
        (SearchWork(model, wide, everything=True, details=True), 8),
    ):
        assert work.cost == cost
        plan = Plan(None, work, NO_TERMINOLOGY, 0)
        plan = plan._replace(pair=served.service.pairs["en", "de"])
        _, sizes = works._prepare(plan, ["A dog.", "A"])
        assert sizes[0] > sizes[1] >= cost and not sizes[0] % cost


def test_detection_takes_no_text_for_a_target_without_reason():
    """No text that fits any language, and none if it knows only the target."""
    assert languages.Detector(["en"], ["de"]).rank("1")[0][0] == "en"
    [first, *others] = languages.Detector(["en"], ["de"]).rank("Das Kind")
    assert first[0] == "de" and all(share <= first[1] for _, share in others)
    for sources, targets in ((["source"], ["de"]), (["en"], ["target"])):
        detector = languages.Detector(sources, targets)
        assert detector.rank("Das Kind schläft.") == [(sources[0], 100.0)]
    names = languages.Detector(["nob_Latn", "fuv_Latn", "eng_Latn"])
    found = names.rank("Det er en fin dag i dag, og barnet sover.")
    assert found[0][0] == "nob_Latn" and len(names._codes) == 3


# ---- Terminology -------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"), [("/translate", "q"), ("/v1/translate", "text")]
)
def test_a_request_has_terms_and_forbidden_words(served, path, name):
    def searched(**fields):
        """Returns the arguments of the last search."""
        text = "A dog. A red tree! No."
        post(served, path, **{name: text}, **BOTH, **fields)
        return [
            (request.text, request.terms, request.avoid)
            for request in served.script.calls[-1][2]
        ]

    glossary = {"dog": "Hund | Köter", "red tree": "Baum"}
    assert searched(glossary=glossary, avoid=["x", "y z"]) == [
        ("A dog.", (("Hund", "Köter"),), ("x", "y z")),
        ("A red tree!", (("Baum",),), ("x", "y z")),
        ("No.", (), ("x", "y z")),
    ]
    assert searched(glossary="", avoid="x")[0] == ("A dog.", (), ("x",))
    longest = {"dog": "|".join(["b"] * 512)}  # in tokens
    assert len(searched(glossary=longest)[0][1][0]) == 512


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"glossary": "cars"}, "glossary of: there are none"),
        ({"glossary_id": "x"}, "glossary of: there are none"),
        ({"glossary": ["a"]}, "a name, or an object of terms"),
        ({"glossary": {"a": 1}}, "a name, or an object of terms"),
        ({"glossary_id": "x", "glossary": "x"}, "glossary or glossary_id"),
        ({"glossary": {"a": "b|"}}, "a term, a tab and its trans"),
        ({"glossary": {"a": "\u00f1"}}, "no tokens for ('\u00f1',)"),
        ({"glossary": {str(i): "b" for i in range(1001)}}, "most 1000 terms"),
        ({"glossary": {"a": "|".join("b" * 2001)}}, "most 2000 translations"),
        ({"glossary": {"a": "b" * 201}}, "most 200 characters a term"),
        ({"glossary": {"a" * 201: "b"}}, "most 200 characters a term"),
        ({"glossary": {"a": "|".join(["b"] * 513)}}, "most 512 tokens"),
        ({"avoid": 1}, "avoid with a text or a list of texts"),
        ({"avoid": ["a", " "]}, "words in avoid"),
    ],
)
def test_a_wrong_terminology_is_refused(served, fields, message):
    for path, name in (("/translate", "q"), ("/v1/translate", "text")):
        found = refused(served, 400, path, **{name: "a"}, **BOTH, **fields)
        assert message in found


def test_sampling_has_no_glossary(served):
    fields = {"text": "a", **BOTH, "sampling": True}
    assert post(served, "/v1/translate", avoid=["b"], **fields)
    fields["glossary"] = {"a": "b"}
    message = refused(served, 400, "/v1/translate", **fields)
    assert (
        message
        == "expected a glossary without sampling. Received: sampling=True"
    )


def test_the_server_reads_its_glossaries_again(tmp_path, caplog):
    """If one is wrong, the old ones stay."""
    first, second = tmp_path / "cars.tsv", tmp_path / "trees.tsv"
    first.write_text("dog\tHund\n")
    (tmp_path / "notes.txt").write_text("no glossary")
    with running(glossaries=str(tmp_path)) as served:

        def found():
            """Returns the names of glossaries, and the terms of a request."""
            for name in ("glossary", "glossary_id"):
                post(served, "/translate", q="a dog", **{name: "cars"}, **BOTH)
            (*_, [one], _), (*_, [request], _) = served.script.calls[-2:]
            assert one == request
            return settings_of(served)["glossaries"], request.terms

        assert found() == (["cars"], (("Hund",),))
        second.write_text("tree\n")
        first.write_text("dog\tKöter\n")
        server.reload(served.service)
        assert "stay as they were" in caplog.text
        assert "trees.tsv: line 1: expected a term" in caplog.text
        assert found() == (["cars"], (("Hund",),))
        second.write_text("tree\tBaum\n")
        server.reload(served.service)
        assert found() == (["cars", "trees"], (("Köter",),))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["med.csv", "med.tsv"], "Received: med.csv and med.tsv"),
        ([], "expected files NAME.tsv"),
    ],
)
def test_wrong_glossaries_of_the_server_are_refused(tmp_path, names, message):
    for name in names:
        (tmp_path / name).write_text("a\tb\n")
    with pytest.raises(ValueError, match=message):
        Service([], ServeOptions(glossaries=str(tmp_path)), Limits())


def test_no_term_is_read_in_the_thread_of_all_requests(served, monkeypatch):
    """A thousand terms take a while, and others wait for that thread."""
    threads, read_as = [], glossary.read_as

    def spy(*arguments, **options):
        threads.append(threading.current_thread().name)
        return read_as(*arguments, **options)

    monkeypatch.setattr(glossary, "read_as", spy)
    fields = {"glossary": {"dog": "Hund"}, **BOTH}
    post(served, "/translate", q="a dog", **fields)
    translate(served, "a dog", **fields)
    assert threads and all(name.startswith("asyncio_") for name in threads)


def test_no_code_of_any_length_is_kept(served):
    """Caches of codes have many entries."""
    caches = languages._read, served.service._has_pair
    before = [cache.cache_info().currsize for cache in caches]
    code = "x" * 10_000
    for source, target in (("auto", code), ("en", code), (code, "de")):
        for path, name in (("/translate", "q"), ("/v1/translate", "text")):
            fields = {name: "a", "source": source, "target": target}
            message = refused(served, 400, path, **fields)
            assert "at most 35 characters. Received: 10000" in message
    assert [cache.cache_info().currsize for cache in caches] == before


def test_unknown_languages_are_not_detected(caplog):
    detector = languages.Detector(["en", "source", "pt_BR"])
    assert detector.rank("O cão corre na floresta.")[0][0] == "pt_BR"
    assert "never detected: source" in caplog.text


@pytest.mark.parametrize(
    ("source", "target", "known", "expected"),
    [
        ("en", "de", "en-de fr-de", "en-de"),
        ("en-US", "de_AT", "en-de", "en-de"),
        ("eng", "deu_Latn", "en-de", "en-de"),
        ("en", "de", "eng_Latn-deu_Latn", "eng_Latn-deu_Latn"),
        # The same code is nearer than the same language.
        ("pt-BR", "de", "pt-de pt_BR-de pt_PT-de", "pt_BR-de"),
        ("pb", "de", "pt-de pt_BR-de", "pt_BR-de"),
        ("pt", "de", "pt-de pt_BR-de", "pt-de"),
        ("pt-AO", "de", "pt_BR-de pt-de", "pt-de"),
        ("en-US", "de", "en_GB-de", "en_GB-de"),
        ("pt", "de", "pt_BR-de", "pt_BR-de"),
        ("pt", "de", "pt_BR-de pt_PT-de", None),
        ("pt-AO", "de", "pt_BR-de pt_PT-de", None),
        # Scripts, also of regions.
        ("zh", "en", "zh-en zh_Hant-en", "zh-en"),
        ("zh-Hans", "en", "zh-en zt-en", "zh-en"),
        ("zt", "en", "zh-en zh_Hant-en", "zh_Hant-en"),
        ("zh-TW", "en", "zh-en zt-en", "zt-en"),
        ("zh-Hant", "en", "zho_Hans-en zho_Hant-en", "zho_Hant-en"),
        ("zh-Hant", "en", "zh-en", None),
        ("zh-HK", "en", "zh_Hans-en", None),
        ("zt", "en", "zh-en", None),
        ("zh", "en", "zh_Hant-en", "zh_Hant-en"),
        ("sr", "en", "sr_Latn-en", "sr_Latn-en"),
        ("sr", "en", "sr_Latn-en sr_Cyrl-en", "sr_Cyrl-en"),
        # Usual forms of a language, and dialects by their own codes.
        ("no", "en", "nob_Latn-en nno_Latn-en", "nob_Latn-en"),
        ("nb", "en", "no-en nn-en", "no-en"),
        ("ps", "en", "pbt_Arab-en", "pbt_Arab-en"),
        ("ff", "en", "fuv_Latn-en", "fuv_Latn-en"),
        ("ak", "en", "aka_Latn-en twi_Latn-en", "aka_Latn-en"),
        ("tw", "en", "aka_Latn-en twi_Latn-en", "twi_Latn-en"),
        ("apc", "en", "apc_Arab-en ajp_Arab-en arb_Arab-en", "apc_Arab-en"),
        ("ajp", "en", "apc_Arab-en ajp_Arab-en", "ajp_Arab-en"),
        ("prs", "en", "pes_Arab-en prs_Arab-en", "prs_Arab-en"),
        ("fa-AF", "en", "pes_Arab-en prs_Arab-en", "prs_Arab-en"),
        ("fa", "en", "pes_Arab-en prs_Arab-en", "pes_Arab-en"),
        # The pair is chosen, not each of its languages.
        ("en", "fr", "en-de en_GB-fr", "en_GB-fr"),
        ("en-GB", "pt", "en-pt en_GB-pt_BR", "en_GB-pt_BR"),
        ("en", "de", "de-en", None),
        ("en", "fr", "en-de", None),
        ("Source", "x", "source-x", "source-x"),
        ("", "de", "en-de", None),
        ("-", "\0", "en-de", None),
    ],
)
def test_language_codes_of_clients_find_a_pair(source, target, known, expected):
    loaded = [tuple(pair.split("-")) for pair in known.split()]
    found = languages.choose_pair(source, target, loaded)
    assert found == (expected and tuple(expected.split("-")))
    assert languages.choose_pair(source, target, loaded[::-1]) == found


def test_of_very_many_pairs_few_are_looked_at(monkeypatch):
    """A text waits for no others, also if a request has many of a language."""
    codes = [f"x{i:03}" for i in range(200)] + ["eng_Latn", "deu_Latn"]
    looked = []

    class Many(dict):
        def __contains__(self, pair):
            looked.append(pair)
            return super().__contains__(pair)

        def __iter__(self):
            return itertools.permutations(codes, 2)

    many = Many(dict.fromkeys(itertools.permutations(codes, 2)))
    found = languages.choose_pair("en", "de", many)
    assert found == ("eng_Latn", "deu_Latn") and len(looked) == 2


def test_texts_of_a_language_are_of_one_search_for_a_pair(served, monkeypatch):
    choose = mock.Mock(wraps=languages.choose_pair)
    monkeypatch.setattr(services, "choose_pair", choose)
    answer = post(served, "/translate", q=["a"] * 9, source="EN", target="DE")
    assert answer["translatedText"] == ["A"] * 9
    assert [call.args[:2] for call in choose.mock_calls] == [("EN", "DE")]


def test_both_apis_read_language_codes_as_clients_write_them(served):
    codes = {"source": "EN-us", "target": "deu"}
    assert post(served, "/translate", q="a", **codes)["translatedText"] == "A"
    assert translate(served, "a", **codes)["text"] == "A"
    found = translate(served, "a", source="AUTO", target="DE")
    assert found["source"] in ("en", "fr")


def test_libretranslate_lists_languages_and_settings(served):
    assert served.client.get("/languages").json() == [
        {"code": code, "name": name, "targets": targets, "direction": "ltr"}
        for code, name, targets in (
            ("en", "English", ["de"]),
            ("fr", "French", ["de"]),
            ("de", "German", []),
        )
    ]
    settings = settings_of(served)
    assert settings["charLimit"] == 10000 and not settings["keyRequired"]
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["search"]["beam_size"] == {"default": 3, "max": 8}
    assert settings["search"]["n_best"] == {"max": 4}
    assert settings["maxTerms"] == 1000 and settings["attention"]
    assert settings["models"] == ["A & B"] * 2
    lacks = mock.patch.object(Script, "has", lambda self, use: False)
    with lacks:  # as CTranslate2
        settings = settings_of(served)
    assert settings["maxTerms"] == 0 and not settings["attention"]
    assert served.client.get("/health").json() == {"status": "ok"}


def test_the_description_names_every_path_and_field(served):
    paths = served.client.get("/spec").json()["paths"]

    def schemas(path):
        content = paths[path]["post"]["requestBody"]["content"]
        return content["application/json"]["schema"]["properties"]

    for path in hostile_requests.POSTS:
        assert set(hostile_requests.GOOD[path]) <= set(schemas(path))
    for name in requests.TERMINOLOGY:
        for path in ("/translate", "/v1/translate"):
            assert "description" in schemas(path)[name]
    own = schemas("/v1/translate")
    for name in requests.PER_TEXT:
        assert name in Request.__dataclass_fields__
        assert "oneOf" in own[name]
    assert own["beam_size"]["minimum"] == 1
    assert own["beam_size"]["type"] == "integer"
    assert own["top_p"]["maximum"] == 1.0
    assert own["seed"]["type"] == ["integer", "null"]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"q": None}, "q is missing"),
        ({"source": None}, "source is missing"),
        ({"target": None}, "target is missing"),
        ({"q": 1}, "q with a text or a list of texts. Received: 1"),
        ({"q": "\ud800"}, "q must be Unicode"),
        ({"q": ["a"] * 129}, "at most 128 texts. Received: 129"),
        ({"q": "a" * 10001}, "at most 10000 characters. Received: 10001"),
        ({"target": "xx"}, "pairs en-de, fr-de. Received: source='en', targ"),
        ({"format": "pdf"}, "'markdown', 'auto'. Received: format='pdf'"),
        ({"alternatives": 4}, "at most 3. Received: alternatives=4"),
        ({"alternatives": "x"}, "at most 3. Received: alternatives='x'"),
    ],
)
def test_libretranslate_refuses_bad_fields(served, fields, message):
    fields = {"q": "a", **BOTH, **fields}
    given = {name: value for name, value in fields.items() if value is not None}
    assert message in refused(served, 400, "/translate", **given)


# ---- The server's own API ----------------------------------------------------


def test_a_translation_has_all_that_is_known(served):
    text = "One dog.\n\n  Two trees."
    found = translate(served, text, target="de", n_best=2, details=True)
    assert found["text"] == text.upper()
    first, second = found["sentences"]
    assert (first["before"], second["before"]) == ("", "\n\n  ")
    assert second["source_words"] == ["Two", "trees."]
    best, other = second["hypotheses"]
    probability = pytest.approx(0.60653, abs=1e-5)
    word = {"text": "TWO", "probability": probability}
    assert best["words"][0] == best["tokens"][0] == word
    assert len(best["words"]) == 2 and best["alignment"] == [[0, 0]]
    assert (best["score"], other["score"]) == (0.0, -1.0)
    assert other["text"] == "TWO TREES.+"
    plain = translate(served, "a. B.", target="de", split=False)
    [sentence] = plain["sentences"]
    assert sentence["source"] == "a. B."
    assert sentence["hypotheses"] == [{"text": "A. B.", "score": 0.0}]


def test_details_have_the_confidence_of_the_assessor(tmp_path, caplog):
    path = tmp_path / "run"
    calibration = exports.calibrated(path)
    translator = kt.Translator.load(str(path))
    model = pairs.Model(translator, 2)
    sentences = ["two red dogs and three green trees", "", "one dog 137"]
    requests = [Request(s, direction=Direction()) for s in sentences]
    work = SearchWork(model, translator.decoding, details=True)
    assert all("confidence" not in a.details[0] for a in work(requests))
    model.assessor = Assessor.find(translator)
    _, expected = translator.assessor().search(sentences)
    assert len({round(one.probability, 6) for one in expected}) == 3
    answers = work(requests)
    every = dataclasses.replace(work, everything=True)(requests)
    for one, answer, several in zip(expected, answers, every, strict=True):
        assert len(answer.details) == len(answer.translation.texts) == 1
        both = answer.details[0], several.details[0]
        for found in (of.pop("confidence") for of in both):
            assert found["reasons"] == one.reasons
            for name in ("probability", "words"):
                wanted = pytest.approx(getattr(one, name), abs=1e-5)
                assert found[name] == wanted
        assert all("confidence" not in other for other in several.details)
    assert any(one.reasons for one in expected)
    sampled = dataclasses.replace(
        work, decoding=dataclasses.replace(translator.decoding, sampling=True)
    )
    assert all("confidence" not in a.details[0] for a in sampled(requests))
    dataclasses.replace(calibration, checkpoint="ckpt-2").write(
        path / "confidence.json"
    )
    assert Assessor.find(translator) is None
    assert "expected a calibration of ckpt-3" in caplog.text


def test_search_options_of_a_request(served):
    served.script.calls.clear()
    for fields in (
        {},
        {"beam_size": 2, "length_penalty": 1},
        {"prefix": "Das ", "n_best": 3},
        {"sampling": True, "seed": 5},
        {"sampling": True, "num_samples": 3, "n_best": 3},
    ):
        translate(served, "a", split=False, **BOTH, **fields)
    plain, other, forced, sampled, several = served.script.calls
    usual = served.script.decoding
    assert plain[0] == usual and plain[2:] == ([Request("a")], 1)
    assert other[0] == dataclasses.replace(usual, beam_size=2, length_penalty=1)
    assert forced[2:] == ([Request("a", "Das ")], 3)
    assert sampled[0].sampling and sampled[1] == {5}
    assert several[0].num_samples == several[3] == 3
    assert several[1] not in (plain[1], other[1])  # at random


def sampling_script(**changes):
    script = Script()
    script.decoding = dataclasses.replace(
        script.decoding, sampling=True, **changes
    )
    return {("en", "de"): script}


def test_a_server_may_sample_by_default():
    """It draws as many samples as its options say, with a request's seed."""
    with running(sampling_script(num_samples=9, consensus="chrf")) as served:
        post(served, "/translate", q="a", **BOTH)
        translate(served, "a", seed=5, **BOTH)
        assert served.script.calls[-1][:2] == (served.script.decoding, {5})
        fields = {"text": "a", "num_samples": 10, **BOTH}
        message = refused(served, 400, "/v1/translate", **fields)
        assert "num_samples of at most 9" in message
        search = settings_of(served)["search"]
        assert search["n_best"]["max"] == served.service.max_n_best
    with running(sampling_script()) as served:
        assert settings_of(served)["search"]["n_best"]["max"] == 1


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"beam": 4}, "Received: name='beam'"),
        ({"beam_size": 9}, "beam_size of at most 8. Received: 9"),
        ({"adapter": "x"}, "adapter of: there are none. Received: adapter='x'"),
        ({"sampling": True, "num_samples": 9}, "num_samples of at most 8"),
        ({"beam_size": "4"}, "beam_size must be a whole number"),
        ({"n_best": 4}, "n_best of at most 3. Received: 4"),
        ({"temperature": 0}, "temperature must be at least 0.001"),
        ({"seed": 1}, "sampling with a seed"),
        ({"seed": 2**32, "sampling": True}, "seed must be at most 4294967295"),
        ({"prefix": "b"}, "a request needs split=false. Received: prefix"),
        ({"prefix": ["b", "c"], "split": False}, "Received: 2 for 1"),
        ({"format": "x"}, "format must be one of 'text'"),
    ],
)
def test_bad_options_are_refused(served, fields, message):
    found = refused(served, 400, "/v1/translate", text="a", **BOTH, **fields)
    assert message in found


def test_another_api_is_a_row_with_its_own_errors(monkeypatch, tmp_path):
    async def complete(service, fields):
        options, _ = requests.read_options(BOTH)
        texts = requests.read_texts(fields, "prompt", service.limits)
        [found] = await service.translate(texts, options)
        return StreamingResponse(iter(found.texts[0]))

    api = spec.Api(
        posts={"/complete": spec.Post("It.", complete, {"prompt": spec.TEXT})},
        error=lambda status, message: {
            "error": {"type": status, "is": message}
        },
    )
    monkeypatch.setattr(app, "APIS", (*app.APIS, api))
    keys = tmp_path / "keys"
    keys.write_text("ours\n")
    ours = {"Authorization": "Bearer ours"}
    with running(api_keys=str(keys)) as served:
        for fields, sent, status, answer in (
            ({"prompt": "one dog"}, ours, 200, "ONE DOG"),
            ({}, ours, 400, api.error(400, "prompt is missing")),
            ({}, {}, 403, api.error(403, "api_key is missing")),
        ):
            found = served.client.post("/complete", json=fields, headers=sent)
            assert found.status_code == status
            assert (found.text if status == 200 else found.json()) == answer
        described = served.client.get("/spec").json()["paths"]["/complete"]
    error = described["post"]["responses"]["default"]["content"]
    assert "is" in error["application/json"]["example"]["error"]


def test_a_path_is_only_what_it_is(served):
    """A path does not lead to another, but one with a slash to that without."""
    for path in ("/languages/x", "/translate/", "/languages//"):
        response = served.client.get(path)
        assert response.status_code == 404, path
        assert response.json() == {"error": "Not Found"}
    for path in ("/docs", "/languages", "/frontend/settings"):
        response = served.client.get(f"{path}/")
        assert response.is_redirect
        # Relative: a proxy may give the server a folder and another address.
        assert response.headers["location"] == f"../{path.split('/')[-1]}"
        led = served.client.get(f"{path}/", follow_redirects=True)
        assert led.url.path == path and led.status_code == 200


def test_the_client_of_the_examples(served, capsys):
    commands.load_script("client").main(served.url, "en", "de", ["a", "", "b"])
    assert capsys.readouterr().out == "A\n\nB\n"


# ---- What all requests have in common ----------------------------------------


def test_keys_are_required_if_there_are_any(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nfirst\n\n second \n")
    fields = {"q": "a", **BOTH}
    glossaries = tmp_path / "glossaries"
    glossaries.mkdir()
    (glossaries / "good.tsv").write_text("a\tb\n")
    with running(api_keys=str(keys), glossaries=str(glossaries)) as served:
        for key in ("first", "second"):
            post(served, "/translate", api_key=key, **fields)
        for key in (None, "", "First", "# ours", 1, ["first"]):
            assert "api_key is" in refused(
                served, 403, "/translate", api_key=key, **fields
            )
        assert "api_key is missing" == refused(
            served, 403, "/v1/translate", text="a", target="de"
        )
        translate(served, "a", target="de", api_key="first")
        for name, header, status in (
            ("Authorization", "Bearer second", 200),
            ("Authorization", "bearer first", 200),
            ("Authorization", "first", 200),
            ("Authorization", "Bearer First", 403),
            ("Authorization", "Bearer", 403),
            ("Authorization", "Basic first", 403),
            ("X-API-Key", "second", 200),
            ("X-API-Key", "Bearer second", 403),
            ("X-API-Key", "", 403),
        ):
            assert status_with(served, name, header) == status, header
        for name, empty in itertools.permutations(
            ("X-API-Key", "Authorization")
        ):  # an empty header is none
            assert status_with(served, name, "first", {empty: ""}) == 200
        assert settings_of(served)["keyRequired"]
        keys.write_text("\n")
        server.reload(served.service)  # which has no key: the old ones stay
        assert status_with(served, "X-API-Key", "first") == 200
        keys.write_text("third\n")
        (glossaries / "broken.tsv").write_text("no tab\n")
        server.reload(served.service)  # a wrong glossary keeps no old key
        assert status_with(served, "X-API-Key", "first") == 403
        assert status_with(served, "X-API-Key", "third") == 200


def status_with(served, name, value, others=None):
    """Returns the status of a translation with a header, and others."""
    return served.client.post(
        "/translate",
        json={"q": "a", **BOTH},
        headers={name: value, **(others or {})},
    ).status_code


def test_other_origins_are_refused_unless_they_are_named(served):
    origin = "https://example.org"

    def allowed(server):
        answer = server.client.get("/languages", headers={"Origin": origin})
        return answer.headers.get("access-control-allow-origin")

    with running(cors_origins=(origin,)) as other:
        assert (allowed(served), allowed(other)) == (None, origin)


def test_a_full_server_says_when_to_try_again():
    with running(max_queue_tokens=4, request_seconds=30.0) as served:
        served.script.may_run.clear()
        answers = asyncio.run(send_many(served, 6))
    statuses = collections.Counter(a.status_code for a in answers)
    assert statuses == {200: 2, 429: 4}
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json() == {"error": "the server has too much work"}


async def send_many(served, number):
    """Sends requests while the first one runs. Returns the answers."""
    fields = {"q": "a b c", **BOTH}
    async with httpx.AsyncClient(
        base_url=served.url, timeout=MINUTES
    ) as client:
        tasks = []
        for _ in range(number):
            tasks.append(
                asyncio.create_task(client.post("/translate", json=fields))
            )
            while not served.script.calls:
                await asyncio.sleep(0.01)
        while sum(task.done() for task in tasks) < number - 2:
            await asyncio.sleep(0.01)
        served.script.may_run.set()
        return await asyncio.gather(*tasks)


def translates_third_only(served):
    """Tells whether only "third" is translated after the first batch."""
    served.script.may_run.set()
    post(served, "/translate", q="third", **BOTH)
    expected = [[Request("first")], [Request("third")]]
    return [call[2] for call in served.script.calls] == expected


def test_a_request_that_takes_too_long_is_dropped():
    with running(request_seconds=0.2) as served:
        served.script.may_run.clear()
        for text in ("first", "second"):
            message = refused(served, 504, "/translate", q=text, **BOTH)
            assert message == "the request took longer than 0.2 seconds"
        assert served.service.batcher.waiting_tokens == 2  # the second's
        served.service.options = dataclasses.replace(
            served.service.options, request_seconds=600
        )
        assert translates_third_only(served)


def test_the_work_of_a_client_that_hung_up_is_dropped():
    with running() as served:
        served.script.may_run.clear()
        batcher = served.service.batcher
        for text, has_come in (
            ("first", lambda: served.script.calls),
            ("second", lambda: batcher.waiting_tokens),
        ):
            body = json.dumps({"q": text, **BOTH}).encode()
            with connect(served) as client:
                client.sendall(http("POST", "/translate", body))
                while not has_come():
                    time.sleep(0.01)
        while 'status="499"} 2.0' not in served.client.get("/metrics").text:
            time.sleep(0.01)
        assert translates_third_only(served)


def test_a_server_that_starts_says_so():
    with running(warm=False) as served:
        assert "ready" not in served.lines
        message = refused(served, 503, "/translate", q="a", **BOTH)
        assert message == "the server is starting"
        health = served.client.get("/health")
        assert health.status_code == 503 and "retry-after" in health.headers
        served.script.may_run.set()
        while served.client.get("/health").status_code != 200:
            time.sleep(0.01)


def test_a_server_is_ready_before_all_programs_are_made():
    """Requests come before the programs that are missing."""
    scripts = {("en", "de"): Script(), ("fr", "de"): Script()}
    script = scripts["fr", "de"]
    script.is_faster = False
    reached, may_go_on = threading.Event(), threading.Event()

    def steps(num_best):
        made = Script.warm_up_steps(script, num_best)
        if num_best > 1:
            return made
        length, make = made[-1]

        def wait():
            reached.set()
            assert may_go_on.wait(MINUTES)
            make()

        return [*made[:-1], (length, wait)]

    script.warm_up_steps = steps
    with running(scripts, warm=None) as served:
        assert reached.wait(MINUTES)
        usual = [(1, 32), (1, 64), (3, 32), (3, 64)]
        assert served.service.is_ready
        waiting = threading.Thread(
            target=lambda: translate(served, "a", **BOTH)
        )
        waiting.start()
        while not served.service.batcher.waiting_tokens:
            time.sleep(0.01)
        assert script.made == usual
        may_go_on.set()
        waiting.join()
        while len(served.lines) < 3:
            time.sleep(0.01)
    # score and align, too, which the page asks for
    assert served.lines == [
        "programs: 12, then 8 for long texts and speed",
        "ready",
        "single sentences: XLA is faster for 1 of 2 lengths, and is used there",
    ]
    late = [(1, 128), (3, 128), "XLA"]
    assert [script.made for script in scripts.values()] == [usual + late] * 2


def test_a_request_right_after_ready_waits_for_no_program():
    with running(warm=None, idle_seconds=1e6) as served:
        for _ in range(2):
            translate(served, "a", **BOTH)
        assert served.script.made == [(1, 32), (1, 64), (3, 32), (3, 64)]
        assert served.lines[-1] == "ready"


def test_a_server_that_ends_finishes_what_it_has_accepted():
    text = "<p>One <b>red</b> dog and %s trees.</p>"  # in three stages
    fields = {"q": text, "format": "html", **BOTH}
    with running() as served:
        served.script.may_run.clear()
        found = []
        client = threading.Thread(
            target=lambda: found.append(post(served, "/translate", **fields))
        )
        client.start()
        while not served.script.calls:
            time.sleep(0.01)
        served.server.should_exit = True
        with pytest.raises(httpx.ConnectError):
            while True:
                # A connection that nobody has accepted yet ends without answer.
                with contextlib.suppress(
                    httpx.RemoteProtocolError, httpx.ReadError
                ):
                    httpx.get(f"{served.url}/health")
                time.sleep(0.01)
        assert not found
        served.script.may_run.set()
        client.join()
    assert found == [{"translatedText": translated(text, "html").text}]


def test_a_model_that_cannot_warm_up_ends_the_command(monkeypatch):
    script = Script()
    fail = mock.Mock(side_effect=FloatingPointError("no finite logits"))
    script.warm_up_steps = lambda num_best: [(64, fail)]
    pair = pairs.Pair("en", "de", pairs.Model(script, 2), Direction())
    monkeypatch.setattr(server, "load_pairs", lambda *_: [pair])
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(RunError, match="cannot translate: no finite log"):
            server.run(None, {}, ServeOptions(port=0), Limits())
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_failure_is_logged_without_the_text(served, caplog):
    message = refused(served, 500, "/translate", q="fail", **BOTH)
    assert message == "the server has failed"
    assert "FloatingPointError" in caplog.text and "search" in caplog.text
    assert "<fail>" not in caplog.text


def test_requests_and_batches_are_counted(served):
    post(served, "/translate", q="a b c", **BOTH)
    text = served.client.get("/metrics").text
    for name in (
        'requests_total{path="/translate",status="200"}',
        'request_seconds_count{path="/translate"}',
        "queue_wait_seconds_count",
        "batch_sentences_count",
        "source_tokens_total",
    ):
        [value] = re.findall(
            rf"^translation_{re.escape(name)} (\S+)", text, re.M
        )
        assert float(value) > 0
    assert "translation_waiting_tokens 0.0" in text


# ---- Hostile requests --------------------------------------------------------


def connect(served):
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=MINUTES)


def read_answer(client):
    """Returns status and body of the first answer, or None without one."""
    answer = HTTPResponse(client)
    try:
        answer.begin()
        return answer.status, answer.read()
    except (ConnectionResetError, BadStatusLine):
        return None, b""


NO_HTTP = b"Invalid HTTP request received."  # uvicorn's answer


def assert_is_error(name, body):
    """Checks that an answer is a one-line error in JSON."""
    [(field, message)] = json.loads(body).items()
    assert field == "error" and message, name
    assert "\n" not in message and len(message) < 1000, name


def answers_to_hostile(requests, is_raw=False):
    """Yields name, status and body, and checks that no error is logged.

    With `is_raw`, the client closes its side, as its data have no length.
    """
    with running() as served:
        for name, request in requests:
            with connect(served) as client:
                with contextlib.suppress(OSError):  # it has answered before
                    client.sendall(request)
                    if is_raw:
                        client.shutdown(socket.SHUT_WR)
                yield name, *read_answer(client)
        assert served.client.get("/health").status_code == 200


def test_hostile_requests_have_one_clear_error(caplog, monkeypatch):
    figure = types.SimpleNamespace(html=lambda: "<html>")
    monkeypatch.setattr(attention, "attention_figure", lambda *_: figure)
    answers = [*answers_to_hostile(hostile_requests.hostile_requests())]
    for name, status, body in answers:
        assert status and 200 <= status < 500, (name, status, body)
        if status >= 400 and (status, body) != (400, NO_HTTP):
            assert_is_error(name, body)
    assert len(answers) > 300
    assert "Error" not in caplog.text


def test_what_is_no_http_is_refused(caplog):
    """The connection may also be closed, with data unread or no request."""
    for name, status, body in answers_to_hostile(hostile_requests.raw(), True):
        assert status is None or 200 <= status < 500, (name, status, body)
        if status == 400 and body != NO_HTTP:
            assert_is_error(name, body)
    assert "Error" not in caplog.text


@pytest.mark.parametrize(
    "status, kind", [(503, "application/json"), (415, "text/csv")]
)
def test_a_refused_client_may_first_send_its_body(status, kind):
    # An answer and the end of the connection would meet a body on its way.
    body = b'{"text": ["one dog"], "target": "de"}'
    head = (
        f"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with running(warm=status != 503) as served, connect(served) as client:
        client.sendall(head.encode() + body[:9])
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(MINUTES)
        client.sendall(body[9:])
        found, answer = read_answer(client)
    assert found == status and list(json.loads(answer)) == ["error"]


@pytest.mark.parametrize(
    "path, status, message",
    [
        ("/translate", 413, "expected a body of at most 262144 bytes"),
        ("/v1/translate", 415, "expected a body of Content-Type application/j"),
        ("/no/such/path", 404, "Not Found"),
        ("/languages", 405, "Method Not Allowed"),
    ],
)
def test_a_client_that_sends_5_mb_gets_its_answer(
    served, path, status, message
):
    """It reads the answer only after it has sent all."""
    request = urllib.request.Request(
        served.url + path, b"q=" + b"a" * 5_000_000
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=MINUTES)
    assert error.value.code == status
    assert json.load(error.value)["error"].startswith(message)


def test_little_is_read_after_an_error(monkeypatch):
    """The body is too long, or does not come."""
    monkeypatch.setattr(app, "DISCARD_BYTES", 2**20)
    monkeypatch.setattr(app, "DISCARD_SECONDS", 0.2)
    with running() as served:
        for sent, length in ((3 * 2**20, 10**9), (9, 10)):
            head = http("POST", "/no/such/path", length=length)
            with connect(served) as client:
                with contextlib.suppress(OSError):  # it has answered before
                    client.sendall(head + b"a" * sent)
                with contextlib.suppress(ConnectionResetError):
                    while client.recv(2**16):  # until it closes
                        pass
        assert served.client.get("/health").status_code == 200


def test_a_request_whose_body_does_not_come_is_dropped():
    whole = http("POST", "/translate", json.dumps({"q": "a", **BOTH}).encode())
    with running(request_seconds=0.2) as served:
        with connect(served) as client:
            client.sendall(whole[:-3])
            status, answer = read_answer(client)
        assert status == 504
        assert json.loads(answer) == {
            "error": "the request took longer than 0.2 seconds"
        }
        assert served.client.get("/health").status_code == 200


def test_connections_are_limited():
    with running(limits={"max_connections": 2}) as served:
        # `served.client` has the first connection.
        with connect(served) as second:
            with connect(served) as third:
                third.sendall(http("GET", "/health"))
                assert read_answer(third)[0] == 503
            second.sendall(http("GET", "/health"))
            assert read_answer(second)[0] == 200


# ---- Programs ----------------------------------------------------------------


@pytest.mark.parametrize(
    "is_static, row_factor", [(False, 2), (True, 2), (True, 8)]
)
def test_warming_up_makes_all_programs_of_a_search(is_static, row_factor):
    seen = set()

    def run(kind, arrays, room, num_best, shapes, max_steps):
        """Finds the outputs of short sources in the first round only."""
        ids, constraints = arrays
        assert constraints == UNCONSTRAINED
        length = ids.shape[1] if is_static else room
        size = len(ids) if is_static else None
        seen.add((size, length, num_best, shapes, max_steps))
        length = UNFINISHED if max_steps and length > 8 else 1
        return types.SimpleNamespace(
            ids=np.full((len(ids), 1, 1), 2),
            scores=np.zeros((len(ids), 1)),
            lengths=np.full((len(ids), 1), length),
        )

    inference = exports.translator().inference
    batched = BatchedSearch(inference, 40, False, 1)
    batched.row_factor = row_factor
    batched.run, batched.has_static_shapes = run, is_static
    rows = [Row([5] * (i % 16) + [2]) for i in range(100)]
    batched.search(rows, num_best=1)
    needed = set(seen)
    seen.clear()
    for longest, make, _ in batched.programs(num_best=1):
        make()
        assert longest <= max(size[1] for size in seen)
    assert needed <= seen and len(needed) >= (3 if is_static else 1)


def test_a_pair_that_samples_is_warmed_up():
    """It samples by default, and so has a single hypothesis."""
    translator = exports.translator().with_decoding(sampling=True)
    assert translator.decoding.beam_size > 1
    model = pairs.Model(translator, 1)
    for make in itertools.chain(*model.warm_up_steps()):
        make()


# ---- The command -------------------------------------------------------------


def test_two_work_directories_of_one_pair_are_refused(capsys, tmp_path):
    workdir, several = exports.workdir(), tmp_path / "several"
    shutil.copytree(workdir, several)
    data = DataConfig(
        dataset="files",
        train_files=("train",),
        max_length=16,
        target_language="de,fr",
    )
    WorkDirectory(several).replace_section("data", data)
    argv = [f"--workdir={workdir},{several}", "--port=0"]
    err = commands.fails(serve.main, argv, capsys)
    assert "expected one work directory for en-de" in err


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
)
def test_a_signal_before_the_server_runs_is_not_lost(monkeypatch, number):
    """The server is told to end; the line that Python is in goes on."""
    make_server, made, shown = server.make_server, [], []

    def show(line):
        if line.startswith("listening"):
            signal.raise_signal(number)
            shown.append(line)

    pair = pairs.Pair("en", "de", pairs.Model(Script(), 2), Direction())
    monkeypatch.setattr(server, "load_pairs", lambda *_: [pair])
    monkeypatch.setattr(
        server, "make_server", lambda s: made.append(make_server(s)) or made[0]
    )
    monkeypatch.setattr(server.flags, "show", show)
    # `nohup` hands down an ignored SIGHUP, which then stays ignored.
    before = {
        each: signal.signal(each, signal.SIG_DFL)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
        server.run(None, {}, ServeOptions(port=0), Limits())
        assert shown and made[0].should_exit
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.fixture
def start(processes):
    """Starts the command in its own process."""
    argv = [f"--workdir={exports.workdir()}", "--port=0"]
    argv.append(f"--request_seconds={MINUTES}")
    return lambda: processes.start(argv, "none", "trainers.serve", "script")


@pytest.mark.parametrize("text", ["\nprograms: ", ", warming up\n"])
def test_a_server_that_is_ended_while_it_warms_up_ends_well(start, text):
    """A thread may still be in TensorFlow."""
    process = start()
    assert "ready" not in process.read_until(text)
    process.send_signal(signal.SIGTERM)
    process.ends(0)


def test_sighup_reads_glossaries_and_keys_again(tmp_path, processes):
    (tmp_path / "cars.tsv").write_text("dog\tHund\n")
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    argv = [f"--workdir={exports.workdir()}", "--port=0"]
    argv += [f"--glossaries={tmp_path}", f"--api_keys={keys}"]
    process = processes.start(argv, "none", "trainers.serve", "script")
    process.read_until("warming up\n")
    (tmp_path / "cars.tsv").rename(tmp_path / "trees.tsv")
    process.send_signal(signal.SIGHUP)
    process.read_until("glossaries: trees; API keys: 1\n")
    process.send_signal(signal.SIGTERM)
    process.ends(0)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *later("options", signal.SIGHUP)]
)
def test_a_server_that_is_ended_under_load_loses_no_request(start, number):
    """It also leaves no file behind."""
    sentences = [*(s for s, _ in exports.make_pairs(40)), "", "  one dog "]
    process = start()
    text = process.read_until("\nready\n")
    [url] = re.findall(r"listening at (\S+),", text)
    file = {"file": ("a.txt", "one dog")}
    sent = httpx.post(
        f"{url}/translate_file", data=BOTH, files=file, timeout=MINUTES
    )
    secret = sent.json()["translatedFileUrl"].split("/")[-1].split(".")[0]
    temporary = pathlib.Path(tempfile.gettempdir())
    [written] = temporary.glob(f"translated-*/{secret}")
    answers = asyncio.run(load_and_end(url, sentences, process, number))
    process.ends(0)
    assert not written.parent.exists()
    expected = exports.translator().translate(sentences)
    # What had arrived before the signal is answered, the rest is refused.
    assert all(answer is not None for answer in answers[:30])
    for response, wanted in zip(answers, expected, strict=True):
        if response is not None:
            [translation] = response.raise_for_status().json()["translations"]
            assert translation["text"] == wanted


async def load_and_end(url, sentences, process, number):
    """Sends requests, and a signal after one answer. Returns the answers."""
    async with httpx.AsyncClient(base_url=url, timeout=MINUTES) as client:

        async def send(sentence):
            fields = {"text": [sentence], "target": "de", "split": False}
            try:
                return await client.post("/v1/translate", json=fields)
            except httpx.TransportError:  # it does not listen any more
                return None
            finally:
                arrived.release()

        arrived = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(send(s)) for s in sentences[:30]]
        await arrived.acquire()
        await client.get("/health")  # so the server has read all that was sent
        process.send_signal(number)
        tasks += [asyncio.create_task(send(s)) for s in sentences[30:]]
        return await asyncio.gather(*tasks)


# ---- Small requests that could stop the server -------------------------------


@pytest.mark.parametrize(
    "charset", ["undefined", "punycode", "idna", "utf-7", "no-such", "hex"]
)
def test_a_form_in_a_wrong_charset_is_refused(served, charset):
    parts = {"q": "+2AA-", **BOTH}
    head = "--B\r\nContent-Disposition: form-data; name="
    body = "".join(
        f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in parts.items()
    )
    body = f"{body}--B--\r\n"
    kind = f"multipart/form-data; boundary=B; charset={charset}"
    headers = {"Content-Type": kind}
    answer = served.client.post("/translate", content=body, headers=headers)
    assert answer.status_code == 400, (charset, answer.text)
