"""Base classes of our layers, which check weights, arguments and shapes.

Keras loads, traces and calls layers in ways that their author does not see. The
classes here raise errors where the result would be wrong without notice.
"""

import inspect
import re
import typing
import warnings
from collections.abc import Callable, MutableMapping

import keras

from keras_transformer.base.backend import Tensor, is_tracing
from keras_transformer.base.refusals import expect

# Arguments of Keras' and KerasHub's layers, and what is used here instead.
_DRAWN = (
    "weights as the layer draws them; set_weights, or assign of one of its"
    " weights, sets others"
)
_MASKS = "attention_mask, such as kt.padding_mask(ids) & kt.causal_mask(ids)"
WORDS = {
    "key_dim": "d_key, the size of a key",
    "value_dim": "d_value, the size of a value",
    "intermediate_dim": "d_ff, the width of the inner layer",
    "hidden_dim": "d_model, the width of the layer",
    "input_dim": "vocab_size, the number of tokens",
    "output_dim": "d_model, the width of an embedding",
    "normalize_first": "pre_norm",
    "bias_initializer": _DRAWN,
    "kernel_initializer": _DRAWN,
    "embeddings_initializer": _DRAWN,
    "mask_zero": _MASKS,
    "key": "(query, value): keys and values come from one sequence",
    "key_mask": _MASKS,
    "mask": _MASKS,
    "padding_mask": _MASKS,
    "query_mask": _MASKS,
    "value_mask": _MASKS,
    "use_causal_mask": "attention_mask=kt.causal_mask(length)",
    "return_attention_scores": (
        "`with keras_transformer.layers.recorded_weights() as weights` around"
        " the call, and then weights[layer]"
    ),
}


BUILD = (
    "give it a method `build` that builds its layers, or call it once and use"
    " load_weights"
)


class KeptWeights(keras.layers.Layer):
    """A layer that raises ValueError if it cannot load its weights from a file.

    If Keras could not build the model that it loads, the layer is not built and
    cannot take its weights. Keras 3.15 visits a layer by several paths. Only
    the first path has weights in the file. A later path, without weights, would
    clear the error.
    """

    _misses_weights = False

    def load_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        self._misses_weights |= not self.built and len(store.keys()) > 0
        expect(
            self.built or not self._misses_weights,
            f"a model that Keras can build before it loads weights: {BUILD}",
            f"weights of the layer {self.name}, which is not built",
        )
        super().load_own_variables(store)


class TracedLayer(KeptWeights):
    """A layer whose `call` also runs on symbolic inputs.

    Keras would skip `call` wherever `compute_output_shape` suffices, and would
    refuse inputs of a wrong dtype only when the functional model runs.

    Masks are arguments: the layer neither reads nor passes on Keras' masks.

    When Keras loads a subclassed model, it calls the model on float32
    placeholders and ignores errors. Layers that were not built then lose their
    weights. So a layer whose only calls have failed refuses to load.
    """

    _failure: str | None = None  # error of a traced call; "" after a success

    def __new__(cls, *args: typing.Any, **kwargs: typing.Any):
        _check_words(cls.__name__, kwargs, cls.__init__)
        layer = super().__new__(cls, *args, **kwargs)
        # Keras would track an attribute that is set as usual.
        object.__setattr__(layer, "_own_arguments", _own(cls, args, kwargs))
        return layer

    def get_config(self) -> dict[str, typing.Any]:
        """Returns Keras' configuration, and a subclass's own plain arguments.

        Raises NotImplementedError if an argument of the subclass is not text, a
        number or None, and the subclass has no `get_config`.
        """
        config = super().get_config()
        has_own = not _is_ours(type(self).get_config)
        for name, value in self._own_arguments.items():
            if isinstance(value, str | int | float | None):
                config[name] = value
            elif not has_own:
                raise NotImplementedError(
                    f"{type(self).__name__}: expected a method get_config with"
                    f" {name}. Received: {value!r}"
                )
        return config

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        _check_words(self.name, kwargs, self.call)
        try:
            outputs = super().__call__(*args, **kwargs)
        except Exception as error:
            if self._failure is None and is_tracing(args):
                # Keras writes the arguments around the message, in bold.
                inner = re.search(r"\x1b\[1m([^\x1b]*)\x1b\[0m", str(error))
                self._failure = inner[1] if inner else str(error)
            raise
        if self._failure != "":
            self._failure = ""
        return outputs

    def load_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        expect(
            not self._failure,
            "a model that Keras can call on float32 placeholders before it"
            f" loads the weights: {BUILD}",
            f"a call of the layer {self.name} that failed: {self._failure}",
        )
        super().load_own_variables(store)

    def compute_mask(
        self, inputs: typing.Any, previous_mask: typing.Any = None
    ) -> None:
        if any(mask is not None for mask in keras.tree.flatten(previous_mask)):
            # Python shows a warning once if its text is always the same.
            warnings.warn(
                "masks of Keras, such as Embedding(mask_zero=True) makes,"
                " are not used: pass masks as arguments, such as"
                " attention_mask=padding_mask(ids)",
                stacklevel=1,
            )

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


def _own(cls, args, kwargs):
    """Returns the arguments that a user's subclass adds to our class's."""
    base = next(filter(_is_ours, cls.__mro__))
    if base is cls:
        return {}
    bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
    bound.apply_defaults()
    known = {"self", *inspect.signature(base.__init__).parameters}
    several = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return {
        name: value
        for name, value in bound.arguments.items()
        if name not in known
        and bound.signature.parameters[name].kind not in several
    }


def _is_ours(definition: typing.Any) -> bool:
    return definition.__module__.startswith("keras_transformer.")


def _check_words(
    layer: str, arguments: dict[str, typing.Any], function: Callable
) -> None:
    """Raises ValueError if an argument is one of another library's layer.

    It is allowed if `function`, which may be a subclass's, has the parameter.
    """
    for name in sorted(arguments.keys() & WORDS.keys()):
        known = name in inspect.signature(function).parameters
        expect(known, WORDS[name], name, where=layer)


def check_axes(layer: keras.Layer, x: Tensor, *axes: str) -> None:
    """Raises ValueError unless a tensor has axes such as "[B, T, D]"."""
    shape = list(x.shape)
    fits = any(one.count(",") + 1 == len(shape) for one in axes)
    expected = f"an input {' or '.join(axes)}"
    expect(fits, expected, f"shape {shape}", where=layer.name)


def check_built(layer: keras.Layer, x: typing.Any) -> None:
    """Raises ValueError if a layer has no weights yet, or if `x` is symbolic.

    In a functional model Keras would treat the weights as constants, which are
    neither trained nor saved.
    """
    expect(
        layer.built and not keras.backend.is_keras_tensor(x),
        "a call of the layer, or of a model: this method needs its weights",
        "a symbolic tensor" if layer.built else "a layer that is not built",
        where=layer.name,
    )
