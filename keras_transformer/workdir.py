"""The work directory: what training writes and everything else reads.

    config.json       the configuration, by section; written whole or not at all
    flags.txt         the same as a flag file, for another run like it
    tokenizer.model   the vocabulary
    checkpoints/      the last ones: weights, optimizer, progress
    best/             the one with the best validation BLEU
    averaged/         the mean of the last ones (sec. 6.1): weights only
    logs/             TensorBoard's

A checkpoint is `ckpt-STEP.index` and its data. One that cannot be read to its
last byte is never used: `find_whole` names it and takes the one before it.
"""

import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil

import tensorflow as tf
from absl import logging

from keras_transformer.fields import TYPE_NAMES, is_of_kind, kinds_of

FORMAT_VERSION = 1
SHOWN = 60  # characters of a wrong value that a message shows
PREFERENCE = ("averaged", "best", "latest")  # what is served, if there is any


class WorkDirectory:
    """The paths in a work directory, and its configuration file.

    Args:
        path: The directory; it need not exist.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.json"
        self.flags_path = self.path / "flags.txt"
        self.tokenizer_path = self.path / "tokenizer.model"
        self.logs = self.path / "logs"
        self.latest = Checkpoints(self.path / "checkpoints")
        self.best = Checkpoints(self.path / "best")
        self.averaged = Checkpoints(self.path / "averaged")

    def read_config(self):
        """The sections of `config.json`: `{"model": {...}, ...}`.

        Raises:
            ValueError: There is none, or another version wrote it.
        """
        try:
            config = json.loads(self.config_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(
                "expected a work directory made by trainers.wmt, with a"
                f" config.json. Received: workdir={str(self.path)!r}"
            ) from None
        except ValueError as error:
            raise ValueError(f"{self.config_path}: not JSON: {error}") from None
        if not isinstance(config, dict):
            raise ValueError(
                f"{self.config_path}: expected sections, an object."
                f" Received: {_shown(config)}"
            )
        version = config.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{self.config_path}: expected format_version {FORMAT_VERSION}."
                f" Received: format_version={version!r}"
            )
        return config

    def read_section(self, name, section):
        """One section of `config.json` as its dataclass.

        Raises:
            ValueError: As `read_config`, or there is no such section, or its
                fields or their values are not the dataclass'.
        """
        values, kinds = self._read_fields(name), kinds_of(section)
        unknown = sorted(set(values) - set(kinds))
        if unknown:
            raise ValueError(
                f"{self.config_path}: unknown fields in {name!r}:"
                f" {', '.join(unknown)}"
            )
        for field, value in values.items():
            if kinds[field][0] is tuple and isinstance(value, list):
                values[field] = tuple(value)
        try:
            return section(**values)
        except ValueError as error:
            raise ValueError(
                f"{self.config_path}: in {name!r}: {error}"
            ) from None

    def lock(self):
        """Keeps others from training here until this process ends.

        The directory must exist; if it does not, nothing happens.

        Raises:
            ValueError: Another process trains here.
        """
        if not self.path.exists():
            return
        # Never closed: the kernel drops the lock with the process, however
        # that ends. Within a process it can be taken again.
        file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise ValueError(
                f"another process is training in {self.path}"
            ) from None

    def read_max_length(self):
        """The longest sentence in training, in tokens, end mark included.

        Raises:
            ValueError: As `read_section`.
        """
        value = self._read_fields("data").get("max_length")
        if not is_of_kind(value, int) or value < 2:
            raise ValueError(
                f"{self.config_path}: in 'data': max_length must be"
                f" {TYPE_NAMES[int]}, at least 2. Received:"
                f" max_length={value!r}"
            )
        return value

    def _read_fields(self, name):
        """The fields of one section, as they are in `config.json`."""
        config = self.read_config()
        values = config.get(name)
        if not isinstance(values, dict):
            received = _shown(values) if name in config else "no such section"
            raise ValueError(
                f"{self.config_path}: expected fields of {name!r}, an object."
                f" Received: {received}"
            )
        return values

    def write_config(self, **sections):
        """Writes dataclasses as the sections of `config.json`."""
        config = {k: dataclasses.asdict(v) for k, v in sections.items()}
        config["format_version"] = FORMAT_VERSION
        write_whole(self.config_path, json.dumps(config, indent=2) + "\n")

    def choose_checkpoint(self, choice=None):
        """The checkpoint to translate with.

        Args:
            choice: "averaged", "best", "latest", or a checkpoint's path with or
                without its ending; None: the first of these that there is.

        Returns:
            The path, without ending.

        Raises:
            ValueError: There is no such checkpoint, or it is damaged.
        """
        if choice not in (None, *PREFERENCE):
            prefix = re.sub(r"\.index$", "", str(choice))
            reason = damage(prefix)
            if reason:
                raise ValueError(f"damaged checkpoint {prefix}: {reason}")
            return prefix
        problem = ValueError(
            f"no {choice or 'usable'} checkpoint yet."
            f" Received: workdir={str(self.path)!r}"
        )
        for name in PREFERENCE if choice is None else (choice,):
            try:
                prefix = getattr(self, name).find_whole()
            except ValueError as error:  # the next kind may do
                problem = error
                continue
            if prefix:
                self._warn_if_behind(name, prefix)
                return prefix
        raise problem

    def _warn_if_behind(self, name, prefix):
        """Says so if training has gone on since a checkpoint was made."""
        newest = self.latest.prefixes()[:1]
        if (
            name == "averaged"
            and newest
            and step_of(newest[0]) > step_of(prefix)
        ):
            logging.warning(
                "%s is of step %d, training is at step %d: trainers.average"
                " makes it anew",
                prefix,
                step_of(prefix),
                step_of(newest[0]),
            )


class Checkpoints:
    """The checkpoints in one directory, named by their step.

    Unlike `tf.train.CheckpointManager` it goes by the files that are there, so
    that a process killed while it saved leaves nothing that counts or stays.

    Args:
        directory: The directory; it need not exist.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def prefixes(self):
        """Paths without ending, newest first; whole or not."""
        steps = []
        for path in self.directory.glob("ckpt-*.index"):
            match = re.fullmatch(r"ckpt-(\d+)\.index", path.name)
            if match:
                steps.append(int(match.group(1)))
        return [self._prefix(step) for step in sorted(steps, reverse=True)]

    def save(self, checkpoint, step, keep):
        """Writes a `tf.train.Checkpoint`, then drops all but the last `keep`.

        Later steps than `step` are dropped, too: they were damaged, or training
        would not have come this way again.

        Returns:
            The path, without ending.
        """
        prefix = self._prefix(step)
        checkpoint.write(prefix)
        past = [p for p in self.prefixes() if step_of(p) <= step]
        kept = {os.path.basename(p) for p in past[:keep]}
        for path in self.directory.iterdir():
            name = re.match(r"ckpt-\d+(?=[._]|$)", path.name)
            if name and name[0] not in kept:
                _remove(path)
        return prefix

    def find_whole(self):
        """The newest checkpoint without damage, or None if there is none.

        A damaged one is named in a warning.

        Raises:
            ValueError: There are checkpoints, and all are damaged.
        """
        found = self.whole(1)
        return found[0] if found else None

    def whole(self, count):
        """Up to `count` of the newest checkpoints without damage; see above."""
        found, damaged = [], []
        for prefix in self.prefixes():
            reason = damage(prefix)
            if reason is None:
                found.append(prefix)
            else:
                damaged.append(prefix)
                logging.warning("damaged checkpoint %s: %s", prefix, reason)
            if len(found) == count:
                break
        if damaged and not found:
            raise ValueError(
                "every checkpoint is damaged: " + ", ".join(damaged)
            )
        return found

    def _prefix(self, step):
        return str(self.directory / f"ckpt-{step}")


