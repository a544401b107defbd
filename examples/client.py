"""Translates standard input by a server of `kt-serve`, line by line.

python examples/client.py http://127.0.0.1:8080 en de < sentences.txt
"""

import json
import sys
import urllib.error
import urllib.request


def main(url, source, target, lines):
    fields = {"q": [*lines], "source": source, "target": target}
    request = urllib.request.Request(
        f"{url}/translate",
        json.dumps(fields).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            print(*json.load(answer)["translatedText"], sep="\n")
    except urllib.error.HTTPError as refusal:  # with the reason in its body
        raise SystemExit(f"client.py: {json.load(refusal)['error']}") from None
    except urllib.error.URLError as error:
        raise SystemExit(f"client.py: {url}: {error.reason}") from None


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.stdin.read().splitlines())
