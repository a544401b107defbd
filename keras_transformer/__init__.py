"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras 3.

Letters of shapes, in every docstring:
    B  sentences in a batch            H  attention heads
    S  source positions                K  key size of a head; Vd its value size
    T  target positions                F  width of the feed-forward layer
    D  d_model                         V  pieces in the vocabulary
    W  hypotheses of a beam            N  B * W rows in a search
"""

import importlib

from keras_transformer.config import (
    PRESETS,
    DecodingConfig,
    TransformerConfig,
    preset,
)
from keras_transformer.decoding import (
    SearchResult,
    beam_search,
    greedy_search,
    sample,
)
from keras_transformer.layers import (
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    positional_encoding,
    scaled_dot_product_attention,
)
from keras_transformer.loss import SmoothedCrossEntropy
from keras_transformer.masking import causal_mask, padding_mask
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.model import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
)
from keras_transformer.schedule import NoamSchedule, paper_adam
from keras_transformer.vocabulary import BOS, EOS, PAD, UNK

# What needs TensorFlow is imported at its first use: layers, loss, schedule and
# search run wherever Keras does.
_TENSORFLOW_SIDE = {
    "Batches": "data.batches",
    "Corpus": "data.corpus",
    "Pairs": "data.pairs",
    "Tokenizer": "tokenization",
    "Translator": "translator",
    "encode_corpus": "data.corpus",
    "make_batches": "data.batches",
    "read_parallel_files": "data.pairs",
    "read_prepared": "data.shards",
    "read_tfds": "data.pairs",
}

__all__ = [
    "BOS",
    "Batches",
    "Corpus",
    "Decoder",
    "DecoderLayer",
    "DecodingConfig",
    "EOS",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "NoamSchedule",
    "PAD",
    "PRESETS",
    "Pairs",
    "Perplexity",
    "PositionalEmbedding",
    "SearchResult",
    "SmoothedCrossEntropy",
    "TokenAccuracy",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "UNK",
    "beam_search",
    "causal_mask",
    "encode_corpus",
    "greedy_search",
    "make_batches",
    "padding_mask",
    "paper_adam",
    "positional_encoding",
    "preset",
    "read_parallel_files",
    "read_prepared",
    "read_tfds",
    "sample",
    "scaled_dot_product_attention",
]


def __getattr__(name):
    if name not in _TENSORFLOW_SIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_TENSORFLOW_SIDE[name]}")
    return getattr(module, name)


def __dir__():
    return sorted(__all__)
