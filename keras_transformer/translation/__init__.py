"""The parts of a translator: inference on ids, batching and word alignment."""
