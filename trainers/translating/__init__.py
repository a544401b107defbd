"""The work of `trainers.translate`: lines, documents, files in shards."""
