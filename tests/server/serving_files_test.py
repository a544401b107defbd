"""The server translates files: uploads, names, downloads, limits."""

import dataclasses
import json
import os
import pathlib
import threading
import time
import urllib.parse
from unittest import mock

import httpx
import pytest
from hostile_requests import http
from serving_test import (
    BOTH,
    MINUTES,
    Script,
    connect,
    error_of,
    read_answer,
    running,
    settings_of,
    translated,
)

from keras_transformer.base.locking import lock_file
from keras_transformer.translation.requests import Request
from trainers.serving import downloads, requests, work
from trainers.serving.batcher import QueueFullError

KIND = "multipart/form-data; boundary=b"


@pytest.fixture(scope="module")
def served():
    with running({("en", "de"): Script(), ("fr", "de"): Script()}) as found:
        yield found


def send(served, name, data, **fields):
    """Sends a file. Returns the answer."""
    return served.client.post(
        "/translate_file", data=BOTH | fields, files={"file": (name, data)}
    )


def download(served, name, data, **fields):
    """Downloads a translated file. Returns the answer."""
    answer = send(served, name, data, **fields)
    assert answer.status_code == 200, answer.text
    [(field, url)] = answer.json().items()
    assert field == "translatedFileUrl"
    assert url.startswith(f"{served.url}/download_file/")
    found = httpx.get(url, timeout=MINUTES)
    assert found.status_code == 200
    return found


def form(header, data=b"One dog."):
    """Makes the body of a form whose file has a handwritten header."""
    parts = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'
        for name, value in BOTH.items()
    ]
    file = f'Content-Disposition: form-data; name="file"; {header}\r\n\r\n'
    head = "".join(f"--b\r\n{part}\r\n" for part in parts) + f"--b\r\n{file}"
    return head.encode() + data + b"\r\n--b--\r\n"


@pytest.mark.parametrize(
    ("name", "content", "charset"),
    [
        ("a.txt", "One dog. Two dogs!\r\n\r\n  A trée.", "utf-8"),
        ("a.txt", "\ufeffOne trée.", "utf-16-le"),
        ("a.HTM", "<meta charset=latin1><p>One <b>trée</b> %s.", "latin-1"),
        ("a.html", '<html lang="en-GB"><p>One dog.</html>', "utf-8"),
        ("a.srt", "1\n00:00:01,0 --> 00:00:02,0\nOne dog.\n", "utf-8"),
        ("a.b.md", "# One *dog*\n", "utf-8"),
        ("a.txt", "", "utf-8"),
    ],
)
def test_a_file_is_translated_as_by_the_library(served, name, content, charset):
    data = content.encode(charset)
    found = download(served, name, data)
    assert found.content == translated(data, name=name).data
    assert not content or found.content != data
    stem, suffix = os.path.splitext(name)
    assert found.headers["content-disposition"] == (
        f'attachment; filename="{stem}_de{suffix}"'
    )
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"


def test_columns_of_a_table_are_translated(served):
    data, fields = b"a,b,n\nOne dog.,A,1\n", {"columns": "a,b", "into": "c,d"}
    found = download(served, "a.csv", data, **fields)
    columns = [("a", "c"), ("b", "d")]
    expected = translated(data, name="a.csv", columns=columns).data
    assert found.content == expected and b",c,d\n" in expected
    for wrong in ({}, {"columns": "a,b", "into": "c"}, {"columns": "x"}):
        assert send(served, "a.csv", data, **wrong).status_code == 400
    assert send(served, "a.txt", data, **fields).status_code == 400


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('filename="../../etc/passwd.txt"', "passwd_de.txt"),
        (r'filename="C:\\dogs\\one.txt"', "one_de.txt"),
        ('filename="..\\\\..txt"', "._de.txt"),
        ('filename="dög <b>;.txt"', "dög <b>;_de.txt"),
        (r'filename="a\"; filename=\"b.txt"', 'a"; filename="b_de.txt'),
        ('filename="\u202ea\x01\x7f.txt"', "\u202ea\x01\x7f_de.txt"),
        ('filename="%2e%2e%2fa.txt"', "%2e%2e%2fa_de.txt"),
        (f'filename="{"ä" * 1500}.txt"', f"{'ä' * 1500}_de.txt"),
    ],
)
def test_a_name_can_do_no_harm(served, header, name):
    body = form(header)
    answer = served.client.post(
        "/translate_file", content=body, headers={"Content-Type": KIND}
    )
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    found = httpx.get(url, timeout=MINUTES)
    assert found.content == b"ONE DOG."
    disposition = found.headers["content-disposition"]
    assert disposition == (
        f"attachment; filename*=utf-8''{urllib.parse.quote(name)}"
        if urllib.parse.quote(name) != name
        else f'attachment; filename="{name}"'
    )
    assert "x-a" not in found.headers
    secret, _, rest = url.rpartition("/")[2].partition(".")
    assert rest == urllib.parse.quote(name, safe="") and len(secret) >= 32


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.exe", b"a", "one of the suffixes .txt .text .html"),
        ("txt", b"a", "one of the suffixes .txt .text"),
        ("", b"a", "file must be a file"),
        (".txt", b"a", "one of the suffixes .txt .text"),
        ("a.txt", b"a\n\xff", "line 2 is not UTF-8"),
        ("a.xliff", b"<xliff>", "line 1: "),
        ("a.html", b"<meta charset=no>", "expected the name of a charset"),
    ],
)
def test_a_wrong_file_is_refused(served, name, data, message):
    assert message in error_of(send(served, name, data), 400)


