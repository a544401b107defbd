"""One training step, exact in tokens: `fit`, XLA, replicas, files, backends."""

import functools
import json
import pathlib
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import run_python
from later import later
from strategies_test import SIZES, two_replicas

import keras_transformer as kt
from keras_transformer.base.backend import seed_variables
from keras_transformer.kernels.cross_entropy import smoothed_cross_entropy
from keras_transformer.kernels.projected_loss import projected_r_drop
from keras_transformer.training import fit as fit_module
from keras_transformer.training import gradients as gradients_module
from keras_transformer.training.gradients import StepSums
from keras_transformer.training.rematerialization import REMATERIALIZE
from keras_transformer.training.step import TrainStep, spread_seeds
from keras_transformer.training.token_losses import TokenLosses
from keras_transformer.training.update import (
    StepOptions,
)

PROGRAMS = pathlib.Path(__file__).parents[1] / "programs"

# Weights of rows and of tokens, none like another.
ROW_WEIGHTS = np.arange(1, 7, dtype="float32") / 4
TOKEN_WEIGHTS = np.arange(24, dtype="float32").reshape(6, 4) / 8


def batch(rows=6, seed=0):
    """Makes pairs whose first half is short: replicas get unequal tokens."""
    random = np.random.default_rng(seed)
    source = random.integers(4, 16, (rows, 5)).astype("int32")
    labels = random.integers(4, 16, (rows, 4)).astype("int32")
    labels[: rows // 2, 1:] = 0
    target = np.concatenate([np.ones((rows, 1), "int32"), labels[:, :-1]], 1)
    return {"source_ids": source, "target_ids": target}, labels


def dataset(*batches):
    """Makes a data set of a known number of batches, of any number of rows."""
    signature = tf.nest.map_structure(
        lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), batches[0]
    )
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=signature
    )
    return data.apply(tf.data.experimental.assert_cardinality(len(batches)))


def make_model(strategy=None, sizes=SIZES, dtype=None, **arguments):
    """Makes a compiled model, the same in every test."""
    keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = kt.Transformer(**sizes, dtype=dtype)
        arguments.setdefault("optimizer", keras.optimizers.SGD(0.5))
        model.compile(loss=kt.SmoothedCrossEntropy(0.1), **arguments)
    return model


def fit(batches, strategy=None, **arguments):
    """Returns weights and history after one SGD step per batch."""
    arguments.setdefault("metrics", [kt.TokenAccuracy(), kt.Perplexity()])
    model = make_model(strategy, **arguments)
    history = model.fit(dataset(*batches), verbose=0).history
    return model.get_weights(), history


def reference_step(sample_weight=None):
    """Computes one SGD step, spelled out: weights, and `fit`'s history."""
    keras.utils.set_random_seed(5)
    model = kt.Transformer(**SIZES)
    inputs, labels = batch()
    weights = (labels != 0).astype("float32")
    if sample_weight is not None:
        weights *= sample_weight
    with tf.GradientTape() as tape:
        losses, nll = smoothed_cross_entropy(labels, model(inputs), 0.1)
        loss = tf.reduce_sum(losses * weights) / weights.sum()
    variables = [v.value for v in model.trainable_variables]
    for variable, gradient in zip(
        variables, tape.gradient(loss, variables), strict=True
    ):
        variable.assign_sub(0.5 * tf.convert_to_tensor(gradient))
    return model.get_weights(), {"loss": [float(loss)]}


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-4)


def assert_same_weights(one, other):
    assert_same((one, {}), (other, {}))


# The step of `fit`


def test_fit_takes_the_gradient_of_the_loss():
    assert_same(reference_step(), fit([batch()]))


@pytest.mark.parametrize("jit_compile", [False, *later("backend", True)])
def test_fit_without_metrics_takes_the_same_step(jit_compile, monkeypatch):
    """It makes no logits, which nobody needs."""
    monkeypatch.delattr(TrainStep, "with_logits")
    found = fit([batch()], metrics=None, jit_compile=jit_compile)
    assert found[1].keys() == {"loss"}
    assert_same(reference_step(), found)


