"""The pairs of a run as token ids, with their word links and mixture."""

import contextlib
import typing

from keras_transformer.data.batches import AnyCorpus
from keras_transformer.data.changing.mixture import (
    Mixture,
    parse_mixture,
    temperature_stage,
)
from keras_transformer.data.changing.modifiers import (
    ModifiedCorpus,
    parse_modifiers,
)
from keras_transformer.data.changing.subword_sampling import SampledCorpus
from keras_transformer.data.corpus import Corpus, encode_corpus, join_corpora
from keras_transformer.data.files.pairs import Pairs
from keras_transformer.data.word_links import TokenLinks, read_links
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.requests import direction_ids, text_tokenizer
from trainers.datasets.dataset import find_dataset, read_split
from trainers.run.data_config import DataConfig, RunData
from trainers.run.training_config import Configuration


def open_train_corpus(
    data: RunData, pairs: Pairs, tokenizer: Tokenizer | TokenizerPair, seed: int
) -> AnyCorpus:
    """Opens the training pairs as token ids.

    A prepared corpus has ids; other pairs are encoded here, or again in every
    epoch with `subword_sampling` or `modifiers`, which use the seed.

    Raises ValueError if no pair is left, or if the ids of a prepared corpus do
    not fit: see `Dataset.read_ids`.
    """
    dataset = find_dataset(data.dataset)
    ids = dataset.read_ids(data, tokenizer, data.max_length)
    if ids is not None:
        return ids
    with _naming("training"):
        if data.subword_sampling:
            return SampledCorpus(
                pairs,
                tokenizer,
                data.max_length,
                alpha=data.subword_sampling,
                seed=seed,
            )
        if data.modifiers:
            return ModifiedCorpus(
                pairs,
                tokenizer,
                data.max_length,
                chances=parse_modifiers(data.modifiers),
                seed=seed,
                sizes=pairs.sizes,
            )
        return _encode(data, pairs, tokenizer)


def _encode(data, pairs, tokenizer):
    """Encodes pairs, adding the language tokens of each direction."""
    if not pairs.directions:
        return encode_corpus(pairs, tokenizer, data.max_length)
    corpora = []
    for codes, part in pairs.by_direction():
        direction = data.direction(*codes)
        ids = (
            direction_ids(tokenizer.source, direction.before),
            direction_ids(tokenizer.source, direction.after),
            direction_ids(tokenizer.target, direction.output),
        )
        own = text_tokenizer(tokenizer, direction)
        corpora.append(encode_corpus(part, own, data.max_length, ids))
    return join_corpora(corpora)


def open_links(
    configuration: Configuration,
    corpus: AnyCorpus,
    tokenizer: Tokenizer | TokenizerPair,
) -> TokenLinks | None:
    """Reads the word links of the training pairs.

    Returns None without guided alignment. Raises ValueError as `read_links` and
    `TokenLinks` do, OSError if a file of links cannot be read.
    """
    data, paths = configuration.data, configuration.training.guided_alignment
    if not paths:
        return None
    pairs_of = typing.cast(DataConfig, data).with_files
    links = read_links(
        [
            (path, read_split(pairs_of((file,)), "train"))
            for path, file in zip(paths, data.train_files, strict=True)
        ]
    )
    return TokenLinks(links, corpus.canonical, tokenizer)


def open_mixture(
    data: RunData, pairs: Pairs, corpus: AnyCorpus, seed: int
) -> Mixture | None:
    """Makes the `Mixture` of the training pairs.

    Returns None without `mixture`, unless there are several directions, which
    are mixed by `language_temperature`.

    Raises ValueError if no pair is left in one of the corpora.
    """
    names = ["-".join(codes) for codes in pairs.directions] or [
        target for _, target in data.pairs_in(*data.train_files)
    ]
    if not (data.mixture or len(names) > 1):
        return None
    kept = corpus.canonical.kept_of(pairs.sizes)
    if not data.mixture:
        stages = [temperature_stage(kept, data.language_temperature)]
    else:
        stages, names = parse_mixture(data.mixture, data.train_files)
    return Mixture(stages, names, pairs.sizes, kept, seed)


def encode_valid_corpus(
    data: RunData, pairs: Pairs, tokenizer: Tokenizer | TokenizerPair
) -> Corpus:
    """Encodes the validation pairs for the validation loss.

    Raises ValueError if no pair is left.
    """
    with _naming("validation"):
        return _encode(data, pairs, tokenizer)


@contextlib.contextmanager
def _naming(name):
    """Adds the name of the pairs to a ValueError raised in the body."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"the {name} pairs: {error}") from error
