"""A model of OPUS-MT's shape: imported, and compared with transformers.

    python benchmarks/opus_mt.py make DIR TEXT
    python benchmarks/opus_mt.py answer DIR SENTENCES [COUNT]
    python benchmarks/opus_mt.py compare DIR

`make` writes a randomly initialised model of the configuration of
Helsinki-NLP/opus-mt-en-de into DIR: d_model 512, 6 + 6 layers, 58,101 subwords,
swish. Its SentencePiece models are learned from two files of lines, TEXT.en and
TEXT.de. `answer` writes answers.json, what transformers makes of the lines of
SENTENCES: the ids of the first 1,000, the translations of COUNT (200), and how
long they took. Both need torch and transformers.

`compare` needs this package: it imports DIR, prints the time and the memory
that this took, and how many rows of ids and how many translations are the same.
"""

import json
import pathlib
import resource
import sys
import tempfile
import time

NUM_IDS = 1000
BATCH_SIZE = 25
VOCAB_SIZE = 58101
LONGEST = 64  # tokens of an output: random weights never end one


def make(directory, text):
    """Writes the model."""
    import sentencepiece
    import torch
    import transformers
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    directory.mkdir(parents=True, exist_ok=True)
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
    tokenizer = transformers.MarianTokenizer(
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
        init_std=0.06,  # of 0.02 the most probable tokens are nearly ties
        **special,
    )
    model = MarianMTModel(config).eval()
    model.generation_config = GenerationConfig(
        num_beams=6, max_length=LONGEST + 2, bad_words_ids=[[pad]], **special
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def answer(directory, sentences, count="200"):
    """Writes what transformers answers."""
    import torch
    import transformers

    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    model = transformers.MarianMTModel.from_pretrained(directory).eval()
    lines = pathlib.Path(sentences).read_text(encoding="utf-8").splitlines()
    lines = lines[:NUM_IDS]
    translated = lines[: int(count)]
    answers, started = [], time.monotonic()
    for i in range(0, len(translated), BATCH_SIZE):
        batch = tokenizer(
            translated[i : i + BATCH_SIZE], return_tensors="pt", padding=True
        )
        with torch.no_grad():
            answers += model.generate(**batch)[:, 1:].tolist()
    seconds = time.monotonic() - started
    values = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "lines": lines,
        "ids": tokenizer(lines)["input_ids"],
        "answers": answers,
        "seconds": seconds,
    }
    (directory / "answers.json").write_text(json.dumps(values))
    print(f"transformers: {len(answers)} sentences in {seconds:.1f} s")


def compare(directory):
    """Imports the model and compares it."""
    from trainers import import_model

    expected = json.loads((directory / "answers.json").read_text())
    with tempfile.TemporaryDirectory() as parent:
        workdir = pathlib.Path(parent, "workdir")
        started = time.monotonic()
        import_model.main([f"--source={directory}", f"--workdir={workdir}"])
        seconds = time.monotonic() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"imported in {seconds:.1f} s, {memory:.2f} GiB at most")
        from keras_transformer.translator import Translator

        translator = Translator.load(workdir)
        rows = translator.tokenizer.source.encode(expected["lines"]).to_list()
        same = _count_same(rows, expected["ids"])
        print(f"ids: {same} of {len(rows)} lines the same")
        lines = expected["lines"][: len(expected["answers"])]
        started = time.monotonic()
        found = translator.n_best_ids(lines)
        seconds = time.monotonic() - started
        rows = [hypotheses[0][0] for hypotheses in found]
        limit = translator.decoding.max_output_length
        answers = [_ended(row)[:limit] for row in expected["answers"]]
        same = _count_same(rows, answers)
        print(f"translations: {same} of {len(rows)} the same")
        theirs = expected["seconds"]
        print(f"{seconds:.1f} s with tracing; transformers: {theirs:.1f} s")


def _count_same(ours, theirs):
    """How many rows of our ids are the original's."""
    return sum(
        [_original(id) for id in row] == other
        for row, other in zip(ours, theirs, strict=True)
    )


def _ended(row):
    """A row of the original's ids up to EOS."""
    return row[: row.index(0) + 1] if 0 in row else row


def _original(id):
    """The id that OPUS-MT has: EOS 0, UNK 1, the others in their order."""
    return {2: 0, 3: 1}.get(id, id - 2)


if __name__ == "__main__":
    command, directory, *others = sys.argv[1:]
    functions = {"make": make, "answer": answer, "compare": compare}
    functions[command](pathlib.Path(directory), *others)
