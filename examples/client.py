"""Translates standard input by a server of `trainers.serve`, line by line.

python examples/client.py http://127.0.0.1:8080 en de < sentences.txt
"""

import json
import sys
import urllib.request


def main(url, source, target, lines):
    fields = {"q": [*lines], "source": source, "target": target}
    request = urllib.request.Request(
        f"{url}/translate",
        json.dumps(fields).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        print(*json.load(answer)["translatedText"], sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.stdin.read().splitlines())