def damage(prefix):
    """Why a checkpoint cannot be used, in one line; None if it can.

    Reads every tensor, which compares its checksum.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except Exception as error:  # the reader's are of half a dozen kinds
        return " ".join(str(error).split()) or type(error).__name__
    return None


def weights_of(model):
    """The weights of a Keras model by their names, as a checkpoint has them."""
    return {
        ".".join(variable.path.split("/")[1:]): variable.value
        for variable in model.weights
    }


def restore_weights(weights, prefix):
    """Sets what `weights_of` returned from a checkpoint."""
    names = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    num_weights = sum(name.startswith("weights/") for name in names)
    if num_weights != len(weights):
        raise ValueError(
            f"{prefix}: expected the {len(weights)} weights of the model in"
            f" config.json. Received: {num_weights} weights"
        )
    status = tf.train.Checkpoint(weights=weights).read(prefix)
    try:
        status.assert_existing_objects_matched().expect_partial()
    except AssertionError:
        raise ValueError(
            f"{prefix}: these are not the weights of the model in config.json"
        ) from None


def step_of(prefix):
    """The step at which a checkpoint was written."""
    return int(os.path.basename(prefix).split("-")[1])


def write_whole(path, text):
    """Writes a file so that it is there whole, or not at all."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + f".{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def _shown(value):
    """A value as JSON has it, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
