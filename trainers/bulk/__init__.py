"""Translation of a file in shards, by one process or by many."""
