"""Text and tokens: the vocabulary, its tokenizer, marks of case."""
