"""Every export beside the live translator: the same text, size and speed.

    python benchmarks/export_table.py --workdir=DIR --output=DIR \
        --source=DATA/test_2016_flickr.en.gz \
        --reference=DATA/test_2016_flickr.de.gz

Each row is an export, made below --output unless it is there, and run by a
process that does not import this package. `identical` counts translations with
the tokens that `trainers.translate` returns for the same beam size. `ties`
counts other translations with the same score; their lines are listed below the
table.
`computed in` is reported by CTranslate2: not every CPU computes in the type
that the weights are stored in.
"""

import argparse
import gzip
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import sacrebleu
from results import add_flag, parse_table, record

from keras_transformer import DecodingConfig, Translator
from savedmodel import export, publishing, verify
from savedmodel.formats import FORMATS

# Format, precision, beam: 1 is greedy, None the beam of --beam_size.
ROWS = (
    ("saved_model", "float32", None),
    ("onnx", "float32", None),
    ("onnx", "float16", None),
    ("onnx", "int8", None),
    ("tflite", "float32", None),
    ("tflite", "float16", None),
    ("tflite", "int8", None),
    ("tflite", "float32", 1),
    ("ctranslate2", "float32", 1),
    ("ctranslate2", "float32", None),
    ("ctranslate2", "float16", None),
    ("ctranslate2", "int16", None),
    ("ctranslate2", "int8", None),
)
HEAD = (
    "| format | precision | beam | identical | ties | BLEU | MB | sent./s"
    " | computed in |"
)


# Options that an existing export must share with one made now.
SAME = ("format", "precision", "checkpoint", "max_source_length", "decoding")


def main():
    arguments = parse_arguments()
    sentences = read_lines(arguments.source, arguments.limit)
    references = read_lines(arguments.reference, arguments.limit)
    translator = load_translator(arguments)
    beams = {None: arguments.beam_size, 1: 1}
    live = {
        beam_size: Live(
            translator.with_decoding(beam_size=beam_size), sentences
        )
        for beam_size in beams.values()
    }
    lines = []

    def show(line):
        print(line, flush=True)
        lines.append(line)

    show(HEAD)
    show("|---" * HEAD.count(" | ") + "|---|")
    for beam_size, one in live.items():
        bleu = score(one.texts, references)
        show(
            f"| trainers.translate | float32 | {beam_size} | {len(sentences)}"
            f" | | {bleu:.2f} | | {len(sentences) / one.seconds:.1f} | |"
        )
    notes = []
    for format_name, precision, beam in ROWS:
        if arguments.formats and format_name not in arguments.formats:
            continue
        one = live[beams[beam]]
        directory = make_export(translator, format_name, precision, arguments)
        found = verify.run(directory, sentences, beam)
        results = found["translations"]
        bleu = score([result["text"] for result in results], references)
        ties, different = one.compare(results)
        same = len(sentences) - len(ties) - len(different)
        show(
            f"| {format_name} | {precision} | {beams[beam]} | {same}"
            f" | {len(ties)} | {bleu:.2f} | {megabytes(directory):.1f}"
            f" | {len(sentences) / found['seconds']:.1f}"
            f" | {found['computed_in'] or ''} |"
        )
        if precision == "float32" and (ties or different):
            notes.append(
                f"{format_name}, beam {beams[beam]}: ties on lines {ties},"
                f" others {different[:10]}"
            )
    print("", *notes, sep="\n")
    if arguments.record:
        table = {"exports": parse_table("\n".join(lines))}
        title = "Exports and the live translator"
        record("export_table", title, table, notes="; ".join(notes))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--output", required=True, help="where exports go")
    parser.add_argument("--source", required=True, help="sentences, .gz or not")
    parser.add_argument("--reference", required=True)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--length_penalty", type=float, default=0.6)
    parser.add_argument(
        "--max_source_length",
        type=int,
        default=64,
        help="longest source in tokens; shorter is faster",
    )
    add_flag(parser)
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS))
    return parser.parse_args()


class Live:
    """Translations of the live translator, and their time.

    Args:
        translator: The `Translator`.
        sentences: List of `str`.
    """

    def __init__(self, translator, sentences):
        translator.translate(sentences)  # makes the graphs of all lengths
        started = time.perf_counter()
        found = translator.n_best(sentences)
        self.seconds = time.perf_counter() - started
        self.texts = [hypotheses[0][0] for hypotheses in found]
        self.scores = [hypotheses[0][1] for hypotheses in found]
        self.ids = [h[0][0] for h in translator.n_best_ids(sentences)]

    def compare(self, results):
        """Numbers of the lines that tie, and of those that differ."""
        ties, different = [], []
        for number, (ids, score_here, result) in enumerate(
            zip(self.ids, self.scores, results, strict=True), 1
        ):
            if ids != result["ids"]:
                is_tie = abs(score_here - result["score"]) < verify.TIE
                (ties if is_tie else different).append(number)
        return ties, different


def load_translator(arguments):
    decoding = DecodingConfig(
        beam_size=arguments.beam_size, length_penalty=arguments.length_penalty
    )
    return Translator.load(
        arguments.workdir,
        decoding,
        max_source_length=arguments.max_source_length,
    )


def make_export(translator, format_name, precision, arguments):
    """The directory of an export, made if it is not there."""
    output = pathlib.Path(arguments.output) / f"{format_name}-{precision}"
    options = export.ExportOptions(
        workdir=arguments.workdir,
        format=format_name,
        output=str(output),
        precision=precision,
    )
    source = export.Source(translator, [], (None, None))
    if options.target.exists():
        before = verify.read_description(options.target)
        expected = export.make_description(source, options)
        if any(before.get(name) != expected[name] for name in SAME):
            raise SystemExit(f"{output} has other options: remove it")
    else:
        with publishing.published(options.target) as directory:
            export.export(source, options, directory)
    return options.target


def read_lines(path, limit):
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read().removesuffix("\n").split("\n")[:limit]


def score(texts, references):
    """Cased sacreBLEU, 13a."""
    return sacrebleu.corpus_bleu(texts, [references]).score


def megabytes(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files) / 1e6


if __name__ == "__main__":
    main()
