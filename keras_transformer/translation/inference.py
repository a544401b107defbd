"""Search, scores and alignments on ids, as functions of tensors.

Translators and every export compile or run these functions.
"""

import typing
from collections.abc import Mapping, Sequence

import keras
from keras import ops

from keras_transformer.base.backend import Tensor
from keras_transformer.base.fields import unhandled
from keras_transformer.base.refusals import expect
from keras_transformer.config import (
    DecodingConfig,
    aligns_when_read,
    find_alignment_layer,
)
from keras_transformer.data.labels import shift_right
from keras_transformer.decoding import (
    UNCONSTRAINED,
    Constraints,
    SearchResult,
    search,
)
from keras_transformer.decoding.row_loop import pick_rows
from keras_transformer.layers import recorded_weights
from keras_transformer.model import Transformer
from keras_transformer.text.vocabulary import EOS, PAD
from keras_transformer.translation.limits import Limits

SHAPES = ("free", "growing", "static")
# Softmax matrices of at most this many numbers are transposed once per call, so
# that XLA multiplies the rows of a beam faster on a CPU. To transpose a larger
# matrix takes longer than it saves.
MOST_TRANSPOSED = 1 << 22


class Inference:
    """A model, or an ensemble of models, with its search (sec. 6.1), on ids.

    The models of an ensemble have the same vocabulary. The search uses their
    mean, by `decoding.ensemble`, and the first model aligns. Each call uses the
    models' current weights. Sources, EOS included, have at most
    `max_source_length` tokens. In sampling each sample is a row.
    """

    def __init__(
        self,
        models: Transformer | Sequence[Transformer],
        decoding: DecodingConfig,
        max_source_length: int,
    ):
        is_one = isinstance(models, Transformer)
        self.models = (models,) if is_one else tuple(models)
        configs = [model.config for model in self.models]
        self.limits = Limits(configs, decoding, max_source_length)
        self.decoding = decoding

    def with_decoding(self, decoding: DecodingConfig) -> "Inference":
        """Returns an `Inference` of the same models with another decoding."""
        length = self.limits.max_source_length
        return Inference(self.models, decoding, length)

    def for_sources_up_to(self, length: int) -> "Inference":
        """Returns the same inference with another `max_source_length`.

        A graph for sources of unknown length has room for this length.
        """
        return Inference(self.models, self.decoding, length)

    def output_limits(self, source_ids: Tensor) -> tuple[Tensor, int]:
        """Computes the maximum length of each output, int32 `[B]`.

        Also returns an upper bound of these, an int. Lengths are in tokens, EOS
        included. They exceed the length of the source, EOS excluded, by
        `extra_length` (sec. 6.1), and are at most `max_output_length` and the
        number of learned positions. A row without a source has the limit 0.
        """
        special = (source_ids == PAD) | (source_ids == EOS)
        lengths = ops.sum(ops.cast(~special, "int32"), axis=1)
        extra_length = self.decoding.extra_length
        limits = ops.where(lengths > 0, lengths + extra_length, 0)
        longest = source_ids.shape[1] or self.limits.max_source_length
        max_length = self.limits.output_limit(longest)
        return ops.minimum(limits, max_length), max_length

    def translate_ids(
        self,
        source_ids: Tensor,
        constraints: Constraints = UNCONSTRAINED,
        tokens: Tensor | None = None,
        *,
        num_best: int | None = None,
        shapes: str = "free",
        max_steps: int | None = None,
    ) -> SearchResult:
        """Searches for the outputs of sources, or samples them.

        The scores of a failed search are NaN.

        Args:
            source_ids: int32 `[B, S]`; rows end with `EOS`, then `PAD`.
            constraints: The `Constraints` of the sentences.
            tokens: Ids of a shortlist, int32 `[C]`, ascending, with all special
                tokens. Outputs have only these tokens, `constraints` have
                indices into this list, and probabilities are among them.
            num_best: As in `decoding.search`.
            shapes: The shapes that may change while the search runs. "free":
                sentences leave the batch when their searches end, and caches
                grow with the outputs. "growing": only caches grow. "static":
                none changes, as XLA requires. If B is known, none changes.
            max_steps: As in `decoding.search`.

        Returns:
            The `SearchResult`, whose ids are of the whole vocabulary.
        """
        expect(shapes in SHAPES, f"one of {', '.join(SHAPES)}", f"{shapes=}")
        config = self.decoding
        max_lengths, max_length = self.output_limits(source_ids)
        memories = tuple(model.encode(source_ids) for model in self.models)
        growing = shapes != "static" and source_ids.shape[0] is None
        leaving = growing and shapes == "free"
        beam_size = 1 if config.sampling else config.beam_size
        caches = tuple(
            model.make_cache(
                ops.shape(source_ids)[0],
                min(max_steps or max_length, max_length),
                beam_size,
                growing,
            )
            for model in self.models
        )
        # Copied to tensors, so that variables are not read at each position.
        weights = [
            (w, ops.copy(w)) for model in self.models for w in model.weights
        ]
        compiled = shapes == "static"
        with keras.StatelessScope(weights):
            projections = [
                model.softmax.projection(
                    tokens,
                    compiled,
                    transposed=compiled
                    and beam_size > 1
                    and _softmax_size(model, tokens) <= MOST_TRANSPOSED,
                )
                for model in self.models
            ]

        def step(
            ids: Tensor, state: typing.Any, index: Tensor
        ) -> tuple[Tensor, typing.Any]:
            caches, memories = state
            if tokens is not None:
                ids = ops.take(tokens, ids, axis=0)
            with keras.StatelessScope(weights):
                stepped = [
                    model.step_states(ids, memory, cache, index)
                    for model, memory, cache in zip(
                        self.models, memories, caches, strict=True
                    )
                ]
            logits = [
                project(x)
                for project, (x, _) in zip(projections, stepped, strict=True)
            ]
            caches = tuple(cache for _, cache in stepped)
            return self._mean(logits), (caches, memories)

        def reorder(state: typing.Any, parents: Tensor) -> typing.Any:
            caches, memories = state
            caches = tuple(
                model.reorder_cache(cache, parents)
                for model, cache in zip(self.models, caches, strict=True)
            )
            return caches, memories

        found = search(
            step,
            (caches, memories),  # rows leave both together
            max_lengths,
            config,
            max_length=max_length,
            constraints=constraints,
            reorder=reorder,
            num_best=num_best,
            max_steps=max_steps,
            pick=pick_rows if leaving else None,
        )
        if tokens is None:
            return found
        return found._replace(ids=ops.take(tokens, found.ids, axis=0))

    def _mean(self, logits: list[Tensor]) -> Tensor:
        """Combines the models' logits `[..., V]` by `decoding.ensemble`."""
        if len(logits) == 1:
            return logits[0]
        match self.decoding.ensemble:
            case "linear":  # mean of probabilities, up to a constant
                return _log_of_sum(logits)
            case "log_linear":  # mean of log-probabilities, up to a constant
                return sum(logits) / len(logits)
            case other:
                raise unhandled(ensemble=other)

    def score_ids(self, source_ids: Tensor, labels: Tensor) -> Tensor:
        """Computes the log-probability of every token of given translations.

        Arguments are int32 `[B, S]` and `[B, T]`; rows end with `EOS`, then
        `PAD`. Returns float32 `[B, T]`, 0 where `labels` is `PAD`.
        """
        logits = self._mean(
            [
                model.decode(shift_right(labels), model.encode(source_ids))
                for model in self.models
            ]
        )
        chosen = ops.take_along_axis(logits, labels[:, :, None], axis=-1)
        log_probs = chosen[:, :, 0] - ops.logsumexp(logits, axis=-1)  # [B, T]
        return ops.where(labels == PAD, 0.0, log_probs)

    def alignment_ids(self, source_ids: Tensor, labels: Tensor) -> Tensor:
        """Computes the attention of given translations' tokens to the source.

        Arguments are as in `score_ids`. Returns float32 `[B, T - 1, S]`, for
        all tokens but the last, 0 where the source is `EOS` or `PAD`. It is the
        attention in the decoder's alignment layer, of the alignment head or the
        mean of all heads, at the step that reads or writes the token; see
        `aligns_when_read`.
        """
        model = self.models[0]
        with recorded_weights() as weights:
            model.decode(shift_right(labels), model.encode(source_ids))
        return self._alignment(weights, source_ids)

    def read_ids(
        self, source_ids: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes `score_ids` and `alignment_ids` at once."""
        with recorded_weights() as weights:
            log_probs = self.score_ids(source_ids, labels)
        return log_probs, self._alignment(weights, source_ids)

    def _alignment(
        self, weights: Mapping[typing.Any, Tensor], source_ids: Tensor
    ) -> Tensor:
        """Makes the result of `alignment_ids` from the recorded attention."""
        model = self.models[0]
        layer = find_alignment_layer(model.config, self.decoding)
        block = model.decoder.blocks[layer - 1]
        attention = ops.cast(weights[block.cross_attention], "float32")
        head = self.decoding.alignment_head
        if head:
            attention = attention[:, head - 1 : head]
        attention = ops.mean(attention, axis=1)  # [N, H, T, S] -> [N, T, S]
        real = (source_ids != PAD) & (source_ids != EOS)
        if aligns_when_read(model.config, self.decoding):
            attention = attention[:, 1:]
        else:
            attention = attention[:, :-1]
        return ops.where(real[:, None], attention, 0.0)


def _log_of_sum(logits: list[Tensor]) -> Tensor:
    """Computes the logarithm of the sum of several softmaxes."""
    total = sum(ops.softmax(x, axis=-1) for x in logits)

    def exact() -> Tensor:
        log_probs = [ops.log_softmax(x, axis=-1) for x in logits]
        return ops.logsumexp(ops.stack(log_probs), axis=0)

    # `exact` takes four times as long, and is needed only if a sum underflows.
    return ops.cond(ops.all(total > 0), lambda: ops.log(total), exact)


def _softmax_size(model: Transformer, tokens: Tensor | None) -> int:
    """Counts the numbers in the softmax matrix of `tokens`, by default all."""
    config = model.config
    num_tokens = config.vocab_size if tokens is None else tokens.shape[0]
    return num_tokens * config.d_model