@pytest.mark.parametrize("num_slices", [2, *later("options", 9)])
def test_fit_with_slices_takes_the_same_step(num_slices, monkeypatch):
    """`prepare_cpu` may set their number, even above the number of rows."""
    count = mock.Mock(side_effect=gradients_module.slice_sizes)
    monkeypatch.setattr(gradients_module, "slice_sizes", count)
    monkeypatch.setattr(fit_module, "prepared_slices", lambda: num_slices)
    found = fit([batch()], metrics=None, jit_compile=False)
    assert_same(reference_step(), found)
    assert {call.args[1] for call in count.mock_calls} == {num_slices}


@pytest.mark.parametrize(
    "arguments",
    [
        {"metrics": [kt.TokenAccuracy()]},
        *later("backend", {"jit_compile": True}),
    ],
)
def test_a_batch_that_cannot_be_divided_is_told(arguments, monkeypatch, caplog):
    inputs, labels = batch()
    monkeypatch.setattr(fit_module, "prepared_slices", lambda: 3)
    monkeypatch.setattr(gradients_module, "slice_sizes", None)
    make_model(**arguments).fit(inputs, labels, verbose=0)
    kt.Transformer(**SIZES).compile("sgd", "mse")
    assert caplog.text.count("batches stay whole, without the 3 slices") == 2


def test_metrics_that_a_subclass_computes_see_logits():
    class Model(kt.Transformer):
        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            return {"logits": keras.ops.max(y_pred)}

    model = Model(**SIZES)
    model.compile(keras.optimizers.SGD(0.0), kt.SmoothedCrossEntropy(0.1))
    history = model.fit(dataset(batch()), verbose=0).history
    expected = model(batch()[0]).numpy().max()
    np.testing.assert_allclose(history["logits"], [expected], rtol=1e-5)


@pytest.mark.parametrize(
    "weights, spelled_out",
    [(ROW_WEIGHTS, ROW_WEIGHTS[:, None]), (TOKEN_WEIGHTS, TOKEN_WEIGHTS)],
)
def test_sample_weight_weighs_rows_or_tokens(weights, spelled_out):
    inputs, labels = batch()
    assert_same(
        reference_step(spelled_out),
        fit([(inputs, labels, weights)], run_eagerly=True),
    )


def test_gradient_is_the_slope_of_the_loss():
    """It is checked in float64, by central differences along one direction.

    The embedding is used three times, and each use has its share.
    """
    model = make_model(dtype="float64")
    inputs, labels = batch()
    step = TrainStep(model, model.optimizer, StepOptions(0.1))
    sums, gradients = step.gradients(inputs, labels, TOKEN_WEIGHTS)
    assert {x.dtype for x in (*sums, *gradients)} == {tf.float64}
    loss, nll = kt.SmoothedCrossEntropy(0.1), kt.SmoothedCrossEntropy(0.0)
    total = TOKEN_WEIGHTS[labels != 0].sum()
    found = [sums.loss_sum / total, sums.nll_sum / total]
    means = [f(labels, model(inputs), TOKEN_WEIGHTS) for f in (loss, nll)]
    np.testing.assert_allclose(found, means, rtol=1e-6)
    random = np.random.default_rng(0)
    size = 1e-6
    for variable, gradient in zip(
        model.trainable_variables, gradients, strict=True
    ):
        direction = random.normal(size=variable.shape)
        direction /= np.linalg.norm(direction)
        value = variable.numpy()
        ends = []
        for sign in (1, -1):
            variable.assign(value + sign * size * direction)
            ends.append(float(loss(labels, model(inputs), TOKEN_WEIGHTS)))
        variable.assign(value)
        slope = (ends[0] - ends[1]) / (2 * size)
        expected = np.sum(gradient.numpy() * direction)
        np.testing.assert_allclose(
            slope, expected, atol=1e-8, rtol=1e-6, err_msg=variable.path
        )


def test_two_replicas_are_one():
    """Unequal tokens, an odd batch first, a last one with an empty replica."""
    batches = [batch(5), batch(6, seed=1), batch(1, seed=2)]
    assert_same(fit(batches), fit(batches, two_replicas()))


