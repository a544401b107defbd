"""Low-rank adapters (Hu et al. 2022): a kernel W becomes W + A B.

A `[D, R]` and B `[R, U]` alone are trained. Checkpoints have nothing else, and
`config.json` says which weights they belong to:

    weights/encoder.layer_0.self_attention.query.lora_kernel_a
    weights/encoder.layer_0.self_attention.query.lora_kernel_b
"""

import dataclasses
import os
import typing
from collections.abc import Iterator

import numpy as np

from keras_transformer.checkpoints import Checkpoint, check_weights
from keras_transformer.fields import Fields, hp

if typing.TYPE_CHECKING:
    import keras

KERNEL, A, B = ".kernel", ".lora_kernel_a", ".lora_kernel_b"  # ends of names
Factors = tuple[np.ndarray, np.ndarray]  # A and B of a kernel


@dataclasses.dataclass(frozen=True)
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

        Raises:
            ValueError: As `check`, or the adapters are of another model.
        """
        factors = read_factors(adapters) if adapters else {}
        base = self.check()
        for path in base.shapes:
            group, _, name = path.partition("/")
            if group == "weights":
                weight = base.read(path)
                if name in factors:
                    a, b = factors.pop(name)
                    weight = weight + a @ b
                yield name, weight
        if factors:
            raise ValueError(
                f"{adapters}: expected adapters of the weights of"
                f" {self.checkpoint}. Received: one of {min(factors)}"
            )

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


def read_factors(prefix: str) -> dict[str, Factors]:
    """The adapter of each kernel in a checkpoint, by the kernel's name."""
    checkpoint = Checkpoint(prefix)
    factors = {
        name.removeprefix("weights/").removesuffix(A) + KERNEL: (
            checkpoint.read(name),
            checkpoint.read(name.removesuffix(A) + B),
        )
        for name in checkpoint.shapes
        if name.startswith("weights/") and name.endswith(A)
    }
    if not factors:
        raise ValueError(f"{prefix}: expected adapters. Received: none")
    return factors
