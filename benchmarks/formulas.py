"""The settings of a recipe; parameters and FLOPs of a model, by arithmetic.

See Table 3 of the paper and sec. 3 for the sizes.
"""

from keras_transformer.config import TransformerConfig
from trainers import wmt
from trainers.run.training_config import Configuration

FLOPS_OF_MULTIPLY_ADD = 2
# For each product of the forward pass, the backward pass has two of the same
# size, the gradients of both factors.
PASSES = 3


def read_recipe(name: str) -> Configuration:
    """Reads the `Configuration` of a recipe."""
    arguments, options = wmt.read_arguments(
        [f"--recipe={name}", "--workdir=none"]
    )
    return wmt.read_configuration(arguments, options.preset)


def count_parameters(config: TransformerConfig) -> int:
    """Counts the parameters of a `Transformer`.

    >>> count_parameters(TransformerConfig(vocab_size=37000))
    63045632
    """
    norm = 2 * config.d_model
    attention = 2 * _projection(config, config.key_size + config.value_size)
    if config.attention_bias:
        sizes = 2 * config.key_size + config.value_size
        attention += config.num_heads * sizes + config.d_model
    feed_forward = _feed_forward(config) + config.d_ff + config.d_model
    relative = 0
    if config.relative_distance is not None:  # vectors that the heads share
        distances = 2 * config.relative_distance + 1
        relative = distances * (config.key_size + config.value_size)
    encoder_layer = attention + relative + feed_forward + 2 * norm
    decoder_layer = 2 * attention + relative + feed_forward + 3 * norm
    # A table for the source and one for the target.
    positions = 2 * (config.position_limit or 0) * config.d_model
    rows = config.vocab_size * (2 if config.has_softmax_matrix else 1)
    if config.has_source_embedding:
        rows += config.num_source_tokens
    return (
        rows * config.d_model
        + (config.vocab_size if config.logits_bias else 0)
        + (2 * norm if config.embedding_norm else 0)  # a norm for each side
        + positions
        + config.num_layers * encoder_layer
        + config.decoder_depth * decoder_layer
        + (2 * norm if config.pre_norm else 0)  # at the end of both stacks
    )


def multiply_adds(
    config: TransformerConfig, source_length: int, target_length: int
) -> int:
    """Counts the multiply-adds of the forward pass of a pair.

    It counts matrix products: every weight once for each position that it is
    applied to, and Q K^T and the weighted sum of the values for each pair of
    positions, including those that the mask hides. It does not count lookups,
    softmax, normalization and biases.

    Args:
        config: The model.
        source_length, target_length: Tokens of the two sides, EOS included.

    Raises:
        ValueError: Self-attention is restricted or relative, which makes other
            products.
    """
    is_added = config.positions in ("sinusoidal", "learned")
    if config.attention_window or not is_added:
        raise ValueError(
            "expected full attention without relative positions. Received:"
            f" attention_window={config.attention_window},"
            f" positions={config.positions!r}"
        )
    keys, values = config.key_size, config.value_size
    attention = 2 * _projection(config, keys + values)
    encoder = source_length * (attention + _feed_forward(config))
    encoder += source_length**2 * config.num_heads * (keys + values)
    # Cross-attention has queries and outputs of target positions, keys and
    # values of source positions.
    decoder = target_length * (attention + _feed_forward(config))
    decoder += target_length**2 * config.num_heads * (keys + values)
    decoder += (target_length + source_length) * attention // 2
    decoder += (
        target_length * source_length * config.num_heads * (keys + values)
    )
    logits = target_length * config.d_model * config.vocab_size
    return config.num_layers * encoder + config.decoder_depth * decoder + logits


def training_flops(
    config: TransformerConfig,
    train_steps: int,
    batch_tokens: int,
    sentence_length: int,
) -> float:
    """Computes the FLOPs of a training, without the optimizer's.

    Args:
        config: The model.
        train_steps: Updates.
        batch_tokens: Tokens of a batch on each side.
        sentence_length: Tokens of a sentence, on both sides. It matters little,
            since attention to all positions is a few percent of the FLOPs.
    """
    pair = multiply_adds(config, sentence_length, sentence_length)
    flops = FLOPS_OF_MULTIPLY_ADD * PASSES * pair
    return train_steps * batch_tokens / sentence_length * flops


def _projection(config, size):
    """Counts the weights of a projection to all heads of a size."""
    return config.d_model * config.num_heads * size


def _feed_forward(config):
    """Counts the weights of a feed-forward layer, without biases."""
    return 2 * config.d_model * config.d_ff
