"""The work of commands that translate: lines, documents, files in shards."""
