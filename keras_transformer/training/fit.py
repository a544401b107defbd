"""`compile`, `fit`, `evaluate`, `save` and `export` of a `Transformer`.

On the TensorFlow backend, a model compiled with a `SmoothedCrossEntropy` trains
with the step that this loss makes (`training/step.py`). With another backend,
another loss, a subclass that changes this loss, or its own `compute_loss`, the
model trains as in Keras. This file imports nothing from `training` at the top,
since a translator does not need it.
"""

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, MutableMapping

import keras
from absl import logging

from keras_transformer.base.backend import (
    ON_TENSORFLOW,
    Tensor,
    check_dense,
    seed_variables,
)
from keras_transformer.base.refusals import expect
from keras_transformer.commands.startup import prepared_slices
from keras_transformer.data.labels import check_class_weight, token_labels
from keras_transformer.kernels.layers import NOT_QUANTIZED

SEEDS = "seeds"  # the name of the dropout seeds in a file

# Private methods of Keras' trainer that `TokenExactTraining` overrides. A test
# checks that Keras has and calls them.
OVERRIDDEN_PRIVATE_METHODS = ("_maybe_symbolic_build",)


def check_inputs(inputs: typing.Any) -> None:
    """Raises ValueError unless inputs have dense source and target ids."""
    needed = ["source_ids", "target_ids"]
    received = f"a {type(inputs).__name__}"
    if isinstance(inputs, Mapping):
        received = f"inputs with the keys {sorted(inputs)}"
        if inputs.keys() >= {*needed}:
            for name in needed:
                check_dense(inputs[name], name)
            return
    raise ValueError(
        f"inputs must be a dictionary of {' and '.join(needed)}."
        f" Received: {received}"
    )


def _checked_batch(*args):
    """Checks a batch; returns its inputs, labels and sample weights."""
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(*args)
    check_inputs(inputs)
    expect(
        labels is not None,
        "labels int [B, T], the tokens that follow target_ids",
        "labels=None",
    )
    labels = token_labels(labels, inputs["target_ids"].shape)
    return inputs, labels, weights


