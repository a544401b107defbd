"""A translator that reveals faults of document readers and writers.

It writes capitals, keeps placeholders and aligns word by word, so any other
change in a translated document comes from its reader or writer.
"""

from keras_transformer.documents.placeholders import PLACEHOLDER
from keras_transformer.translation.alignment import SpanLink, word_spans


def capitals(sentences):
    """Translates sentences into capitals, except for placeholders."""
    translations = []
    for sentence in sentences:
        parts, read = [], 0
        for match in PLACEHOLDER.finditer(sentence):
            parts += [sentence[read : match.start()].upper(), match.group()]
            read = match.end()
        translations.append("".join([*parts, sentence[read:].upper()]))
    return translations


def align(pairs):
    """Links the words at the same index."""
    return [
        [
            SpanLink(*spans)
            for spans in zip(*map(word_spans, pair), strict=False)
        ]
        for pair in pairs
    ]
