"""Trains a translator, or resumes its training.

    kt-train --recipe=quickstart --workdir=quickstart
    kt-train --recipe=multi30k_ende --workdir=runs/mine \\
        --dataset=files --train_files=corpus/train \\
        --valid_files=corpus/valid --test_files=corpus/test
    kt-train --init_from=runs/mine --workdir=runs/domain \\
        --dataset=files --train_files=domain.csv --columns=English,German

If training is killed, rerun the same command to resume. The shape of the model,
the data set, the languages, the vocabulary and the precision must stay the
same. The rest may change. If the batches change, a new epoch begins. Ctrl-C
saves a checkpoint before training ends.
"""

import contextlib
import dataclasses
import importlib.resources
import os
import pathlib
import re
import sys
import typing
from importlib.resources.abc import Traversable

from keras_transformer.base.fields import hp, required
from keras_transformer.commands import flags
from keras_transformer.commands.startup import (
    DeviceOptions,
    backend_name,
    choose_backend,
    count_slices,
    load,
    prepare_cpu,
)
from keras_transformer.config import PRESETS, DecodingConfig, TransformerConfig
from keras_transformer.storage import box
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.text.tokenization import Tokenizer
from trainers.datasets.dataset import implied_dataset
from trainers.run.cluster import find_cluster
from trainers.run.data_config import DataConfig
from trainers.run.inheritance import LANGUAGES, check_same, read_parent
from trainers.run.training_config import (
    Configuration,
    TrainingConfig,
    as_flags,
    shorter_warmup,
)

RECIPES = importlib.resources.files("trainers") / "configs"
PARSERS = "parse"  # prefix of the recipes of kt-parse
# Fields that decide about the warm-up.
WARMUP = {"learning_rate_scale", "schedule", "warmup_steps"}


def recipe_names(of_parsers: bool = False) -> tuple[str, ...]:
    """Returns the installed recipes of kt-train, or of kt-parse."""
    files = (pathlib.PurePath(path.name) for path in RECIPES.iterdir())
    return tuple(
        sorted(
            file.stem
            for file in files
            if file.suffix == ".flags"
            and file.stem.startswith(PARSERS) == of_parsers
        )
    )


class WmtOptions(DeviceOptions):
    """The run."""

    workdir: str = required("DIR", "Directory of the run, new or existing.")
    recipe: str | None = hp(
        None,
        "A flag file that is installed with the package. --flagfile and the"
        " command line override it. A flag file may begin with --recipe=NAME"
        " and then holds only its own differences.",
        choices=recipe_names(),
        common=True,
    )
    preset: str = hp(
        "base",
        "Model whose fields are the defaults.",
        choices=tuple(PRESETS),
        common=True,
    )
    dry_run: bool = hp(
        False,
        "Show the cost of the run, try its largest batch, and end.",
        common=True,
    )


SECTIONS = (
    WmtOptions,
    DataConfig,
    TransformerConfig,
    TrainingConfig,
    DecodingConfig,
)


def read_arguments(
    argv: list[str] | None,
    description: str = __doc__,
    sections: tuple[type, ...] = SECTIONS,
) -> tuple[flags.Arguments, WmtOptions]:
    """Parses a command line and its recipe.

    Takes the arguments of `flags.parse`. Returns all arguments, and the options
    of the first section.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = flags.parse(argv, description, *sections)
    options = arguments.build(sections[0])
    own = arguments.given
    if options.recipe:
        with contextlib.ExitStack() as stack:
            files = [
                f"--flagfile={stack.enter_context(path)}"
                for path in map(
                    importlib.resources.as_file, recipe_files(options.recipe)
                )
            ]
            recipe = flags.parse(files, description, *sections).given
            # The recipe first, so that later flag files override it.
            given = flags.parse([*files, *argv], description, *sections).given
            arguments = flags.Arguments(given, own)
        if fits_warmup(arguments, options.recipe):
            arguments.given.update(
                saved_warmup(arguments.given)
                or warmup_of_few(recipe, own.get("train_steps"))
            )
        arguments.given.update(given_sizes(recipe, own))
        options = arguments.build(sections[0])
    arguments.given.update(implied_dataset(arguments.given))
    return arguments, options


def saved_warmup(given: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Returns the warm-up with which the run of `given` began, or {}.

    Shows a line if it is not that of `given`.
    """
    workdir = WorkDirectory(given["workdir"])
    if not (workdir.latest.prefixes() and workdir.config_path.exists()):
        return {}
    with flags.user_errors():
        before = workdir.read_section("training", TrainingConfig)
    names = ["warmup_steps"]
    if before.schedule == given.get("schedule", "noam") == "noam":
        names.append("learning_rate_scale")
    saved = {name: getattr(before, name) for name in names}
    if saved["warmup_steps"] != given.get("warmup_steps"):
        flags.show(f"{as_flags(saved)}, as the run began")
    return saved


def warmup_of_few(
    recipe: dict[str, typing.Any], steps: int | None
) -> dict[str, typing.Any]:
    """Makes a recipe's warm-up a tenth of `steps` if these are few.

    Else at least half of them would be warm-up. Shows a line about the change,
    and returns the changed fields, or {}.

    >>> warmup_of_few({"schedule": "cosine", "warmup_steps": 1000}, 2000)
    {}
    """
    warmup = recipe.get("warmup_steps", 0)
    if steps is None or steps >= 2 * warmup:
        return {}
    changed = shorter_warmup(recipe, steps)
    flags.show(
        f"{as_flags(changed)} instead of --warmup_steps={warmup}: a tenth of"
        " the updates, and the same peak learning rate"
    )
    return changed


