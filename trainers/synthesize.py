"""Makes synthetic sentence pairs with trained models, for training.

    kt-synthesize --config=plan.yaml

The plan names an original corpus and steps: back-translation of text in the
target language, diversification, distillation. Each step writes its pairs as
OUTPUT/NAME.en.gz and OUTPUT/NAME.de.gz. If the command is stopped or killed,
rerun it to resume. At the end it shows the counts of each step, and the command
that trains on the pairs. It needs the extra `import`.
"""

from keras_transformer.base.fields import required
from keras_transformer.commands import flags
from keras_transformer.commands.startup import end_on_interrupt
from trainers.synthesis import steps
from trainers.synthesis.plan import read_plan
from trainers.translating.options import SearchDeviceOptions


class SynthesizeOptions(SearchDeviceOptions):
    """The plan, and how its models compute."""

    config: str = required("FILE", "YAML file with the plan.")


@flags.command("kt-synthesize", __doc__, SynthesizeOptions)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    options = arguments.build(SynthesizeOptions)
    with flags.user_errors():
        plan = read_plan(options.config)
    options.prepare_process()
    steps.run(plan, options)


def script() -> None:
    """Runs the command in a process of its own: `kt-synthesize`."""
    end_on_interrupt()
    main()


if __name__ == "__main__":
    script()
