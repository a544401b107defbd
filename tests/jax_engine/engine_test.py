"""Laws of the JAX engine: updates do not depend on the division of rows."""

import json
import os
import subprocess
import sys
import threading
import time

import jax
import keras
import numpy as np
import pytest
import sharing
from commands import (
    copy_of_run,
    fails,
    losses_in,
    open_trainer,
    run_python,
    stopped_at,
    tensors,
)

import keras_transformer as kt
from keras_transformer.commands import devices, startup
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation import shortlist
from trainers import align, average, evaluate, score, wmt
from trainers.run import jax_engine, loop
from trainers.run.jax_engine import in_background

MOMENTS = "checkpoints/ckpt-1"


def trained(argv, path, capsys):
    """Returns the losses of a training, and its moments after one step."""
    capsys.readouterr()
    wmt.main([*argv, f"--workdir={path}"])
    losses = losses_in(capsys.readouterr().out)
    return losses, tensors(path / MOMENTS, "optimizer")


def assert_same_training(path, losses, expected, tolerance):
    """Checks that two trainings have the same losses and first moments."""
    expected_path, expected_losses = expected
    assert losses == pytest.approx(expected_losses, rel=tolerance)
    moments = tensors(path / MOMENTS, "optimizer")
    its_moments = tensors(expected_path / MOMENTS, "optimizer")
    assert moments.keys() == its_moments.keys()
    for name, moment in its_moments.items():
        np.testing.assert_allclose(
            moments[name], moment, rtol=1e-4, atol=1e-7, err_msg=name
        )


def assert_same_arrays(one, other):
    """Checks that two checkpoints have equal arrays, bit for bit."""
    np.testing.assert_equal(tensors(one), tensors(other))


@pytest.mark.parametrize(
    "flags",
    [
        "--strategy=mirrored",
        "--strategy=one_device --accumulate_steps=4",
        "--remat=layers",
        "--shard_parameters --accumulate_steps=2",
    ],
)
def test_rows_may_be_divided(flags, exact, one_device, tmp_path, capsys):
    losses, _ = trained([*exact, *flags.split()], tmp_path, capsys)
    assert_same_training(tmp_path, losses, one_device, 1e-4)
    assert len(losses) == 3


def test_the_gradient_of_all_devices_is_clipped(
    exact, one_device, tmp_path, capsys
):
    argv = [*exact, "--clip_norm=0.05", "--train_steps=1"]
    _, moments = trained([*argv, "--shard_parameters"], tmp_path, capsys)
    free = norm_of_gradient(tensors(one_device[0] / MOMENTS, "optimizer"))
    assert free > 0.1
    assert norm_of_gradient(moments) == pytest.approx(0.05, rel=1e-3)


def norm_of_gradient(moments):
    """Returns the first gradient's norm: first moments are 0.1 of it."""
    arrays = [moments[f"optimizer/{i}"] for i in range(len(moments))]
    momenta = [array for array in arrays if array.ndim][0::2]
    return 10 * np.sqrt(sum(np.sum(array**2) for array in momenta))


def test_parameters_are_stored_in_parts(exact, tmp_path):
    trainer = open_trainer(
        [*exact, "--shard_parameters", f"--workdir={tmp_path}"]
    )
    state = trainer.engine._state
    assert sum(x.size for x in state.optimizer) > 2 * state.trained.size
    for array in (state.trained, *state.optimizer[-2:]):
        [part] = {shard.data.size for shard in array.addressable_shards}
        assert part == array.size // 8


def steps_of_equal_rows(argv, num_rows):
    """Returns losses and seeds of three steps on equal rows."""
    engine = open_trainer(argv).engine
    rows = np.tile(np.array([[5, 6, 7, 2]], np.int32), (num_rows, 1))
    inputs = {"source_ids": rows, "target_ids": rows}
    views = [*engine.variables()["weights"].values()]
    weights = [view.numpy() for view in views]
    losses, seeds = [], []
    for _ in range(3):
        for view, value in zip(views, weights, strict=True):
            view.assign(value)
        batch = engine._step.place_rows(inputs, rows)
        losses.append(float(engine.make_steps(batch).totals[0]))
        seeds.append(tuple(map(int, engine.read("seeds", 0))))
    return losses, seeds


