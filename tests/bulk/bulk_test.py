"""Translation of a file in shards: equal to the plain command's, whatever
happens to processes, disk and files.

Most tests have a translator without a model, `echo.Echo`. The test with Apache
Beam needs an environment of its own: `make test-beam`.
"""

import errno
import fcntl
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import exports
import pytest
from commands import fails
from echo import Echo
from later import later

from keras_transformer.base.files import checksum_of, with_checksum
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.storage.workdir import WorkDirectory
from trainers import translate, translate_corpus
from trainers.translating import lines as translating
from trainers.translating import plan as plans
from trainers.translating import shards as translation
from trainers.translating.options import TranslatorChoice, TranslatorOptions

NUM_LINES = 1000
SHARD_LINES = 40


class Job:
    """A file that `Echo` translates, and the flags of the translation."""

    def __init__(self, directory):
        self.workdir = directory / "run"
        self.workdir.mkdir()
        WorkDirectory(self.workdir).write_config(decoding=DecodingConfig())
        self.checkpoint = self.workdir / "ckpt-1.safetensors"
        self.checkpoint.write_bytes(b"weights")
        self.input = directory / "input.txt"
        lines = [f"line {i} {'x' * (i % 70)}" for i in range(NUM_LINES)]
        lines[50] = lines[999] = "long line"
        self.input.write_text("".join(f"{line}\n" for line in lines))
        self.output = directory / "new/output"
        self.collected = directory / "joined/translation.txt"
        self.expected = self.input.read_text().upper()

    def argv(self, *more):
        return [
            f"--workdir={self.workdir}",
            f"--input={self.input}",
            f"--output={self.output}",
            f"--shard_lines={SHARD_LINES}",
            *more,
        ]

    def translate(self, *more):
        translate_corpus.main(self.argv(*more))

    def collect(self, path=None):
        """Runs --collect into a path or its own. Returns the joined text."""
        collect = f"--collect={path or self.collected}"
        translate_corpus.main([f"--output={self.output}", collect])
        return (path or self.collected).read_text()

    def fails(self, capsys, *more):
        """Returns the one error line of a failing translation."""
        return fails(translate_corpus.main, self.argv(*more), capsys)

    def fails_to_collect(self, capsys, path=None, code=2):
        """Returns the one error line of a failing collection without output."""
        collect = f"--collect={path or self.collected}"
        argv = [f"--output={self.output}", collect]
        message = fails(translate_corpus.main, argv, capsys, code)
        assert not self.collected.parent.exists()
        return message

    def unfinished(self):
        """Returns the directories of unfinished shards."""
        return list(self.output.glob("[0-9]*.????????"))

    def start_and_wait(self, processes):
        """Starts a process that stays in the middle of shard 0."""
        process = processes.start(self.argv(), module="echo", ECHO_SECONDS="99")
        deadline = time.monotonic() + 120
        while not self.unfinished():
            assert time.monotonic() < deadline, "no shard was begun"
            time.sleep(0.01)
        return process

    def plan(self):
        return plans.open_plan(
            self.output, self.input, plans.read_plan(self.output).settings
        )

    def echo(self, *argv):
        sections = (TranslatorOptions, DecodingConfig)
        arguments = flags.parse(
            [f"--workdir={self.workdir}", *argv], "", *sections
        )
        return Echo(TranslatorChoice.of(arguments))


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "open_translator", Echo)
    return Job(tmp_path)


@pytest.fixture
def done(job):
    """The job when all its shards are finished."""
    job.translate()
    return job


SOURCES = (
    b"one dog\n\nthe house is green\n\xff tree\r\n"
    b"one two three one two three one two three one two three red\n"
    b"two red dogs and three green trees\n   \ntree"
)


def translate_plainly(argv, monkeypatch):
    """Returns the plain command's output for `SOURCES`."""
    out = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SOURCES)))
        patch.setattr(sys, "stdout", out)
        translate.main([f"--workdir={exports.workdir()}", *argv])
    return out.buffer.getvalue()


