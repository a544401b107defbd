"""The parts of the Transformer: section 3 of the paper.

The letters of shapes are explained in `keras_transformer/__init__.py`.

In a half-precision policy, softmax and positions are computed in float32, and
logits are converted to float32. With dtype float64, all three are float64.
"""

from keras_transformer.layers.attention import (
    MultiHeadAttention as MultiHeadAttention,
)
from keras_transformer.layers.attention import (
    recorded_weights as recorded_weights,
)
from keras_transformer.layers.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from keras_transformer.layers.embeddings import InputEmbedding as InputEmbedding
from keras_transformer.layers.embeddings import (
    LearnedPositions as LearnedPositions,
)
from keras_transformer.layers.embeddings import (
    PositionalEmbedding as PositionalEmbedding,
)
from keras_transformer.layers.embeddings import (
    SoftmaxProjection as SoftmaxProjection,
)
from keras_transformer.layers.embeddings import (
    positional_encoding as positional_encoding,
)
from keras_transformer.layers.relative_attention import (
    RelativeAttention as RelativeAttention,
)
from keras_transformer.layers.restricted_attention import (
    RestrictedAttention as RestrictedAttention,
)
from keras_transformer.layers.stacks import Decoder as Decoder
from keras_transformer.layers.stacks import DecoderLayer as DecoderLayer
from keras_transformer.layers.stacks import Encoder as Encoder
from keras_transformer.layers.stacks import EncoderLayer as EncoderLayer
from keras_transformer.layers.sublayers import FeedForward as FeedForward
from keras_transformer.layers.sublayers import Residual as Residual
