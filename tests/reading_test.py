"""Processes that read files: their limits, and what others notice of them."""

import asyncio

import pytest

from keras_transformer import documents
from trainers.serving import reading
from trainers.serving.reading import Readers

LARGE = b"a " * 2_000_000


@pytest.fixture
def readers():
    readers = Readers(memory=96 << 20)
    yield readers
    readers.close()


def read(readers, data, name="a.html"):
    return readers.advance(data, name, ("en", "de"), bool, [])


def test_a_file_that_takes_too_much_ends_its_process_alone(readers):
    """Memory; a file beside it and the files after it are read."""

    async def work():
        hostile = asyncio.ensure_future(read(readers, LARGE, "a.txt"))
        beside = await read(readers, b"<p>One.</p>")
        with pytest.raises(ValueError, match="within 80 seconds and 96 MiB"):
            await hostile
        return beside, await read(readers, b"<p>Two.</p>")

    beside, after = asyncio.run(work())
    assert beside[0].items == ["One."] and after[0].items == ["Two."]


def test_seconds_of_the_cpu_are_limited(readers, monkeypatch):
    """The limit of the kernel: no code of ours runs when it is reached."""
    endless = "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 1))"
    command = [reading.sys.executable, "-c", f"{endless}\nwhile True: pass"]
    start = reading.subprocess.Popen
    monkeypatch.setattr(
        reading.subprocess,
        "Popen",
        lambda _, **others: start(command, **others),
    )
    with pytest.raises(ValueError, match="Received: one that takes more"):
        asyncio.run(read(readers, b"<p>One.</p>"))


def test_a_request_that_is_given_up_ends_its_process(readers):
    async def work():
        task = asyncio.ensure_future(read(readers, LARGE, "a.txt"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await read(readers, LARGE[:1000], "a.txt")

    assert len(asyncio.run(work())[0].items) == 1


def test_all_stages_are_those_of_a_document(readers):
    """Each in a process that has not seen the ones before."""
    data = b"<p>Press <b>%s</b> now.</p><p>Two</p>"

    def translate(text):
        return text.upper().replace("%S", "")

    async def work():
        results, kinds = [], []
        while True:
            stage, _ = await readers.advance(
                data, "a.html", ("en", "de"), bool, results
            )
            if not isinstance(stage, documents.Stage):
                return kinds, stage
            kinds.append(stage.kind)
            if stage.kind == "translate":
                results.append(list(map(translate, stage.items)))
            else:
                results.append([[] for _ in stage.items])

    kinds, translated = asyncio.run(work())
    document = documents.parse(data, "html", "en")
    expected = documents.translate(
        document,
        lambda texts: list(map(translate, texts)),
        lambda pairs: [[] for _ in pairs],
    )
    assert kinds == ["translate", "translate", "align"]
    assert translated == expected