def test_replicas_of_fit_drop_different_units(tmp_path):
    strategy = two_replicas()
    model = make_model(strategy, {**SIZES, "dropout": 0.5})
    before = [v.numpy() for v in seed_variables(model)]

    def assert_spread_once():
        for variable, first in zip(seed_variables(model), before, strict=True):
            zero, one = strategy.experimental_local_results(variable.value)
            np.testing.assert_array_equal(zero, first)
            assert one[0].numpy() == first[0] + 1_000_003

    for _ in range(2):  # not at every call
        model.make_train_function()
    assert_spread_once()
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    model.load_weights(path)  # replica 0's seeds, on every replica
    model.make_train_function()
    assert_spread_once()
    run = tf.function(lambda: model(batch()[0], training=True), autograph=False)
    zero, one = strategy.experimental_local_results(strategy.run(run))
    assert np.abs(zero - one).max() > 0.1


def test_accumulation_and_clipping_work_on_the_scaled_loss():
    """A loss scale changes nothing, nor do micro-batches."""
    inputs, labels = batch()
    weights = []
    for optimizer, accumulate_steps in (
        (keras.optimizers.SGD(0.5), 1),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5)), 3),
    ):
        model = make_model()
        step = TrainStep(
            model, optimizer, StepOptions(0.1, accumulate_steps, 0.1)
        )
        sums = step(inputs, labels)
        weights.append(model.get_weights())
    assert isinstance(sums, StepSums)
    assert_same_weights(*weights)
    start = make_model().get_weights()
    update = [a - b for a, b in zip(start, weights[0], strict=True)]
    norm = np.sqrt(sum(np.sum(u**2) for u in update))
    np.testing.assert_allclose(norm, 0.5 * 0.1, rtol=1e-4)


def test_gradients_below_the_limit_are_not_clipped():
    inputs, labels = batch()
    model = make_model()
    step = TrainStep(model, model.optimizer, StepOptions(0.1, clip_norm=1e3))
    step(inputs, labels)
    assert_same_weights(reference_step()[0], model.get_weights())


@pytest.mark.parametrize("num_slices", [1, 2])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_loss_that_a_layer_adds_is_refused(
    num_slices, jit_compile, monkeypatch
):
    model = make_model()
    step = TrainStep(
        model, model.optimizer, StepOptions(0.1), jit_compile, num_slices
    )
    encoder, call = model.encoder, model.encoder.call

    def adding(*args, **kwargs):
        encoder.add_loss(keras.ops.convert_to_tensor(1.0))
        return call(*args, **kwargs)

    monkeypatch.setattr(encoder, "call", adding)
    for use in (step, step.with_logits):
        with pytest.raises(ValueError, match="add_loss.*Received: 1 added"):
            use(*batch())


def make_step(model, num_slices, accumulate_steps=1):
    return TrainStep(
        model,
        model.optimizer,
        StepOptions(0.1, accumulate_steps),
        num_slices=num_slices,
    )


@functools.cache
def whole_gradients():
    """Returns sums and gradients of an undivided batch."""
    return make_step(make_model(), 1).gradients(*batch())


