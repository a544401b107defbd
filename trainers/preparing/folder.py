"""The output directory of `kt-prepare`: its files, its lock and its state.

    index.json, tokenizer.model, 00000.shard ...   the finished corpus
    unfinished/settings.json                       the settings of the run
    unfinished/tokenizer.model                     the vocabulary
    unfinished/00000.hashes ...                    hashes of a shard's pairs
    unfinished/00000.json ...                      a shard's entry and counts
    .lock                                          locked while a command runs

`unfinished` and `.lock` are removed when all is done.
"""

import contextlib
import os
import pathlib
import shutil
import typing

from keras_transformer.base.files import read_json
from keras_transformer.base.locking import locked
from keras_transformer.data import shards
from trainers.run.resuming import describe_differences


class Folder:
    """The output directory, with finished and unfinished files."""

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.index = self.path / shards.INDEX
        self.tokenizer = self.path / shards.TOKENIZER
        self.unfinished = self.path / "unfinished"
        self.settings = self.unfinished / "settings.json"
        self._lock = self.path / ".lock"

    def lock(self) -> contextlib.AbstractContextManager[int]:
        """Returns a context that keeps other processes out; see `locked`."""
        return locked(self._lock, f"another process is preparing {self.path}")

    def part(self, number: int, ending: str) -> pathlib.Path:
        """Returns the path of an unfinished file, such as `00000.json`."""
        return self.unfinished / f"{number:05}.{ending}"

    def publish(self, name: str) -> None:
        """Moves a file to the finished ones, unless a killed run did."""
        if (self.unfinished / name).exists():
            os.replace(self.unfinished / name, self.path / name)

    def check(self, settings: dict[str, typing.Any], overwrite: bool) -> str:
        """Returns the state of the directory: "new", "begun" or "finished".

        With `overwrite`, an earlier preparation is "new". Raises ValueError if
        the directory has other files or, without `overwrite`, other settings.
        """
        if self.index.exists():
            state, before = "finished", shards.read_index(self.path)["settings"]
        elif self.settings.exists():
            state, before = "begun", read_json(self.settings)
        else:
            others = set(self.path.glob("*")) - {self.unfinished, self._lock}
            if self.unfinished.exists():  # `clear` was killed
                others -= {self.tokenizer, *self.path.glob("[0-9]*.shard")}
            if others:
                raise ValueError(f"{self.path} has other files: {min(others)}")
            return "new"
        if overwrite:
            return "new"
        differences = describe_differences(before, settings)
        if differences:
            raise ValueError(
                f"{self.path} was prepared with other settings:"
                f" {differences}. --overwrite starts over"
            )
        return state

    def clear(self) -> None:
        """Removes the files that this command has written, and no others."""
        if not (self.index.exists() or self.unfinished.exists()):
            return
        # If killed from here on, the next command starts over.
        self.unfinished.mkdir(exist_ok=True)
        for path in (self.index, self.settings, self.tokenizer):
            path.unlink(missing_ok=True)
        for path in self.path.glob("[0-9]*.shard"):
            path.unlink()
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Removes unfinished files and their folder."""
        if self.unfinished.exists():
            shutil.rmtree(self.unfinished)
