"""Interface to the peers' scripts: their data and output format.

The peers are other systems, measured by scripts that are kept outside of this
repository; their README says how to prepare the data.
"""

import importlib.util
import json
import pathlib

import numpy as np

from keras_transformer.data.corpus import Corpus, CorpusCounts, TokenRows
from keras_transformer.vocabulary import BOS, EOS, PAD, UNK

# Ids of unknown, padding, begin and end in the peers' vocabulary, in order.
OUR_IDS = np.array([UNK, PAD, BOS, EOS], np.int32)


def load_reporter(peers):
    """The peers' `common.py`, which prints their JSON lines.

    Args:
        peers: Folder of the peers' scripts.

    Raises:
        FileNotFoundError: It has no `common.py`.
    """
    path = pathlib.Path(peers) / "common.py"
    if not path.is_file():
        raise FileNotFoundError(f"The peers' folder has no common.py: {path}")
    spec = importlib.util.spec_from_file_location("peers_common", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def our_ids(peer_ids):
    """Ids of the peers' vocabulary as ids of ours, `EOS` put after them.

    >>> our_ids([7, 0, 9])
    array([7, 3, 9, 2], dtype=int32)
    """
    ids = np.array(peer_ids, np.int32)
    special = ids < len(OUR_IDS)
    ids[special] = OUR_IDS[ids[special]]
    return np.append(ids, np.int32(EOS))


def read_corpus(path, limit=None):
    """The `Corpus` of a `SPLIT.ids.json` that `prepare_multi30k.py` wrote.

    Args:
        path: The file.
        limit: Maximum number of pairs to read; None reads all.
    """
    pairs = json.loads(pathlib.Path(path).read_text())[:limit]
    source, target = (
        _token_rows([our_ids(ids) for ids in side])
        for side in zip(*pairs, strict=True)
    )
    counts = CorpusCounts(
        read=len(pairs),
        kept=len(pairs),
        empty=0,
        too_long=0,
        max_length=int(max(source.lengths.max(), target.lengths.max())),
    )
    return Corpus(source, target, counts)


def _token_rows(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return TokenRows(np.concatenate(rows), offsets)
