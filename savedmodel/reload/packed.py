"""Packed models: no program but keras_transformer runs them."""

import pathlib


def load(directory: pathlib.Path, description: dict):
    """Raises ValueError, which names the command that translates."""
    raise ValueError(
        f"expected an export that runs without keras_transformer. Received:"
        f" {directory}, which kt-translate --workdir={directory} runs"
    )
