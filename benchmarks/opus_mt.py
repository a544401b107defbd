"""A model of OPUS-MT's shape: imported, exported, compared with transformers.

    python benchmarks/opus_mt.py make DIR TEXT
    python benchmarks/opus_mt.py answer DIR SENTENCES [COUNT]
    python benchmarks/opus_mt.py compare DIR
    python benchmarks/opus_mt.py export DIR EXPORTS
    python benchmarks/opus_mt.py race DIR EXPORTS SENTENCES PYTHON [COUNT [N]]
        [--record]

`make` writes a randomly initialised model of the configuration of
Helsinki-NLP/opus-mt-en-de into DIR: d_model 512, 6 + 6 layers, 58,101 subwords,
swish. Its SentencePiece models are learned from two files of lines, TEXT.en and
TEXT.de. `answer` writes answers.json, from transformers, for the lines of
SENTENCES: the ids of the first 1,000, the translations of COUNT (200), their
log-probabilities, and the time. Both need torch and transformers.

The other commands need this package. `compare` imports DIR, prints the time and
the memory that this took, and how many rows of ids and how many translations
are the same. `export` imports DIR and makes an export of every format.

`race` lets transformers and every export translate the first COUNT (200) lines
of SENTENCES, in turn, N (1) times, each in a process of its own on one
core. PYTHON is the interpreter of an environment with torch and transformers.
It prints the seconds of every turn, without loading, and each translation that
is not transformers' own, with both log-probabilities: a tie where they are
equal. The export for transformers is run as DIR is.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from operator import eq

import results

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATS = ("saved_model", "tflite", "onnx", "ctranslate2", "huggingface")
NUM_IDS = 1000
BATCH_SIZE = 32  # as in `savedmodel/reload.py`
LONGEST_SOURCE = 64  # tokens: TFLite computes every source with this length
TIE = 1e-3  # of log-probabilities per token, as in `savedmodel.verify`
VOCAB_SIZE = 58101
LONGEST = 64  # tokens of an output: random weights never end one
RECORD = "--record"


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
    """Writes the translations by transformers."""
    import torch
    import transformers

    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    model = transformers.MarianMTModel.from_pretrained(directory).eval()
    lines = _read_lines(sentences)[:NUM_IDS]
    translated = lines[: int(count)]

    def translate(batch):
        inputs = tokenizer(batch, return_tensors="pt", padding=True)
        with torch.no_grad():
            found = model.generate(**inputs)[:, 1:].tolist()
        # Without the EOS that generate adds at the limit.
        longest = model.generation_config.max_length - 2
        return [_ended(row)[:longest] for row in found]

    # As `savedmodel/reload.py` does it: lines of about the same length
    # together, after a batch that warms up.
    by_length = sorted(range(len(translated)), key=lambda i: len(translated[i]))
    translate([translated[i] for i in by_length[-BATCH_SIZE:]])
    started, answers = time.perf_counter(), {}
    for start in range(0, len(by_length), BATCH_SIZE):
        batch = by_length[start : start + BATCH_SIZE]
        found = translate([translated[i] for i in batch])
        answers.update(zip(batch, found, strict=True))
    seconds = time.perf_counter() - started
    values = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "lines": lines,
        "ids": tokenizer(lines)["input_ids"],
        "answers": [answers[i] for i in range(len(translated))],
        "log_probs": [
            _log_prob(model, tokenizer(line)["input_ids"], answers[i])
            for i, line in enumerate(translated)
        ],
        "seconds": seconds,
    }
    (directory / "answers.json").write_text(json.dumps(values))
    print(f"transformers: {len(answers)} sentences in {seconds:.1f} s")


def _log_prob(model, source, row):
    """The log-probability of an answer, of which transformers gives none."""
    import torch

    start = model.config.decoder_start_token_id
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([[start, *row[:-1]]]),
        ).logits[0]
    log_probs = torch.log_softmax(logits, -1)
    return log_probs.gather(1, torch.tensor([row]).T).sum().item()


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
        same = _count_same(rows, expected["answers"])
        print(f"translations: {same} of {len(rows)} the same")
        theirs = expected["seconds"]
        print(f"{seconds:.1f} s with tracing; transformers: {theirs:.1f} s")


def export(directory, exports):
    """Imports the model and exports it in every format."""
    exports = pathlib.Path(exports)
    workdir = exports / "workdir"
    _run(
        "trainers.import_model", f"--source={directory}", f"--workdir={workdir}"
    )
    for name in FORMATS:
        started = time.monotonic()
        _run(
            "savedmodel.export",
            f"--workdir={workdir}",
            f"--format={name}",
            f"--output={exports / name}",
            f"--max_source_length={LONGEST_SOURCE}",
        )
        print(f"{name}: exported in {time.monotonic() - started:.1f} s")


def race(directory, exports, sentences, python, count="200", rounds="1"):
    """Translates with each system in turn, and compares the answers."""
    lines = _read_lines(sentences)[: int(count)]
    exports = pathlib.Path(exports)
    runners = {
        "transformers": lambda: _answers_of_transformers(
            python, directory, sentences, count
        )
    }
    for name in FORMATS:
        runners[name] = lambda name=name: _answers_of(exports / name, lines)
    runners["huggingface"] = lambda: _answers_of_transformers(
        python, exports / "huggingface", sentences, count
    )
    seconds = {name: [] for name in runners}
    same = {}
    for _ in range(int(rounds)):
        for name, runner in runners.items():
            found = runner()
            seconds[name].append(found["seconds"])
            if name == "transformers":
                expected = found
            same[name] = sum(map(eq, expected["answers"], found["answers"]))
            print(f"{name}: {found['seconds']:.1f} s", end="; ")
            print(_comparison(expected, found), flush=True)
    rows = []
    for name, values in seconds.items():
        speed = round(len(lines) / statistics.median(values), 2)
        print(f"{name}: {speed:.2f} sentences/s")
        columns = "system", "translations", "as transformers", "sentences/s"
        row = name, len(lines), same[name], speed
        rows.append(dict(zip(columns, row, strict=True)))
    if RECORD in sys.argv:
        title = "A model of OPUS-MT's size, in every format"
        results.record("opus_mt", title, {"formats": rows})


def _comparison(expected, found):
    """How many answers are the same, and which are not: lines."""
    keys = ("answers", "log_probs")
    columns = [system[key] for system in (expected, found) for key in keys]
    lines = []
    for number, (row, log_prob, other, other_log_prob) in enumerate(
        zip(*columns, strict=True), 1
    ):
        if row != other:
            distance = abs(log_prob - other_log_prob) / len(row)
            kind = "a tie" if distance < TIE else "another translation"
            lines.append(
                f"  line {number}, {kind}: {log_prob:.4f}, {len(row)} tokens;"
                f" here {other_log_prob:.4f}, {len(other)} tokens"
            )
    number = len(expected["answers"])
    same = f"{number - len(lines)} of {number} translations the same"
    return "\n".join([same, *lines])


def _answers_of_transformers(python, directory, sentences, count):
    """The answers of `answer` for a folder."""
    _run_alone([python, __file__, "answer", str(directory), sentences, count])
    return json.loads((directory / "answers.json").read_text())


def _answers_of(directory, lines):
    """The answers of an export, with the original's ids."""
    command = [sys.executable, "-I", str(ROOT / "savedmodel/reload.py")]
    output = _run_alone([*command, str(directory)], json.dumps(lines))
    found = json.loads(output)
    rows = [translation["ids"] for translation in found["translations"]]
    scores = [translation["score"] for translation in found["translations"]]
    return {
        "seconds": found["seconds"],
        "answers": [[_original(id) for id in row] for row in rows],
        "log_probs": [  # length_penalty is 1
            score * len(row) for score, row in zip(scores, rows, strict=True)
        ],
    }


def _run_alone(command, text=None):
    """Standard output of a command that has one core."""
    core = max(os.sched_getaffinity(0))
    process = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    if process.returncode:
        raise SystemExit(process.stderr)
    return process.stdout


def _run(module, *flags):
    """Runs a command of this package."""
    subprocess.run([sys.executable, "-m", module, *flags], cwd=ROOT, check=True)


def _read_lines(path):
    """The lines of a file."""
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines()


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
    command, directory, *others = (w for w in sys.argv[1:] if w != RECORD)
    functions = {
        "make": make,
        "answer": answer,
        "compare": compare,
        "export": export,
        "race": race,
    }
    functions[command](pathlib.Path(directory), *others)
