"""Runs a transformers model."""

import json
import pathlib

from .sentences import (
    ASCII_SPACES,
    EOS,
    PAD,
    UNK,
    Languages,
    Sentence,
    Translate,
    answer,
    keep_signs,
    penalty,
    text_of,
)
from .signs import has_bytes


def load(directory: pathlib.Path, description: dict) -> Translate:
    """Loads a transformers model, which translates one sentence at a time.

    The length limit is one number per call, so a call has one sentence. Scores
    have our length penalty only in greedy search.
    """
    import torch
    import transformers

    torch.set_num_threads(1)  # more would wait for each other at every layer
    decoding = description["decoding"]
    languages = Languages(description)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    # transformers lacks SMaLL-100's, which differs only in the place of the
    # language token.
    tokenizer = getattr(
        transformers, config["tokenizer_class"], transformers.M2M100Tokenizer
    ).from_pretrained(directory)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        directory, dtype=torch.float32
    )
    longest = description["max_source_length"]
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    special = {pad: PAD, eos: EOS, tokenizer.unk_token_id: UNK}
    # Our id of a piece minus its id in transformers.
    offset = UNK + 1 - (3 if getattr(tokenizer, "separate_vocabs", 0) else 2)
    if languages.places:
        offset = 1
        special[model.config.bos_token_id] = UNK + 1

    def name_of(sentence: Sentence, place: str) -> str:
        """Returns the language token in a place."""
        [id] = languages.tokens(sentence, place)
        return tokenizer.convert_ids_to_tokens(id - offset)

    def encode(sentence: Sentence) -> tuple[list[int], bool]:
        """Returns transformers' ids, and whether the source was truncated."""
        text, end = text_of(sentence).strip(ASCII_SPACES), 1
        if languages.places:
            place = "before" if "before" in languages.places else "after"
            tokenizer.src_lang = name_of(sentence, place).strip("_")
            end = 1 if place == "before" else 2
        ids = tokenizer(text)["input_ids"]
        if ids == tokenizer("")["input_ids"]:
            return [], False
        if len(ids) <= longest:
            return ids, False
        return [*ids[: longest - end], *ids[-end:]], True

    def translate_one(sentence: Sentence) -> dict:
        ids, truncated = encode(sentence)
        if not ids:
            return answer([], "", 0.0, False)
        limit = len(ids) - 1 + decoding["extra_length"]
        limit = min(limit, decoding["max_output_length"] or limit)
        given = languages.tokens(sentence, "output")
        with torch.no_grad():
            found = model.generate(
                input_ids=torch.tensor([ids]),
                num_beams=decoding["beam_size"],
                max_length=limit + 1,
                min_length=decoding["min_length"],
                forced_bos_token_id=given[0] - offset if given else None,
                forced_eos_token_id=None,
                output_logits=True,
                return_dict_in_generate=True,
            )
        gains = model.compute_transition_scores(
            found.sequences,
            found.logits,
            getattr(found, "beam_indices", None),
            normalize_logits=True,
        )
        row = [id for id in found.sequences[0, 1:].tolist() if id != pad]
        ours = [special.get(id, id + offset) for id in row]
        text = tokenizer.decode(
            row, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        score = gains[0, len(given) : len(row)].sum().item()
        score /= penalty(decoding, len(row))
        return answer(ours, text, score, truncated)

    def ids_of(text: str) -> list[int]:
        return tokenizer(text)["input_ids"]

    def is_byte(id: int) -> bool:
        return tokenizer.convert_ids_to_tokens(id).startswith("<0x")

    def knows(text: str) -> bool:
        return tokenizer.unk_token_id not in ids_of(text) and not has_bytes(
            text, ids_of, is_byte
        )

    return keep_signs(
        lambda sentences: [translate_one(line) for line in sentences], knows
    )
