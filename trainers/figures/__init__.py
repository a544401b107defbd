"""The figures of `kt-visualize`."""
