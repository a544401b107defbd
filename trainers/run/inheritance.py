"""The settings that a run takes from the work directory it begins with.

`--init_from` names that directory. Its model, its languages and its decoding
are the defaults of the new run; flags may change the dropouts and the decoding,
and nothing else of the model.
"""

import dataclasses
import os
import typing
from collections.abc import Mapping

from keras_transformer.adapters import Base
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.fields import names_of, resolved
from keras_transformer.hub import suggest
from keras_transformer.workdir import WorkDirectory
from trainers.run.training_config import Configuration, TrainingConfig

LANGUAGES = ("source_language", "target_language")
# Languages of an imported model whose files do not name them.
UNKNOWN_LANGUAGES = ("source", "target")


class Parent(typing.NamedTuple):
    """The configuration of the work directory that a run begins with."""

    path: str
    model: TransformerConfig
    data: typing.Any  # a `DataConfig`, or the data of another task
    decoding: DecodingConfig

    def data_defaults(self) -> dict[str, typing.Any]:
        """Its values of the fields of data that a new run takes over."""
        names = names_of(self.data, inherited=True)
        return {name: getattr(self.data, name) for name in names}

    def check_data(self, data: typing.Any) -> None:
        """Raises ValueError if the data of a new run contradicts its data.

        With `language_tokens` it may have some of the languages.
        """
        self._check_same(
            {
                name: (getattr(data, name), theirs)
                for name, theirs in self.data_defaults().items()
                if name != "max_length"
                and not (name in LANGUAGES and theirs in UNKNOWN_LANGUAGES)
                and not (
                    name in LANGUAGES
                    and data.language_tokens
                    and {*getattr(data, name).split(",")}
                    <= {*theirs.split(",")}
                )
            }
        )

    def change_model(
        self, wanted: Mapping[str, typing.Any]
    ) -> TransformerConfig:
        """Its model with the wanted dropouts; other fields must be its own."""
        dropouts = names_of(TransformerConfig, changeable=True)
        own = {n: value for n, value in wanted.items() if n in dropouts}
        others = {n: value for n, value in wanted.items() if n not in dropouts}
        changed = dataclasses.replace(self.model, **others)
        self._check_same(
            {n: (resolved(changed, n), resolved(self.model, n)) for n in others}
        )
        return dataclasses.replace(self.model, **own)

    def _check_same(
        self, values: Mapping[str, tuple[typing.Any, typing.Any]]
    ) -> None:
        """Raises ValueError if a run's value is not the parent's."""
        different = [
            f"{name}={ours!r}, there {theirs!r}"
            for name, (ours, theirs) in values.items()
            if ours != theirs
        ]
        if different:
            raise ValueError(
                f"the run begins with the weights of {self.path}: leave out"
                f" what contradicts them. Received: {'; '.join(different)}"
            )


def read_parent(
    training: TrainingConfig, own_path: str, data_section: type
) -> Parent | None:
    """The work directory that a run begins with, or None.

    A run that has begun has its own copy: if the other directory is gone, its
    own configuration counts, at `own_path`.

    Raises ValueError: there is no such work directory, or it belongs to the run
    itself or to another task.
    """
    path = training.init_from
    if not path:
        return None
    if own_path and os.path.realpath(path) == os.path.realpath(own_path):
        raise ValueError(
            "init_from must be another work directory than workdir. Received:"
            f" init_from={path!r}, workdir={own_path!r}"
        )
    parent, own = WorkDirectory(path), WorkDirectory(own_path)
    if not parent.config_path.is_file():
        begun = None
        if own_path and own.config_path.is_file():
            begun = own.read_section("training", TrainingConfig)
        if begun is None or begun.init_from_path != training.init_from_path:
            raise ValueError(
                "init_from must be a work directory, with a config.json"
                f"{suggest(path)}. Received: init_from={path!r}"
            )
        parent = own
    elif not own.latest.prefixes():
        parent.load_tokenizer()
        parent.check_checkpoint(training.init_checkpoint)
        if parent.read_base() is not None:
            raise ValueError(
                "init_from must have weights. Received: adapters, of which"
                f" kt-average --merged makes them: init_from={path!r}"
            )
    return Parent(
        path,
        parent.read_section("model", TransformerConfig),
        parent.read_section("data", data_section),
        parent.read_section("decoding", DecodingConfig),
    )


def find_base(workdir: WorkDirectory, training: TrainingConfig) -> Base | None:
    """Finds the weights that a run adds adapters to; None if it adds none.

    A run that has begun keeps its own, whatever `init_from` has by now.
    """
    if not training.lora_rank:
        return None
    if workdir.latest.prefixes():
        return workdir.read_base()
    parent = WorkDirectory(training.init_from)
    return Base.of(parent.choose_checkpoint(training.init_checkpoint))


def check_same(workdir: WorkDirectory, configuration: Configuration) -> None:
    """Refuses another configuration than the work directory's, if any.

    Fields that are `changeable` may differ. Before there are weights, only the
    data of the vocabulary may not. A run that does not say its precision keeps
    it, and so does one whose corpus was too small for the vocabulary.
    """
    begun = workdir.latest.prefixes()
    if not workdir.config_path.exists():
        if begun:
            raise ValueError(
                f"{workdir.config_path} is gone, but there are checkpoints, the"
                f" newest {begun[0]}: put it back, or choose another workdir"
            )
        return
    differences = []
    for name in ("model", "data", "training") if begun else ("data",):
        section = getattr(configuration, name)
        before = workdir.read_section(name, type(section))
        for field in names_of(section, changeable=False):
            old, new = resolved(before, field), resolved(section, field)
            if old == new or (field == "precision" and new is None):
                continue
            if "vocab_size" not in field or not _is_all(
                workdir, configuration.data, field, new
            ):
                differences.append(f"{field} was {old!r} and is {new!r}")
    if differences:
        raise ValueError(
            f"{workdir.path} was made with another configuration:"
            f" {'; '.join(differences)}. Choose another workdir"
        )


def _is_all(workdir, data, field, vocab_size):
    """Whether a new vocabulary is smaller since its corpus had no more."""
    if not vocab_size or data.given_tokenizers.get(field):
        return False
    tokenizer = workdir.load_tokenizer()
    side = tokenizer.target if field == "vocab_size" else tokenizer.source
    return side.is_trained_for(vocab_size)
