"""The stages of `trainers.prepare` and their directory."""
