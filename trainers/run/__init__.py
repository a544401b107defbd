"""A training run, from its configuration to its last checkpoint."""
