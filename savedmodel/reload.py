"""Runs an export without this package: a script for a separate process.

    python -I savedmodel/reload.py DIR [BEAM] < sentences.json > found.json

DIR is the --output of `savedmodel.export`. The script imports the packages
that the format needs and nothing else of this repository, so it is also the
example of how to run each format. Input is a JSON list of sentences: strings,
or objects with `text` and, for a model of several languages, `source_language`
and `target_language`. Output is a
JSON object: a list of `translations` (ids, text, score, and whether the source
was truncated), and `computed_in`, the type that CTranslate2 computes in (null
for other formats). BEAM is the beam size, for formats where the caller chooses
it: any size with ctranslate2; 1 or the export's with tflite.
"""

import functools
import json
import math
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable

DESCRIPTION = "export.json"  # beside each model: its format and its limits
PAD, EOS, UNK = 0, 2, 3
END_OF_TABLE = "<end of table>"  # see `Vocabulary`
END_OF_TABLE_WITH_CODES = "<end of table with codes>"
SEGMENTS = ".segments.model"  # the ending of its other file
# Case marks, of a private use area: the next letter is a capital one; all of
# the next unit, which ends at a space, hyphen, slash or apostrophe; a region.
TITLE, UPPER = "\U0010ff54", "\U0010ff55"
BEGIN, END = "\U0010ff42", "\U0010ff45"
MARKS = TITLE + UPPER + BEGIN + END
UNIT_BREAKS = "▁ -‐–—/'’"
ASCII_SPACES = " \t\n\v\f\r"  # which no text has at its ends
BATCH_SIZE = 32  # sentences of about the same length translated together

Sentence = str | dict[str, str]
Translate = Callable[[list[Sentence]], list[dict]]  # what a loader returns


def main() -> None:
    directory = find_export(sys.argv[1])
    sentences = json.load(sys.stdin)
    description = json.loads((directory / DESCRIPTION).read_text())
    if sys.argv[2:]:
        description["decoding"]["beam_size"] = int(sys.argv[2])
    translate = LOADERS[description["format"]](directory, description)
    translations = translate_all(translate, sentences)
    ours = {name.split(".")[0] for name in sys.modules}
    if ours & {"keras_transformer", "savedmodel"}:
        raise SystemExit("an export must run without this package")
    found = {
        "translations": translations,
        "computed_in": getattr(translate, "computed_in", None),
    }
    json.dump(found, sys.stdout)


def text_of(sentence: Sentence) -> str:
    """The text of a sentence."""
    return sentence if isinstance(sentence, str) else sentence["text"]


class Languages:
    """The languages of a model that is told them, by `export.json`.

    Its `language_places` name the language of each place: "before" the text of
    a source, "after" its EOS, and the first token of an "output".
    """

    def __init__(self, description: dict):
        self.description = description
        self.ids = description.get("language_ids", {})
        self.places = description.get("language_places", {})

    def code(self, sentence: Sentence, name: str) -> str:
        """`source_language` or `target_language` of a sentence."""
        own = {} if isinstance(sentence, str) else sentence
        code = own.get(name) or self.description[name]
        if code not in self.ids:
            raise ValueError(f"expected {name}. Received: {name}={code!r}")
        return code

    def id(self, sentence: Sentence, name: str) -> int:
        """The id of the token of such a language."""
        return self.ids[self.code(sentence, name)]

    def tokens(self, sentence: Sentence, place: str) -> list[int]:
        """The id of the language in a place, if there is one."""
        name = self.places.get(place)
        return [self.id(sentence, name)] if name else []


def translate_all(
    translate: Translate, sentences: list[Sentence]
) -> list[dict]:
    """Translates sentences in batches of about the same length.

    `translate` is the result of a loader of `LOADERS`.
    """
    by_length = sorted(
        range(len(sentences)), key=lambda i: len(text_of(sentences[i]))
    )
    results: dict[int, dict] = {}
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = by_length[start : start + BATCH_SIZE]
        translations = translate([sentences[i] for i in batch])
        results.update(zip(batch, translations, strict=True))
    return [results[i] for i in range(len(sentences))]


