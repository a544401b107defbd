"""Malformed and hostile HTTP requests, as bytes."""

import itertools
import json

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
POSTS = ("/translate", "/detect", "/v1/translate", "/v1/attention")
GOOD = {
    "/translate": {"q": "a", "source": "en", "target": "de"},
    "/detect": {"q": "a"},
    "/v1/translate": {"text": "a", "source": "en", "target": "de"},
    "/v1/attention": {
        "text": "a",
        "translation": "b",
        "source": "en",
        "target": "de",
    },
}
WRONG_VALUES = (
    *(None, True, [], {}, [[]], [None], {"a": 1}, -1, 0, 1.5, 10**30),
    *("", "x", "\0", "auto", "../../etc/passwd", "x" * 5000),
)
OPTIONS = (
    *("source", "target", "format", "beam_size", "n_best", "seed", "split"),
    *("details", "length_penalty", "min_length", "no_repeat_ngram"),
    *("sampling", "temperature", "top_k", "top_p", "prefix"),
)
BODIES = (
    *(b"", b"null", b"1", b'"a"', b"[]", b"{", b"{}", b"}", b"\0", b"NaN"),
    *(b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b'{"q": "\xff"}', b"{'q': 1}"),
    *(b'{"q": NaN}', b'{"q": Infinity}', b'{"q": 1e999}', b'{"q": "a",}'),
    b'{"q": "a", "q": "b"}',
    b'{"q": {"a": 1, "a": 2}}',
    b'{"q": "\\ud800", "text": "\\ud800", "source": "en", "target": "de"}',
    b'{"q": ' + b"9" * 5000 + b"}",
    b'{"q": "' + b"a" * 300000 + b'"}',
    b"[" * 100000,
    b'{"q":' * 20000,
    b'{"q": "a\nb"}',
    b'{"\\u0000": 1}',
    json.dumps({"q": ["a"] * 5000, "text": ["a"] * 5000}).encode(),
    json.dumps({f"field{i}": i for i in range(5000)}).encode(),
    json.dumps({"q": "a" * 30000, "text": "a" * 30000}).encode(),
)
FORMATS = (
    *("xliff", "srt", "po", "markdown", "json", "yaml", "strings"),
    *("android", "resx", "stringsdict", "fluent", "properties"),
)
FORMS = (
    *(b"q", b"q=", b"=q", b"&&&&", b"%", b"q=%zz", b"q=%ff", b"q=%00"),
    b"&".join(b"q=a" for _ in range(5000)),
    b"q=" + b"a" * 300000,
    b"q=a&source=en&target=de&alternatives=-1",
    b"q=a&source=en&target=de&alternatives=1e9",
    b"q=a&source=en&target=de&alternatives=" + b"9" * 50,
    b"q=a&source=en&target=de&format=../../x",
    b"q=a&source=../..&target=/etc/passwd",
)
KINDS = (
    *("text/plain", "text/html", "application/xml", "", "application/json;x"),
    *("multipart/form-data", "multipart/form-data; boundary="),
    *("multipart/form-data; boundary=" + "b" * 500, "image/png", "\x80"),
    "application/x-www-form-urlencoded; charset=utf-7",
)
PATHS = (
    *("/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/x"),
    *("/page.html", "/static/../page.py", "/translate/../languages"),
    *("//etc/passwd", "/translate/", "/v1", "/v1/", "/v1/translate/x"),
    *("/%00", "/%ff", "/%", "/\\..\\..\\x", "/translate%00", "/.git/config"),
    *("/" + "a" * 9000, "/" + "a/" * 3000, "/?" + "q=a&" * 3000, "*"),
    *("/languages?q=<script>", "/<script>alert(1)</script>", "/;id", "/$(id)"),
    *("http://other.example/", "other.example:80", "/?q=%00", "/\u00e9"),
)
METHODS = ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X" * 50)
MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</textarea><svg onload=alert(1)>",
    "<!--" * 300,
    "<a " * 300,
    "<p>" * 500,
    "[" * 3000,
    "a: &a [*a]",
    "<item>a</item>",
    "&amp;" * 1000 + "&#0;&#xd800;&#x110000;",
    "{{7*7}} ${7*7} %s %n",
    '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><x>&b;</x>',
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
    "'; DROP TABLE users; --",
    "\u202e\u200b\ufeff\ufffe",
    "\x00\x01\x1b[31m",
    "\U0001f600" * 300,
    "a\u0301" * 2000,
    " " * 15000,
    ". " * 5000,
)


