"""The splits of a `DataConfig`, their vocabulary and their ids."""

import contextlib
import hashlib

from keras_transformer.data.corpus import encode_corpus
from keras_transformer.data.languages import read_directions
from keras_transformer.data.mixture import (
    Mixture,
    parse_mixture,
    temperature_stage,
)
from keras_transformer.data.modifiers import ModifiedCorpus, parse_modifiers
from keras_transformer.data.pairs import (
    MissingSplitError,
    Pairs,
    read_parallel_files,
    read_tfds,
)
from keras_transformer.data.shards import read_index, read_prepared
from keras_transformer.data.subword_sampling import SampledCorpus
from keras_transformer.data.word_links import TokenLinks, read_links
from keras_transformer.fields import unhandled
from keras_transformer.tokenization import (
    PAIR_FILES,
    SHARED_FILE,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.workdir import WorkDirectory
from trainers import phrasebook
from trainers.parsing import corpus as trees
from trainers.parsing.config import DATASET
from trainers.run.built_in import HELD_OUT
from trainers.run.data_config import IMPORTED

SPLITS = ("train", "valid", "test")


def read_split(data, name):
    """The pairs of one split of a `DataConfig`.

    Args:
        data: The `DataConfig`.
        name: A member of `SPLITS`.

    Returns:
        An iterable of (source, target), with a length; empty if there are no
        files.
    """
    if data.dataset == DATASET:
        return trees.read_split(data, name)
    if data.dataset == "phrasebook":
        return _read_phrasebook(data, name)
    if data.dataset in ("files", "prepared"):
        return _read_files(data, name)
    if data.dataset == IMPORTED:
        raise ValueError(
            "the sentence pairs of an imported model are not known: expected"
            f" files of pairs, --{name}_files=PREFIX. Received:"
            f" dataset={data.dataset!r}"
        )
    if data.dataset.startswith("tfds:"):
        return _read_tfds(data, name)
    raise unhandled(dataset=data.dataset)


def _read_files(data, name):
    """A split of parallel files; prepared training pairs are no text."""
    prefixes = getattr(data, f"{name}_files")
    if not prefixes or (data.dataset == "prepared" and name == "train"):
        return []
    if data.tags:
        return read_directions(prefixes, data.source_language, data.tags)
    return read_parallel_files(
        list(prefixes), data.source_language, data.target_language
    )


def _read_tfds(data, name):
    """A split of TensorFlow Datasets; only that for training must be there."""
    try:
        return read_tfds(
            data.dataset.removeprefix("tfds:"),
            {"valid": "validation"}.get(name, name),
            data.source_language,
            data.target_language,
            data_dir=data.data_dir or None,
        )
    except MissingSplitError:
        if name == "train":
            raise
        return []


def _read_phrasebook(data, name):
    """A split of the built-in English-German phrasebook."""
    languages = data.source_language, data.target_language
    if set(languages) != {"en", "de"}:
        raise ValueError(
            "dataset=phrasebook is English and German. Received:"
            f" source_language={languages[0]!r},"
            f" target_language={languages[1]!r}"
        )
    order = 1 if languages[0] == "en" else -1
    num_pairs = data.phrasebook_pairs if name == "train" else HELD_OUT
    return [pair[::order] for pair in phrasebook.read_split(name, num_pairs)]


def open_tokenizer(workdir, configuration, pairs, log):
    """The work directory's vocabulary; else the one given; else a new one.

    Args:
        workdir: The `WorkDirectory`.
        configuration: The `Configuration`.
        pairs: The training pairs, to train a new vocabulary on.
        log: Function that shows a line.

    Returns:
        A `Tokenizer`; without `share_vocabulary`, a `TokenizerPair`.

    Raises:
        ValueError: Its size is not the model's, or the one given is not the
            work directory's, or it has no token for a symbol.
    """
    data = configuration.data
    # A tag may be among vocabulary_symbols, too.
    source_symbols = tuple(
        dict.fromkeys((*data.vocabulary_symbols, *data.tags.values()))
    )
    target_symbols = trees.find_symbols(data, pairs)
    if configuration.training.init_from:
        tokenizer = _inherited_tokenizer(workdir, configuration)
        path = configuration.training.init_from
        _check_symbols(tokenizer.source, source_symbols, path)
        _check_symbols(tokenizer.target, target_symbols, path)
        return tokenizer
    files = (SHARED_FILE,) if data.share_vocabulary else PAIR_FILES
    missing = [f for f in files if not (workdir.path / f).exists()]
    used = {} if missing else workdir.load_tokenizer().files
    if missing and workdir.config_path.exists():
        path = workdir.path / missing[0]
        raise ValueError(f"the vocabulary is missing: no {path}")

    def open_one(file, name, field, sides, symbols):
        vocab_size = getattr(configuration.model, field)
        path = data.given_tokenizers[field]
        tokenizer = Tokenizer.load(path) if path else None
        if file in used:
            given, path = path, workdir.path / file
            if tokenizer and tokenizer.model_bytes != used[file].model_bytes:
                raise ValueError(f"{path} differs from {given}")
            tokenizer = used[file]
        elif tokenizer is None:
            log(f"training a {name} of {vocab_size:,} subwords")
            lines = (line for pair in pairs for line in pair[sides] if line)
            return Tokenizer.train(lines, vocab_size, symbols=symbols)
        if tokenizer.vocab_size != vocab_size:
            raise ValueError(
                f"{field} must be {tokenizer.vocab_size}, the size of"
                f" {path}. Received: {field}={vocab_size}"
            )
        _check_symbols(tokenizer, symbols, path)
        return tokenizer

    if data.share_vocabulary:
        return open_one(
            SHARED_FILE,
            "vocabulary",
            "vocab_size",
            slice(2),
            source_symbols + target_symbols,
        )
    source_file, target_file = PAIR_FILES
    return TokenizerPair(
        open_one(
            source_file,
            "source vocabulary",
            "source_vocab_size",
            slice(0, 1),
            source_symbols,
        ),
        open_one(
            target_file,
            "target vocabulary",
            "vocab_size",
            slice(1, 2),
            target_symbols,
        ),
    )


def _check_symbols(tokenizer, symbols, path):
    """Raises ValueError if a vocabulary has no token for a symbol."""
    if absent := tokenizer.find_missing(symbols):
        raise ValueError(
            f"{path} must have a token for each symbol of vocabulary_symbols,"
            " for the tag of each target language if there are several, and for"
            " each bracket of training trees. Received: none for"
            f" {' '.join(absent)}"
        )


def _inherited_tokenizer(workdir, configuration):
    """The vocabulary of the work directory that a run begins with.

    A run that has begun has a copy of it.

    Args:
        workdir: The `WorkDirectory` of the run.
        configuration: The `Configuration`.

    Raises:
        ValueError: There is none, or the data has another one.
    """
    path = configuration.training.init_from
    begun = bool(workdir.latest.prefixes())
    home = workdir if begun else WorkDirectory(path)
    tokenizer = home.load_tokenizer()
    contents = {f: t.model_bytes for f, t in tokenizer.files.items()}
    if not begun and workdir.config_path.exists():
        ours = workdir.load_tokenizer().files
        if {f: t.model_bytes for f, t in ours.items()} != contents:
            raise ValueError(
                f"{workdir.path} has another vocabulary than init_from: remove"
                " it, or choose another workdir"
            )
    given = configuration.data.given_tokenizers
    for field, given_path in given.items():
        is_source = field == "source_vocab_size"
        of_side = tokenizer.source if is_source else tokenizer.target
        if given_path and (
            len(given) != len(contents)
            or Tokenizer.load(given_path).model_bytes != of_side.model_bytes
        ):
            raise ValueError(
                f"{given_path} is not the vocabulary of init_from={path}, with"
                " which the weights were trained"
            )
    return tokenizer


def open_train_corpus(data, pairs, tokenizer, seed):
    """The training pairs as ids: encoded now or before, or in every epoch.

    Args:
        data: The `DataConfig`.
        pairs: The training pairs; of a prepared corpus, none.
        tokenizer: The `Tokenizer`.
        seed: Of `subword_sampling` and `modifiers`.

    Raises:
        ValueError: No pair is left; or the prepared corpus has other languages
            or another vocabulary, or longer pairs than this configuration
            takes, or is corrupt.
    """
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
                sizes=pairs.sizes if isinstance(pairs, Pairs) else None,
            )
        if data.dataset != "prepared":
            return encode_corpus(pairs, tokenizer, data.max_length)
    (directory,) = data.train_files
    index = read_index(directory)
    for name in ("source_language", "target_language"):
        if getattr(data, name) != index[name]:
            raise ValueError(
                f"{name} must be {index[name]!r}, as in {directory}."
                f" Received: {name}={getattr(data, name)!r}"
            )
    if data.max_length < index["max_length"]:
        raise ValueError(
            f"max_length must be at least {index['max_length']}, that of"
            f" {directory}. Received: max_length={data.max_length}"
        )
    if sha256(tokenizer.model_bytes) != index["tokenizer_sha256"]:
        raise ValueError(
            f"{directory}: the ids are not of this vocabulary: expected a"
            f" tokenizer of SHA-256 {index['tokenizer_sha256']}."
            f" Received: {sha256(tokenizer.model_bytes)}"
        )
    return read_prepared(directory)


