"""A translator that shows the faults of readers and writers of documents.

It writes capitals, keeps placeholders and aligns word by word, so whatever else
a translated document has, is the work of its reader or writer.
"""

from keras_transformer.documents.placeholders import PLACEHOLDER
from keras_transformer.translation.alignment import SpanLink, word_spans


def capitals(sentences):
    """Translations: capitals, but for placeholders."""
    translations = []
    for sentence in sentences:
        parts, read = [], 0
        for match in PLACEHOLDER.finditer(sentence):
            parts += [sentence[read : match.start()].upper(), match.group()]
            read = match.end()
        translations.append("".join([*parts, sentence[read:].upper()]))
    return translations


def align(pairs):
    """Links of words at the same index."""
    return [
        [
            SpanLink(*spans)
            for spans in zip(*map(word_spans, pair), strict=False)
        ]
        for pair in pairs
    ]
