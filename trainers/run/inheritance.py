"""The settings that a run takes from the work directory it begins with.

`--init_from` names that directory. Its model, its languages and its decoding
are the defaults of the new run; flags may change the dropouts and the decoding,
and nothing else of the model.
"""

import dataclasses
import os
import typing

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import (
    PRESETS,
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.fields import names_of, resolved
from trainers.run.config import TrainingConfig
from trainers.run.data_config import DataConfig

LANGUAGES = ("source_language", "target_language")
# Languages of an imported model whose files do not name them.
UNKNOWN_LANGUAGES = ("source", "target")


class Parent(typing.NamedTuple):
    """The configuration of the work directory that a run begins with.

    Attributes:
        path: Path of the directory.
        model: Its `TransformerConfig`.
        data: Its `DataConfig`, or the data of another task.
        decoding: Its `DecodingConfig`.
    """

    path: str
    model: TransformerConfig
    data: typing.Any
    decoding: DecodingConfig


def read_parent(
    arguments: flags.Arguments, data_section: type = DataConfig
) -> Parent | None:
    """The `Parent` that a command line names, or None.

    A run that has begun has its own copy: if the other directory is gone, its
    own configuration counts.

    Args:
        arguments: The command line.
        data_section: The dataclass of the data.

    Raises:
        CommandError: There is no such work directory, or it belongs to the run
            itself or to another task.
    """
    training = arguments.build(TrainingConfig)
    if not training.init_from:
        return None
    WorkDirectory = load("keras_transformer.workdir").WorkDirectory
    path, own_path = training.init_from, arguments.given.get("workdir", "")
    if own_path and os.path.realpath(path) == os.path.realpath(own_path):
        raise flags.CommandError(
            "init_from must be another work directory than workdir. Received:"
            f" init_from={path!r}, workdir={own_path!r}"
        )
    parent, own = WorkDirectory(path), WorkDirectory(own_path)
    with flags.user_errors():
        if not parent.config_path.is_file():
            begun = None
            if own_path and own.config_path.is_file():
                begun = own.read_section("training", TrainingConfig)
            if begun is None or begun.init_from_path != training.init_from_path:
                raise ValueError(
                    "init_from must be a work directory, with a config.json."
                    f" Received: init_from={path!r}"
                )
            parent = own
        return Parent(
            path,
            parent.read_section("model", TransformerConfig),
            parent.read_section("data", data_section),
            parent.read_section("decoding", DecodingConfig),
        )


def inherit_data(
    arguments: flags.Arguments, parent: Parent, data_section: type
) -> typing.Any:
    """The data of a command line, in the languages of the parent.

    Raises:
        CommandError: A flag contradicts the parent.
    """
    base = {
        name: getattr(parent.data, name)
        for name in names_of(data_section, inherited=True)
    }
    data = arguments.build(data_section, **base)
    _check_same(
        parent,
        {
            name: (getattr(data, name), base[name])
            for name in base
            if name != "max_length"
            and not (name in LANGUAGES and base[name] in UNKNOWN_LANGUAGES)
        },
    )
    return data


def inherit_model(
    arguments: flags.Arguments, preset: str, parent: Parent
) -> TransformerConfig:
    """The parent's model, with the dropouts of the command line if given.

    Args:
        arguments: The command line.
        preset: The preset that it names, or a default that does not count.
        parent: The `Parent`.

    Raises:
        CommandError: A flag, or a field of a preset that was asked for, is not
            the parent's.
    """
    names = {field.name for field in dataclasses.fields(TransformerConfig)}
    wanted = dict(PRESETS[preset]) if "preset" in arguments.given else {}
    wanted |= {n: v for n, v in arguments.given.items() if n in names}
    dropouts = names_of(TransformerConfig, changeable=True)
    own = {name: wanted.pop(name) for name in dropouts if name in wanted}
    with flags.user_errors():
        changed = dataclasses.replace(parent.model, **wanted)
        _check_same(
            parent,
            {
                name: (resolved(changed, name), resolved(parent.model, name))
                for name in wanted
            },
        )
        return dataclasses.replace(parent.model, **own)


def _check_same(parent, values):
    """Raises CommandError if a value is not the parent's.

    Args:
        parent: The `Parent`.
        values: The value and the parent's, by the name of the flag.
    """
    different = [
        f"{name}={ours!r}, there {theirs!r}"
        for name, (ours, theirs) in values.items()
        if ours != theirs
    ]
    if different:
        raise flags.CommandError(
            f"the run begins with the weights of {parent.path}: leave out what"
            f" contradicts them. Received: {'; '.join(different)}"
        )