@pytest.mark.parametrize(
    "ending, argv",
    [("", []), *later("options", (".gz", ["--n_best=2", "--alignments"]))],
)
def test_the_output_is_that_of_the_plain_command(
    tmp_path, monkeypatch, capsys, ending, argv
):
    """Scores are equal to the last digit if a chunk has the same lines."""
    for module in (translating, translation):
        monkeypatch.setattr(module, "CHUNK", 3)
    source, joined = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    source.write_bytes(gzip.compress(SOURCES) if ending else SOURCES)
    shards = tmp_path / "shards"
    translate_corpus.main(
        [
            f"--workdir={exports.workdir()}",
            f"--input={source}",
            f"--output={shards}",
            "--shard_lines=3",
            *argv,
        ]
    )
    capsys.readouterr()
    translate_corpus.main([f"--output={shards}", f"--collect={joined}"])
    found = joined.read_bytes()
    expected = translate_plainly(argv, monkeypatch)
    assert (gzip.decompress(found) if ending else found) == expected
    number = len(expected.splitlines())
    assert capsys.readouterr().out == (
        f"{joined}: {number} lines of 3 shards, with 2 notes\n"
    )
    notes = (shards / "00001/notes.txt").read_text().splitlines()
    assert notes[0].endswith(
        "line 4 is not UTF-8 (invalid start byte, byte 1 of the line)"
    )
    [truncated] = [n for n in notes if "truncated" in n]
    assert truncated.startswith("line 5 has ")
    assert not (shards / "00000/notes.txt").exists()


def test_each_shard_is_told_and_all_are_counted(job, capsys):
    job.translate()
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 25
    assert lines[1].startswith("00001: 1 notes; 80 of 1,000 lines, ")
    assert last == (
        f"{job.output}: 1,000 lines in 25 shards are finished, with 2 notes"
        f" ({job.output}/*/notes.txt)"
    )
    job.translate()  # does nothing
    assert capsys.readouterr().out == f"{last}\n"
    assert job.collect() == job.expected


def test_an_empty_file(job):
    job.input.write_bytes(b"")
    job.translate()
    assert job.collect() == ""
    assert job.collect() == ""  # also where a file is that equals the input


def test_a_shard_is_read_without_those_before_it(done):
    plan = done.plan()
    shutil.rmtree(done.output / "00007")
    with open(done.input, "r+b") as file:
        file.write(b"X")  # in shard 0
    translation.translate_shard(plan, plan.shards[7], done.echo())
    assert done.collect() == done.expected


def test_samples_depend_on_the_seed_alone(job):
    job.translate("--sampling", "--seed=5")
    before = job.collect()
    numbers = [line.split()[0] for line in before.splitlines()]
    assert set(numbers) == {"5"}
    for name in ("00003", "00017"):
        shutil.rmtree(job.output / name)
    plan, echo = job.plan(), job.echo("--sampling")
    for number in (17, 3):  # in another order, in one process
        translation.translate_shard(plan, plan.shards[number], echo)
    assert job.collect() == before
    shutil.rmtree(job.output)
    job.translate("--sampling", "--seed=6")
    assert job.collect() != before


def test_several_samples_of_each_line_are_collected(job):
    argv = ["--sampling", "--num_samples=2", "--seed=5"]
    job.translate(*argv)
    lines = job.collect().splitlines()
    assert len(lines) == 2 * NUM_LINES
    assert lines[1].startswith("1 ||| 5 LINE 0 !")


# Accidents of processes


@pytest.mark.slow("process")
def test_killed_at_many_moments(job, processes):
    rng, killed = random.Random(3), 0
    while True:
        process = processes.start(job.argv(), module="echo", ECHO_SECONDS=".01")
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        killed += 1
        if killed == 6:
            processes.start(job.argv(), module="echo").ends()
            break
    assert killed > 2
    assert job.collect() == job.expected
    assert not job.unfinished()


