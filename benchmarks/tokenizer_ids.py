"""Compares our token ids with the token ids of transformers, in 20 languages.

    python benchmarks/tokenizer_ids.py --transformers=.venv-peers/transformers

The text is 100 program messages in each language, from this machine's message
catalogues, such as Debian's. SentencePiece models are trained on other
messages, in the layout of M2M-100, NLLB-200 and mBART-50, with all of their
languages. --model=FILE, with --family, uses another SentencePiece model
instead. `peers/transformers_ids.py` gives the ids of transformers. Its
environment also needs protobuf.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import sentencepiece
from babel.messages.mofile import read_mo

from keras_transformer.importers import m2m100
from keras_transformer.importers.options import Options
from keras_transformer.importers.vocabularies import make_tokenizer
from keras_transformer.text.vocabulary import EOS

PEER = pathlib.Path(__file__).parent / "peers/transformers_ids.py"
NUM_LINES = 100  # per language
TRAINING_LINES = 1000
# Language -> its codes in M2M-100, NLLB-200 and mBART-50.
CODES = {
    code.split()[0]: code.split()
    for code in """
        de deu_Latn de_DE, vi vie_Latn vi_VN, tr tur_Latn tr_TR,
        ru rus_Cyrl ru_RU, uk ukr_Cyrl uk_UA, ar arb_Arab ar_AR,
        fa pes_Arab fa_IR, he heb_Hebr he_IL, hi hin_Deva hi_IN,
        mr mar_Deva mr_IN, bn ben_Beng bn_IN, gu guj_Gujr gu_IN,
        ta tam_Taml ta_IN, si sin_Sinh si_LK, ml mal_Mlym ml_IN,
        th tha_Thai th_TH, ja jpn_Jpan ja_XX, ko kor_Hang ko_KR,
        zh zho_Hans zh_CN, ka kat_Geor ka_GE
    """.split(",")
}
ALGORITHMS = {"m2m100": "bpe", "nllb": "bpe", "mbart50": "unigram"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--transformers", required=True, help="environment")
    parser.add_argument("--catalogues", default="/usr/share/locale")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--model", help="SentencePiece model to use instead")
    parser.add_argument("--family", choices=ALGORITHMS, help="default: all")
    arguments = parser.parse_args()
    lines, training = {}, []
    for language in CODES:
        found = read_messages(arguments.catalogues, language)
        lines[language] = found[:NUM_LINES]
        training += found[NUM_LINES : NUM_LINES + TRAINING_LINES]
    total = sum(map(len, lines.values()))
    print(f"{total:,} lines in {len(lines)} languages")
    for place, (family, algorithm) in enumerate(ALGORITHMS.items()):
        if arguments.family not in (None, family):
            continue
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            if arguments.model:
                model = pathlib.Path(arguments.model).read_bytes()
            else:
                model = train(training, arguments.vocab_size, algorithm)
            (path / m2m100.MODEL).write_bytes(model)
            rows = [
                (CODES[language][place], line)
                for language in lines
                for line in lines[language]
            ]
            compare(family, path, rows, arguments.transformers)


def read_messages(catalogues, language):
    """Reads the one-line translations of all programs, in random order."""
    names = {"zh": "zh_CN"}
    pattern = f"{names.get(language, language)}/LC_MESSAGES/*.mo"
    texts = set()
    for path in sorted(pathlib.Path(catalogues).glob(pattern)):
        try:
            with open(path, "rb") as file:
                messages = [message.string for message in read_mo(file)]
        except (OSError, ValueError):  # e.g. another encoding
            continue
        texts.update(m for m in messages if isinstance(m, str) and is_line(m))
    return random.Random(1).sample(sorted(texts), len(texts))


def is_line(text):
    """Tells whether a message is a line of text without spaces at its ends.

    For a final space, transformers' fast tokenizers have a token, and
    SentencePiece has none.
    """
    return (
        10 <= len(text) <= 300 and text == text.strip() and text.isprintable()
    )


def train(lines, vocab_size, algorithm):
    """Trains a SentencePiece model without the rarest characters."""
    with tempfile.TemporaryDirectory() as directory:
        text = pathlib.Path(directory) / "text"
        text.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(text),
            model_prefix=f"{directory}/spm",
            vocab_size=vocab_size,
            model_type=algorithm,
            character_coverage=0.9995,
            minloglevel=2,
        )
        return (pathlib.Path(directory) / "spm.model").read_bytes()


def compare(family, path, rows, environment):
    """Prints how many lines have the ids of transformers, and the others."""
    process = subprocess.run(
        [f"{environment}/bin/python", str(PEER), family, str(path)],
        input=json.dumps(rows),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(process.stdout)
    options = Options({"vocab_size": found["vocab_size"]}, path)
    side, languages = m2m100._read_side(path, options, EOS)
    tokenizer = make_tokenizer(
        side.model, side.table, path, controls=("<mask>", *languages)
    )
    form = "__{}__" if family == "m2m100" else "{}"
    different, unknown = [], 0
    for (code, line), expected in zip(rows, found["ids"], strict=True):
        [ids] = tokenizer.to_ids([line])
        ids = [side.ids[id] for id in [tokenizer.find(form.format(code)), *ids]]
        unknown += m2m100.UNK in ids
        if ids != expected:
            different.append((code, line))
    print(
        f"{family}: {len(rows) - len(different):,} of {len(rows):,} lines have"
        f" the ids of {found['tokenizer']}, transformers {found['version']};"
        f" {len(languages)} languages, {tokenizer.vocab_size:,} tokens,"
        f" {unknown:,} lines with unknown characters"
    )
    for code, line in different[:5]:
        print(f"  {code}: {line!r}")


if __name__ == "__main__":
    main()
