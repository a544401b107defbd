"""Files of pretrained models, here or on the Hugging Face Hub.

huggingface_hub (extra `hub`) downloads a repository into its own cache:
`$HF_HUB_CACHE`, by default `~/.cache/huggingface/hub` (`$XDG_CACHE_HOME` and
`$HF_HOME` move it). Each file is downloaded once, and appears there only when
complete, even if several processes download it.
"""

import os
import pathlib
import re

from keras_transformer.commands.flags import how_to_install

PREFIX = "hf://"
NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
# A repository's address in a browser.
ADDRESS = re.compile(
    r"https?://(?:www\.)?huggingface\.co/([\w.-]+/[\w.-]+)"
    r"(?:/tree/([\w.-]+))?/?"
)
# Formats of a model's weights, in the importer's order of preference. A format
# is downloaded only if the repository has none of the earlier ones.
WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
OF_OTHERS = ("*.h5", "*.msgpack", "*.onnx", "*.ot")  # no importer reads them


def suggest(name: str | os.PathLike) -> str:
    """Returns a hint for an error about a path that may name a Hub repository.

    Returns "" if the path is not such a name, or begins in a real directory.

    >>> suggest("Helsinki-NLP/opus-mt-en-de")
    ' (kt-import reads hf://Helsinki-NLP/opus-mt-en-de)'
    """
    name = re.sub("^hf:/+", "", os.fspath(name))  # a path has one slash less
    if os.path.exists(name.split("/")[0]) or not NAME.fullmatch(name):
        return ""
    return f" (kt-import reads {PREFIX}{name})"


def find_model(name: str | os.PathLike) -> pathlib.Path:
    """Finds the directory of a model's files, and downloads them if necessary.

    `name` is a directory, or `hf://OWNER/NAME`, a repository of the Hugging
    Face Hub, with `@REVISION` for a branch, tag or commit, or the address of
    its page. Raises ValueError if
    the name is invalid or huggingface_hub is not installed, and OSError if the
    download fails.
    """
    name = os.fspath(name)
    if address := ADDRESS.fullmatch(name):
        name = PREFIX + "@".join(filter(None, address.groups()))
    if "://" not in name:
        if hint := suggest(name):
            raise ValueError(f"expected a directory{hint}. Received: {name!r}")
        return pathlib.Path(name)
    parts = NAME.fullmatch(name.removeprefix(PREFIX))
    if not parts:
        raise ValueError(
            f"expected {PREFIX}OWNER/NAME[@REVISION]. Received: {name!r}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"{name} needs huggingface_hub: {how_to_install('hub')}"
        ) from None
    for number, pattern in enumerate(WEIGHTS, 1):
        ignored = [*OF_OTHERS, *WEIGHTS[number:]]
        try:
            directory = pathlib.Path(
                snapshot_download(
                    parts[1], revision=parts[2], ignore_patterns=ignored
                )
            )
        except OSError as error:
            raise OSError(f"{name} cannot be downloaded: {error}") from error
        if any(directory.glob(pattern)):
            break
    return directory