@pytest.mark.parametrize(
    "number, status", [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_ended_by_a_signal(job, processes, number, status):
    process = job.start_and_wait(processes)
    process.send_signal(number)
    assert process.wait() == status
    assert len(job.unfinished()) == (number == signal.SIGTERM)
    job.translate()
    assert job.collect() == job.expected
    assert not job.unfinished()


def test_two_processes_share_the_shards(job, processes):
    two = [
        processes.start(job.argv(), module="echo", ECHO_SECONDS=".05")
        for _ in range(2)
    ]
    made = [
        [line[:5] for line in out.splitlines() if " notes; " in line]
        for out in [process.ends() for process in two]
    ]
    assert sorted(made[0] + made[1]) == [f"{n:05}" for n in range(25)]
    assert min(map(len, made)) > 2
    assert job.collect() == job.expected


def test_the_shard_of_another_process_is_left_to_it(job, processes, capsys):
    process = job.start_and_wait(processes)
    job.translate()
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 24
    assert last == f"{job.output}: others are translating 00000"
    assert job.fails_to_collect(capsys) == (
        f"kt-translate-corpus: {job.output}: 1 of 25 shards are not"
        " finished: 00000\n"
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    job.translate()
    assert job.collect() == job.expected


def test_without_locks_the_first_to_finish_a_shard_determines_it(job):
    """Two machines may share a file system that locks only on each of them."""
    job.translate("--sampling")
    shutil.rmtree(job.output / "00002")
    plan, texts = job.plan(), []

    def meanwhile(_):
        first = plan.shards[2]._replace(number=2)
        other = job.echo("--sampling")
        # With other bytes, as of another machine.
        other.with_seed = lambda seed: Echo.with_seed(other, seed + 1)
        translation.translate_shard(plan, first, other)
        texts.append((job.output / "00002/translation.txt").read_text())

    late = job.echo("--sampling")
    translation.translate_shard(plan, plan.shards[2], late, meanwhile)
    plan.check_shards()
    assert texts == [(job.output / "00002/translation.txt").read_text()]
    assert not job.unfinished()


@pytest.mark.parametrize("name", [".lock", ".input", "config.json"])
def test_a_directory_of_another_command_is_left_alone(job, capsys, name):
    job.output.mkdir(parents=True)
    other = job.output / name
    other.write_text("theirs")
    with open(other, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # as a training does
        error = job.fails(capsys)
    assert f"has other files: {name}" in error
    assert [p.name for p in job.output.iterdir()] == [name]
    assert other.read_text() == "theirs"


def test_a_file_system_without_locks_is_named(done, monkeypatch, capsys):
    shutil.rmtree(done.output / "00003")

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), "plan.lock")

    monkeypatch.setattr(plans, "lock_file", refuse)
    assert os.strerror(errno.ENOLCK) in done.fails(capsys)


def test_a_record_that_cannot_be_read_is_named(done, capsys):
    (done.output / "00003/record.json").write_text("")
    assert "00003/record.json" in done.fails(capsys)


def test_files_of_a_collection_are_written_where_links_point(done, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    assert done.collect(link) == done.expected
    assert link.is_symlink() and target.read_text() == done.expected
    done.collect(pathlib.Path("/dev/null"))
    assert not os.path.isfile("/dev/null")


# Accidents of files


def test_a_full_disk_is_one_line(job, processes):
    job.input.write_text("word " * 5000 + "\n" + "b\n" * 40)
    process = processes.start(
        job.argv(), module="echo", accident="fill_disk"
    )  # no file above 20,000 bytes
    process.ends(1)
    assert process.err.endswith(
        f"kt-translate-corpus: cannot write to {job.output}: File too"
        " large. Rerun the same command to resume\n"
    )
    assert not job.unfinished()
    processes.start(job.argv(), module="echo").ends()
    assert job.collect() == job.input.read_text().upper()


@pytest.mark.parametrize(
    "changed_file, flags, named",
    [
        ("checkpoint", [], "checkpoint_sha256 was "),
        ("input", [], "input_sha256 was "),
        (
            None,
            ["--beam_size=2", "--shard_lines=41"],
            "beam_size was 4 and is 2; shard_lines was 40 and is 41",
        ),
    ],
)
def test_another_plan_is_refused(done, capsys, changed_file, flags, named):
    before = sorted(done.output.rglob("*"))
    if changed_file:
        getattr(done, changed_file).write_text("another line\n")
    message = done.fails(capsys, *flags)
    prefix = f"kt-translate-corpus: {done.output} has another plan: {named}"
    assert message.startswith(prefix)
    assert message.count(" was ") == named.count(" was ")
    assert message.endswith(". Choose another directory\n")
    assert sorted(done.output.rglob("*")) == before


def lose_shard_and_change_it(job):
    """Replaces shard 2 by another text of the same size and time."""
    shutil.rmtree(job.output / "00002")
    status = job.input.stat()
    text = job.input.read_text()
    job.input.write_text(text.replace("line 100", "LINE 100"))
    os.utime(job.input, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_an_input_that_changes_unseen_is_found_in_its_shard(done, capsys):
    lose_shard_and_change_it(done)
    assert done.fails(capsys) == (
        f"kt-translate-corpus: {done.input} has changed since"
        f" {done.output}/plan.json was made: lines 81 to 120 no longer match"
        " it\n"
    )
    assert not done.unfinished()


def corrupt_text(shard):
    path = shard / "translation.txt"
    path.write_text(path.read_text().replace("LINE 1", "LINE 2"))
    return "checksum mismatch in translation.txt"


def lost(name):
    """Returns a function that removes a file of a shard."""

    def lose(shard):
        (shard / name).unlink()
        return f"[Errno 2] No such file or directory: '{shard / name}'"

    return lose


def changed(problem, **changes):
    """Returns a function that changes a record, and its checksum, too."""

    def change(shard):
        path = shard / "record.json"
        values = json.loads(path.read_text()) | changes
        path.write_text(json.dumps(with_checksum(values)))
        return problem

    return change


def change_record(shard):
    path = shard / "record.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"notes": 5}))
    return (
        f"{path}: expected the checksum"
        f" {checksum_of(values | {'notes': 5})}. Received:"
        f" checksum='{values['checksum']}'"
    )


@pytest.mark.parametrize(
    "damage",
    [
        corrupt_text,
        lost("translation.txt"),
        lost("record.json"),
        changed("39 lines instead of 40", lines=39),
        changed("made by another plan", plan_checksum="another"),
        changed("it is shard 00004", shard=4),
        changed("made from other lines", source_sha256="another"),
        change_record,
    ],
)
def test_a_corrupt_shard_is_named_and_can_be_made_again(done, capsys, damage):
    problem = damage(done.output / "00003")
    assert done.fails_to_collect(capsys) == (
        f"kt-translate-corpus: {done.output}: corrupt shards: 00003"
        f" ({problem}). Remove their directories and translate again\n"
    )
    shutil.rmtree(done.output / "00003")
    done.translate()
    assert done.collect() == done.expected


@pytest.mark.parametrize("name", ["translation.txt", "record.json"])
def test_a_disk_that_fails_is_not_a_corrupt_shard(done, capsys, name):
    """/proc/self/mem opens, and fails when it is read, as a bad disk does."""
    path = done.output / "00003" / name
    path.unlink()
    path.symlink_to("/proc/self/mem")
    assert done.fails_to_collect(capsys, code=1) == (
        f"kt-translate-corpus: Input/output error: '{path}'\n"
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda plan: plan["shards"][3].update(offset=1), "expected the check"),
        (lambda plan: plan.pop("checksum"), "expected the checksum "),
        (lambda plan: plan.clear(), "expected format_version 2. Received: for"),
        (lambda plan: plan.update(format_version=1), "expected format_version"),
    ],
)
def test_a_corrupt_plan_is_one_line(done, capsys, change, message):
    path = done.output / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))
    for error in (done.fails_to_collect(capsys), done.fails(capsys)):
        assert error.startswith(f"kt-translate-corpus: {path}: {message}")


