"""Searches around another one, which they change for some sentences."""
