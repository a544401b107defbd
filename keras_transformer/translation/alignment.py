"""Word alignment from the attention between tokens."""

import bisect
import typing

import numpy as np
import regex

# A word, or any other character but spaces. In scripts without spaces, each
# character is a word.
WORD_OR_SIGN = regex.compile(
    r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}"
    r"\p{Myanmar}]]+|\S",
    regex.V1,
)

# The `least` attention for `align_words`, so that markup of a word is not put
# around the words before it: "Sie auf" of "Klicken Sie auf OK" for "OK".
CLEAR = 0.5


class Side(typing.NamedTuple):
    """The words of one side of a pair."""

    words_of_tokens: list[int]  # the index of each token's word, EOS excluded
    num_words: int  # number of words


class SpanLink(typing.NamedTuple):
    """A word or sign of a translation, and that of the source it translates."""

    source: tuple[int, int]  # begin and end in the source, in characters
    target: tuple[int, int]  # begin and end in the translation


def word_spans(text: str) -> list[tuple[int, int]]:
    """Finds begin and end, in characters, of each word or sign of a text.

    >>> word_spans("No, 3.")
    [(0, 2), (2, 3), (4, 5), (5, 6)]
    """
    return [match.span() for match in WORD_OR_SIGN.finditer(text)]


def word_side(string: str, tokens: list) -> Side:
    """Makes the `Side` of a string with words separated by white space."""
    return Side([token.word for token in tokens], len(string.split()))


def span_side(string: str, tokens: list) -> Side:
    """Makes the `Side` of a string with the words and signs of `word_spans`."""
    ends = [end for _, end in word_spans(string)]
    words = [bisect.bisect(ends, token.begin) for token in tokens]
    return Side(words, len(ends))


def align_words(
    attention: np.ndarray, source: Side, target: Side, least: float = 0.0
) -> list[tuple[int, int]]:
    """Links each target word to the source word that it attends to most.

    A link is left out if its attention, a mean of the target word's tokens, is
    less than `least` times that of another target word to the source word.

    `attention` is float `[T, S]`, a row of `Inference.alignment_ids`. It may
    have columns of padding, and fewer rows than the target has tokens if that
    was truncated. Returns sorted pairs of word indices, source and target, from
    0. A target word without attention has no link.

    >>> align_words(np.array([[0.3, 0.3, 0.4], [0.9, 0.1, 0.0]]),
    ...             Side([0, 0, 1], 2), Side([0, 1], 2))
    [(0, 0), (0, 1)]
    >>> align_words(np.array([[0.3], [0.9]]), Side([0], 1), Side([0, 1], 2),
    ...             least=0.5)
    [(0, 1)]
    """
    source_words = source.words_of_tokens[: attention.shape[1]]
    target_words = target.words_of_tokens[: attention.shape[0]]
    attention = attention[: len(target_words), : len(source_words)]
    # One more word each, for white space at the end, which belongs to no word.
    of_words = np.zeros((target.num_words + 1, source.num_words + 1))
    np.add.at(of_words, np.ix_(target_words, source_words), attention)
    of_words = of_words[:-1, :-1]
    if not of_words.size:
        return []
    sizes = np.bincount(target_words, minlength=target.num_words + 1)
    of_words /= np.maximum(sizes[:-1, None], 1)
    lowest = least * of_words.max(axis=0)
    return sorted(
        (int(values.argmax()), word)
        for word, values in enumerate(of_words)
        if values.any() and values.max() >= lowest[values.argmax()]
    )
