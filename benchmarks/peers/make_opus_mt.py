"""Makes a model of OPUS-MT's size, with random weights, for the comparison.

    .venv-peers/transformers/bin/python benchmarks/peers/make_opus_mt.py
        --output=DIR --text=PREFIX

Writes a randomly initialised model of the configuration of
Helsinki-NLP/opus-mt-en-de into DIR: d_model 512, 6 + 6 layers, 58,101 tokens,
swish. Its SentencePiece models are learned from PREFIX.en and PREFIX.de.
"""

import json
import pathlib

import measurement
import sentencepiece
import torch
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
)

VOCAB_SIZE = 58101
LONGEST = 64  # tokens of an output, which random weights never end


def main():
    parser = measurement.make_parser(__doc__)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--text", required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)
    make(arguments.output, arguments.text)


def make(directory, text):
    """Writes the model and its vocabulary into an empty directory."""
    pieces = []
    for side, language in (("source", "en"), ("target", "de")):
        sentencepiece.SentencePieceTrainer.train(
            input=f"{text}.{language}",
            model_prefix=str(directory / side),
            vocab_size=8000,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (directory / f"{side}.model").rename(directory / f"{side}.spm")
        (directory / f"{side}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(
            model_file=str(directory / f"{side}.spm")
        )
        pieces += model.id_to_piece(list(range(3, model.get_piece_size())))
    names = ["</s>", "<unk>", *dict.fromkeys(pieces)]
    names += [f"<unused {i}>" for i in range(VOCAB_SIZE - 1 - len(names))]
    names.append("<pad>")
    ids = {name: id for id, name in enumerate(names)}
    (directory / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    tokenizer = MarianTokenizer(
        *(
            str(directory / n)
            for n in ("source.spm", "target.spm", "vocab.json")
        ),
        source_lang="en",
        target_lang="de",
    )
    pad = VOCAB_SIZE - 1
    special = {
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=VOCAB_SIZE,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        init_std=0.06,  # with 0.02 the most probable tokens are nearly ties
        **special,
    )
    model = MarianMTModel(config).eval()
    model.generation_config = GenerationConfig(
        num_beams=6, max_length=LONGEST + 2, bad_words_ids=[[pad]], **special
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main()
