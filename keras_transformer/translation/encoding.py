"""Sentences to ids: arguments are checked, tags added, long rows truncated."""

from collections.abc import Callable, Sequence

from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.vocabulary import EOS

SHOWN = 60  # characters of a long sentence that a message shows
Rows = list[list[int]]  # the ids of each sentence
Notes = list[list[str]]  # what is reported of each sentence


class UntaggedError(ValueError):
    """A source without a tag, for a model of several target languages.

    Args:
        index: Its index among the sources.
        source: The source.
        tags: The tags, one of which must be its first word.
    """

    def __init__(self, index: int, source: str, tags: Sequence[str]):
        super().__init__(
            "a source must begin with its target language, one of the words"
            f" {' '.join(tags)}. Received: {source!r}"
        )
        self.index = index


class SentenceEncoder:
    """The ids of sentences, as the model reads them.

    Args:
        tokenizer: A `Tokenizer`, or a `TokenizerPair`.
        max_source_length: Maximum length of a source in tokens, EOS included.
        tags: As in `Translator.with_source_tags`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | TokenizerPair,
        max_source_length: int,
        tags: Sequence[str],
    ):
        self.tokenizer = tokenizer
        self.max_source_length = max_source_length
        self.tags = tags

    def tag_ids(self) -> list[int]:
        """The ids that are put before each source."""
        if len(self.tags) != 1:
            return []
        [row] = self.tokenizer.source.to_ids(self.tags)
        return row[:-1]

    def fits(self, string: str) -> bool:
        """Whether a source is not truncated."""
        [row] = self.tokenizer.source.to_ids([string])
        return len(self.tag_ids()) + len(row) <= self.max_source_length

    def sources(self, strings: Sequence[str]) -> tuple[Rows, Notes]:
        """Ids of each source, `[EOS]` if it is blank, and notes on each.

        Raises:
            UntaggedError: There are several tags, and a source has none.
        """
        if len(self.tags) > 1:
            for index, string in enumerate(strings):
                word = "".join(string.split(maxsplit=1)[:1])
                if word and word not in self.tags:
                    raise UntaggedError(index, string, self.tags)
        return _encode(
            self.tokenizer.source,
            strings,
            self.max_source_length,
            self.tag_ids(),
        )

    def pairs(
        self, pairs: Sequence[tuple[str, str]], max_target_length: int
    ) -> tuple[Rows, Rows, Notes]:
        """Ids of sources and translations, and notes on each pair.

        Args:
            pairs: List of `(source, translation)`.
            max_target_length: Of a translation in tokens, EOS included.
        """
        sources, notes = self.sources([source for source, _ in pairs])
        labels, others = _encode(
            self.tokenizer.target,
            [text for _, text in pairs],
            max_target_length,
        )
        both = [one + other for one, other in zip(notes, others, strict=True)]
        return sources, labels, both

    def prefixes(
        self,
        prefixes: Sequence[str] | None,
        sources: Rows,
        notes: Notes,
        output_limit: Callable[[int], int],
    ) -> Rows:
        """Ids of each prefix, without EOS, no longer than the output may be.

        Args:
            prefixes: A prefix for each source; None if all outputs are free.
            sources: The ids of each source.
            notes: The notes on each; one is added where a prefix is truncated.
            output_limit: As `Inference.output_limit`.

        Raises:
            TypeError: It is not a list of `str`.
            ValueError: There are not as many prefixes as sources.
        """
        if prefixes is None:
            return [[] for _ in sources]
        check_strings(prefixes)
        if len(prefixes) != len(sources):
            raise ValueError(
                "expected one prefix for each string."
                f" Received: {len(prefixes)} and {len(sources)}"
            )
        forced = []
        encoded = self.tokenizer.target.to_ids(prefixes)
        for ids, row, note in zip(encoded, sources, notes, strict=True):
            limit = len(row) - 1
            if limit:
                limit = output_limit(limit)
            if len(ids) - 1 > limit:
                note.append(
                    f"has a prefix of {len(ids) - 1} tokens, of which only"
                    f" {limit} can be in the output"
                )
            forced.append(ids[:-1][:limit])
        return forced


def shown(string: str) -> str:
    """The beginning of a long sentence, for a message."""
    return f"{string.strip()[:SHOWN]} ..."


def check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Raises TypeError unless it is a list of pairs of `str`."""
    _check_list(
        "pairs must be a list of (source, translation), both str",
        pairs,
        lambda pair: (
            isinstance(pair, (list, tuple))
            and [isinstance(text, str) for text in pair] == [True, True]
        ),
    )


def check_strings(strings: Sequence[str]) -> None:
    """Raises TypeError unless it is a list of `str`."""
    _check_list(
        "strings must be a list of str",
        strings,
        lambda string: isinstance(string, str),
    )


def _check_list(expected, items, is_right):
    """Raises TypeError unless it is a list whose items are right."""
    if not isinstance(items, (list, tuple)):
        raise TypeError(f"{expected}. Received: {type(items).__name__}")
    for i, item in enumerate(items):
        if not is_right(item):
            raise TypeError(f"{expected}. Received: {item!r} at index {i}")


def _encode(tokenizer, strings, max_length, first=()):
    """Ids of each sentence, `[EOS]` if it is blank, and notes on each.

    The ids `first` are put before every sentence that is not blank.
    """
    if not strings:
        return [], []
    rows = [
        [*first, *row] if len(row) > 1 else row
        for row in tokenizer.to_ids(strings)
    ]
    notes: Notes = [[] for _ in rows]
    for i, row in enumerate(rows):
        if len(row) > max_length:
            rows[i] = [*row[: max_length - 1], EOS]
            notes[i].append(
                f"has {len(row) - 1} tokens, truncated to {max_length - 1}"
                f" ({shown(strings[i])})"
            )
    return rows, notes