@pytest.mark.parametrize(
    ("num_slices", "accumulate_steps"),
    # One without rows; equal, unequal.
    [(7, 1), (2, 3), *later("options", (2, 1), (4, 1))],
)
def test_slices_add_up_to_the_whole(num_slices, accumulate_steps):
    inputs, labels = batch()
    expected, gradients = whole_gradients()
    step = make_step(make_model(), num_slices, accumulate_steps)
    sums, of_slices = step.gradients(inputs, labels, None)
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    for found, gradient in zip(of_slices, gradients, strict=True):
        np.testing.assert_allclose(found, gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("accumulate_steps", [1, *later("options", 3)])
def test_slices_drop_other_units_and_leave_the_seeds_of_one(accumulate_steps):
    inputs, labels = batch()
    inputs = {name: np.tile(rows[:3], (2, 1)) for name, rows in inputs.items()}
    labels = np.tile(labels[:3], (2, 1))  # both slices have the same rows
    sums, seeds = [], []
    for num_slices in (1, 2):
        model = make_model(sizes={**SIZES, "dropout": 0.5})
        step = make_step(model, num_slices, accumulate_steps)
        for _ in range(2):
            rows = tf.nest.map_structure(tf.constant, (inputs, labels))
            sums.append(step.gradients(*rows)[0].loss_sum)
        seeds.append([v.numpy() for v in seed_variables(model)])
    np.testing.assert_array_equal(*seeds)
    assert len(set(np.array(sums).tolist())) == 4
    # The first slice drops what a step of its rows alone drops.
    model = make_model(sizes={**SIZES, "dropout": 0.5})
    half = tf.nest.map_structure(lambda x: x[:3], (inputs, labels))
    alone = make_step(model, 1, accumulate_steps).gradients(*half)[0]
    other = sums[2] - alone.loss_sum
    assert abs(other - alone.loss_sum) > 0.1


def test_no_slice_waits_for_another():
    model = make_model(sizes={**SIZES, "dropout": 0.5})
    step = make_step(model, num_slices=3)
    graph = tf.function(step, autograph=False).get_concrete_function(
        *tf.nest.map_structure(tf.constant, batch())
    )
    calls = {
        op for op in graph.graph.get_operations() if "Partitioned" in op.type
    }
    assert len(calls) == 3

    def predecessors(operation, found):
        inputs = (tensor.op for tensor in operation.inputs)
        for before in {*operation.control_inputs, *inputs} - found:
            found.add(before)
            predecessors(before, found)
        return found

    for call in calls:
        assert not (calls - {call}) & predecessors(call, set())


@pytest.mark.parametrize("kind", [None, "rows", "tokens"])
def test_evaluate_is_a_token_mean_over_batches_without_dropout(kind):
    """This holds for the loss, and for weighted and other metrics."""
    model = make_model(
        sizes={**SIZES, "dropout": 0.5, "attention_dropout": 0.5},
        metrics=[kt.Perplexity(name="plain")],
        weighted_metrics=[kt.Perplexity(name="weighted")],
    )
    batches, weights = [batch(2), batch(6, seed=1)], np.arange(1, 9) / 4
    if kind == "tokens":
        weights = np.arange(32).reshape(8, 4) / 8
    if kind:
        weights = weights.astype("float32")
        halves = weights[:2], weights[2:]
        batches = [(*b, w) for b, w in zip(batches, halves, strict=True)]
    result = model.evaluate(dataset(*batches), verbose=0, return_dict=True)
    inputs, labels = tf.nest.map_structure(
        lambda *parts: np.concatenate(parts), *(b[:2] for b in batches)
    )
    logits, given = model(inputs, training=False), weights if kind else None
    smoothed, nll = kt.SmoothedCrossEntropy(0.1), kt.SmoothedCrossEntropy(0.0)
    expected = {
        "loss": smoothed(labels, logits, given),
        "plain": np.exp(nll(labels, logits)),
        "weighted": np.exp(nll(labels, logits, given)),
    }
    assert list(result) == list(expected)
    np.testing.assert_allclose(
        list(result.values()), list(expected.values()), rtol=1e-5
    )


def test_float16_scales_the_loss():
    model = make_model(
        optimizer=keras.optimizers.SGD(0.5),
        dtype="mixed_float16",
        run_eagerly=True,
    )
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    history = model.fit(dataset(batch()), verbose=0).history
    weights, expected = reference_step()
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-2)
    for a, b in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_another_loss_trains_as_keras_does():
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0
    )
    model = make_model()
    model.compile("sgd", loss, run_eagerly=True)  # another than before
    inputs, labels = batch()
    expected = loss(labels, model(inputs))
    history = model.fit(dataset((inputs, labels)), verbose=0).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)


# Rematerialization

WITH_DROPOUT = {
    **SIZES,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "activation_dropout": 0.1,
}


def two_steps(
    remat,
    dtype=None,
    jit_compile=False,
    replicas=1,
    micro_batches=1,
    num_slices=1,
    **options,
):
    """Returns sums, gradients and seeds of two steps of each replica."""
    strategy = two_replicas() if replicas == 2 else None
    model = make_model(strategy, WITH_DROPOUT, dtype)
    REMATERIALIZE[remat](model)
    strategy = strategy or tf.distribute.get_strategy()
    options = StepOptions(0.1, micro_batches, **options)
    with strategy.scope():
        step = TrainStep(
            model, model.optimizer, options, jit_compile, num_slices
        )
        spread_seeds(model)
    inputs, labels = tf.nest.map_structure(tf.constant, batch(8))

    @tf.function(autograph=False)
    def run():
        return tf.nest.map_structure(
            strategy.experimental_local_results,
            strategy.run(step.gradients, (inputs, labels)),
        )

    seeds = [
        strategy.experimental_local_results(variable.value)
        for variable in seed_variables(model)
    ]
    results = [run(), run(), seeds]
    return [[x.numpy() for x in tf.nest.flatten(part)] for part in results]


