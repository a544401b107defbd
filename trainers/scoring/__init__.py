"""Metrics of translations, their test sets, and comparisons of systems."""
