"""Modules that all others use: files, locks, fields, errors, the backend."""
