"""Checkpoints: files with the arrays and the progress of a training.

    ckpt-1500.safetensors

Any backend writes and reads them. An array is named GROUP/NAME, such as
weights/encoder.layer_0.feed_forward.inner.kernel. The header of the file has
the step, the progress, the SHA-256 of each array with its dtype and shape, and
a checksum of all these. A file exists only when complete: it is written under
another name and renamed. The path of a checkpoint is given without its ending.

A packed model (see `quantized`) has 8-bit integers. They are read as float32.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import typing
from collections.abc import Iterable, Mapping

import ml_dtypes
import numpy as np
from absl import logging
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_transformer.base.files import (
    CHECKSUM,
    check_checksum,
    naming,
    new_file,
    with_checksum,
)

FORMAT_VERSION = "3"
# The exact keys of the header by version: a file of version 3 whose number has
# become 2 is refused, too. In version 2, that of release 0.2.0, the checksums
# cover only the bytes of arrays. Version 4 has integers, with scales.
HEADERS = {
    "2": {"format_version", "progress", "sha256"},
    "3": {"format_version", "progress", "sha256", "step", CHECKSUM},
    "4": {"format_version", "progress", "sha256", "step", CHECKSUM},
}
SCALES = "scales/"  # before the name of an array of integers
ENDING = ".safetensors"
READ_BYTES = 1 << 20
NAME = r"ckpt-(0|[1-9]\d*)"  # not ckpt-0006: steps have no leading zeros

if typing.TYPE_CHECKING:
    import keras

Groups: typing.TypeAlias = dict[str, dict[str, typing.Any] | list[typing.Any]]


class Checkpoints:
    """The checkpoints in a directory, one per step. It need not exist."""

    def __init__(self, directory: str | os.PathLike):
        self.directory = pathlib.Path(directory)

    def prefixes(self) -> list[str]:
        """Lists the paths of all checkpoints, corrupt ones too, newest first.

        Paths are without their ending.
        """
        steps = set()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(self.directory):
                match = re.fullmatch(NAME + re.escape(ENDING), name)
                # It may be a link that leads nowhere.
                if match and is_there(self._prefix(match[1])):
                    steps.add(int(match[1]))
        return [self._prefix(step) for step in sorted(steps, reverse=True)]

    def newer_than(self, prefix: str) -> list[str]:
        """Lists the paths of checkpoints of later steps, newest first."""
        return [p for p in self.prefixes() if step_of(p) > step_of(prefix)]

    def save(
        self,
        groups: Groups,
        step: int,
        keep: int,
        progress: dict[str, typing.Any] | None = None,
    ) -> str:
        """Writes a checkpoint, then removes all but the last `keep`.

        Returns its path, without the ending. Checkpoints of later steps are
        removed, too: training returns to an earlier step only if they are
        corrupt.
        """
        prefix = self._prefix(step)
        self.directory.mkdir(parents=True, exist_ok=True)
        _write(prefix, groups, step, progress or {})
        past = [p for p in self.prefixes() if step_of(p) <= step]
        kept = {os.path.basename(p) for p in past[:keep]}
        for path in self.directory.iterdir():
            name = re.match(rf"{NAME}(?=[._]|$)", path.name)
            if name and name[0] not in kept:
                path.unlink(missing_ok=True)
        return prefix

    def find_intact(self) -> str | None:
        """Returns the newest intact checkpoint, or None if there are none.

        Raises the errors of `intact`.
        """
        found = self.intact(1)
        return found[0] if found else None

    def intact(self, count: int) -> list[str]:
        """Lists up to `count` of the newest intact checkpoints, newest first.

        Logs a warning for each corrupt checkpoint that is skipped. Raises
        ValueError if there are checkpoints but all are corrupt, and OSError if
        one cannot be read, whatever its contents are.
        """
        while True:
            found, corrupt, removed = [], [], []
            for prefix in self.prefixes():
                reason = corruption(prefix)
                if reason is None:
                    found.append(prefix)
                elif is_there(prefix):
                    corrupt.append(prefix)
                    logging.warning("corrupt checkpoint %s: %s", prefix, reason)
                else:
                    removed.append(prefix)
                if len(found) == count:
                    break
            if not removed:  # otherwise there is a newer one: look again
                break
        if corrupt and not found:
            raise ValueError(
                "every checkpoint is corrupt: " + ", ".join(corrupt)
            )
        return found

    def _prefix(self, step):
        return str(self.directory / f"ckpt-{step}")


class Checkpoint:
    """A checkpoint on disk.

    Attributes:
        prefix: The path of the checkpoint, without its ending.
        shapes: The shape of each array, by GROUP/NAME.
        progress: Numbers and strings by name; empty if there are only weights.

    Raises FileNotFoundError if there is no such file, and ValueError if it is
    not a valid checkpoint.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        try:
            self._file = safe_open(prefix + ENDING, framework="numpy")
            header = self._file.metadata() or {}
            self._version = header.get("format_version", "")
            if header.keys() != HEADERS.get(self._version):
                raise ValueError(
                    f"expected a header of format_version {max(HEADERS)} or"
                    " less (a newer version of this package writes others)."
                    f" Received: format_version={self._version!r} with"
                    f" {', '.join(sorted(header))}"
                )
            if self._version != "2":
                check_checksum(header)
            self.progress: dict[str, typing.Any] = json.loads(
                header["progress"]
            )
            self._sums: dict[str, str] = json.loads(header["sha256"])
            for values in (self.progress, self._sums):
                if not isinstance(values, dict) or not all(
                    isinstance(value, int | float | str)
                    for value in values.values()
                ):
                    raise ValueError("expected numbers and strings by name")
        except (SafetensorError, RecursionError, ValueError) as error:
            raise ValueError(f"not a checkpoint: {error}") from error
        if {*self._file.keys()} != self._sums.keys():
            raise ValueError("expected an array for each checksum")
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(self._file.get_slice(name).get_shape())
            for name in self._file.keys()
            if not name.startswith(SCALES)
        }
        step = header.get("step", self.progress.get("step"))
        named = re.fullmatch(NAME, os.path.basename(prefix))
        if named and step is not None and named[1] != str(step):
            raise ValueError(
                f"expected the step of its name. Received: step={step}"
            )

    @property
    def weights_sha256(self) -> str:
        """A checksum of the weights, without the other groups of arrays."""
        own = ("weights/", f"{SCALES}weights/")
        sums = {n: s for n, s in self._sums.items() if n.startswith(own)}
        text = json.dumps(sums, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def read(self, name: str) -> np.ndarray:
        """Reads an array. Raises ValueError if it is missing or has changed."""
        array = self._read(name)
        if SCALES + name in self._sums:
            return array.astype(np.float32) * self._read(SCALES + name)
        return array

    def _read(self, name):
        try:
            array = self._file.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        if _sha256(array, self._version) != self._sums[name]:
            raise ValueError(f"checksum mismatch in {name}")
        return array


def _write(prefix, groups, step, progress):
    arrays = {}
    for group, members in groups.items():
        if isinstance(members, list):
            members = {str(index): one for index, one in enumerate(members)}
        for name, member in members.items():
            if hasattr(member, "numpy"):
                member = member.numpy()
            arrays[f"{group}/{name}"] = np.asarray(member)
    has_scales = any(name.startswith(SCALES) for name in arrays)
    header = {
        "format_version": "4" if has_scales else FORMAT_VERSION,
        "step": str(step),
        "progress": json.dumps(progress),
        "sha256": json.dumps({n: _sha256(a) for n, a in arrays.items()}),
    }
    write_safetensors(prefix + ENDING, arrays, with_checksum(header))


def write_safetensors(
    path: str | os.PathLike,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, str],
) -> None:
    """Writes arrays and metadata as a `new_file` in the safetensors format.

    The same arrays make the same bytes: safetensors alone orders metadata by
    chance. The file gets normal permissions: those of safetensors make it
    private.
    """
    with new_file(path) as file:
        try:
            save_file(arrays, file.name, metadata)  # replaces the file
        except SafetensorError as error:
            raise OSError(str(error)) from error
        os.chmod(file.name, os.fstat(file.fileno()).st_mode)
        with open(file.name, "r+b") as written:
            size = int.from_bytes(written.read(8), "little")
            header = json.loads(written.read(size))
            header["__metadata__"] = dict(sorted(metadata.items()))
            text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
            written.seek(8)
            written.write(text.encode().ljust(size))
            written.flush()
            os.fsync(written.fileno())


