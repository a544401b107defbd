"""Numbers are equal on one device and many, and workers stop together."""

import functools
import json
import re
import signal
import socket
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import (
    SMALL_MODEL,
    cluster_of,
    fails,
    free_ports,
    losses_in,
    open_trainer,
)
from later import later
from random_pairs import random_corpus

import keras_transformer as kt
from keras_transformer.commands import startup
from keras_transformer.commands.flags import CommandError
from keras_transformer.data import batches as batches_module
from keras_transformer.data import corpus as corpus_module
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.training.rematerialization import REMATERIALIZE
from keras_transformer.training.step import TrainStep
from keras_transformer.training.update import StepOptions
from trainers import parse, wmt
from trainers.datasets import phrasebook
from trainers.run import budget, strategies
from trainers.run.budget import notes_on, try_batches
from trainers.run.cluster import Cluster, find_cluster, read_cluster
from trainers.run.data_config import DataConfig
from trainers.run.engine import LostWorkerError, OutOfMemoryError
from trainers.run.experiment import Experiment, Opening, read_experiment
from trainers.run.session import make_translation_metric
from trainers.run.tensorflow_engine import TensorFlowDevices, TensorFlowEngine
from trainers.run.training_config import Configuration, TrainingConfig

SIZES = dict(
    vocab_size=16, d_model=8, d_ff=16, num_heads=2, num_layers=1, dropout=0.0
)
LEARNING_RATE = 0.5
TWO_SHAPES = ((4, 6), (4, 9))
ONE_SHAPE = TWO_SHAPES[1:]  # for XLA, which compiles for each shape


def make_batches(num_pairs=13, shapes=TWO_SHAPES):
    """Makes pairs of 2 to 9 tokens. The last batch has one row, three empty."""
    corpus = random_corpus(num_pairs, 2, 9, vocab_size=16)
    batches = batches_module.Batches(
        corpus, list(shapes), seed=None, steps_per_call=1
    )
    assert len(batches.epoch_order(0)[-1][0]) % 4 == num_pairs % 4 != 0
    return batches


def train(strategy, jit_compile, accumulate_steps=1, clip_norm=0.0):
    """Returns weights after an epoch of SGD steps, and each step's loss."""
    keras.utils.set_random_seed(5)
    batches = make_batches(shapes=ONE_SHAPE if jit_compile else TWO_SHAPES)
    with strategy.scope():
        model = kt.Transformer(**SIZES)
        step = TrainStep(
            model,
            keras.optimizers.SGD(LEARNING_RATE),
            StepOptions(0.1, accumulate_steps, clip_norm),
            jit_compile,
        )
    dataset = strategies.distribute(
        strategy,
        lambda replicas, num_replicas: batches.dataset(
            epochs=1, replicas=replicas, num_replicas=num_replicas
        ),
    )

    @tf.function(input_signature=[dataset.element_spec], autograph=False)
    def run(batch):
        result = strategy.run(lambda *args: step(*args)[0], args=batch)
        return strategy.reduce("SUM", result, axis=None)

    losses = [run(batch).numpy() for batch in dataset]
    return [weight.numpy() for weight in model.weights], losses


def two_replicas():
    # Not by collectives: TensorFlow keeps their shapes under keys that every
    # strategy of a process counts from the same start.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)


@functools.cache
def one_big_batch(clip_norm, shapes=TWO_SHAPES):
    """Computes the definition: gradients of whole batches' mean token loss."""
    keras.utils.set_random_seed(5)
    model = kt.Transformer(**SIZES)
    loss = kt.SmoothedCrossEntropy(0.1)
    variables = [v.value for v in model.trainable_variables]
    batches, losses = make_batches(shapes=shapes), []
    for indices, shape in batches.epoch_order(0):
        inputs, labels = batches.assemble(indices, shape)
        with tf.GradientTape() as tape:
            mean = loss(labels, model(inputs))
        gradients = tape.gradient(mean, variables)
        gradients = [tf.convert_to_tensor(g).numpy() for g in gradients]
        norm = np.sqrt(sum(np.sum(g.astype(float) ** 2) for g in gradients))
        factor = min(1.0, clip_norm / norm) if clip_norm else 1.0
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(LEARNING_RATE * factor * gradient)
        losses.append(mean.numpy() * np.sum(labels != 0))
    return [weight.numpy() for weight in model.weights], losses


