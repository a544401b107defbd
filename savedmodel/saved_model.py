"""SavedModel: text in, text out, as TensorFlow Serving runs it.

Signatures (N sentences, W hypotheses, S source and T target tokens):

    serving_default  text [N] -> translation [N], score [N]
    n_best           text [N] -> hypotheses [N, W], scores [N, W], ids [N, W, T]
    forced           text [N], target_prefix [N] -> as serving_default
    tokens           source_ids [N, S] -> ids [N, W, T], scores, lengths [N, W]
    score            text [N], reference [N] -> log_probs [N, T], log_prob [N]
    attention_maps   text [N], reference [N] -> translation [N],
                     source_pieces [N, S], target_pieces [N, T],
                     attention [N, layer, head, T, S],
                     encoder_attention [N, layer, head, S, S],
                     decoder_attention [N, layer, head, T, T]

Each signature also returns `truncated` [N]: whether an input was longer than
the model takes, so that the output is for its beginning.

If the model takes language tokens and the work directory has several languages,
each signature also takes `source_language` [N] and `target_language` [N], codes
such as "deu_Latn". The graph puts their tokens in their places.

Every signature runs the graph of `Inference.translate_ids`, or the model
itself. A blank source has an empty translation, as in `Translator.translate`.
Every input string gets an output, even if it is not valid UTF-8. Inputs of the
wrong rank, inputs with different numbers of sentences, languages that the model
does not have, and ids that are not valid sources (`search.py`) are errors. The
graph checks them, since TensorFlow Serving does not. If the server batches
several requests, one bad request fails the whole batch.

The references of `attention_maps` are forced. An empty reference is replaced by
the translation that the search finds.

`score` and `forced` use the tokens that `Tokenizer.encode` finds for a text,
not other tokens that spell the same. A prefix is forced token by token: after
"hou", the model cannot continue with "house" if that is one token. A character
that the vocabulary lacks is read as the unknown token, also in a prefix, and
written as " \u2047 ".

Only the beginning of a text that is far too long for the model is segmented:
SentencePiece in TensorFlow Text takes quadratic time for a run of unknown
characters. Such a text is reported as truncated, even if it has few tokens.
"""

import functools
import typing
from collections.abc import Callable

import tensorflow as tf

from keras_transformer.data.labels import shift_right
from keras_transformer.data.languages import shortened
from keras_transformer.decoding import SearchResult
from keras_transformer.text import graph_tokenization
from keras_transformer.text.case_marks import END
from keras_transformer.text.graph_tokenization import truncate
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translator import Translator
from savedmodel import search
from savedmodel.formats import Export, save_vocabulary

# The most characters of decomposed text that normalization joins: a letter and
# its accents, the parts of a syllable.
MOST_CHARACTERS_IN_ONE = 4
Outputs = dict[str, tf.Tensor]
Graph: typing.TypeAlias = typing.Any  # a `tf.function`
IDS = tf.TensorSpec([None, None], tf.int32)

INPUTS = {  # of the signatures, without languages
    "serving_default": ("text",),
    "n_best": ("text",),
    "forced": ("text", "target_prefix"),
    "tokens": ("source_ids",),
    "score": ("text", "reference"),
    "attention_maps": ("text", "reference"),
}


def write(export: Export) -> None:
    """Writes a SavedModel with warm-up requests; see `formats`."""
    translator = export.translator
    signatures = Signatures(translator, export.options.jit_compile).make()
    module = search.hold_variables(translator.model)
    tf.saved_model.save(module, str(export.directory), signatures=signatures)
    extra = export.directory / "assets.extra"
    extra.mkdir()
    save_vocabulary(translator.tokenizer, extra)  # for `reload`
    with tf.io.TFRecordWriter(
        str(extra / "tf_serving_warmup_requests")
    ) as file:
        for name, inputs in make_warmup_inputs(translator, export.examples):
            file.write(make_prediction_log(name, inputs))


