"""A translator without a model, for tests of the code around translators.

`main` is kt-translate-corpus with this translator, for `commands.Processes`.
The environment variable ECHO_SECONDS is its time for a chunk of lines.
"""

import copy
import os
import time
import types

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import Direction
from keras_transformer.translation.requests import Terminology
from keras_transformer.translation.results import Translation
from trainers import translate_corpus
from trainers.translating import shards


class Echo:
    """Translates each line into capitals, after its seed if it samples.

    Args:
        choice: A `TranslatorChoice`. Its work directory names the checkpoint.
    """

    max_source_length = 16
    engine = "native"
    jit_compile = False
    direction = Direction()
    shortlist = None
    terminology = Terminology()

    def __init__(self, choice):
        self.checkpoint = f"{choice.options.workdir}/ckpt-1"
        self.decoding = DecodingConfig(**choice.search)
        self.model = types.SimpleNamespace(
            config=TransformerConfig(), dtype="float32"
        )
        self.models = [self.model]
        self.tokenizer = types.SimpleNamespace(files={})

    def with_seed(self, seed):
        other = copy.copy(self)
        other.seed = seed
        return other

    def search(self, requests, num_best):
        time.sleep(float(os.environ.get("ECHO_SECONDS", "0")))
        number = num_best or 1
        return [self._translate(request.text, number) for request in requests]

    def _translate(self, string, number):
        text = string.upper()
        if self.decoding.sampling:
            text = f"{self.seed} {text}"
        notes = ["is long"] if string.startswith("long") else []
        texts = [text + "!" * i for i in range(number)]
        return Translation(texts, [[]] * number, [0.0] * number, notes)


def main(argv):
    shards.open_translator = Echo
    translate_corpus.main(argv)
