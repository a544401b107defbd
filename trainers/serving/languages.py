"""The languages of a server: their names, and which one a text is in."""

import copy
import functools

import babel
from absl import logging
from py3langid.langid import MODEL_FILE, LanguageIdentifier


def name_of(code: str) -> str:
    """The English name of a language; of an unknown one its code.

    >>> name_of("de"), name_of("pt_BR"), name_of("source")
    ('German', 'Portuguese (Brazil)', 'source')
    """
    try:
        return babel.Locale.parse(code.replace("-", "_")).get_display_name("en")
    except (ValueError, babel.UnknownLocaleError):
        return code


class Detector:
    """Finds out which one of a few languages a text is in.

    If there is only one, every text is in it. Those that the detection does not
    know are never found, with a warning.
    """

    def __init__(self, codes: list[str]):
        self._codes = {_base(code): code for code in reversed(codes)}
        self._identifier = None
        if len(codes) == 1:
            return
        identifier = copy.copy(_load_identifier())
        known = sorted(self._codes.keys() & set(identifier.labels))
        missing = [c for c in codes if self._codes.get(_base(c)) != c]
        missing += [c for b, c in self._codes.items() if b not in known]
        if missing:
            logging.warning("never detected: %s", ", ".join(missing))
        if known:
            identifier.set_languages(known)
            self._identifier = identifier

    def rank(self, text: str) -> list[tuple[str, float]]:
        """The languages that a text may be in, most probable first.

        Each is a language code and a confidence from 0 to 100.
        """
        if self._identifier is None:
            return [(code, 100.0) for code in self._codes.values()][:1]
        return [
            (self._codes[base], round(100 * share, 1))
            for base, share in self._identifier.rank(text)
            if share >= 0.01
        ]


@functools.cache
def _load_identifier():
    """The detection for all languages that it knows; loading takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _base(code):
    """The language of a code without script and region."""
    return code.replace("_", "-").partition("-")[0].lower()
