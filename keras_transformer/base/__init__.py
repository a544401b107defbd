"""Modules that all others use: files, locks, fields, refusals, the backend."""
