"""The work of `trainers.prepare` and its directory."""
