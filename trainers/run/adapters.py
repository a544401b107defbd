"""Low-rank adapters beside frozen weights: --lora_rank.

`keras_transformer.adapters` has their files, `Linear.enable_lora` their
mathematics.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_transformer.adapters import Base, Factors
from keras_transformer.checkpoints import (
    check_weights,
    named_weights,
    weight_name,
)
from keras_transformer.kernels.layers import Linear
from keras_transformer.workdir import WorkDirectory
from trainers.run.checkpoints import write
from trainers.run.config import TrainingConfig

STEP = 0  # of a merged checkpoint


def find_base(workdir: WorkDirectory, training: TrainingConfig) -> Base | None:
    """The weights that a run adds adapters to; None if it adds none.

    A run that has begun keeps its own, whatever `init_from` has by now.
    """
    if not training.lora_rank:
        return None
    if workdir.latest.prefixes():
        return workdir.read_base()
    parent = WorkDirectory(training.init_from)
    return Base.of(parent.choose_checkpoint(training.init_checkpoint))


def add_adapters(
    model: keras.Model, base: Base, targets: Sequence[str], rank: int
) -> None:
    """Gives a model the base's weights, frozen, and adapters that are trained.

    An optimizer that is built afterwards keeps nothing for frozen weights.
    """
    weights = named_weights(model)
    check_weights(weights, base.checkpoint, base.checkpoint)
    for name, array in base.weights():
        weights[name].assign(array)
        weights[name].trainable = False
    for layer in _linear_layers(model).values():
        if layer.name in targets:
            layer.enable_lora(rank)


def _linear_layers(model: keras.Model) -> dict[str, Linear]:
    """The layers that may have adapters, by the names of their kernels."""
    return {
        weight_name(layer.kernel): layer
        for layer in model._flatten_layers()
        if isinstance(layer, Linear)
    }


class SwitchedAdapters:
    """Several adapters over one model, of which one is in use.

    Whoever computes with the model says which, by `use`. All have the rank of
    the largest one, in memory: zeros change no product.

    Args:
        model: The model, which gets the adapters; it has no programs yet.
        adapters: The factors of each, by its name and the name of a kernel.
    """

    def __init__(
        self,
        model: keras.Model,
        adapters: Mapping[str, Mapping[str, Factors]],
    ):
        self._adapters = adapters
        found = [item for one in adapters.values() for item in one.items()]
        self._rank = max((f.a.shape[1] for _, f in found), default=1)
        self._layers = _linear_layers(model)
        for kernel in self._layers.keys() - {name for name, _ in found}:
            del self._layers[kernel]
        for layer in self._layers.values():
            layer.enable_lora(self._rank)
        self._used = ""
        self._set("")

    @property
    def names(self) -> list[str]:
        """The names of the adapters."""
        return list(self._adapters)

    def use(self, name: str) -> None:
        """Makes the model that of an adapter; with "" that without one."""
        if name != self._used:
            self._set(name)

    def _set(self, name):
        """Sets the variables of all layers."""
        own = self._adapters.get(name, {})
        for kernel, layer in self._layers.items():
            a = np.zeros(layer.lora_kernel_a.shape, np.float32)
            b = np.zeros(layer.lora_kernel_b.shape, np.float32)
            if kernel in own:
                rank = own[kernel].a.shape[1]
                a[:, :rank], b[:rank] = own[kernel]
            layer.lora_kernel_a.assign(a)
            layer.lora_kernel_b.assign(b)
        self._used = name


def write_merged(workdir: WorkDirectory, path: pathlib.Path) -> None:
    """Fills a new work directory with the weights W + A B of adapters.

    Raises:
        ValueError: It has no adapters, or base or adapters cannot be read.
    """
    base = workdir.read_base()
    if base is None:
        raise ValueError(
            "merged needs a work directory of low-rank adapters. Received:"
            f" workdir={str(workdir.path)!r}"
        )
    weights = dict(base.weights(workdir.choose_checkpoint()))
    merged = WorkDirectory(path)
    shutil.copy(workdir.config_path, merged.config_path)
    merged.save_tokenizer(workdir.load_tokenizer())
    training = workdir.read_section("training", TrainingConfig)
    training = dataclasses.replace(
        training,
        init_from="",
        init_checkpoint=None,
        lora_rank=0,
        lora_targets=TrainingConfig.lora_targets,
    )
    merged.replace_section("training", training)
    merged.replace_section("base", None)
    write(merged.averaged, {"weights": weights}, STEP, keep=1)
