"""The languages of a server: their codes and names, and which a text is in."""

import copy
import functools
import itertools
import math
from collections.abc import Collection, Sequence

from absl import logging
from babel.core import get_global, parse_locale
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from keras_transformer.data.languages import shortened

# Codes of LibreTranslate that are in no standard.
ALIASES = {"pb": "pt_BR", "zt": "zh_Hant"}
# What Unicode's aliases lack: the language of a code that means its usual form,
# and codes of two and three letters of two languages that are one there.
USUAL_FORMS = {"fuv": "ff", "nb": "no", "ns": "nso", "pbt": "ps", "quy": "qu"}
SAME = {"aka": "ak", "twi": "tw"}


def choose_pair(
    source: str, target: str, pairs: Collection[tuple[str, str]]
) -> tuple[str, str] | None:
    """The one of some language pairs that two codes mean; None: none, or two.

    It has these codes; else the same languages, rather with the same regions,
    or without any, then rather by the same code, as of dialects. If a code says
    a script, or it follows from its region, it is the same. A code without both
    may be of another script.

    >>> choose_pair("EN", "de-AT", [("en", "fr"), ("en", "de")])
    ('en', 'de')
    >>> choose_pair("en", "pt", [("en", "pt_BR"), ("en", "pt_PT")])
    """
    if (source, target) in pairs:
        return source, target
    sources, targets = map(set, zip(*pairs, strict=True))
    near_sources, near_targets = _near(source, sources), _near(target, targets)
    # Of the many pairs only those that may be meant.
    distances = {
        (s, t): (near_sources[s], near_targets[t])
        for s, t in itertools.product(near_sources, near_targets)
        if (s, t) in pairs
    }
    least = min(distances.values(), default=None)
    found = [pair for pair in distances if distances[pair] == least]
    return found[0] if len(found) == 1 else None


def _near(code, known):
    """The distance of each of the known codes that a code may mean."""
    distances = {other: _distance(code, other) for other in known}
    return {o: d for o, d in distances.items() if d < math.inf}


def _distance(code, known):
    """How far a known code is from what a client means by its own."""
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


def is_same(code: str, known: str) -> bool:
    """Whether a code may mean the language of a known one."""
    return _distance(code, known) < math.inf


@functools.lru_cache(1024)
def _read(code):
    """The language, script, by default the usual one, region and first part.

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
    except ValueError:  # a code of its own
        return code.lower(), None, None, own
    region = region or usual_region
    usual = get_global("likely_subtags")
    found = usual.get(f"{base}_{region}") or usual.get(base, base)
    return base, script or parse_locale(found)[2], region, own


class Detector:
    """Finds out which one of a few languages a text is in.

    If there is only one, every text is in it. Those that the detection does not
    know are never found, with a warning. If it knows no source, nothing is
    taken for a target.
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
        identifier = copy.copy(_load_identifier())
        known = sorted(self._codes.keys() & labels.keys())
        missing = [c for c in codes if self._codes[bases[c]] != c]
        missing += [c for b, c in self._codes.items() if b not in known]
        if missing:
            logging.warning("never detected: %s", shortened(missing))
        if known:
            identifier.set_languages([labels[base] for base in known])
            self._identifier = identifier

    def rank(self, text: str) -> list[tuple[str, float]]:
        """The languages that a text may be in, most probable first.

        Each is a language code and a confidence from 0 to 100.
        """
        if self._identifier is None:
            return [(code, 100.0) for code in self._codes.values()][:1]
        found = {
            self._codes[_read(label)[0]]: round(100 * share, 1)
            for label, share in self._identifier.rank(text)
            if share >= 0.01
        }
        # Of languages that are as probable, sources first.
        known = ((code, found[code]) for code in self._order if code in found)
        return sorted(known, key=lambda language: -language[1])


def _labels():
    """The name that the detection has for each language that it knows."""
    labels = sorted(_load_identifier().labels, key=lambda x: (-len(x), x))
    return {_read(label)[0]: label for label in labels}


@functools.cache
def _load_identifier():
    """The detection for all languages that it knows; loading takes a second."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
