"""Training of a SentencePiece model from text."""

import array
import io
import os
import re
import struct
import typing
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.base.refusals import expect
from keras_transformer.text.case_marks import MARKS, mark
from keras_transformer.text.vocabulary import (
    FOLDING,
    NORMALIZATIONS,
    SPACE,
    SPECIAL_IDS,
)

ID_NAMES = ("pad_id", "bos_id", "eos_id", "unk_id")  # of `SPECIAL_IDS`
# With bytes for the rest: bytes that training never shows are not learned.
COVERAGE_WITH_BYTES = 0.9998
# The NMT normalizations make spaces of these. Scripts of Asia need them inside
# of words: Persian and Hindi the non-joiner, Khmer the zero-width space. Other
# characters stand for them while SentencePiece learns.
STAND_INS = {"\u200c": "\U0010ff57", "\u200b": "\U0010ff58"}
_NEEDED = re.compile(
    "(?<=[\u0590-\u1cff])\u200c|\u200c(?=[\u0590-\u1cff])"
    "|(?<=[\u0e00-\u109f\u1780-\u17ff])\u200b"
)


def train_model(
    lines: Iterable[str],
    vocab_size: int,
    max_lines: int,
    symbols: Sequence[str],
    case_marks: bool,
    controls: Sequence[str],
    at_most: bool,
    byte_fallback: bool,
    split_digits: bool,
    normalization: str,
) -> bytes:
    """Trains a byte-pair model and returns its bytes. See `Tokenizer.train`."""
    if vocab_size <= len(SPECIAL_IDS):
        raise ValueError(
            f"vocab_size must be above {len(SPECIAL_IDS)}, the number of"
            f" special tokens. Received: vocab_size={vocab_size}"
        )
    if isinstance(lines, str | os.PathLike):
        raise TypeError(
            f"lines must be a list or iterable of str. Received: {lines!r:.60}"
        )
    choices = [*NORMALIZATIONS]
    if case_marks:
        check_symbols_without_case(symbols)
        choices = [name for name in choices if name not in FOLDING]
    expect(
        normalization in choices,
        f"a normalization of {', '.join(choices)}, {case_marks=}",
        normalization,
    )
    normalizer = sentencepiece.SentencePieceNormalizer(
        rule_name=normalization,
        escape_whitespaces=True,
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
    )
    errors: list[Exception] = []
    makes_spaces = normalization.startswith("nmt_")

    def watched_lines() -> Iterator[str]:
        try:
            for line in lines:
                if not isinstance(line, str):
                    raise TypeError(
                        f"lines must be strings. Received: {line!r}"
                    )
                if makes_spaces:
                    line = _NEEDED.sub(lambda c: STAND_INS[c[0]], line)
                yield mark(normalizer.normalize(line)) if case_marks else line
        except Exception as error:
            errors.append(error)  # SentencePiece keeps only its text
            raise

    options: dict[str, typing.Any] = {
        **dict(zip(ID_NAMES, SPECIAL_IDS, strict=True)),
        "normalization_rule_name": normalization,
        "byte_fallback": byte_fallback,
        "split_digits": split_digits,
        "character_coverage": COVERAGE_WITH_BYTES if byte_fallback else 1.0,
        "user_defined_symbols": [SPACE + symbol for symbol in symbols],
        "control_symbols": list(controls),
    }
    if case_marks:  # the text is normalized before it is marked
        options["normalization_rule_name"] = "identity"
        options["add_dummy_prefix"] = False
        options["user_defined_symbols"] += MARKS
    sentencepiece.set_random_generator_seed(0)  # samples the lines
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=watched_lines(),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            input_sentence_size=max_lines,
            max_sentence_length=1 << 20,  # bytes; drops longer lines
            hard_vocab_limit=not at_most,
            shuffle_input_sentence=True,
            num_threads=1,
            minloglevel=2,
            **options,
        )
    except (RuntimeError, ValueError) as error:
        if errors:
            raise errors[0] from None
        raise ValueError(_explain(str(error), vocab_size)) from error
    Model = sentencepiece_model_pb2.ModelProto
    trained = Model.FromString(model.getvalue())
    # The field stays False in a vocabulary that is smaller than requested.
    if len(trained.pieces) == vocab_size:
        trained.trainer_spec.ClearField("hard_vocab_limit")
    if case_marks:
        plain = Model.FromString(normalizer.serialized_model_proto())
        trained.normalizer_spec.CopyFrom(plain.normalizer_spec)
    pieces, spec = trained.pieces, trained.normalizer_spec
    for original, new in STAND_INS.items() if makes_spaces else ():
        if byte_fallback or any(piece.piece == new for piece in pieces):
            charsmap = keep(spec.precompiled_charsmap, original)
            spec.precompiled_charsmap = charsmap
        for piece in pieces:
            piece.piece = piece.piece.replace(new, original)
    return trained.SerializeToString(deterministic=True)


def keep(charsmap: bytes, character: str) -> bytes:
    """Changes a map of SentencePiece so that a character stays as it is.

    The map is the size of a double-array trie (Darts), the trie, and the texts,
    ended by NUL, that its values are offsets of.
    """
    (size,) = struct.unpack_from("<I", charsmap)
    trie, texts = array.array("I", charsmap[4 : 4 + size]), charsmap[4 + size :]
    at = 0
    for byte in character.encode():
        at ^= (trie[at] >> 10 << (trie[at] >> 6 & 8)) ^ byte
    # Others with the same text share its leaf, so this one gets a new one.
    trie.extend([0] * (-len(trie) % 256))
    leaf = len(trie)
    trie.extend([1 << 31 | len(texts), *[0] * 255])
    trie[at] = (at ^ leaf) << 10 | 1 << 8 | byte
    size = struct.pack("<I", 4 * len(trie))
    return size + trie.tobytes() + texts + character.encode() + b"\0"


def check_symbols_without_case(symbols: Sequence[str]) -> None:
    """Raises ValueError if a symbol has a capital letter and needs a mark."""
    for symbol in symbols:
        if mark(symbol) != symbol:
            raise ValueError(
                "case_marks needs symbols in lower case, which stay one token."
                f" Received: {symbol!r}"
            )


def _explain(message: str, vocab_size: int) -> str:
    received = f"Received: vocab_size={vocab_size}"
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"vocab_size must be at least {found[1]}, for every character of"
            f" the corpus to have an id. {received}"
        )
    if found := re.search(r"value <= (\d+)", message):
        return (
            f"vocab_size must be at most {found[1]}, the number of pieces in"
            f" this corpus. {received}"
        )
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return "The tokenizer needs text to learn from. Received: no text"
    return f"SentencePiece failed: {message}"