def test_what_is_no_file_is_refused(served):
    def refuse(status, path="/translate_file", **request):
        return error_of(served.client.post(path, **request), status)

    file = {"file": ("a.txt", b"a")}
    assert refuse(400, files={"q": (None, "a")}) == "file must be a file"
    assert refuse(400, data=BOTH | {"file": "a"}) == "file must be a file"
    assert refuse(415, json={"file": "a"}).startswith(
        "expected a body of Content-Type multipart/form-data. Received: 'app"
    )
    assert refuse(400, files=file) == "source is missing"
    source = {"source": "en"}
    assert refuse(400, data=source, files=file) == "target is missing"
    italian = BOTH | {"target": "it"}
    assert "en-de, fr-de" in refuse(400, data=italian, files=file)
    two = [("file", ("a.txt", b"a")), ("file", ("b.txt", b"b"))]
    too_many = "Too many files. Maximum number of files is {}."
    assert refuse(400, data=BOTH, files=two) == too_many.format(1)
    # Other paths take none.
    found = refuse(400, "/translate", data=BOTH, files=file)
    assert found == too_many.format(0)
    assert refuse(415, "/v1/translate", data=BOTH, files=file)


def test_the_language_of_a_file_may_be_detected(served):
    french = "<p>Le chien court dans la <b>forêt</b> avec les enfants.</p>"
    calls = served.service.pairs["fr", "de"].translator.calls
    before = len(calls), len(served.script.calls)
    download(served, "a.html", french.encode(), source="auto")
    assert (len(calls) - 1, len(served.script.calls)) == before


def test_a_file_in_the_target_language_stays(served):
    german = "<p>Das Kind  schläft.</p>\r\n".encode()
    answer = send(served, "a.html", german, source="auto").json()
    assert answer["notes"] == ["the file is in de already"]
    address = answer["translatedFileUrl"]
    assert address.endswith("a_de.html")
    assert served.client.get(address).content == german


def test_source_and_target_of_a_file_may_be_the_same(served):
    answer = send(served, "a.html", b"<p>Hi.", source="en", target="en").json()
    assert answer["notes"] == ["the file is in en already"]
    found = served.client.get(answer["translatedFileUrl"])
    assert found.content == b"<p>Hi."


def test_a_file_has_terms_and_notes(served):
    for field, value, request in (
        ("avoid", "x", {"avoid": ("x",)}),
        ("avoid", ["x", "y"], {"avoid": ("x", "y")}),  # given twice
        ("glossary", json.dumps({"dog": "Hund"}), {"terms": (("Hund",),)}),
    ):
        send(served, "a.txt", "A dog.", **{field: value})
        assert served.script.calls[-1][2] == [Request("A dog.", **request)]
    for glossary, message in (
        ("{", "expected a JSON object"),
        ("x", "glossary of: there are none"),
    ):
        answer = send(served, "a.txt", "A dog.", glossary=glossary)
        assert message in error_of(answer, 400)
    assert send(served, "a.txt", "a " * 300).json()["notes"] == ["is long"]
    catalogue = 'msgid "A dog"\nmsgstr "Hund"\n'
    assert send(served, "a.po", catalogue).json()["notes"] == [
        "left: 1 already translated (line 2)"
    ]


def test_files_are_named_in_settings_and_description(served):
    settings = settings_of(served)
    assert settings["filesTranslation"]
    assert {".txt", ".html", ".xliff"} < set(settings["supportedFilesFormat"])
    paths = served.client.get("/spec").json()["paths"]
    [kind] = paths["/translate_file"]["post"]["requestBody"]["content"].items()
    assert kind[0] == "multipart/form-data"
    assert kind[1]["schema"]["properties"]["file"]["format"] == "binary"
    assert kind[1]["schema"]["required"] == ["file", "source", "target"]
    [parameter] = paths["/download_file/{key}"]["parameters"]
    assert parameter["name"] == "key" and parameter["in"] == "path"


