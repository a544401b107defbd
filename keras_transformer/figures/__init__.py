"""Figures: attention as a page and as SVG, plots, and the files they go to."""
