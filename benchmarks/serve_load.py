"""A server under load: throughput, latency, lost and wrong answers, memory.

    python benchmarks/serve_load.py --workdir=DIR --text=FILE
        [--loads 0.5 1 3] [--requests=10000] [--libretranslate=URL]
        [-- --max_batch_tokens=4096 ...]

Starts `trainers.serve` with the flags after `--`, and measures its capacity:
answers a second to a few clients that send their next request at once. Then
requests arrive at random times (a Poisson process), whether or not earlier ones
are answered, at each multiple of the capacity. Every answer is compared with
`trainers.translate`. The load generator is a process of its own on the same
machine. --libretranslate also drives another server, which must run already,
by the same requests at its own capacity; nothing is compared there.
"""

import argparse
import asyncio
import collections
import contextlib
import pathlib
import random
import re
import subprocess
import sys
import time

import httpx
import numpy as np
from results import add_flag, markdown, record

ROOT = pathlib.Path(__file__).parents[1]
CLIENTS = 32  # that measure the capacity
CAPACITY_SECONDS = 10.0
TIMEOUT = 120.0  # seconds that a client waits


def main():
    arguments = parse_arguments()
    text = arguments.text.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    expected = translate(arguments.workdir, lines)
    languages = {"source": arguments.source, "target": arguments.target}
    rows = []
    with server(arguments.workdir, arguments.flags) as (process, url):
        rows += measure(
            "trainers.serve",
            url,
            lines,
            expected,
            languages,
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
            languages,
            arguments,
        )
    print(markdown(rows))
    if arguments.record:
        record("serve_load", "The server under load", {"loads": rows})


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
    parser.add_argument("--libretranslate", metavar="URL")
    parser.add_argument("flags", nargs="*", help="of trainers.serve")
    add_flag(parser)
    return parser.parse_args()


def translate(workdir, lines):
    """The translations of `trainers.translate`."""
    found = subprocess.run(
        [sys.executable, "-m", "trainers.translate", f"--workdir={workdir}"],
        cwd=ROOT,
        input="".join(line + "\n" for line in lines),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    return found.stdout.split("\n")[:-1]


@contextlib.contextmanager
def server(workdir, flags):
    """The process of a server that is ready, and its URL."""
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
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the server did not become ready")
            yield process, url
        finally:
            process.terminate()


def measure(name, url, lines, expected, languages, arguments, process=None):
    """The rows of a server, one for each load."""
    load = Load(url, lines, languages, arguments.seed)
    capacity = asyncio.run(load.find_capacity())
    print(f"{name}: {capacity:.1f} requests a second", flush=True)
    rows = []
    for factor in arguments.loads:
        answers, seconds = asyncio.run(
            load.arrive(factor * capacity, arguments.requests)
        )
        rows.append(
            {
                "server": name,
                "load": factor,
                "arrivals/s": round(factor * capacity, 1),
                **summarize(answers, seconds, expected),
                "memory, MB": process and memory_of(process.pid),
            }
        )
        print(rows[-1], flush=True)
    return rows


def summarize(answers, seconds, expected):
    """The columns of a row that describe the answers.

    Args:
        answers: List of the line's number, the status (None: there was no
            answer), the translation and the seconds.
        seconds: From the first arrival to the last answer.
        expected: The right translations by number, or None.
    """
    statuses = collections.Counter(status for _, status, _, _ in answers)
    good = [answer for answer in answers if answer[1] == 200]
    times = [1000 * answer[3] for answer in good] or [0.0]
    p50, p99 = np.percentile(times, (50, 99))
    wrong = None
    if expected is not None:
        wrong = sum(text != expected[i] for i, _, text, _ in good)
    return {
        "requests": len(answers),
        "answers/s": round(len(good) / seconds, 1),
        "p50, ms": round(float(p50), 1),
        "p99, ms": round(float(p99), 1),
        "rejected": statuses[429] + statuses[503],
        "lost": len(answers) - len(good) - statuses[429] - statuses[503],
        "wrong": wrong,
    }


class Load:
    """Requests of a line each, in LibreTranslate's API.

    Args:
        url: The server's.
        lines: List of `str`.
        languages: The fields `source` and `target`.
        seed: Seed of arrivals and of the lines' order.
    """

    def __init__(self, url, lines, languages, seed):
        self._url, self._lines, self._languages = url, lines, languages
        self._random = random.Random(seed)

    async def find_capacity(self):
        """Answers a second to clients that are always waiting for one."""
        end = time.perf_counter() + CAPACITY_SECONDS
        answers = []

        async def repeat(client):
            while time.perf_counter() < end:
                answers.append(await self._send(client))

        async with self._client() as client:
            started = time.perf_counter()
            await asyncio.gather(*(repeat(client) for _ in range(CLIENTS)))
            seconds = time.perf_counter() - started
        return sum(status == 200 for _, status, _, _ in answers) / seconds

    async def arrive(self, rate, number):
        """Answers to requests that arrive at random, and the seconds it took.

        Args:
            rate: Mean number of arrivals in a second.
            number: Number of requests.
        """
        async with self._client() as client:
            started = arrival = time.perf_counter()
            tasks = []
            for _ in range(number):
                arrival += self._random.expovariate(rate)
                await asyncio.sleep(max(0.0, arrival - time.perf_counter()))
                # Late arrivals count from when they were due.
                tasks.append(asyncio.create_task(self._send(client, arrival)))
            answers = await asyncio.gather(*tasks)
            return answers, time.perf_counter() - started

    def _client(self):
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(
            base_url=self._url, timeout=TIMEOUT, limits=limits
        )

    async def _send(self, client, started=None):
        """A line's number, the status, the translation and the seconds."""
        number = self._random.randrange(len(self._lines))
        fields = {"q": self._lines[number], **self._languages}
        started = time.perf_counter() if started is None else started
        try:
            answer = await client.post("/translate", json=fields)
        except httpx.HTTPError:
            return number, None, None, None
        seconds = time.perf_counter() - started
        text = answer.json().get("translatedText")
        return number, answer.status_code, text, seconds


def memory_of(pid):
    """Resident memory of a process in megabytes, Linux."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) // 1024


if __name__ == "__main__":
    main()
