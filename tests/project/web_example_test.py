"""examples/web: an ONNX export in Node.js and in a browser.

    python -m pytest -m npm

They need npm with its registry, and Chromium; they are left out otherwise.
"""

import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import threading

import browser
import exports
import pytest

pytestmark = pytest.mark.npm

WEB = pathlib.Path(__file__).parents[2] / "examples/web"
LINES = [
    "one dog",
    "",
    "the house is green",
    "one two three one two three one two three one two three red",  # truncated
    "a ☃ dog",
    "two red dogs and three green trees",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the example with its packages."""
    folder = tmp_path_factory.mktemp("npm") / "web"
    shutil.copytree(
        WEB, folder, ignore=shutil.ignore_patterns("node_modules", "export")
    )
    subprocess.run(
        ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (folder / "export").symlink_to(exports.exported("onnx")[0])
    return folder


def run(folder, export, lines):
    return subprocess.run(
        ["node", "translate.js", export],
        cwd=folder,
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
    )


def check(found):
    """Compares answers with the translator's.

    The graph reads "☃" as an unknown token; the translator copies it.
    """
    expected = exports.translator().translate(LINES)
    sign = LINES.index("a ☃ dog")
    assert "☃" in expected.pop(sign) and "☃" not in found.pop(sign)
    assert found == expected


def test_node_translates_as_the_translator(folder):
    found = run(folder, "export", LINES)
    assert (found.returncode, found.stderr) == (0, "line 4: truncated\n")
    check(found.stdout.splitlines())


def test_an_export_that_it_cannot_run_is_refused(folder, tmp_path):
    copy = tmp_path / "export"
    shutil.copytree(folder / "export", copy)
    path = copy / "export.json"
    description = json.loads(path.read_text())
    files = description["sha256"]
    for change in (
        {"language_places": {"before": "source_language"}},
        {"sha256": {**files, "tokenizer.segments.model": ""}},
        {"format": "ctranslate2"},
    ):
        path.write_text(json.dumps({**description, **change}))
        found = run(folder, str(copy), LINES[:1])
        assert (found.returncode, found.stdout) == (1, "")
        [line] = found.stderr.splitlines()
        assert line.startswith("expected an export of format=onnx")
    found = run(folder, "nowhere", LINES[:1])
    assert found.returncode == 1 and found.stderr.count("\n") == 1
    assert "nowhere/export.json" in found.stderr


STATUS = "document.querySelector('[role=status]')"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_the_page_translates_as_the_translator(folder, tmp_path):
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.Browser(tmp_path)
    try:
        page.visit(f"http://localhost:{server.server_port}/index.html")
        page.wait("!document.querySelector('button').disabled")
        page.evaluate("document.querySelector('textarea').focus()")
        page.type("\n".join(LINES))
        page.click("button")
        page.wait("document.querySelector('output').value")
        found = page.evaluate("document.querySelector('output').value")
        check(found.split("\n"))
        note = page.evaluate(
            "document.querySelector('[role=status]').innerText"
        )
        assert note == "Truncated: line 4"
        origin = f"http://localhost:{server.server_port}/"
        inside = (origin, "data:", "blob:")
        assert [u for u in page.requests if not u.startswith(inside)] == []
        assert page.errors == []
    finally:
        page.close()
        server.shutdown()
        server.server_close()
