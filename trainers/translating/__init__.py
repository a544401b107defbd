"""The work of commands that translate lines, documents and files in shards."""