def http(method, path, body=b"", kind=JSON, length=None, headers=()):
    """Makes an HTTP request, as bytes."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def raw():
    """Yields names and requests that are not, or hardly, HTTP."""
    post = "POST /translate HTTP/1.1\r\nHost: a\r\n"
    for name, request in {
        "nothing but line ends": "\r\n" * 500,
        "no protocol": "GET /\r\n\r\n",
        "no path": "GET HTTP/1.1\r\n\r\n",
        "another protocol": "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        "no host": "GET /languages HTTP/1.1\r\n\r\n",
        "two hosts": "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "a header without a colon": "GET / HTTP/1.1\r\nHost: a\r\nx\r\n\r\n",
        "a header with a space": "GET / HTTP/1.1\r\nHost: a\r\nx : y\r\n\r\n",
        "a zero in a header": "GET / HTTP/1.1\r\nHost: a\r\nx: \0\r\n\r\n",
        "a folded header": "GET / HTTP/1.1\r\nHost: a\r\n b\r\nx\r\n\r\n",
        "many headers": "GET / HTTP/1.1\r\nHost: a\r\n" + "x: y\r\n" * 50000,
        "a long header": "GET / HTTP/1.1\r\nx: " + "y" * 300000,
        "a long name": "GET / HTTP/1.1\r\n" + "y" * 300000,
        "a long line": "GET /" + "y" * 300000,
        "a negative length": post + "Content-Length: -1\r\n\r\n",
        "a length in words": post + "Content-Length: ten\r\n\r\n",
        "a huge length": post + "Content-Length: 99999999999999999\r\n\r\n",
        "two lengths": post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "a length and chunks": post
        + "Content-Length: 3\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        "chunks of no size": post
        + "Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n0\r\n\r\n",
        "a huge chunk": post
        + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\na\r\n",
        "an unknown encoding": post + "Transfer-Encoding: gzip\r\n\r\n",
    }.items():
        yield name, request.encode("latin-1")


def hostile_requests():
    """Yields about 700 names and requests."""
    for path, (i, body) in itertools.product(POSTS, enumerate(BODIES)):
        yield f"{path}, body {i}", http("POST", path, body)
    for path, (i, form) in itertools.product(POSTS, enumerate(FORMS)):
        yield f"{path}, form {i}", http("POST", path, form, FORM)
    for path, kind in itertools.product(POSTS, KINDS):
        yield f"{path}, {kind[:40]}", http("POST", path, b"--b\r\n\r\n", kind)
    for name, value in itertools.product(OPTIONS, WRONG_VALUES):
        fields = GOOD["/v1/translate"] | {name: value}
        yield (
            f"{name}={str(value)[:20]!r}",
            http("POST", "/v1/translate", json.dumps(fields).encode()),
        )
    for path, text in itertools.product(POSTS, MARKUP):
        name = "text" if "v1" in path else "q"
        fields = GOOD[path] | {name: text, "format": "html"}
        if path == "/v1/attention":
            del fields["format"]
        body = json.dumps(fields).encode()
        yield f"{path}, text {text[:20]!r}", http("POST", path, body)
    for text_format, text in itertools.product(FORMATS, MARKUP):
        fields = GOOD["/v1/translate"] | {"text": text, "format": text_format}
        body = json.dumps(fields).encode()
        yield (
            f"{text_format}, text {text[:20]!r}",
            http("POST", "/v1/translate", body),
        )
    for path in PATHS:
        request = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        yield f"path {path[:30]}", request.encode("utf-8")
    for path, method in itertools.product(("/", *POSTS), METHODS):
        if (method, path) != ("GET", "/"):
            yield f"{method} {path}", http(method, path)
