"""Standard error of a command while TensorFlow starts.

A package named tensorflow takes the place of the real one where the test is
about a start that fails, hangs or talks.
"""

import itertools
import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
from commands import ROOT

from keras_transformer.base import machine
from keras_transformer.commands import quiet
from keras_transformer.commands.quiet import MESSAGES, NOTICE

RUN = ROOT / "tests/fixtures/workdir_0_2/run"
TIMES = (
    b"I0000 00:00:1795732939.293843    9527 port.cc:153] ",
    b"I0000 00:00:1795732939.294707    9527 cudart_stub.cc:31] ",
    b"E0000 00:00:1795732941.420017    9527 cuda_platform.cc:52] ",
)
KNOWN = [
    NOTICE,
    *(time + text for time, text in zip(TIMES, MESSAGES, strict=True)),
]
ALL_KNOWN = b"".join(KNOWN)
# Each differs from a known line in one thing.
OTHERS = [  # the last one has no end
    b"E0000 00:00:1795732941.420017    9527 x.cc:52] "
    + MESSAGES[2].replace(b"303", b"999"),
    b"F0000 00:00:1795732941.420017    9527 x.cc:52] " + MESSAGES[1],
    b"I0000 00:00:1795732941.420017    9527 x.cc:52] and " + MESSAGES[1],
    b"WARNING: All log messages are lost\n",
    b"\n",
    b"no end",
]
FAKE = """
import os, subprocess, threading
def say(text):  # as C++ does, whoever reads it
    try:
        os.write(2, text)
    except OSError:
        pass
class config:
    list_physical_devices = lambda: say({devices!r})
say({first!r})
{last}
"""
COMMAND = [sys.executable, "-m", "trainers.translate", f"--workdir={RUN}"]
LOAD = """
import os
import keras_transformer
before = sorted(os.listdir('/proc/self/fd'))
try:
    os.dup2(2, 50)
except OSError:
    pass
import tensorflow
try:
    print(os.path.sameopenfile(2, 50))
    os.close(50)
except OSError:
    print('closed')
print(before == sorted(os.listdir('/proc/self/fd')))
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print('no child')
os.write(2, b'after')
"""
PROGRAM = [sys.executable, "-c", LOAD]