def _without_class_weight(method):
    """Wraps a method of Keras to raise ValueError if given `class_weight`."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        given = signature.bind(self, *args, **kwargs).arguments
        check_class_weight(given.get("class_weight"))
        return method(self, *args, **kwargs)

    return checked


class TokenExactTraining(keras.Model):
    """A Keras model that uses `TrainStep` in `fit` and `evaluate`.

    Loss and metrics are means over the tokens of the global batch, and
    `jit_compile=True` also works under `MirroredStrategy`.

    `save` and `save_weights` also store the dropout seeds, so that a model
    loaded from a `.keras` file continues exactly where the saved one stopped. A
    file without seeds, or with another number of them, changes no seed.
    """

    _token_exact_step = None
    _needs_logits = True
    _has_metrics = False
    _requested_jit_compile: bool | str = "auto"
    _seeds_are_spread = False

    def compile(
        self,
        optimizer: typing.Any = "rmsprop",
        loss: typing.Any = None,
        loss_weights: typing.Any = None,
        metrics: typing.Any = None,
        weighted_metrics: typing.Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Compiles as `keras.Model.compile` does, except for some arguments.

        After `prepare_cpu` of `keras_transformer.commands.startup`, the rows of
        a batch are computed in parallel slices, each with its own dropout.
        Metrics and XLA need the whole batch; then a warning is logged.

        Args:
            optimizer: With `gradient_accumulation_steps` Keras averages the
                gradients of k batches, each a mean over its own tokens. This is
                not the gradient of one big batch, unless all k have equally
                many tokens. `kt-train --accumulate_steps` is exact.
            loss: `SmoothedCrossEntropy` for means over the global batch.
            loss_weights: Must be None with `SmoothedCrossEntropy`.
            jit_compile: With `SmoothedCrossEntropy`, whether XLA compiles the
                computation inside a replica. "auto" means if there is a GPU.

        Raises ValueError if `loss_weights` is given but would have no effect.
        """
        # Keras keeps the loss and the metrics of an earlier call.
        own_loss = self.loss if loss is None else loss
        token_exact = (
            ON_TENSORFLOW
            and getattr(own_loss, "has_step", False)
            and not self._overrides("compute_loss")
        )
        expect(
            not token_exact or loss_weights is None,
            "loss_weights=None with SmoothedCrossEntropy, the only loss",
            f"{loss_weights=}",
        )
        # Keras would compile the whole step, which fails on several replicas.
        # Eager execution excludes XLA, of which Keras warns.
        inside_replica = token_exact and not run_eagerly
        self._token_exact_step = None
        self._requested_jit_compile = jit_compile
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=False if inside_replica else jit_compile,
            auto_scale_loss=auto_scale_loss,
        )
        # Without metrics, a step is faster and takes less memory.
        if metrics is not None or weighted_metrics is not None:
            self._has_metrics = bool(metrics or weighted_metrics)
        self._needs_logits = self._has_metrics or self._overrides(
            "compute_metrics", "call", "decode"
        )
        num_slices, step = prepared_slices(), None
        if token_exact:
            step = self._token_exact_step = own_loss.make_step(
                self,
                inside_replica and jit_compile,
                1 if self._needs_logits else num_slices,
            )
        if num_slices > (step.num_slices if step else 1):
            logging.warning(
                "batches stay whole, without the %d slices of prepare_cpu:"
                " slices need SmoothedCrossEntropy on TensorFlow, no metrics"
                " and no XLA",
                num_slices,
            )

    def _overrides(self, *names):
        """Tells whether a subclass of `Transformer` defines one of `names`."""
        classes = type(self).__mro__
        own = classes[: classes.index(TokenExactTraining) - 1]
        return any(name in vars(cls) for cls in own for name in names)

    def get_compile_config(self):
        config = super().get_compile_config()
        if self._token_exact_step is None:
            return config
        return {**config, "jit_compile": self._requested_jit_compile}

    def compile_from_config(self, config: dict) -> None:
        # Registers our losses, metrics and schedules with Keras.
        importlib.import_module("keras_transformer.training.registration")
        config = keras.saving.deserialize_keras_object(config)
        config.pop("num_slices", None)  # version 0.2.0 saved its machine's
        self.compile(**config)
        self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force: bool = False) -> Callable:
        if self._token_exact_step is not None and not self._seeds_are_spread:
            with self.distribute_strategy.scope():
                self._token_exact_step.spread_seeds()
            self._seeds_are_spread = True
        return super().make_train_function(force)

    def stateless_call(
        self,
        trainable_variables: list,
        non_trainable_variables: list,
        *args: typing.Any,
        return_losses: bool = False,
        **kwargs: typing.Any,
    ) -> tuple:
        """Runs `keras.Layer.stateless_call`, by which Keras trains under JAX.

        Keras' own method calls `call` instead of the model, so that sublayers
        would not receive `training`, and dropout would be inactive.
        """
        others = self.non_trainable_variables
        pairs = zip(
            [*self.trainable_variables, *others],
            [*trainable_variables, *non_trainable_variables],
            strict=True,
        )
        with keras.StatelessScope(
            list(pairs), collect_losses=return_losses
        ) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else None
        state = [scope.get_current_value(variable) for variable in others]
        return (outputs, state, losses) if return_losses else (outputs, state)

    fit = _without_class_weight(keras.Model.fit)
    train_on_batch = _without_class_weight(keras.Model.train_on_batch)

    def train_step(self, *args):
        if self._token_exact_step is None:
            return super().train_step(*args)
        inputs, labels, weights = _checked_batch(*args)
        logits = None
        if self._needs_logits:
            sums, logits = self._token_exact_step.with_logits(
                inputs, labels, weights
            )
        else:
            sums = self._token_exact_step(inputs, labels, weights)
        return self._update_metrics(inputs, labels, weights, sums, logits)

    def test_step(self, *args):
        if self._token_exact_step is None:
            return super().test_step(*args)
        inputs, labels, weights = _checked_batch(*args)
        sums, logits = self._token_exact_step.measure(inputs, labels, weights)
        return self._update_metrics(inputs, labels, weights, sums, logits)

    def _update_metrics(self, inputs, labels, sample_weight, sums, logits):
        loss = next(m for m in self.metrics if m.name == "loss")
        loss.update_state(
            keras.ops.divide_no_nan(sums.loss_sum, sums.num_tokens),
            sample_weight=sums.num_tokens,
        )
        return self.compute_metrics(inputs, labels, logits, sample_weight)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Skips Keras' dry run, which fails when replicas get unequal batches.

        Model and optimizer are already built. Metrics are built at their first
        update.
        """
        if self._token_exact_step is None:
            super()._maybe_symbolic_build(iterator, data_batch)

    def save_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        super().save_own_variables(store)
        seeds = seed_variables(self)
        if seeds:
            store[SEEDS] = keras.ops.stack([v.value for v in seeds])

    def load_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        store = {name: store[name] for name in store.keys()}
        saved = store.pop(SEEDS, ())
        super().load_own_variables(store)
        seeds = seed_variables(self)
        if len(saved) == len(seeds):
            for seed, value in zip(seeds, saved, strict=True):
                seed.assign(value)
        self._seeds_are_spread = False

    def export(
        self,
        filepath: typing.Any,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: typing.Any = None,
        **kwargs: typing.Any,
    ) -> None:
        """Exports `call`, from ids to logits, as `keras.Model.export` does.

        To export a translator, with its tokenizer and its search, use
        `kt-export`.

        Args:
            input_signature: By default `source_ids` `[B, S]` and `target_ids`
                `[B, T]`, int32, of any size.
        """
        if input_signature is None:
            ids = keras.InputSpec(shape=(None, None), dtype="int32")
            input_signature = [{"source_ids": ids, "target_ids": ids}]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def quantize(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """Raises NotImplementedError: Keras could not load a quantized file."""
        raise NotImplementedError(NOT_QUANTIZED)
