"""The work directory, written by training and read by all other commands.

    config.json       the configuration by section, and the vocabulary's SHA-256
    flags.txt         the configuration as a flag file, for another run like it
    tokenizer.model   the vocabulary; or source_tokenizer.model and
                      target_tokenizer.model, one for each language
    shortlist.txt     the shortlist, if kt-shortlist made one
    checkpoints/      the newest checkpoints: weights or adapters, optimizer,
                      progress
    best/             the checkpoint with the best validation BLEU
    averaged/         the mean of the newest ones (sec. 6.1): weights only
    logs/             logs for TensorBoard
    exports/          what other search engines run, made when first needed
    card.toml         facts for the model card, if its user wrote some
    confidence.json   the calibration of one checkpoint, if it was calibrated

A packed model, which `kt-export --format=packed` makes, is a work directory,
too: it has one checkpoint and `export.json`, and is never written.

A corrupt checkpoint, or one with weights that are not finite, is never used:
`find_intact` warns of it and uses the previous one. Other commands may read
checkpoints during training. If training removes a checkpoint that a command is
about to read, the command looks again.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import tempfile
import typing
from collections.abc import Iterator, Sequence

from absl import logging

from keras_transformer.base.fields import REMOVED_FIELDS, from_values, kinds_of
from keras_transformer.base.files import (
    check_checksum,
    check_sums,
    read_json,
    sha256_of,
    write_atomically,
)
from keras_transformer.base.locking import lock_file, without_empty_directories
from keras_transformer.base.refusals import expect
from keras_transformer.config import (
    CHECKPOINT_KINDS,
    NO_SAMPLING,
    LengthConfig,
    SearchConfig,
    TransformerConfig,
    check_alignment,
    check_position_limit,
)
from keras_transformer.data.languages import Languages
from keras_transformer.storage.adapters import Base
from keras_transformer.storage.checkpoints import (
    ENDING,
    Checkpoints,
    assign,
    check_weights,
    corruption,
    is_there,
    step_of,
)
from keras_transformer.storage.hub import suggest
from keras_transformer.text.tokenization import (
    PAIR_FILES,
    SHARED_FILE,
    Tokenizer,
    TokenizerPair,
    load_tokenizer,
    save_tokenizer,
)

if typing.TYPE_CHECKING:
    import keras

FORMAT_VERSION = 2
LOCK = ".lock"
PACKED = "packed"  # the format in the `export.json` of a packed model
# The keys in config.json of the checksums of a vocabulary's files.
TOKENIZER_SUMS = {
    name: name.replace(".model", "_sha256")
    for name in (SHARED_FILE, *PAIR_FILES)
}
SHOWN = 60  # characters of an invalid value shown in a message


class WorkDirectory:
    """The paths and files in a work directory, which need not exist."""

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.json"
        self.flags_path = self.path / "flags.txt"
        self.tokenizer_path = self.path / SHARED_FILE
        self.shortlist_path = self.path / "shortlist.txt"
        self.logs = self.path / "logs"
        self.exports = self.path / "exports"
        self.package_path = self.path / "export.json"
        self.latest = Checkpoints(self.path / "checkpoints")
        self.best = Checkpoints(self.path / "best")
        self.averaged = Checkpoints(self.path / "averaged")

    def read_config(self) -> dict[str, typing.Any]:
        """Reads the sections of `config.json`: `{"model": {...}, ...}`.

        Raises ValueError if there is none, or if it has another
        `format_version`.
        """
        try:
            config = read_json(self.config_path)
        except FileNotFoundError:
            self.check_package()
            raise ValueError(
                "expected a work directory made by kt-train, with a"
                f" config.json{suggest(self.path)}."
                f" Received: workdir={str(self.path)!r}"
            ) from None
        except NotADirectoryError:
            raise self._not_a_directory() from None
        version = config.pop("format_version", None)
        if version != FORMAT_VERSION:
            hint = "" if version else ": an export, or of another program"
            if isinstance(version, int) and version > FORMAT_VERSION:
                hint = ": made by a newer version of this package"
            raise ValueError(
                f"{self.config_path}: expected a work directory made by"
                f" kt-train, of format_version {FORMAT_VERSION}."
                f" Received: format_version={version!r}{hint}"
            )
        return config

    def read_package(self) -> dict[str, typing.Any]:
        """Reads the `export.json` of a packed model, {} if this is none."""
        found: dict[str, typing.Any] = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = read_json(self.package_path)
        return found if found.get("format") == PACKED else {}

    def check_package(self) -> None:
        """Raises ValueError if this is a packed model and a file has changed.

        Nothing else of a work directory is checked.
        """
        if found := self.read_package():
            sums: typing.Any = found.get("sha256")
            try:
                check_checksum(found)
                is_inside = isinstance(sums, dict) and not any(
                    ".." in name or os.path.isabs(name) for name in sums
                )
                expect(is_inside, "names of files in it", sha256=sums)
            except ValueError as error:
                raise ValueError(f"{self.package_path}: {error}") from None
            check_sums(self.path, sums)

    def read_section(self, name: str, section: type) -> typing.Any:
        """Reads one section of `config.json` as its dataclass.

        Raises the errors of `read_config`, and ValueError if there is no such
        section, or if its fields or values are invalid for the dataclass.
        """
        return self._build(name, section, self._read_fields(name))

    def read_languages(self) -> Languages:
        """Reads the languages of the model, empty if it is not for translation.

        Raises the errors of `read_section`.
        """
        return self._read_known("data", Languages)

    def read_max_length(self) -> int:
        """Reads the maximum sentence length in training, in tokens with EOS.

        Raises the errors of `read_section`.
        """
        return self._read_known("data", LengthConfig).max_length

    def read_base(self) -> Base | None:
        """Reads the base of the adapters, or None if there are no adapters.

        Raises the errors of `read_section`.
        """
        if not self.config_path.exists() or "base" not in self.read_config():
            return None
        return self.read_section("base", Base)

    def need_base(self, option: str) -> Base:
        """Reads the base, for an option that only adapters have.

        Raises ValueError, naming `option`, if there are no adapters.
        """
        if "base" not in self.read_config():
            raise ValueError(
                f"{option} needs a work directory of adapters (kt-train"
                f" --lora_rank). Received: workdir={str(self.path)!r}"
            )
        return self.read_section("base", Base)

    def _read_known(self, name, section):
        """Reads a section as a dataclass, and ignores its other fields."""
        known = kinds_of(section)
        fields = self._read_fields(name).items()
        values = {name: value for name, value in fields if name in known}
        return self._build(name, section, values)

    def _build(self, name, section, values):
        try:
            return from_values(section, values)
        except ValueError as error:
            raise ValueError(
                f"{self.config_path}: in {name!r}: {error}"
            ) from None

    def _read_fields(self, name):
        """Reads the fields of one section, without those that were removed."""
        config = self.read_config()
        values = config.get(name)
        if not isinstance(values, dict):
            received = _shown(values) if name in config else "no such section"
            raise ValueError(
                f"{self.config_path}: expected fields of {name!r}, an object."
                f" Received: {received}"
            )
        removed = REMOVED_FIELDS.items()
        fields = dict(item for item in values.items() if item not in removed)
        if fields.get("sampling"):
            return fields
        # Version 0.2.0 accepted options of sampling without sampling.
        return {key: NO_SAMPLING.get(key, fields[key]) for key in fields}

    def write_config(self, **sections: typing.Any) -> None:
        """Writes dataclasses, or values by name, as sections of `config.json`.

        Save the vocabulary first: `config.json` stores the SHA-256 of its
        files.
        """
        config: dict[str, typing.Any] = {
            name: section
            if isinstance(section, dict)
            else dataclasses.asdict(section)
            for name, section in sections.items()
        }
        for file, key in TOKENIZER_SUMS.items():
            if (self.path / file).exists():
                config[key] = sha256_of(self.path / file)
        self._write(config)

    def replace_section(self, name: str, section: typing.Any) -> None:
        """Writes a dataclass as a section of `config.json`.

        If `section` is None, the section is removed.
        """
        config = self.read_config()
        config.pop(name, None)
        if section is not None:
            config[name] = dataclasses.asdict(section)
        self._write(config)

    def _write(self, config):
        config["format_version"] = FORMAT_VERSION
        write_atomically(self.config_path, json.dumps(config, indent=2) + "\n")

    def save_tokenizer(self, tokenizer: Tokenizer | TokenizerPair) -> None:
        """Writes the one or two files of the vocabulary."""
        save_tokenizer(tokenizer, self.path)

    def load_tokenizer(self) -> Tokenizer | TokenizerPair:
        """Loads the tokenizer, or the pair, that the weights were trained with.

        Raises FileNotFoundError if there is no vocabulary, and ValueError if it
        is corrupt or its SHA-256 differs from that in `config.json`.
        """
        tokenizer = load_tokenizer(self.path)
        config = self.read_config() if self.config_path.exists() else {}
        for file, of_side in tokenizer.files.items():
            expected = config.get(TOKENIZER_SUMS[file])
            if expected not in (None, of_side.sha256):
                raise ValueError(
                    f"{self.path / file} is not the vocabulary that training"
                    f" used: expected the SHA-256 of config.json, {expected!r}."
                    f" Received: {of_side.sha256!r}"
                )
        return tokenizer

    def read_vocabulary(self) -> dict[str, bytes]:
        """Reads the bytes of the vocabulary's files, by name.

        Raises the errors of `load_tokenizer`.
        """
        files = self.load_tokenizer().files.items()
        return {name: of_side.model_bytes for name, of_side in files}

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Makes the directory, and keeps other processes from training here.

        The lock lasts until this process ends. If the block fails, a directory
        that was made here is removed if it is empty.

        Raises ValueError if another process trains here or the path is a file,
        and OSError if the directory cannot be made or written.
        """
        path = self.path.absolute()
        is_new = not path.exists()
        with without_empty_directories(path):
            lock = self._lock()
            try:
                with tempfile.TemporaryFile(dir=path):
                    pass  # fails before any work is done if not writable
                for left in path.glob("*tokenizer.model.????????"):
                    left.unlink()  # a process was killed while it wrote this
                yield
            except BaseException:
                if is_new:
                    (path / LOCK).unlink()
                    os.close(lock)
                raise

    def _lock(self):
        """Takes the lock for this process; returns its file descriptor.

        The descriptor is never closed: the kernel releases the lock when the
        process ends, even by a crash. A process can take its lock again.
        """
        try:
            lock = lock_file(self.path / LOCK, fcntl.lockf)
        except (FileExistsError, NotADirectoryError):
            raise self._not_a_directory() from None
        if lock is None:
            raise ValueError(f"another process is training in {self.path}")
        return lock

    def check_path(self) -> None:
        """Raises ValueError if nothing can be written here.

        The path is a file or below one, or a packed model. Raises
        PermissionError if it cannot be written or made.
        """
        if self.read_package():
            raise ValueError(
                "a packed model is never changed: expected another workdir, and"
                f" --init_from={self.path} to train it further. Received:"
                f" workdir={str(self.path)!r}"
            )
        paths = (self.path.absolute(), *self.path.absolute().parents)
        found = next(path for path in paths if path.exists())
        if not found.is_dir():
            raise self._not_a_directory()
        if not os.access(found, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Permission denied", str(found))

    def _not_a_directory(self):
        return ValueError(
            "expected a directory, or a path where one can be made. Received:"
            f" workdir={str(self.path)!r}, which is a file or below one"
        )

    def check_translator(
        self,
        search: SearchConfig,
        checkpoint: str | None,
        max_source_length: int | None,
        shortlist: bool = False,
    ) -> None:
        """Raises the errors of `Translator.load`, without a backend.

        No weights are read.
        """
        config = self.read_section("model", TransformerConfig)
        check_alignment(config, search)
        longest = max_source_length or self.read_max_length()
        check_position_limit(config, max_source_length=longest)
        self.load_tokenizer()
        self.check_checkpoint(checkpoint)
        base = self.read_base()
        if base is not None:
            base.check()
        if shortlist and not self.shortlist_path.exists():
            raise ValueError(
                f"expected {self.shortlist_path}, which kt-shortlist"
                " makes. Received: no such file"
            )

    def check_checkpoint(self, choice: str | None) -> None:
        """Raises ValueError if no checkpoint exists, not even a corrupt one.

        `choice` is as in `choose_checkpoint`.
        """
        if choice in (None, *CHECKPOINT_KINDS):
            kinds = CHECKPOINT_KINDS if choice is None else (choice,)
            found = any(getattr(self, kind).prefixes() for kind in kinds)
        else:
            found = is_there(str(choice).removesuffix(ENDING))
        if not found:
            raise self._no_checkpoint(choice)

    def choose_checkpoint(self, choice: str | None = None) -> str:
        """Chooses the checkpoint to translate with.

        Logs its path, and warns of checkpoints that were skipped. Returns the
        path without its ending.

        Args:
            choice: "averaged", "best", "latest", or a checkpoint's path with or
                without its ending. None chooses the first of the three kinds
                that has an intact checkpoint.

        Raises ValueError if there is no such checkpoint or if it is corrupt,
        and OSError if a checkpoint cannot be read: no other one replaces it.
        """
        if choice not in (None, *CHECKPOINT_KINDS):
            prefix = str(choice).removesuffix(ENDING)
            reason = corruption(prefix)
            if not is_there(prefix):
                raise self._no_checkpoint(choice)
            if reason:
                raise ValueError(f"corrupt checkpoint {prefix}: {reason}")
            logging.info("using the checkpoint %s", prefix)
            return prefix
        problem = self._no_checkpoint(choice)
        skipped = []
        for name in CHECKPOINT_KINDS if choice is None else (choice,):
            checkpoints = getattr(self, name)
            try:
                prefix = checkpoints.find_intact()
            except ValueError as error:  # try the next kind
                problem = error
                skipped += checkpoints.prefixes()
                continue
            if prefix:
                skipped += checkpoints.newer_than(prefix)
                self._log_choice(name, prefix, skipped)
                return prefix
        raise problem

    def _no_checkpoint(self, choice: str | None) -> ValueError:
        if choice in (None, *CHECKPOINT_KINDS):
            return ValueError(
                f"no {choice or 'usable'} checkpoint yet."
                f" Received: workdir={str(self.path)!r}"
            )
        return ValueError(
            f"no such checkpoint: expected {', '.join(CHECKPOINT_KINDS)}, or a"
            f" checkpoint's path. Received: checkpoint={choice!r}"
        )

    def restore_weights(
        self, weights: dict[str, "keras.Variable"], choice: str | None = None
    ) -> str:
        """Sets weights from the checkpoint that `choose_checkpoint` chooses.

        Returns its path, without its ending. Adapters are added to their base,
        W + A B. If a training removes the checkpoint meanwhile, another one is
        chosen.

        Raises the errors of `choose_checkpoint`, and ValueError if the weights
        belong to another model.
        """
        while True:
            prefix = self.choose_checkpoint(choice)
            try:
                base = self.read_base()
                if base is not None:
                    base.restore(weights, prefix)
                    return prefix
                checkpoint = check_weights(weights, prefix, self.config_path)
                assign(checkpoint, "weights", weights)
                return prefix
            except (OSError, ValueError):
                if is_there(prefix):
                    raise

    def _log_choice(self, name, prefix, skipped):
        """Logs the checkpoint in use and those that are skipped."""
        if skipped:
            logging.warning(
                "using the %s checkpoint %s instead of %s",
                name,
                prefix,
                ", ".join(skipped),
            )
        else:
            logging.info("using the %s checkpoint %s", name, prefix)
        self._warn_if_behind(name, prefix)

    def _warn_if_behind(self, name, prefix):
        """Warns if training has continued since checkpoints were averaged."""
        newest = self.latest.prefixes()[:1]
        if (
            name == "averaged"
            and newest
            and step_of(newest[0]) > step_of(prefix)
        ):
            logging.warning(
                "%s has step %d, training is at step %d: rerun"
                " kt-average to bring it up to date",
                prefix,
                step_of(prefix),
                step_of(newest[0]),
            )


def open_ensemble(
    paths: Sequence[str | os.PathLike], checkpoint: str | None
) -> list[WorkDirectory]:
    """Opens one work directory, or several as an ensemble.

    Raises ValueError if no directory is given, if vocabularies or languages
    differ, or if several are given with the path of a checkpoint.
    """
    directories = [WorkDirectory(path) for path in paths]
    expect(directories, "a work directory", "none")
    for directory in directories:
        directory.check_package()
    first, *others = directories
    expect(
        not others or checkpoint in (None, *CHECKPOINT_KINDS),
        f"{' or '.join(CHECKPOINT_KINDS)} of several work directories",
        f"{checkpoint=}",
    )
    for what, read in (
        ("languages", WorkDirectory.read_languages),
        ("vocabulary", WorkDirectory.read_vocabulary),
    ):
        for other in others:
            if read(other) != read(first):
                raise ValueError(
                    f"the models of an ensemble must have the same {what}."
                    f" Received: {first.path} and {other.path}, which differ"
                )
    return directories


def _shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."
