"""Exports of a translator that run without this package."""
