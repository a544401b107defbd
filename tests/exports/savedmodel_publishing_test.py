"""Directories that appear only when complete, beside other processes."""

import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from keras_transformer.base import locking
from savedmodel import publishing

RESERVE = pathlib.Path(__file__).parents[1] / "programs/reserve.py"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "1"


def names(directory):
    return sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*")
    )


@contextlib.contextmanager
def other_process(target):
    """Starts a process that has reserved the target."""
    with subprocess.Popen(
        [sys.executable, RESERVE, target],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "reserved\n"
        yield process
        process.stdin.close()


def make_export(target, file):
    target.mkdir(parents=True)
    (target / publishing.DESCRIPTION).touch()
    (target / file).touch()


def publish(target, *files, **options):
    """Publishes empty files."""
    with publishing.published(target, **options) as directory:
        for file in files:
            (directory / file).touch()


def fail_to_publish(target, meanwhile=None, **options):
    """Writes incomplete files, then fails."""
    with (
        pytest.raises(KeyError),
        publishing.published(target, **options) as directory,
    ):
        (directory / "half").touch()
        if meanwhile:
            meanwhile.touch()
        raise KeyError


def test_it_appears_when_it_is_complete(target, tmp_path):
    with publishing.published(target) as directory:
        (directory / "model").touch()
        assert not target.exists()
        # TensorFlow Serving takes every name that is a number for a version.
        for path in tmp_path.iterdir():
            with pytest.raises(ValueError):
                int(path.name)
    assert names(tmp_path) == ["1", "1/model"]


def test_what_is_replaced_goes_when_the_new_is_complete(target, tmp_path):
    make_export(target, "old")
    before = names(tmp_path)
    fail_to_publish(target, overwrite=True)
    assert names(tmp_path) == before
    with publishing.published(target, overwrite=True) as directory:
        (directory / "new").touch()
        assert (target / "old").is_file()
    assert names(tmp_path) == ["1", "1/new"]


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("next_export", ["1", "2"])
def test_a_kill_while_replacing_loses_nothing(
    number, next_export, target, tmp_path
):
    """It comes before each of the two renames, or before the old is removed."""
    make_export(target, "old")
    process = os.fork()
    if not process:
        rename, count = os.rename, iter(range(9))

        def rename_or_kill(*paths):
            return kill() if next(count) == number - 1 else rename(*paths)

        os.rename = rename_or_kill
        shutil.rmtree = kill
        try:
            publish(target, publishing.DESCRIPTION, "new", overwrite=True)
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert target.exists() == (number != 2)
    with (
        contextlib.suppress(KeyError),
        publishing.published(tmp_path / next_export, overwrite=True),
    ):
        found = "1/new" if number == 3 else "1/old"
        assert (tmp_path / found).is_file()
        raise KeyError
    assert (tmp_path / found).is_file()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("appears", [False, True])
def test_a_rename_that_fails_loses_nothing(
    appears, target, tmp_path, monkeypatch
):
    """It also keeps what another process has put in its place."""
    make_export(target, "old")
    rename = os.rename

    def no_new_name(old, new):
        if str(old).endswith("unfinished/1"):
            if appears:
                make_export(target, "other")
            raise OSError("the disk is gone")
        rename(old, new)

    monkeypatch.setattr(os, "rename", no_new_name)
    with pytest.raises(OSError, match="gone"):
        publish(target, overwrite=True)
    file = "other" if appears else "old"
    assert names(tmp_path) == ["1", "1/export.json", f"1/{file}"]


def test_a_published_export_that_was_removed_stays_so(target, tmp_path):
    """Its predecessor, half removed by a killed process, does not come back."""
    make_export(tmp_path / ".1.unfinished" / "1.replaced", "half of it")
    (tmp_path / ".1.unfinished" / publishing.LOCK).touch()
    fail_to_publish(target)
    assert names(tmp_path) == []


def test_an_empty_directory_is_free(target, tmp_path):
    target.mkdir()
    publish(target, "model")
    assert names(tmp_path) == ["1", "1/model"]


def test_what_appears_meanwhile_is_kept(target, tmp_path):
    with pytest.raises(OSError, match="not empty"):
        with publishing.published(target):
            make_export(target, "other")
    assert names(tmp_path) == ["1", "1/export.json", "1/other"]


def test_parents_go_with_a_failure_unless_others_use_them(tmp_path):
    target = tmp_path / "a" / "b" / "1"
    fail_to_publish(target)
    assert names(tmp_path) == []
    fail_to_publish(target, meanwhile=tmp_path / "a" / "notes")
    assert names(tmp_path) == ["a", "a/notes"]


def test_a_second_process_is_refused(target, tmp_path):
    with other_process(target):
        with pytest.raises(ValueError, match="another process is exporting"):
            publish(target)
        # It may write another version meanwhile, and leaves the first alone.
        publish(tmp_path / "2")
        assert (tmp_path / ".1.unfinished/1/half").is_file()
    assert names(tmp_path) == ["1", "1/half", "2"]


def test_a_lock_that_its_owner_removes_is_not_taken(
    target, tmp_path, monkeypatch
):
    descriptors = []

    def flock_just_after_the_owner(descriptor, operation):
        if not descriptors:
            shutil.rmtree(tmp_path / ".1.unfinished")
        descriptors.append(descriptor)
        fcntl.flock(descriptor, operation)

    lock_file = functools.partial(
        locking.lock_file, lock=flock_just_after_the_owner
    )
    monkeypatch.setattr(publishing, "lock_file", lock_file)
    with publishing.published(target):
        assert (tmp_path / ".1.unfinished" / publishing.LOCK).is_file()
    assert len(descriptors) == 2  # the second is that of a new file
    assert names(tmp_path) == ["1"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_what_a_killed_process_left_is_removed(version, target, tmp_path):
    (tmp_path / ".notes.unfinished").mkdir()  # not ours: it has no lock
    with other_process(target) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert ".1.unfinished/1/half" in names(tmp_path)
    with publishing.published(tmp_path / version) as directory:
        assert not any(directory.iterdir())
    assert names(tmp_path) == sorted([".notes.unfinished", version])


def test_leftovers_of_another_user_stay(target, tmp_path, monkeypatch):
    (tmp_path / ".2.unfinished").mkdir()
    others = tmp_path / ".2.unfinished" / publishing.LOCK
    others.touch()

    def refused(path, *arguments):
        assert path == others
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(publishing, "open", refused, raising=False)
    monkeypatch.setattr(
        publishing.pathlib.Path, "glob", lambda *_: iter([others])
    )
    publish(target)
    assert names(tmp_path) == [
        ".2.unfinished",
        f".2.unfinished/{publishing.LOCK}",
        "1",
    ]


@pytest.mark.parametrize("link", ["1", "parent/1"])
def test_a_link_is_followed(link, tmp_path):
    """One link has no target yet. Another leads to an export to replace."""
    path = tmp_path / link
    (tmp_path / link.split("/")[0]).symlink_to(tmp_path / "disk" / "there")
    for name, overwrite in (("old", False), ("new", True)):
        publish(path, publishing.DESCRIPTION, name, overwrite=overwrite)
        assert (path / name).is_file() and path.parent.is_dir()
        assert (tmp_path / link.split("/")[0]).is_symlink()
    assert not (path / "old").exists()
    assert not list(tmp_path.rglob("*.unfinished"))


def test_links_that_lead_to_each_other(tmp_path):
    for one, other in ("ab", "ba"):
        (tmp_path / one).symlink_to(tmp_path / other)
    with pytest.raises(ValueError, match="[Ll]oop"):
        publish(tmp_path / "a")


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not an export"):
        publish(tmp_path / "file")
    with pytest.raises(OSError):
        publish(tmp_path / "file" / "1")
    assert names(tmp_path) == ["file"]
