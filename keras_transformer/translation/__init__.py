"""The parts of a translator: inference on ids, batching, word alignment."""
