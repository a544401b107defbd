"""Low-rank adapters beside frozen weights: --lora_rank.

`keras_transformer.adapters` has their files, `Linear.enable_lora` their
mathematics.
"""

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_transformer.adapters import Base, Factors
from keras_transformer.checkpoints import named_weights, weight_name
from keras_transformer.kernels.layers import Linear
from keras_transformer.workdir import WorkDirectory
from trainers.run.training_config import TrainingConfig


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
    base.restore(weights)
    for weight in weights.values():
        weight.trainable = False
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

    Whoever computes with the model, which has no programs yet, says which, by
    `use`. All have the rank of the largest one, in memory: zeros change no
    product. `adapters` has the factors of each, by its name and a kernel's.
    """

    def __init__(
        self, model: keras.Model, adapters: Mapping[str, Mapping[str, Factors]]
    ):
        self._adapters = adapters
        self._used: str | None = ""  # B begins with zeros
        kernels = {name for one in adapters.values() for name in one}
        self._layers = {
            kernel: layer
            for kernel, layer in _linear_layers(model).items()
            if kernel in kernels
        }
        ranks = [len(b) for own in adapters.values() for _, b in own.values()]
        for layer in self._layers.values():
            layer.enable_lora(max(ranks))

    def use(self, name: str) -> None:
        """Gives the model an adapter's weights; with "" its own."""
        if name == self._used:
            return
        own, self._used = self._adapters.get(name, {}), None  # if this fails
        for kernel, layer in self._layers.items():
            a, b = layer.lora_kernel_a, layer.lora_kernel_b
            values = np.zeros(a.shape, "float32"), np.zeros(b.shape, "float32")
            if kernel in own:
                rank = len(own[kernel][1])
                values[0][:, :rank], values[1][:rank] = own[kernel]
            a.assign(values[0])
            b.assign(values[1])
        self._used = name
