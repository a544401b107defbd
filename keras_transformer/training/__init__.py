"""Training: losses, gradients averaged exactly over tokens, and the update."""
