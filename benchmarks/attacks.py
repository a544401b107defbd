"""A server under each attack, beside a client of short requests.

    python benchmarks/attacks.py --workdir=DIR [--seconds=15] [--settle=60]
        [ATTACK ...]
        [-- --engine=ctranslate2 ...]

Starts `trainers.serve` with the flags after `--`. A client sends a sentence
after the other for --seconds, alone; then again beside each attack, which three
other clients repeat as soon as it is answered. The table has the answers of
the attack, the requests that the client lost, the 99th percentile of its
latencies with and without the attack, and the peak memory of the server and
its processes above the memory before.
"""

import argparse
import collections
import io
import json
import pathlib
import subprocess
import sys
import threading
import time
import zipfile

import httpx
import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
SENTENCE = "The man reads a book."
ATTACKERS = 3
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPES = (
    '<Types><Override PartName="/word/document.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>'
    '<Override PartName="/word/comments.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.wordprocessingml.comments+xml"/></Types>'
)


def docx(body="<w:p/>", comments="<none/>"):
    """A Word document."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr(
            "word/document.xml",
            f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
        )
        archive.writestr("word/comments.xml", comments)
    return file.getvalue()


def glossary(forms, texts=120):
    """A body with one term."""
    words = "|".join(f"Buch{i}" for i in range(forms))
    return {
        "q": [SENTENCE] * texts,
        "source": "en",
        "target": "de",
        "glossary": {"book": words},
    }


def text(q, **fields):
    return {"q": q, "source": "en", "target": "de", **fields}


def attacks():
    """The request: a body of /translate, or the name and bytes of a file."""
    run = "<w:r><w:instrText>x</w:instrText></w:r>"
    begin = '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    return {
        "glossary of 600 forms": glossary(600),
        "glossary of 60 forms": glossary(60),
        "glossary of 1000 terms": text(
            "a " * 4000, glossary={"a " * i + f"x{i}": "b" for i in range(90)}
        ),
        "a text of one letter": text("x" * 9000),
        "comments of >": ("a.docx", docx(comments=f"<c>{'>' * 300_000}</c>")),
        "1.7 million paragraphs": ("a.docx", docx("<w:p/>" * 1_700_000)),
        "100,000 parts of a field": (
            "a.docx",
            docx(begin + run * 90_000 + "</w:p>"),
        ),
        "alt and spaces": (
            "a.html",
            b"<p>a</p><img alt=" + b" " * 300_000 + b">",
        ),
        "braces": ("a.html", b"<p><a " + b"{{ " * 100_000),
        "meta": ("a.html", b"<meta" * 100_000),
        "3.9 MB in one line": ("a.txt", b"The man reads a book. " * 177_000),
        "150,000 paragraphs": ("a.txt", b"The man reads a.\n\n" * 150_000),
        "spaces in a catalogue": (
            "a.po",
            b"# a" + b" " * 300_000 + b'x\nmsgid "One."\nmsgstr ""\n',
        ),
    }


def memory(pid):
    """MiB that a process and its children have, in RAM."""
    total = 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":", 1) for line in status.read_text().splitlines()
            )
        except OSError:
            continue
        if pid in (int(fields["Pid"]), int(fields["PPid"])):
            total += int(fields.get("VmRSS", "0 kB").split()[0])
    return total / 1024


class Victim:
    """The client of short requests."""

    def __init__(self, url, pid):
        self._url, self._pid = url, pid

    def run(self, seconds):
        """Latencies, lost requests, and the peak memory."""
        latencies, lost, peak = [], 0, 0.0
        end = time.monotonic() + seconds
        with httpx.Client(timeout=120) as client:
            while time.monotonic() < end:
                begin = time.monotonic()
                try:
                    answer = client.post(
                        f"{self._url}/translate", json=text(SENTENCE)
                    )
                    lost += answer.status_code != 200
                except httpx.HTTPError:
                    lost += 1
                latencies.append(time.monotonic() - begin)
                peak = max(peak, memory(self._pid))
        return latencies, lost, peak


def attack(url, sent, stop, answers):
    with httpx.Client(timeout=120) as client:
        while not stop.is_set():
            begin = time.monotonic()
            try:
                if isinstance(sent, dict):
                    answer = client.post(f"{url}/translate", json=sent)
                else:
                    answer = client.post(
                        f"{url}/translate_file",
                        data={"source": "en", "target": "de"},
                        files={"file": sent},
                    )
                answers[answer.status_code] += 1
            except httpx.HTTPError as error:
                answers[type(error).__name__] += 1
            stop.wait(max(0.0, 0.2 - time.monotonic() + begin))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument(
        "--settle",
        type=float,
        default=60.0,
        help="seconds in which the server makes its late programs",
    )
    parser.add_argument("attacks", nargs="*")
    own, flags = sys.argv[1:], []
    if "--" in own:
        flags = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    chosen = parser.parse_args(own)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "trainers.serve", "--port=0"),
            *(f"--workdir={chosen.workdir}", *flags),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run(process, chosen)
    finally:
        process.terminate()
        print("exit status after SIGTERM:", process.wait())


def run(process, chosen):
    url = ""
    for line in process.stdout:
        if "listening at" in line:
            url = line.split("listening at ")[1].split(",")[0]
        if "warming up" not in line:
            print(line, end="", flush=True)
        if line.strip() == "ready":
            break
    drain = threading.Thread(target=process.stdout.read, daemon=True)
    drain.start()
    time.sleep(chosen.settle)  # else their making is measured, too
    victim = Victim(url, process.pid)
    victim.run(3)
    print("attack | answers | client | lost | p50 | p99 | ratio | MiB above")
    for name, sent in attacks().items():
        if chosen.attacks and not any(a in name for a in chosen.attacks):
            continue
        before, _, _ = victim.run(chosen.seconds)
        usual = memory(process.pid)
        stop, answers = threading.Event(), collections.Counter()
        threads = [
            threading.Thread(target=attack, args=(url, sent, stop, answers))
            for _ in range(ATTACKERS)
        ]
        for thread in threads:
            thread.start()
        latencies, lost, peak = victim.run(chosen.seconds)
        stop.set()
        for thread in threads:
            thread.join()
        p99 = [float(np.percentile(x, 99)) for x in (before, latencies)]
        print(
            f"{name} | {json.dumps(answers)} | {len(latencies)} | {lost}"
            f" | {np.median(latencies):.3f} | {p99[1]:.3f}"
            f" | {p99[1] / p99[0]:.1f} | {peak - usual:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
