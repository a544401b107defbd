"""NumPy versions of the paper's equations, written from its text alone.

Parts that only models of other systems have follow those systems' formulas.
"""

import math

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask=None):
    """Computes eq. 1 for one head: [T, K], [S, K], [S, Vd] -> [T, Vd]."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ v


def relative_attention(q, k, v, mask, key_vectors, value_vectors):
    """Computes Shaw et al. 2018, eq. 3 and 4, by pair: [n, K] -> [n, Vd]."""
    n, greatest = len(q), len(key_vectors) // 2

    def vector(vectors, i, j):
        return vectors[greatest + min(max(j - i, -greatest), greatest)]

    scores = np.full((n, n), -np.inf)
    for i, j in zip(*np.nonzero(mask), strict=True):
        scores[i, j] = q[i] @ (k[j] + vector(key_vectors, i, j))
    weights = softmax(scores / np.sqrt(q.shape[-1]))
    z = np.zeros((n, v.shape[-1]))
    for i, j in np.ndindex(n, n):
        z[i] += weights[i, j] * (v[j] + vector(value_vectors, i, j))
    return z


def sees(n, window, causal):
    """Returns the mask of restricted attention, pair by pair: bool [n, n]."""
    mask = np.zeros((n, n), bool)
    for i, j in np.ndindex(n, n):
        if causal:
            mask[i, j] = i - window < j <= i
        else:
            mask[i, j] = i - window / 2 <= j < i + window / 2
    return mask


def multi_head_attention(
    x, y, weights, num_heads, mask=None, vectors=None, biases=(0, 0, 0, 0)
):
    """Computes sec. 3.2.2 for one sentence, head by head."""
    query, key, value, output = weights
    q = np.split(x @ query + biases[0], num_heads, axis=-1)
    k = np.split(y @ key + biases[1], num_heads, axis=-1)
    v = np.split(y @ value + biases[2], num_heads, axis=-1)
    if vectors is None:
        vectors, attend = (), attention
    else:
        attend = relative_attention
    heads = [attend(*h, mask, *vectors) for h in zip(q, k, v, strict=True)]
    return np.concatenate(heads, -1) @ output + biases[3]


def activate(name, x):
    """Applies an activation number by number, with Python's functions."""

    def of_one(x):
        if name == "relu":
            return max(0.0, x)
        if name == "swish":
            return x / (1 + math.exp(-x))
        if name == "gelu":
            return x * (1 + math.erf(x / math.sqrt(2))) / 2
        assert name == "gelu_tanh"
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return x * (1 + math.tanh(inner)) / 2

    return np.vectorize(of_one, otypes=["float64"])(x)


def feed_forward(x, inner, inner_bias, outer, outer_bias, activation="relu"):
    """Computes eq. 2."""
    return activate(activation, x @ inner + inner_bias) @ outer + outer_bias


def layer_norm(x, gamma, beta, epsilon=1e-6):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def positional_encoding(length, d_model):
    """Computes sec. 3.5 element by element: [length, d_model]."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i] = np.sin(angle)
            table[position, 2 * i + 1] = np.cos(angle)
    return table


def blocks_of_sinusoids(length, d_model, first, sinusoids):
    """Computes all sines, then all cosines: [length, d_model].

    Marian, OpenNMT-tf and fairseq have this order. "t2t" has the wavelengths of
    OpenNMT-tf and fairseq.
    """
    positions = first + np.arange(length)[:, None]
    half = d_model // 2
    if sinusoids == "t2t":
        rates = np.exp(np.arange(half) * -(np.log(10000) / (half - 1)))
    else:
        rates = 1 / np.power(10000, 2 * np.arange(half) / d_model)
    return np.hstack([np.sin(positions * rates), np.cos(positions * rates)])


def interleaved_sinusoids(length, d_model, first, sinusoids):
    """Computes the same with each cosine after its sine."""
    if sinusoids == "paper":
        return positional_encoding(first + length, d_model)[first:]
    blocks = blocks_of_sinusoids(length, d_model, first, sinusoids)
    table = np.zeros((length, d_model))
    for i in range(d_model // 2):
        table[:, 2 * i] = blocks[:, i]
        table[:, 2 * i + 1] = blocks[:, d_model // 2 + i]
    return table


def smoothed_target(labels, vocab_size, label_smoothing):
    """Makes the explicit target distribution, [B, T] -> [B, T, V]."""
    target = np.full((*labels.shape, vocab_size), label_smoothing / vocab_size)
    hit = 1 - label_smoothing + label_smoothing / vocab_size
    np.put_along_axis(target, labels[..., None], hit, -1)
    return target


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """Computes the cross-entropy with smoothing, [B, T, V] -> [B, T]."""
    logits = logits.astype("float64")
    target = smoothed_target(labels, logits.shape[-1], label_smoothing)
    return -(target * np.log(softmax(logits))).sum(-1)


def r_drop(labels, first, second, label_smoothing, alpha):
    """Computes half of R-Drop's loss: two logits [B, T, V] -> [B, T]."""
    p, q = (softmax(logits.astype("float64")) for logits in (first, second))
    losses = smoothed_cross_entropy(labels, first, label_smoothing)
    losses += smoothed_cross_entropy(labels, second, label_smoothing)
    divergence = (p * np.log(p / q)).sum(-1) + (q * np.log(q / p)).sum(-1)
    return (losses + alpha * divergence / 2) / 2


