"""Checkpoints with changed bytes, which are never used as if intact."""

import json
import os
import pathlib
import random
import shutil
import struct

import numpy as np
import pytest

from keras_transformer.storage.checkpoints import (
    Checkpoint,
    Checkpoints,
    corruption,
    write_safetensors,
)

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures/workdir_0_2/run"
PROGRESS = {
    "step": 14,
    "data_step": 20,
    "best_score": -1.0,
    "best_label": "BLEU (13a), ä",
}


@pytest.fixture
def prefix(tmp_path):
    groups = {
        "weights": {
            "kernel": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
            "half": np.arange(4, dtype=np.float16),
        },
        "optimizer": [np.array(14), np.zeros((3, 1), np.float32)],
        "seeds": [np.arange(2, dtype=np.uint32)],
    }
    return Checkpoints(tmp_path).save(groups, 14, keep=9, progress=PROGRESS)


def file_of(prefix):
    return pathlib.Path(f"{prefix}.safetensors")


def contents(prefix):
    """Returns all that a checkpoint gives, to the last bit."""
    checkpoint = Checkpoint(prefix)
    arrays = {name: checkpoint.read(name) for name in checkpoint.shapes}
    return (
        checkpoint.progress,
        checkpoint.shapes,
        {
            name: (array.dtype, array.shape, array.tobytes())
            for name, array in arrays.items()
        },
    )


def with_header(prefix, change):
    """Changes a copy of the header in JSON. The data stay."""
    path = file_of(prefix)
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def test_it_is_read_as_it_was_written(prefix):
    progress, shapes, arrays = contents(prefix)
    assert progress == PROGRESS
    assert shapes["weights/kernel"] == (2, 3) and shapes["optimizer/0"] == ()
    assert arrays["weights/half"][0] == np.float16
    assert corruption(prefix) is None


def changed(data, generator):
    """Returns bytes with one to three, or a range, of changed values."""
    data = bytearray(data)
    size = generator.choice((1, 1, 1, 2, 3, 40))
    start = generator.randrange(len(data))
    for index in range(start, min(start + size, len(data))):
        if size > 3:
            data[index] = generator.randrange(256)
        else:
            data[index] ^= 1 << generator.randrange(8)
    return bytes(data)


def test_no_change_of_bytes_is_silent(prefix):
    before, data = contents(prefix), file_of(prefix).read_bytes()
    generator, refused = random.Random(5), 0
    for _ in range(300):
        file_of(prefix).write_bytes(changed(data, generator))
        if corruption(prefix) is not None:
            refused += 1
        else:
            assert contents(prefix) == before
    assert refused > 290


def test_no_flipped_bit_of_the_header_is_silent(prefix):
    before, data = contents(prefix), file_of(prefix).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    for index in range(8 + size):
        copy = bytearray(data)
        copy[index] ^= 1 << index % 8
        file_of(prefix).write_bytes(copy)
        # Padding is white space.
        assert corruption(prefix) or contents(prefix) == before, index


def metadata(*without, **changes):
    """Returns a function that changes the metadata of a header."""

    def change(header):
        found = header["__metadata__"] | changes
        kept = {k: v for k, v in found.items() if k not in without}
        header["__metadata__"] = kept

    return change


def kernel(**changes):
    return lambda header: header["weights/kernel"].update(changes)


@pytest.mark.parametrize(
    "change, reason",
    [
        (metadata(step="15"), "expected the checksum"),
        (metadata("checksum"), "expected a header of fo"),
        # Version 2 has no checksum of the header.
        (metadata(format_version="2"), ". Received: format_version='2' with"),
        (metadata(format_version="4"), "expected the checksum"),
        (metadata(format_version="5"), "(a newer version of"),
        # Two changes: its checksums match the version's.
        (metadata("checksum", "step", format_version="2"), "checksum mismatch"),
        (lambda h: h.pop("__metadata__"), "expected a header of format_versi"),
        (kernel(dtype="I32"), "checksum mismatch in weights/kernel"),
        (kernel(shape=[3, 2]), "checksum mismatch in weights/kernel"),
        (
            lambda h: h.update({"weights/k": h.pop("weights/kernel")}),
            "expected an array for each checksum",
        ),
    ],
)
def test_another_header_is_refused(prefix, change, reason):
    with_header(prefix, change)
    assert reason in corruption(prefix)


def test_the_file_of_another_step_is_refused(prefix, tmp_path, caplog):
    """Two files may have exchanged their names."""
    other = tmp_path / "ckpt-15"
    shutil.copy(file_of(prefix), file_of(other))
    reason = "expected the step of its name. Received: step=14"
    assert corruption(str(other)) == reason
    assert Checkpoints(tmp_path).find_intact() == prefix
    assert f"corrupt checkpoint {other}: {reason}" in caplog.text
    # Averages have no progress.
    Checkpoints(tmp_path / "averaged").save({}, 3, keep=1)
    average = tmp_path / "averaged/ckpt-3"
    assert corruption(str(average)) is None
    os.rename(file_of(average), file_of(tmp_path / "ckpt-4"))
    assert "Received: step=3" in corruption(str(tmp_path / "ckpt-4"))
    # A name that is not of this form says nothing.
    os.rename(file_of(other), file_of(tmp_path / "mine"))
    assert corruption(str(tmp_path / "mine")) is None


def test_a_checkpoint_of_0_2_0_is_read(tmp_path):
    latest = str(FIXTURE / "checkpoints/ckpt-6")
    averaged = Checkpoints(FIXTURE / "averaged").prefixes()[0]
    assert corruption(latest) is None and corruption(averaged) is None
    assert Checkpoint(latest).progress["data_step"] == 6
    shutil.copy(file_of(latest), tmp_path / "ckpt-7.safetensors")
    assert "Received: step=6" in corruption(str(tmp_path / "ckpt-7"))


@pytest.mark.parametrize(
    "progress",
    ["null", "[]", "3", "[" * 100_000, '{"step": null}', '{"a": {}}', "{", ""],
)
def test_another_progress_of_0_2_0_is_one_line(tmp_path, progress):
    prefix = str(tmp_path / "ckpt-1")
    for given in (("progress", "sha256"), ("sha256", "progress")):
        values = dict(zip(given, (progress, "{}"), strict=True))
        header = {"format_version": "2", **values}
        write_safetensors(f"{prefix}.safetensors", {}, header)
        assert corruption(prefix).startswith("not a checkpoint: ")


def test_the_newest_intact_ones_up_to_a_number(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(1, 5):
        checkpoints.save({"weights": {"a": np.zeros(2)}}, step, keep=9)
    file_of(tmp_path / "ckpt-3").write_bytes(b"")
    expected = [str(tmp_path / f"ckpt-{step}") for step in (4, 2, 1)]
    for count in (1, 2, 3):
        assert checkpoints.intact(count) == expected[:count]
    assert checkpoints.intact(9) == expected
