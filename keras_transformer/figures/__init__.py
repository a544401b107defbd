"""Draws attention as a page or as figures for papers, and writes the files."""
