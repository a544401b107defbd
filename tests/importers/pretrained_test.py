"""`from_pretrained`: directories, and a local server that acts like the Hub."""

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse

import exports
import numpy as np
import pytest
from absl import logging
from commands import fails
from huggingface_hub import constants
from original_models import FIXTURES, POINTER

import keras_transformer as kt
from keras_transformer.importers import marian_huggingface
from keras_transformer.storage import hub
from trainers import import_model

MARIAN = FIXTURES / "marian_shared"
COMMIT = "1234567890" * 4
PROGRAM = """
import sys
from keras_transformer.storage.hub import find_model
print(find_model(sys.argv[1]))
"""


class Hub(http.server.ThreadingHTTPServer):
    """Repositories `owner/NAME` from the folders of a directory.

    Attributes:
        asked: How often somebody asked for the commit of a revision.
        sent: Names of the files that were downloaded, in order.
        go: Safetensors files are sent to their half, and on when it is set.
    """

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Answer)
        self.root, self.asked, self.sent = root, 0, []
        self.go = threading.Event()
        self.go.set()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path).path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        if len(parts) < 5:  # what huggingface_hub asks beside
            return self.answer(b"", 404)
        owner, name, kind, revision, *rest = parts[2 * is_api :]
        folder = self.server.root / name
        known = owner == "owner" and folder.is_dir()
        if not known or revision not in ("main", "v1", COMMIT):
            code = "Revision" if known else "Repo"
            return self.answer(b"", 404, {"X-Error-Code": f"{code}NotFound"})
        if kind == "revision":
            self.server.asked += 1
            return self.answer(json.dumps({"id": name, "sha": COMMIT}).encode())
        if kind == "tree":
            files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
            return self.answer(
                json.dumps(
                    [
                        {
                            "type": "file",
                            "path": str(path.relative_to(folder)),
                            "size": path.stat().st_size,
                            "oid": sha1(path),
                        }
                        for path in files
                    ]
                ).encode()
            )
        path = folder.joinpath(*rest)
        headers = {"ETag": f'"{sha1(path)}"', "X-Repo-Commit": COMMIT}
        self.answer(path.read_bytes(), 200, headers)

    def answer(self, content, status=200, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[: len(content) // 2])
            if "ETag" in dict(headers):
                self.server.sent.append(pathlib.Path(self.path).name)
            if self.path.endswith(".safetensors"):
                self.server.go.wait(timeout=600)
            self.wfile.write(content[len(content) // 2 :])


def sha1(path):
    return hashlib.sha1(path.read_bytes()).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A `Hub` that huggingface_hub queries, with an empty cache."""
    root = tmp_path / "repositories"
    shutil.copytree(MARIAN, root / "marian")
    server = Hub(root)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(
        constants.ENDPOINT, server.url
    )
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def check_same(translator, other):
    """Checks that two translators have the same weights, search and limit."""
    assert translator.decoding == other.decoding
    assert translator.max_source_length == other.max_source_length
    for weight, its in zip(
        translator.model.weights, other.model.weights, strict=True
    ):
        np.testing.assert_array_equal(weight, its, weight.path)


def test_a_repository_is_downloaded_once(server, monkeypatch):
    translator = kt.Translator.from_pretrained("hf://owner/marian")
    imported = marian_huggingface.read(MARIAN)
    model = imported.make_model()
    check_same(
        translator,
        kt.Translator(imported.tokenizer, model, imported.decoding, 128),
    )
    assert server.sent.count("model.safetensors") == 1
    assert "pytorch_model.bin" not in server.sent
    number = len(server.sent)
    page = "https://huggingface.co/owner/marian/tree/v1"
    for name in ("hf://owner/marian@v1", page):
        assert hub.find_model(name).name == COMMIT
    assert len(server.sent) == number
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    translator = kt.Translator.from_pretrained(
        "hf://owner/marian", precision="bfloat16", max_source_length=9
    )
    assert translator.model.dtype == "bfloat16"
    assert translator.max_source_length == 9


def test_weights_in_another_form_are_downloaded_if_they_are_all(server):
    (server.root / "marian/model.safetensors").unlink()
    directory = hub.find_model("hf://owner/marian")
    assert sha1(directory / "pytorch_model.bin") == sha1(
        MARIAN / "pytorch_model.bin"
    )


def test_two_processes_download_into_one_cache(server, tmp_path):
    """The second begins while the first has half of the weights."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(pathlib.Path(hub.__file__).parents[1]),
    }
    command = [sys.executable, "-c", PROGRAM, "hf://owner/marian"]
    server.go.clear()
    first, second = (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    )
    while server.asked < 2 or "model.safetensors" not in server.sent:
        assert first.poll() is None and second.poll() is None
        time.sleep(0.02)
    server.go.set()
    names = {process.communicate()[0].decode() for process in (first, second)}
    [directory] = {pathlib.Path(name.strip()) for name in names}
    assert directory.parents[2] == tmp_path / "home/hub"
    for path in directory.iterdir():
        assert sha1(path) == sha1(MARIAN / path.name)
    assert server.sent.count("model.safetensors") == 1
    assert not list(directory.parents[1].rglob("*.incomplete"))


def test_a_work_directory_loads_from_the_hub_and_from_here(server):
    shutil.copytree(exports.workdir(), server.root / "own")
    for name in ("hf://owner/own", exports.workdir()):
        translator = kt.Translator.from_pretrained(name)
        check_same(translator, exports.translator())
        assert translator.checkpoint.endswith("averaged/ckpt-3")


def test_a_command_imports_from_the_hub(server, tmp_path, capsys, monkeypatch):
    path = server.root / "marian/generation_config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "max_length": 500}))
    workdir = tmp_path / "run"
    import_model.main(["--source=hf://owner/marian", f"--workdir={workdir}"])
    out = capsys.readouterr().out
    assert "from hf://owner/marian (huggingface)" in out
    logged = []
    monkeypatch.setattr(
        logging, "warning", lambda line, *values: logged.append(line % values)
    )
    translator = kt.Translator.from_pretrained("hf://owner/marian")
    check_same(translator, kt.Translator.load(workdir))
    [note] = logged  # a known difference
    assert note.startswith("hf://owner/marian: ")
    assert note.removeprefix("hf://owner/marian: ") in out


@pytest.mark.parametrize(
    "name, message",
    [
        ("hf://marian", "expected hf://OWNER/NAME"),
        ("hf://a/b/c", "Received: 'hf://a/b/c'"),
        ("https://hub.org/a/b", "Received: 'https://hub.org/a/b'"),
        ("hf://owner/none", "hf://owner/none cannot be downloaded: "),
        ("hf://owner/marian@v2", "404"),
        ("no/such/directory", "expected a directory that holds a model"),
    ],
)
def test_what_is_not_there_is_named(server, tmp_path, capsys, name, message):
    with pytest.raises((ValueError, OSError), match=message):
        kt.Translator.from_pretrained(name)
    argv = [f"--source={name}", f"--workdir={tmp_path / 'run'}"]
    assert message in fails(import_model.main, argv, capsys)


@pytest.mark.parametrize(
    "option, value",
    [
        ("shortlist", True),
        ("engine", "ctranslate2"),
        ("compute_type", "int8"),
        ("device", "cpu"),
    ],
)
def test_options_of_work_directories_are_refused(option, value):
    message = f"a work directory, .*kt-import makes.* for {option}"
    with pytest.raises(ValueError, match=message):
        kt.Translator.from_pretrained(MARIAN, **{option: value})
    compiled = kt.Translator.from_pretrained(MARIAN, jit_compile=True)
    assert compiled.jit_compile


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"keras-transformer-nmt\[hub\]"):
        kt.Translator.from_pretrained("hf://owner/marian")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.model", "averaged/ckpt-3.safetensors"]
)
def test_a_work_directory_cloned_without_lfs_is_named(tmp_path, name):
    shutil.copytree(exports.workdir(), tmp_path / "clone")
    (tmp_path / "clone" / name).write_text(POINTER)
    with pytest.raises(ValueError) as error:
        kt.Translator.from_pretrained(tmp_path / "clone")
    clone = tmp_path / "clone"
    assert f"{clone / name} is a Git LFS pointer" in str(error.value)
    assert str(error.value).endswith(
        f"git lfs install && cd {clone} && git lfs pull"
    )


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="Received: precision='int8'"):
        kt.Translator.from_pretrained(MARIAN, precision="int8")
