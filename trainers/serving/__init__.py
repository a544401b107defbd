"""The server: HTTP around translators, in shared batches."""