@pytest.fixture(scope="session")
def with_dropout(exact, tmp_path_factory):
    """Flags of a run on eight devices, and steps with sixteen equal rows."""
    path = tmp_path_factory.mktemp("dropout")
    argv = [*exact, "--dropout=0.5", f"--workdir={path}"]
    return argv, *steps_of_equal_rows(argv, 16)


def test_dropout_has_new_units_in_each_step_and_on_each_device(with_dropout):
    """With the same units everywhere, eight devices would repeat one."""
    argv, losses, seeds = with_dropout
    assert len({round(loss, 1) for loss in losses}) == 3
    assert len(set(seeds)) == 3
    one, _ = steps_of_equal_rows([*argv, "--strategy=one_device"], 2)
    for of_eight, of_one in zip(losses, one, strict=True):
        assert abs(of_eight / 8 - of_one) > 1e-3 * of_one


def test_layers_are_computed_again_with_the_same_dropout(with_dropout):
    argv, losses, seeds = with_dropout
    found, its_seeds = steps_of_equal_rows([*argv, "--remat=layers"], 16)
    assert found == pytest.approx(losses, rel=1e-6)
    assert its_seeds == seeds


def test_fit_has_dropout():
    """`model.fit` under JAX: a law that Keras' `stateless_call` breaks."""
    config = kt.preset("tiny", vocab_size=40, num_layers=1, dropout=0.5)
    model = kt.Transformer(config)
    model.compile(keras.optimizers.SGD(0.0), kt.SmoothedCrossEntropy(0.1))
    ids = np.random.default_rng(1).integers(4, 40, (8, 9)).astype("int32")
    inputs = {"source_ids": ids, "target_ids": ids}
    exact = model.evaluate(inputs, ids, verbose=0)
    losses = [
        model.fit(inputs, ids, verbose=0).history["loss"][0] for _ in range(3)
    ]
    # The order of the rows changes the last digits only.
    assert len({round(loss, 3) for loss in [exact, *losses]}) == 4
    assert model.evaluate(inputs, ids, verbose=0) == pytest.approx(exact)


@pytest.mark.parametrize(
    "fields", [{}, {"positions": "relative"}, {"attention_window": 3}]
)
def test_ids_may_be_empty(fields):
    """JAX, like TensorFlow, infers no size beside 0."""
    config = kt.preset("tiny", vocab_size=40, num_layers=1, **fields)
    model = kt.Transformer(config)
    ids = np.full((2, 3), 5, "int32")
    for source, target in ((ids[:, :0], ids), (ids, ids[:, :0])):
        logits = model(
            {"source_ids": source, "target_ids": target}, training=True
        )
        assert logits.shape == (*target.shape, 40)
        assert np.isfinite(logits).all()


def test_fit_without_trainable_weights():
    model = kt.Transformer(kt.preset("tiny", vocab_size=40, num_layers=1))
    model.trainable = False
    model.compile("sgd", kt.SmoothedCrossEntropy(0.1))
    ids = np.full((2, 3), 5, "int32")
    inputs = {"source_ids": ids, "target_ids": ids}
    loss = model.fit(inputs, ids, verbose=0).history["loss"][0]
    assert np.isfinite(loss)


def test_a_moving_average(exact, tmp_path):
    """The saved weights are the average by its formula."""
    argv = [*exact, "--checkpoint_steps=1", "--keep_checkpoints=4"]
    wmt.main([*argv, "--ema_decay=0.9", f"--workdir={tmp_path}"])
    parts = [tensors(tmp_path / f"checkpoints/ckpt-{step}") for step in (2, 3)]
    name = "embedding.embeddings"
    decay = min(0.9, (1 + 3) / (10 + 3))
    before, after = (part[f"weights/{name}"] for part in parts)
    expected = decay * before + (1 - decay) * parts[1][f"trained/{name}"]
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-7)
    assert not np.allclose(after, parts[1][f"trained/{name}"])


# A run, its end, and what follows


