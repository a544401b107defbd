"""Registers the classes of training, so that Keras can load files with them.

Making a model does not need them. `keras_transformer` and `fit` import this
module when Keras may read a file.
"""

from keras_transformer.training import loss as loss
from keras_transformer.training import metrics as metrics
from keras_transformer.training import schedule as schedule