def open_links(configuration, corpus, tokenizer):
    """The `TokenLinks` of the training pairs; None without guided alignment.

    Args:
        configuration: The `Configuration`.
        corpus: The result of `open_train_corpus`.
        tokenizer: The `Tokenizer`.

    Raises:
        ValueError: As `read_links` and `TokenLinks`.
        OSError: A file of links cannot be read.
    """
    data, paths = configuration.data, configuration.training.guided_alignment
    if not paths:
        return None
    languages = data.source_language, data.target_language
    links = read_links(
        [
            (path, read_parallel_files([prefix], *languages))
            for path, prefix in zip(paths, data.train_files, strict=True)
        ]
    )
    return TokenLinks(links, corpus.canonical, tokenizer)


def open_mixture(data, pairs, corpus, seed):
    """The `Mixture` of the training pairs; None without one.

    With several target languages it mixes the directions.

    Args:
        data: The `DataConfig`.
        pairs: The training pairs.
        corpus: The result of `open_train_corpus`.
        seed: Of the mixture.

    Raises:
        ValueError: No pair of one of the corpora is left.
    """
    if not (data.mixture or data.tags):
        return None
    kept = corpus.canonical.kept_of(pairs.sizes)
    if data.tags:
        stages = [temperature_stage(kept, data.language_temperature)]
        names = list(data.tags)
    else:
        stages, names = parse_mixture(data.mixture, data.train_files)
    return Mixture(stages, names, pairs.sizes, kept, seed)


def encode_valid_corpus(data, pairs, tokenizer):
    """The validation pairs as ids, for the validation loss.

    Raises:
        ValueError: No pair is left.
    """
    with _naming("validation"):
        return encode_corpus(pairs, tokenizer, data.max_length)


@contextlib.contextmanager
def _naming(name):
    """A context in which a ValueError names the pairs."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"the {name} pairs: {error}") from error


def sha256(content):
    """The SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
