"""The work of `kt-import`."""
