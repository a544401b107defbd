"""The vocabulary of a run: from its work directory, given, or trained."""

import dataclasses
import typing
from collections.abc import Callable, Iterable

from keras_transformer.base.refusals import expect
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import (
    PAIR_FILES,
    SHARED_FILE,
    Tokenizer,
    TokenizerPair,
)
from trainers.datasets.dataset import find_dataset
from trainers.run.data_config import RunData
from trainers.run.training_config import Configuration

# Of `Tokenizer.training_options`.
OPTIONS = "case_marks", "byte_fallback", "split_digits", "normalization"


class Vocabulary(typing.NamedTuple):
    """The vocabulary that a `Configuration` asks for."""

    file: str  # its file in a work directory
    name: str  # its name in log lines
    field: str  # the option that sets its size
    size: int  # number of tokens
    given: str  # path of the model to use; empty to train one
    sides: slice  # the sides of a pair that it segments
    symbols: tuple[str, ...]  # words that must be one token each
    options: dict[str, typing.Any]  # of `options_of`
    controls: tuple[str, ...]  # language tokens to add to a new vocabulary

    def open(
        self,
        workdir: WorkDirectory,
        used: Tokenizer | None,
        pairs: Pairs,
        log: Callable[[str], None],
    ) -> Tokenizer:
        """Returns `used`, else the given tokenizer, else trains one on `pairs`.

        `used` is the work directory's tokenizer. Raises ValueError if the
        tokenizer does not match this description.
        """
        path, tokenizer = self.given, None
        if path:
            tokenizer = Tokenizer.load(path)
        if used is not None:
            path = str(workdir.path / self.file)
            if tokenizer and tokenizer.model_bytes != used.model_bytes:
                raise ValueError(f"{self.given} differs from {path}")
            tokenizer = used
        if tokenizer is None:
            log(f"training a {self.name} of {self.size:,} subwords")
            lines = (
                line for pair in pairs for line in pair[self.sides] if line
            )
            return train_vocabulary(
                lines,
                self.size,
                log,
                symbols=self.symbols,
                controls=self.controls,
                **self.options,
            )
        is_own = not self.given and tokenizer.is_trained_for(self.size)
        expect(
            is_own or tokenizer.vocab_size == self.size,
            f"{tokenizer.vocab_size}, the size of {path}",
            f"{self.field}={self.size}",
        )
        check_symbols(tokenizer, self.symbols, path)
        check_options(tokenizer, self.options, path)
        return tokenizer


def train_vocabulary(
    lines: Iterable[str],
    vocab_size: int,
    log: Callable[[str], None],
    **options: typing.Any,
) -> Tokenizer:
    """Trains a vocabulary; `options` are those of `Tokenizer.train`.

    If the corpus has fewer subwords than `vocab_size`, logs that and uses all.
    """
    tokenizer = Tokenizer.train(lines, vocab_size, at_most=True, **options)
    if tokenizer.vocab_size < vocab_size:
        log(
            f"the corpus has {tokenizer.vocab_size:,} subwords, fewer than"
            f" {vocab_size:,}: the vocabulary has all of them"
        )
    return tokenizer


def with_sizes(
    configuration: Configuration, tokenizer: Tokenizer | TokenizerPair
) -> Configuration:
    """Sets the model's vocabulary sizes to the tokenizer's.

    With `init_from`, the configuration stays as it is.
    """
    if configuration.training.init_from:
        return configuration
    is_shared = configuration.data.share_vocabulary
    model = dataclasses.replace(
        configuration.model,
        vocab_size=tokenizer.target.vocab_size,
        source_vocab_size=None if is_shared else tokenizer.source.vocab_size,
    )
    return dataclasses.replace(configuration, model=model)


def check_symbols(
    tokenizer: Tokenizer, symbols: tuple[str, ...], path: str
) -> None:
    """Raises ValueError if a vocabulary lacks a token for a symbol."""
    absent = tokenizer.find_missing(symbols)
    expect(
        not absent,
        "a token for each symbol of vocabulary_symbols, for the tag of each"
        " target language if there are several, and for each bracket of"
        " training trees",
        f"none for {' '.join(absent)}",
        where=path,
    )


def options_of(data: typing.Any) -> dict[str, typing.Any]:
    """Returns the options in `data` that `Tokenizer.training_options` has."""
    return {name: getattr(data, name) for name in OPTIONS}


