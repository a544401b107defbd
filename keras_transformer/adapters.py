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

from keras_transformer.checkpoints import Checkpoint
from keras_transformer.fields import Fields, hp

KERNEL, A, B = ".kernel", ".lora_kernel_a", ".lora_kernel_b"  # ends of names


class Factors(typing.NamedTuple):
    """The adapter of a kernel, float32 arrays."""

    a: np.ndarray
    b: np.ndarray


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

    def open(self) -> Checkpoint:
        """The checkpoint.

        Raises:
            ValueError: It is gone, or has other weights.
        """
        expected = (
            "expected the checkpoint that the adapters were trained with (base"
            " in their config.json)"
        )
        try:
            found = Checkpoint(self.checkpoint)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ValueError(
                f"{expected}: {self.checkpoint}. Received: no such file"
            ) from error
        if found.weights_sha256 != self.sha256:
            raise ValueError(
                f"{expected}. Received: {self.checkpoint} with other weights"
            )
        return found

    def weights(
        self, adapters: str | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields each weight and its name; W + A B where there is an adapter.

        `adapters` is the path of their checkpoint, without its ending.

        Raises:
            ValueError: As `open`, or the adapters are of another model.
        """
        base = self.open()
        factors = read_factors(adapters) if adapters else {}
        for path in base.shapes:
            group, _, name = path.partition("/")
            if group == "weights":
                weight = base.read(path)
                if name in factors:
                    a, b = factors.pop(name)
                    if (*a.shape[:1], *b.shape[1:]) != weight.shape:
                        raise ValueError(
                            f"{adapters}: expected an adapter of {name},"
                            f" {weight.shape}. Received: {a.shape}, {b.shape}"
                        )
                    weight = weight + a @ b
                yield name, weight
        if factors:
            raise ValueError(
                f"{adapters}: expected adapters of the weights of"
                f" {self.checkpoint}. Received: one of {min(factors)}"
            )


def read_factors(prefix: str) -> dict[str, Factors]:
    """The adapter of each kernel in a checkpoint, by the kernel's name."""
    checkpoint = Checkpoint(prefix)
    names = [
        path.removeprefix("weights/").removesuffix(A)
        for path in checkpoint.shapes
        if path.startswith("weights/") and path.endswith(A)
    ]
    return {
        name + KERNEL: Factors(
            *(checkpoint.read(f"weights/{name}{end}") for end in (A, B))
        )
        for name in names
    }
