"""What every format reads and gives: sentences, languages, translations."""

from collections.abc import Callable, Iterable

PAD, EOS, UNK = 0, 2, 3
ASCII_SPACES = " \t\n\v\f\r"  # which no text has at its ends

Sentence = str | dict[str, str]
Translate = Callable[[list[Sentence]], list[dict]]  # what a loader returns


def text_of(sentence: Sentence) -> str:
    return sentence if isinstance(sentence, str) else sentence["text"]


class Languages:
    """The languages of a model that is told them, by `export.json`.

    Its `language_places` name the language of each place: "before" the text of
    a source, "after" its EOS, and the first token of an "output".
    """

    def __init__(self, description: dict):
        self.description = description
        self.ids = description.get("language_ids", {})
        self.places = description.get("language_places", {})

    def code(self, sentence: Sentence, name: str) -> str:
        """Returns `source_language` or `target_language` of a sentence."""
        own = {} if isinstance(sentence, str) else sentence
        code = own.get(name) or self.description[name]
        if code not in self.ids:
            raise ValueError(f"expected {name}. Received: {name}={code!r}")
        return code

    def id(self, sentence: Sentence, name: str) -> int:
        """Returns the id of the token of such a language."""
        return self.ids[self.code(sentence, name)]

    def tokens(self, sentence: Sentence, place: str) -> list[int]:
        """Returns the id of the language in a place, if there is one."""
        name = self.places.get(place)
        return [self.id(sentence, name)] if name else []


def penalty(decoding: dict, length: int) -> float:
    """Returns the divisor of a score, for a length in tokens with EOS."""
    bases = {"wu": (5 + length) / 6, "power": length}
    return bases[decoding["length_normalization"]] ** decoding["length_penalty"]


def answer(
    ids: Iterable[int], text: str, score: float, truncated: bool
) -> dict:
    """Returns a translation as JSON has it."""
    ids = [int(i) for i in ids if i != PAD]
    return {
        "ids": ids,
        "text": text,
        "score": float(score),
        "truncated": bool(truncated),
    }
