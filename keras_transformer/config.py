"""Hyper-parameters of the model and of decoding, as dataclass fields."""

import dataclasses
import typing
from collections.abc import Mapping

from keras_transformer.base.fields import GIVEN, Fields, check_positive, hp
from keras_transformer.base.refusals import expect

# Ranges of fields; their upper bounds catch typing errors.
_Range = dict[str, typing.Any]
_TOKENS: _Range = {"low": 5, "high": 10**8}  # in a vocabulary
_WIDTH: _Range = {"low": 1, "high": 10**6}
_LAYERS: _Range = {"low": 1, "high": 10**4}
_POSITIONS: _Range = {"low": 1, "high": 10**6}  # in a sentence
_COUNT: _Range = {"low": 0, "high": 10**6}  # of positions or tokens
_SHARE: _Range = {"low": 0.0, "below": 1.0}
_SAMPLING: _Range = {"needs": {"sampling": True}}
SEARCH_PRECISIONS = ("float32", "bfloat16")  # for a `Translator`
SEARCH_ENGINES = ("native", "ctranslate2")  # for a `Translator`
COMPUTE_TYPES = ("default", "int8", "int8_float32", "bfloat16", "float16")
# A work directory serves the first of these that exists.
CHECKPOINT_KINDS = ("averaged", "best", "latest")
POSITIONS = ("sinusoidal", "learned", "relative")
SINUSOIDS = ("paper", "t2t")
ACTIVATIONS = ("relu", "swish", "gelu", "gelu_tanh")


class Sharing(typing.NamedTuple):
    """Whether source and softmax share the matrix of the target embedding."""

    source: bool
    softmax: bool


SHARED_EMBEDDINGS = {
    "all": Sharing(source=True, softmax=True),
    "target": Sharing(source=False, softmax=True),
    "inputs": Sharing(source=True, softmax=False),
    "none": Sharing(source=False, softmax=False),
}
# Defaults for positions: room for the longest source and output that the other
# defaults allow; the distance of T2T's transformer_relative.
LEARNED_POSITIONS = 512
RELATIVE_DISTANCE = 20

# Constants of sec. 5.3 that the trainers' flags and the optimizer share.
PAPER_SCALE = 1.0  # factor of eq. 3
PAPER_BETA_2 = 0.98  # Adam's


def check_even(d_model: int) -> None:
    """Raises ValueError if `d_model` is odd."""
    even = d_model % 2 == 0
    expect(even, "an even d_model: sinusoids come in pairs", f"{d_model=}")


