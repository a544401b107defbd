"""The weights that --freeze excludes from training."""

import fnmatch
from collections.abc import Iterable, Sequence

import keras

from keras_transformer.base.refusals import expect
from keras_transformer.storage.checkpoints import weight_name

EMBEDDINGS = "embeddings"  # the name of all tables of tokens and positions
# The last word of a table's name, for tokens and for positions.
TABLES = ("embeddings", "table")


def freeze(model: keras.Model, names: Sequence[str]) -> None:
    """Freezes the weights of a model that `find_frozen` finds.

    Frozen weights get no gradient, and an optimizer that is built afterwards
    has no variables for them.
    """
    weights = {weight_name(weight): weight for weight in model.weights}
    for name in find_frozen(weights, names):
        weights[name].trainable = False


def find_frozen(weights: Iterable[str], names: Sequence[str]) -> list[str]:
    """Finds the weights that the names match, in the order of `weights`.

    A name is `embeddings`, or a prefix of a weight's name in checkpoints, such
    as `encoder.layer_0.feed_forward.inner.kernel`. A prefix consists of whole
    words between dots, such as `encoder`, `encoder.layer_0` or
    `decoder.*.cross_attention`, where `*` matches anything within a word.

    Raises ValueError if a name matches no weight, or if all weights match.

    >>> find_frozen(["embedding.table", "encoder.layer_0.b", "decoder.b"],
    ...             ["embeddings", "encoder.layer_*"])
    ['embedding.table', 'encoder.layer_0.b']
    """
    weights = list(weights)
    frozen = set()
    for name in names:
        found = {weight for weight in weights if _means(name, weight)}
        if not found:
            groups = sorted({weight.partition(".")[0] for weight in weights})
            raise ValueError(
                f"freeze must name weights: {EMBEDDINGS}, or the beginning of"
                f" a name, as {', '.join(groups)} or encoder.layer_0."
                f" Received: freeze={name!r}"
            )
        frozen |= found
    expect(
        len(frozen) < len(weights),
        "weights that are left to train",
        freeze=",".join(names),
    )
    return [weight for weight in weights if weight in frozen]


def _means(name: str, weight: str) -> bool:
    words = weight.split(".")
    if name == EMBEDDINGS:  # the tables only, no norms and no logit bias
        return words[0].endswith(("embedding", "_positions")) and (
            words[-1] in TABLES
        )
    patterns = name.split(".")
    return len(patterns) <= len(words) and all(
        map(fnmatch.fnmatchcase, words, patterns)
    )
