"""Installs an Argos package, and translates with it and with CTranslate2.

    .venv-peers/argos/bin/python tests/programs/argos_translate.py PACKAGE

Argos Translate looks for its directories under HOME. The input is a JSON list
of lines. The output has its translations, and those of CTranslate2, called like
Argos Translate does according to docs/exports.md. Sentences are not split,
since MiniSBD's models are on the network.
"""

import json
import sys

import ctranslate2
import sentencepiece
from argostranslate import package, sbd, settings, translate

sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
lines = json.load(sys.stdin)
package.install_from_path(sys.argv[1])
[installed] = package.get_installed_packages()
codes = installed.from_code, installed.to_code
theirs = [translate.translate(line, *codes) for line in lines]

pieces = sentencepiece.SentencePieceProcessor(
    model_file=str(installed.package_path / "sentencepiece.model")
)
translator = ctranslate2.Translator(
    str(installed.package_path / "model"), compute_type=settings.compute_type
)
found = translator.translate_batch(
    [pieces.encode(line, out_type=str) for line in lines],
    beam_size=4,
    length_penalty=0.2,
    replace_unknowns=True,
)
ours = [pieces.decode(result.hypotheses[0]) for result in found]
json.dump(
    {
        "names": [installed.from_name, installed.to_name],
        "readme": installed.get_readme(),
        "argos": theirs,
        "ctranslate2": ours,
        "computed_in": translator.compute_type,
    },
    sys.stdout,
)
