"""One training step under JAX, exact in tokens, on a mesh of devices.

`update.py` defines the update. Each device computes the gradients of its rows,
which are added up once, in float32. The state is an argument and a result, so
that its memory is reused.

All weights are stored one after the other in a flat array, and so are their
moments and averages. They are cast and updated at once, instead of by 300
kernels that take longer to start than to run.
"""

import concurrent.futures
import functools
import itertools
import math
import typing
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_transformer.base.backend import seed_variables
from keras_transformer.kernels.adam import FusedAdam
from keras_transformer.kernels.attention import Implementation, fused_attention
from keras_transformer.kernels.layers import drawn_keys
from keras_transformer.text import vocabulary
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import (
    SEED_STRIDE,
    StepOptions,
    average_changes,
    clipped,
    micro_batches,
    shifted_seed,
)

Shapes = tuple[tuple[int, ...], ...]  # of the arrays of a batch

AXIS = "rows"  # the axis of the mesh: devices that share the rows of a batch
REPLICATED = PartitionSpec()


class State(typing.NamedTuple):
    """The arrays that a step changes, and the frozen weights.

    `JaxStep.variables` has lists of Keras variables instead. The gradient reads
    no empty array: on several devices, JAX 0.11's compiler would crash.
    """

    trained: typing.Any  # the trainable weights: one flat array
    frozen: typing.Any  # the other weights: one flat array
    seeds: typing.Any  # of the random generators of dropout: [N or 1, 2]
    optimizer: list[typing.Any]  # its scalars, then two moments, flat
    averages: typing.Any  # moving averages of the trained weights, or empty


