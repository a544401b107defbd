"""Files: the work directory, checkpoints, adapters, downloads, YAML."""
