"""Low-rank adapters (Hu et al. 2022): a kernel W becomes W + A B.

Only A `[D, R]` and B `[R, U]` are trained; see `Linear.enable_lora`. They are
the only weights in checkpoints; `config.json` names the weights that they
belong to:

    weights/encoder.layer_0.self_attention.query.lora_kernel_a
    weights/encoder.layer_0.self_attention.query.lora_kernel_b
"""

import os
import typing
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from keras_transformer.base.fields import Fields, hp
from keras_transformer.base.refusals import expect
from keras_transformer.storage.checkpoints import (
    Checkpoint,
    check_weights,
    named_weights,
    weight_name,
)

if typing.TYPE_CHECKING:
    import keras

    from keras_transformer.kernels.layers import Linear

KERNEL, A, B = ".kernel", ".lora_kernel_a", ".lora_kernel_b"  # ends of names
Factors = tuple[np.ndarray, np.ndarray]  # A and B of a kernel


class Base(Fields):
    """The weights that adapters belong to: "base" in `config.json`."""

    checkpoint: str = hp("", "Path of the checkpoint, without its ending.")
    sha256: str = hp("", "Checksum of its weights.")

    @classmethod
    def of(cls, prefix: str) -> "Base":
        """Makes the `Base` of a checkpoint's weights."""
        path = os.path.realpath(prefix)
        return cls(path, Checkpoint(path).weights_sha256)

    def weights(
        self, adapters: str | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the name and the value of each weight, with adapters added.

        `adapters` is the path of their checkpoint, without its ending. A kernel
        with an adapter is W + A B. Raises the errors of `check`, and ValueError
        if the adapters belong to another model.
        """
        base = self.check()
        factors = read_factors(adapters, base) if adapters else {}
        for path in base.shapes:
            group, _, name = path.partition("/")
            if group == "weights":
                weight = base.read(path)
                if name in factors:
                    a, b = factors[name]
                    weight = weight + a @ b
                yield name, weight

    def restore(
        self, weights: dict[str, "keras.Variable"], adapters: str | None = None
    ) -> None:
        """Sets a model's weights to those that `weights` yields.

        Raises the same errors, and ValueError if the weights do not fit.
        """
        self.check()
        check_weights(weights, self.checkpoint, self.checkpoint)
        for name, array in self.weights(adapters):
            weights[name].assign(array)

    def check(self) -> Checkpoint:
        """Opens the checkpoint. Raises ValueError if it is gone or changed."""
        received = "other weights"
        try:
            found = Checkpoint(self.checkpoint)
            if found.weights_sha256 == self.sha256:
                return found
        except (FileNotFoundError, NotADirectoryError):
            received = "no such file"
        raise ValueError(
            f"expected in {self.checkpoint} the weights that the adapters were"
            f" trained with (base in their config.json). Received: {received}"
        )


def read_factors(prefix: str, base: Checkpoint) -> dict[str, Factors]:
    """Reads the adapters in a checkpoint, by the names of their kernels.

    Raises ValueError if there are none, if a factor is missing or has another
    shape, if the base lacks a kernel, or if a kernel has no adapter while
    others with the same last name do.
    """
    checkpoint = Checkpoint(prefix)
    shapes = base.shapes | checkpoint.shapes
    found = {
        path.removesuffix(A).removesuffix(B)
        for path in checkpoint.shapes
        if path.startswith("weights/") and path.endswith((A, B))
    }
    expect(found, "adapters", "none", where=prefix)
    names = tuple(f".{layer.rpartition('.')[2]}{KERNEL}" for layer in found)
    found |= {p.removesuffix(KERNEL) for p in base.shapes if p.endswith(names)}
    factors = {}
    for layer in sorted(found):
        a, b, kernel = (shapes.get(layer + end, ()) for end in (A, B, KERNEL))
        if (*a[:1], *b[1:]) != kernel or len(kernel) != 2 or a[1:] != b[:1]:
            raise ValueError(
                f"{prefix}: expected adapters of the weights of {base.prefix}."
                f" Received: {layer.removeprefix('weights/')} of {a} and {b},"
                f" kernel of {kernel} (() is none)"
            )
        factors[layer.removeprefix("weights/") + KERNEL] = (
            checkpoint.read(layer + A),
            checkpoint.read(layer + B),
        )
    return factors


def add_adapters(
    model: "keras.Model", base: Base, targets: Sequence[str], rank: int
) -> None:
    """Gives a model the base's weights, frozen, and adapters to train.

    `targets` are the names of layers, such as "query". An optimizer built
    afterwards stores nothing for frozen weights.
    """
    weights = named_weights(model)
    base.restore(weights)
    for weight in weights.values():
        weight.trainable = False
    for layer in _linear_layers(model).values():
        if layer.name in targets:
            layer.enable_lora(rank)


def _linear_layers(model: "keras.Model") -> dict[str, "Linear"]:
    """Maps the names of kernels to the layers that may have adapters."""
    # Imported here: a work directory is read before Keras is imported.
    from keras_transformer.kernels.layers import Linear

    return {
        weight_name(layer.kernel): layer
        for layer in model._flatten_layers()
        if isinstance(layer, Linear)
    }


class SwitchedAdapters:
    """Several adapters for one model, of which one is in use.

    Before computing with the model, choose an adapter by `use`. In memory all
    have the largest rank: factors are padded with zeros, which change no
    product.

    Args:
        model: The model, for which nothing has been compiled yet.
        adapters: The factors, by the name of the adapter and of the kernel.
    """

    def __init__(
        self,
        model: "keras.Model",
        adapters: Mapping[str, Mapping[str, Factors]],
    ):
        self._adapters = adapters
        self._used: str | None = ""  # B is initialized with zeros
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
        """Chooses an adapter by its name. With "" the model uses none."""
        if name == self._used:
            return
        own, self._used = self._adapters.get(name, {}), None  # until done
        for kernel, layer in self._layers.items():
            a, b = layer.lora_kernel_a, layer.lora_kernel_b
            values = np.zeros(a.shape, "float32"), np.zeros(b.shape, "float32")
            if kernel in own:
                rank = len(own[kernel][1])
                values[0][:, :rank], values[1][:rank] = own[kernel]
            a.assign(values[0])
            b.assign(values[1])
        self._used = name
