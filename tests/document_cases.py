"""Helpers of the tests of documents: marked words, and other translators."""

import re
import time

from capitals import align, capitals

from keras_transformer import documents
from keras_transformer.translation.alignment import SpanLink, word_spans


def marked(text):
    """Returns the source and the translation of a text with marked «words».

    The translation has marked words in capitals, and `b` instead of «a→b».
    """
    words = re.compile("(?s)«([^«→]*)(?:→(.*?))?»")
    return words.sub(r"\1", text), words.sub(
        lambda m: m[1].upper() if m[2] is None else m[2], text
    )


def translate_with(document, answer):
    """Translates by a function of sentences, without word alignments."""
    return documents.translate(
        document, answer, lambda pairs: [[] for _ in pairs]
    )


def any_links(chosen):
    """Returns a function that aligns words at random, some with none."""

    def link(pairs):
        return [
            [
                SpanLink(chosen.choice(word_spans(source)), span)
                for span in word_spans(translation)
                if chosen.random() < 0.8
            ]
            for source, translation in pairs
        ]

    return link


def takes_linear_time(data, format):
    """Checks that a document takes at most 5 CPU seconds.

    In linear time it takes about one, in quadratic time 10 to 100.
    """
    begin = time.process_time()
    document = documents.parse(
        data, format, "en", lambda s: len(s) < 400, target="de"
    )
    documents.translate(document, capitals, align)
    assert time.process_time() - begin < 5
