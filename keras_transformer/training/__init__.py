"""Training: losses, gradients that are exact in tokens, and the update."""