def test_a_stopped_run_resumes_exactly(command, tmp_path, monkeypatch, capsys):
    argv = [*command, "--dropout=0.1"]
    wmt.main([*argv, f"--workdir={tmp_path}/one"])
    expected = losses_in(capsys.readouterr().out)
    argv.append(f"--workdir={tmp_path}/two")
    with monkeypatch.context() as patch:
        stopped_at(3, patch)
        wmt.main(argv)
    out = capsys.readouterr().out
    assert "stopped by SIGTERM | step 3" in out
    losses = losses_in(out)
    wmt.main(argv)
    out = capsys.readouterr().out
    assert "resuming at step 3" in out
    losses.update(losses_in(out))
    assert losses == expected
    last = "checkpoints/ckpt-6"
    assert_same_arrays(tmp_path / "one" / last, tmp_path / "two" / last)


def test_adapters_are_trained_beside_frozen_weights(
    command, run, tmp_path, capsys
):
    """Only they are saved, a resumed run continues, a translator has W + AB."""
    path, again = tmp_path / "run", tmp_path / "again"
    argv = [*command, f"--init_from={run}", "--lora_rank=2", "--valid_steps=3"]
    wmt.main([*argv, f"--workdir={path}"])
    expected = losses_in(capsys.readouterr().out)
    saved = tensors(path / "checkpoints/ckpt-6")
    names = [n for n in saved if n.startswith("weights/")]
    assert len(names) == 3 * 2 * 2 and all("lora_kernel" in n for n in names)
    moments = [n for n in saved if n.startswith("optimizer/") and saved[n].ndim]
    assert len(moments) == 2 * len(names)
    copy_of_run(path, 4, again)
    wmt.main([*argv, f"--workdir={again}"])
    losses = losses_in(capsys.readouterr().out)
    assert losses == {step: expected[step] for step in (5, 6)}
    weights = named_weights(kt.Translator.load(path, checkpoint="latest").model)
    base = tensors(run / "averaged/ckpt-6")
    stem = "decoder.layer_0.cross_attention.value"
    a, b = (saved[f"weights/{stem}.lora_kernel_{x}"] for x in "ab")
    assert b.any()
    np.testing.assert_array_equal(
        weights[f"{stem}.kernel"], base[f"weights/{stem}.kernel"] + a @ b
    )
    stem = "decoder.layer_0.cross_attention.key.kernel"
    np.testing.assert_array_equal(weights[stem], base[f"weights/{stem}"])


def test_validation_compiles_once(command, tmp_path, monkeypatch):
    """The second validation uses the programs of the first."""
    made = []
    validate = loop.Trainer._validate

    def count(trainer):
        validate(trainer)
        made.append(
            len(sharing.engine_search(trainer.validator.translator)._programs)
        )

    monkeypatch.setattr(loop.Trainer, "_validate", count)
    wmt.main([*command, "--valid_steps=3", f"--workdir={tmp_path}"])
    assert made[0] == made[1] > 0


@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_all_programs_of_the_step_are_compiled_before_it_begins(
    steps_per_call, command, tmp_path
):
    flags = [f"--workdir={tmp_path}", f"--steps_per_call={steps_per_call}"]
    trainer = open_trainer([*command, *flags], True)
    step = trainer.engine._step
    assert len(trainer.experiment.train_batches.shapes) == 2
    assert len(step._programs) == trainer.engine.num_programs
    trainer.run()
    assert len(step._programs) == 2 * steps_per_call
    assert step._compiled._cache_size() == 0


@pytest.fixture(scope="session")
def run(command, tmp_path_factory):
    """A work directory after a training."""
    path = tmp_path_factory.mktemp("run")
    wmt.main([*command, f"--workdir={path}"])
    return path


def test_commands_that_use_a_work_directory(run, corpus, capsys):
    average.main([f"--workdir={run}", "--last=2"])
    assert "is the mean of" in capsys.readouterr().out
    test = next(flag for flag in corpus if flag.startswith("--test"))
    evaluate.main([f"--workdir={run}", test])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "bleu" in result
    score.main([f"--workdir={run}", test])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    sums = [float(line.split("\t")[0]) for line in lines[:-1]]
    assert all(np.isfinite(sums)) and max(sums) < 0
    align.main([f"--workdir={run}", test])
    assert capsys.readouterr().out


