"""Files of sentence pairs."""
