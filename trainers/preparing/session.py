"""One session of `trainers.prepare`, from its flags to the table of counts."""

import contextlib
import dataclasses
import time

from keras_transformer.commands import flags
from keras_transformer.data import cleaning
from keras_transformer.tokenization import Tokenizer
from trainers.preparing.folder import Folder, run_errors
from trainers.preparing.preparation import open_preparation


def table(counts):
    """Lines of a table: the pairs read, dropped and kept."""
    share = counts.kept / counts.read
    return [
        f"{counts.read:>15,} pairs read",
        *(
            f"{-number:>15,} with {cleaning.REASONS[reason]} ({reason})"
            for reason, number in counts.dropped.items()
        ),
        f"{counts.kept:>15,} pairs kept ({share:.1%})",
    ]


def open_given_tokenizer(corpus, vocab_size):
    """The tokenizer that the flags name, or None; and the `CorpusOptions`.

    Args:
        corpus: The `CorpusOptions`.
        vocab_size: The number of entries on the command line, or None.

    Raises:
        CommandError: It cannot be read, belongs to an imported model, or has
            another number of entries than `vocab_size`.
    """
    if not corpus.tokenizer:
        return None, corpus
    with flags.user_errors():
        tokenizer = Tokenizer.load(corpus.tokenizer)
    if tokenizer.has_table:
        raise flags.CommandError(
            "expected a tokenizer trained here: the vocabulary of an imported"
            " model, which has a table of ids, cannot be prepared; train with"
            " --dataset=files instead."
            f" Received: tokenizer={corpus.tokenizer!r}"
        )
    if vocab_size not in (None, tokenizer.vocab_size):
        raise flags.CommandError(
            f"vocab_size must be {tokenizer.vocab_size}, the size of"
            f" {corpus.tokenizer}. Received: vocab_size={vocab_size}"
        )
    corpus = dataclasses.replace(corpus, vocab_size=tokenizer.vocab_size)
    return tokenizer, corpus


def run(data, options, corpus, cleaning_options, vocab_size):
    """Prepares a corpus, or resumes its preparation.

    Args:
        data: The `DataConfig` that names the pairs.
        options, corpus, cleaning_options: The sections of the command line.
        vocab_size: The number of entries on the command line, or None.
    """
    start = time.monotonic()
    tokenizer, corpus = open_given_tokenizer(corpus, vocab_size)
    folder = Folder(options.output)
    with contextlib.ExitStack() as stack:
        with flags.user_errors(), run_errors(folder.path):
            stack.enter_context(folder.lock())
            preparation = open_preparation(
                folder, data, options, corpus, cleaning_options, tokenizer
            )
        if preparation is None:
            return
        try:
            with run_errors(folder.path):
                encoded, counts = preparation.run()
        except KeyboardInterrupt:
            flags.show("stopped; rerun the same command to resume")
            raise SystemExit(130) from None
    seconds = time.monotonic() - start
    flags.show(
        *table(counts),
        f"{folder.path}: {encoded:,} pairs cleaned and encoded in"
        f" {seconds:.0f} s",
    )
