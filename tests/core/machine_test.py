"""Limits of containers, from files as Linux writes them."""

import os

import pytest
import tensorflow as tf
from commands import fails

from keras_transformer.base import machine
from keras_transformer.commands import devices, startup
from trainers import wmt
from trainers.run import tensorflow_engine

CORES = len(os.sched_getaffinity(0))


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    "groups, files, cores",
    [
        (None, {}, 64),
        ("0::/", {}, 64),
        # Version 2: a quota of one and a half cores.
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        (
            "0::/a/b",
            {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"},
            3,
        ),
        # Version 1: a folder for each controller.
        (
            "5:cpu,cpuacct:/pod\n4:memory:/pod",
            {
                "cpu,cpuacct/pod/cpu.cfs_quota_us": "400000",
                "cpu,cpuacct/pod/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            "5:cpu:/pod",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            64,
        ),
    ],
)
def test_cores_are_at_most_the_quota(
    groups, files, cores, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    written = {f"sys/fs/cgroup/{n}": f"{t}\n" for n, t in files.items()}
    if groups:
        written["proc/self/cgroup"] = f"{groups}\n"
    assert machine.count_cores(write(tmp_path, written)) == cores


@pytest.mark.parametrize(
    "name, text, limit",
    [
        ("memory.max", "1073741824\n", 2**30),
        ("memory.max", "max\n", None),
        ("memory.limit_in_bytes", "2147483648\n", 2**31),
        ("memory.limit_in_bytes", "9223372036854771712\n", None),
    ],
)
def test_memory_is_at_most_the_limit(name, text, limit, tmp_path):
    controller = "memory" if "limit" in name else ""
    files = {
        "proc/self/cgroup": f"0:{controller}:/pod\n",
        f"sys/fs/cgroup/{controller}/pod/{name}": text,
    }
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = machine.memory_limit(write(tmp_path, files))
    assert found == (limit or physical)


def test_this_machine():
    assert 1 <= machine.count_cores() <= CORES
    assert machine.memory_limit() > 2**28
    assert 2**20 < machine.free_memory() < machine.memory_limit()


def test_free_memory_is_what_linux_says_at_most_the_limit(tmp_path):
    files = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    3 kB\n"}
    assert machine.free_memory(write(tmp_path, files)) == 3072


def test_a_step_has_at_most_eight_slices(monkeypatch):
    monkeypatch.setattr(startup, "count_cores", lambda: 64)
    assert startup.count_slices(None, 10**6, jit_compile=False) == 8


@pytest.mark.parametrize(
    "files, names",
    [
        ({}, []),
        (
            {
                "proc/driver/nvidia/gpus/0000:01:00.0/information": (
                    "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 16\n"
                ),
                "dev/nvidia0": "",
            },
            ["NVIDIA H100 80GB HBM3"],
        ),
        (
            {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""},
            ["NVIDIA GPU"] * 2,
        ),
    ],
)
def test_gpus_are_found_without_their_libraries(files, names, tmp_path):
    assert machine.find_gpus(write(tmp_path, files)) == names


@pytest.mark.parametrize(
    "gpus, visible, expected",
    [
        ([], None, "device: CPU, 3 cores (no GPU found)"),
        (["NVIDIA A"], None, "pip install 'keras-transformer-nmt[gpu]' inst"),
        (["NVIDIA A"], "-1", "CUDA_VISIBLE_DEVICES='-1' selects none"),
    ],
)
def test_a_run_names_its_device(gpus, visible, expected, monkeypatch):
    monkeypatch.setattr(devices, "count_cores", lambda: 3)
    monkeypatch.setattr(devices, "find_gpus", lambda: gpus)
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    line = devices.describe()
    assert expected in line
    start = "warning: a GPU is present (NVIDIA A), but TensorFlow cannot use it"
    assert line.startswith(start) == bool(gpus)


def see_gpu(monkeypatch, **details):
    """Makes TensorFlow report a GPU with these details."""
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: ["gpu"])
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "get_device_details", lambda _: details)


def test_a_gpu_is_named_with_its_versions(monkeypatch):
    see_gpu(monkeypatch, device_name="NVIDIA H100")
    versions = {"cuda_version": "12.5"}
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: versions)
    assert devices.describe() == (
        f"device: NVIDIA H100 (TensorFlow {tf.__version__}, CUDA 12.5)"
    )


@pytest.mark.parametrize(
    "capability, precision",
    [
        ((9, 0), "mixed_bfloat16"),
        ((8, 0), "mixed_bfloat16"),
        ((7, 5), "float32"),
    ],
)
def test_the_default_precision_is_the_fast_one(
    capability, precision, monkeypatch
):
    """Simulated: Ampere and later multiply bfloat16 faster."""
    see_gpu(monkeypatch, device_name="A", compute_capability=capability)
    found = tensorflow_engine.TensorFlowDevices("one_device", "gpu")
    assert found.precision == precision
    with pytest.raises(
        ValueError, match="device=tpu is not available. Received: "
    ):
        tensorflow_engine.TensorFlowDevices("one_device", "tpu")


def test_a_backend_that_no_command_has(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    message = fails(wmt.main, [f"--workdir={tmp_path}/run"], capsys)
    assert "one of tensorflow, jax. Received: KERAS_BACKEND='torch'" in message
    monkeypatch.delenv("KERAS_BACKEND")
    argv = [f"--workdir={tmp_path}/run", "--backend=jax"]
    assert "this process uses the backend tensorflow" in fails(
        wmt.main, argv, capsys
    )


def test_a_wanted_device_that_is_not_there(tmp_path, capsys):
    argv = ["--recipe=quickstart", f"--workdir={tmp_path}/run", "--device=gpu"]
    message = fails(wmt.main, argv, capsys)
    assert "device=gpu is not available. Received: device: CPU, " in message
    assert not (tmp_path / "run").exists()
    found = tensorflow_engine.TensorFlowDevices("one_device", "cpu")
    assert found.precision == "float32"
