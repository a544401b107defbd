"""Searches that wrap another search and change it for some sentences."""