def check_options(
    tokenizer: Tokenizer, wanted: dict[str, typing.Any], path: str
) -> None:
    """Raises ValueError unless a vocabulary was made as `wanted` says.

    Only `case_marks` must be given for a vocabulary that has them.
    """
    for name, found in tokenizer.training_options.items():
        value = wanted[name]
        is_default = name != "case_marks" and value == getattr(RunData, name)
        expected = f"{name}={found}, as in the vocabulary {path}"
        expect(is_default or value == found, expected, **{name: value})


def describe_vocabularies(
    configuration: Configuration,
    source_symbols: tuple[str, ...],
    target_symbols: tuple[str, ...],
) -> list[Vocabulary]:
    """Describes the shared vocabulary, or that of each language."""
    data, model = configuration.data, configuration.model
    given = data.given_tokenizers
    both = Vocabulary(
        SHARED_FILE,
        "vocabulary",
        "vocab_size",
        model.vocab_size,
        given["vocab_size"],
        slice(0, 2),
        source_symbols + target_symbols,
        options_of(data),
        data.tokens,
    )
    if data.share_vocabulary:
        return [both]
    source_file, target_file = PAIR_FILES
    source = both._replace(
        file=source_file,
        name="source vocabulary",
        field="source_vocab_size",
        size=model.num_source_tokens,
        given=given["source_vocab_size"],
        sides=slice(0, 1),
        symbols=source_symbols,
    )
    target = both._replace(
        file=target_file,
        name="target vocabulary",
        sides=slice(1, 2),
        symbols=target_symbols,
    )
    return [source, target]


def open_tokenizer(
    workdir: WorkDirectory,
    configuration: Configuration,
    pairs: Pairs,
    log: Callable[[str], None],
) -> Tokenizer | TokenizerPair:
    """Opens the work directory's vocabulary, or the given one, or trains one.

    With `init_from`, the vocabulary is the one that the weights were trained
    with.

    Raises ValueError if the vocabulary is not the model's size, lacks a token
    for a symbol, or is given and differs from the work directory's.
    """
    data, path = configuration.data, configuration.training.init_from
    # vocabulary_symbols may contain tags.
    source_symbols = tuple(
        dict.fromkeys((*data.vocabulary_symbols, *data.tags.values()))
    )
    target_symbols = find_dataset(data.dataset).symbols(data, pairs)
    if path:
        tokenizer = _inherited_tokenizer(workdir, configuration)
        check_symbols(tokenizer.source, source_symbols, path)
        check_symbols(tokenizer.target, target_symbols, path)
        for of_side in (tokenizer.source, tokenizer.target):
            check_options(of_side, options_of(data), path)
        return tokenizer
    vocabularies = describe_vocabularies(
        configuration, source_symbols, target_symbols
    )
    missing = [
        workdir.path / v.file
        for v in vocabularies
        if not (workdir.path / v.file).exists()
    ]
    if missing and workdir.config_path.exists():
        raise ValueError(f"the vocabulary is missing: no {missing[0]}")
    used = {} if missing else workdir.load_tokenizer().files
    opened = [
        v.open(workdir, used.get(v.file), pairs, log) for v in vocabularies
    ]
    return opened[0] if len(opened) == 1 else TokenizerPair(*opened)


def _inherited_tokenizer(workdir, configuration):
    """Loads the vocabulary of `init_from`, or the copy of a run with weights.

    Raises ValueError if the options or `workdir` have another vocabulary.
    """
    path = configuration.training.init_from
    begun = bool(workdir.latest.prefixes())
    tokenizer = (workdir if begun else WorkDirectory(path)).load_tokenizer()
    contents = {f: t.model_bytes for f, t in tokenizer.files.items()}
    if not begun and workdir.config_path.exists():
        ours = workdir.load_tokenizer().files
        expect(
            {f: t.model_bytes for f, t in ours.items()} == contents,
            "the vocabulary of init_from, or none, or another workdir",
            "another vocabulary",
            where=workdir.path,
        )
    given = configuration.data.given_tokenizers
    for field, given_path in given.items():
        is_source = field == "source_vocab_size"
        of_side = tokenizer.source if is_source else tokenizer.target
        expect(
            not given_path
            or len(given) == len(contents)
            and Tokenizer.load(given_path).model_bytes == of_side.model_bytes,
            f"the vocabulary of init_from={path}, with which the weights were"
            " trained",
            given_path,
        )
    return tokenizer
