"""The work of `kt-prepare` and its directory."""
