"""The paper's experiments: published results, and formulas over settings."""
