"""`case_marks` as TensorFlow operations, on code points: exports use it."""

from collections.abc import Mapping

import tensorflow as tf

from keras_transformer.case_marks import (
    BEGIN,
    END,
    FINAL_SIGMA,
    MARKS,
    SIGMA,
    STRAY,
    TITLE,
    UNIT_BREAKS,
    UPPER,
    casing,
)
from keras_transformer.vocabulary import SPACE

NOTHING = -1  # no code point


def mark(texts: tf.Tensor) -> tf.Tensor:
    """`case_marks.mark` of normalized texts that begin with a space: [N]."""
    points = tf.strings.unicode_decode(texts, "UTF-8")  # [N, (characters)]
    rows, text = points.value_rowids(), points.flat_values
    text = tf.where(_among(text, MARKS), ord(STRAY), text)
    lower, is_capital = _look_up(casing().lower, text)
    _, is_small = _look_up(casing().upper, text)
    # Units, and stretches of units: each begins with a text, or with a unit
    # that has small letters.
    unit = tf.cumsum(tf.cast(_among(text, UNIT_BREAKS), tf.int32)) - 1
    capitals, smalls = (
        tf.math.segment_sum(tf.cast(found, tf.int32), unit)
        for found in (is_capital, is_small)
    )
    row = tf.math.segment_max(rows, unit)
    is_strong = (capitals > 1) & (smalls == 0)
    begins = (smalls > 0) | (row != tf.roll(row, 1, 0))
    stretch = tf.cumsum(tf.cast(begins, tf.int32))
    number = tf.math.segment_sum(tf.cast(is_strong, tf.int32), stretch)
    stretch = tf.gather(stretch, unit)  # of each character, as all below
    is_strong = tf.gather(is_strong, unit) & is_capital
    # In a stretch all from the first to the last strong letter has one mark.
    at, size = tf.range(tf.size(text)), tf.size(text)
    first = tf.gather(
        tf.math.segment_min(tf.where(is_strong, at, size), stretch), stretch
    )
    last = tf.gather(
        tf.math.segment_max(tf.where(is_strong, at, -1), stretch), stretch
    )
    is_other = is_capital & ((at < first) | (at > last))
    after_capital = tf.roll(is_capital, 1, 0)
    before_capital = tf.roll(is_capital, -1, 0)
    opens = (at == first) | (is_other & ~after_capital)
    closes = (at == last) | (is_other & ~before_capital)
    is_lone = (at >= first) & (at <= last) & (tf.gather(number, stretch) == 1)
    opening = tf.where(is_lone, ord(UPPER), ord(BEGIN))
    opening = tf.where(opens & closes, ord(TITLE), opening)
    opening = tf.where(opens, opening, NOTHING)
    closing = tf.where(closes & ~opens & ~is_lone, ord(END), NOTHING)
    is_final = (text == ord(SIGMA)) & after_capital & ~before_capital
    lower = tf.where(is_final, ord(FINAL_SIGMA), lower)
    # A mark is before the space before its letter.
    is_space = text == ord(SPACE)
    of_next = tf.where(is_space, tf.roll(opening, -1, 0), NOTHING)
    opening = tf.where(tf.roll(is_space, 1, 0), NOTHING, opening)
    marked = tf.stack([of_next, opening, lower, closing], axis=1)
    return _encode(tf.reshape(marked, [-1]), tf.repeat(rows, 4), points.nrows())


def restore(texts: tf.Tensor) -> tf.Tensor:
    """`case_marks.capitalize` of marked texts, without the marks: [N]."""
    points = tf.strings.unicode_decode(texts, "UTF-8")
    # At the beginning of each text, END ends what the text before has begun.
    ends = tf.fill([tf.size(texts), 1], ord(END))
    points = tf.concat([ends, points], axis=1)  # [N, (characters)]
    rows, text = points.value_rowids(), points.flat_values
    before, is_mark = tf.roll(text, 1, 0), _among(text, MARKS)
    is_space = _among(text, " " + SPACE)
    is_limit = is_mark | _among(text, UNIT_BREAKS)
    is_limit &= ~(is_space & (before == ord(UPPER)))
    is_in = _last(text, _among(text, BEGIN + END)) == ord(BEGIN)
    is_in |= _last(text, is_limit) == ord(UPPER)
    is_in |= before == ord(TITLE)
    is_in |= tf.roll(is_space, 1, 0) & (tf.roll(before, 1, 0) == ord(TITLE))
    upper, _ = _look_up(casing().upper, text)
    restored = tf.where(is_in, upper, text)
    return _encode(tf.where(is_mark, NOTHING, restored), rows, points.nrows())


def _among(points: tf.Tensor, characters: str) -> tf.Tensor:
    """Which code points belong to some characters: bool [N]."""
    codes = tf.constant(list(map(ord, characters)))
    return tf.reduce_any(points[:, None] == codes, axis=1)  # [N, C] -> [N]


def _look_up(
    table: Mapping[int, int], points: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The values of code points, or themselves; which have one: bool [N]."""
    keys = sorted(table)
    values = tf.constant([table[key] for key in keys])
    index = tf.minimum(tf.searchsorted(keys, points), len(keys) - 1)
    found = tf.gather(keys, index) == points
    return tf.where(found, tf.gather(values, index), points), found


def _last(text: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
    """For each character the last one up to it that is found: [N].

    The first character is one.
    """
    at = tf.cumsum(tf.cast(found, tf.int32)) - 1
    return tf.gather(tf.boolean_mask(text, found), at)


def _encode(points: tf.Tensor, rows: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The texts of code points, without `NOTHING`: [N]."""
    keep = points != NOTHING
    texts = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(points, keep), tf.boolean_mask(rows, keep), number
    )
    return tf.strings.unicode_encode(texts, "UTF-8")