@pytest.mark.parametrize(
    "options",
    [
        {"num_slices": 1},
        *later(
            "options",
            {"num_slices": 2},
            {"num_slices": 2, "micro_batches": 2, "r_drop": 1.0},
            {"replicas": 2, "dtype": "mixed_bfloat16"},
            {"micro_batches": 2, "jit_compile": True},
        ),
    ],
    ids=" ".join,
)
def test_layers_are_computed_again_with_the_same_dropout(options):
    stored, again = (two_steps(remat, **options) for remat in REMATERIALIZE)
    for one, other in zip(sum(stored, []), sum(again, []), strict=True):
        scale = np.abs(one).max()
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6 * scale)
    first, second = (step[-1] for step in stored[:2])
    assert np.abs(first - second).max() > 0.01 * np.abs(first).max()  # dropout


def test_a_layer_that_is_computed_again_is_called_as_before():
    """The call may be by name, eager, unmasked, or with a frozen weight."""
    random = np.random.default_rng(2)
    x, memory = (
        tf.constant(random.normal(size=(2, length, 8)), "float32")
        for length in (3, 5)
    )
    weights = tf.constant(random.normal(size=(2, 3, 8)), "float32")
    visible = tf.constant(random.random((2, 1, 1, 5)) < 0.7)
    found = []
    for remat in REMATERIALIZE:
        model = make_model(sizes=WITH_DROPOUT)
        [layer] = model.decoder.blocks
        layer.feed_forward.trainable = False
        REMATERIALIZE[remat](model)
        sources = [x, memory, *(v.value for v in layer.trainable_variables)]
        for training in (True, False):
            with tf.GradientTape() as tape:
                tape.watch([x, memory])
                y = layer(
                    layer(x, memory, training=training),
                    memory=layer.cross_attention.project(memory),
                    cross_attention_mask=visible,
                    training=training,
                )
                loss = tf.reduce_sum(y * weights)
            found.append([y, *tape.gradient(loss, sources)])
    half = len(found) // 2
    for one, other in zip(found[:half], found[half:], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def gradient_graph(remat, num_layers, jit_compile):
    """Returns a gradient function of weights, seeds, ids, and its inputs."""
    model = make_model(sizes={**WITH_DROPOUT, "num_layers": num_layers})
    REMATERIALIZE[remat](model)
    losses = TokenLosses(model, StepOptions(0.1))

    @tf.function(autograph=False, jit_compile=jit_compile or None)
    def gradients(values, ids):
        inputs = {"source_ids": ids, "target_ids": ids}
        weights = [value for value in values if value.dtype.is_floating]
        pairs = zip(model.variables, values, strict=True)
        with tf.GradientTape() as tape, keras.StatelessScope(pairs):
            tape.watch(weights)
            loss = tf.reduce_sum(losses(inputs, ids, training=True)[0])
        return list(map(tf.convert_to_tensor, tape.gradient(loss, weights)))

    values = [tf.convert_to_tensor(v.numpy()) for v in model.variables]
    return gradients, (values, tf.fill((4, 128), 5))


def peak_memory(function, arguments):
    """Returns the most bytes of arrays that a graph stores at once."""
    v1 = tf.compat.v1
    graph = function.get_concrete_function(*arguments)
    values = [x.numpy() for x in tf.nest.flatten(arguments)]
    feeds = zip((x.name for x in graph.inputs), values, strict=True)
    metadata = v1.RunMetadata()
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph.graph.as_graph_def(), name="")
        session.run(
            [x.name for x in graph.outputs],
            dict(feeds),
            v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
            metadata,
        )
    changes = [
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for memory in node.memory
        for record in memory.allocation_records
    ]
    return np.cumsum([size for _, size in sorted(changes)]).max()


def test_layers_that_are_computed_again_are_not_stored():
    """Operations that Grappler merges would keep the memory as it is."""
    stored, again = (
        peak_memory(*gradient_graph(remat, num_layers=2, jit_compile=False))
        for remat in REMATERIALIZE
    )
    assert stored > 3e6 and again < 0.6 * stored


@pytest.mark.slow("backend")
def test_xla_computes_layers_again():
    """Each layer norm has one operation `rsqrt`."""
    found = []
    for remat in REMATERIALIZE:
        function, arguments = gradient_graph(remat, 1, jit_compile=True)
        compiled = function.experimental_get_compiler_ir(*arguments)
        found.append(compiled(stage="optimized_hlo").count(" rsqrt("))
    assert found == [5, 10]


