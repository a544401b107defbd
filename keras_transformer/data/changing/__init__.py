"""Corpora that differ from epoch to epoch: mixtures, modifiers, subwords."""