def environment(folder):
    kept = {n: v for n, v in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
    return kept | {"PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.fixture
def fake(tmp_path):
    """Makes a TensorFlow that writes lines, and then ends in some way."""

    def make(first, last, devices=KNOWN[3]):
        package = tmp_path / "tensorflow"
        package.mkdir(exist_ok=True)
        code = FAKE.format(first=first, last=last, devices=devices)
        (package / "__init__.py").write_text(code)

    return make


@pytest.fixture
def start(fake, tmp_path):
    """Runs a program with such a TensorFlow."""

    def run(last="", command=COMMAND, first=ALL_KNOWN, **options):
        fake(first, last)
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        variables = environment(tmp_path)
        return subprocess.run(command, env=variables, **pipes | options)

    return run


def test_known_lines_are_dropped_and_no_others(start):
    """A line has an end: what follows a text without one is part of it."""
    both = itertools.zip_longest(OTHERS[:-1], KNOWN, fillvalue=b"")
    first = b"".join([*itertools.chain(*both), OTHERS[-1]])
    done = start(first=first, command=PROGRAM)
    assert done.stderr == b"".join([*OTHERS, KNOWN[3], b"after"])


@pytest.mark.parametrize(
    "last, end",
    [
        ("os.abort()", b""),
        ("os.kill(os.getpid(), 9)", b""),
        ("raise OSError('no memory')", b"OSError: no memory\n"),
        ("import no_such_library", b"No module named 'no_such_library'\n"),
        ("os._exit(3)", b""),
    ],
)
def test_nothing_is_dropped_if_tensorflow_does_not_load(start, last, end):
    """In whatever way: the process that holds the lines outlives an abort."""
    done = start(last, first=OTHERS[0] + ALL_KNOWN)
    assert done.returncode not in (0, 2)
    assert done.stderr.startswith(OTHERS[0] + ALL_KNOWN)
    assert done.stderr.endswith(end)


@pytest.mark.parametrize("kind", ["file", "pipe", "closed", "nobody reads"])
def test_standard_error_of_any_kind(start, tmp_path, kind):
    """It is the same afterwards, and no process or descriptor is left."""
    path, text = tmp_path / "err", OTHERS[0]
    command, options = PROGRAM, {}
    if kind == "file":
        options["stderr"] = path.open("wb")
    elif kind == "closed":
        command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *PROGRAM]
    elif kind == "nobody reads":
        read_end, options["stderr"] = os.pipe()
        os.close(read_end)
    done = start(first=text, command=command, **options)
    same = b"closed" if kind == "closed" else b"True"
    assert done.stdout.split(b"\n") == [same, b"True", b"no child", b""]
    err = path.read_bytes() if kind == "file" else done.stderr
    if kind in ("file", "pipe"):
        assert err == text + b"after"


def test_lines_arrive_at_once_also_of_other_threads(fake, tmp_path):
    """TensorFlow goes on only when the line of its thread was read."""
    read_end, write_end = os.pipe()
    last = (
        f"threading.Thread(target=say, args=({OTHERS[1]!r},)).start();"
        f"os.read({read_end}, 1)"
    )
    fake(KNOWN[0], last, devices=b"")
    with subprocess.Popen(
        PROGRAM,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[read_end],
    ) as process:
        assert process.stderr.readline() == OTHERS[1]
        os.write(write_end, b"x")
        assert process.stderr.read() == b"after"


def test_a_process_that_stays_does_not_hold_the_command_up(start):
    """It inherited standard error while TensorFlow was loading."""
    last = "child = subprocess.Popen(['sleep', '3600'])"
    kill = "import tensorflow; tensorflow.child.kill()"
    done = start(last, [*PROGRAM[:2], f"{LOAD}{kill}"], timeout=600)
    assert done.stderr == b"after"


def test_ctrl_c_reaches_the_command(start):
    # A shell that starts tests in the background lets them ignore it.
    last = "import signal; signal.signal(2, signal.SIG_DFL); os.killpg(0, 2)"
    done = start(last, start_new_session=True)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ALL_KNOWN


def test_ctrl_c_while_a_command_starts_is_one_line_or_none(start):
    # As Python handles it in the terminal's foreground.
    last = "import signal; raise KeyboardInterrupt"
    done = start(last)
    assert (done.returncode, done.stderr) == (
        128 + signal.SIGINT,
        b"kt-translate: interrupted\n",
    )
    name = "import sys; sys.argv = ['/bin/kt-train']; import trainers;"
    done = start(command=[*PROGRAM[:2], f"{name} raise KeyboardInterrupt"])
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
    done = start(command=[*PROGRAM[:2], f"{name} raise ValueError(3)"])
    assert done.stderr.endswith(b"ValueError: 3\n")


@pytest.mark.parametrize("level, gpus", [("0", []), ("2", ["NVIDIA A"])])
def test_with_a_gpu_and_at_level_0_nothing_is_dropped(level, gpus, monkeypatch):
    monkeypatch.setitem(os.environ, "TF_CPP_MIN_LOG_LEVEL", level)
    monkeypatch.setattr(machine, "find_gpus", lambda: gpus)
    monkeypatch.setattr(quiet, "first_lines_dropped", pytest.fail)
    finder = Mock()
    monkeypatch.setattr(sys, "meta_path", [quiet.QuietTensorFlow(), finder])
    execute = finder.find_spec.return_value.loader.exec_module
    spec = sys.meta_path[0].find_spec("tensorflow", None)
    spec.loader.exec_module("the module")
    execute.assert_called_once_with("the module")
    assert sys.meta_path[0].find_spec("tensorflow_text") is None


def test_without_a_second_process_nothing_is_dropped(monkeypatch, capfd):
    def fail(*_, **__):
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", fail)
    before = sorted(os.listdir("/proc/self/fd"))
    with quiet.first_lines_dropped():
        os.write(2, NOTICE)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert capfd.readouterr().err == NOTICE.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "trainers.translate", f"--workdir={RUN}"],
        pytest.param(
            [
                *("-m", "savedmodel.export", f"--workdir={RUN}"),
                "--format=saved_model",
            ],
            marks=pytest.mark.slow("format"),
        ),
        pytest.param(
            ["-c", "import keras_transformer as kt; kt.Transformer"],
            marks=pytest.mark.slow("process"),
        ),
    ],
)
def test_a_program_on_a_cpu_is_quiet(arguments, tmp_path):
    """TensorFlow itself: its lines are still the known ones."""
    if "savedmodel.export" in arguments:
        arguments = [*arguments, f"--output={tmp_path / 'exported'}"]
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(tmp_path),
        input=b"a\n",
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
