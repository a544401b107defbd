"""The translation server: an HTTP API whose requests share batches."""