def quantized(weights: Mapping[str, "keras.Variable"]) -> Groups:
    """Returns the groups of a checkpoint of 8-bit integers.

    A matrix has a scale for each row, its last axis: 127 scales are the largest
    absolute value. Vectors stay float32.
    """
    integers, scales = {}, {}
    for name, weight in weights.items():
        array = np.asarray(weight.numpy(), np.float32)
        if array.ndim > 1:
            scale = np.abs(array).max(-1, keepdims=True) / np.float32(127)
            scales[name] = scale = np.where(scale > 0, scale, np.float32(1))
            array = np.rint(array / scale).astype(np.int8)
        integers[name] = array
    return {"weights": integers, f"{SCALES}weights": scales}


def _sha256(array, version=FORMAT_VERSION):
    """Returns the checksum of an array in a format version, in hexadecimal."""
    kind = f"{array.dtype.name} {array.shape} " if version != "2" else ""
    digest = hashlib.sha256(kind.encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def corruption(prefix: str) -> str | None:
    """Tells in one line why a checkpoint cannot be used, or returns None.

    Reads every array and compares its checksum. Weights must be finite. Raises
    OSError if the file cannot be read, as when another user owns it or the disk
    fails.
    """
    try:
        with naming(prefix + ENDING), open(prefix + ENDING, "rb") as file:
            # safetensors maps the file into memory, where a disk error would
            # end the process by a signal.
            while file.read(READ_BYTES):
                pass
        checkpoint = Checkpoint(prefix)
        for name in checkpoint.shapes:
            array = checkpoint.read(name)
            group, _, weight = name.partition("/")
            if group == "weights" and not is_finite(array):
                return f"{weight} is not finite"
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def is_finite(array: np.ndarray) -> bool:
    """Tells whether a NumPy array has neither infinities nor NaN.

    >>> is_finite(np.array([1.0, np.inf])), is_finite(np.array([3]))
    (False, True)
    """
    if not np.issubdtype(array.dtype, np.floating):
        return True
    return bool(np.isfinite(array).all())


def is_there(prefix: str) -> bool:
    """Tells whether there is a checkpoint at a path, even a corrupt one."""
    try:
        os.stat(prefix + ENDING)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def step_of(prefix: str) -> int:
    """Returns the step in the name of a checkpoint."""
    return int(os.path.basename(prefix).split("-")[1])


# Weights of a model


def named_weights(model: "keras.Model") -> dict[str, "keras.Variable"]:
    """Maps the names of weights in a checkpoint to a model's weights."""
    return {weight_name(weight): weight for weight in model.weights}


def weight_name(weight: "keras.Variable") -> str:
    """Returns the name of a model's weight in a checkpoint."""
    return ".".join(weight.path.split("/")[1:])


def assign(checkpoint: Checkpoint, group: str, variables: dict | list) -> None:
    """Sets variables to the arrays of a group, by name or by number.

    Raises ValueError if an array is missing or has changed.
    """
    members: Iterable = (
        enumerate(variables)
        if isinstance(variables, list)
        else variables.items()
    )
    for name, variable in members:
        array = checkpoint.read(f"{group}/{name}")
        if getattr(variable, "dtype", "") == "bfloat16":
            array = array.astype(ml_dtypes.bfloat16)  # needs half the memory
        variable.assign(array)


def check_weights(
    weights: dict[str, "keras.Variable"],
    prefix: str,
    config_path: str | os.PathLike,
) -> Checkpoint:
    """Opens a checkpoint and checks that its weights fit a model.

    Raises ValueError if names or shapes differ from `weights`, the model's, or
    if the checkpoint is invalid. The message names `config_path`.
    """
    checkpoint = Checkpoint(prefix)
    found = {
        name.removeprefix("weights/"): shape
        for name, shape in checkpoint.shapes.items()
        if name.startswith("weights/")
    }
    expected = {name: tuple(w.shape) for name, w in weights.items()}
    if found == expected:
        return checkpoint
    name = min(
        name
        for name in found.keys() | expected.keys()
        if found.get(name) != expected.get(name)
    )
    received = f"{len(found)} weights instead of {len(expected)}"
    if name in found and name in expected:
        received = f"{name} of {found[name]} instead of {expected[name]}"
    raise ValueError(
        f"{prefix}: expected the weights of the model in {config_path}."
        f" Received: {received}"
    )
