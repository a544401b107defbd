"""The settings that a run inherits from the work directory in `--init_from`.

The model, the languages and the decoding of that directory, the parent, are the
defaults of the new run. Flags may change the decoding and, in the model, only
the dropouts.
"""

import dataclasses
import os
import typing
from collections.abc import Mapping

from keras_transformer.base.fields import names_of, resolved
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.storage.adapters import Base
from keras_transformer.storage.hub import suggest
from keras_transformer.storage.workdir import WorkDirectory
from trainers.run.training_config import Configuration, TrainingConfig

LANGUAGES = ("source_language", "target_language")
# Languages of an imported model if its files do not name them.
UNKNOWN_LANGUAGES = ("source", "target")


class Parent(typing.NamedTuple):
    """The configuration of the work directory that a run begins with."""

    path: str
    model: TransformerConfig
    data: typing.Any  # a `DataConfig`, or the data of another task
    decoding: DecodingConfig

    def data_defaults(self) -> dict[str, typing.Any]:
        """Returns the values of the parent's data that a new run inherits."""
        names = names_of(self.data, inherited=True)
        return {name: getattr(self.data, name) for name in names}

    def check_data(self, data: typing.Any) -> None:
        """Raises ValueError if a new run's data contradicts the parent's.

        With `language_tokens`, a run may have some of the parent's languages.
        """

        def fits(name: str, own: typing.Any, theirs: typing.Any) -> bool:
            if name not in LANGUAGES:
                return name == "max_length"
            is_part = {*own.split(",")} <= {*theirs.split(",")}
            return theirs in UNKNOWN_LANGUAGES or (
                data.language_tokens and is_part
            )

        values = {
            name: (getattr(data, name), theirs)
            for name, theirs in self.data_defaults().items()
        }
        self._check_same(
            {n: pair for n, pair in values.items() if not fits(n, *pair)}
        )

    def change_model(
        self, wanted: Mapping[str, typing.Any]
    ) -> TransformerConfig:
        """Returns the parent's model with the dropouts that are in `wanted`.

        Raises ValueError if another field of `wanted` differs from its value.
        """
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
        """Raises ValueError if a value of the run differs from the parent's."""
        different = [
            f"{name}={ours!r}, there {theirs!r}"
            for name, (ours, theirs) in values.items()
            if ours != theirs
        ]
        expect(
            not different,
            f"nothing that contradicts the weights of {self.path}, with which"
            " the run begins",
            "; ".join(different),
        )


def read_parent(
    training: TrainingConfig, own_path: str, data_section: type
) -> Parent | None:
    """Reads the configuration of the work directory in `init_from`.

    Returns None without `init_from`. If that directory is gone, a run that has
    begun uses its own configuration, in `own_path`.

    Raises ValueError if there is no such work directory, or if it has adapters,
    is `own_path`, or belongs to another task.
    """
    path = training.init_from
    if not path:
        return None
    expect(
        not own_path or os.path.realpath(path) != os.path.realpath(own_path),
        "another work directory than workdir in init_from",
        init_from=path,
        workdir=own_path,
    )
    parent, own = WorkDirectory(path), WorkDirectory(own_path)
    parent.check_package()
    if not parent.config_path.is_file():
        is_begun = own_path and own.config_path.is_file()
        before = (
            own.read_section("training", TrainingConfig) if is_begun else None
        )
        expect(
            before and before.init_from_path == training.init_from_path,
            f"a work directory, with config.json, as init_from{suggest(path)}",
            init_from=path,
        )
        parent = own
    elif not own.latest.prefixes():
        parent.load_tokenizer()
        parent.check_checkpoint(training.init_checkpoint)
        expect(
            parent.read_base() is None,
            "weights in init_from (kt-average --merged makes them of adapters)",
            f"adapters, init_from={path!r}",
        )
    return Parent(
        path,
        parent.read_section("model", TransformerConfig),
        parent.read_section("data", data_section),
        parent.read_section("decoding", DecodingConfig),
    )


def find_base(workdir: WorkDirectory, training: TrainingConfig) -> Base | None:
    """Finds the weights that a run adds adapters to.

    Returns None without `lora_rank`. A run that has checkpoints keeps the
    weights that it began with, even if `init_from` has changed since.
    """
    if not training.lora_rank:
        return None
    if workdir.latest.prefixes():
        return workdir.read_base()
    parent = WorkDirectory(training.init_from)
    return Base.of(parent.choose_checkpoint(training.init_checkpoint))


def check_same(workdir: WorkDirectory, configuration: Configuration) -> None:
    """Raises ValueError if the work directory has another configuration.

    Fields that are `changeable` may differ. Until there are checkpoints, all
    fields of model and training may differ. `precision=None` fits any
    precision. A vocabulary may be smaller than configured if its corpus has no
    more subwords.
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
        advice = "" if begun else "It has no checkpoint yet: delete it, or c"
        raise ValueError(
            f"{workdir.path} was made with another configuration:"
            f" {'; '.join(differences)}. {advice or 'C'}hoose another workdir"
        )


def _is_all(workdir, data, field, vocab_size):
    """Tells if a vocabulary trained here has all subwords of its corpus."""
    if not vocab_size or data.given_tokenizers.get(field):
        return False
    tokenizer = workdir.load_tokenizer()
    side = tokenizer.target if field == "vocab_size" else tokenizer.source
    return side.is_trained_for(vocab_size)
