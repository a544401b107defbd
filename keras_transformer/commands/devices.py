"""The devices on which the Keras backend computes: their kind, name, number."""

import os
import typing
from collections.abc import Sequence

from keras_transformer.base.backend import ON_TENSORFLOW
from keras_transformer.base.machine import count_cores, find_gpus
from keras_transformer.commands.flags import how_to_install
from keras_transformer.text.writing import counted

if ON_TENSORFLOW:
    import tensorflow as tf
else:
    import jax


def count_searches(device: str | None = None) -> int:
    """Returns how many batches of sentences to translate in parallel.

    This is the number of CPU cores of this process, or 1 with an accelerator.
    Raises ValueError if a kind of device is given and another kind computes.
    """
    if ON_TENSORFLOW:
        hide_gpus(device)
    check_device(device, describe())
    return count_cores() if kind() == "cpu" else 1


def hide_gpus(device: str | None) -> None:
    """Hides TensorFlow's GPUs if `device` is "cpu". Must be called first."""
    if device == "cpu":
        tf.config.set_visible_devices([], "GPU")


def kind() -> str:
    """Names the kind of device that computes: "gpu", "tpu" or "cpu"."""
    if not ON_TENSORFLOW:
        return jax.default_backend()
    return "gpu" if tf.config.get_visible_devices("GPU") else "cpu"


def check_device(device: str | None, description: str) -> None:
    """Raises ValueError unless `device` is None or the kind that computes."""
    if device not in (None, kind()):
        raise ValueError(
            f"device={device} is not available. Received: {description}"
        )


def describe(devices: Sequence[typing.Any] | None = None) -> str:
    """Describes in one line the devices that compute, or the GPU that cannot.

    `devices` are those that JAX uses, by default all. TensorFlow uses all that
    are visible.
    """
    cores = counted(count_cores(), "core")
    if ON_TENSORFLOW:
        version = f"TensorFlow {tf.__version__}"
        gpus = tf.config.get_visible_devices("GPU")
        if gpus:
            details = map(tf.config.experimental.get_device_details, gpus)
            names = ", ".join(d.get("device_name", "GPU") for d in details)
            cuda = tf.sysconfig.get_build_info().get("cuda_version", "unknown")
            return f"device: {names} ({version}, CUDA {cuda})"
        if tf.config.list_physical_devices("GPU"):
            return f"device: CPU, {cores} (the GPUs are not used)"
        nothing = f"device: CPU, {cores} (no GPU found)"
        reason = (
            f"see its messages above; {how_to_install('gpu')} installs the"
            " CUDA libraries"
        )
        if not tf.test.is_built_with_cuda():
            reason = "this TensorFlow is built without CUDA"
    else:
        devices = devices or jax.devices()
        version = f"JAX {jax.__version__}"
        name = devices[0].device_kind
        if devices[0].platform == "tpu":
            chips = counted(len(devices), "chip")
            return f"device: {name}, {chips} ({version})"
        if devices[0].platform == "gpu":
            name = f"{len(devices)} x {name}" if len(devices) > 1 else name
            client = devices[0].client.platform_version.splitlines()[0]
            return f"device: {name} ({version}, {client})"
        if find_gpus() and os.environ.get("JAX_PLATFORMS") == "cpu":
            return f"device: CPU, {cores} (the GPUs are not used; {version})"
        number = len(devices)
        divided = f" as {number} devices" if number > 1 else ""
        nothing = f"device: CPU, {cores}{divided} (no GPU found; {version})"
        reason = (
            "JAX's CUDA plugin is missing or cannot load;"
            f" {how_to_install('jax-cuda')} installs it"
        )
    present = find_gpus()
    if not present:
        return nothing
    if (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        reason = f"CUDA_VISIBLE_DEVICES={hidden!r} selects none"
    return (
        f"warning: a GPU is present ({', '.join(present)}), but"
        f" {version.split()[0]} cannot use it: {reason}. The CPU computes"
    )
