"""What all the rest stands on: files, locks, fields, refusals, the backend."""