def find_export(output: str | os.PathLike) -> pathlib.Path:
    """The directory of an export, of which `output` may be the parent.

    Below the output of a SavedModel are versions; the latest counts, as in
    TensorFlow Serving.
    """
    output = pathlib.Path(output)
    if (output / DESCRIPTION).is_file():
        return output
    versions = [
        path.parent
        for path in output.glob(f"*/{DESCRIPTION}")
        if path.parent.name.isdecimal()
    ]
    if not versions:
        raise ValueError(
            f"expected an export: a directory with {DESCRIPTION}, or with"
            f" versions that have it. Received: {output}"
        )
    return max(versions, key=lambda path: int(path.name))


def load_saved_model(directory: pathlib.Path, description: dict) -> Translate:
    """The `n_best` signature.

    Operations of a position are too short to be divided among threads. On x86
    CPUs without AVX-512 VNNI TensorFlow uses oneDNN only if it is told to.
    """
    if "tensorflow" not in sys.modules:  # which reads them when it starts
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
        if platform.machine() in ("x86_64", "AMD64"):
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations

    model = tf.saved_model.load(str(directory))
    signature = model.signatures["n_best"]
    names = signature.structured_input_signature[1].keys() - {"text"}
    languages = Languages(description)

    def translate(sentences: list[Sentence]) -> list[dict]:
        inputs = {"text": list(map(text_of, sentences))}
        for name in names:
            inputs[name] = [languages.code(s, name) for s in sentences]
        found = signature(
            **{name: tf.constant(inputs[name], tf.string) for name in inputs}
        )
        best = [
            found[name][:, 0].numpy()
            for name in ("ids", "hypotheses", "scores")
        ]
        truncated = found["truncated"].numpy()
        return [
            answer(row, string.decode("utf-8", "replace"), score, is_cut)
            for row, string, score, is_cut in zip(*best, truncated, strict=True)
        ]

    return translate


