"""The work of `kt-prepare`, and its output directory."""
