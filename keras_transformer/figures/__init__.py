"""Attention as a page and as figures for papers; plots; their files."""