def load_tflite(directory: pathlib.Path, description: dict) -> Translate:
    """A signature of LiteRT's interpreter, one sentence at a time."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    languages = Languages(description)
    limit = description["max_source_length"]
    # The graph adds the tokens of languages.
    added = len(languages.places.keys() - {"output"})
    encode, decode = load_tokenizer(
        directory, {"max_source_length": limit - added}
    )
    interpreter = Interpreter(str(directory / "model.tflite"))
    beam_size = description["decoding"]["beam_size"]
    search = interpreter.get_signature_runner(
        "greedy" if beam_size == 1 else "beam"
    )
    names = search.get_input_details().keys() - {"source_ids"}

    def translate_one(sentence: Sentence) -> dict:
        ids, truncated = encode(sentence)
        inputs: dict[str, list] = {
            "source_ids": [ids + [PAD] * (limit - len(ids))]
        }
        for name in names:
            inputs[name] = [languages.id(sentence, name)]
        found = search(
            **{name: np.array(inputs[name], "int32") for name in inputs}
        )
        best, score = found["ids"][0, 0], found["scores"][0, 0]
        return answer(best, decode(best), score, truncated)

    return lambda sentences: [translate_one(line) for line in sentences]


def load_onnx(directory: pathlib.Path, description: dict) -> Translate:
    """A session of ONNX Runtime."""
    import numpy as np
    import onnxruntime

    # The graph truncates, and says so.
    encode, decode = load_tokenizer(directory, {"max_source_length": math.inf})
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    names = {tensor.name for tensor in session.get_inputs()} - {"source_ids"}
    languages = Languages(description)

    def translate(sentences: list[Sentence]) -> list[dict]:
        rows = [encode(sentence)[0] for sentence in sentences]
        longest = max(map(len, rows), default=0)
        padded = [row + [PAD] * (longest - len(row)) for row in rows]
        source_ids = np.array(padded, "int32").reshape(len(rows), longest)
        inputs = {"source_ids": source_ids}
        for name in names:
            ids = [languages.id(sentence, name) for sentence in sentences]
            inputs[name] = np.array(ids, "int32")
        outputs = ["ids", "scores", "truncated"]  # [N, W, T], [N, W], [N]
        ids, scores, truncated = session.run(outputs, inputs)
        best = zip(ids[:, 0], scores[:, 0], truncated, strict=True)
        return [answer(row, decode(row), *others) for row, *others in best]

    return translate


def load_ctranslate2(directory: pathlib.Path, description: dict) -> Translate:
    """CTranslate2's translator, sentences of the same limit together.

    `max_decoding_length` is one number for a call, so it must be right for all.
    The length penalty is the paper's only where the search is greedy.
    """
    import ctranslate2

    decoding = description["decoding"]
    max_positions = description.get("max_positions") or math.inf
    encode, decode = load_tokenizer(directory, description)
    # Threads wait for each other at every layer: for small models one is best,
    # and the default, four, on fewer cores by far the worst.
    translator = ctranslate2.Translator(str(directory), intra_threads=1)
    sources, targets = load_vocabularies(directory)
    languages = Languages(description)
    # EOS, which CTranslate2 adds, is not the last token of a source.
    end = None if "after" in languages.places else -1

    def limit(row: list[int]) -> float:
        return min(
            len(row) - 1 + decoding["extra_length"],
            decoding["max_output_length"] or math.inf,
            max_positions,
        )

    is_greedy = decoding["beam_size"] == 1

    def translate(sentences: list[Sentence]) -> list[dict]:
        rows = [encode(sentence) for sentence in sentences]
        first = [languages.tokens(sentence, "output") for sentence in sentences]
        results = [answer([], "", 0.0, False)] * len(rows)
        by_limit: dict[float, list[int]] = {}
        for i, (row, _) in enumerate(rows):
            if len(row) > 1:
                by_limit.setdefault(limit(row), []).append(i)
        for longest, alike in by_limit.items():
            found = translator.translate_batch(
                [
                    sources.processor.id_to_piece(rows[i][0][:end])
                    for i in alike
                ],
                [targets.processor.id_to_piece(first[i]) for i in alike],
                beam_size=decoding["beam_size"],
                length_penalty=0 if is_greedy else decoding["length_penalty"],
                max_decoding_length=longest,
                min_decoding_length=max(0, decoding["min_length"] - 1),
                return_scores=True,
                return_end_token=True,
            )
            for i, result in zip(alike, found, strict=True):
                ids = targets.processor.piece_to_id(result.hypotheses[0])
                score = result.scores[0]
                if is_greedy:
                    score /= penalty(decoding, len(ids))
                results[i] = answer(ids, decode(ids), score, rows[i][1])
        return results

    # Not every CPU computes in the type that the weights are stored in.
    vars(translate)["computed_in"] = translator.compute_type
    return translate


def load_argos(directory: pathlib.Path, description: dict) -> Translate:
    """CTranslate2's translator of the package, as the program unpacks it."""
    [package] = directory.glob("*.argosmodel")
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(package, folder, "zip")
        [root] = pathlib.Path(folder).iterdir()
        model = root / "model"
        (root / "sentencepiece.model").rename(model / "tokenizer.model")
        return load_ctranslate2(model, description)


