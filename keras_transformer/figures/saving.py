"""Writes figures to files in the format of the path's suffix."""

import importlib.util
import io
import os
import pathlib
import re
import typing
import warnings

from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.figures.colors import INK

if typing.TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
# Margins in inches around everything drawn. PNG has two pixels for each point.
OPTIONS = {"bbox_inches": "tight", "pad_inches": 0.2, "dpi": 144}
# Text stays text in SVG; the same figure always makes the same file.
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 1,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.sans-serif": ["DejaVu Sans"],  # which comes with matplotlib
    "font.size": 13,
    "grid.alpha": 0.2,
    "grid.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "keras_transformer",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
NO_METADATA = {
    ".svg": dict.fromkeys(("Creator", "Date", "Format", "Type")),
    ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    ".png": {"Software": None},
}
MISSING = re.compile(r"Glyph (\d+) .* missing from font")


def suffix_of(path: str | os.PathLike, suffixes: typing.Sequence[str]) -> str:
    """Returns the suffix of a path in lower case.

    Raises ValueError if it is not in `suffixes`, or if it needs matplotlib,
    which is not installed.
    """
    suffix = pathlib.Path(path).suffix.lower()
    expected = f"a file that ends with {' or '.join(suffixes)}"
    expect(suffix in suffixes, expected, output=str(path))
    if suffix in SUFFIXES:
        check_matplotlib(f"a {suffix} file")
    return suffix


def check_matplotlib(what: str) -> None:
    """Raises ValueError if matplotlib, which `what` needs, is missing."""
    expect(
        importlib.util.find_spec("matplotlib"),
        f"the extra 'figures' for {what}: {flags.how_to_install('figures')}",
        "no module 'matplotlib'",
    )


def save_figure(figure: "Figure", path: str | os.PathLike) -> None:
    """Writes a figure in the format of the path's suffix: .svg, .png or .pdf.

    The figure's label becomes the title of the file.
    """
    # Not at the top: a command checks its flags before TensorFlow is imported.
    from keras_transformer.base.files import write_atomically

    suffix = suffix_of(path, SUFFIXES)
    write_atomically(path, render(figure, suffix))


def render(
    figure: "Figure", suffix: str = ".svg", **options: typing.Any
) -> bytes:
    """Returns the content of a figure's file. Options are as in `savefig`.

    Logs a warning that lists all characters that no font has, but not for SVG,
    where the viewer chooses the fonts.
    """
    import matplotlib

    metadata = {**NO_METADATA[suffix]}
    if figure.get_label():
        metadata["Title"] = figure.get_label()
    file = io.BytesIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        matplotlib.rc_context(STYLE),
    ):
        warnings.simplefilter("always")
        options = {**OPTIONS, "format": suffix[1:], **options}
        figure.savefig(file, metadata=metadata, **options)
    missing = set()
    for warning in caught:
        if found := MISSING.match(str(warning.message)):
            missing.add(chr(int(found[1])))
        else:
            warnings.warn(warning.message, stacklevel=2)
    if missing and suffix != ".svg":
        logging.warning(
            "no known font has the characters %s, which are drawn as boxes;"
            " a .svg file leaves the fonts to its viewer",
            " ".join(sorted(missing)),
        )
    return file.getvalue()