# XLA


@pytest.mark.slow("backend")
def test_xla_compiles_the_steps_of_fit(tmp_path):
    """On one device, on two replicas, and after a file; with equal results."""
    weights = make_model().get_weights()
    inputs, labels = batch()
    np.savez(
        tmp_path / "data.npz",
        sizes=json.dumps(SIZES),
        labels=labels,
        count=len(weights),
        **inputs,
        **{f"weight_{i}": w for i, w in enumerate(weights)},
    )
    dump = tmp_path / "programs"
    counts = run_program(
        "fit_with_xla.py",
        tmp_path / "data.npz",
        dump,
        tmp_path,
        XLA_FLAGS=f"--xla_dump_to={dump} --xla_backend_optimization_level=0",
    )
    assert counts.pop("auto") == 0
    assert set(counts) == {"one_device", "loaded", "mirrored"}
    assert all(counts.values()), counts
    expected, _ = reference_step()
    for name in ("one_device", "mirrored"):
        with np.load(tmp_path / f"{name}.npz") as file:
            assert_same_weights(expected, list(file.values()))


def test_eager_steps_are_not_compiled():
    with pytest.warns(UserWarning, match="run_eagerly"):
        model = make_model(run_eagerly=True, jit_compile=True)
    assert model.jit_compile is False


# Files


def test_a_file_resumes_exactly_with_its_dropout(tmp_path):
    model = make_model(
        sizes={**SIZES, "dropout": 0.5},
        optimizer=kt.paper_adam(8, warmup_steps=10),
        run_eagerly=True,
    )
    model.fit(dataset(batch()), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        each.fit(dataset(batch(seed=1)), verbose=0)
    assert_same_weights(model.get_weights(), loaded.get_weights())
    undropped = kt.Transformer(**SIZES)  # no seeds of its own
    model.save_weights(tmp_path / "model.weights.h5")
    undropped.load_weights(tmp_path / "model.weights.h5")
    assert_same_weights(model.get_weights(), undropped.get_weights())


@pytest.mark.parametrize("jit_compile", [True, False, "auto"])
def test_the_compile_config_keeps_jit_compile(jit_compile):
    model = make_model(jit_compile=jit_compile)
    copy = kt.Transformer(**SIZES)
    copy.compile_from_config(model.get_compile_config())
    assert copy.get_compile_config()["jit_compile"] == jit_compile
    copy.compile("sgd", "mse", jit_compile=False)  # Keras' business again
    assert copy.get_compile_config()["jit_compile"] is False


def test_files_of_version_0_2_with_slices_are_read():
    config = make_model().get_compile_config()
    copy = kt.Transformer(**SIZES)
    copy.compile_from_config({**config, "num_slices": 2})
    assert copy.get_compile_config() == config


def test_quantization_in_place_is_refused():
    with pytest.raises(NotImplementedError, match="kt-export"):
        kt.Transformer(**SIZES).quantize("int8")


def test_loss_weights_are_refused():
    with pytest.raises(ValueError, match="loss_weights=2.0"):
        make_model(loss_weights=2.0)


def test_compiled_again_the_model_has_what_keras_keeps():
    """Metrics and loss stay unless there are others."""
    inputs, labels = batch()
    model = make_model(metrics=[kt.TokenAccuracy()])
    for options, names in (({}, {"token_accuracy"}), ({"metrics": []}, set())):
        model.compile("sgd", **options)
        found = model.train_on_batch(inputs, labels, return_dict=True)
        assert found.keys() == {"loss"} | names
        assert isinstance(model._token_exact_step, TrainStep)


@pytest.mark.parametrize("clip_norm", [0.0, *later("options", 1.0)])
def test_a_model_without_trainable_weights(clip_norm, caplog):
    """It does not change, says so, and has the loss of other models."""
    inputs, labels = batch()
    model = make_model()
    model.trainable = False
    model.compile("sgd", kt.SmoothedCrossEntropy(0.1))
    before = model.get_weights()
    if clip_norm:
        options = StepOptions(0.1, accumulate_steps=3, clip_norm=clip_norm)
        model._token_exact_step = TrainStep(
            model, model.optimizer, options, num_slices=2
        )
    history = model.fit(inputs, labels, verbose=0).history
    assert history["loss"] == pytest.approx(reference_step()[1]["loss"])
    assert "no trainable weights" in caplog.text
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_inputs_of_another_form_are_refused():
    """Every method that takes a batch refuses them."""
    inputs, labels = batch()
    pair = inputs["source_ids"], inputs["target_ids"]
    model = make_model()
    for use in (
        model,
        model.predict,
        lambda x: model.fit(x, labels),
        lambda x: model.evaluate(x, labels),
    ):
        with pytest.raises(ValueError, match="dictionary.*Received: a tuple"):
            use(pair)
        with pytest.raises(ValueError, match=r"Received: .*\['source_ids'\]"):
            use({"source_ids": inputs["source_ids"]})
    for use in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="labels.*Received: labels=None"):
            use(inputs)


