"""From sentence pairs to training batches of a few fixed shapes.

pairs      sources: parallel files and TFDS, pairs of strings
corpus     the ids of all pairs, once, flat in memory
buckets    the few shapes of batches, by length
languages  the languages of a model, and how a multilingual model selects them
labels     labels, and the decoder input that predicts them
mixture    which pairs an epoch has if corpora are mixed
batches    the order of an epoch, padding, `tf.data`
cleaning   the rules of `kt-prepare`: which pairs are kept
shards     the files that `kt-prepare` writes, memory-mapped
"""
