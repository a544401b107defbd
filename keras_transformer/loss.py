"""Cross-entropy with label smoothing, section 5.4, as a mean over tokens."""

import math
import typing

import keras
from keras import ops

from keras_transformer.backend import after, precise_dtype
from keras_transformer.vocabulary import PAD


def token_weights(labels, sample_weight=None, dtype="float32"):
    """The weight of each position: 0 for padding, else 1 or as given.

    Args:
        labels: int `[B, T]`; `PAD` where a row has ended.
        sample_weight: Optional float: `[B]` weighs rows, `[B, T]` tokens.
        dtype: Of the result.

    Returns:
        `[B, T]`.

    Raises:
        ValueError: `sample_weight` has another rank.

    >>> token_weights(ops.array([[5, 2, 0], [2, 0, 0]]), [0.5, 2.0]).numpy()
    array([[0.5, 0.5, 0. ],
           [2. , 0. , 0. ]], dtype=float32)
    """
    weights = ops.cast(ops.not_equal(labels, PAD), dtype)
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, dtype)
    rank = len(sample_weight.shape)
    if rank not in (1, 2):
        raise ValueError(
            "sample_weight must be of shape [B], for rows, or [B, T], for"
            f" tokens. Received: sample_weight of shape {sample_weight.shape}"
        )
    if rank == 1:
        sample_weight = sample_weight[:, None]  # [B] -> [B, 1]
    return weights * sample_weight


def is_in_vocabulary(labels, vocab_size):
    """Whether each label is one of the V ids: bool, shaped as the labels."""
    return ops.logical_and(labels >= 0, labels < vocab_size)


def negative_log_likelihood(labels, logits):
    """-log p(label) of each position, without smoothing: `[B, T]`.

    NaN for a label outside [0, V).
    """
    return smoothed_cross_entropy(labels, logits, label_smoothing=0.0)[1]


def smoothed_cross_entropy(labels, logits, label_smoothing):
    """Cross-entropy to the smoothed label, of each position (sec. 5.4).

    The target distribution is (1 - e) for the label plus e / V for every token
    of the vocabulary, the label among them, as in Szegedy et al. 2015 whom the
    paper cites. Other systems spread e over the other tokens only or subtract
    the distribution's entropy: a constant or a difference of order e / V.

    With l the logits, loss = log sum exp l - (1 - e) l[label] - e mean(l), so
    that no V-wide target is made. Its gradient is written by hand: it reuses
    the softmax of the forward pass and takes half the time of the derived one.

    A label outside [0, V) makes its loss and the gradient NaN, on every backend
    and with XLA: a visible failure where none can be raised.

    Args:
        labels: int `[B, T]`.
        logits: float `[B, T, V]`.
        label_smoothing: e, in [0, 1).

    Returns:
        Two `[B, T]`, float64 for float64 logits, else float32: the loss, and
        -log p(label) without smoothing.
    """
    vocab_size = logits.shape[-1]
    shape = ops.shape(labels)
    labels, valid = _checked_labels(labels, vocab_size)
    rows = ops.arange(ops.shape(labels)[0], dtype="int32")
    positions = ops.stack([rows, labels], axis=-1)  # [B * T, 2]

    @ops.custom_gradient
    def losses_of(logits):
        softmax, nll, label_logits = _likelihoods(labels, valid, logits)
        margin = label_logits - ops.mean(logits, axis=-1)

        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            scales = _gradient_scales(
                upstream, valid, label_smoothing, vocab_size
            )
            everywhere = softmax * scales.softmax[:, None]
            everywhere -= scales.uniform[:, None]
            return ops.scatter_update(
                everywhere, positions, -scales.label, reduction="add"
            )

        return ops.stack([nll + label_smoothing * margin, nll]), gradient

    logits = ops.cast(logits, precise_dtype(logits.dtype))
    losses = losses_of(ops.reshape(logits, (-1, vocab_size)))  # [2, B * T]
    return ops.reshape(losses[0], shape), ops.reshape(losses[1], shape)