def fits_warmup(arguments: flags.Arguments, recipe: str | None) -> bool:
    """Tells whether the warm-up is a recipe's, and may become shorter."""
    return bool(recipe) and not WARMUP & arguments.own.keys()


def given_sizes(
    recipe: dict[str, typing.Any], own: dict[str, typing.Any]
) -> dict[str, int]:
    """Returns the size of a vocabulary of `own`, if only a recipe names one.

    Shows a line about it. Raises CommandError if there is no vocabulary.
    """
    path = own.get("tokenizer") or own.get("target_tokenizer")
    if not path or "vocab_size" in own or "vocab_size" not in recipe:
        return {}
    with flags.user_errors():
        size = Tokenizer.load(path).vocab_size
    flags.show(f"vocab_size: {size}, that of {path}")
    return {"vocab_size": size}


def recipe_files(name: str) -> list[Traversable]:
    """Returns the flag files of a recipe, in the order in which they apply.

    A recipe whose first flag is `--recipe=OTHER` holds only its differences
    from the other.

    >>> [file.name for file in recipe_files("table3_base")]
    ['wmt14_ende_base.flags', 'table3_base.flags']
    """
    file = RECIPES / f"{name}.flags"
    first = re.search(r"^--.*", file.read_text("utf-8"), re.MULTILINE)
    flag, _, other = first[0].partition("=") if first else ("", "", "")
    return [*recipe_files(other), file] if flag == "--recipe" else [file]


def read_configuration(
    arguments: flags.Arguments,
    preset: str,
    data_section: type = DataConfig,
    decoding_section: type = DecodingConfig,
) -> Configuration:
    """Builds the `Configuration` of a command line.

    Raises CommandError if a value is wrong, or values do not fit together.
    """
    given = arguments.given
    with flags.user_errors():
        if given.get("init_from") == box.NAME:
            languages = map(given.get, LANGUAGES)
            given["init_from"] = box.choose(*languages)
    training = arguments.build(TrainingConfig)
    workdir = given.get("workdir", "")
    with flags.user_errors():
        parent = read_parent(training, workdir, data_section)
    inherited = {}
    if parent is None:
        data = arguments.build(data_section)
        model = build_model(arguments, preset, data)
    else:
        data = arguments.build(data_section, **parent.data_defaults())
        wanted = dict(PRESETS[preset]) if "preset" in arguments.given else {}
        wanted |= arguments.given_of(TransformerConfig)
        with flags.user_errors():
            parent.check_data(data)
            model = parent.change_model(wanted)
        inherited = dataclasses.asdict(parent.decoding)
    if training.guided_alignment and not inherited.get("alignment_head"):
        inherited["alignment_head"] = 1  # the head to train, by default
    decoding = arguments.build(decoding_section, **inherited)
    with flags.user_errors():  # the sections may not fit together
        configuration = Configuration(model, data, training, decoding)
        if not os.path.exists(os.path.join(workdir, "config.json")):
            configuration.check_vocabulary()  # before loading takes time
    return configuration


def check_input(configuration: Configuration, workdir: str) -> None:
    """Raises CommandError if files are wrong, or the run began otherwise.

    A run in `workdir` must have the same configuration, as for `check_same`.
    """
    with flags.user_errors():
        WorkDirectory(workdir).check_path()
        configuration.check_files()
        check_same(WorkDirectory(workdir), configuration)


def build_model(
    arguments: flags.Arguments, preset: str, data: DataConfig
) -> TransformerConfig:
    """Builds the model, with the sizes of the given vocabularies."""

    with flags.user_errors():
        base = {**PRESETS[preset], **given_vocab_sizes(data)}
    model = arguments.build(TransformerConfig, **base)
    if not data.share_vocabulary and model.source_vocab_size is None:
        model = dataclasses.replace(model, source_vocab_size=model.vocab_size)
    return model


def given_vocab_sizes(data: DataConfig) -> dict[str, int]:
    """Reads the sizes of the given vocabularies, by field of the model."""
    return {
        field: Tokenizer.load(path).vocab_size
        for field, path in data.given_tokenizers.items()
        if path
    }


def prepare_process(arguments: flags.Arguments, default_tokens: int) -> None:
    """Chooses the backend and sets the environment that TensorFlow reads.

    With several workers, TensorFlow's error log is off: several threads would
    report one network failure, which `Workers.watch` reports in one line.
    """
    choose_backend(arguments.build(DeviceOptions))
    training = arguments.build(TrainingConfig)
    batch_tokens = arguments.given.get("batch_tokens", default_tokens)
    num_slices = count_slices(
        training.cpu_threads,
        batch_tokens // training.accumulate_steps,
        bool(training.jit_compile),
    )
    prepare_cpu(training.cpu_threads, num_slices)
    if backend_name() != "tensorflow":
        return
    with flags.user_errors():
        if find_cluster(training.strategy):
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("kt-train"):
        arguments, options = read_arguments(argv)
        prepare_process(arguments, DataConfig.batch_tokens)
        if set(arguments.given) == {"workdir"} and not os.path.exists(
            options.workdir
        ):
            raise flags.CommandError(
                "expected data: --train_files=PREFIX, or a"
                " recipe with its own, such as --recipe=quickstart. Received:"
                f" --workdir={options.workdir} alone"
            )
        configuration = read_configuration(arguments, options.preset)
        check_input(configuration, options.workdir)
        load("trainers.run.session").run(
            configuration,
            options.workdir,
            options.dry_run,
            options.device,
            fits_warmup=fits_warmup(arguments, options.recipe),
        )


if __name__ == "__main__":
    main()
