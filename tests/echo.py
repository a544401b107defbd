"""A translator without a model, for tests of what happens around one.

`main` is trainers.translate with it, for `commands.Processes`. The environment
variable ECHO_SECONDS is the time that it takes for a chunk of lines.
"""

import os
import random
import time
import types

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.translator import Translation
from trainers import translate
from trainers.run.options import TranslatorOptions
from trainers.translating import shards


class Echo:
    """Says each line in capitals, after a sample if it samples.

    Args:
        arguments: The command line. Its work directory has the checkpoint
            ckpt-1.
    """

    max_source_length = 16
    jit_compile = False
    source_tags = ()
    shortlist = None

    def __init__(self, arguments):
        workdir = arguments.build(TranslatorOptions).workdir
        self.checkpoint = f"{workdir}/ckpt-1"
        self.decoding = arguments.build(DecodingConfig)
        self.model = types.SimpleNamespace(
            config=TransformerConfig(), dtype="float32"
        )
        self.tokenizer = types.SimpleNamespace(files={})

    def reseed(self, seed):
        self._random = random.Random(seed)

    def search(self, requests, num_best):
        time.sleep(float(os.environ.get("ECHO_SECONDS", "0")))
        return [self._translate(request.text) for request in requests]

    def _translate(self, string):
        text = string.upper()
        if self.decoding.sampling:
            text = f"{self._random.random()} {text}"
        notes = ["is long"] if string.startswith("long") else []
        return Translation([text], [[]], [0.0], notes)


def main(argv):
    shards.load_translator = Echo
    translate.main(argv)
