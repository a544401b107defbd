"""One device to many: the same numbers, and what workers owe each other."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import losses_in

import keras_transformer as kt
from keras_transformer.data import batches as batches_module
from keras_transformer.data import corpus as corpus_module
from keras_transformer.flags import CommandError
from keras_transformer.training import TrainStep, seeds_of, spread_seeds
from trainers import strategies, wmt
from trainers.budget import activations, largest_shape
from trainers.loop import Trainer

ROOT = pathlib.Path(__file__).parents[1]
SIZES = dict(
    vocab_size=16, d_model=8, d_ff=16, num_heads=2, num_layers=1, dropout=0.0
)
LEARNING_RATE = 0.5


def make_batches(num_pairs=15):
    """Pairs of 2 to 9 tokens; the last batch has a row, and three empty."""
    random = np.random.default_rng(3)

    def rows():
        lengths = random.integers(2, 10, num_pairs)
        ids = random.integers(4, 16, lengths.sum()).astype("int32")
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids[offsets[1:] - 1] = 2
        return corpus_module.TokenRows(ids, offsets)

    counts = corpus_module.CorpusCounts(num_pairs, num_pairs, 0, 0, 9)
    corpus = corpus_module.Corpus(rows(), rows(), counts)
    batches = batches_module.Batches(
        corpus, [(4, 6), (4, 9)], seed=None, steps_per_call=1
    )
    assert len(batches.epoch_order(0)[-1][0]) % 4 == num_pairs % 4 != 0
    return batches


def train(strategy, jit_compile, accumulate_steps=1, clip_norm=0.0):
    """Weights after an epoch of SGD steps, and the loss of each step."""
    keras.utils.set_random_seed(5)
    batches = make_batches()
    with strategy.scope():
        model = kt.Transformer(**SIZES)
        step = TrainStep(
            model,
            keras.optimizers.SGD(LEARNING_RATE),
            label_smoothing=0.1,
            jit_compile=jit_compile,
            accumulate_steps=accumulate_steps,
            clip_norm=clip_norm,
        )

    @tf.function(reduce_retracing=True, autograph=False)
    def run(batch):
        result = strategy.run(lambda *args: step(*args)[0], args=batch)
        return strategy.reduce("SUM", result, axis=None)

    def make_dataset(slices, num_slices):
        return batches.dataset(epochs=1, slices=slices, num_slices=num_slices)

    dataset = strategies.distribute(strategy, make_dataset)
    losses = [run(batch).numpy() for batch in dataset]
    return [weight.numpy() for weight in model.weights], losses


def two_replicas():
    """Not by collectives: a process can have one such strategy only."""
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)


def reference(clip_norm=0.0):
    """The definition: gradient of the mean token loss of whole batches."""
    keras.utils.set_random_seed(5)
    model = kt.Transformer(**SIZES)
    loss = kt.SmoothedCrossEntropy(0.1)
    variables = [v.value for v in model.trainable_variables]
    batches, losses = make_batches(), []
    for indices, shape in batches.epoch_order(0):
        inputs, labels = batches.assemble(indices, shape)
        with tf.GradientTape() as tape:
            mean = loss(labels, model(inputs))
        gradients = tape.gradient(mean, variables)
        gradients = [tf.convert_to_tensor(g).numpy() for g in gradients]
        norm = np.sqrt(
            sum(np.sum(g.astype(np.float64) ** 2) for g in gradients)
        )
        factor = min(1.0, clip_norm / norm) if clip_norm else 1.0
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(LEARNING_RATE * factor * gradient)
        losses.append(mean.numpy() * np.sum(labels != 0))
    return [weight.numpy() for weight in model.weights], losses


CLIP_NORM = 0.7  # of gradients whose norms are 1 and more


@pytest.fixture(scope="module")
def one_big_batch():
    return {clip: reference(clip) for clip in (0.0, CLIP_NORM)}


# One step on the same data


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("replicas", "parts", "clip_norm"),
    [
        (1, 1, CLIP_NORM),
        (1, 2, 0.0),
        (1, 4, CLIP_NORM),
        (2, 1, 0.0),
        (2, 2, CLIP_NORM),
    ],
)
def test_the_update_is_that_of_one_big_batch(
    replicas, parts, clip_norm, jit_compile, one_big_batch
):
    """Unequal tokens on the replicas, a partial batch, an empty replica."""
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        strategy = two_replicas()
    assert_same(
        train(strategy, jit_compile, parts, clip_norm),
        one_big_batch[clip_norm],
    )


def test_the_clip_is_felt(one_big_batch):
    free, clipped = (weights for weights, _ in one_big_batch.values())
    change = [np.abs(a - b).max() for a, b in zip(free, clipped, strict=True)]
    assert max(change) > 1e-2


WORKER = """
import sys
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
sys.path.insert(0, "tests")
from strategies_test import CLIP_NORM, train
results = {}
for name, arguments in {
    "plain": (False,), "xla": (True,), "parts": (False, 2),
    "clipped": (False, 1, CLIP_NORM),
}.items():
    weights, losses = train(strategy, *arguments)
    results.update({f"{name}_{i}": w for i, w in enumerate(weights)})
    results[f"{name}_losses"] = losses
