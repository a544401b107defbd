"""Converts tokenizer.json of Hugging Face's tokenizers to SentencePiece.

transformers 5 saves NLLB-200 and mBART-50 with this file alone. It has the
pieces of their SentencePiece model, with scores or, for a BPE model, with all
merges in order.
"""

import base64
import itertools
import pathlib
import typing

from sentencepiece import sentencepiece_model_pb2

from keras_transformer.base.foreign_files import named_errors, read_json
from keras_transformer.text.vocabulary import SPACE

NAME = "tokenizer.json"
MAX_BYTES = 256 << 20  # NLLB's file has 17 MB, with transformers 5 more
# The values that the fields of each part of the file must have, if present.
EXPECTED: dict[str, dict[str, typing.Any]] = {
    "model": {
        "byte_fallback": False,
        "continuing_subword_prefix": "",
        "dropout": 0,
        "end_of_word_suffix": "",
        "ignore_merges": False,
    },
    "Metaspace": {
        "prepend_scheme": "always",
        "replacement": SPACE,
        "split": True,
    },
    "Replace": {"pattern": {"Regex": " {2,}"}},
    "Precompiled": {},
    "Strip": {},
    "WhitespaceSplit": {},
}


def read_pieces(path: pathlib.Path) -> tuple[bytes, dict[int, str]]:
    """Returns a serialized SentencePiece model, and pieces by original id.

    The model begins with <unk>, <s> and </s>, as in fairseq.

    Raises ValueError if no SentencePiece model does the same, or the file is
    broken.
    """
    values = read_json(path, MAX_BYTES)
    with named_errors(
        path,
        "expected what SentencePiece does, too; copy sentencepiece.bpe.model of"
        " the original model beside it. Received: ",
    ):
        model = values["model"]
        _check("model", model)
        added = {token["content"] for token in values["added_tokens"]}
        if model["type"] == "Unigram":
            scores = dict(model["vocab"])
            ids = {p: id for id, (p, _) in enumerate(model["vocab"])}
        elif model["type"] == "BPE":
            ids = model["vocab"]
            scores = _scores_of_merges(model["merges"], {*ids} - added)
        else:
            raise ValueError(f"model: type={model['type']!r}")
        if len({*ids.values()}) < len(model["vocab"]):
            raise ValueError("a piece or an id twice")
        proto = sentencepiece_model_pb2.ModelProto()
        kinds = proto.SentencePiece
        proto.pieces.add(piece="<unk>", score=0.0, type=kinds.UNKNOWN)
        for piece in ("<s>", "</s>"):
            proto.pieces.add(piece=piece, score=0.0, type=kinds.CONTROL)
        for piece in sorted(ids.keys() - added, key=ids.__getitem__):
            # Text is split at spaces first: a piece with an inner space is
            # never found.
            if SPACE not in piece[1:]:
                proto.pieces.add(piece=piece, score=scores[piece])
        kind = "BPE" if model["type"] == "BPE" else "UNIGRAM"
        proto.trainer_spec.model_type = getattr(proto.trainer_spec, kind)
        proto.trainer_spec.vocab_size = len(proto.pieces)
        for step in _steps(values["normalizer"], "normalizers"):
            if step["type"] == "Precompiled":
                rules = base64.b64decode(step["precompiled_charsmap"])
                proto.normalizer_spec.precompiled_charsmap = rules
        *_, last = [{}, *_steps(values["pre_tokenizer"], "pretokenizers")]
        if last.get("type") != "Metaspace":
            raise ValueError(f"pre_tokenizer: {last.get('type')!r:.60}")
        subwords = {id: piece for piece, id in ids.items()}
        return proto.SerializeToString(deterministic=True), subwords


def _check(kind: str, values: dict) -> None:
    """Raises ValueError if a part of the file is not as in `EXPECTED`."""
    if kind not in EXPECTED:
        raise ValueError(f"{kind!r:.60}")
    for key, value in EXPECTED[kind].items():
        if values.get(key) not in (None, value):
            raise ValueError(f"{kind}: {key}={values[key]!r:.60}")


def _steps(value: dict | None, name: str) -> list[dict[str, typing.Any]]:
    """Returns and checks the steps of a normalizer or pre-tokenizer."""
    steps = [value] if value else []
    if value and value["type"] == "Sequence":
        steps = value[name]
    for step in steps:
        _check(step["type"], step)
    return steps


def _scores_of_merges(merges: list, pieces: set[str]) -> dict[str, float]:
    """Returns the score of each piece of a BPE model.

    SentencePiece merges any two pieces that make a piece. So the file must have
    all such pairs, and those that make the same piece in a row. Raises
    ValueError otherwise.
    """
    pairs: dict[str, set[tuple[str, str]]] = {}
    split = (tuple(m.split(" ") if type(m) is str else m) for m in merges)
    for piece, group in itertools.groupby(split, "".join):
        if piece in pairs:
            raise ValueError(f"the merges of {piece!r:.60} not in a row")
        pairs[piece] = set(group)
    for piece in sorted(pieces | pairs.keys()):
        halves = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
        wanted = {pair for pair in halves if pieces.issuperset((*pair, piece))}
        if SPACE not in piece[1:] and wanted != pairs.get(piece, set()):
            raise ValueError(f"other merges of {piece!r:.60} than all")
    ranks = {piece: -float(rank) for rank, piece in enumerate(pairs)}
    return dict.fromkeys(pieces, -float(len(pairs))) | ranks