def test_translations_do_not_depend_on_the_batch(run):
    translator = kt.Translator.load(run)
    lines = ["the old man reads a book", "", "she is tired and he is not", "a"]
    together = translator.translate(lines)
    assert together == [translator.translate([line])[0] for line in lines]
    assert together[1] == ""


def test_few_programs_serve_batches_of_any_size(run):
    """Up to 32 tokens, a full batch has 2048 // 32 rows."""
    translator = kt.Translator.load(run)
    line = "the old man reads a book in the old house"
    [ids] = translator.tokenizer.source.to_ids([line])
    assert 24 < len(ids) + 1 <= 32
    expected = translator.translate([line] * 9)
    assert [expected[:n] for n in range(1, 9)] == [
        translator.translate([line] * n) for n in range(1, 9)
    ]
    programs = sharing.engine_search(translator)._programs
    assert {program.shapes[0][0] for program in programs} == {1, 8, 64}


def test_a_shortlist_that_has_the_tokens_of_an_output_gives_it(
    run, monkeypatch
):
    """Greedy search: the best of all tokens is the best of some."""
    monkeypatch.setattr(shortlist, "SMALLEST", 64)
    plain = kt.Translator.load(run).with_decoding(beam_size=1)
    line, none = "the old man reads a book", [[]] * 150
    [ids] = [ids for ids, _ in plain.n_best_ids([line])[0]]

    def search(tokens):
        listed = kt.Translator(
            plain.tokenizer,
            plain.model,
            plain.decoding,
            plain.max_source_length,
            shortlist=shortlist.Shortlist(tokens, none, 150),
        )
        [(found, _)] = listed.n_best_ids([line])[0]
        return found

    assert search(ids) == ids
    others = sorted(set(range(4, 150)) - set(ids))[:60]  # and the special ones
    assert set(search(others)) <= {EOS, UNK, *others}


def test_an_ensemble_is_the_mean_of_its_models(run):
    """The weights of all of them are arguments of the programs."""
    alone, other = kt.Translator.load(run), kt.Translator.load(run)
    random = np.random.RandomState(0)
    for weight in other.model.weights:
        weight.assign(random.normal(size=weight.shape, scale=0.5))
    both = kt.Translator(
        alone.tokenizer,
        [alone.model, other.model],
        kt.DecodingConfig(length_penalty=0.0),
        alone.max_source_length,
    )
    pairs = [("the old man reads a book", "der alte Mann"), ("a", "ein")]

    def check():
        scores = [each.score(pairs) for each in (both, alone, other)]
        for mean, *models in zip(*scores, strict=True):
            values = [np.exp(model.log_probs) for model in models]
            expected = np.log(np.mean(values, axis=0))
            np.testing.assert_allclose(mean.log_probs, expected, rtol=1e-4)
        [(ids, found), *_] = both.n_best_ids([pairs[0][0]])[0]
        source = np.array(both.tokenizer.to_ids([pairs[0][0]]), "int32")
        forced = both.inference.score_ids(source, np.array([ids], "int32"))
        np.testing.assert_allclose(found, np.sum(forced), rtol=1e-4)
        return found

    before, programs = check(), len(sharing.engine_search(both)._programs)
    other.model.weights[0].assign(alone.model.weights[0])
    assert check() != pytest.approx(before)
    assert len(sharing.engine_search(both)._programs) == programs


def test_samples_depend_on_sentence_and_seed_alone(run):
    translator = kt.Translator.load(run).with_decoding(
        sampling=True, temperature=2.0, num_samples=4
    )
    line = "the old man reads a book"
    [alone] = translator.n_best([line])
    assert len({text for text, _ in alone}) > 1
    among = translator.n_best(["a dog", line, "the woman"])[1]
    assert [text for text, _ in among] == [text for text, _ in alone]
    assert translator.with_seed(3).n_best([line]) != [alone]


