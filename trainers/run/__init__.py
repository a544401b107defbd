"""One run of a training: from its configuration to its last checkpoint."""
