"""One training step under JAX, exact in tokens, on a mesh of devices.

`update.py` defines the update. Each device computes the gradients of its
rows; they are added up once, in float32. The state goes in and comes out, so
that its memory is used again.
"""

import concurrent.futures
import typing
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_transformer import vocabulary
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import (
    SEED_STRIDE,
    StepOptions,
    average_changes,
    clipped,
    micro_batches,
    seed_variables,
    shifted_seed,
)

Shapes = tuple[tuple[int, ...], ...]  # of the arrays of a batch

AXIS = "rows"  # the axis of the mesh: devices that share the rows of a batch
REPLICATED = PartitionSpec()


class State(typing.NamedTuple):
    """The arrays that a step changes, and the frozen weights."""

    trained: list[typing.Any]  # the trainable weights
    frozen: list[typing.Any]  # the other weights
    seeds: list[typing.Any]  # of the random generators of dropout
    optimizer: list[typing.Any]
    averages: list[typing.Any]  # moving, of the trained weights; may be empty


class JaxStep:
    """The training step of a model, as a function of its state.

    The variables of model and optimizer name the arrays of the state; their
    values are not used. The optimizer is built here, and has no loss scale.
    `shardings` is a `State` with the `NamedSharding` of each array.

    Args:
        mesh: A `jax.sharding.Mesh` with the one axis `AXIS`.
        shard_parameters: Whether every device stores a part of the weights and
            of the optimizer's variables instead of all. Weights are collected
            for a step, and gradients are added up part by part.
        clock: The variable of a schedule with a clock, if it has one.
    """

    def __init__(
        self,
        model: typing.Any,
        optimizer: typing.Any,
        mesh: Mesh,
        options: StepOptions,
        shard_parameters: bool = False,
        clock: keras.Variable | None = None,
    ):
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self._optimizer = optimizer
        self._losses = TokenLosses(model, options)
        self._mesh = mesh
        self._options = options
        self._clock = clock
        self.variables = State(
            list(model.trainable_variables),
            [v for v in model.weights if not v.trainable],
            seed_variables(model),
            list(optimizer.variables),
            list(model.trainable_variables) if options.ema_decay else [],
        )
        self._specs = jax.tree.map(
            lambda variable: self._spec(variable, shard_parameters),
            self.variables,
        )
        self._specs = self._specs._replace(
            seeds=[REPLICATED for _ in self.variables.seeds]
        )
        self.shardings = jax.tree.map(self._sharding, self._specs)
        everywhere = self._sharding(REPLICATED)
        self._compiled = jax.jit(
            self._steps,
            donate_argnums=0,
            out_shardings=(self.shardings, everywhere),
        )
        self._programs: dict[Shapes, concurrent.futures.Future] = {}

    # For the caller

    def place(self, values: State) -> State:
        """The arrays of a state on the devices, from NumPy arrays.

        With several hosts, each gives the same arrays.
        """
        return jax.tree.map(place, values, self.shardings)

    def place_rows(
        self, inputs: dict[str, np.ndarray], labels: np.ndarray
    ) -> tuple[dict[str, jax.Array], jax.Array]:
        """This host's rows of one batch, or of several, on its devices.

        Several batches of one shape have an axis of steps before the others.
        """
        axes = (None,) * (labels.ndim - 2) + (AXIS,)
        sharding = self._sharding(PartitionSpec(*axes))
        return jax.tree.map(
            lambda rows: jax.make_array_from_process_local_data(sharding, rows),
            (inputs, labels),
        )

    def __call__(
        self,
        state: State,
        inputs: dict[str, jax.Array],
        labels: jax.Array,
        elapsed: float = 0.0,
    ) -> tuple[State, jax.Array]:
        """Makes the updates of one batch, or of several; does not wait.

        The arrays of the given state cannot be used afterwards. `elapsed` is
        for a schedule with a clock: the share of the time that has passed.

        Also returns float32 `[4]`, sums over all tokens of the global batches:
        smoothed loss, loss, target and source tokens.
        """
        compiled = self._programs.get(_shapes_of(inputs, labels))
        program = compiled.result() if compiled else self._compiled
        return program(state, inputs, labels, np.float32(elapsed))

    def compile(
        self,
        state: State,
        batches: Iterable[tuple[dict[str, jax.Array], jax.Array]],
        num_threads: int,
    ) -> None:
        """Compiles the programs of batches, a batch of each shape.

        `num_threads` programs are compiled at the same time. A call with such
        a batch raises what the compiler has raised. Programs of other shapes
        are compiled by the call.
        """
        pool = concurrent.futures.ThreadPoolExecutor(num_threads)
        try:
            for inputs, labels in batches:  # traced in turn: Keras has state
                lowered = self.lower(state, inputs, labels, np.float32(0))
                shapes = _shapes_of(inputs, labels)
                self._programs[shapes] = pool.submit(lowered.compile)
            concurrent.futures.wait(self._programs.values())
        finally:
            pool.shutdown(cancel_futures=True)

    def lower(self, *arguments: typing.Any) -> typing.Any:
        """`jax.jit(...).lower` of the call, to compile it without a run."""
        return self._compiled.lower(*arguments)

    # The stages of a step

    def _steps(self, state, inputs, labels, elapsed):
        """The call, as JAX compiles it."""
        if labels.ndim == 2:
            return self._step(state, inputs, labels, elapsed)
        state, totals = jax.lax.scan(
            lambda state, batch: self._step(state, *batch, elapsed),
            state,
            (inputs, labels),
        )
        return state, jnp.sum(totals, axis=0)

    def _step(self, state, inputs, labels, elapsed):
        """Gradients -> clip -> update."""
        sharded_rows = PartitionSpec(AXIS)
        gradients, seeds, totals = jax.shard_map(
            self._on_device,
            mesh=self._mesh,
            in_specs=(
                REPLICATED,
                REPLICATED,
                REPLICATED,
                sharded_rows,
                sharded_rows,
            ),
            out_specs=(self._specs.trained, REPLICATED, REPLICATED),
            check_vma=False,
        )(state.trained, state.frozen, state.seeds, inputs, labels)
        if self._options.clip_norm:
            gradients = clipped(gradients, self._options.clip_norm)
        state = self._updated(state, gradients, elapsed)
        return state._replace(seeds=seeds), totals

    def _on_device(self, trained, frozen, seeds, inputs, labels):
        """Sums over the devices; runs on each of them with its own rows."""
        offset = jax.lax.axis_index(AXIS) * SEED_STRIDE
        own = [shifted_seed(seed, offset) for seed in seeds]
        real = labels != vocabulary.PAD
        tokens = jnp.sum(real, dtype=jnp.float32)
        global_tokens = jnp.maximum(jax.lax.psum(tokens, AXIS), 1.0)
        gradients, own, sums = self._gradients(
            trained, frozen, own, inputs, labels, global_tokens
        )
        sources = inputs["source_ids"] != vocabulary.PAD
        totals = jnp.stack([*sums, tokens, jnp.sum(sources, dtype=jnp.float32)])
        gradients = [
            _sum_over_devices(gradient, spec)
            for gradient, spec in zip(
                gradients, self._specs.trained, strict=True
            )
        ]
        seeds = [shifted_seed(seed, -offset) for seed in own]
        return gradients, seeds, jax.lax.psum(totals, AXIS)

    def _gradients(self, trained, frozen, seeds, inputs, labels, global_tokens):
        """A device's share of the gradient, next seeds, sums of two losses."""
        compute = jax.grad(self._share_of_loss, has_aux=True)

        def of_rows(
            seeds: list[jax.Array],
            inputs: dict[str, jax.Array],
            labels: jax.Array,
        ) -> tuple:
            gradients, (seeds, sums) = compute(
                trained, frozen, seeds, inputs, labels, global_tokens
            )
            return gradients, seeds, sums

        if self._options.accumulate_steps == 1:
            return of_rows(seeds, inputs, labels)

        def add_micro_batch(so_far: tuple, rows: tuple) -> tuple:
            gradients, seeds, sums = so_far
            more, seeds, more_sums = of_rows(seeds, *rows)
            added = jax.tree.map(jnp.add, (gradients, sums), (more, more_sums))
            return (added[0], seeds, added[1]), None

        parts = micro_batches((inputs, labels), self._options.accumulate_steps)
        zeros = jax.tree.map(jnp.zeros_like, trained)
        nothing = jnp.zeros(2, jnp.float32)
        totals, _ = jax.lax.scan(
            add_micro_batch, (zeros, seeds, nothing), parts
        )
        return totals

    def _share_of_loss(
        self, trained, frozen, seeds, inputs, labels, global_tokens
    ):
        """Sum of the rows' losses / tokens of the global batch."""
        variables = self.variables
        pairs = zip(
            variables.trained + variables.frozen + variables.seeds,
            trained + frozen + seeds,
            strict=True,
        )
        with keras.StatelessScope(pairs, collect_losses=True) as scope:
            losses, nll = self._losses(inputs, labels, training=True)
            seeds = [scope.get_current_value(v) for v in variables.seeds]
        real = labels != vocabulary.PAD
        sums = jnp.stack(
            [jnp.sum(jnp.where(real, x, 0.0)) for x in (losses, nll)]
        )
        return sums[0] / global_tokens, (seeds, sums)

    def _updated(self, state, gradients, elapsed):
        """The state after the update of the optimizer."""
        variables, optimizer = self.variables, self._optimizer
        pairs = list(
            zip(
                variables.trained + variables.optimizer,
                state.trained + state.optimizer,
                strict=True,
            )
        )
        if self._clock is not None:
            pairs.append((self._clock, elapsed))
        with keras.StatelessScope(pairs) as scope:
            optimizer.apply(gradients, variables.trained)
            trained, of_optimizer = (
                [scope.get_current_value(v) for v in group]
                for group in (variables.trained, variables.optimizer)
            )
            updates = scope.get_current_value(optimizer.iterations)
        state = state._replace(trained=trained, optimizer=of_optimizer)
        if not self._options.ema_decay:
            return state
        changes = average_changes(
            state.averages, trained, updates, self._options.ema_decay
        )
        averages = jax.tree.map(jnp.add, state.averages, changes)
        return state._replace(averages=averages)

    # Sharding

    def _sharding(self, spec):
        return NamedSharding(self._mesh, spec)

    def _spec(self, variable, shard_parameters):
        """Where a variable is divided: its longest axis that divides."""
        size = self._mesh.shape[AXIS]
        axes = [
            axis
            for axis, length in enumerate(variable.shape)
            if length % size == 0
        ]
        if not shard_parameters or not axes or size == 1:
            return REPLICATED
        longest = max(axes, key=lambda axis: variable.shape[axis])
        return PartitionSpec(*[None] * longest, AXIS)


def place(value: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array on the devices of a sharding, from this host's copy."""
    value = np.asarray(value)
    return jax.make_array_from_callback(
        value.shape, sharding, lambda index: value[index]
    )


def _shapes_of(inputs, labels):
    return tuple(x.shape for x in jax.tree.leaves((inputs, labels)))


def _sum_over_devices(gradient, spec):
    """The sum of a gradient, all of it or, if sharded, this device's part."""
    if spec == REPLICATED:
        return jax.lax.psum(gradient, AXIS)
    return jax.lax.psum_scatter(
        gradient, AXIS, scatter_dimension=len(spec) - 1, tiled=True
    )
