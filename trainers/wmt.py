"""Trains a translator, or goes on training it.

    python -m trainers.wmt --flagfile=trainers/configs/NAME.flags \\
        --workdir=DIR [--flag=value ...]

The same command again resumes where the work directory stands: fields of the
model's shape, the data set, the languages, the vocabulary and the precision
must be the same, the rest may change; if the batches do, a new epoch begins.
Ctrl-C saves before it ends.
"""

import dataclasses

from keras_transformer import flags
from keras_transformer.config import (
    PRESETS,
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.data.shards import read_index
from keras_transformer.fields import Fields, hp
from keras_transformer.tokenization import Tokenizer
from keras_transformer.workdir import WorkDirectory, write_atomically
from trainers import budget
from trainers.config import Configuration, DataConfig, TrainingConfig
from trainers.evaluation import finish
from trainers.experiment import open_experiment
from trainers.loop import Trainer
from trainers.strategies import Team, make_strategy


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The run."""

    workdir: str = hp("", "Directory of the run, new or begun. Required.")
    preset: str = hp(
        "base", "Model whose fields are the defaults.", choices=tuple(PRESETS)
    )
    dry_run: bool = hp(
        False, "Tell what the run will cost, try its largest batch, and end."
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.workdir:
            raise ValueError("expected --workdir=DIR. Received: no workdir")


def read_arguments(argv):
    """The `Arguments` of a command line, and its `Options`."""
    sections = (
        Options,
        DataConfig,
        TransformerConfig,
        TrainingConfig,
        DecodingConfig,
    )
    arguments = flags.parse(argv, __doc__, *sections)
    return arguments, arguments.build(Options)


def read_configuration(arguments, preset):
    """The `Configuration` of a command line."""
    data = arguments.build(DataConfig)
    base = dict(PRESETS[preset])
    if data.given_tokenizer:
        with flags.user_errors():
            if data.dataset == "prepared":
                read_index(*data.train_files)  # is it one, and finished?
            base["vocab_size"] = Tokenizer.load(data.given_tokenizer).vocab_size
    return Configuration(
        model=arguments.build(TransformerConfig, **base),
        data=data,
        training=arguments.build(TrainingConfig),
        decoding=arguments.build(DecodingConfig),
    )


def prepare(argv):
    """A `Trainer` that stands where the work directory stands, and `Options`.

    Everything that may be wrong with the flags, the data or the work directory
    is found here.
    """
    arguments, options = read_arguments(argv)
    training = arguments.build(TrainingConfig)
    with flags.user_errors():
        strategy = make_strategy(training.strategy, training.tpu)
        team = Team(strategy)
    configuration = read_configuration(arguments, options.preset)
    workdir = WorkDirectory(options.workdir)
    with flags.user_errors(), team.watch():
        experiment = open_in_turn(
            team, workdir, configuration, strategy, keep=not options.dry_run
        )
        trainer = Trainer(experiment, workdir, team)
        seconds = trainer.try_largest()
        restored = trainer.restore()
        if team.is_chief and not options.dry_run:
            write_flags(workdir, configuration)
    if team.is_chief:
        for line in budget.describe(trainer, seconds):
            print(line)
        if restored:
            print(f"resuming at step {trainer.progress.step}: {restored}")
    return trainer, options


def open_in_turn(team, workdir, configuration, strategy, keep):
    """The `Experiment`: the chief makes what the others find."""
    if team.is_chief:
        experiment = open_experiment(workdir, configuration, strategy, keep)
    team.wait()
    if not team.is_chief:
        experiment = open_experiment(
            workdir, configuration, strategy, False, tell=lambda line: None
        )
    return experiment


def write_flags(workdir, configuration):
    """Writes the configuration as a flag file."""
    lines = []
    for section in configuration.sections().values():
        lines += flags.to_flags(section)
    write_atomically(workdir.flags_path, "\n".join(lines) + "\n")


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.wmt"):
        trainer, options = prepare(argv)
        if options.dry_run:
            return
        stopped = trainer.run()
        if not trainer.team.is_chief:
            return
        if stopped:
            print(
                f"saved in {trainer.workdir.path};"
                " the same command again goes on from here"
            )
        else:
            finish(trainer.experiment, trainer.workdir)


if __name__ == "__main__":
    main()
