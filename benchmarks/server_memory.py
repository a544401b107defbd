"""The memory and the threads of the server, by engine and size of the model.

    python benchmarks/server_memory.py --workdirs=runs/small,runs/base \
        --text=FILE [--requests=200]

Each work directory and engine has one server. It is measured when it is ready,
when it has made all programs, and after requests from some clients at a time
and then a file. Linux reports the resident memory, and the part that no other
process shares, which a second server would take. No time is measured, so
CTranslate2, which has a worker for each core, may have more workers than there
are cores.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import httpx
import results

from keras_transformer.storage.checkpoints import Checkpoint
from keras_transformer.storage.workdir import WorkDirectory

CLIENTS = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workdirs", required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--cores", default="1,2,4,8")
    parser.add_argument("--engines", default="native,ctranslate2")
    results.add_flag(parser)
    arguments = parser.parse_args()
    lines = arguments.text.read_text().splitlines()[: arguments.requests]
    rows = []
    for workdir in arguments.workdirs.split(","):
        for engine in arguments.engines.split(","):
            for cores in map(int, arguments.cores.split(",")):
                if engine == "native" and cores > os.cpu_count():
                    continue
                row = {"weights, MB": model_size(workdir), "engine": engine}
                row["cores"] = cores
                rows.append(row | measure(workdir, engine, cores, lines))
                print(json.dumps(rows[-1]), flush=True)
    if arguments.record:
        results.record(
            "server_memory",
            "The memory of the server",
            {"servers": rows},
            notes=f"{len(lines)} requests of {CLIENTS} clients",
        )


def model_size(workdir):
    """Returns the megabytes of the weights, in float32."""
    shapes = Checkpoint(WorkDirectory(workdir).choose_checkpoint()).shapes
    return round(4e-6 * sum(map(math.prod, shapes.values())))


def measure(workdir, engine, cores, lines):
    """Runs a server. Returns its memory and threads, as Linux reports them."""
    code = (
        "import os;"
        f"os.sched_setaffinity(0, range(min({cores}, os.cpu_count())));"
        "from keras_transformer import machine;"
        f"machine.count_cores = lambda *_: {cores};"
        "from trainers import serve; serve.script()"
    )
    command = ["-c", code, f"--workdir={workdir}", "--port=0"]
    command += [f"--engine={engine}", "--request_seconds=1e5"]
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=results.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            url = re.search(r"at (\S+),", process.stdout.readline())[1]
            ready = None
            for line in process.stdout:
                if found := re.match(r"warming up: (\d+) of (\d+)", line):
                    done, programs = map(int, found.groups())
                elif line == "ready\n":
                    ready, _ = memory_of(process.pid)
                if ready and done == programs:
                    break
            else:
                raise RuntimeError("the server has ended")
            complete, _ = memory_of(process.pid)
            ask(url, lines)
            loaded, private = memory_of(process.pid)
            [children] = pathlib.Path(f"/proc/{process.pid}/task").glob(
                f"{process.pid}/children"
            )
            readers = [
                memory_of(int(pid))[0] for pid in children.read_text().split()
            ]
            threads = len(
                list(pathlib.Path(f"/proc/{process.pid}/task").iterdir())
            )
            return {
                "programs": programs,
                "ready, MB": ready,
                "all programs, MB": complete,
                "after requests, MB": loaded,
                "not shared, MB": private,
                "threads": threads,
                "reader of files, MB": max(readers),
            }
        finally:
            process.terminate()


def ask(url, lines):
    """Sends each line, then all lines as a file."""
    with httpx.Client(base_url=url, timeout=None) as client:
        [language, *_] = client.get("/languages").json()
        both = {"source": language["code"], "target": language["targets"][0]}

        def send(line):
            fields = {"q": line, **both}
            client.post("/translate", json=fields).raise_for_status()

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(send, lines))
        file = {"file": ("a.txt", "\n".join(lines[:8]))}
        answer = client.post("/translate_file", data=both, files=file)
        answer.raise_for_status()


def memory_of(pid):
    """Returns the megabytes of a process that are resident, and unshared."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()

    def total(names):
        found = re.findall(rf"^(?:{names}):\s+(\d+) kB", text, re.M)
        return sum(map(int, found)) // 1000

    return total("Rss"), total("Private_Clean|Private_Dirty")


if __name__ == "__main__":
    main()
