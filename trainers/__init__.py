"""Commands that train, average, translate and evaluate."""