def projected_cross_entropy(labels, x, matrix, bias, label_smoothing):
    """`smoothed_cross_entropy` of the logits x W^T + b, and cheaper than it.

    The gradient of the logits is never made: that of smoothing and of the label
    is of rank one or sparse, so the softmax p is the only array as wide as the
    vocabulary that the backward pass reads, in two products. With s, u and t
    the `_Scales` of each position, and y its label,

        dL/dx = s (p W) - u sum_v W[v] - t W[y]
        dL/dW = p^T (s x) - u^T x in each row - t x in the row of y

    Args:
        labels: int `[B, T]`.
        x: float `[B, T, D]`, of the dtype that products are computed in.
        matrix: float `[V, D]`, the W above.
        bias: float `[V]`, the b above, or None.
        label_smoothing: e, in [0, 1).

    Returns:
        As `smoothed_cross_entropy`.
    """
    vocab_size = matrix.shape[0]
    shape = ops.shape(labels)
    labels, valid = _checked_labels(labels, vocab_size)

    @ops.custom_gradient
    def losses_of(x, matrix, *biases):
        projection = _Projection(labels, valid, x, matrix, biases)
        nll = projection.nll
        losses = nll + label_smoothing * projection.margin

        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            scales = _gradient_scales(
                upstream, valid, label_smoothing, vocab_size
            )
            return projection.gradients(projection.softmax, scales)

        return ops.stack([losses, nll]), gradient

    losses = losses_of(*_projection_tensors(x, matrix, bias))
    return ops.reshape(losses[0], shape), ops.reshape(losses[1], shape)


def projected_r_drop(labels, x, matrix, bias, label_smoothing, alpha):
    """R-Drop's loss (Liang et al. 2021) of the logits x W^T + b.

    Every row was computed twice, with different dropout. With p and q the two
    distributions of a position and l and k their logits, its loss is

        (CE(p) + CE(q)) / 2 + alpha / 2 * (KL(p || q) + KL(q || p)) / 2

    half of the paper's, so that cross-entropy is as large as without. The sum
    of both divergences is m - n, with m = sum p (l - k) and n = sum q (l - k):
    the logarithms of the two normalizers cancel. Its gradients are

        dl: p (1 + l - k - m) - q        dk: q (1 - l + k + n) - p

    Args:
        labels: int `[B, T]`.
        x: float `[2 B, T, D]`, first p's of all rows, then q's; of the dtype
            that products are computed in.
        matrix: float `[V, D]`, the W above.
        bias: float `[V]`, the b above, or None.
        label_smoothing: e of both cross-entropies, in [0, 1).
        alpha: Weight of the divergence, at least 0.

    Returns:
        As `smoothed_cross_entropy`: the loss, and the mean of -log p(label) and
        -log q(label).
    """
    vocab_size = matrix.shape[0]
    shape = ops.shape(labels)
    twice = ops.concatenate([ops.convert_to_tensor(labels)] * 2)
    labels, valid = _checked_labels(twice, vocab_size)

    @ops.custom_gradient
    def losses_of(x, matrix, *biases):
        projection = _Projection(labels, valid, x, matrix, biases)
        nll = _mean_of_halves(projection.nll)
        margin = _mean_of_halves(projection.margin)
        first, second = ops.split(projection.logits, 2)
        difference = first - second  # l - k
        p, q = ops.split(projection.softmax, 2)
        m = ops.sum(p * difference, axis=-1)
        n = ops.sum(q * difference, axis=-1)
        losses = nll + label_smoothing * margin + (alpha / 4) * (m - n)

        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            halves = ops.concatenate([upstream, upstream], axis=1) / 2
            scales = _gradient_scales(
                halves, valid, label_smoothing, vocab_size
            )
            of_p, of_q = ops.split(scales.softmax, 2)
            weight = (alpha / 4) * upstream[0]
            inner = weight[:, None] * difference
            of_p += weight * (1 - m)
            of_q += weight * (1 + n)
            wide = ops.concatenate(
                [
                    p * (of_p[:, None] + inner) - weight[:, None] * q,
                    q * (of_q[:, None] - inner) - weight[:, None] * p,
                ]
            )
            ones = ops.ones_like(scales.softmax)
            return projection.gradients(wide, scales._replace(softmax=ones))

        return ops.stack([losses, nll]), gradient

    losses = losses_of(*_projection_tensors(x, matrix, bias))
    return ops.reshape(losses[0], shape), ops.reshape(losses[1], shape)


