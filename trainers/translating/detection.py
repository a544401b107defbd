"""Tells if a text is in another language than those of a model.

The detector comes with the extra `serve`; without it, nothing is told.
"""

import functools
import importlib.util
import typing
from collections.abc import Iterable, Iterator

from absl import logging

from keras_transformer.data.languages import base_language, name_of

if typing.TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Of 115,000 lines in eight languages, 74 had a higher probability of another
# language; those that were looked at are English sentences of a manual.
SURE = 0.95
ENOUGH = 200  # characters
NO_LANGUAGE = "zxx"  # as numbers and code


@functools.cache
def load_identifier() -> "LanguageIdentifier":
    """Loads the detector with all its languages, which takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # an extra

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def other_language(text: str, sources: Iterable[str]) -> str | None:
    """Returns the language of a text if it is surely none of `sources`.

    Returns None if it may be one of them, or if the detector lacks one.
    """
    known = set(map(base_language, sources))
    detector = load_identifier()
    language, probability = detector.classify(text)
    is_other = language not in known | {NO_LANGUAGE} and probability >= SURE
    return language if is_other and known <= {*detector.labels} else None


def watched(lines: Iterable[str], sources: Iterable[str]) -> Iterator[str]:
    """Yields lines; warns if the first ones are in another language."""
    lines, first = iter(lines), ""
    for line in lines:
        yield line
        first += f"{line}\n"
        if len(first) >= ENOUGH:
            break
    is_installed = all(map(importlib.util.find_spec, ("babel", "py3langid")))
    if first and is_installed and (found := other_language(first, sources)):
        logging.warning(
            "the text looks like %s, but the model translates from %s",
            name_of(found),
            " or ".join(map(name_of, sources)),
        )
    yield from lines
