"""A server under load: throughput, latency, lost and wrong answers, memory.

    python benchmarks/serve_load.py --workdir=DIR --text=FILE
        [--loads 0.5 1 3] [--requests=10000] [--engine=ctranslate2]
        [--glossary=DIR/NAME.tsv] [--libretranslate=URL]
        [-- --max_batch_tokens=4096 ...]

Starts `trainers.serve` with the flags after `--`, and measures its capacity:
answers per second to a few clients that send their next request immediately.
Then requests arrive at random times (a Poisson process), whether or not earlier
ones are answered, at each multiple of the capacity, for the same time:
--requests arrive at the highest. Every answer is compared with
`trainers.translate`. The rounding of a product depends on the shape of its
batch, so hypotheses of equal score may change places. An answer that differs is
wrong if no batch of 1 to 32 copies of the line gives it. The load generator is
a separate process on the same machine. --libretranslate also sends the same
requests to another running server, at that server's capacity, without comparing
the answers. With --glossary, the server has the directory, and each request
names the glossary.
"""

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys
import time
import typing
import urllib.parse

import numpy as np
from results import add_flag, markdown, record

ROOT = pathlib.Path(__file__).parents[1]
CLIENTS = 32  # clients that measure the capacity
CAPACITY_SECONDS = 10.0
TIMEOUT = 120.0  # seconds that a client waits
# Flags of each engine, with a search that it supports.
ENGINES = {
    "native": [],
    "ctranslate2": ["--engine=ctranslate2"],
}


def main():
    arguments = parse_arguments()
    text = arguments.text.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    glossary = arguments.glossary
    expected = Expected(arguments.workdir, lines, arguments.engine, glossary)
    fields = {"source": arguments.source, "target": arguments.target}
    rows = []
    flags = [*ENGINES[arguments.engine], *arguments.flags]
    if glossary:
        fields["glossary"] = glossary.stem
        flags.append(f"--glossaries={glossary.parent}")
    with server(arguments.workdir, flags) as (process, url):
        rows += measure(
            f"trainers.serve, {arguments.engine}",
            url,
            lines,
            expected,
            fields,
            arguments,
            process,
        )
        process.terminate()
        status = process.wait()
    print(f"exit status after SIGTERM: {status}")
    if arguments.libretranslate:
        rows += measure(
            "LibreTranslate",
            arguments.libretranslate,
            lines,
            None,
            fields,
            arguments,
        )
    print(markdown(rows))
    if arguments.record:
        name, title = "serve_load", "The server under load"
        if not arguments.libretranslate:
            name += f"_{arguments.engine}"
            title += f", engine {arguments.engine}"
        if glossary:
            name, title = f"{name}_glossary", f"{title}, with a glossary"
        record(name, title, {"loads": rows})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--text", type=pathlib.Path, required=True, help="one sentence a line"
    )
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1, 3])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, default="native")
    parser.add_argument("--glossary", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--libretranslate", metavar="URL")
    parser.add_argument("flags", nargs="*", help="of trainers.serve")
    add_flag(parser)
    return parser.parse_args()


class Expected:
    """The translations of lines by `trainers.translate`.

    Attributes:
        plain: The translation of each line, from a batch of all lines.
    """

    def __init__(self, workdir, lines, engine, glossary):
        self._workdir, self._lines, self._engine = workdir, lines, engine
        self._glossary = glossary
        self._translator = None
        self._all = {}
        command = (sys.executable, "-m", "trainers.translate")
        found = subprocess.run(
            [
                *(*command, f"--workdir={workdir}", *ENGINES[engine]),
                *([f"--glossary={glossary}"] if glossary else []),
            ],
            cwd=ROOT,
            input="".join(line + "\n" for line in lines),
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        )
        self.plain = found.stdout.split("\n")[:-1]

    def all(self, i):
        """Returns the translations of line `i` in batches of several sizes."""
        if self._translator is None:
            self._translator = self._load()
        if i not in self._all:
            batches = [[self._lines[i]] * rows for rows in (1, 2, 4, 8, 16, 32)]
            self._all[i] = {
                translation
                for batch in batches
                for translation in self._translator.translate(batch)
            }
        return self._all[i]

    def _load(self):
        from keras_transformer.config import DecodingConfig
        from keras_transformer.storage.workdir import WorkDirectory
        from keras_transformer.translation.glossary import Glossary
        from keras_transformer.translation.requests import Terminology
        from keras_transformer.translator import Translator

        decoding = WorkDirectory(self._workdir).read_section(
            "decoding", DecodingConfig
        )
        if self._engine != "native":
            decoding = dataclasses.replace(decoding, stopping="fairseq")
        translator = Translator.load(
            self._workdir, decoding, engine=self._engine
        )
        if not self._glossary:
            return translator
        glossary = Glossary.read(self._glossary)
        return translator.with_terminology(Terminology(glossary))


@contextlib.contextmanager
def server(workdir, flags):
    """Yields the process of a ready server, and its URL."""
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "trainers.serve", f"--workdir={workdir}"),
            *("--port=0", *flags),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            url = re.search(r"listening at (\S+),", line)[1]
            if "ready\n" not in process.stdout:
                raise RuntimeError("the server did not become ready")
            yield process, url
        finally:
            process.terminate()


