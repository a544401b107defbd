"""Files for other users: their modes, and errors without permission."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile

import numpy as np
import pytest
from commands import fails

import keras_transformer as kt
from keras_transformer.base.locking import lock_file
from keras_transformer.storage.checkpoints import Checkpoints, named_weights
from keras_transformer.storage.workdir import WorkDirectory
from savedmodel.huggingface import write_safetensors
from savedmodel.publishing import published
from trainers import average
from trainers.run import checkpoints as run_checkpoints
from trainers.run.data_config import DataConfig

NOBODY = 65534


@pytest.fixture
def folder():
    """A directory that other users can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def without_privileges():
    """Makes permissions apply, even if the tests run as root."""
    user = os.geteuid()
    if not user:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def save(folder, *steps):
    for step in steps:
        weights = {"weights": {"a": np.arange(float(step))}}
        Checkpoints(folder).save(weights, step, keep=len(steps))


@pytest.fixture
def workdir(folder, small_config):
    """A work directory with two checkpoints of each kind."""
    workdir = WorkDirectory(folder / "run")
    config = dataclasses.replace(small_config, vocab_size=17)
    model = kt.Transformer(config)
    with umask(0o022):
        lines = ["a rose is a rose"]
        workdir.save_tokenizer(kt.Tokenizer.train(lines, vocab_size=17))
        workdir.write_config(
            model=config,
            data=DataConfig(max_length=9),
            decoding=kt.DecodingConfig(),
        )
        for checkpoints in (workdir.latest, workdir.best, workdir.averaged):
            for step in (1, 2):
                groups = {"weights": named_weights(model)}
                checkpoints.save(groups, step, keep=2)
    return workdir


@pytest.mark.parametrize("mask", [0o002, 0o027])
def test_files_have_the_mode_of_the_umask(folder, mask):
    with umask(mask):
        save(folder / "new/checkpoints", 1, 2)
        lock = lock_file(folder / "new/.lock")
        tensors = {"a": np.zeros(3)}
        write_safetensors(folder / "new/model", tensors, "float16")
    os.close(lock)
    paths = sorted((folder / "new").rglob("*"))
    assert len(paths) == 5
    for path in (folder / "new", *paths):
        expected = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & 0o777 == expected & ~mask, path


def test_directories_of_an_export_have_the_mode_of_the_umask(folder):
    """TensorFlow's own ones do not have it."""
    with umask(0o002), published(folder / "export") as directory:
        (directory / "assets").mkdir(mode=0o755)
    assert (folder / "export/assets").stat().st_mode & 0o777 == 0o775


def test_a_checkpoint_without_permission_is_not_corrupt(workdir, caplog):
    """No command then uses an older one, or one of another kind."""
    path = pathlib.Path(f"{workdir.averaged.prefixes()[0]}.safetensors")
    path.chmod(0)
    with without_privileges(), pytest.raises(PermissionError) as error:
        workdir.choose_checkpoint()
    assert error.value.filename == str(path)
    with without_privileges(), pytest.raises(PermissionError):
        workdir.choose_checkpoint(str(path))
    assert not caplog.records
    path.chmod(0o644)
    with without_privileges():
        assert workdir.choose_checkpoint() == str(path.with_suffix(""))


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_a_directory_without_permission_is_not_empty(workdir, mode):
    directory = workdir.averaged.directory
    directory.chmod(mode)
    with without_privileges(), pytest.raises(PermissionError) as error:
        workdir.choose_checkpoint()
    directory.chmod(0o755)
    assert str(directory) in error.value.filename


def test_a_disk_that_fails_is_not_corruption(workdir, capsys):
    """/proc/self/mem opens, and fails when it is read, as a bad disk does."""
    newest = pathlib.Path(f"{workdir.latest.prefixes()[0]}.safetensors")
    newest.unlink()
    newest.symlink_to("/proc/self/mem")
    argv = [f"--workdir={workdir.path}", "--last=1"]
    assert fails(average.main, argv, capsys, code=1) == (
        f"kt-average: Input/output error: '{newest}'\n"
    )
    with pytest.raises(run_checkpoints.RunError, match="step 3 .* cannot be r"):
        fail_to_write(workdir)
    config = workdir.config_path
    config.unlink()
    config.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error: .*config.json"):
        workdir.read_config()


def fail_to_write(workdir):
    """Fails to save on a full disk, with the last checkpoint in the error."""
    directory = workdir.latest.directory / "ckpt-3.safetensors"
    directory.mkdir()
    try:
        run_checkpoints.write(workdir.latest, {"weights": {}}, 3, keep=2)
    finally:
        directory.rmdir()


def test_another_user_translates(workdir, processes):
    """That user reads the files that this one wrote, and owns nothing."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    process = processes.start(
        [workdir.path, NOBODY], module="other_user", function="translate"
    )
    ours, theirs, users = process.ends().splitlines()
    assert ours == theirs
    assert users == f"{NOBODY} {NOBODY} {NOBODY}"


def test_removed_meanwhile_is_neither(folder):
    save(folder, 1)
    assert not Checkpoints(folder / "ckpt-1.safetensors").prefixes()
    assert Checkpoints(folder / "ckpt-1.safetensors/x").find_intact() is None
    shutil.rmtree(folder / "none", ignore_errors=True)
    assert Checkpoints(folder / "none").find_intact() is None
