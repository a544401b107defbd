"""Documents: their sentences for the model, the rest as it is.

    document = documents.parse(text, "text", "en")
    translations = translator.translate(document.sentences)
    document.write(translations)

What stands between sentences never changes, and a sentence that is its own
translation stays as it is written.
"""

import importlib.util
from collections.abc import Callable

from keras_transformer.commands.flags import how_to_install
from keras_transformer.translation.documents.document import Document
from keras_transformer.translation.documents.text import read as read_text

__all__ = ["FORMATS", "Document", "check_installed", "parse"]

READERS = {"text": read_text}
FORMATS = tuple(READERS)
BYTE_ORDER_MARK = "\ufeff"


def parse(
    text: str,
    format: str = "text",
    language: str = "en",
    fits: Callable[[str], bool] = lambda sentence: True,
) -> Document:
    """The document that a text is.

    Args:
        text: The text.
        format: One of `FORMATS`.
        language: Code of its language, which decides where sentences end.
        fits: Whether the model can read a sentence. A longer one is divided at
            a clause mark, else at white space; the parts are sentences.

    Raises:
        ValueError: There is no such format, or the text is not of this format;
            the message has the line. Or the extra `documents` is not installed.

    >>> parse("One.  Two.\\n\\n  Three.").sentences
    ['One.', 'Two.', 'Three.']
    """
    if format not in READERS:
        raise ValueError(
            f"format must be one of {', '.join(FORMATS)}."
            f" Received: format={format!r}"
        )
    check_installed()
    mark = BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
    pieces = READERS[format](text.removeprefix(mark), language, fits)
    return Document([mark, *pieces])


def check_installed() -> None:
    """Raises ValueError if a library of the extra `documents` is missing."""
    for name in ("sentencex",):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                "documents need the extra 'documents':"
                f" {how_to_install('documents')}. Received: no module {name!r}"
            )
