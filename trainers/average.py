"""Averages the weights of the last checkpoints (sec. 6.1).

    kt-average --workdir=DIR [--last=5]

kt-translate, kt-evaluate and kt-export then use the result. kt-average may run
during training. For low-rank adapters, --merged=DIR also makes a work directory
whose weights include them, so that it does not need the original model.
"""

from keras_transformer.base.fields import hp
from keras_transformer.base.files import check_new, new_directory
from keras_transformer.commands import flags
from keras_transformer.storage.workdir import WorkDirectory
from trainers.run import checkpoints
from trainers.run.training_config import TrainingConfig
from trainers.translating.options import WorkdirOptions


class AverageOptions(WorkdirOptions):
    """The average."""

    last: int | None = hp(
        None,
        "Number of checkpoints to average, the newest ones. Default:"
        " average_last of the work directory.",
        low=1,
    )
    merged: str | None = hp(
        None,
        "Directory to make, of adapters (--lora_rank): a work directory whose"
        " weights have the averaged adapters added.",
    )


@flags.command("kt-average", __doc__, AverageOptions)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    options = arguments.build(AverageOptions)
    with flags.user_errors():
        workdir = WorkDirectory(options.workdir)
        last = options.last
        if last is None:
            training = workdir.read_section("training", TrainingConfig)
            last = training.average_last
        if options.merged is not None:
            check_new(options.merged, "merged")
            workdir.need_base("merged")
        averaged, result = checkpoints.average(workdir, last)
    if len(averaged) < last:
        flags.show(f"there are only {len(averaged)} checkpoints")
    flags.show(f"{result} is the mean of {', '.join(averaged)}")
    if options.merged is not None:
        with flags.user_errors():
            with new_directory(check_new(options.merged, "merged")) as path:
                checkpoints.merge(workdir, path)
        flags.show(f"{options.merged} has the merged weights")


if __name__ == "__main__":
    main()
