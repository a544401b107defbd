"""The options of the device, of all commands that compute."""

from keras_transformer.commands.startup import BACKENDS, DEVICES
from keras_transformer.fields import Fields, hp


class DeviceOptions(Fields):
    """The device."""

    backend: str | None = hp(
        None,
        "Framework that computes. Default: the environment variable"
        " KERAS_BACKEND, else tensorflow.",
        choices=BACKENDS,
    )
    device: str | None = hp(
        None,
        "Kind of device that must compute: the command ends with an error if"
        " there is none. Default: the fastest kind that there is.",
        choices=DEVICES,
        common=True,
    )
