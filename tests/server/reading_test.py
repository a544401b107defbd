"""Processes that read files: their limits, and the effect on others."""

import asyncio
import io
import os
import signal

import pytest
from starlette.exceptions import HTTPException

from keras_transformer import documents
from trainers.serving import reading
from trainers.serving.reading import Readers
from trainers.serving.requests import BadRequest

LARGE = b"a " * 2_000_000


@pytest.fixture
def readers():
    readers = Readers(memory=96 << 20)
    yield readers
    readers.close()


def read(readers, data, name="a.html", client=""):
    file = io.BytesIO(data)
    return readers.advance(client, file, name, ("en", "de"), bool, [])


def test_a_file_that_takes_too_much_ends_its_process_alone(
    readers, monkeypatch
):
    """Memory; a file beside it and the files after it are read."""
    monkeypatch.setattr(reading, "MEMORY_PER_BYTE", 0)

    async def work():
        hostile = asyncio.ensure_future(read(readers, LARGE, "a.txt"))
        beside = await read(readers, b"<p>One.</p>")
        with pytest.raises(BadRequest, match="within 80 seconds and 96 MiB"):
            await hostile
        return beside, await read(readers, b"<p>Two.</p>")

    beside, after = asyncio.run(work())
    assert beside[0].items == ["One."] and after[0].items == ["Two."]


def test_many_lines_have_memory(readers):
    lines = b"The dog.\n" * 60_000
    step, _ = asyncio.run(read(readers, lines, "a.txt"))
    assert step.items == ["The dog."] * 60_000


def starts(monkeypatch, code):
    """Makes the readers start another program."""
    start, command = reading.subprocess.Popen, [reading.sys.executable, "-c"]
    monkeypatch.setattr(
        reading.subprocess,
        "Popen",
        lambda _, **others: start([*command, code], **others),
    )


def test_a_process_that_cannot_start_is_no_fault_of_the_file(
    readers, monkeypatch
):
    def refused(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    starts(monkeypatch, "import missing")
    for _ in range(2):
        with pytest.raises(HTTPException) as failure:
            asyncio.run(read(readers, b"<p>One.</p>"))
        assert failure.value.status_code == 503
        assert "Retry-After" in failure.value.headers
        monkeypatch.setattr(reading.subprocess, "Popen", refused)


def test_modules_of_the_working_directory_are_not_run(
    readers, monkeypatch, tmp_path
):
    (tmp_path / "regex.py").write_text("open('run', 'w'); 1 / 0")
    monkeypatch.setattr(
        reading.sys, "path", ["", *map(os.path.abspath, reading.sys.path)]
    )
    monkeypatch.chdir(tmp_path)
    step, _ = asyncio.run(read(readers, b"<p>One.</p>"))
    assert step.items == ["One."] and not (tmp_path / "run").exists()


def test_clients_take_turns(readers):
    """A file of another client is read before the 16 of one client."""
    done = []

    async def one(client):
        await read(readers, b"<p>One.</p>", client=client)
        done.append(client)

    async def work():
        many = [asyncio.ensure_future(one("a")) for _ in range(16)]
        await asyncio.sleep(0)
        many[5].cancel()  # waits
        await asyncio.gather(one("b"), *many, return_exceptions=True)

    asyncio.run(work())
    assert done.count("a") == 15 and done.index("b") < 8
    assert not readers._all._last and readers._all._free == 2


def test_seconds_of_the_cpu_are_limited(readers, monkeypatch):
    """The limit of the kernel: no code of ours runs when it is reached."""
    endless = "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 1))"
    starts(monkeypatch, f"{endless}; print('+', flush=True)\nwhile 1: pass")
    with pytest.raises(BadRequest, match="Received: one that takes more"):
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
    """Each stage runs in a process that has not seen the earlier ones."""
    data = b"<p>Press <b>%s</b> now.</p><p>Two</p>"

    def translate(text):
        return text.upper().replace("%S", "")

    async def work():
        results, kinds = [], []
        while True:
            stage, _ = await readers.advance(
                "", io.BytesIO(data), "a.html", ("en", "de"), bool, results
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


def test_large_files_leave_a_process_to_small_ones(readers):
    async def work():
        await readers._large.acquire()  # as by another large file
        large = asyncio.ensure_future(
            read(readers, b"a " * reading.SMALL, "a.txt")
        )
        one = read(readers, b"<p>One.</p>")
        small = await asyncio.wait_for(one, 600)
        assert small[0].items == ["One."] and not large.done()
        readers._large.release()
        return await large

    stage, _ = asyncio.run(work())
    assert sum(map(len, stage.items)) > reading.SMALL


def test_signals_to_all_processes_leave_the_readers(readers):
    """Ctrl-C, and systemd, tell all; what was accepted must be finished."""

    async def work():
        await read(readers, b"<p>One.</p>")
        [process] = readers._free
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        assert (await read(readers, b"<p>Two.</p>"))[0].items == ["Two."]
        assert readers._free == [process]
        process.stdin.close()  # as when the server ends
        assert process.wait(60) == 0
        # One that has ended is not asked.
        return await read(readers, b"<p>Three.</p>")

    assert asyncio.run(work())[0].items == ["Three."]


def test_a_failure_is_no_large_file_and_is_logged_without_the_text(
    readers, capfd
):
    async def work():
        fits = {}.__getitem__  # KeyError of the text
        file = io.BytesIO(b"<p>Secret.</p>")
        with pytest.raises(RuntimeError, match="a file cannot be read"):
            await readers.advance("", file, "a.html", ("en", "de"), fits, [])
        return await read(readers, b"<p>Two.</p>")

    assert asyncio.run(work())[0].items == ["Two."]
    logged = capfd.readouterr().err
    assert "KeyError" in logged and "in advance" in logged
    assert "Secret" not in logged


def test_a_file_that_waits_is_not_in_memory(readers):
    """It is read when a process is free for it."""
    seen = []

    class File(io.BytesIO):
        def read(self, *size):
            seen.append(size)
            return super().read(*size)

    async def work():
        for _ in range(reading.NUM_PROCESSES):
            await readers._all.acquire()
        file = File(b"<p>One.</p>")
        task = asyncio.ensure_future(
            readers.advance("", file, "a.html", ("en", "de"), bool, [])
        )
        await asyncio.sleep(0)
        assert not seen and not task.done()
        readers._all.release()
        return await task

    assert asyncio.run(work())[0].items == ["One."] and seen