def test_no_command_needs_tensorflow(run):
    """The lines are those of this process."""
    line = "the old man reads a book"
    command = ["-m", "trainers.translate", f"--workdir={run}"]
    found = run_python(*command, text=f"{line}\n\n").splitlines()
    assert found == [*kt.Translator.load(run).translate([line]), ""]
    assert "tensorflow" not in sys.modules


def test_a_device_starts_while_a_command_goes_on(monkeypatch):
    goes_on = threading.Event()
    monkeypatch.setattr(jax, "devices", goes_on.wait)
    startup.start_jax()
    goes_on.set()  # else the device would never have started


@pytest.mark.parametrize("wanted", [True, False])
def test_programs_for_a_gpu_are_stored(wanted, tmp_path):
    """The commands' start, where a GPU seems to be there; a CPU computes."""
    program = (
        "from keras_transformer.commands import startup\n"
        "startup.find_gpus = lambda: ['NVIDIA X 1']\n"
        f"options = {{'backend': 'jax', 'keep_programs': {wanted}}}\n"
        "startup.choose_backend(startup.DeviceOptions(**options))\n"
        "import jax\n"
        "jax.jit(lambda x: x + 1)(1.0)\n"
    )
    kept = {k: v for k, v in os.environ.items() if "CACHE" not in k}
    kept["XDG_CACHE_HOME"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", program], env=kept, check=True)
    folder = tmp_path / f"keras_transformer/jax-{jax.__version__}-NVIDIA-X-1"
    assert folder.exists() == wanted
    assert not wanted or any("lambda" in path.name for path in folder.iterdir())


# Errors


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--precision=mixed_float16", "or --backend=tensorflow, which scales"),
        ("--jit_compile=false", "JAX compiles every step"),
        ("--cpu_threads=2", "--backend=tensorflow with cpu_threads"),
        ("--strategy=tpu", "a TPU, with strategy=tpu. Received: "),
        ("--strategy=multi_worker", "strategy=multi_worker"),
    ],
)
def test_an_option_that_jax_does_not_have(
    flags, message, command, tmp_path, capsys
):
    argv = [*command, *flags.split(), f"--workdir={tmp_path}/run"]
    assert message in fails(wmt.main, argv, capsys)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_does_not_fit(command, tmp_path, monkeypatch, capsys):
    """Found before training, with a value that fits."""
    make_step = jax_engine.JaxEngine._make_step

    def limited(engine, batch):
        if batch[1].size > 700:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."
            )
        return make_step(engine, batch)

    monkeypatch.setattr(jax_engine.JaxEngine, "_make_step", limited)
    argv = [*command, "--strategy=one_device", f"--workdir={tmp_path}/run"]
    with pytest.raises(SystemExit):
        wmt.main(argv)
    err = capsys.readouterr().err
    for part in ("not fit into memory", "--accumulate_steps=2", "RESOURCE_EX"):
        assert part in err


@pytest.mark.parametrize(
    "environment, reason",
    [
        ({"CUDA_VISIBLE_DEVICES": "7"}, "CUDA_VISIBLE_DEVICES='7' selects"),
        ({}, r"pip install 'keras-transformer-nmt[jax-cuda]' installs it"),
    ],
)
def test_a_gpu_that_jax_cannot_use(environment, reason, monkeypatch):
    monkeypatch.setattr(devices, "find_gpus", lambda: ["NVIDIA H100"])
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    line = devices.describe(jax.devices())
    assert line.startswith("warning: a GPU is present (NVIDIA H100), but JAX")
    assert reason in line
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # as --device=cpu sets it
    line = devices.describe(jax.devices())
    assert line.startswith("device: CPU, ") and "GPUs are not used" in line
    monkeypatch.setattr(devices, "find_gpus", lambda: [])
    assert "(no GPU found; JAX " in devices.describe(jax.devices())


def test_items_are_made_in_the_background():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    found = in_background(items(), size=3)
    assert next(found) == 0
    time.sleep(0.3)
    assert len(made) <= 6
    assert list(found) == list(range(1, 100))

    def failing():
        yield 1
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        list(in_background(failing(), size=1))
    endless = in_background(iter(int, 1), size=2)
    next(endless)
    endless.close()  # and the thread ends
