"""What is kept: the work directory, checkpoints, adapters, downloads."""
