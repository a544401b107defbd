"""The graph of the search, from ids to ids, for SavedModel, TFLite and ONNX.

`source_ids` is int32 `[N, S]`. A row is tokens, then `EOS`. Everything after
the first `EOS` is padding, whatever its value: TensorFlow Serving pads the
tensor of a request with the tensor's own first element. A row of `PAD` alone is
an empty source, like `[EOS]`. Rows with ids outside [0, V), without `EOS`, or
with `PAD` before `EOS` are not valid sources.

The graph adds language tokens to sources and outputs: see `Directions`.
"""

import typing
from collections.abc import Mapping

import tensorflow as tf

from keras_transformer.data.languages import LANGUAGE_TOKENS
from keras_transformer.decoding import UNCONSTRAINED, Constraints
from keras_transformer.model import Transformer
from keras_transformer.text.graph_tokenization import truncate
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translation.requests import direction_ids
from keras_transformer.translator import Translator

LANGUAGES = ("source_language", "target_language")  # names of inputs


class Sources(typing.NamedTuple):
    """Rows of ids as the search takes them."""

    # int32 `[N', S']`, at least one row and one column, at most
    # `max_source_length` columns: tokens, EOS, then PAD.
    ids: tf.Tensor
    # bool `[N]`, whether the row was a valid source. If not, `ids` has PAD.
    valid: tf.Tensor
    truncated: tf.Tensor  # bool `[N]`, whether the row had more tokens


class Tokens(typing.NamedTuple):
    """The language tokens of each sentence, int32 `[N, 1]`, or None.

    Fields are as in `Direction`.
    """

    before: tf.Tensor | None = None
    after: tf.Tensor | None = None
    output: tf.Tensor | None = None

    def constraints(self, prefix: tf.Tensor | None = None) -> Constraints:
        """Makes outputs begin with the language token, if any, and a prefix.

        `prefix` is int32 `[N, P]`.
        """
        if self.output is None:
            return UNCONSTRAINED if prefix is None else Constraints(prefix)
        given = self.output
        if prefix is not None:
            given = tf.concat([given, prefix], axis=1)
        return Constraints(given, tf.ones_like(self.output))


NO_TOKENS = Tokens()


class Directions:
    """The language tokens of an exported model.

    Attributes:
        places: A name in `LANGUAGES` for each field of `Tokens` that is used.
        ids: The ids of tokens by language code, for each name in `places`.
        inputs: The names in `LANGUAGES` that are inputs of a graph, since the
            model has several such languages.
    """

    def __init__(self, translator: Translator):
        self.places: dict[str, str] = {}
        self.ids: dict[str, dict[str, int]] = {}
        languages, tokenizer = translator.languages, translator.tokenizer.source
        if languages.language_tokens:
            form, places = LANGUAGE_TOKENS[languages.language_tokens]
            self.places = {p: f"{side}_language" for p, side in places.items()}
        codes = languages.sources, languages.targets
        for name, of_side in zip(LANGUAGES, codes, strict=True):
            if name in self.places.values():
                self.ids[name] = {
                    code: direction_ids(tokenizer, form.format(code))[0]
                    for code in of_side
                }
        self.inputs = [name for name in self.ids if len(self.ids[name]) > 1]

    def tokens(self, given: Mapping[str, tf.Tensor], like: tf.Tensor) -> Tokens:
        """Returns the tokens of sentences.

        `given` has ids, int32 `[N]`, for each name in `inputs`. The result has
        as many rows as `like`, but at least one.
        """
        rows = tf.maximum(1, tf.shape(like)[0])
        found = {}
        for place, name in self.places.items():
            if name in given:
                column = at_least_one(given[name][:, None])
            else:
                [only] = self.ids[name].values()
                column = tf.fill([rows, 1], only)
            found[place] = column
        return Tokens(**found)