class Vocabulary:
    """A SentencePiece model; with a table of ids, if it is an imported one.

    Pieces before `END_OF_TABLE` or `END_OF_TABLE_WITH_CODES` are the table.
    There a segment has the id of its text, whatever piece it is; and a language
    code, `>>fra<<`, is a segment of its own at the beginning: with the first
    end any code, with the second one that only the table has. The file beside
    it, `*.segments.model`, has the segments: pieces that only the table has are
    not in it. With case marks this file is for text that `mark` returns.
    """

    def __init__(self, path: pathlib.Path):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(
            model_file=str(path)
        )
        # Then the text that it segments is normalized and marked.
        self.has_case_marks = self.processor.piece_to_id(TITLE) != UNK
        self.segmenter = self.processor
        if path.with_suffix(SEGMENTS).exists():
            self.segmenter = sentencepiece.SentencePieceProcessor(
                model_file=str(path.with_suffix(SEGMENTS))
            )
        self.table = self.codes = None
        for mark in (END_OF_TABLE, END_OF_TABLE_WITH_CODES):
            end = self.processor.piece_to_id(mark)
            if end == UNK:
                continue
            ids = range(UNK + 1, end)
            pieces = self.processor.id_to_piece(list(ids))
            self.table = dict(zip(pieces, ids, strict=True))
            if mark == END_OF_TABLE_WITH_CODES:
                self.codes = {
                    piece
                    for piece, id in self.table.items()
                    if self.processor.is_unused(id)
                    or self.processor.is_control(id)
                }

    def encode(self, sentence: str) -> list[int]:
        """Ids without EOS."""
        if self.table is None:
            if self.has_case_marks:
                sentence = mark(self.processor.normalize(sentence))
            return self.segmenter.encode(sentence)
        [(code, rest)] = re.findall(r"(?s)\A(>>.*?<<)?(.*)\Z", sentence)
        if self.codes is not None and code not in self.codes:
            code, rest = "", sentence
        segments = self.segmenter.encode(rest, out_type=str)
        if code:
            segments.insert(0, code)
        return [self.table.get(segment, UNK) for segment in segments]

    def decode(self, ids: list[int]) -> str:
        """A string of ids without PAD and EOS."""
        text = self.processor.decode(ids)
        if self.has_case_marks:
            text = restore(text)
        return text.strip(ASCII_SPACES)


@functools.cache
def casing() -> tuple[dict[int, int], dict[int, int], re.Pattern, re.Pattern]:
    """Small letters by capital ones, the reverse, what gets a mark, a sigma."""
    lower = {}
    for code in range(0x20000):  # letters with case have lower numbers
        small = chr(code).lower()
        if len(small) == 1 and chr(code) != small:
            if small.upper() == chr(code):
                lower[code] = ord(small)
    upper = {small: capital for capital, small in lower.items()}
    upper[ord("ς")] = ord("Σ")
    ends, big = re.escape(UNIT_BREAKS), "".join(map(chr, lower))
    small = "".join(map(chr, upper))
    other = f"[^{ends}{small}{big}]*"
    rest = f"[^{ends}{small}]*(?![^{ends}])"
    unit = f"[{big}](?:{other}[{big}])+(?={other}(?![^{ends}]))"
    more = f"(?:{rest}[{ends}])+{other}{unit}"
    pattern = f"(?<![^{ends}])({other})({unit}({more})?)|[{big}]+"
    final = f"(?<=[{big}])Σ(?![{big}])"  # a sigma at the end of a word
    return lower, upper, re.compile(pattern), re.compile(final)


def mark(text: str) -> str:
    """Normalized text in lower case, with marks for its capital letters.

    A unit of several capital letters has UPPER; several such units, without
    small letters between them, are a region, from BEGIN to END.
    """
    lower, _, pattern, final = casing()

    def replace(match: re.Match) -> str:
        before, capitals, more = match.groups()
        first, last = (BEGIN, END) if more else (UPPER, "")
        if capitals is None:
            capitals = match[0]
            single = len(capitals) == 1
            first, last = (TITLE, "") if single else (BEGIN, END)
        small = final.sub("ς", capitals).translate(lower)
        return (before or "") + first + small + last

    text = pattern.sub(replace, re.sub(f"[{MARKS}]", "\ufffd", text))
    return re.sub(f"▁([{TITLE}{UPPER}{BEGIN}])", r"\1▁", text)


