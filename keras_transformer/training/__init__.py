"""Training: losses, gradients that are exact in tokens, and the update."""

# Importing them registers their classes with Keras, which then loads files.
from keras_transformer.training import loss as loss
from keras_transformer.training import metrics as metrics
from keras_transformer.training import schedule as schedule
