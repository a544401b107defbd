"""The result of every importer."""

import re
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.checkpoints import is_finite
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import (
    LANGUAGE_TOKENS,
    Languages,
    shortened,
)
from keras_transformer.importers.vocabularies import share_in_table
from keras_transformer.tokenization import Tokenizer, TokenizerPair

if typing.TYPE_CHECKING:
    import keras

# Tokens of languages: __de__ of M2M-100, deu_Latn of NLLB-200, de_DE of mBART.
LANGUAGE = re.compile(r"__\w+__|[a-z]{2,3}_[A-Z]\w+")


class Imported(typing.NamedTuple):
    """A model of another system, in the terms of this package.

    Attributes:
        config: The `TransformerConfig`.
        weights: Arrays by path, as in `permutation.reorder`:
            `"encoder/layer_0/self_attention/query/kernel"`. Rows of embeddings
            stand in the order of the tokenizer's ids.
        tokenizer: A `Tokenizer`, or one for each side.
        decoding: The original's defaults.
        max_length: The longest source in tokens, EOS included.
        source_language, target_language: As in `Languages`; "" if it is not
            known.
        language_tokens: As in `Languages`: it translates between many, and
            takes the two by tokens.
        notes: Notes on this import for the user, a line each.
    """

    config: TransformerConfig
    weights: dict[str, np.ndarray]
    tokenizer: Tokenizer | TokenizerPair
    decoding: DecodingConfig
    max_length: int
    source_language: str = ""
    target_language: str = ""
    language_tokens: str = ""
    notes: Sequence[str] = ()

    @property
    def languages(self) -> Languages:
        """Its languages; ValueError if it does not have one of them.

        Of a model with `language_tokens`, all, where one is not known.
        """
        found = Languages(
            self.source_language, self.target_language, self.language_tokens
        )
        if not self.language_tokens:
            return found
        codes = self.language_codes
        for name, given in (
            ("source_language", found.sources),
            ("target_language", found.targets),
        ):
            for language in filter(None, given):
                if language not in codes:
                    raise ValueError(
                        f"{name} must be a language of the model:"
                        f" {shortened(codes)}. Received: {name}={language!r}"
                    )
        every = ",".join(codes)
        return Languages(
            self.source_language or every,
            self.target_language or every,
            self.language_tokens,
        )

    @property
    def language_codes(self) -> list[str]:
        """The codes of the languages of a model with `language_tokens`."""
        before, after = LANGUAGE_TOKENS[self.language_tokens].form.split("{}")
        return [
            piece.removeprefix(before).removesuffix(after)
            for piece, _, kind in self.tokenizer.source.entries
            if kind == "CONTROL" and LANGUAGE.fullmatch(piece)
        ]


def describe_tables(tokenizer: Tokenizer | TokenizerPair) -> list[str]:
    """A line for each vocabulary: which share of its pieces has an id.

    With the SentencePiece model of another vocabulary it is small, and text
    becomes UNK.
    """
    sides = {"source ": tokenizer.source, "target ": tokenizer.target}
    if isinstance(tokenizer, Tokenizer):
        sides = {"": tokenizer}
    lines = []
    for name, side in sides.items():
        found, total = share_in_table(side)
        lines.append(
            f"{name}vocabulary: {found:,} of the {total:,} pieces of its"
            f" SentencePiece model have an id ({found / max(total, 1):.1%})"
        )
    return lines


def assign(
    weights: dict[str, "keras.Variable"], arrays: dict[str, np.ndarray]
) -> None:
    """Sets `named_weights` of a model from arrays by path, of any float dtype.

    Raises ValueError for other names or shapes, and for numbers that are not
    finite.
    """
    arrays = {path.replace("/", "."): arrays[path] for path in arrays}
    if different := weights.keys() ^ arrays.keys():
        raise ValueError(
            f"the imported weights are not the model's: {min(different)}"
        )
    for name, variable in weights.items():
        array = np.asarray(arrays[name], np.float32)
        if not is_finite(array):
            raise ValueError(f"{name} is not finite")
        variable.assign(array)
