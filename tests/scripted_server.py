"""A server with known translations, for tests of the server's page."""

import contextlib
import http.server
import json
import re
import threading
import urllib.parse

from trainers.serving import page

LANGUAGES = [
    {"code": code, "name": name, "targets": targets, "direction": direction}
    for code, name, targets, direction in (
        ("en", "English", ["de", "he"], "ltr"),
        ("de", "German", ["en"], "ltr"),
        ("he", "Hebrew", [], "rtl"),
    )
]
KEY = "secret.a%20b_de.txt"
TRANSLATED = b"translated"


class ScriptedServer(http.server.ThreadingHTTPServer):
    """A server that reverses the words of each line, in upper case.

    Each line of a text is a sentence. The language auto is English. A text in
    the target language stays. The translation of any file is `TRANSLATED`.

    Attributes:
        settings: The answer to /frontend/settings.
        failures: Answers (status, headers, error) to the next requests.
        gates: By text, or "attention", an event that the answer waits for.
        notes: The notes on every sentence.
        confidence: What the best hypothesis of every sentence has, or None.
        asked: The bodies of translation requests, in order.
        uploads: The forms of requests to translate a file, unparsed.
        attention: The form of the last request for an attention page.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.settings = {
            "charLimit": 100,
            "keyRequired": False,
            "supportedFilesFormat": [".docx", ".txt"],
            "glossaries": [],
            "maxTerms": 10,
            "adapters": [],
            "models": [],
            "attention": True,
            "search": {
                "beam_size": {"default": 4, "max": 8},
                "length_penalty": {"default": 0.6, "min": 0, "max": 10},
                "n_best": {"max": 3},
            },
        }
        self.failures, self.gates, self.notes = [], {}, []
        self.confidence = None
        self.asked, self.uploads, self.attention = [], [], None
        self.address = f"http://127.0.0.1:{self.server_port}/"


@contextlib.contextmanager
def serving():
    """Yields a running `ScriptedServer`."""
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def translated(line, n_best=1, notes=()):
    """Returns /v1/translate's answer for a sentence."""
    words = line.split()[::-1]
    last = len(words) - 1
    return {
        "source": line.strip(),
        "source_words": line.split(),
        "notes": list(notes),
        "hypotheses": [
            {
                "text": " ".join(words).upper() + "!" * i,
                "score": -0.25 - i,
                "words": [
                    {"text": word.upper(), "probability": 1 / (j + 1)}
                    for j, word in enumerate(words)
                ],
                "alignment": [[j, last - j] for j in range(last + 1)],
            }
            for i in range(n_best)
        ],
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of the page."""

    def do_GET(self):
        if self.path == "/":
            html, policy = page.render()
            self._send(html.encode(), "text/html", policy)
        elif self.path == "/favicon.ico":
            self._send(page.ICON, "image/svg+xml", "")
        elif self.path == "/languages":
            self._send_json(LANGUAGES)
        elif self.path == "/frontend/settings":
            self._send_json(self.server.settings)
        elif self.path == f"/download_file/{KEY}":
            name = {"Content-Disposition": 'attachment; filename="a b_de.txt"'}
            self._send(TRANSLATED, "application/octet-stream", "", 200, name)
        else:
            self.send_error(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/attention":
            self.server.attention = dict(urllib.parse.parse_qsl(body.decode()))
            asked = {"text": "attention"}
        elif self.path == "/translate_file":
            self.server.uploads.append(body.decode())
            asked = {"text": "file"}
        else:
            assert self.headers["Content-Type"] == "application/json"
            asked = json.loads(body)
            self.server.asked.append(asked)
        if asked["text"] in self.server.gates:
            self.server.gates[asked["text"]].wait()
        if self.server.failures:
            status, headers, error = self.server.failures.pop(0)
            self._send_json({"error": error}, status, headers)
            return
        if self.path == "/v1/attention":
            self._send(b"<!DOCTYPE html><p>attention", "text/html", "")
            return
        if self.path == "/translate_file":
            # Like a server behind a proxy that does not know its address.
            address = f"http://127.0.0.1:1/download_file/{KEY}"
            self._send_json(
                {"translatedFileUrl": address, "notes": self.server.notes}
            )
            return
        sentences = [
            {
                "before": before,
                **translated(line, asked.get("n_best", 1), self.server.notes),
            }
            for before, line in re.findall(r"(\s*)([^\n]*\S)", asked["text"])
        ]
        if self.server.confidence:
            for one in sentences:
                one["hypotheses"][0]["confidence"] = self.server.confidence
        text = "".join(
            one["before"] + one["hypotheses"][0]["text"] for one in sentences
        )
        text += asked["text"][len(asked["text"].rstrip()) :]
        source = "en" if asked["source"] == "auto" else asked["source"]
        if source == asked["target"]:
            text, sentences = asked["text"], []
        found = {"source": source, "text": text, "sentences": sentences}
        # The browser may have closed the connection.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send_json({"translations": [found]})

    def _send_json(self, value, status=200, headers=()):
        content = json.dumps(value).encode()
        self._send(content, "application/json", "", status, headers)

    def _send(self, content, kind, policy, status=200, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Logs nothing."""