def transformer(
    weights, config, source_ids, target_ids, sinusoids=interleaved_sinusoids
):
    """Computes figure 1 for one sentence without padding: ids -> [T, V].

    `weights` maps the path of a variable, after the model's name, to its array.
    """

    def normalize(name, x):
        parts = [weights[f"{name}/{part}"] for part in ("gamma", "beta")]
        return layer_norm(x, *parts, config.layer_norm_epsilon)

    def residual(name, x, sublayer):
        norm = f"{name}_residual/norm"
        if config.pre_norm:
            return x + sublayer(name, normalize(norm, x))
        return normalize(norm, x + sublayer(name, x))

    def attend(name, x, y, mask=None):
        names = [f"{name}/{p}" for p in ("query", "key", "value", "output")]
        kernels = [weights[f"{part}/kernel"] for part in names]
        biases = [0, 0, 0, 0]
        if config.attention_bias:
            biases = [weights[f"{part}/bias"] for part in names]
        vectors = None
        if f"{name}/relative_keys" in weights:
            vectors = (
                weights[f"{name}/relative_keys"],
                weights[f"{name}/relative_values"],
            )
        return multi_head_attention(
            x, y, kernels, config.num_heads, mask, vectors, biases
        )

    def transform(name, x):
        return feed_forward(
            x,
            *(
                weights[f"{name}/{part}/{kind}"]
                for part in ("inner", "outer")
                for kind in ("kernel", "bias")
            ),
            config.activation,
        )

    def finish(name, x):
        if not config.pre_norm:
            return x
        return normalize(f"{name}/final_norm", x)

    def embed(side, ids):
        # Two vocabularies imply two embeddings, even by default.
        shared = "target" if config.source_vocab_size else "all"
        shared = config.share_embeddings or shared
        has_own = side == "source" and shared in ("target", "none")
        table = "source_embedding" if has_own else "embedding"
        x = weights[f"{table}/embeddings"][ids]
        if config.scale_embeddings:
            x = x * np.sqrt(config.d_model)
        if config.positions == "learned":
            x = x + weights[f"{side}_positions/table"][: len(ids)]
        if config.positions == "sinusoidal":
            x = x + sinusoids(
                len(ids),
                config.d_model,
                config.first_position,
                config.sinusoids,
            )
        if config.embedding_norm:
            x = normalize(f"{side}_embedding_norm", x)
        return x

    def logits(x):
        name, matrix = "embedding", "embedding/embeddings"
        if config.share_embeddings in ("inputs", "none"):
            name, matrix = "softmax", "softmax/matrix"
        bias = weights[f"{name}/logits_bias"] if config.logits_bias else 0
        return x @ weights[matrix].T + bias

    def visible(ids, causal):
        window = config.attention_window or 10**6 + 1
        return sees(len(ids), window, causal)

    def layer(name, x, mask, memory=None):
        x = residual(
            f"{name}/self_attention",
            x,
            lambda part, y: attend(part, y, y, mask),
        )
        if memory is not None:
            x = residual(
                f"{name}/cross_attention",
                x,
                lambda part, y: attend(part, y, memory),
            )
        return residual(f"{name}/feed_forward", x, transform)

    if not config.source_eos:
        source_ids = [id for id in source_ids if id != 2]
    x = embed("source", source_ids)
    mask = visible(source_ids, causal=False)
    for i in range(config.num_layers):
        x = layer(f"encoder/layer_{i}", x, mask)
    memory = finish("encoder", x)
    x = embed("target", target_ids)
    causal = visible(target_ids, causal=True)
    for i in range(config.decoder_depth):
        x = layer(f"decoder/layer_{i}", x, causal, memory)
    return logits(finish("decoder", x))
