"""The work of the commands that score, tune and align, and their test sets."""