def test_a_container_is_a_file_and_no_text(served):
    assert "zip archive" in error_of(send(served, "a.docx", b"x"), 400)
    fields = {"q": "PK\x03\x04", "format": "auto", **BOTH}
    answer = served.client.post("/translate", json=fields)
    assert error_of(answer, 400) == (
        "expected a file for the format docx: bytes without a charset."
        " Received: a text"
    )


# ---- Limits ------------------------------------------------------------------


def test_a_file_has_a_limit_of_its_own():
    limits = {"max_body_bytes": 100, "max_file_bytes": 1000}
    with running(limits=limits) as served:
        assert send(served, "a.txt", b"a " * 200).status_code == 200
        assert error_of(send(served, "a.txt", b"a " * 500), 413) == (
            "expected a body of at most 1000 bytes"
        )
        answer = served.client.post("/translate", json={"q": "a" * 200})
        assert error_of(answer, 413) == "expected a body of at most 100 bytes"
    with running(limits={"max_file_bytes": 0}) as served:
        settings = settings_of(served)
        assert not settings["filesTranslation"]
        assert settings["supportedFilesFormat"] == []
        assert error_of(send(served, "a.txt", b"a"), 413)


class Steps(threading.Semaphore):
    """A replacement for an event, in which each batch waits for a step."""

    def wait(self, timeout):
        return self.acquire(timeout=timeout)

    def set(self):
        self.release(100)


def test_a_file_leaves_room_in_the_queue(monkeypatch):
    """The file waits for room, and texts are accepted meanwhile."""
    found, refusals = [], []
    with running(max_batch_tokens=6, max_queue_tokens=10) as served:
        batcher, script = served.service.batcher, served.script
        script.may_run = Steps(0)
        submit = batcher.submit

        def observe(*arguments):
            try:
                return submit(*arguments)
            except QueueFullError:
                refusals.append(arguments)
                raise

        def translate(text):
            fields = {"q": text, **BOTH}
            found.append(served.client.post("/translate", json=fields))

        monkeypatch.setattr(batcher, "submit", observe)
        file = "A b.\n\n" * 4  # of 3 tokens each
        work = [lambda: found.append(download(served, "a.txt", file))]
        work += [lambda: translate("c d e"), lambda: translate("f g h i j")]
        threads = [threading.Thread(target=each) for each in work]
        for thread, waiting in zip(threads, (0, 4, 10), strict=True):
            thread.start()
            while not script.calls or batcher.waiting_tokens != waiting:
                time.sleep(0.01)
        script.may_run.release()  # the first half of the file is translated
        while not refusals:  # of the second, while the long text waits
            time.sleep(0.01)
        script.may_run.set()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in found] == [200] * 3
    assert found[-1].content == file.upper().encode()


def test_a_file_that_is_translated_is_not_refused(served, monkeypatch):
    """Markup is placed afterwards: then a full queue is waited for."""
    full_once = mock.Mock(
        wraps=served.service.batcher.submit,
        side_effect=[mock.DEFAULT, QueueFullError(1), mock.DEFAULT],
    )
    monkeypatch.setattr(served.service.batcher, "submit", full_once)
    download(served, "a.html", "<p>Press <b>it</b> now.</p>")
    assert full_once.call_count == 3


def test_a_file_that_cannot_be_read_is_a_failure_of_the_server():
    class Failing(Script):
        fits = {}.__getitem__

    with running({("en", "de"): Failing()}) as served:
        assert error_of(send(served, "a.html", b"<p>One.</p>"), 500)


def test_sentences_are_prepared_some_at_a_time(served, monkeypatch):
    """A thread cannot be stopped, and others wait for it."""
    prepare = mock.Mock(wraps=work._prepare)
    monkeypatch.setattr(work, "_prepare", prepare)
    monkeypatch.setattr(work, "PREPARED", 120)
    text = "\n\n".join([*(["A b."] * 3), "a " * 60 + "b."])
    assert download(served, "a.txt", text).text == text.upper()
    assert [len(call.args[1]) for call in prepare.mock_calls] == [2, 1, 1]


def test_a_large_upload_is_on_the_disk_and_closed(served, monkeypatch):
    """This also holds if its request is refused."""
    read = mock.Mock(wraps=requests.read_file)
    monkeypatch.setattr(requests, "read_file", read)
    assert send(served, "a.exe", b"a" * 2**21).status_code == 400
    [(fields, name)] = [call.args for call in read.mock_calls]
    assert fields[name].file._rolled and fields[name].file.closed