def restore(text: str) -> str:
    """Marked text with its capital letters, without marks."""
    ends = re.escape(UNIT_BREAKS) + MARKS
    text = re.sub(
        f"{BEGIN}[^{END}]*|{UPPER}[ ▁]?[^{ends}]*|{TITLE}[ ▁]?[^{MARKS}]",
        lambda match: match[0].translate(casing()[1]),
        text,
    )
    return re.sub(f"[{MARKS}]", "", text)


def load_vocabularies(directory: pathlib.Path) -> list[Vocabulary]:
    """Of source and target, beside a model: one, or a pair."""
    path = directory / "tokenizer.model"
    if path.exists():
        return [Vocabulary(path)] * 2
    return [
        Vocabulary(directory / f"{side}_tokenizer.model")
        for side in ("source", "target")
    ]


def load_tokenizer(
    directory: pathlib.Path, description: dict
) -> tuple[
    Callable[[Sentence], tuple[list[int], bool]], Callable[[Iterable[int]], str]
]:
    """A function from a sentence to its ids, and one from ids to a string.

    The first returns ids that end with EOS, and whether they were truncated. It
    adds the tokens of languages, if the description has their places.
    """
    sources, targets = load_vocabularies(directory)
    languages = Languages(description)

    def encode(sentence: Sentence) -> tuple[list[int], bool]:
        ids = sources.encode(text_of(sentence))
        if not ids:
            return [EOS], False
        before, after = (
            languages.tokens(sentence, place) for place in ("before", "after")
        )
        ids = before + ids
        longest = description["max_source_length"] - 1 - len(after)
        truncated = len(ids) > longest
        return (ids[:longest] if truncated else ids) + [EOS] + after, truncated

    def decode(ids: Iterable[int]) -> str:
        return targets.decode([int(i) for i in ids if i not in (PAD, EOS)])

    return encode, decode


def penalty(decoding: dict, length: int) -> float:
    """The divisor of a score, for a length in tokens with EOS."""
    bases = {"wu": (5 + length) / 6, "power": length}
    return bases[decoding["length_normalization"]] ** decoding["length_penalty"]


def answer(
    ids: Iterable[int], text: str, score: float, truncated: bool
) -> dict:
    """One translation, as JSON has it."""
    ids = [int(i) for i in ids if i != PAD]
    return {
        "ids": ids,
        "text": text,
        "score": float(score),
        "truncated": bool(truncated),
    }


def load_huggingface(directory: pathlib.Path, description: dict) -> Translate:
    """A model of transformers, one sentence at a time.

    The limit is one number for a call, so it must be right for each. The length
    penalty is the paper's only where the search is greedy.
    """
    import torch
    import transformers

    torch.set_num_threads(1)  # they wait for each other at every layer
    decoding = description["decoding"]
    languages = Languages(description)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    # SMaLL-100's is not in transformers; this one differs in the languages.
    tokenizer = getattr(
        transformers, config["tokenizer_class"], transformers.M2M100Tokenizer
    ).from_pretrained(directory)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        directory, dtype=torch.float32
    )
    longest = description["max_source_length"]
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    special = {pad: PAD, eos: EOS, tokenizer.unk_token_id: UNK}
    # Ours of the first id that is no special one there, less that id.
    offset = UNK + 1 - (3 if getattr(tokenizer, "separate_vocabs", 0) else 2)
    if languages.places:
        offset = 1
        special[model.config.bos_token_id] = UNK + 1

    def name_of(sentence: Sentence, place: str) -> str:
        """The token of the language in a place."""
        [id] = languages.tokens(sentence, place)
        return tokenizer.convert_ids_to_tokens(id - offset)

    def encode(sentence: Sentence) -> tuple[list[int], bool]:
        """Ids there, which tokens of languages surround, and truncation."""
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

    return lambda sentences: [translate_one(line) for line in sentences]


LOADERS = {
    "huggingface": load_huggingface,
    "saved_model": load_saved_model,
    "tflite": load_tflite,
    "onnx": load_onnx,
    "ctranslate2": load_ctranslate2,
    "argos": load_argos,
}

if __name__ == "__main__":
    main()