def _mean_of_halves(values):
    """`[2 N]` -> `[N]`."""
    first, second = ops.split(values, 2)
    return (first + second) / 2


def _projection_tensors(x, matrix, bias):
    """States `[N, D]`, matrix and, if there is one, bias, as tensors.

    Reshaped, a variable is a tensor, as gradients of TensorFlow need it.
    """
    tensors = [
        ops.reshape(x, (-1, x.shape[-1])),
        ops.reshape(matrix, matrix.shape),
    ]
    if bias is not None:
        bias = ops.cast(bias, precise_dtype(x.dtype))
        tensors.append(ops.reshape(bias, bias.shape))
    return tensors


class _Projection:
    """The logits x W^T + b, their likelihoods, and how gradients pass through.

    Args:
        labels: int32 `[N]`, in [0, V).
        valid: bool `[N]`, whether the label was inside.
        x: float `[N, D]`, of the dtype that products are computed in.
        matrix: float `[V, D]`.
        biases: One `[V]`, or none.

    Attributes:
        logits: `[N, V]`, of the dtype that losses have.
        softmax: Of the logits.
        nll: -log p(label), `[N]`.
        margin: The label's logit minus the mean of all, `[N]`.
    """

    def __init__(self, labels, valid, x, matrix, biases):
        self._labels = labels
        self._x = x
        self._matrix = matrix
        self._has_bias = bool(biases)
        self._precise = precise_dtype(x.dtype)
        self._w = ops.cast(matrix, x.dtype)
        logits = ops.matmul(x, ops.transpose(self._w))
        self.logits = ops.cast(logits, self._precise)
        for bias in biases:
            self.logits += bias
        self.softmax, self.nll, label_logits = _likelihoods(
            labels, valid, self.logits
        )
        self._center = ops.cast(ops.mean(matrix, axis=0), self._precise)  # [D]
        mean = ops.matmul(ops.cast(x, self._precise), self._center[:, None])[
            :, 0
        ]
        self.margin = label_logits - mean
        for bias in biases:
            self.margin -= ops.mean(bias)

    def gradients(self, wide, scales):
        """Gradients of x, matrix and, if there is one, bias.

        Args:
            wide: `[N, V]`, of which `scales.softmax` is the scale.
            scales: The `_Scales` of the gradient of the logits.
        """
        vocab_size = self._matrix.shape[0]
        dtype = self._x.dtype
        precise = self._precise
        p = ops.cast(wide, dtype)
        x = ops.cast(self._x, precise)
        scaled_x = ops.cast(x * scales.softmax[:, None], dtype)
        product = ops.matmul(ops.transpose(p), scaled_x)
        of_matrix = ops.cast(product, precise)
        of_matrix -= ops.matmul(scales.uniform[None], x)  # [1, D]
        of_matrix -= ops.segment_sum(
            x * scales.label[:, None], self._labels, vocab_size
        )

        # TensorFlow would compute the product above at the end of the step, on
        # one core, with no work left for the others.
        with after(product):
            of_x = ops.matmul(p, self._w)
        of_x = ops.cast(of_x, precise) * scales.softmax[:, None]
        of_x -= scales.uniform[:, None] * (vocab_size * self._center)
        rows = ops.take(self._matrix, self._labels, axis=0)
        of_x -= scales.label[:, None] * ops.cast(rows, precise)

        gradients = [
            ops.cast(of_x, dtype),
            ops.cast(of_matrix, self._matrix.dtype),
        ]
        if self._has_bias:
            of_bias = ops.matmul(scales.softmax[None], wide)[0]
            of_bias -= ops.sum(scales.uniform)
            gradients.append(
                of_bias
                - ops.segment_sum(scales.label, self._labels, vocab_size)
            )
        return tuple(gradients)


