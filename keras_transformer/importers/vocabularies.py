"""Makes tokenizers for a given table of ids.

Other systems have a SentencePiece model for each language, and a separate table
of subword ids. A `Tokenizer` has both in one model: the pieces in the order of
the table, then an end marker (`END_OF_TABLE` or `END_OF_TABLE_WITH_CODES`),
then the pieces that are not in the table.
"""

import pathlib
import typing
from collections.abc import Collection, Sequence

from sentencepiece import sentencepiece_model_pb2

from keras_transformer.base.foreign_files import named_errors
from keras_transformer.base.refusals import expect
from keras_transformer.text.tokenization import (
    END_OF_TABLE_WITH_CODES,
    SHARED_FILE,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.text.vocabulary import BOS, EOS, PAD, SPECIAL_IDS, UNK

START_NAMES = ("<s>", "<start>", "<start of output>")
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece
# Types of pieces that text may be segmented into.
_OF_TEXT = (_PIECE.NORMAL, _PIECE.USER_DEFINED, _PIECE.BYTE)
MAX_PIECES = 1 << 20
NO_ROW = -1  # in place of an id: the row is zeros


class Side(typing.NamedTuple):
    """The vocabulary of one language."""

    table: list[str]  # subwords, by our id
    ids: list[int]  # the original's ids, or `NO_ROW`, by our id
    model: bytes  # the serialized SentencePiece model that segments text
    path: pathlib.Path  # of the model
    excluded: tuple[int, ...] = ()  # our ids that get no probability


def make_tokenizer(
    model_bytes: bytes,
    table: Sequence[str],
    path: pathlib.Path,
    end: str = END_OF_TABLE_WITH_CODES,
    controls: Collection[str] = (),
) -> Tokenizer:
    """Makes a tokenizer that segments as a model, with the ids of a table.

    The table begins with PAD, BOS, EOS and UNK, and `end` follows it: see
    `Tokenizer.has_table`. A piece of the model that is not in the table still
    takes part in the segmentation, and its id is `UNK`. A subword that only the
    table has is never found, unless it is a run of characters that the model
    does not know. Subwords in `controls` are never found in text, and are
    decoded to nothing. Raises ValueError if a subword occurs twice, or the
    model is broken.
    """
    model = _read_model(model_bytes, path)
    if len(set(table)) < len(table):
        raise ValueError(f"{path}: its table has a subword twice")
    own = {piece.piece: piece for piece in model.pieces}
    pieces = []
    for id, name in enumerate(table):
        kind = _PIECE.UNUSED
        if id == UNK:
            kind = _PIECE.UNKNOWN
        elif id in SPECIAL_IDS or name in controls:
            kind = _PIECE.CONTROL
        elif name in own and own[name].type in _OF_TEXT:
            pieces.append(own[name])
            continue
        pieces.append(_PIECE(piece=name, score=0.0, type=kind))
    pieces.append(_PIECE(piece=end, type=_PIECE.CONTROL))
    known = {*table, end}
    pieces += [
        piece
        for piece in model.pieces
        if piece.piece not in known and piece.type in (*_OF_TEXT, _PIECE.UNUSED)
    ]
    trainer = model.trainer_spec
    trainer.pad_id, trainer.pad_piece = PAD, table[PAD]
    trainer.bos_id, trainer.bos_piece = BOS, table[BOS]
    trainer.eos_id, trainer.eos_piece = EOS, table[EOS]
    trainer.unk_id, trainer.unk_piece = UNK, table[UNK]
    with named_errors(path):
        return Tokenizer(_with_pieces(model, pieces))


def original_model(tokenizer: Tokenizer, end: int) -> bytes:
    """Serializes a SentencePiece model in fairseq's order, which gives the ids.

    Its pieces are <unk>, <s>, </s>, those of the table with ids from 5 to
    `end` - 1, and those that are not in the table.
    """
    model = _read_model(tokenizer.model_bytes, pathlib.Path(SHARED_FILE))
    pieces = [
        _PIECE(piece="<unk>", type=_PIECE.UNKNOWN),
        _PIECE(piece="<s>", type=_PIECE.CONTROL),
        _PIECE(piece="</s>", type=_PIECE.CONTROL),
        *model.pieces[len(SPECIAL_IDS) + 1 : end],
        *model.pieces[tokenizer.vocab_size + 1 :],
    ]
    trainer = model.trainer_spec
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 0, 1, 2, -1
    trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = (
        piece.piece for piece in pieces[:3]
    )
    return _with_pieces(model, pieces)


def with_pieces(tokenizer: Tokenizer, ids: Collection[int]) -> Tokenizer:
    """Makes a tokenizer of the pieces in `ids` alone, renumbered in order."""
    model = _read_model(tokenizer.model_bytes, pathlib.Path(SHARED_FILE))
    pieces = [p for id, p in enumerate(model.pieces) if id in ids]
    return Tokenizer(_with_pieces(model, pieces))


def _with_pieces(model, pieces):
    """Replaces the pieces of a model and serializes it."""
    copies = [_PIECE.FromString(piece.SerializeToString()) for piece in pieces]
    del model.pieces[:]
    model.pieces.extend(copies)
    model.trainer_spec.vocab_size = len(copies)
    return model.SerializeToString(deterministic=True)


def model_pieces(model_bytes: bytes, path: pathlib.Path) -> list[str]:
    """Returns the pieces of a SentencePiece model, in order."""
    return [piece.piece for piece in _read_model(model_bytes, path).pieces]


def _read_model(model_bytes, path):
    """Parses a SentencePiece model of 1 to `MAX_PIECES` pieces."""
    model = sentencepiece_model_pb2.ModelProto()
    with named_errors(path, "not a SentencePiece model: "):
        model.ParseFromString(model_bytes)
    number = len(model.pieces)
    expect(number, "a SentencePiece model with pieces", where=path)
    limit = f"at most {MAX_PIECES} pieces"
    expect(number <= MAX_PIECES, limit, number, where=path)
    return model


def make_tokenizers(sides: Sequence[Side]) -> Tokenizer | TokenizerPair:
    """Makes one tokenizer if both vocabularies are equal, otherwise a pair."""
    source, target = sides
    different = (source,) if source == target else (source, target)
    made = [make_tokenizer(s.model, s.table, s.path) for s in different]
    return made[0] if len(made) == 1 else TokenizerPair(*made)


def share_in_table(tokenizer: Tokenizer) -> tuple[int, int]:
    """Counts the pieces for text: those in the table, and all of them."""
    kinds = {_PIECE.Type.Name(kind) for kind in _OF_TEXT}
    of_text = [kind in kinds for _, _, kind in tokenizer.entries]
    return sum(of_text[: tokenizer.vocab_size]), sum(of_text)


def start_name(table: Sequence[str]) -> str:
    """Returns a name for BOS that is not in the table."""
    return next(name for name in START_NAMES if name not in table)
