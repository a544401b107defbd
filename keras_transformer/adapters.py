"""Low-rank adapters (Hu et al. 2022): a kernel W becomes W + A B.

A `[D, R]` and B `[R, U]` alone are trained. Checkpoints have nothing else, and
`config.json` says which weights they belong to:

    weights/encoder.layer_0.self_attention.query.lora_kernel_a
    weights/encoder.layer_0.self_attention.query.lora_kernel_b
"""

import os
import typing
from collections.abc import Iterator

import numpy as np

from keras_transformer.checkpoints import Checkpoint, check_weights
from keras_transformer.fields import Fields, hp
from keras_transformer.refusals import expect

if typing.TYPE_CHECKING:
    import keras

KERNEL, A, B = ".kernel", ".lora_kernel_a", ".lora_kernel_b"  # ends of names
Factors = tuple[np.ndarray, np.ndarray]  # A and B of a kernel


class Base(Fields):
    """The weights that adapters belong to: "base" in `config.json`."""

    checkpoint: str = hp("", "Path of the checkpoint, without its ending.")
    sha256: str = hp("", "Checksum of its weights.")

    @classmethod
    def of(cls, prefix: str) -> "Base":
        """The weights of a checkpoint."""
        path = os.path.realpath(prefix)
        return cls(path, Checkpoint(path).weights_sha256)

    def weights(
        self, adapters: str | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields each weight and its name; W + A B where there is an adapter.

        `adapters` is the path of their checkpoint, without its ending.

        Raises ValueError: as `check`, or the adapters are of another model.
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
        """Sets the weights of a model; arguments and errors as of `weights`."""
        self.check()
        check_weights(weights, self.checkpoint, self.checkpoint)
        for name, array in self.weights(adapters):
            weights[name].assign(array)

    def check(self) -> Checkpoint:
        """The checkpoint; ValueError if it is gone or has other weights."""
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
    """The adapter of each kernel in a checkpoint, by the kernel's name.

    Raises ValueError: a factor is missing or of another shape, or a kernel is
    not in the base, or has no adapter though others of its name have one.
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