class _Scales(typing.NamedTuple):
    """What the parts of the gradient of a position's logits are scaled by.

    Attributes:
        softmax: Of p, the softmax; this and the others `[N]`.
        uniform: Of 1 for each token, which is subtracted.
        label: Of 1 for the label, which is subtracted.
    """

    softmax: typing.Any
    uniform: typing.Any
    label: typing.Any


def _gradient_scales(upstream, valid, label_smoothing, vocab_size):
    """The `_Scales` by the gradients of loss and -log p, `[2, N]`."""
    of_loss, of_nll = upstream[0], upstream[1]
    label = of_loss * (1 - label_smoothing) + of_nll
    return _Scales(
        softmax=of_loss + of_nll,
        uniform=of_loss * (label_smoothing / vocab_size),
        label=ops.where(valid, label, math.nan),
    )


def _checked_labels(labels, vocab_size):
    """Labels int32 `[B * T]`, 0 for those outside [0, V); which are inside."""
    labels = ops.reshape(labels, (-1,))  # [B, T] -> [B * T]
    valid = is_in_vocabulary(labels, vocab_size)
    return ops.cast(ops.where(valid, labels, 0), "int32"), valid


def _likelihoods(labels, valid, logits):
    """Of logits `[N, V]`: softmax, -log p(label) and label's logit, `[N]`."""
    softmax = ops.softmax(logits, axis=-1)
    # The softmax at the largest logit is 1 / sum exp(l - max l).
    log_sum_exp = ops.max(logits, axis=-1) - ops.log(ops.max(softmax, axis=-1))
    label_logits = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    nll = ops.where(valid, log_sum_exp - label_logits, math.nan)
    return softmax, nll, label_logits


@keras.saving.register_keras_serializable("keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Mean over the tokens of a batch of the smoothed cross-entropy (sec. 5.4).

    Padding does not count, however much of the batch it is. In `model.fit` and
    in the trainers a `Transformer` weighs by the tokens of the whole global
    batch, over all replicas; see `fit.py`.

    Args:
        label_smoothing: Share e of probability spread over the vocabulary, in
            [0, 1); the paper's is 0.1.

    Call arguments:
        y_true: int `[B, T]`, labels; `PAD` where a row has ended. A label
            outside [0, V) makes the loss NaN.
        y_pred: float `[B, T, V]`, logits.
        sample_weight: Optional float: `[B]` weighs rows, `[B, T]` tokens, on
            top of the padding.

    Returns:
        Scalar, nats per token, float64 for float64 logits, else float32; 0 if
        there is no token.

    Raises:
        ValueError: `label_smoothing` is outside [0, 1).

    >>> loss = SmoothedCrossEntropy(0.1)
    >>> float(loss([[3, 2, 0]], ops.zeros((1, 3, 5)))) # ln 5
    1.6094379425048828
    """

    def __init__(
        self,
        label_smoothing: float,
        name: str = "smoothed_cross_entropy",
        **kwargs: typing.Any,
    ):
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "label_smoothing must be in [0, 1). Received:"
                f" label_smoothing={label_smoothing}"
            )
        self.label_smoothing = label_smoothing

    def call(self, y_true: typing.Any, y_pred: typing.Any) -> typing.Any:
        """The loss of each position, padding included: `[B, T]`."""
        return smoothed_cross_entropy(y_true, y_pred, self.label_smoothing)[0]

    def __call__(
        self,
        y_true: typing.Any,
        y_pred: typing.Any,
        sample_weight: typing.Any = None,
    ) -> typing.Any:
        labels = ops.convert_to_tensor(y_true)
        losses = self.call(labels, ops.convert_to_tensor(y_pred))
        weights = token_weights(labels, sample_weight, losses.dtype)
        total = ops.sum(losses * weights)
        return ops.divide_no_nan(total, ops.sum(weights))

    def get_config(self) -> dict[str, typing.Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
