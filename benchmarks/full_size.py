"""Memory and time of a model as large as NLLB-200's smallest, 600M.

    python benchmarks/full_size.py --text=FILE [--folder=DIR] [--record]

The model has the shape of nllb-200-distilled-600M (615 million parameters,
256,206 tokens, 202 languages) and random weights, so outputs have no meaning
and end at 32 tokens. The first 100 lines of FILE are translated with a beam of
4. Each row is a process of its own. Memory is the peak of its anonymous pages,
which no file backs, so a container must have it. Seconds are CPU time and
wall-clock time of the process, loading included. transformers and CTranslate2
run in the environments of `make peers`.
"""

import argparse
import itertools
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import numpy as np
import results
from safetensors.numpy import save_file
from sentencepiece import sentencepiece_model_pb2

ROOT = pathlib.Path(__file__).parents[1]
D, F, LAYERS, HEADS, TOKENS = 1024, 4096, 12, 16, 256206
PIECES = 256000
LINES, LENGTH = 100, 32
SOURCE, TARGET = "eng_Latn", "deu_Latn"
CONFIG = {
    "model_type": "m2m_100",
    "architectures": ["M2M100ForConditionalGeneration"],
    "vocab_size": TOKENS,
    "d_model": D,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": F,
    "decoder_ffn_dim": F,
    "activation_function": "relu",
    "scale_embedding": True,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,
    "max_position_embeddings": 1024,
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
}
SPECIAL = {
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
# Its own tokenizer needs a file that the model does not have.
TRANSFORMERS = f"""
import sys, sentencepiece, torch
from transformers import AutoModelForSeq2SeqLM
folder, lines = sys.argv[1], open(sys.argv[2]).read().splitlines()
torch.set_num_threads(2)
model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=sys.argv[3])
pieces = sentencepiece.SentencePieceProcessor(
    model_file=folder + "/sentencepiece.bpe.model")
source, target = {PIECES + 1}, {PIECES + 2}
rows = [[source, *(i + 1 for i in ids), 2] for ids in pieces.encode(lines)]
for i in range(0, len(rows), 32):
    batch = rows[i:i + 32]
    longest = max(map(len, batch))
    ids = torch.tensor([row + [1] * (longest - len(row)) for row in batch])
    with torch.inference_mode():
        model.generate(input_ids=ids, attention_mask=ids.ne(1).long(),
                       forced_bos_token_id=target, num_beams=4,
                       max_new_tokens={LENGTH})
"""


def main():
    arguments = parse_arguments()
    folder = arguments.folder
    model, workdir = folder / "model", folder / "workdir"
    lines = arguments.text.read_text("utf-8").splitlines()[:LINES]
    text, first = folder / "text", folder / "first"
    folder.mkdir(parents=True, exist_ok=True)
    text.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    first.write_text(f"{lines[0]}\n", "utf-8")
    for language in (SOURCE, TARGET):
        shutil.copy(text, folder / f"pairs.{language}")
    if not model.exists():
        make_model(model)
    rows = []
    for name, command, stdin in commands(folder, model, workdir, text, first):
        rows.append({"process": name, **measure(command, stdin)})
        print(results.markdown(rows[-1:]), flush=True)
    if arguments.record:
        title = "A model of the size of nllb-200-distilled-600M"
        results.record("full_size", title, {"processes": rows})


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    path = pathlib.Path
    parser.add_argument("--text", type=path, required=True)
    parser.add_argument("--folder", type=path, default=path("runs/full_size"))
    results.add_flag(parser)
    return parser.parse_args()


def commands(folder, model, workdir, text, first):
    """Yields the name, the command and the standard input of each process."""
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.rmtree(folder / "tuned", ignore_errors=True)
    ours = [sys.executable, "-m"]
    languages = [f"--source_language={SOURCE}", f"--target_language={TARGET}"]
    search = [f"--workdir={workdir}", f"--max_output_length={LENGTH}"]
    search += ["--beam_size=4", *languages]
    yield (
        "import",
        [*ours, "trainers.import_model", f"--source={model}"]
        + [f"--workdir={workdir}"],
        None,
    )
    for precision, (name, file) in itertools.product(
        ("bfloat16", "float32"), (("1 line", first), ("100 lines", text))
    ):
        command = [*ours, "trainers.translate", *search]
        command += [f"--precision={precision}"]
        yield f"translate {name}, {precision}", command, file
    training = [*ours, "trainers.wmt", f"--init_from={workdir}", *languages]
    training += [f"--workdir={folder / 'tuned'}", "--dataset=files"]
    training += [f"--train_files={folder / 'pairs'}", "--train_steps=3"]
    training += ["--batch_tokens=512", "--max_length=64", "--lora_rank=16"]
    yield "3 training steps of adapters, batches of 512", training, None
    python = ROOT / ".venv-peers/transformers/bin/python"
    for precision in ("bfloat16", "float32"):
        command = [python, "-c", TRANSFORMERS, model, text, precision]
        yield f"transformers, 100 lines, {precision}", command, None
    for kind in ("default", "int8"):
        command = [*ours, "trainers.translate", *search, "--stopping=fairseq"]
        command += ["--engine=ctranslate2", f"--compute_type={kind}"]
        if kind == "default":
            yield "CTranslate2, 1 line, with its export", command, first
        yield f"CTranslate2, 100 lines, {kind}", command, text


def measure(command, stdin):
    """Runs a process without output. Returns its peak memory and seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started, peak = time.monotonic(), 0
    with open(stdin or "/dev/null", "rb") as file:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        while process.poll() is None:
            peak = max(peak, anonymous(process.pid))
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(process.stderr.read().decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "peak GiB": round(peak / 2**20, 2),
        "CPU s": round(cpu, 1),
        "wall s": round(time.monotonic() - started, 1),
    }


def anonymous(pid):
    """Returns the KiB of a process's memory that no file backs."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(x.split()[1]) for x in lines if x.startswith("RssAnon"))


def make_model(folder):
    """Writes the files of a model in their published form."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)

    def normal(*shape):
        return random.standard_normal(shape, np.float32) * np.float32(0.02)

    weights = {"model.shared.weight": normal(TOKENS, D)}
    for stack, attentions in {
        "encoder": ["self_attn"],
        "decoder": ["self_attn", "encoder_attn"],
    }.items():
        norms = ["layer_norm"]
        for layer in range(LAYERS):
            path = f"layers.{layer}"
            norms.append(f"{path}.final_layer_norm")
            for attention in attentions:
                norms.append(f"{path}.{attention}_layer_norm")
                for part in ("q", "k", "v", "out"):
                    name = f"model.{stack}.{path}.{attention}.{part}_proj"
                    weights[f"{name}.weight"] = normal(D, D)
                    weights[f"{name}.bias"] = normal(D)
            for part, shape in (("fc1", (F, D)), ("fc2", (D, F))):
                name = f"model.{stack}.{path}.{part}"
                weights[f"{name}.weight"] = normal(*shape)
                weights[f"{name}.bias"] = normal(shape[0])
        for name in norms:
            weights[f"model.{stack}.{name}.weight"] = np.ones(D, np.float32)
            weights[f"model.{stack}.{name}.bias"] = np.zeros(D, np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    codes = map("".join, itertools.product("abcdefgh", "abcdefgh", "abcd"))
    codes = [f"{code}_Latn" for code in itertools.islice(codes, 200)]
    for name, values in {
        "config": {**CONFIG, **SPECIAL},
        "generation_config": {**SPECIAL, "max_length": 200},
        "tokenizer_config": {"tokenizer_class": "NllbTokenizer"},
        "special_tokens_map": {
            "additional_special_tokens": [SOURCE, TARGET, *codes]
        },
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    (folder / "sentencepiece.bpe.model").write_bytes(make_pieces())


def make_pieces():
    """Makes a SentencePiece model of characters, and of unused words."""
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = 1
    characters = [chr(code) for code in range(33, 127)]
    pieces = ["\u2581", *characters, *(f"\u2581{c}" for c in characters)]
    pieces += [f"\u2581zz{n}" for n in range(PIECES - 3 - len(pieces))]
    for number, piece in enumerate(["<unk>", "<s>", "</s>", *pieces]):
        entry = model.pieces.add(piece=piece, score=-number / 1000)
        entry.type = 2 if not number else 3 if number < 3 else 1
    return model.SerializeToString()


if __name__ == "__main__":
    main()