class Signatures:
    """The signatures of a translator, each a method of the same name.

    All signatures share separate graphs for encoding, decoding and search. With
    `jit_compile`, XLA compiles the search once for each shape.
    """

    def __init__(self, translator: Translator, jit_compile: bool = False):
        self.translator = translator
        self.max_source_length = translator.max_source_length
        self.max_target_length = translator.max_target_length
        target = translator.tokenizer.target
        sides = translator.tokenizer.source, target  # may be the same
        make = functools.cache(make_encoder)
        self._encode, self._encode_target = map(make, sides)
        self._directions = search.Directions(translator)
        make = functools.cache(make_speller)
        self._spell, self._spell_target = map(make, sides)
        decode = functools.partial(graph_tokenization.decode, target)
        self._decode = make_graph(decode, IDS)
        # For the best hypothesis alone, and for all of them.
        self._search_best, self._search_all = (
            tf.function(
                functools.partial(
                    translator.inference.translate_ids,
                    num_best=num_best,
                    shapes="static" if jit_compile else "free",
                ),
                jit_compile=jit_compile,
                autograph=False,
            )
            for num_best in (1, None)
        )
        self._attend = make_graph(
            translator.model.attention_maps,
            {"source_ids": IDS, "target_ids": IDS},
        )

    def make(self) -> dict[str, Graph]:
        """Returns the signatures by name, as concrete functions."""
        return {name: self.signature(name) for name in INPUTS}

    def signature(self, name: str) -> Graph:
        """Returns one signature, as a concrete function."""
        answer = tf.function(
            functools.partial(self.answer, name), autograph=False
        )
        inputs = *INPUTS[name], *self._directions.inputs
        specs = {
            name: tf.TensorSpec([None], tf.string, name) for name in inputs
        }
        if name == "tokens":
            ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
            specs["source_ids"] = ids
        return answer.get_concrete_function(**specs)

    def answer(self, signature: str, **inputs: tf.Tensor) -> Outputs:
        """Checks the inputs of a signature and computes its outputs."""
        names, directions = INPUTS[signature], self._directions
        order = *names, *directions.inputs
        checked = check_inputs({name: inputs[name] for name in order})
        ids = {
            name: find_languages(name, checked.pop(name), directions.ids[name])
            for name in directions.inputs
        }
        tokens = directions.tokens(ids, checked[names[0]])
        return getattr(self, signature)(tokens, **checked)

    def serving_default(
        self, tokens: search.Tokens, text: tf.Tensor
    ) -> Outputs:
        """Finds the best translation of each sentence."""
        sources = self._read(text, tokens)
        found = self._search_best(sources.ids, tokens.constraints())
        return self._best(found, sources.truncated)

    def forced(
        self, tokens: search.Tokens, text: tf.Tensor, target_prefix: tf.Tensor
    ) -> Outputs:
        """Finds the best translations that begin with `target_prefix`."""
        sources = self._read(text, tokens)
        prefix, is_cut = self._encode_target(
            target_prefix, self.max_target_length
        )
        ends = prefix == EOS
        if end := self.translator.tokenizer.target.mark_ids.get(END):
            # As in `Tokenizer.to_prefixes`.
            ends |= (prefix == end) & tf.roll(ends, -1, axis=1)
        prefix = search.at_least_one(tf.where(ends, PAD, prefix))
        limits, _ = self.translator.inference.output_limits(sources.ids)
        constraints = tokens.constraints(prefix)
        too_long = search.count_tokens(constraints.prefix) > limits
        return self._best(
            self._search_best(sources.ids, constraints),
            sources.truncated | is_cut | too_long[: tf.shape(text)[0]],
        )

    def n_best(self, tokens: search.Tokens, text: tf.Tensor) -> Outputs:
        """Finds W hypotheses per sentence, best first. Missing ones are ""."""
        found = self._all(self._read(text, tokens), tokens)
        del found["lengths"]
        shape = tf.shape(found["ids"])  # [N, W, T]
        rows = tf.reshape(found["ids"], [shape[0] * shape[1], shape[2]])
        hypotheses = tf.reshape(self._decode(rows), shape[:2])
        return {"hypotheses": hypotheses, **found}

    def tokens(self, tokens: search.Tokens, source_ids: tf.Tensor) -> Outputs:
        """Translates ids to ids."""
        sources = self._read_ids(source_ids, tokens)
        vocab_size = self.translator.tokenizer.source.vocab_size
        check = tf.debugging.Assert(
            tf.reduce_all(sources.valid),
            [
                "source_ids must be rows of tokens, then EOS (2); ids up to EOS"
                f" must be in [0, {vocab_size}), and PAD (0) may only follow"
                " EOS. Received: rows",
                tf.where(~sources.valid)[:, 0],
                "of source_ids =",
                tf.boolean_mask(source_ids, ~sources.valid),
            ],
            summarize=20,
        )
        with tf.control_dependencies([check]):
            ids = tf.identity(sources.ids)
        return self._all(sources._replace(ids=ids), tokens)

    def score(
        self, tokens: search.Tokens, text: tf.Tensor, reference: tf.Tensor
    ) -> Outputs:
        """Computes the log-probabilities of references, EOS included.

        A reference that is longer than the maximum length of a translation is
        scored up to that length, and `truncated` is set.
        """
        sources = self._read(text, tokens)
        labels, too_long = self._read_target(reference, tokens)
        score = self.translator.inference.score_ids
        log_probs = score(sources.ids, labels)  # [N, T]
        if tokens.output is not None:  # not a part of the translation
            log_probs = log_probs[:, 1:]
        return of_sentences(
            sources.truncated | too_long,
            log_probs=log_probs,
            log_prob=tf.reduce_sum(log_probs, axis=1),
        )

    def attention_maps(
        self, tokens: search.Tokens, text: tf.Tensor, reference: tf.Tensor
    ) -> Outputs:
        """Computes all attention weights of references or found translations.

        A reference that is longer than the maximum length of a translation is
        truncated.
        """
        sources = self._read(text, tokens)
        forced, too_long = self._read_target(reference, tokens)
        # An empty reference consists of EOS alone.
        fewest = 1 if tokens.output is None else 2
        is_forced = search.count_tokens(forced) > fewest
        # Sources with a reference are not searched: a row of PAD ends at once.
        free = tf.where(is_forced[:, None], PAD, sources.ids)
        found = self._search_best(free, tokens.constraints())
        longest = tf.maximum(1, tf.reduce_max(found.lengths[:, 0]))
        found = found.ids[:, 0, :longest]
        width = tf.maximum(tf.shape(forced)[1], tf.shape(found)[1])
        forced, found = (
            tf.pad(ids, [[0, 0], [0, width - tf.shape(ids)[1]]])
            for ids in (forced, found)
        )
        target_ids = tf.where(is_forced[:, None], forced, found)
        maps = self._attend(
            {"source_ids": sources.ids, "target_ids": shift_right(target_ids)}
        )
        return of_sentences(
            sources.truncated | too_long,
            translation=self._decode(target_ids),
            source_pieces=self._spell(sources.ids),
            target_pieces=self._spell_target(target_ids),
            attention=maps.cross,
            encoder_attention=maps.encoder,
            decoder_attention=maps.decoder,
        )

    def _read(self, text: tf.Tensor, tokens: search.Tokens) -> search.Sources:
        ids, is_cut = self._encode(text, self.max_source_length)
        sources = self._read_ids(ids, tokens)
        return sources._replace(truncated=sources.truncated | is_cut)

    def _read_target(
        self, text: tf.Tensor, tokens: search.Tokens
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes strings [N] as ids [N', T] and bool [N], whether truncated.

        N' is at least one. Ids begin with the language token, if there is one.
        """
        ids, is_cut = self._encode_target(text, self.max_target_length)
        ids = search.at_least_one(ids)
        if tokens.output is not None:
            ids = tf.concat([tokens.output, ids], axis=1)
        ids, truncated = truncate(ids, self.max_target_length)
        return ids, truncated[: tf.shape(text)[0]] | is_cut

    def _read_ids(
        self, ids: tf.Tensor, tokens: search.Tokens
    ) -> search.Sources:
        return search.read_sources(
            ids,
            self.translator.tokenizer.source.vocab_size,
            self.max_source_length,
            tokens,
        )

    def _best(self, found: SearchResult, truncated: tf.Tensor) -> Outputs:
        """Returns the outputs of `serving_default`."""
        translation = self._decode(found.ids[:, 0])
        score = found.scores[:, 0]
        return of_sentences(truncated, translation=translation, score=score)

    def _all(self, sources: search.Sources, tokens: search.Tokens) -> Outputs:
        """Returns the outputs of `tokens`."""
        found = self._search_all(sources.ids, tokens.constraints())
        longest = tf.maximum(1, tf.reduce_max(found.lengths))
        return of_sentences(
            sources.truncated,
            ids=found.ids[:, :, :longest],
            scores=found.scores,
            lengths=found.lengths,
        )


def of_sentences(truncated: tf.Tensor, **outputs: tf.Tensor) -> Outputs:
    """Slices outputs to N rows: an empty batch was padded to one row."""
    number = tf.shape(truncated)[0]
    outputs = {name: values[:number] for name, values in outputs.items()}
    return {**outputs, "truncated": truncated}


def make_graph(
    function: Callable[..., typing.Any], *inputs: typing.Any
) -> Graph:
    """Makes a separate graph of a function. `inputs` are `tf.TensorSpec`s."""
    return tf.function(function, input_signature=inputs, autograph=False)


def make_speller(tokenizer: Tokenizer) -> Graph:
    """Makes a graph from ids to a tokenizer's pieces: [N, T] -> [N, T]."""
    pieces = ["", *tokenizer.pieces[PAD + 1 :]]
    return make_graph(lambda ids: tf.gather(pieces, ids), IDS)


def make_encoder(tokenizer: Tokenizer) -> Graph:
    """Makes a graph that encodes text [N] as ids [N, T], padded with PAD.

    The graph also takes the maximum number of tokens, and also returns bool
    [N], whether text was cut off. Text that cannot be part of the tokens is cut
    off before segmentation.
    """
    longest = max(len(piece) for piece, _, _ in tokenizer.entries)

    def encode(
        text: tf.Tensor, max_length: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        limit = MOST_CHARACTERS_IN_ONE * longest * max_length
        # As in the commands, U+FFFD replaces invalid UTF-8.
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        is_cut = tf.strings.length(text, unit="UTF8_CHAR") > limit
        text = tf.strings.substr(text, 0, limit, unit="UTF8_CHAR")
        ids = graph_tokenization.encode(tokenizer, text)
        return ids.to_tensor(PAD), is_cut

    text, length = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)
    return make_graph(encode, text, length)


def check_rank(name: str, value: tf.Tensor, rank: int) -> tf.Tensor:
    """Returns an input after checking that it has the declared rank.

    TensorFlow Serving does not check it. Only operations that use the result
    wait for the check.
    """
    # TensorFlow's optimizer drops an assertion about a declared rank.
    # `ensure_shape` stays, behind a placeholder that hides the declared shape;
    # its error names the placeholder, the shape received and the expected one.
    hidden = tf.raw_ops.PlaceholderWithDefault(
        input=value, shape=tf.TensorShape(None), name=name
    )
    return tf.ensure_shape(hidden, [None] * rank)


def check_inputs(inputs: Outputs) -> Outputs:
    """Checks the ranks of inputs, and that their batch sizes are equal."""
    inputs = {
        name: check_rank(name, value, 2 if name == "source_ids" else 1)
        for name, value in inputs.items()
    }
    if len(inputs) == 1:
        return inputs
    numbers = [tf.shape(value)[0] for value in inputs.values()]
    check = tf.debugging.Assert(
        tf.reduce_all(tf.stack(numbers) == numbers[0]),
        [
            f"{' and '.join(inputs)} must have the same number of sentences."
            " Received:",
            *numbers,
        ],
    )
    with tf.control_dependencies([check]):
        return {name: tf.identity(value) for name, value in inputs.items()}


def find_languages(
    name: str, codes: tf.Tensor, ids: dict[str, int]
) -> tf.Tensor:
    """Finds the ids of language codes: int32 [N]. Unknown codes are errors."""
    is_same = codes[:, None] == tf.constant(list(ids))
    known = tf.reduce_any(is_same, axis=1)
    check = tf.debugging.Assert(
        tf.reduce_all(known),
        [
            f"{name} must be a language of the model: {shortened(list(ids))}."
            " Received:",
            tf.boolean_mask(codes, ~known),
        ],
    )
    with tf.control_dependencies([check]):
        places = tf.argmax(tf.cast(is_same, tf.int32), axis=1)
    return tf.gather(tf.constant(list(ids.values()), tf.int32), places)


def make_warmup_inputs(
    translator: Translator, examples: list[str]
) -> list[tuple[str, Outputs]]:
    """Makes requests that TensorFlow Serving runs before it serves.

    Returns the signature's name and the inputs for each.
    """
    text = tf.constant(examples, tf.string)
    rows = translator.tokenizer.source.to_ids(examples)
    ids = tf.ragged.constant(rows, tf.int32).to_tensor(PAD)
    pair = dict(
        zip(search.LANGUAGES, translator.languages.pairs[0], strict=True)
    )
    requests = [
        ("serving_default", {"text": text[:1]}),
        ("serving_default", {"text": text}),
        ("n_best", {"text": text}),
        ("forced", {"text": text, "target_prefix": text}),
        ("tokens", {"source_ids": ids}),
        ("score", {"text": text, "reference": text}),
        ("attention_maps", {"text": text[:1], "reference": text[:1]}),
    ]
    for _, inputs in requests:
        number = len(next(iter(inputs.values())))
        for name in search.Directions(translator).inputs:
            inputs[name] = tf.fill([number], pair[name])
    return requests


def make_prediction_log(signature_name: str, inputs: Outputs) -> bytes:
    """Serializes a `tensorflow.serving.PredictionLog` of tensors by name.

    Writes the fields by number, since the Python classes are not part of
    TensorFlow: PredictionLog.predict_log = 6, PredictLog.request = 1,
    PredictRequest.model_spec = 1 and .inputs = 2, ModelSpec.signature_name = 3.
    """
    request = _field(1, _field(3, signature_name.encode()))
    for name, tensor in inputs.items():
        proto = tf.make_tensor_proto(tensor).SerializeToString()
        entry = _field(1, name.encode()) + _field(2, proto)
        request += _field(2, entry)
    return _field(6, _field(1, request))


def _field(number: int, payload: bytes) -> bytes:
    """Serializes a length-delimited field of a protocol buffer."""
    tag, length, size = number << 3 | 2, len(payload), []
    while length > 127:  # seven bits per byte, the lowest first
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([tag, *size, length]) + payload
