"""What all formats share: sentences, languages, scores and results."""

import functools
from collections.abc import Callable, Iterable

from .signs import read, restore

PAD, EOS, UNK = 0, 2, 3
ASCII_SPACES = " \t\n\v\f\r"  # removed from the ends of texts

Sentence = str | dict[str, str]
Translate = Callable[[list[Sentence]], list[dict]]  # what a loader returns


def text_of(sentence: Sentence) -> str:
    return sentence if isinstance(sentence, str) else sentence["text"]


def keep_signs(translate: Translate, knows: Callable[[str], bool]) -> Translate:
    """Makes a function keep what its vocabulary cannot write.

    `knows` tells whether the vocabulary can write a text.
    """

    @functools.wraps(translate)
    def keeping(sentences: list[Sentence]) -> list[dict]:
        readings = [read(text_of(sentence), knows) for sentence in sentences]
        found = translate(
            [
                one.text if isinstance(s, str) else {**s, "text": one.text}
                for s, one in zip(sentences, readings, strict=True)
            ]
        )
        return [
            {**result, "text": restore(result["text"], one)}
            for result, one in zip(found, readings, strict=True)
        ]

    return keeping


class Languages:
    """The language tokens of a model, as in `export.json`.

    `language_places` has "source_language" or "target_language" for each place:
    "before" the text of a source, "after" its EOS, and first in the "output".
    """

    def __init__(self, description: dict):
        self.description = description
        self.ids = description.get("language_ids", {})
        self.places = description.get("language_places", {})

    def code(self, sentence: Sentence, name: str) -> str:
        """Returns a sentence's language code, by default the export's.

        `name` is "source_language" or "target_language". Raises ValueError if
        the model lacks the language.
        """
        own = {} if isinstance(sentence, str) else sentence
        code = own.get(name) or self.description[name]
        if code not in self.ids:
            raise ValueError(f"expected {name}. Received: {name}={code!r}")
        return code

    def id(self, sentence: Sentence, name: str) -> int:
        """Returns the id of the language token. Arguments are as in `code`."""
        return self.ids[self.code(sentence, name)]

    def tokens(self, sentence: Sentence, place: str) -> list[int]:
        """Returns the ids of language tokens in a place: one or none."""
        name = self.places.get(place)
        return [self.id(sentence, name)] if name else []


def penalty(decoding: dict, length: int) -> float:
    """Returns the divisor of a score. `length` is in tokens, EOS included."""
    bases = {"wu": (5 + length) / 6, "power": length}
    return bases[decoding["length_normalization"]] ** decoding["length_penalty"]


def answer(
    ids: Iterable[int], text: str, score: float, truncated: bool
) -> dict:
    """Returns a translation as a dictionary for JSON, without PAD."""
    ids = [int(i) for i in ids if i != PAD]
    return {
        "ids": ids,
        "text": text,
        "score": float(score),
        "truncated": bool(truncated),
    }
