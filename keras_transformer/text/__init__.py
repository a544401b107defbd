"""Text and tokens: the vocabulary, its tokenizer, case marks."""