np.savez(sys.argv[1], **results)
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def start_workers(commands):
    """Processes that find each other by TF_CONFIG, one for each command."""
    hosts = [f"localhost:{port}" for port in free_ports(len(commands))]
    return [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": hosts},
                        "task": {"type": "worker", "index": index},
                    }
                ),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, command in enumerate(commands)
    ]


def ends(process, status=0, timeout=240):
    """Standard output and error of a process that ends with a status."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == status, err[-3000:]
    return out, err


def read_until(text, process):
    """What a process tells up to the line that has a text in it."""
    told = ""
    while text not in told:
        line = process.stdout.readline()
        assert line, process.stderr.read()[-3000:]
        told += line
    return told


def test_two_workers_are_one_device(tmp_path, one_big_batch):
    paths = [tmp_path / f"{index}.npz" for index in range(2)]
    for worker in start_workers(
        [[sys.executable, "-c", WORKER, str(path)] for path in paths]
    ):
        ends(worker)
    for path in paths:
        results = np.load(path)
        for name in ("plain", "xla", "parts", "clipped"):
            expected = one_big_batch[CLIP_NORM if name == "clipped" else 0.0]
            weights = [results[f"{name}_{i}"] for i in range(len(expected[0]))]
            assert_same((weights, results[f"{name}_losses"]), expected)


# Half precision, random numbers, memory


def test_replicas_agree_to_skip_an_overflow():
    """One replica's gradient is not finite; none may make the update."""
    strategy = two_replicas()
    with strategy.scope():
        model = kt.Transformer(**SIZES, dtype="mixed_float16")
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.5)
        )
        step = TrainStep(model, optimizer, 0.1, False, 1, 1.0)
    inputs, labels = make_batches().assemble(np.arange(2), (2, 9))

    def weights_of_tokens(context):
        first = context.replica_id_in_sync_group == 0
        size = 1.0 if first else np.inf
        return tf.fill(labels.shape, size)

    weights = strategy.experimental_distribute_values_from_function(
        weights_of_tokens
    )

    @tf.function(autograph=False)
    def run(weights):
        strategy.run(
            lambda weights: step(inputs, labels, weights)[0], args=(weights,)
        )

    before = model.get_weights()
    scale = optimizer.dynamic_scale.value.numpy()
    run(weights)
    assert optimizer.dynamic_scale.value.numpy() == scale / 2
    for variable, value in zip(model.weights, before, strict=True):
        for copy in strategy.experimental_local_results(variable.value):
            np.testing.assert_array_equal(copy, value)


def test_replicas_drop_different_units():
    strategy = two_replicas()
    with strategy.scope():
        model = kt.Transformer(**{**SIZES, "dropout": 0.5})
        before = [seed.numpy() for seed in seeds_of(model)]
        spread_seeds(model)
    for seed, first in zip(seeds_of(model), before, strict=True):
        zero, one = strategy.experimental_local_results(seed)
        np.testing.assert_array_equal(zero, first)  # what a checkpoint has
        assert (one.numpy() != first).any()
    inputs, _ = make_batches().assemble(np.arange(4), (4, 9))
    run = tf.function(lambda: model(inputs, training=True), autograph=False)
    zero, one = strategy.experimental_local_results(strategy.run(run))
    assert np.abs(zero - one).max() > 0.1


# The trainer


MODEL = (
    "--phrasebook_pairs=400",
    "--vocab_size=150",
    "--d_model=16",
    "--d_ff=16",
    "--num_heads=2",
    "--num_layers=1",
    "--batch_tokens=400",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=1",
    "--valid_steps=1000000",
    "--valid_sentences=2",
    "--checkpoint_steps=4",
    "--train_steps=24",
)


def trainer_of(tmp_path, *given):
    trainer, _ = wmt.prepare([*MODEL, f"--workdir={tmp_path}/run", *given])
    trainer.validator = None
    return trainer


def state_of(trainer):
    variables = trainer.model.variables + trainer.optimizer.variables
    return [variable.value.numpy() for variable in variables]


