"""The base class of layers whose `call` must run on symbolic inputs."""

import keras


class TracedLayer(keras.layers.Layer):
    """A layer whose `call` also runs on symbolic inputs.

    Keras would skip it wherever `compute_output_shape` says enough, and inputs
    of a wrong dtype would be refused only when the functional model is run.
    """

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
