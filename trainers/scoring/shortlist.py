"""The work of `kt-shortlist`."""

import itertools
import json
import statistics
import time

from keras_transformer.commands import flags
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.shortlist import make_shortlist
from trainers.scoring.test_sets import read_data, read_pairs
from trainers.translating.options import LanguageOptions

NUM_FREQUENT = 200  # most frequent target tokens, allowed in every translation
MIN_PROBABILITY = 0.001  # less probable translations of a token are left out


def run(
    workdir: str,
    train_files: tuple[str, ...],
    max_pairs: int,
    max_length: int,
    num_translations: int,
) -> None:
    """Makes the shortlist of a work directory. Arguments are as the flags."""
    started = time.monotonic()
    directory = WorkDirectory(workdir)
    with flags.user_errors():
        data = read_data(workdir, LanguageOptions())
        tokenizer = directory.load_tokenizer()
        texts = read_pairs(data, "train", train_files)
        step = -(-len(texts) // max_pairs)
        chosen = list(itertools.islice(texts, 0, None, step))
    sides = zip(*chosen, strict=True)
    of_sides = tokenizer.source, tokenizer.target
    rows = [t.to_ids(side) for t, side in zip(of_sides, sides, strict=True)]
    pairs = [
        pair
        for pair in zip(*rows, strict=True)
        if max(map(len, pair)) <= max_length
    ]
    if not pairs:
        raise flags.CommandError(
            f"expected pairs of at most max_length={max_length} tokens."
            f" Received: {len(chosen)} longer ones"
        )
    shortlist = make_shortlist(
        pairs, tokenizer, NUM_FREQUENT, num_translations, MIN_PROBABILITY
    )
    with flags.user_errors():
        shortlist.write(directory.shortlist_path, tokenizer)
    known = [len(ids) for ids in shortlist.translations if len(ids)]
    result = {
        "output": str(directory.shortlist_path),
        "pairs": len(pairs),
        "too_long": len(chosen) - len(pairs),
        "not_read": len(texts) - len(chosen),
        "source_tokens": len(known),
        "translations": round(statistics.mean(known), 1),
        "seconds": round(time.monotonic() - started, 1),
    }
    flags.show(json.dumps(result))