CLIP_NORM = 0.7  # of gradients whose norms are 1 and more


# One step on the same data


@pytest.mark.parametrize(
    ("replicas", "micro_batches", "clip_norm", "jit_compile"),
    [
        (2, 2, CLIP_NORM, False),
        *later("options", (1, 2, 0.0, False), (2, 1, 0.0, False)),
        *later("backend", (1, 4, CLIP_NORM, True), (2, 2, CLIP_NORM, True)),
    ],
)
def test_the_update_is_that_of_one_big_batch(
    replicas, micro_batches, clip_norm, jit_compile
):
    """Unequal tokens on the replicas, a partial batch, an empty replica."""
    strategy = tf.distribute.get_strategy()
    if replicas == 2:
        strategy = two_replicas()
    assert_same(
        train(strategy, jit_compile, micro_batches, clip_norm),
        one_big_batch(clip_norm, ONE_SHAPE if jit_compile else TWO_SHAPES),
    )


def test_the_clip_is_felt():
    free, clipped = (one_big_batch(clip)[0] for clip in (0.0, CLIP_NORM))
    change = [np.abs(a - b).max() for a, b in zip(free, clipped, strict=True)]
    assert max(change) > 1e-2


def start_workers(processes, arguments, **options):
    """Starts two processes that find each other by TF_CONFIG.

    Args:
        processes: The fixture.
        arguments: What each of them is given.
        **options: Of `Processes.start`.
    """
    hosts = [f"localhost:{port}" for port in free_ports(len(arguments))]
    return [
        processes.start(
            given, TF_CONFIG=json.dumps(cluster_of(hosts, index)), **options
        )
        for index, given in enumerate(arguments)
    ]


def worker(arguments):
    """Computes what each of two workers does, for the test below."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    weights, losses = train(strategy, True, 2, CLIP_NORM)
    np.savez(arguments[0], *weights, losses=losses)


@pytest.mark.slow("process")
def test_two_workers_are_one_device(processes, tmp_path):
    """The steps have XLA, micro-batches and clipping. Trainings have none."""
    paths = [tmp_path / f"{index}.npz" for index in range(2)]
    for process in start_workers(
        processes,
        [[path] for path in paths],
        module="strategies_test",
        function="worker",
    ):
        process.ends()
    for path in paths:
        with np.load(path) as file:
            results = dict(file)
        losses = results.pop("losses")
        expected = one_big_batch(CLIP_NORM, ONE_SHAPE)
        assert_same((list(results.values()), losses), expected)


# Half precision, random numbers, memory


def test_the_cores_are_divided_among_the_replicas(monkeypatch):
    monkeypatch.setattr(strategies, "count_cores", lambda: 5)
    one = tf.distribute.get_strategy()
    two = two_replicas()
    for strategy, num_workers, cpu_threads, num_tokens, expected in (
        (one, 1, None, 9999, 5),
        (one, 1, 3, 9999, 3),
        (two, 1, None, 9999, 2),
        (two, 2, None, 9999, 5),
        (two, 1, 1, 9999, 1),
        (one, 1, None, 3 * startup.SLICE_TOKENS, 3),
        (one, 1, None, startup.SLICE_TOKENS - 1, 1),
    ):
        arguments = strategy, num_workers, cpu_threads, num_tokens
        assert strategies.count_slices(*arguments, False) == expected
        assert strategies.count_slices(*arguments, True) == 1


def test_a_trainer_divides_its_rows(command, tmp_path, monkeypatch):
    monkeypatch.setattr(strategies, "count_cores", lambda: 3)
    monkeypatch.setattr(startup, "SLICE_TOKENS", 100)
    argv = [*command, f"--workdir={tmp_path}/run", "--batch_tokens=400"]
    for flags, expected in (
        ([], 3),
        (["--cpu_threads=2"], 2),
        # As many tokens are computed at once as a micro-batch has.
        (["--accumulate_steps=2"], 2),
        (["--jit_compile"], 1),
    ):
        assert open_trainer([*argv, *flags]).engine.num_slices == expected


class Prepared(Exception):
    """An exception that ends a command where it prepares the CPU."""


@pytest.mark.parametrize("main", [wmt.main, parse.main])
def test_commands_prepare_the_cpu(main, tmp_path, monkeypatch):
    def prepare(cpu_threads, num_slices):
        raise Prepared(cpu_threads, num_slices)

    monkeypatch.setattr(wmt, "prepare_cpu", prepare)
    monkeypatch.setattr(startup, "SLICE_TOKENS", 100)
    argv = ["--cpu_threads=5", f"--workdir={tmp_path}/run"]
    for more, num_slices in (
        ([], 5),
        (["--batch_tokens=900", "--accumulate_steps=3"], 3),
        (["--jit_compile"], 1),
        (["--nojit_compile"], 5),
    ):
        with pytest.raises(Prepared, match=f"5, {num_slices}"):
            main([*argv, *more])


def test_replicas_agree_to_skip_an_overflow():
    """One replica's gradient is not finite, so no replica makes the update."""
    strategy = two_replicas()
    with strategy.scope():
        model = kt.Transformer(**SIZES, dtype="mixed_float16")
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.5)
        )
        step = TrainStep(model, optimizer, StepOptions(0.1, clip_norm=1.0))
    inputs, labels = make_batches().assemble(np.arange(2), (2, 9))
    weights = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill(
            labels.shape, (1.0, np.inf)[context.replica_id_in_sync_group]
        )
    )

    @tf.function(autograph=False)
    def run(weights):
        strategy.run(lambda each: step(inputs, labels, each)[0], (weights,))

    before = model.get_weights()
    scale = optimizer.dynamic_scale.value.numpy()
    run(weights)
    assert optimizer.dynamic_scale.value.numpy() == scale / 2
    for variable, value in zip(model.weights, before, strict=True):
        for copy in strategy.experimental_local_results(variable.value):
            np.testing.assert_array_equal(copy, value)


