"""The operators' view of the server: log, metrics, signals, deployment."""

import json
import logging
import os
import pathlib
import re
import shutil
import signal
import threading
import time
import types
from xml.etree import ElementTree

import hostile_requests
import pages
import pytest
import yaml
from hostile_requests import http
from prometheus_client.parser import text_string_to_metric_families
from serving_page_test import digest_of
from serving_test import BOTH, Script, connect, running

from trainers.serving import access_log, app, page, server, spec

ROOT = pathlib.Path(__file__).parents[2]
COMMON_LOG = re.compile(
    r"(\S+) - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "
    r'"(.*)" (\d{3}) (\d+)'
)


@pytest.fixture(scope="module")
def served():
    with running({("en", "de"): Script(), ("fr", "de"): Script()}) as found:
        yield found


# ---- The access log ----------------------------------------------------------


def logged(path, number):
    """Returns the lines of requests, each written after its answer.

    Leaves out `GET /health`, which tests poll until the server is ready.
    """
    deadline = time.monotonic() + 600
    while True:
        text = path.read_text() if path.exists() else ""
        lines = [x for x in text.splitlines() if "/health" not in x]
        if len(lines) >= number or time.monotonic() > deadline:
            return lines
        time.sleep(0.01)


def test_a_line_for_each_answer_has_no_text_of_users(tmp_path):
    path = tmp_path / "access.log"
    options = {"access_log": str(path), "cors_origins": ("*",)}
    limits = {"max_body_bytes": 100}
    cors = {"Origin": "a", "Access-Control-Request-Method": "POST"}
    sent = [
        ("POST /translate", 200, "POST", "/translate?q=SECRET", BOTH),
        ("POST /translate", 400, "POST", "/translate?q=SECRET", {}),
        ("POST /translate", 413, "POST", "/translate", {"q": "SECRET" * 20}),
        ("GET /translate", 405, "GET", "/translate?q=SECRET", {}),
        ("GET /download_file/{key}", 404, "GET", "/download_file/SECRET", {}),
        ("GET -", 404, "GET", "/SECRET", {}),
        ("- -", 404, "SECRET", "/SECRET", {}),
        ("GET /languages", 200, "GET", "/languages", {}),
    ]
    with running(limits=limits, **options) as served:
        answers = [
            served.client.request(method, address, data=fields or None)
            for *_, method, address, fields in sent
        ]
        answers.append(served.client.options("/translate", headers=cors))
        lines = logged(path, len(answers))
        # As by logrotate: no signal, and no line is lost.
        path.rename(tmp_path / "access.log.1")
        served.client.get("/languages")
        [new] = logged(path, 1)
    found = [COMMON_LOG.fullmatch(line).groups() for line in lines]
    expected = [(f"{what} HTTP/1.1", status) for what, status, *_ in sent]
    expected.append(("OPTIONS - HTTP/1.1", 200))
    assert [(what, int(status)) for _, what, status, _ in found] == expected
    assert [int(size) for *_, size in found] == [
        len(a.content) for a in answers
    ]
    assert {host for host, *_ in found} == {"127.0.0.1"}
    assert "SECRET" not in "".join(lines)
    assert COMMON_LOG.fullmatch(new)[2] == "GET /languages HTTP/1.1"


@pytest.mark.parametrize(
    ("told", "logged"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7"), ('a" b', "-")],
)
def test_the_address_of_a_client_may_come_from_a_proxy(capsys, told, logged):
    """Text that is not an address is not logged. Lines go to standard error."""
    with running(access_log="-") as served:
        served.client.get("/languages", headers={"X-Forwarded-For": told})
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"{logged} - - [")


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "load_pairs", pytest.fail)
    options = server.ServeOptions(port=0, access_log=str(tmp_path))
    with pytest.raises(server.flags.CommandError, match="Is a directory"):
        server.run(None, {}, options, server.Limits())