def read_sources(
    source_ids: tf.Tensor,
    vocab_size: int,
    max_source_length: int,
    tokens: Tokens = NO_TOKENS,
) -> Sources:
    """Checks ids from a caller, int32 `[N, S]`, and makes `Sources` of them.

    Adds the language `tokens`. All ids from callers are read here.
    """
    number = tf.shape(source_ids)[0]
    ids = source_ids
    if not (ids.shape.is_fully_defined() and ids.shape.num_elements()):
        ids = at_least_one(ids)
    ids = end_rows(ids)
    valid = are_sources(ids, vocab_size)
    ids = tf.where(valid[:, None], ids, PAD)
    has_text = (count_tokens(ids) > 1)[:, None]
    if tokens.before is not None:
        with_token = tf.concat([tokens.before, ids], axis=1)
        ids = tf.where(has_text, with_token, tf.pad(ids, [[0, 0], [0, 1]]))
    if tokens.after is None:
        ids, truncated = truncate(ids, max_source_length)
    else:
        ids, truncated = truncate(ids, max_source_length - 1)
        length = count_tokens(ids)[:, None]
        ids = tf.pad(ids, [[0, 0], [0, 1]])
        is_next = tf.range(tf.shape(ids)[1]) == length
        ids = tf.where(has_text & is_next, tokens.after, ids)
    return Sources(ids, valid[:number], truncated[:number])


def end_rows(ids: tf.Tensor) -> tf.Tensor:
    """Replaces all ids after a row's first EOS by PAD: int32 [N, S]."""
    is_eos = tf.cast(ids == EOS, tf.int32)
    return tf.where(tf.cumsum(is_eos, axis=1, exclusive=True) > 0, PAD, ids)


def are_sources(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Finds which rows of `end_rows` are valid sources: [N, S] -> bool [N]."""
    in_range = tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1)
    lengths = count_tokens(ids)
    is_last = tf.range(tf.shape(ids)[1]) == lengths[:, None] - 1
    ends = tf.reduce_any(is_last & (ids == EOS), axis=1) | (lengths == 0)
    return in_range & ends


def count_tokens(ids: tf.Tensor) -> tf.Tensor:
    """Counts the tokens of each row, EOS included: int32 [N, S] -> [N]."""
    return tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1)


def at_least_one(ids: tf.Tensor) -> tf.Tensor:
    """Pads to at least one row and one column, since batches may be empty."""
    missing = tf.maximum(1 - tf.shape(ids), 0)
    return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1))


def make_search(
    translator: Translator, length: int | None = None
) -> tf.types.experimental.PolymorphicFunction:
    """Makes a function of the search, for formats that cannot raise errors.

    It takes `source_ids`, int32 `[N, S]`, or `[1, length]` with a length. If
    the model takes language tokens and has several languages, the tokens' ids,
    int32 `[N]`, are further inputs. It returns `ids` int32 `[N, W, T]`,
    `scores` float32 `[N, W]`, `lengths` int32 `[N, W]` and, without a length,
    `truncated` bool `[N]`: whether only the first `max_source_length` tokens
    were translated. A row that is not a valid source, or has an unknown
    language, has the score NaN and no tokens.
    """
    shape = [None, None] if length is None else [1, length]
    vocab_size = translator.tokenizer.source.vocab_size
    directions = Directions(translator)

    def search(
        source_ids: tf.Tensor, *languages: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        given = dict(zip(directions.inputs, languages, strict=True))
        tokens = directions.tokens(given, source_ids)
        for name, ids in given.items():
            known = tf.constant(list(directions.ids[name].values()), tf.int32)
            is_known = tf.reduce_any(ids[:, None] == known, axis=1)
            source_ids = tf.where(is_known[:, None], source_ids, -1)
        sources = read_sources(
            source_ids,
            vocab_size,
            length or translator.max_source_length,
            tokens,
        )
        # Converters support a single loop, in which the batch does not shrink.
        found = translator.inference.translate_ids(
            sources.ids, tokens.constraints(), shapes="growing"
        )
        number = tf.shape(source_ids)[0]
        outputs = {
            "ids": found.ids[:number],
            "scores": tf.where(
                sources.valid[:, None], found.scores[:number], float("nan")
            ),
            "lengths": found.lengths[:number],
        }
        if length is None:
            outputs["truncated"] = sources.truncated
        return outputs

    specs = [tf.TensorSpec(shape, tf.int32, "source_ids")]
    specs += [
        tf.TensorSpec(shape[:1], tf.int32, name) for name in directions.inputs
    ]
    return tf.function(search, input_signature=specs, autograph=False)


def hold_variables(model: Transformer) -> tf.Module:
    """Makes a module that owns the model's variables in a SavedModel.

    It does not contain the model itself, which Keras would save in its own way.
    """
    module = tf.Module(name="translator")
    module.variables_of_model = [weight.value for weight in model.weights]
    return module
