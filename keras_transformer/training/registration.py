"""Registers the classes of training with Keras, which then loads their files.

A model is made without them: `keras_transformer` and `fit` import this module
when Keras may read a file.
"""

from keras_transformer.training import loss as loss
from keras_transformer.training import metrics as metrics
from keras_transformer.training import schedule as schedule
