"""The result of every importer."""

import importlib
import re
import typing
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.checkpoints import is_finite, named_weights
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import (
    LANGUAGE_TOKENS,
    Languages,
    shortened,
)
from keras_transformer.importers.stacks import weight_shapes
from keras_transformer.importers.vocabularies import share_in_table
from keras_transformer.refusals import expect
from keras_transformer.tokenization import Tokenizer, TokenizerPair

if typing.TYPE_CHECKING:
    import keras

MODEL = "keras_transformer.model"
# Tokens of languages: __de__ of M2M-100, deu_Latn of NLLB-200, de_DE of mBART.
LANGUAGE = re.compile(r"__\w+__|[a-z]{2,3}_[A-Z]\w+")


class Imported(typing.NamedTuple):
    """A model of another system, in the terms of this package."""

    config: TransformerConfig
    # Arrays by path, as in `permutation.reorder`:
    # `"encoder/layer_0/self_attention/query/kernel"`. Rows of embeddings stand
    # in the order of the tokenizer's ids.
    weights: dict[str, np.ndarray]
    tokenizer: Tokenizer | TokenizerPair  # a `Tokenizer`, or one for each side
    decoding: DecodingConfig  # the original's defaults
    max_length: int  # the longest source in tokens, EOS included
    # As in `Languages`; "" if it is not known.
    source_language: str = ""
    target_language: str = ""
    # As in `Languages`: it translates between many, and takes the two by
    # tokens.
    language_tokens: str = ""
    notes: Sequence[str] = ()  # notes on this import for the user, a line each

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

    def make_model(self, dtype: str = "float32") -> "keras.Model":
        """The model with its weights, which are then no longer here."""
        model = importlib.import_module(MODEL).model_to_be_read(
            self.config, dtype
        )
        assign(named_weights(model), self.weights)
        return model


def with_languages(
    imported: Imported, source_language: str | None, target_language: str | None
) -> Imported:
    """A model with the given languages, else its own.

    Raises ValueError for languages that it does not have.
    """
    family, own = imported.language_tokens, imported.target_language
    if family and own and target_language not in (None, own):
        if "target" not in LANGUAGE_TOKENS[family].places.values():
            raise ValueError(
                f"target_language must be {own}, which the decoder of the model"
                f" starts with. Received: {target_language=}"
            )
    if source_language is not None:
        imported = imported._replace(source_language=source_language)
    if target_language is not None:
        imported = imported._replace(target_language=target_language)
    _ = imported.languages
    return imported


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

    The arrays are removed, so that a large model is not in memory twice.

    Raises ValueError for other names or shapes, and for numbers that are not
    finite.
    """
    paths = {path.replace("/", "."): path for path in arrays}
    _check_names(weights, paths)
    for name, variable in weights.items():
        variable.assign(_read(name, arrays.pop(paths[name])))


def named_arrays(imported: Imported) -> dict[str, np.ndarray]:
    """The weights as a checkpoint has them, float32; errors as `assign`."""
    shapes = weight_shapes(imported.config)
    _check_names(shapes, imported.weights)
    arrays = {}
    for path, shape in shapes.items():
        name = path.replace("/", ".")
        array = np.ascontiguousarray(_read(name, imported.weights[path]))
        expect(
            array.shape == shape, f"the shape {shape}", array.shape, where=name
        )
        arrays[name] = array
    return arrays


def _check_names(expected: Iterable[str], received: Iterable[str]) -> None:
    """Raises ValueError unless these are the weights of a model."""
    if different := set(expected) ^ set(received):
        raise ValueError(
            f"the imported weights are not the model's: {min(different)}"
        )


def _read(name: str, weight: np.ndarray) -> np.ndarray:
    """A weight as a float32 array; ValueError if it is not finite."""
    array = np.asarray(weight, np.float32)
    if not is_finite(array):
        raise ValueError(f"{name} is not finite")
    return array