def test_a_fifo_is_no_log(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a file that is no FIFO"):
        access_log.open_log(str(tmp_path / "pipe"))


def test_lines_of_a_lost_log_are_counted(tmp_path, caplog):
    """One error for all, no traceback, and a warning when it is back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = access_log.open_log(str(folder / "a"))
    line = logging.makeLogRecord({"msg": "x"})
    shutil.rmtree(folder)
    for _ in range(3):
        log.handle(line)
    [error] = caplog.messages
    assert "No such file" in error and str(folder) in error
    folder.mkdir()
    log.handle(line)
    assert (folder / "a").read_text() == "x\n"
    assert caplog.messages[1:] == ["the access log lacks 3 lines"]


# ---- Metrics -----------------------------------------------------------------


def samples(served, name):
    """Returns a metric's nonzero samples, by their labels."""
    families = text_string_to_metric_families(
        served.client.get("/metrics").text
    )
    return {
        tuple(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"translation_{name}" and sample.value
    }


def test_characters_are_counted_by_pair():
    """Each counts once. Markup and untranslated text do not count."""
    scripts = {("en", "de"): Script(), ("fr", "de"): Script()}
    with running(scripts) as served:
        for fields in (
            {"q": ["One dog.  A trée.", " "], **BOTH, "alternatives": 2},
            {"q": "<p>un <b>chien</b>", "source": "fr", "target": "de"},
            {"q": "Das Kind schläft in dem Haus.", **BOTH, "source": "auto"},
        ):
            fields = {"format": "html", **fields}
            assert served.client.post("/translate", json=fields).is_success
        fields = {"text": " a b ", **BOTH, "split": False}
        assert served.client.post("/v1/translate", json=fields).is_success
        file = {"file": ("a.txt", "One dog.\n\nTwo %s.")}
        answer = served.client.post("/translate_file", data=BOTH, files=file)
        assert answer.is_success
        text = len("One dog.A trée.") + len(" a b ") + len("One dog.Two %s.")
        found = samples(served, "source_characters_total")
    assert found == {("en", "de"): text, ("fr", "de"): len("un chien")}


def test_refusals_are_counted_by_path_and_status():
    with running(limits={"max_body_bytes": 300, "max_texts": 2}) as by:

        def post(path="/translate", **fields):
            fields = {"q": "a", **BOTH} | fields
            return by.client.post(path, json=fields).status_code

        assert [
            post(),
            post(q=["a"] * 3),
            post(q="a" * 400),
            post(q="fail"),
            post("/none"),
            by.client.get("/translate").status_code,
            by.client.get("/download_file/x").status_code,
            by.client.post("/translate_file", json=BOTH).status_code,
        ] == [200, 400, 413, 500, 404, 405, 404, 415]
        with connect(by) as client:  # hangs up, which is no refusal
            by.script.may_run.clear()
            by.script.calls.clear()
            body = json.dumps({"q": "a", **BOTH}).encode()
            client.sendall(http("POST", "/translate", body))
            while not by.script.calls:
                time.sleep(0.01)
        while 'status="499"' not in by.client.get("/metrics").text:
            time.sleep(0.01)
        by.service.is_ready = False
        assert post() == by.client.get("/health").status_code == 503
        found = samples(by, "refusals_total")
    assert found.pop(("/health", "503")) >= 1  # while it started, too
    on_path = "400", "413", "500", "405", "503"
    assert found == {("/translate", status): 1 for status in on_path} | {
        ("-", "404"): 1,
        ("/download_file/{key}", "404"): 1,
        ("/translate_file", "415"): 1,
    }


# ---- Pages -------------------------------------------------------------------


def test_the_page_of_the_api_has_every_path_and_field(served):
    described = spec.describe(app.APIS)
    answer = served.client.get("/docs")
    elements = pages.Elements(answer.text)
    headings = [text for tag, _, text in elements.found if tag == "h2"]
    names = [text for tag, _, text in elements.found if tag == "dt"]
    shown = " ".join(text for tag, _, text in elements.found if tag == "dd")
    for path, item in described["paths"].items():
        for method in item.keys() - {"parameters"}:
            assert f"{method.upper()} {path}" in [*headings, *names]
    for path in hostile_requests.POSTS:
        body = described["paths"][path]["post"]["requestBody"]["content"]
        fields = body["application/json"]["schema"]["properties"]
        for name, field in fields.items():
            assert any(found.startswith(name) for found in names)
            assert field.get("description", "") in shown
    assert "at least 1" in shown and "one of text, html, " in shown
    # It loads its icon only, whoever looks at it.
    assert re.findall(r'(?:src|href)="([^#"]*)"', answer.text) == [
        *("favicon.ico", "./", "spec")
    ]
    policy = answer.headers["content-security-policy"]
    assert policy == (
        f"default-src 'none'; style-src {digest_of(elements, 'style')};"
        " img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def test_the_page_of_the_models_has_their_cards(served):
    answer = served.client.get("/about")
    elements = pages.Elements(answer.text)
    shown = {tag: elements.of(tag) for tag in ("h2", "h3", "pre")}
    assert {tag: [text for *_, text in shown[tag]] for tag in shown} == {
        "h2": ["A & B"] * 2,  # a model for each pair
        "h3": ["Scores", "Notice"] * 2,
        "pre": ["| 1 |\n| 2 |", "<i>"] * 2,
    }
    assert (
        digest_of(elements, "style")
        in answer.headers["content-security-policy"]
    )


def test_a_browser_finds_the_icon(served):
    answer = served.client.get("/favicon.ico")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert ElementTree.fromstring(answer.content).tag.endswith("}svg")
    assert 'href="favicon.ico"' in page.render()[0]


# ---- Signals -----------------------------------------------------------------


def test_glossaries_are_read_again_once_for_each_signal(capsys):
    """They are read one after the other, whatever the main thread holds."""
    reading, may_end = threading.Semaphore(0), threading.Semaphore(0)
    most, now = [], []

    def read():
        now.append(1)
        most.append(len(now))
        reading.release()
        assert may_end.acquire(timeout=600)
        now.pop()

    service = types.SimpleNamespace(read_files=read, glossaries={}, keys=[])
    before = signal.getsignal(signal.SIGHUP)
    try:
        server.reload_at_sighup(service)
        with threading._active_limbo_lock:  # as while a thread starts
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(3):
            assert reading.acquire(timeout=600)
            may_end.release()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert most == [1, 1, 1]


# ---- Deployment --------------------------------------------------------------


def test_the_composed_server_may_write_nothing_but_temporary_files():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["user"] == "65534:65534" and service["read_only"]
        assert service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]
    [model] = services["server"]["volumes"]
    assert model["read_only"] and "ports" not in services["server"]
    health = services["server"]["healthcheck"]["test"]
    assert health[-1] in (ROOT / "Dockerfile").read_text()


def test_the_page_shows_the_configuration_of_nginx():
    configuration = (ROOT / "examples/nginx.conf").read_text()
    assert configuration in (ROOT / "docs/serving.md").read_text()
    assert "location = /metrics" in configuration