@pytest.mark.parametrize("name", ["plan.json", "00003/record.json", "new"])
def test_a_collection_is_not_written_into_its_directory(done, capsys, name):
    target = done.output / name
    before = target.exists() and target.read_bytes()
    link = done.workdir / "link"
    link.symlink_to(target)
    for path in (target, link):
        assert done.fails_to_collect(capsys, path) == (
            "kt-translate-corpus: expected collect outside output."
            f" Received: collect='{path}', output='{done.output}'\n"
        )
    assert (target.exists() and target.read_bytes()) == before
    assert done.collect() == done.expected


def test_a_collection_is_not_written_over_the_input(done, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copy(done.input, copy)
    for path in (done.input, copy):
        assert done.fails_to_collect(capsys, path) == (
            "kt-translate-corpus: expected collect other than the input."
            f" Received: collect='{path}'\n"
        )
    text = done.input.read_text()
    copy.write_text(text.swapcase())  # as long, and another file
    assert done.collect(copy) == done.expected
    assert done.input.read_text() == text


def test_a_corrupt_gz_leaves_nothing(job, capsys):
    job.input = job.input.with_suffix(".gz")
    job.input.write_bytes(gzip.compress(b"line\n" * 1000)[:-9])
    message = job.fails(capsys)
    assert f"{job.input}: corrupt gzip file (" in message
    assert not job.output.parent.exists()


@pytest.mark.beam
def test_beam_translates_the_shards_that_are_left(job):
    job.translate("--sampling")
    before = job.collect()
    for name in ("00003", "00017"):
        shutil.rmtree(job.output / name)
    (job.output / "00005.0123abcd").mkdir()
    job.translate("--sampling", "--runner=DirectRunner")
    assert job.collect() == before
    assert not job.unfinished()


@pytest.mark.beam
@pytest.mark.parametrize(
    "options, message",
    [
        ("", "{job.input} has changed since"),
        # In another process, which does not know of `Echo`.
        (
            " --direct_num_workers=2 --direct_running_mode=multi_processing",
            "expected a work directory made by kt-train",
        ),
    ],
)
def test_an_error_of_a_worker_of_beam_is_one_line(
    done, capsys, options, message
):
    lose_shard_and_change_it(done)
    with pytest.raises(SystemExit) as status:
        done.translate(f"--runner=DirectRunner{options}")
    assert status.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"kt-translate-corpus: {message.format(job=done)}")
