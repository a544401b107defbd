"""`Imported`, the result of every importer, and its weights for checkpoints."""

import importlib
import re
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import (
    LANGUAGE_TOKENS,
    Languages,
    shortened,
)
from keras_transformer.importers.stacks import weight_shapes
from keras_transformer.importers.vocabularies import share_in_table
from keras_transformer.storage.checkpoints import is_finite, named_weights
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair

if typing.TYPE_CHECKING:
    import keras

MODEL = "keras_transformer.model"
# Language tokens: __de__ in M2M-100, deu_Latn in NLLB-200, de_DE in mBART.
LANGUAGE = re.compile(r"__\w+__|[a-z]{2,3}_[A-Z]\w+")


class Imported(typing.NamedTuple):
    """A model of another system, converted for this package."""

    config: TransformerConfig
    # Arrays of any float dtype by path, as in `permutation.reorder`:
    # `"encoder/layer_0/self_attention/query/kernel"`. Embeddings have a row for
    # each id of the tokenizer, in order.
    weights: dict[str, np.ndarray]
    tokenizer: Tokenizer | TokenizerPair  # a `Tokenizer`, or one for each side
    decoding: DecodingConfig  # the original's defaults
    max_length: int  # the longest source in tokens, EOS included
    # As in `Languages`; "" if unknown.
    source_language: str = ""
    target_language: str = ""
    # As in `Languages`; "" unless the model is multilingual and its languages
    # are chosen by tokens.
    language_tokens: str = ""
    notes: Sequence[str] = ()  # on this import, for the user, one line each

    @property
    def languages(self) -> Languages:
        """The languages of the model.

        With `language_tokens`, a side without a set language has all of the
        model's. Raises ValueError if the model lacks a set language.
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
                known = f"a language of the model: {shortened(codes)}"
                expect(language in codes, known, f"{name}={language!r}")
        every = ",".join(codes)
        return Languages(
            self.source_language or every,
            self.target_language or every,
            self.language_tokens,
        )

    @property
    def language_codes(self) -> list[str]:
        """The language codes of a model with `language_tokens`."""
        before, after = LANGUAGE_TOKENS[self.language_tokens].form.split("{}")
        return [
            piece.removeprefix(before).removesuffix(after)
            for piece, _, kind in self.tokenizer.source.entries
            if kind == "CONTROL" and LANGUAGE.fullmatch(piece)
        ]

    def make_model(self, dtype: str = "float32") -> "keras.Model":
        """Makes a Keras model, and moves the weights into it."""
        make = importlib.import_module(MODEL).model_to_be_read
        model = make(self.config, dtype)
        variables = named_weights(model)
        for name, array in take_arrays(self):
            variables[name].assign(array)
        return model


def with_languages(
    imported: Imported, source_language: str | None, target_language: str | None
) -> Imported:
    """Returns the model with the given languages. None keeps a language.

    Raises ValueError if the model does not have a language.
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
    """Returns a line for each vocabulary: the share of its pieces with an id.

    A small share means that the SentencePiece model is from another vocabulary,
    so that most text would be UNK.
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


def take_arrays(imported: Imported) -> Iterator[tuple[str, np.ndarray]]:
    """Yields and removes each weight: its name in a checkpoint, and float32.

    One by one, so that a large model is not in memory twice. Raises ValueError
    if names or shapes are not the model's, or if numbers are not finite.
    """
    shapes, weights = weight_shapes(imported.config), imported.weights
    different = set(shapes) ^ set(weights)
    expect(not different, "the weights of the model", *sorted(different)[:1])
    for path, shape in shapes.items():
        array = np.ascontiguousarray(weights.pop(path), np.float32)
        name = path.replace("/", ".")
        expect(
            array.shape == shape, f"the shape {shape}", array.shape, where=name
        )
        expect(is_finite(array), "finite numbers", where=name)
        yield name, array
