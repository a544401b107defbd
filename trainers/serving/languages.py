"""The languages of a server: matches language codes, detects languages."""

import copy
import functools
import itertools
import math
from collections.abc import Collection, Sequence

from absl import logging
from babel.core import get_global, parse_locale

from keras_transformer.data.languages import shortened
from trainers.translating.detection import load_identifier

# Codes of LibreTranslate that are in no standard.
ALIASES = {"pb": "pt_BR", "zt": "zh_Hant"}
# Missing in Unicode's aliases: languages of codes for their usual forms, and
# the two-letter codes of two languages that Unicode treats as one.
USUAL_FORMS = {"fuv": "ff", "nb": "no", "ns": "nso", "pbt": "ps", "quy": "qu"}
SAME = {"aka": "ak", "twi": "tw"}


def choose_pair(
    source: str, target: str, pairs: Collection[tuple[str, str]]
) -> tuple[str, str] | None:
    """Chooses the language pair that two codes mean.

    Exact codes win, then the same languages: those with the same region, then
    those without a region. The same spelling decides between equals. A script
    that a code names, or that follows from its region, must be the same. A code
    with neither may mean any script. Returns None for no pair, or several.

    >>> choose_pair("EN", "de-AT", [("en", "fr"), ("en", "de")])
    ('en', 'de')
    >>> choose_pair("en", "pt", [("en", "pt_BR"), ("en", "pt_PT")])
    """
    if (source, target) in pairs:
        return source, target
    sources, targets = map(set, zip(*pairs, strict=True))
    near_sources, near_targets = _near(source, sources), _near(target, targets)
    distances = {
        (s, t): (near_sources[s], near_targets[t])
        for s, t in itertools.product(near_sources, near_targets)
        if (s, t) in pairs
    }
    least = min(distances.values(), default=None)
    found = [pair for pair in distances if distances[pair] == least]
    return found[0] if len(found) == 1 else None


def _near(code, known):
    """Returns the distance of each known code that a code may mean."""
    distances = {other: _distance(code, other) for other in known}
    return {o: d for o, d in distances.items() if d < math.inf}


def _distance(code, known):
    """Returns the distance of a known code from a client's, inf for others."""
    (base, script, region, own), other = _read(code), _read(known)
    if base != other[0]:
        return math.inf
    distance = 0 if own == other[3] else 0.5
    if script != other[1]:
        is_bare = code.isalpha() and code.lower() not in ALIASES
        return 3 + distance if is_bare else math.inf
    if region != other[2]:
        distance += 2 if other[2] else 1
    return distance


def is_same(code: str, known: str, is_exact: bool = False) -> bool:
    """Tells whether a code may mean, or exactly means, that of a known code."""
    return _distance(code, known) < (1 if is_exact else math.inf)


@functools.lru_cache(1024)
def _read(code):
    """Returns a code's language, script (given or usual), region, first part.

    >>> _read("zho_Hans"), _read("zh-TW")
    (('zh', 'Hans', None, 'zho'), ('zh', 'Hant', 'TW', 'zh'))
    >>> _read("prs_Arab")
    ('fa', 'Arab', 'AF', 'prs')
    """
    code = ALIASES.get(code.lower(), code).replace("-", "_")
    own, *rest = code.split("_")
    own = SAME.get(own.lower(), own.lower())
    alias = get_global("language_aliases").get(own, own)
    alias = USUAL_FORMS.get(alias, alias)
    try:
        base, usual_region, *_ = parse_locale(alias)
        _, region, script, *_ = parse_locale("_".join([base, *rest]))
    except ValueError:  # not a standard code
        return code.lower(), None, None, own
    region = region or usual_region
    usual = get_global("likely_subtags")
    found = usual.get(f"{base}_{region}") or usual.get(base, base)
    return base, script or parse_locale(found)[2], region, own


class Detector:
    """Detects which of a few languages a text is in.

    If there is only one, every text is in it. Languages that the detector does
    not know are never found, and a warning names them. If it knows no source,
    it finds no target language either.
    """

    def __init__(self, sources: list[str], targets: Sequence[str] = ()):
        labels = _labels()
        is_known = any(_read(code)[0] in labels for code in sources)
        codes = list(dict.fromkeys([*sources, *(targets if is_known else ())]))
        bases = {code: _read(code)[0] for code in codes}
        self._codes = {bases[code]: code for code in reversed(codes)}
        self._order = codes
        self._identifier = None
        if len(codes) == 1:
            return
        identifier = copy.copy(load_identifier())
        known = sorted(self._codes.keys() & labels.keys())
        found = {self._codes[base] for base in known}
        missing = [code for code in codes if code not in found]
        if missing:
            logging.warning("never detected: %s", shortened(missing))
        if known:
            identifier.set_languages([labels[base] for base in known])
            self._identifier = identifier

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Returns the languages that a text may be in, most probable first.

        Each is a code and a confidence from 0 to 100.
        """
        if self._identifier is None:
            return [(code, 100.0) for code in self._codes.values()][:1]
        found = {
            self._codes[_read(label)[0]]: round(100 * share, 1)
            for label, share in self._identifier.rank(text)
            if share >= 0.01
        }
        # If two are equally probable, sources come first.
        known = ((code, found[code]) for code in self._order if code in found)
        return sorted(known, key=lambda language: -language[1])


def _labels():
    """Returns the detector's label for each language that it knows."""
    labels = sorted(load_identifier().labels, key=lambda x: (-len(x), x))
    return {_read(label)[0]: label for label in labels}
