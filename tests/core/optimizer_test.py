"""FusedAdam against Keras' Adam, which it must equal."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.kernels.adam import FusedAdam

SETTINGS = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}


def weights_after(optimizer, dtype="float32"):
    """Returns weights and moments after three steps of known gradients."""
    strategy = tf.distribute.get_strategy()
    numbers = np.random.default_rng(2)
    gradients = numbers.normal(size=(3, 4, 3))
    weight = keras.Variable(np.ones((4, 3)), dtype=dtype)
    optimizer.build([weight])

    @tf.function(autograph=False)
    def step(gradient):
        def in_replica():
            share = gradient / strategy.num_replicas_in_sync
            optimizer.apply_gradients([(share, weight)])

        strategy.run(in_replica)

    for gradient in gradients:
        step(tf.constant(gradient, dtype))
    return [weight.numpy(), *(v.numpy() for v in optimizer.variables)], step


@pytest.mark.parametrize(
    "changes", [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"clipnorm": 1.0}]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_keras_adam(changes, dtype):
    schedule = kt.NoamSchedule(8, warmup_steps=10)
    ours, _ = weights_after(FusedAdam(schedule, **SETTINGS, **changes), dtype)
    keras_own, _ = weights_after(
        keras.optimizers.Adam(schedule, **SETTINGS, **changes), dtype
    )
    for our, their in zip(ours, keras_own, strict=True):
        np.testing.assert_allclose(our, their, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.1}])
def test_replicas_make_one_update_each(changes):
    single, _ = weights_after(FusedAdam(0.1, **SETTINGS, **changes))
    # Not by collectives: a process can have one such strategy only.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        mirrored, _ = weights_after(FusedAdam(0.1, **SETTINGS, **changes))
    for one, two in zip(single, mirrored, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_an_update_is_one_operation_for_each_variable():
    optimizer = kt.paper_adam(8, warmup_steps=10)
    _, step = weights_after(optimizer)
    graph = step.get_concrete_function(tf.zeros((4, 3))).graph
    types = [operation.type for operation in graph.get_operations()]
    assert types.count("ResourceApplyAdam") == 1
    assert types.count("Sqrt") == 0


def test_a_saved_optimizer_is_restored():
    optimizer = kt.paper_adam(8, warmup_steps=10)
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    )
    assert isinstance(copy, FusedAdam)
    assert copy.get_config() == optimizer.get_config()


def test_accumulated_gradients_are_those_of_keras_adam():
    """Its counter of updates is then a tensor."""
    found = []
    for kind in (FusedAdam, keras.optimizers.Adam):
        variable = keras.Variable([1.0, -2.0])
        optimizer = kind(0.1, gradient_accumulation_steps=2)
        for step in range(6):
            gradient = tf.constant([0.5 - step, 2.0 * step])
            optimizer.apply([gradient], [variable])
        found.append(variable.numpy())
    assert abs(found[0][0] - 1.0) > 0.01
    np.testing.assert_allclose(*found, rtol=1e-5)