def test_files_need_a_key_if_texts_do(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ours\n")
    with running(api_keys=str(keys)) as served:
        assert error_of(send(served, "a.txt", b"a"), 403)
        download(served, "a.txt", b"a", api_key="ours")  # without the key


def test_a_file_that_takes_too_long_or_hangs_up_is_dropped():
    with running(request_seconds=1.0) as served:
        batcher, script = served.service.batcher, served.script
        script.may_run.clear()
        while not script.calls:  # a busy machine may read it too late
            assert error_of(send(served, "a.txt", b"first"), 504)
        served.service.options = dataclasses.replace(
            served.service.options, request_seconds=MINUTES
        )
        body = form('filename="a.txt"', b"second")
        with connect(served) as client:
            client.sendall(http("POST", "/translate_file", body, KIND))
            while not batcher.waiting_tokens:
                time.sleep(0.01)
        metrics = 'requests_total{path="/translate_file",status="499"} 1.0'
        while metrics not in served.client.get("/metrics").text:
            time.sleep(0.01)
        script.may_run.set()
        download(served, "a.txt", b"third")
        assert [call[2] for call in script.calls] == [
            [Request("first")],
            [Request("third")],
        ]


# ---- Downloads ---------------------------------------------------------------


def test_a_file_is_found_by_its_whole_key_only(served):
    url = str(download(served, "a.txt", b"a").url)
    for wrong in (
        url[:-1],
        url + "x",
        url.rpartition(".")[0],
        f"{served.url}/download_file/",
        f"{served.url}/download_file/..%2f..%2fetc%2fpasswd",
        f"{served.url}/download_file/a.txt",
    ):
        assert error_of(httpx.get(wrong, timeout=MINUTES), 404)
    other = str(download(served, "a.txt", b"a").url)
    assert other != url and httpx.get(url, timeout=MINUTES).content == b"A"


def test_a_file_expires_and_the_rest_goes_with_the_server():
    with running(download_seconds=0.3) as served:
        found = download(served, "a.txt", b"a")
        folder = pathlib.Path(served.service.downloads._folder.name)
        assert folder.stat().st_mode & 0o777 == 0o700
        while len(list(folder.iterdir())) > 1:  # its lock
            time.sleep(0.01)
        answer = httpx.get(found.url, timeout=MINUTES)
        assert error_of(answer, 404) == "there is no such file, or no longer"
        assert not served.service.downloads._size
    with running() as served:
        download(served, "a.txt", b"a")
        folder = pathlib.Path(served.service.downloads._folder.name)
        assert len(list(folder.iterdir())) == 2
    assert not folder.exists()


def test_files_that_wait_have_a_limit(monkeypatch):
    monkeypatch.setattr(downloads, "MAX_BYTES", 4)
    with running(download_seconds=60.5) as served:
        download(served, "a.txt", b"ab")
        download(served, "a.txt", b"cd")
        answer = send(served, "a.txt", b"e")
        assert error_of(answer, 429).startswith("too many translated files")
        assert answer.headers["retry-after"] == "61"


def test_a_body_that_is_no_form_has_one_clear_error(served):
    for i, body in enumerate(
        (
            *(b"", b"--b", b"--b--\r\n", b"\0" * 3000, b"--b\r\n\r\n\r\n--b--"),
            form('filename="a.txt"')[:-9],
            form('filename="a.txt"').replace(b'name="file"', b""),
            form(f'filename="{"a" * 9000}.txt"'),
            form("filename").replace(b"--b\r\n", b"--b\r\n" * 500),
            form('filename="a.txt"', b"<p>" * 9000).replace(b"txt", b"html"),
            form('filename="a.txt"', b"\0" * 9000),
        )
    ):
        with connect(served) as client:
            client.sendall(http("POST", "/translate_file", body, KIND))
            status, answer = read_answer(client)
        assert 200 <= status < 500, (i, status, answer)
        assert status == 200 or len(json.loads(answer)["error"]) < 1000


def test_the_address_of_a_file_may_be_given():
    with running(public_url="https://example.org/nmt/") as served:
        url = send(served, "a.txt", b"a").json()["translatedFileUrl"]
    assert url.startswith("https://example.org/nmt/download_file/")


def test_files_of_a_killed_server_are_removed(tmp_path, monkeypatch):
    """A directory is that of a living server as long as its file is locked."""
    monkeypatch.setattr(downloads.tempfile, "tempdir", str(tmp_path))
    living, killed = tmp_path / "translated-a", tmp_path / "translated-b"
    lock = lock_file(living / "lock")
    killed.mkdir()
    (killed / "lock").touch()
    (killed / "secret").write_text("of a client")
    (tmp_path / "translated-c").mkdir()  # of another program
    (tmp_path / "other").mkdir()
    (tmp_path / "other/lock").symlink_to(tmp_path / "made")
    (tmp_path / "translated-d").symlink_to("other")
    downloads.Downloads(1.0)
    os.close(lock)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other",
        "translated-a",
        "translated-c",
        "translated-d",
    ]
