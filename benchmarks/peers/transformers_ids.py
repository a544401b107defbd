"""Writes transformers' ids of sources, for `tokenizer_ids.py`.

    python transformers_ids.py FAMILY DIR < rows.json > ids.json

DIR has a SentencePiece model. The script adds the other files of a published
tokenizer. A row is a language and a line.
"""

import json
import pathlib
import sys

import transformers
from transformers.models.m2m_100 import tokenization_m2m_100
from transformers.models.mbart50 import tokenization_mbart50
from transformers.models.nllb import tokenization_nllb

SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
M2M100 = tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
FAMILIES = {
    "m2m100": ("M2M100Tokenizer", [f"__{code}__" for code in M2M100]),
    "nllb": ("NllbTokenizer", tokenization_nllb.FAIRSEQ_LANGUAGE_CODES),
    "mbart50": (
        "MBart50Tokenizer",
        tokenization_mbart50.FAIRSEQ_LANGUAGE_CODES,
    ),
}


def main():
    family, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    rows = json.load(sys.stdin)
    name, languages = FAMILIES[family]
    if family == "m2m100":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(
            model_file=str(directory / "sentencepiece.bpe.model")
        )
        pieces = model.id_to_piece(list(range(3, model.get_piece_size())))
        pieces = [*SPECIAL.values(), *pieces]
        ids = {piece: id for id, piece in enumerate(pieces)}
        (directory / "vocab.json").write_text(json.dumps(ids))
    tokens = {**SPECIAL, "additional_special_tokens": languages}
    for file, values in (
        ("special_tokens_map.json", tokens),
        ("tokenizer_config.json", {"tokenizer_class": name, **tokens}),
    ):
        (directory / file).write_text(json.dumps(values))
    tokenizer = getattr(transformers, name).from_pretrained(directory)
    ids = []
    for code, line in rows:
        tokenizer.src_lang = code
        ids.append(tokenizer(line)["input_ids"])
    if family != "m2m100":  # it has no fast tokenizer
        tokenizer.backend_tokenizer.save(str(directory / "tokenizer.json"))
    result = {
        "tokenizer": name,
        "version": transformers.__version__,
        "vocab_size": len(tokenizer) + 8,
        "ids": ids,
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