def test_calls_of_several_steps_are_those_steps(tmp_path):
    together = trainer_of(tmp_path / "1", "--steps_per_call=3")
    one_by_one = trainer_of(tmp_path / "2")
    one_by_one.experiment.train_batches = together.experiment.train_batches
    in_calls = [len(labels) for _, labels in together._batches()]
    assert 3 in in_calls and sum(in_calls) == 24
    together.run()
    one_by_one.run()
    assert together.progress.step == one_by_one.progress.step == 24
    for a, b in zip(state_of(together), state_of(one_by_one), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_trying_the_largest_batch_leaves_no_trace(tmp_path):
    trainer = trainer_of(tmp_path, "--dropout=0.3")
    before = state_of(trainer)
    assert trainer.try_largest() > 0
    for a, b in zip(before, state_of(trainer), strict=True):
        np.testing.assert_array_equal(a, b)


def test_too_long_a_batch_is_one_clear_line(tmp_path, monkeypatch):
    def out_of_memory(self, batch):
        raise tf.errors.ResourceExhaustedError(
            None, None, "OOM when allocating"
        )

    monkeypatch.setattr(Trainer, "_sum_over_replicas", out_of_memory)
    with pytest.raises(CommandError, match="largest batch.*accumulate_steps"):
        trainer_of(tmp_path)


def test_dry_run_tells_and_writes_nothing(tmp_path, capsys):
    workdir = tmp_path / "run"
    wmt.main([*MODEL, f"--workdir={workdir}", "--dry_run"])
    out = capsys.readouterr().out
    assert not workdir.exists()
    parameters = 150 * 16  # embeddings
    attention = 4 * 16 * 16
    feed_forward = 16 * 16 + 16 + 16 * 16 + 16
    norms = 2 * 16
    parameters += attention + feed_forward + 2 * norms
    parameters += 2 * attention + feed_forward + 3 * norms
    assert f"budget: {parameters:,} parameters; 24 steps are" in out
    assert "the largest batch, " in out
    assert "step 1 " not in out


def test_the_largest_shape_need_not_be_the_longest(tmp_path):
    """Rows are rounded down to whole parts."""
    trainer = trainer_of(tmp_path, "--accumulate_steps=3")
    trainer.experiment.train_batches.shapes = [(33, 12), (6, 40)]
    assert largest_shape(trainer.experiment) == (33, 12)
    trainer.experiment.train_batches.shapes = [(33, 12), (9, 40)]
    assert largest_shape(trainer.experiment) == (9, 40)


def test_validation_computes_no_more_at_once_than_training(tmp_path):
    experiment = trainer_of(tmp_path, "--accumulate_steps=4").experiment
    tokens = experiment.data.batch_tokens // 4
    for rows, length in experiment.valid_batches.shapes:
        assert rows * length <= tokens


def test_other_batches_begin_an_epoch(tmp_path, caplog):
    """Not in the middle of one, where pairs would come again, or never."""
    more = "--train_steps=40"
    before = trainer_of(tmp_path)
    before.run()
    per_epoch = before.experiment.train_batches.steps_per_epoch
    assert before.progress.data_step == 24
    assert 24 % per_epoch

    same = trainer_of(tmp_path, more)
    assert same.progress.data_step == 24
    assert "epoch" not in caplog.text
    other = trainer_of(tmp_path, more, "--batch_tokens=600")
    batches = other.experiment.train_batches
    epoch = -(-24 // per_epoch)
    assert other.progress.data_step == epoch * batches.steps_per_epoch
    assert f"epoch {epoch + 1} begins" in caplog.text
    inputs, _ = next(iter(other._batches()))
    expected, _ = batches.assemble(*batches.epoch_order(epoch)[0])
    np.testing.assert_array_equal(inputs["source_ids"], expected["source_ids"])
    assert len(list(other._batches())) == 40 - 24


def test_activations_grow_with_the_batch_and_its_length():
    config = kt.preset("tiny", vocab_size=1000)
    one = activations(config, 10, 20, 4)
    assert activations(config, 20, 20, 4) == 2 * one
    assert activations(config, 5, 40, 4) > one  # attention is quadratic
    assert activations(config, 10, 20, 2) < one


def test_two_workers_train_lose_one_and_resume(tmp_path):
    """Equal to one device; killed, the other says so; restarted, it ends."""
    command = [sys.executable, "-m", "trainers.wmt", *MODEL, "--dropout=0"]
    one = subprocess.run(
        # Two parts: its batches have as many rows as those of two workers.
        [*command, f"--workdir={tmp_path}/one", "--accumulate_steps=2"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert one.returncode == 0, one.stderr[-3000:]
    expected = losses_in(one.stdout)
    assert sorted(expected) == list(range(1, 25))

    workdir = tmp_path / "two"
    command += ["--strategy=multi_worker", f"--workdir={workdir}"]
    endless = [*command, "--train_steps=1000000"]
    chief, other = start_workers([endless] * 2)
    told = read_until("step 13 ", chief)
    other.send_signal(signal.SIGKILL)
    out, err = ends(chief, status=1)
    told += out
    assert "has lost another worker" in err.splitlines()[-1]
    first = losses_in(told)

    chief, other = start_workers([command] * 2)
    out, _ = ends(chief)
    silent, _ = ends(other)
    assert silent == ""
    resumed_at = int(out.split("resuming at step ")[1].split(":")[0])
    assert resumed_at % 4 == 0 and resumed_at >= 12
    losses = {**first, **losses_in(out)}
    for step, loss in expected.items():
        np.testing.assert_allclose(losses[step], loss, rtol=2e-3)


def test_a_taken_port_is_one_clear_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        config = {
            "cluster": {"worker": [f"localhost:{taken.getsockname()[1]}"] * 2},
            "task": {"type": "worker", "index": 0},
        }
        command = [sys.executable, "-m", "trainers.wmt", *MODEL]
        done = subprocess.run(
            [*command, f"--workdir={tmp_path}/run", "--strategy=multi_worker"],
            cwd=ROOT,
            env={**os.environ, "TF_CONFIG": json.dumps(config)},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "worker 0 cannot join the workers of TF_CONFIG" in last
    assert "worker 0: waiting for the other workers" in done.stderr


def test_a_reason_is_not_where_in_the_graph():
    message = (
        "Graph execution error:\n\nDetected at node Collective defined at\n"
        '  File "<frozen runpy>", line 198\n\n<stack traces unavailable>\n'
        "Socket closed {{while reading}}\n\t [[{{node Collective}}]]"
    )
    error = tf.errors.UnavailableError(None, None, message)
    team = strategies.Team(tf.distribute.get_strategy())
    team.size = 2
    with pytest.raises(strategies.LostWorkerError, match=r"\(Socket closed\)"):
        with team.watch():
            raise error


def test_a_signal_to_one_worker_stops_both(tmp_path):
    command = [
        sys.executable, "-m", "trainers.wmt", *MODEL,
        "--strategy=multi_worker", f"--workdir={tmp_path}",
        "--train_steps=1000000",
    ]  # fmt: skip
    chief, other = start_workers([command] * 2)
    read_until("step 5 ", chief)
    other.send_signal(signal.SIGTERM)
    out, _ = ends(chief)
    ends(other)
    stopped = out.split("stopped by SIGTERM | step ")[1].split()[0]
    assert (tmp_path / f"checkpoints/ckpt-{stopped}.index").exists()


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["--strategy=multi_worker"], {}, "needs the environment variable"),
        ([], {"TF_CONFIG": "{"}, "TF_CONFIG must be a JSON object"),
        (["--strategy=tpu"], {}, "tpu=NAME go together"),
        (["--tpu=x"], {}, "tpu=NAME go together"),
    ],
)
def test_wrong_strategy(
    flags, environment, message, tmp_path, monkeypatch, capsys
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        wmt.main([*MODEL, f"--workdir={tmp_path}/run", *flags])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


# What can be checked of a TPU without one


HOST_OPS = {"PyFunc", "EagerPyFunc", "StringFormat", "PrintV2", "Assert"}


@pytest.mark.parametrize("accumulate_steps", [1, 2])
def test_a_replicas_step_is_one_xla_program_for_each_shape(accumulate_steps):
    """Forward, backward and update: static shapes, and nothing of the host."""
    batches = make_batches()
    model = kt.Transformer(**{**SIZES, "dropout": 0.1})
    step = TrainStep(
        model,
        kt.paper_adam(8, warmup_steps=10),
        0.1,
        jit_compile=False,
        accumulate_steps=accumulate_steps,
        clip_norm=1.0,
    )
    whole = tf.function(
        lambda inputs, labels: step(inputs, labels)[:3],
        jit_compile=True,
        autograph=False,
    )
    for indices, shape in batches.epoch_order(0):
        loss_sum, _, tokens = whole(*batches.assemble(indices, shape))
        assert np.isfinite(loss_sum / tokens)
    assert whole.experimental_get_tracing_count() == len(batches.shapes)
    for rows, length in batches.shapes:
        ids = tf.TensorSpec([rows, length], tf.int32)
        inputs = {"source_ids": ids, "target_ids": ids}
        graph = whole.get_concrete_function(inputs, ids).graph
        graphs = [graph.as_graph_def()]
        ops = {node.op for node in graphs[0].node}
        for function in graphs[0].library.function:
            ops |= {node.op for node in function.node_def}
        assert not ops & HOST_OPS
        numbers = [
            tensor
            for operation in graph.get_operations()
            for tensor in operation.outputs
            if tensor.dtype.is_floating or tensor.dtype.is_integer
        ]
        assert len(numbers) > 100
        assert all(tensor.shape.is_fully_defined() for tensor in numbers)