# The trainer


TRAINING = (
    "--vocab_size=150",
    "--batch_tokens=400",
    "--num_buckets=2",
    "--warmup_steps=10",
    "--log_steps=1",
    "--checkpoint_steps=4",
    "--train_steps=24",
)


@pytest.fixture(scope="module")
def command(train_files):
    return [*train_files, *SMALL_MODEL, *TRAINING]


def state_of(trainer):
    engine = trainer.engine
    variables = engine.model.variables + engine.optimizer.variables
    return [variable.value.numpy() for variable in variables]


@pytest.mark.slow("options")
def test_calls_of_several_steps_are_those_steps(command, tmp_path, monkeypatch):
    # Adam would magnify the rounding errors of gradients that should be zero.
    monkeypatch.setattr(
        Experiment, "make_optimizer", lambda *_: keras.optimizers.SGD(0.1)
    )
    argv = [*command, "--train_steps=9", "--num_buckets=1"]
    several = [f"--workdir={tmp_path}/1", "--steps_per_call=4"]
    together = open_trainer([*argv, *several])
    one_by_one = open_trainer([*argv, f"--workdir={tmp_path}/2"])
    # The same order, one batch at a time.
    batches = together.experiment.train_batches
    in_calls = [len(labels) for _, labels in together._batches()]
    assert in_calls == [4, 4, 1]
    monkeypatch.setattr(
        one_by_one.experiment.train_batches, "epoch_order", batches.epoch_order
    )
    before = state_of(together)
    together.run()
    one_by_one.run()
    assert together.progress.step == one_by_one.progress.step == 9
    changes = []
    for start, a, b in zip(
        before, state_of(together), state_of(one_by_one), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        changes.append(np.abs(a - start).max())
    assert max(changes) > 1e-2


def test_an_engine_computes_layers_again(command, tmp_path, monkeypatch):
    models = []
    monkeypatch.setitem(REMATERIALIZE, "layers", models.append)
    argv = [*command, f"--workdir={tmp_path}", "--remat=layers"]
    assert models == [open_trainer(argv).engine.model]


def test_so_few_pairs_are_no_language(command, tmp_path, capsys):
    open_trainer([*command, f"--workdir={tmp_path}"])
    out = capsys.readouterr().out
    assert "\n  note: 300 pairs can be learned by heart, but no language" in out


def test_trying_the_largest_batch_leaves_no_trace(command, tmp_path):
    argv = [*command, "--dropout=0.3", "--remat=layers"]
    trainer = open_trainer([*argv, f"--workdir={tmp_path}"])
    before = state_of(trainer)
    assert try_batches(trainer.experiment, trainer.engine) > 0
    for a, b in zip(before, state_of(trainer), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_batch_beyond_all_memory_is_not_tried(command, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda: 100_000)
    argv = [*command, f"--workdir={tmp_path}", "--batch_tokens=999999999999"]
    trainer = open_trainer(argv)
    with pytest.raises(CommandError, match="0.0 GiB of memory are free") as e:
        try_batches(trainer.experiment, trainer.engine)
    found = re.search("batch, (.+) x (.+) tokens.* such as (.+)", str(e.value))
    rows, length, fitting = (
        int(text.replace(",", "")) for text in found.groups()
    )
    assert 0 < fitting < rows * length  # the corpus fills no larger batch


def test_too_long_a_batch_is_one_clear_line(command, tmp_path, monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    monkeypatch.setattr(TrainStep, "__call__", mock.Mock(side_effect=error))
    with pytest.raises(CommandError, match="batch.*--remat=layers may fit"):
        open_trainer([*command, f"--workdir={tmp_path}"], try_largest=True)


def test_what_fits_instead_is_named(command, tmp_path, monkeypatch):
    """A part of the rows is tried, as large as a micro-batch of them."""
    tried = []

    def try_batch(self, shape):
        tried.append(shape)
        if shape[0] * shape[1] > 200:
            raise OutOfMemoryError("OOM")
        return 1.0

    monkeypatch.setattr(TensorFlowEngine, "try_batch", try_batch)
    argv = [*command, "--num_buckets=1", "--batch_tokens=800"]
    with pytest.raises(CommandError) as error:
        open_trainer([*argv, f"--workdir={tmp_path}"], try_largest=True)
    (rows, length), *_, fitting = tried
    found = re.search(r"--accumulate_steps=(\d+) fits", str(error.value))
    parts = int(found[1])
    assert rows // parts == fitting[0]
    assert f"--batch_tokens={fitting[0] * length} (" in str(error.value)
    assert fitting[0] * length <= 200 < 2 * fitting[0] * length


def test_dry_run_shows_and_writes_nothing(command, tmp_path, capsys):
    workdir = tmp_path / "run"
    wmt.main([*command, f"--workdir={workdir}", "--dry_run"])
    out = capsys.readouterr().out
    assert not workdir.exists()
    assert out.endswith("\ndry run: nothing was written\n")
    embeddings, attention, norm = 150 * 16, 4 * 16 * 16, 2 * 16
    feed_forward = 16 * 16 + 16 + 16 * 16 + 16
    parameters = embeddings + 3 * attention + 2 * feed_forward + 5 * norm
    assert f"budget: {parameters:,} parameters; 24 steps are" in out
    assert "the largest batches, " in out
    assert "step 1 " not in out


def test_the_budget_tells_what_a_short_training_leaves_out():
    training = TrainingConfig(
        train_steps=1000, train_minutes=5.0, warmup_steps=300, valid_steps=200
    )
    task = task_with(make_batches(), training)
    assert notes_on(task, 1000) == notes_on(task, 600) == []
    [warm_up] = notes_on(task, 599)
    flags = "--warmup_steps=59 --learning_rate_scale=0.443"  # (59 / 300)**0.5
    assert f"{flags} makes it a tenth" in warm_up
    _, validation = notes_on(task, 199)
    assert "--valid_steps=200 is more than the steps" in validation


@pytest.mark.parametrize("num_pairs, tokens", [(1, 60), (30, 7), (300, 7)])
def test_batches_that_are_too_large_for_a_corpus_are_told(num_pairs, tokens):
    """One pair has 60 tokens on each side. The others have fewer."""
    lengths = np.array([60] + [tokens] * (num_pairs - 1))
    rows = corpus_module.TokenRows(
        np.full(lengths.sum(), 5), np.cumsum([0, *lengths])
    )
    counts = corpus_module.CorpusCounts(num_pairs, num_pairs, 0, 0, 60)
    corpus = corpus_module.Corpus(rows, rows, counts)
    batches = batches_module.make_batches(corpus, 25000, seed=0)
    notes = notes_on(task_with(batches, TrainingConfig()), 1e9)
    assert len(notes) == (num_pairs > 1)
    for note in notes:
        share = int(re.search(r"note: (\d+)% of a batch is padding", note)[1])
        assert share == round(100 * (1 - lengths.sum() / (60 * num_pairs)))
        assert f": {num_pairs} pairs for --batch_tokens=25000; " in note
        less = int(re.search(r"--batch_tokens=(\d+) halves it", note)[1])
        better = batches_module.make_batches(corpus, less, seed=0)
        assert better.padding_share < batches.padding_share / 2


def task_with(batches, training):
    """Makes a `Task` with the attributes that `notes_on` reads."""
    data = DataConfig(batch_tokens=25000)
    return mock.Mock(
        train_batches=batches, training=training, data=data, rows_multiple=1
    )


def test_validation_computes_no_more_at_once_than_training(tmp_path):
    valid = phrasebook.read_split("valid", 40)
    path = tmp_path / "tokenizer.model"
    kt.Tokenizer.train((t for pair in valid for t in pair), 90).save(path)
    data = DataConfig(
        batch_tokens=800, phrasebook_pairs=40, tokenizer=str(path)
    )
    configuration = Configuration(
        kt.TransformerConfig(**{**SIZES, "vocab_size": 90}),
        data,
        TrainingConfig(accumulate_steps=4),
        kt.DecodingConfig(),
    )
    experiment = read_experiment(
        Opening(
            WorkDirectory(tmp_path / "run"),
            configuration,
            TensorFlowDevices("one_device"),
            make_translation_metric(configuration),
            log=lambda line: None,
        )
    )
    assert experiment.rows_multiple == 4
    for rows, length in experiment.valid_batches.shapes:
        assert rows * length <= 800 // 4
    for rows, _ in experiment.train_batches.shapes:
        assert rows % 4 == 0


@pytest.mark.slow("run")
def test_other_batches_begin_an_epoch(command, tmp_path, caplog):
    """In the middle of an epoch, pairs would come again, or never."""
    argv = [*command, f"--workdir={tmp_path}"]
    before = open_trainer([*argv, "--train_steps=5"])
    before.run()
    per_epoch = before.experiment.train_batches.steps_per_epoch
    assert before.progress.data_step == 5
    assert 5 % per_epoch

    same = open_trainer(argv)
    assert same.progress.data_step == 5
    assert "epoch" not in caplog.text
    other = open_trainer([*argv, "--batch_tokens=600"])
    batches = other.experiment.train_batches
    epoch = -(-5 // per_epoch)
    assert (other.progress.epoch, other.progress.epoch_step) == (epoch, 0)
    assert f"epoch {epoch + 1} begins" in caplog.text
    inputs, _ = next(iter(other._batches()))
    expected, _ = batches.assemble(*batches.epoch_order(epoch)[0])
    np.testing.assert_array_equal(inputs["source_ids"], expected["source_ids"])
    assert len(list(other._batches())) == 24 - 5


def test_each_slice_has_gradients_of_its_own(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(startup, "SLICE_TOKENS", 100)
    argv = [*command, "--d_model=256", "--d_ff=1024", "--batch_tokens=400"]
    mib = []
    for threads in (1, 3):
        folder = f"--workdir={tmp_path}/{threads}"
        open_trainer([*argv, folder, f"--cpu_threads={threads}"])
        lines = capsys.readouterr().out
        mib.append(float(re.search(r"gradients (\S+) MiB", lines)[1]))
    assert mib[1] == pytest.approx(3 * mib[0], abs=2)


@pytest.mark.slow("process")
def test_two_workers_train_lose_one_and_resume(
    command, processes, tmp_path, capsys
):
    """Equal to one device; one killed, the other says so; restarted, it ends.

    The worker that is lost is told from one that got a signal: that one stops
    both, and leaves a checkpoint.
    """
    command = [*command, "--dropout=0"]
    # Two micro-batches: its batches have as many rows as those of two workers.
    wmt.main([*command, f"--workdir={tmp_path}/one", "--accumulate_steps=2"])
    expected = losses_in(capsys.readouterr().out)
    assert sorted(expected) == list(range(1, 25))

    workdir = tmp_path / "two"
    command += ["--strategy=multi_worker", f"--workdir={workdir}"]
    endless = [*command, "--train_steps=1000000"]
    chief, other = start_workers(processes, [endless] * 2, fresh=True)
    chief.read_until("step 9 ")
    other.send_signal(signal.SIGKILL)
    losses = losses_in(chief.ends(1))
    other.ends(-signal.SIGKILL)
    # TensorFlow's network may write lines of its own when a worker dies.
    waiting, lost = [
        line
        for line in chief.err.splitlines()
        if line.startswith(("worker ", "kt-train: "))
    ]
    assert waiting == "worker 0: waiting for the other workers"
    assert lost.startswith("kt-train: worker 0 of 2 has lost another work")
    assert "Traceback" not in chief.err

    chief, other = start_workers(processes, [endless] * 2)
    chief.read_until("step 13 ")
    other.send_signal(signal.SIGTERM)
    out = chief.ends()
    other.ends()
    resumed_at = int(out.split("resuming at step ")[1].split(":")[0])
    assert resumed_at % 4 == 0 and resumed_at >= 8
    stopped = int(out.split("stopped by SIGTERM | step ")[1].split()[0])
    assert (workdir / f"checkpoints/ckpt-{stopped}.safetensors").exists()
    losses.update(losses_in(out))

    if stopped < 24:
        chief, other = start_workers(processes, [command] * 2)
        out = chief.ends()
        assert other.ends() == ""
        assert f"resuming at step {stopped}: " in out
        losses.update(losses_in(out))
    for step, loss in expected.items():
        np.testing.assert_allclose(losses[step], loss, rtol=2e-3)


def test_a_taken_port_is_one_clear_line(command, processes, tmp_path):
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        hosts = [f"localhost:{taken.getsockname()[1]}"] * 2
        process = processes.start(
            [*command, f"--workdir={tmp_path}/run", "--strategy=multi_worker"],
            TF_CONFIG=json.dumps(cluster_of(hosts, 0)),
        )
        process.ends(2)
    last = process.err.splitlines()[-1]
    assert "worker 0 cannot join the workers of TF_CONFIG" in last
    assert "worker 0: waiting for the other workers" in process.err


def test_a_reason_is_not_where_in_the_graph():
    message = (
        "Graph execution error:\n\nDetected at node Collective defined at\n"
        '  File "<frozen runpy>", line 198\n\n<stack traces unavailable>\n'
        "Socket closed {{while reading}}\n\t [[{{node Collective}}]]"
    )
    error = tf.errors.UnavailableError(None, None, message)
    workers = strategies.Workers(tf.distribute.get_strategy())
    workers.size = 2
    with pytest.raises(LostWorkerError, match=r"\(Socket closed\)"):
        with workers.watch():
            raise error


TWO = ["localhost:1", "localhost:2"]


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[" * 100_000,
        "[]",
        {"cluster": TWO},
        cluster_of(TWO[0], 0),
        cluster_of([1, 2], 0),
        cluster_of(["a"], 0),
        {"cluster": {"worker": TWO}},
        {"cluster": {"worker": TWO}, "task": {"type": "worker"}},
        cluster_of(TWO, 0, "ps"),
        cluster_of(TWO, 2),
        cluster_of(TWO, -1),
        cluster_of(TWO, "0"),
    ],
)
def test_wrong_tf_config(config, monkeypatch, tmp_path, capsys):
    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    message = fails(wmt.main, [f"--workdir={tmp_path}/run"], capsys)
    assert "TF_CONFIG must be {" in message
    assert f"a different form. Received: TF_CONFIG='{text[:99]}" in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "config, cluster",
    [
        ({}, None),
        ({"cluster": {}, "task": {}}, None),
        (cluster_of(TWO, 1), Cluster(tuple(TWO), 1, "worker 1")),
        (
            cluster_of(TWO, 0, "chief", chief=TWO[:1]),
            Cluster((TWO[0], *TWO), 0, "chief 0"),
        ),
    ],
)
def test_tf_config(config, cluster, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert read_cluster() == cluster
    assert find_cluster("auto") == cluster
    assert find_cluster("mirrored") is None


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--strategy=multi_worker", "strategy=multi_worker needs it"),
        ("--strategy=tpu", "--backend=jax with strategy=tpu"),
    ],
)
def test_wrong_strategy(flag, message, tmp_path, capsys):
    argv = ["--recipe=quickstart", f"--workdir={tmp_path}/run", flag]
    assert message in fails(wmt.main, argv, capsys)