def measure(name, url, lines, expected, fields, arguments, process=None):
    """Measures a server. Returns a row for each load."""
    load = Load(url, lines, fields, arguments.seed)
    capacity = asyncio.run(load.find_capacity())
    print(f"{name}: {capacity:.1f} requests a second", flush=True)
    requests = arguments.requests / max(arguments.loads)  # at the capacity
    rows = []
    for factor in arguments.loads:
        answers, seconds = asyncio.run(
            load.arrive(factor * capacity, round(requests * factor))
        )
        memory = process and memory_of(process.pid)
        rows.append(
            {
                "server": name,
                "load": factor,
                "arrivals/s": round(factor * capacity, 1),
                **summarize(answers, seconds, expected),
                "memory, MB": memory,
            }
        )
        print(rows[-1], flush=True)
    return rows


class Answer(typing.NamedTuple):
    """The answer to a request.

    Attributes:
        line: The number of the line that was sent.
        status: The HTTP status, or None if no answer came.
        text: The translation, or None.
        seconds: The time from the arrival to the answer.
    """

    line: int
    status: int | None
    text: str | None
    seconds: float


def summarize(answers, seconds, expected):
    """Makes the columns of a row that describe the answers.

    Args:
        answers: List of `Answer`s.
        seconds: The time from the first arrival to the last answer.
        expected: The `Expected` translations, or None.
    """
    statuses = collections.Counter(answer.status for answer in answers)
    good = [answer for answer in answers if answer.status == 200]
    times = [1000 * answer.seconds for answer in good] or [0.0]
    p50, p99 = np.percentile(times, (50, 99))
    rejected = statuses[429] + statuses[503]
    row = {
        "requests": len(answers),
        "answers/s": round(len(good) / seconds, 1),
        "p50, ms": round(float(p50), 1),
        "p99, ms": round(float(p99), 1),
        "rejected": rejected,
        "lost": len(answers) - len(good) - rejected,
        "differ": None,
        "wrong": None,
    }
    if expected is not None:
        others = [a for a in good if a.text != expected.plain[a.line]]
        wrong = [a for a in others if a.text not in expected.all(a.line)]
        row |= {"differ": len(others), "wrong": len(wrong)}
        for answer in wrong:
            print(f"wrong: {expected.plain[answer.line]!r} {answer.text!r}")
    return row


class Load:
    """Requests of one line each, in LibreTranslate's API.

    Args:
        url: The URL of the server.
        lines: List of `str`.
        fields: The fields that every request has, besides its text.
        seed: Seed of arrivals and of the lines' order.
    """

    def __init__(self, url, lines, fields, seed):
        address = urllib.parse.urlsplit(url)
        self._host, self._port = address.hostname, address.port
        self._lines, self._fields = lines, fields
        self._random = random.Random(seed)

    async def find_capacity(self):
        """Returns the answers per second to clients that send at once."""
        started = time.perf_counter()
        answers = []

        async def repeat():
            while time.perf_counter() < started + CAPACITY_SECONDS:
                answers.append(await self._send(time.perf_counter()))

        await asyncio.gather(*(repeat() for _ in range(CLIENTS)))
        seconds = time.perf_counter() - started
        return sum(answer.status == 200 for answer in answers) / seconds

    async def arrive(self, rate, number):
        """Sends requests at random times. Returns the answers and the seconds.

        Args:
            rate: Mean number of arrivals per second.
            number: Number of requests.
        """
        started = arrival = time.perf_counter()
        tasks = []
        for _ in range(number):
            arrival += self._random.expovariate(rate)
            await asyncio.sleep(max(0.0, arrival - time.perf_counter()))
            # The time of a late arrival begins when it was due.
            tasks.append(asyncio.create_task(self._send(arrival)))
        answers = await asyncio.gather(*tasks)
        return answers, time.perf_counter() - started

    async def _send(self, started):
        """Sends a request on a connection of its own. Returns its `Answer`.

        It uses plain sockets, because the pools of HTTP libraries take time
        that grows with the number of open requests.
        """
        line = self._random.randrange(len(self._lines))
        body = json.dumps({"q": self._lines[line], **self._fields}).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nHost: {self._host}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        status = text = None
        try:
            async with asyncio.timeout(TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port
                )
                writer.write(head.encode() + body)
                answer = await reader.read()
                writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head.split(maxsplit=2)[1])
            text = json.loads(body).get("translatedText")
        except (OSError, TimeoutError, ValueError, IndexError):
            pass
        return Answer(line, status, text, time.perf_counter() - started)


def memory_of(pid):
    """Returns the resident MiB of a process, on Linux."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) // 1024


if __name__ == "__main__":
    main()
