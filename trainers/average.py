"""Averages the weights of the last checkpoints (sec. 6.1).

    python -m trainers.average --workdir=DIR --last=5

The result is what trainers.translate and trainers.evaluate then use.
"""

import dataclasses

from keras_transformer import flags
from keras_transformer.fields import Fields, hp
from keras_transformer.workdir import WorkDirectory
from trainers.checkpoints import average
from trainers.config import TrainingConfig


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """What is averaged."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    last: int = hp(
        TrainingConfig.average_last, "Newest checkpoints to average.", low=1
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.workdir:
            raise ValueError("expected --workdir=DIR. Received: no workdir")


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.average"):
        options = flags.parse(argv, __doc__, Options).build(Options)
        with flags.user_errors():
            averaged, result = average(
                WorkDirectory(options.workdir), options.last
            )
    if len(averaged) < options.last:
        print(f"there are only {len(averaged)} checkpoints")
    print(f"{result} is the mean of {', '.join(averaged)}")


if __name__ == "__main__":
    main()
