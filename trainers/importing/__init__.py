"""The work of `trainers.import_model`."""
