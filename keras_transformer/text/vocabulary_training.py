"""Training of a SentencePiece model from text."""

import io
import os
import re
import typing
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.text.case_marks import MARKS, mark
from keras_transformer.text.vocabulary import SPACE, SPECIAL_IDS

NORMALIZATION = "nmt_nfkc"
ID_NAMES = ("pad_id", "bos_id", "eos_id", "unk_id")  # of `SPECIAL_IDS`


def train_model(
    lines: Iterable[str],
    vocab_size: int,
    max_lines: int,
    symbols: Sequence[str],
    case_marks: bool,
    controls: Sequence[str] = (),
    at_most: bool = False,
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
    if case_marks:
        check_symbols_without_case(symbols)
    normalizer = sentencepiece.SentencePieceNormalizer(
        rule_name=NORMALIZATION,
        escape_whitespaces=True,
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
    )
    errors: list[Exception] = []

    def watched_lines() -> Iterator[str]:
        try:
            for line in lines:
                if not isinstance(line, str):
                    raise TypeError(
                        f"lines must be strings. Received: {line!r}"
                    )
                yield mark(normalizer.normalize(line)) if case_marks else line
        except Exception as error:
            errors.append(error)  # SentencePiece keeps only its text
            raise

    options: dict[str, typing.Any] = {
        **dict(zip(ID_NAMES, SPECIAL_IDS, strict=True)),
        "normalization_rule_name": NORMALIZATION,
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
            character_coverage=1.0,
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
    return trained.SerializeToString(deterministic=True)


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
