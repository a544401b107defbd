"""The figures of `trainers.visualize`."""
