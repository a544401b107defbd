"""Texts of which a vocabulary can write everything."""

from keras_transformer.translation.requests import read_text


def readable(tokenizer, texts):
    """Returns the indices of texts that are read as they are.

    What is not read has its own tests; other systems and the graphs of exports
    read it as unknown tokens.
    """
    source = tokenizer.source
    return [i for i, t in enumerate(texts) if read_text(source, t).text == t]
