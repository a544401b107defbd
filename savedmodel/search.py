"""Ids to ids: the translator's search as every exported format runs it.

`source_ids` is int32 `[N, S]`. A row is tokens, then `EOS`; all that follows
the first `EOS` is padding, whatever its value: TensorFlow Serving pads the
tensor of a request with the tensor's own first element. A row of `PAD` alone is
an empty source, like `[EOS]`. Rows with ids outside [0, V), without `EOS`, or
with `PAD` before `EOS` are not sources.

The graph puts the tokens of languages into sources and outputs: `Directions`.
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
    # bool `[N]`, whether the row was a source; if not, it is PAD now.
    valid: tf.Tensor
    truncated: tf.Tensor  # bool `[N]`, whether the row had more tokens


class Tokens(typing.NamedTuple):
    """The ids of a `Direction` for each sentence, int32 `[N, 1]`, or None."""

    before: tf.Tensor | None = None
    after: tf.Tensor | None = None
    output: tf.Tensor | None = None

    def constraints(self, prefix: tf.Tensor | None = None) -> Constraints:
        """Returns `Constraints` of outputs, with a further prefix `[N, P]`."""
        if self.output is None:
            return UNCONSTRAINED if prefix is None else Constraints(prefix)
        given = self.output
        if prefix is not None:
            given = tf.concat([given, prefix], axis=1)
        return Constraints(given, tf.ones_like(self.output))


NO_TOKENS = Tokens()


class Directions:
    """The languages that the model of an export is told.

    Attributes:
        places: Fields of `Tokens`, each with one of `LANGUAGES`.
        ids: For each of `LANGUAGES` that the model is told, the ids of tokens
            by code.
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
        """Returns the tokens of sentences, by ids int32 `[N]` for each input.

        There are as many as `like` has rows, at least one.
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
    """Makes `Sources` of ids from outside, int32 `[N, S]`.

    It adds the `tokens` of languages. Nothing else reads ids from outside.
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
    """Makes everything after the first EOS of each row PAD: int32 [N, S]."""
    is_eos = tf.cast(ids == EOS, tf.int32)
    return tf.where(tf.cumsum(is_eos, axis=1, exclusive=True) > 0, PAD, ids)


def are_sources(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Says which rows of `end_rows` are sources: [N, S] -> bool [N]."""
    in_range = tf.reduce_all((ids >= 0) & (ids < vocab_size), axis=1)
    lengths = count_tokens(ids)
    is_last = tf.range(tf.shape(ids)[1]) == lengths[:, None] - 1
    ends = tf.reduce_any(is_last & (ids == EOS), axis=1) | (lengths == 0)
    return in_range & ends


def count_tokens(ids: tf.Tensor) -> tf.Tensor:
    """Counts the tokens of each row, EOS included: int32 [N, S] -> [N]."""
    return tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1)


def at_least_one(ids: tf.Tensor) -> tf.Tensor:
    """Pads to at least one row and one column: an empty batch is legal."""
    missing = tf.maximum(1 - tf.shape(ids), 0)
    return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1))


def make_search(
    translator: Translator, length: int | None = None
) -> tf.types.experimental.PolymorphicFunction:
    """Makes a function of the search, for formats that cannot raise errors.

    It takes `source_ids`, int32 `[N, S]`, or with a length one source of this
    length. If the model is told languages, and has several, their ids, int32
    `[N]`, are further inputs. It returns `ids` int32 `[N, W, T]`, `scores`
    float32 `[N, W]`, `lengths` int32 `[N, W]` and, with free S, `truncated`
    bool `[N]`: whether only the first `max_source_length` tokens were
    translated. A row that is not a source, or whose language is unknown, has
    the score NaN and no tokens.
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
        # Converters know one loop, in which a batch stays as it is.
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

    The model itself is not in it: Keras would save that in its own way.
    """
    module = tf.Module(name="translator")
    module.variables_of_model = [weight.value for weight in model.weights]
    return module
