"""Figures to files; the name's ending says in which format."""

import os
import pathlib
import typing

from keras_transformer.commands import flags

PNG_SCALE = 2.0  # pixels of a PNG for each of the SVG


def suffix_of(path: str | os.PathLike, suffixes: typing.Sequence[str]) -> str:
    """The ending of a path, one of `suffixes`.

    Raises:
        ValueError: It is none of them; or it is .png, and the package that
            draws one is not installed.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in suffixes:
        raise ValueError(
            f"expected a file that ends with {' or '.join(suffixes)}."
            f" Received: output={str(path)!r}"
        )
    if suffix == ".png":
        _load_renderer()
    return suffix


def write_drawing(path: str | os.PathLike, svg: str) -> None:
    """Writes a drawing as the SVG that it is, or as a PNG.

    Args:
        path: It ends with .svg or .png.
        svg: The drawing.

    Raises:
        ValueError: As `suffix_of`.
        OSError: The file cannot be written.
    """
    # Not at the top: a command checks its flags before TensorFlow is imported.
    from keras_transformer.workdir import write_atomically

    if suffix_of(path, (".svg", ".png")) == ".svg":
        write_atomically(path, svg + "\n")
    else:
        render = _load_renderer().svg_to_bytes
        png = render(svg_string=svg, zoom=PNG_SCALE)
        write_atomically(path, bytes(png))


def _load_renderer():
    """The module that draws SVG as PNG."""
    try:
        import resvg_py
    except ImportError:
        raise ValueError(
            f"a .png file needs the extra 'png': {flags.how_to_install('png')};"
            " .svg needs nothing. Received: no module 'resvg_py'"
        ) from None
    return resvg_py
