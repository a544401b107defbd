"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras 3.

Letters of shapes, in every docstring:
    B  sentences in a batch            H  attention heads
    S  source positions                K  key size of a head; Vd its value size
    T  target positions                F  width of the feed-forward layer
    D  d_model                         V  tokens in the vocabulary
    W  hypotheses of a beam            N  B * W rows in a search

Importing the package imports neither Keras nor TensorFlow: each public name is
imported at its first use. Layers, loss, schedule and search run on every Keras
backend; data, tokenizer and translator need TensorFlow.
"""

import importlib
import importlib.abc
import importlib.util
import sys
import typing

if typing.TYPE_CHECKING:  # the names of `_HOMES`, for type checkers
    from keras_transformer.config import PRESETS as PRESETS
    from keras_transformer.config import DecodingConfig as DecodingConfig
    from keras_transformer.config import TransformerConfig as TransformerConfig
    from keras_transformer.config import preset as preset
    from keras_transformer.data.batches import Batches as Batches
    from keras_transformer.data.batches import make_batches as make_batches
    from keras_transformer.data.corpus import Corpus as Corpus
    from keras_transformer.data.corpus import encode_corpus as encode_corpus
    from keras_transformer.data.pairs import Pairs as Pairs
    from keras_transformer.data.pairs import (
        read_parallel_files as read_parallel_files,
    )
    from keras_transformer.data.pairs import read_tfds as read_tfds
    from keras_transformer.data.shards import read_prepared as read_prepared
    from keras_transformer.data.subword_sampling import (
        SampledCorpus as SampledCorpus,
    )
    from keras_transformer.decoding import SearchResult as SearchResult
    from keras_transformer.decoding import beam_search as beam_search
    from keras_transformer.decoding import greedy_search as greedy_search
    from keras_transformer.decoding import sample as sample
    from keras_transformer.figures.attention import (
        AttentionFigure as AttentionFigure,
    )
    from keras_transformer.figures.attention import (
        attention_figure as attention_figure,
    )
    from keras_transformer.layers import FeedForward as FeedForward
    from keras_transformer.layers import (
        MultiHeadAttention as MultiHeadAttention,
    )
    from keras_transformer.layers import (
        PositionalEmbedding as PositionalEmbedding,
    )
    from keras_transformer.layers import (
        positional_encoding as positional_encoding,
    )
    from keras_transformer.layers import (
        scaled_dot_product_attention as scaled_dot_product_attention,
    )
    from keras_transformer.loss import (
        SmoothedCrossEntropy as SmoothedCrossEntropy,
    )
    from keras_transformer.masking import causal_mask as causal_mask
    from keras_transformer.masking import padding_mask as padding_mask
    from keras_transformer.metrics import Perplexity as Perplexity
    from keras_transformer.metrics import TokenAccuracy as TokenAccuracy
    from keras_transformer.model import Decoder as Decoder
    from keras_transformer.model import DecoderLayer as DecoderLayer
    from keras_transformer.model import Encoder as Encoder
    from keras_transformer.model import EncoderLayer as EncoderLayer
    from keras_transformer.model import Transformer as Transformer
    from keras_transformer.schedule import ConstantSchedule as ConstantSchedule
    from keras_transformer.schedule import CosineSchedule as CosineSchedule
    from keras_transformer.schedule import LinearSchedule as LinearSchedule
    from keras_transformer.schedule import NoamSchedule as NoamSchedule
    from keras_transformer.schedule import paper_adam as paper_adam
    from keras_transformer.schedule import scheduled_adam as scheduled_adam
    from keras_transformer.tokenization import Tokenizer as Tokenizer
    from keras_transformer.tokenization import TokenizerPair as TokenizerPair
    from keras_transformer.translator import Translator as Translator
    from keras_transformer.vocabulary import BOS as BOS
    from keras_transformer.vocabulary import EOS as EOS
    from keras_transformer.vocabulary import PAD as PAD
    from keras_transformer.vocabulary import UNK as UNK

__version__ = "0.1.0"  # the only place; setup.py reads it from here

# Public names -> the modules of this package that define them.
_HOMES = {
    "AttentionFigure": "figures.attention",
    "BOS": "vocabulary",
    "Batches": "data.batches",
    "ConstantSchedule": "schedule",
    "Corpus": "data.corpus",
    "CosineSchedule": "schedule",
    "Decoder": "model",
    "DecoderLayer": "model",
    "DecodingConfig": "config",
    "EOS": "vocabulary",
    "Encoder": "model",
    "EncoderLayer": "model",
    "FeedForward": "layers",
    "LinearSchedule": "schedule",
    "MultiHeadAttention": "layers",
    "NoamSchedule": "schedule",
    "PAD": "vocabulary",
    "PRESETS": "config",
    "Pairs": "data.pairs",
    "Perplexity": "metrics",
    "PositionalEmbedding": "layers",
    "SampledCorpus": "data.subword_sampling",
    "SearchResult": "decoding",
    "SmoothedCrossEntropy": "loss",
    "TokenAccuracy": "metrics",
    "Tokenizer": "tokenization",
    "TokenizerPair": "tokenization",
    "Transformer": "model",
    "TransformerConfig": "config",
    "Translator": "translator",
    "UNK": "vocabulary",
    "attention_figure": "figures.attention",
    "beam_search": "decoding",
    "causal_mask": "masking",
    "encode_corpus": "data.corpus",
    "greedy_search": "decoding",
    "make_batches": "data.batches",
    "padding_mask": "masking",
    "paper_adam": "schedule",
    "positional_encoding": "layers",
    "preset": "config",
    "read_parallel_files": "data.pairs",
    "read_prepared": "data.shards",
    "read_tfds": "data.pairs",
    "sample": "decoding",
    "scaled_dot_product_attention": "layers",
    "scheduled_adam": "schedule",
}
# Modules whose classes `keras.saving.load_model` looks up in Keras' registry.
_SERIALIZABLE = (
    "layers",
    "loss",
    "metrics",
    "model",
    "optimizer",
    "schedule",
)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] in _SERIALIZABLE:
        _register_with_keras()
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_with_keras() -> None:
    """Imports the modules whose classes register themselves with Keras."""
    for module in _SERIALIZABLE:
        importlib.import_module(f"{__name__}.{module}")


class _KerasImport(importlib.abc.MetaPathFinder):
    """Registers our classes with Keras right after Keras has been imported.

    Keras 3.15 loads a file with classes of other packages only if they are
    registered: `load_model` must find ours after `import keras_transformer`
    alone, which must not import Keras.
    """

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is None or spec.loader is None:
            return None
        import_keras = spec.loader.exec_module

        def import_and_register(module):
            import_keras(module)
            # A module of ours that imports Keras is imported halfway, and
            # registers its own classes.
            if not any(f"{__name__}.{m}" in sys.modules for m in _SERIALIZABLE):
                _register_with_keras()

        spec.loader.exec_module = import_and_register
        return spec


if "keras" in sys.modules:
    _register_with_keras()
else:
    sys.meta_path.insert(0, _KerasImport())