class TransformerConfig(Fields):
    """The shape of a Transformer. The defaults are the paper's base model.

    See Table 3 of the paper. `source_vocab_size`, `d_key`, `d_value`,
    `num_decoder_layers`, `max_positions`, `max_relative_position` and
    `share_embeddings` may be None. Read the effective values from
    `num_source_tokens`, `key_size`, `value_size`, `decoder_depth`,
    `position_limit`, `relative_distance` and `sharing`.

    The fields from `activation` on exist for models trained by other systems.
    Their defaults are the paper's.

    >>> TransformerConfig(d_model=128, num_heads=4).key_size
    32
    """

    vocab_size: int = hp(
        37000,
        "Tokens in the vocabulary, special ones included: the shared"
        " vocabulary, or the target's.",
        **_TOKENS,
        common=True,
    )
    source_vocab_size: int | None = hp(
        None,
        "Tokens in the source vocabulary, if the source has its own vocabulary"
        " and embeddings. Default: one vocabulary is shared.",
        **_TOKENS,
        excludes={"share_embeddings": ("all", "inputs")},
    )
    d_model: int = hp(
        512,
        "Width of the residual stream and of the embeddings.",
        low=2,
        high=10**6,
    )
    d_ff: int = hp(
        2048, "Width of the feed-forward layer (sec. 3.3).", **_WIDTH
    )
    num_heads: int = hp(8, "Attention heads, h in the paper.", **_WIDTH)
    num_layers: int = hp(6, "Encoder layers, N in the paper.", **_LAYERS)
    num_decoder_layers: int | None = hp(
        None,
        "Decoder layers. Default: as many as encoder layers.",
        **_LAYERS,
        resolved_by="decoder_depth",
    )
    d_key: int | None = hp(
        None,
        "Key size of a head. Default: d_model / num_heads.",
        **_WIDTH,
        resolved_by="key_size",
    )
    d_value: int | None = hp(
        None,
        "Value size of a head. Default: d_model / num_heads.",
        **_WIDTH,
        resolved_by="value_size",
    )
    dropout: float = hp(
        0.1,
        "Dropout of sub-layer outputs and embedding sums (sec. 5.4).",
        **_SHARE,
        changeable=True,
    )
    attention_dropout: float = hp(
        0.0,
        "Dropout of attention weights (the paper: 0).",
        **_SHARE,
        changeable=True,
    )
    activation_dropout: float = hp(
        0.0,
        "Dropout after the activation of sec. 3.3 (the paper: 0).",
        **_SHARE,
        changeable=True,
    )
    pre_norm: bool = hp(
        False, "Normalize the input of sub-layers (the paper: the output)."
    )
    positions: str = hp(
        "sinusoidal",
        "How the model sees order: sinusoidal (sec. 3.5); learned: a table for"
        " the source and one for the target (Table 3, row E); relative:"
        " distances in self-attention (Shaw et al. 2018).",
        choices=POSITIONS,
    )
    max_positions: int | None = hp(
        None,
        "Rows of a table of positions, so the longest sentence in tokens, EOS"
        f" included. Default: {LEARNED_POSITIONS}.",
        low=2,
        high=10**6,
        needs={"positions": "learned"},
        resolved_by="position_limit",
    )
    max_relative_position: int | None = hp(
        None,
        "Distances are clipped to this maximum on each side. Default:"
        f" {RELATIVE_DISTANCE}.",
        **_POSITIONS,
        needs={"positions": "relative"},
        resolved_by="relative_distance",
    )
    attention_window: int | None = hp(
        None,
        "Positions that a query of self-attention sees, r in Table 1: around it"
        " in the encoder, up to it in the decoder. Default: all.",
        **_POSITIONS,
        excludes={"positions": "relative"},
    )
    activation: str = hp(
        "relu",
        "Activation of the feed-forward layer (the paper: relu); gelu uses the"
        " error function, gelu_tanh its approximation.",
        choices=ACTIVATIONS,
    )
    attention_bias: bool = hp(
        False, "Biases in the projections of attention (the paper: none)."
    )
    layer_norm_epsilon: float = hp(
        1e-6,
        "Added to the variance in layer normalization.",
        low=1e-12,
        high=1.0,
    )
    embedding_norm: bool = hp(
        False, "Normalize the sum of embeddings and positions (the paper: no)."
    )
    scale_embeddings: bool = hp(
        True, "Multiply embeddings by sqrt(d_model), as in sec. 3.4."
    )
    sinusoids: str = hp(
        "paper",
        "Wavelengths as in sec. 3.5 (paper), or as in tensor2tensor, OpenNMT"
        " and fairseq, whose last one is 2 pi 10000 (t2t).",
        choices=SINUSOIDS,
        needs={"positions": "sinusoidal"},
    )
    first_position: int = hp(
        0,
        "Number of the first position.",
        **_COUNT,
        needs={"positions": "sinusoidal"},
    )
    share_embeddings: str | None = hp(
        None,
        "Which embeddings share a matrix: all (source, target and softmax,"
        " sec. 3.4); target (target and softmax); inputs (source and target);"
        " none. Default: all, or target if there is a source_vocab_size.",
        choices=tuple(SHARED_EMBEDDINGS),
        resolved_by="sharing",
    )
    logits_bias: bool = hp(
        False, "A bias for each token, added to its logit (the paper: none)."
    )
    source_eos: bool = hp(
        True,
        "Whether the encoder reads the EOS that ends a source. If not, it is"
        " masked like padding, for models that were trained without it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_even(self.d_model)
        expect(
            (self.d_key and self.d_value) or self.d_model % self.num_heads == 0,
            "d_model that num_heads divides, or d_key and d_value",
            f"{self.d_model=}, {self.num_heads=}, {self.d_key=}",
            f"{self.d_value=}",
        )

    @property
    def num_source_tokens(self) -> int:
        """Tokens in the vocabulary of the source."""
        return self.source_vocab_size or self.vocab_size

    @property
    def key_size(self) -> int:
        """Key size of one head, d_k in the paper."""
        return self.d_key or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Value size of one head, d_v in the paper."""
        return self.d_value or self.d_model // self.num_heads

    @property
    def decoder_depth(self) -> int:
        """Number of decoder layers."""
        return self.num_decoder_layers or self.num_layers

    @property
    def position_limit(self) -> int | None:
        """Number of learned positions; None if positions are not learned."""
        if self.positions != "learned":
            return None
        return self.max_positions or LEARNED_POSITIONS

    @property
    def relative_distance(self) -> int | None:
        """Maximum relative distance; None without relative positions."""
        if self.positions != "relative":
            return None
        return self.max_relative_position or RELATIVE_DISTANCE

    @property
    def sharing(self) -> str:
        """Which embeddings share a matrix: a key of `SHARED_EMBEDDINGS`."""
        if self.share_embeddings is not None:
            return self.share_embeddings
        return "target" if self.source_vocab_size else "all"

    @property
    def has_source_embedding(self) -> bool:
        """Whether the source has a separate embedding matrix."""
        return not SHARED_EMBEDDINGS[self.sharing].source

    @property
    def has_softmax_matrix(self) -> bool:
        """Whether the softmax has a separate matrix."""
        return not SHARED_EMBEDDINGS[self.sharing].softmax


def check_alignment(model: TransformerConfig, search: "SearchConfig") -> None:
    """Raises ValueError unless the decoder has the alignment layer and head."""
    layer, head = search.alignment_layer, search.alignment_head
    expect(
        (layer or 1) <= model.decoder_depth,
        f"alignment_layer of at most {model.decoder_depth}, the decoder's",
        alignment_layer=layer,
    )
    expect(
        head <= model.num_heads,
        f"alignment_head of at most num_heads={model.num_heads}",
        alignment_head=head,
    )


def find_alignment_layer(
    model: TransformerConfig, search: "SearchConfig"
) -> int:
    """Returns the decoder layer that aligns words, counted from 1."""
    depth = model.decoder_depth
    default = (depth + 1) // 2 if aligns_when_read(model, search) else depth
    return search.alignment_layer or default


def aligns_when_read(model: TransformerConfig, search: "SearchConfig") -> bool:
    """Tells whether a token is aligned at the decoding step that reads it.

    Otherwise it is aligned one step earlier, when it is predicted. A guided
    head is trained for the step that reads the token. That step is also better
    in post-norm models (Chen et al. 2020, "Shift-Att"). In pre-norm models the
    earlier step is better.
    """
    return bool(search.alignment_head) or not model.pre_norm


def check_position_limit(config: TransformerConfig, **lengths: int) -> None:
    """Raises ValueError if a length, in tokens, exceeds the learned positions.

    >>> config = TransformerConfig(positions="learned", max_positions=64)
    >>> check_position_limit(config, max_length=100)
    Traceback (most recent call last):
    ValueError: expected max_length of at most max_positions=64. Received:\
 max_length=100
    """
    limit = config.position_limit
    for name, length in lengths.items():
        expect(
            limit is None or length <= limit,
            f"{name} of at most max_positions={limit}",
            f"{name}={length}",
        )


class SearchConfig(Fields, changeable=True):
    """The search for a translation. The defaults are the paper's.

    See sec. 6.1: beam size 4, length penalty 0.6, and at most 50 tokens more
    than the source.
    """

    beam_size: int = hp(
        4,
        "Hypotheses kept alive; 1 is greedy decoding.",
        low=1,
        high=10**4,
        common=True,
    )
    length_penalty: float = hp(
        0.6,
        "Alpha in ((5 + length) / 6) ^ alpha; 0 compares bare"
        " log-probabilities.",
        low=0.0,
        high=10.0,
    )
    length_normalization: str = hp(
        "wu",
        "Base of the length penalty, with the exponent alpha: wu:"
        " (5 + length) / 6 (Wu et al. 2016); power: length (transformers,"
        " CTranslate2). Length counts EOS.",
        choices=("wu", "power"),
    )
    stopping: str = hp(
        "transformers",
        "When a beam search ends. transformers: no unfinished hypothesis, at"
        " its present length, scores better than the worst of beam_size"
        " finished ones. exact: no hypothesis can still become one of the"
        " best; slower. fairseq (CTranslate2 with a length penalty does the"
        " same), marian, opennmt_tf: as in these systems.",
        choices=("exact", "transformers", "fairseq", "marian", "opennmt_tf"),
    )
    extra_length: int = hp(
        50,
        "Maximum output length, EOS included, minus the number of source"
        " tokens, EOS excluded.",
        **_COUNT,
    )
    max_output_length: int | None = hp(
        None,
        "Maximum output length, EOS included, for any source. Default: only"
        " extra_length limits it.",
        **_POSITIONS,
    )
    min_length: int = hp(
        0, "Minimum length of the output in tokens, EOS included.", **_COUNT
    )
    no_repeat_ngram: int = hp(
        0,
        "No output repeats a sequence of n tokens; 0 allows repetition.",
        **_COUNT,
    )
    alignment_layer: int | None = hp(
        None,
        "Decoder layer, from 1, whose attention aligns words. Default: the"
        " middle one; with pre_norm, unless alignment_head is set, the last.",
        **_LAYERS,
    )
    alignment_head: int = hp(
        0,
        "Head of this layer, from 1, that aligns words; 0: the mean of all"
        " heads, and with guided_alignment head 1.",
        **_COUNT,
    )

    def penalty(self, length: int) -> float:
        """Returns the divisor of a log-probability. `length` includes EOS."""
        is_wu = self.length_normalization == "wu"
        base = (length + 5) / 6 if is_wu else max(1, length)
        return base**self.length_penalty


class DecodingConfig(SearchConfig, changeable=True):
    """How a model translates: by a search as in the paper, or by sampling."""

    sampling: bool = hp(
        False, "Sample from the model's distribution instead of searching."
    )
    ensemble: str = hp(
        "linear",
        "With several models: search by the mean of their probabilities, or"
        " (log_linear) of their log-probabilities.",
        choices=("linear", "log_linear"),
    )
    glossary_mode: str = hp(
        "prefer",
        "prefer makes terms of a glossary more probable, and a warning names"
        " missing ones; force requires them, even if they break the sentence.",
        choices=("prefer", "force"),
    )
    glossary_bonus: float = hp(
        2.0,
        "With prefer: bonus that is added to the log-probability of each"
        " token of a term.",
        low=0.0,
        high=100.0,
    )
    num_samples: int = hp(
        1,
        "Sampling: samples of each sentence. kt-translate and"
        " kt-translate-corpus write all, as n_best does, unless consensus"
        " selects one.",
        low=1,
        high=10**4,
        **_SAMPLING,
    )
    temperature: float = hp(
        1.0,
        "Sampling: the divisor of the logits.",
        low=1e-3,
        high=1e3,
        **_SAMPLING,
    )
    top_k: int = hp(
        0,
        "Sampling: only the k most probable tokens; 0: all.",
        low=0,
        high=10**8,
        **_SAMPLING,
    )
    top_p: float = hp(
        1.0,
        "Sampling: only the smallest set of tokens with probability p; 1: all.",
        low=1e-6,
        high=1.0,
        **_SAMPLING,
    )
    epsilon: float = hp(
        0.0,
        "Sampling: only tokens with at least this probability, and the most"
        " probable one (Hewitt et al. 2022); 0: all.",
        low=0.0,
        below=1.0,
        **_SAMPLING,
    )
    consensus: str | None = hp(
        None,
        "Choose the sample with the highest mean chrF, or sentence BLEU, to all"
        " samples (minimum Bayes risk; Freitag et al. 2022).",
        choices=("chrf", "bleu"),
        needs={"sampling": True, "num_samples": GIVEN},
    )

    @property
    def num_hypotheses(self) -> int:
        """Number of hypotheses per sentence: the beam size, or the samples."""
        return self.num_samples if self.sampling else self.beam_size

    def check_number(self, num_best: int, name: str = "num_best") -> None:
        """Raises ValueError unless `num_best` is from 1 to `num_hypotheses`.

        `name` is what the message calls the number.
        """
        check_positive(**{name: num_best})
        kind = "num_samples" if self.sampling else "beam_size"
        most = f"{name} of at most {kind}={self.num_hypotheses}"
        expect(num_best <= self.num_hypotheses, most, f"{name}={num_best}")

    def check_seed(self, seed: int | None) -> None:
        """Raises ValueError if there is a seed without sampling."""
        expect(seed is None or self.sampling, "sampling with a seed", seed=seed)

    def check_one_output(self) -> None:
        """Raises ValueError if there are several samples but no `consensus`."""
        expect(
            self.num_samples == 1 or self.consensus,
            "consensus with num_samples: only one translation is used",
            num_samples=self.num_samples,
        )

    def count_outputs(self, n_best: int) -> int:
        """Counts the hypotheses to write per line; 0 is a bare translation.

        Several samples are all written unless `consensus` chooses one.
        """
        if n_best or self.consensus or self.num_samples == 1:
            return n_best
        return self.num_samples


# Fields that turn sampling off, and reset the options that need it.
NO_SAMPLING = {"sampling": False} | {
    field.name: field.default
    for field in dataclasses.fields(DecodingConfig)
    if any(of.other == "sampling" for of in field.metadata["relations"])
}


def changed_search(
    search: DecodingConfig, changes: Mapping[str, typing.Any]
) -> DecodingConfig:
    """Returns a search with changed fields.

    `sampling=False` also resets the options that need sampling.

    >>> drawn = DecodingConfig(sampling=True, temperature=0.7)
    >>> changed_search(drawn, {"sampling": False}).temperature
    1.0
    """
    if changes.get("sampling") is False:
        changes = NO_SAMPLING | dict(changes)
    return dataclasses.replace(search, **changes)


class LengthConfig(Fields):
    """The maximum length in training, which also limits translation."""

    max_length: int = hp(
        256,
        "Maximum number of tokens on a side, EOS included; longer pairs are"
        " dropped.",
        low=2,
        high=10**6,
        changeable=True,
        inherited=True,
    )


_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}
# Pre-norm and the dropouts that tensor2tensor has had since its version 2.
_T2T = {"pre_norm": True, "attention_dropout": 0.1, "activation_dropout": 0.1}

# Some presets have the same fields, but other recipes in `trainers/configs`
# (label smoothing, steps).
PRESETS: dict[str, dict[str, typing.Any]] = {
    # Table 3 of the paper, rows "base" and "big".
    "base": {},
    "big": _BIG,
    # Every row of Table 3. Empty fields of a row have base's values;
    # d_key and d_value follow from d_model and num_heads.
    "table3_base": {},
    "table3_a1": {"num_heads": 1},
    "table3_a2": {"num_heads": 4},
    "table3_a3": {"num_heads": 16},
    "table3_a4": {"num_heads": 32},
    "table3_b1": {"d_key": 16},
    "table3_b2": {"d_key": 32},
    "table3_c1": {"num_layers": 2},
    "table3_c2": {"num_layers": 4},
    "table3_c3": {"num_layers": 8},
    "table3_c4": {"d_model": 256},
    "table3_c5": {"d_model": 1024},
    "table3_c6": {"d_ff": 1024},
    "table3_c7": {"d_ff": 4096},
    "table3_d1": {"dropout": 0.0},
    "table3_d2": {"dropout": 0.2},
    "table3_d3": {},  # label smoothing 0.0
    "table3_d4": {},  # label smoothing 0.2
    "table3_e": {"positions": "learned"},
    "table3_big": _BIG,
    # tensor2tensor's transformer_base_v1 (the published model), _v2, _v3 (now
    # transformer_base) and transformer_big.
    "t2t_base_v1": {},
    "t2t_base_v2": _T2T,
    "t2t_base_v3": _T2T,
    "t2t_big": {**_BIG, **_T2T},
    # fairseq's transformer_vaswani_wmt_en_de_big.
    "fairseq_big": _BIG,
    # Wu et al. 2021, arXiv 2105.14462: the Multi30k model.
    "tiny": {
        "d_model": 128,
        "d_ff": 256,
        "num_heads": 4,
        "num_layers": 4,
        "dropout": 0.3,
    },
}


def preset(name: str, **overrides: typing.Any) -> TransformerConfig:
    """Returns the configuration of a published model.

    Args:
        name: A key of `PRESETS`.
        **overrides: Fields of `TransformerConfig` that replace the preset's.

    Returns:
        A `TransformerConfig`.

    Raises:
        ValueError: The preset or a field is unknown, or a value is invalid.

    >>> preset("big", vocab_size=32000, dropout=0.1).d_ff
    4096
    """
    expect(name in PRESETS, f"one of {', '.join(sorted(PRESETS))}", preset=name)
    known = {field.name for field in dataclasses.fields(TransformerConfig)}
    unknown = sorted(overrides.keys() - known)
    fields = f"fields among {', '.join(sorted(known))}"
    expect(not unknown, fields, *unknown)
    return TransformerConfig(**{**PRESETS[name], **overrides})
