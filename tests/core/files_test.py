"""Files that appear whole or not at all."""

import errno
import os

import pytest

from keras_transformer.base.files import (
    naming,
    new_directory,
    new_file,
    read_json,
    write_atomically,
)


def test_a_link_stays_one_and_a_pipe_is_written(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "new")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_full_disk_leaves_the_file_of_before(tmp_path, monkeypatch):
    def replace(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "config.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError) as error:
        write_atomically(path, "new")
    assert error.value.filename == str(path)
    assert [path] == list(tmp_path.iterdir()) and path.read_text() == "old"


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "config.json").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        write_atomically(tmp_path / "config.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_directory_appears_whole_with_usual_permissions(tmp_path):
    with new_directory(tmp_path / "a/b") as directory:
        (directory / "file").touch()
        assert os.listdir(tmp_path / "a") == [directory.name]
    (tmp_path / "usual").mkdir()
    modes = {(tmp_path / name).stat().st_mode for name in ("a/b", "usual")}
    assert len(modes) == 1 and os.listdir(tmp_path / "a") == ["b"]
    with pytest.raises(OSError, match="not empty"):
        with new_directory(tmp_path / "a/b"):
            pass
    with pytest.raises(KeyError), new_directory(tmp_path / "a/c") as directory:
        (directory / "half").touch()
        raise KeyError
    assert os.listdir(tmp_path / "a") == ["b"]
    with pytest.raises(FileNotFoundError):
        with new_directory(tmp_path / "c/d", parents=False):
            pass


def test_two_writers_at_once_do_not_meet(tmp_path):
    """Each writes its own file, and the last to end wins."""
    path = tmp_path / "config.json"
    with new_file(path) as one:
        one.write(b"one")
        with new_file(path) as two:
            two.write(b"two, longer")
        assert path.read_bytes() == b"two, longer"
    assert path.read_bytes() == b"one" and [path] == list(tmp_path.iterdir())


def test_an_error_keeps_the_name_that_it_has(tmp_path):
    with pytest.raises(FileNotFoundError) as error, naming(tmp_path / "other"):
        open(tmp_path / "missing")
    assert error.value.filename == str(tmp_path / "missing")


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected an object. Received: list"),
        ('{"a": {"b": 1, "b": 1}}', "not JSON: a name occurs twice"),
    ],
)
def test_json_is_an_object(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"^{path}: {message}"):
        read_json(path)
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}
