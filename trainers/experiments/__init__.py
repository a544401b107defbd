"""The paper's experiments: published results, and what settings imply."""