# Keras


def test_private_methods_of_keras_are_there_and_called():
    (name,) = fit_module.OVERRIDDEN_PRIVATE_METHODS
    assert callable(getattr(keras.Model, name))
    model = make_model(run_eagerly=True)
    calls = []
    setattr(model, name, lambda *args, **kwargs: calls.append(kwargs))
    model.fit(dataset(batch()), verbose=0)
    assert [list(kwargs) for kwargs in calls] == [["iterator"]]


def test_no_attribute_of_keras_is_taken():
    """Keras' trainer overwrites its own attributes: ours need other names."""

    class Plain(keras.Model):
        pass

    plain = Plain()
    plain.compile()
    ours = {
        name
        for name in vars(fit_module.TokenExactTraining)
        if name.startswith("_") and not name.startswith("__")
    }
    taken = ours & {*vars(plain), *dir(keras.Model)}
    assert taken == set(fit_module.OVERRIDDEN_PRIVATE_METHODS)


# Another backend


def run_program(name, *arguments, **environment):
    """Runs one of `programs` in a process. Returns its last line of JSON."""
    out = run_python(PROGRAMS / name, *arguments, **environment)
    return json.loads(out.splitlines()[-1])


@pytest.mark.slow("backend")
def test_jax_trains_alike_without_tensorflow(tmp_path):
    """Files, layers, loss and step; the package's import imports nothing."""
    model = make_model()
    inputs, labels = batch()
    np.savez(tmp_path / "data.npz", labels=labels, **inputs)
    model.save(tmp_path / "model.keras")
    result = run_program(
        "train_on_jax.py",
        tmp_path / "data.npz",
        tmp_path / "model.keras",
        KERAS_BACKEND="jax",
    )
    assert result["backend"] == "jax"
    assert result["imported"] == []
    assert result["loaded"] == "Transformer"
    assert result["out_of_range"] == "nan"
    np.testing.assert_allclose(result["logits"], model(inputs), atol=1e-4)
    step, _ = model.decode_step(
        inputs["target_ids"][:, 0],
        model.encode(inputs["source_ids"]),
        model.make_cache(6, 4),
        0,
    )
    np.testing.assert_allclose(result["step"], step, atol=1e-4)
    states = tf.reshape(tf.linspace(-1.0, 1.0, 12), (1, 4, 3))
    matrix = tf.reshape(tf.linspace(-2.0, 1.0, 21), (7, 3))
    with tf.GradientTape() as tape:
        tape.watch((states, matrix))
        logits = tf.matmul(states, matrix, transpose_b=True)
        losses, nll = smoothed_cross_entropy([[3, 6, 3, 0]], logits, 0.1)
        loss = tf.reduce_sum(losses + 2 * nll)
    slopes = tape.gradient(loss, (states, matrix))
    with tf.GradientTape() as tape:
        tape.watch((states, matrix))
        halves = tf.reshape(states, (2, 2, 3))
        losses, nll = projected_r_drop([[3, 6]], halves, matrix, None, 0.1, 3.0)
        loss = tf.reduce_sum(losses + 2 * nll)
    slopes += tape.gradient(loss, (states, matrix))
    for slope, expected in zip(result["slopes"], slopes, strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-5)
    numbers = np.array(result["numbers"])
    assert numbers.shape == (3, 5) and len(np.unique(numbers)) > 12
    assert 0 <= numbers.min() and numbers.max() < 2**16
    losses = [model.train_on_batch(inputs, labels) for _ in range(3)]
    np.testing.assert_allclose(result["losses"], losses, atol=1e-4)
