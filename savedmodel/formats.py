"""The formats: their abilities, and the contract of their modules.

A new format is one file in this directory with a function `write`, one entry
of `FORMATS`, and one loader in `reload.py`. Nothing here imports TensorFlow:
bad flags are refused before that.
"""

import dataclasses
import importlib
import importlib.util
import pathlib
import typing

from keras_transformer.commands import flags

PRECISIONS = ("float32", "float16", "int16", "int8")
SEGMENTS = ".segments.model"  # see `reload.Vocabulary`


class Exporter(typing.Protocol):
    """The contract of `savedmodel/FORMAT.py`."""

    def write(
        self,
        translator: typing.Any,
        directory: pathlib.Path,
        options: typing.Any,
        description: dict,
        examples: list[str],
    ) -> None:
        """Writes a translator in one format.

        A vocabulary that the model does not contain is written beside it, by
        `save_vocabulary`.

        Args:
            translator: The `keras_transformer.Translator`.
            directory: Exists and is empty; every file goes there.
            options: The `ExportOptions`; their precision is one of the format's
                and the options of other formats have their defaults.
            description: Contents of `export.json`, for formats with metadata
                of their own.
            examples: Some sentences, none of them blank, for warm-up requests.

        Raises:
            CommandError: The format cannot hold a model of this shape.
            OSError, tf.errors.OpError: The disk is full, for example.
        """


@dataclasses.dataclass(frozen=True)
class Format:
    """Properties of a format, known without importing it.

    Attributes:
        precisions: How it can store weights.
        requirements: Modules that it needs; the extra of the same name as the
            format installs them.
        own_options: Fields of `ExportOptions` that only this format has.
        has_versions: Whether the export is a directory for a version, below
            the output.
        own_search: Whether another program's beam search runs it, so that only
            greedy search can be compared token by token.
        verified_with: Modules that run it, if it can be written without them;
            where they are missing, an export is not verified, and says so.
    """

    precisions: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    own_options: tuple[str, ...] = ()
    has_versions: bool = False
    own_search: bool = False
    verified_with: tuple[str, ...] = ()


FORMATS = {
    "saved_model": Format(
        precisions=("float32",),
        own_options=("jit_compile", "version"),
        has_versions=True,
    ),
    "tflite": Format(
        precisions=("float32", "float16", "int8"),
        requirements=("ai_edge_litert",),
    ),
    "onnx": Format(
        precisions=("float32", "float16", "int8"),
        requirements=("onnx", "onnxruntime", "tf2onnx"),
    ),
    "ctranslate2": Format(
        precisions=PRECISIONS,
        requirements=("ctranslate2",),
        own_search=True,
    ),
    "huggingface": Format(
        precisions=("float32", "float16"),
        requirements=("safetensors",),
        own_search=True,
        verified_with=("torch", "transformers"),
    ),
}


def save_vocabulary(tokenizer: typing.Any, directory: pathlib.Path) -> None:
    """Writes the files of a vocabulary that `reload.Vocabulary` reads.

    Args:
        tokenizer: The `Tokenizer` or `TokenizerPair`.
        directory: Exists.
    """
    for name, of_side in tokenizer.files.items():
        path = directory / name
        of_side.save(path)
        if of_side.has_table:
            path.with_suffix(SEGMENTS).write_bytes(of_side.segmenting_bytes)


def load_exporter(name: str) -> Exporter:
    """The module of a format, which keeps the contract of `Exporter`."""
    return typing.cast(Exporter, importlib.import_module(f"savedmodel.{name}"))


def missing_to_verify(name: str) -> list[str]:
    """Modules that an export is to be verified with, and that are missing."""
    modules = FORMATS[name].verified_with
    return [m for m in modules if importlib.util.find_spec(m) is None]


def check_requirements(name: str) -> None:
    """Checks that the packages of a format are installed.

    Raises:
        ValueError: One is missing.
    """
    for requirement in FORMATS[name].requirements:
        if importlib.util.find_spec(requirement) is None:
            raise ValueError(
                f"format={name} needs the extra {name!r}:"
                f" {flags.how_to_install(name)}. Received: no module"
                f" {requirement!r}"
            )