class Flat:
    """The layout of arrays in a flat array whose length is a multiple.

    >>> flat = Flat([(2, 2), (3,)], multiple=4)
    >>> flat.part(np.arange(8.0), 1), flat.length
    (array([4., 5., 6.]), 8)
    """

    def __init__(self, shapes: Iterable[tuple[int, ...]], multiple: int = 1):
        self.shapes = list(map(tuple, shapes))
        sizes = map(math.prod, self.shapes)
        *self.starts, size = itertools.accumulate(sizes, initial=0)
        self.length = -(-size // multiple) * multiple
        self._rest = np.zeros(self.length - size, np.float32)

    def join(
        self, arrays: Iterable[typing.Any], numpy: typing.Any = jnp
    ) -> typing.Any:
        """Joins arrays of JAX, or of `numpy`, and pads the end with zeros."""
        parts = [array.reshape(-1) for array in arrays]
        if self._rest.size or not parts:  # see `State`
            parts.append(self._rest)
        return numpy.concatenate(parts)

    def part(self, flat: typing.Any, index: int) -> typing.Any:
        """Returns one array of a flat array. With NumPy, it is a view."""
        start, shape = self.starts[index], self.shapes[index]
        return flat[start : start + math.prod(shape)].reshape(shape)

    def split(self, flat: typing.Any) -> list[typing.Any]:
        """Splits a flat array into the arrays that `join` joined."""
        return [self.part(flat, index) for index in range(len(self.shapes))]


class JaxStep:
    """The training step of a model, as a function of its state.

    The state's arrays correspond to the variables of model and optimizer, whose
    values are not used after `initial_state`. The optimizer is built here.
    `variables` is a `State` of these variables. `layout` is a `State` of
    `jax.ShapeDtypeStruct`s, which describe the arrays on the devices.

    Args:
        optimizer: A `FusedAdam`, without loss scaling.
        mesh: A `jax.sharding.Mesh` with the single axis `AXIS`.
        shard_parameters: Whether each device stores only a part of the weights
            and of the optimizer's variables. Weights are gathered for a step,
            and gradients are added up part by part.
        clock: The variable `elapsed` of a timed schedule, or None.
    """

    def __init__(
        self,
        model: typing.Any,
        optimizer: FusedAdam,
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
        self._attention = attention_of(mesh)
        self.variables = State(
            list(model.trainable_variables),
            [v for v in model.weights if not v.trainable],
            seed_variables(model),
            list(optimizer.variables),
            list(model.trainable_variables) if options.ema_decay else [],
        )
        self._spec = PartitionSpec(AXIS) if shard_parameters else REPLICATED
        multiple = mesh.shape[AXIS] if shard_parameters else 1
        self._trained, self._frozen, self._averages = (
            Flat([v.shape for v in variables], multiple)
            for variables in (
                self.variables.trained,
                self.variables.frozen,
                self.variables.averages,
            )
        )
        self._scalars = [v for v in optimizer.variables if not v.shape]
        self.layout = self._layout()
        everywhere = self._sharding(REPLICATED)
        self._compiled = jax.jit(
            self._steps,
            donate_argnums=0,
            out_shardings=(
                jax.tree.map(lambda array: array.sharding, self.layout),
                everywhere,
            ),
        )
        self._programs: dict[Shapes, concurrent.futures.Future] = {}

    # For the caller

    def initial_state(self) -> State:
        """Makes the state from the values of the variables."""
        values = jax.tree.map(lambda v: np.asarray(v.value), self.variables)
        scalars = values.optimizer[: len(self._scalars)]
        moments = values.optimizer[len(self._scalars) :]
        join = functools.partial(self._trained.join, numpy=np)
        return self.place(
            State(
                join(values.trained),
                self._frozen.join(values.frozen, np),
                np.array(values.seeds or [[0, 0]], np.uint32),
                [*scalars, join(moments[::2]), join(moments[1::2])],
                self._averages.join(values.averages, np),
            )
        )

    def place(self, values: State) -> State:
        """Places a state of NumPy arrays on the devices.

        With several hosts, each must give the same arrays.
        """
        return jax.tree.map(
            lambda value, array: place(value, array.sharding),
            values,
            self.layout,
        )

    def value(self, state: State, field: str, index: int) -> np.ndarray:
        """Returns the value of variable `index` in a field of `variables`.

        If the state has NumPy arrays, the value is a view.
        """
        arrays = getattr(state, field)
        if field == "optimizer":
            number = len(self._scalars)
            if index < number:
                return np.asarray(arrays[index])
            index, moment = divmod(index - number, 2)
            arrays = arrays[number + moment]
        if field == "seeds":
            return np.asarray(arrays)[index]
        flat = self._frozen if field == "frozen" else self._trained
        return flat.part(np.asarray(arrays), index)

    def place_rows(
        self, inputs: dict[str, np.ndarray], labels: np.ndarray
    ) -> tuple[dict[str, jax.Array], jax.Array]:
        """Places this host's rows of one batch, or of several, on its devices.

        Several batches of one shape have a first axis of steps.
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
        """Starts the updates of one batch, or of several, without waiting.

        The arrays of the given state cannot be used afterwards. `elapsed` is
        the share of the time that has passed, for a timed schedule.

        Returns the new state and float32 `[4]`, sums over all tokens of the
        global batches: smoothed loss, loss, target tokens and source tokens.
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
        """Compiles a program for each of the batches, one batch per shape.

        `num_threads` programs are compiled at the same time. If one fails, a
        call with its shape raises the compiler's error. A call with another
        shape compiles its own program.
        """
        pool = concurrent.futures.ThreadPoolExecutor(num_threads)
        try:
            for inputs, labels in batches:  # not in parallel: Keras has state
                lowered = self.lower(state, inputs, labels, np.float32(0))
                shapes = _shapes_of(inputs, labels)
                self._programs[shapes] = pool.submit(lowered.compile)
            concurrent.futures.wait(self._programs.values())
        finally:
            pool.shutdown(cancel_futures=True)

    def lower(self, *arguments: typing.Any) -> typing.Any:
        """Lowers the call for compilation, as `jax.jit(...).lower` does."""
        return self._compiled.lower(*arguments)

    # The stages of a step

    def _steps(self, state, inputs, labels, elapsed):
        """Runs the steps of one call: one, or a scan over several batches."""
        if labels.ndim == 2:
            return self._step(state, inputs, labels, elapsed)
        state, totals = jax.lax.scan(
            lambda state, batch: self._step(state, *batch, elapsed),
            state,
            (inputs, labels),
        )
        return state, jnp.sum(totals, axis=0)

    def _step(self, state, inputs, labels, elapsed):
        """Runs one step: gradients -> clip -> update."""
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
            out_specs=(self._spec, REPLICATED, REPLICATED),
            check_vma=False,
        )(state.trained, state.frozen, state.seeds, inputs, labels)
        if self._options.clip_norm:
            [gradients] = clipped([gradients], self._options.clip_norm)
        state = self._updated(state, gradients, elapsed)
        return state._replace(seeds=seeds), totals

    def _on_device(self, trained, frozen, seeds, inputs, labels):
        """Computes gradients, seeds and totals, summed over the devices.

        It runs on each device, with the device's own rows.
        """
        offset = jax.lax.axis_index(AXIS) * SEED_STRIDE
        own = shifted_seeds(seeds, offset)
        real = labels != vocabulary.PAD
        tokens = jnp.sum(real, dtype=jnp.float32)
        global_tokens = jnp.maximum(jax.lax.psum(tokens, AXIS), 1.0)
        gradients, own, sums = self._gradients(
            trained, frozen, own, inputs, labels, global_tokens
        )
        sources = inputs["source_ids"] != vocabulary.PAD
        totals = jnp.stack([*sums, tokens, jnp.sum(sources, dtype=jnp.float32)])
        if self._spec == REPLICATED:
            gradients = jax.lax.psum(gradients, AXIS)
        else:  # this device's part of the sum
            gradients = jax.lax.psum_scatter(gradients, AXIS, tiled=True)
        seeds = shifted_seeds(own, -offset)
        return gradients, seeds, jax.lax.psum(totals, AXIS)

    def _gradients(self, trained, frozen, seeds, inputs, labels, global_tokens):
        """Computes a device's gradient share, next seeds and sums of losses."""
        compute = jax.grad(self._share_of_loss, has_aux=True)
        weights = self._trained.split(trained)

        def of_rows(
            seeds: jax.Array, inputs: dict[str, jax.Array], labels: jax.Array
        ) -> tuple:
            gradients, (seeds, sums) = compute(
                weights, frozen, seeds, inputs, labels, global_tokens
            )
            return self._trained.join(gradients), seeds, sums

        if self._options.accumulate_steps == 1:
            return of_rows(seeds, inputs, labels)

        def add_micro_batch(so_far: tuple, rows: tuple) -> tuple:
            gradients, seeds, sums = so_far
            more, seeds, more_sums = of_rows(seeds, *rows)
            added = jax.tree.map(jnp.add, (gradients, sums), (more, more_sums))
            return (added[0], seeds, added[1]), None

        parts = micro_batches((inputs, labels), self._options.accumulate_steps)
        zeros = jnp.zeros_like(trained)
        nothing = jnp.zeros(2, jnp.float32)
        totals, _ = jax.lax.scan(
            add_micro_batch, (zeros, seeds, nothing), parts
        )
        return totals

    def _share_of_loss(
        self, weights, frozen, seeds, inputs, labels, global_tokens
    ):
        """Computes the rows' loss sum divided by `global_tokens`.

        Also returns the next seeds and the sums of losses, `[2]`.
        """
        variables = self.variables
        rows = [*seeds][: len(variables.seeds)]
        pairs = zip(
            variables.trained + variables.frozen + variables.seeds,
            [*weights, *self._frozen.split(frozen), *rows],
            strict=True,
        )
        with (
            fused_attention(self._attention),
            keras.StatelessScope(pairs, collect_losses=True) as scope,
            drawn_keys(variables.seeds, seeds),
        ):
            losses, nll = self._losses(inputs, labels, training=True)
            after = [scope.get_current_value(v) for v in variables.seeds]
        seeds = jnp.stack(after) if after else seeds
        real = labels != vocabulary.PAD
        sums = jnp.stack(
            [jnp.sum(jnp.where(real, x, 0.0)) for x in (losses, nll)]
        )
        return sums[0] / global_tokens, (seeds, sums)

    def _updated(self, state, gradient, elapsed):
        """Returns the state after the optimizer's update."""
        optimizer, scalars = self._optimizer, self._scalars
        *values, momentum, velocity = state.optimizer
        pairs = list(zip(scalars, values, strict=True))
        if self._clock is not None:
            pairs.append((self._clock, elapsed))
        with keras.StatelessScope(pairs) as scope:
            trained, *moments = optimizer.updated(
                state.trained, momentum, velocity, gradient, self._decaying()
            )
            values = [scope.get_current_value(v) for v in scalars]
            updates = scope.get_current_value(optimizer.iterations)
        state = state._replace(trained=trained, optimizer=values + moments)
        if not self._options.ema_decay:
            return state
        [change] = average_changes(
            [state.averages], [trained], updates, self._options.ema_decay
        )
        return state._replace(averages=state.averages + change)

    def _decaying(self):
        """Tells which weights decay, bool `[P]`, or None if none do."""
        if self._optimizer.weight_decay is None:
            return None
        return 0 < self._trained.join(
            jnp.full(v.shape, self._optimizer.decays(v), jnp.float32)
            for v in self.variables.trained
        )

    # The arrays of the state

    def _layout(self):
        """Makes a `State` of `jax.ShapeDtypeStruct`s, with shardings."""

        def array(shape, dtype, spec=REPLICATED):
            sharding = self._sharding(spec)
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

        trained, frozen, averages = (
            array((flat.length,), "float32", self._spec)
            for flat in (self._trained, self._frozen, self._averages)
        )
        scalars = [array((), v.dtype) for v in self._scalars]
        seeds = array((len(self.variables.seeds) or 1, 2), "uint32")
        return State(
            trained, frozen, seeds, [*scalars, trained, trained], averages
        )

    def _sharding(self, spec):
        return NamedSharding(self._mesh, spec)


def attention_of(mesh: Mesh) -> Implementation:
    """Chooses the implementation of attention for `fused_attention`.

    A GPU of this process tries cuDNN first, since the versions of its driver
    and of cuDNN also decide whether it runs.
    """
    device = mesh.devices.flat[0]
    if device.platform != "gpu" or "rocm" in device.client.platform_version:
        return None
    if float(device.compute_capability) < 8:
        return None
    return "cudnn" if runs_attention(device, "cudnn") else None


def runs_attention(
    device: jax.Device, implementation: typing.Literal["xla", "cudnn"]
) -> bool:
    """Tells whether attention and its gradient run on a device; warns if not.

    Devices of other machines are not tried: True is returned.
    """
    if device not in jax.local_devices():
        return True  # the program is for another machine
    heads = jax.device_put(jnp.ones((1, 8, 1, 64), "bfloat16"), device)
    mask = jax.device_put(jnp.ones((1, 1, 8, 8), "bool"), device)

    def total(x):
        return jax.nn.dot_product_attention(
            x, x, x, mask=mask, implementation=implementation
        ).sum()

    try:
        jax.block_until_ready(jax.jit(jax.grad(total))(heads))
    except Exception as error:  # its class depends on JAX's version
        reason = str(error).split("\n")[0]
        logging.warning("attention is computed without cuDNN: %s", reason)
        return False
    return True


def place(value: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Places this host's copy of an array on the devices by `sharding`."""
    value = np.asarray(value)
    return jax.make_array_from_callback(
        value.shape, sharding, lambda index: value[index]
    )


def _shapes_of(inputs, labels):
    return tuple(x.shape for x in jax.tree.leaves((inputs, labels)))


def shifted_seeds(seeds: jax.Array, offset: jax.Array) -> jax.Array:
    """Applies `shifted_seed` to each row of `seeds`, `[N, 2]`."""
    return jax.vmap(shifted_seed, (0, None))(seeds, offset)
