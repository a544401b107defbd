"""Makes synthetic sentence pairs with trained models, for training.

    python -m trainers.synthesize --config=plan.yaml

The plan names an original corpus and steps: back-translation of text in the
target language, diversification, distillation. Each step writes its pairs as
OUTPUT/NAME.en.gz and OUTPUT/NAME.de.gz. If the command is stopped or killed,
rerun it to resume. At the end it shows the counts of each step, and the
command that trains on its pairs. It needs the extra `import`.
"""

import dataclasses

from keras_transformer.commands import flags
from keras_transformer.commands.startup import (
    choose_backend,
    end_on_interrupt,
    load,
    prepare_search,
)
from keras_transformer.fields import required, same_field
from trainers.run.options import DeviceOptions, TranslatorOptions
from trainers.synthesis.plan import read_plan


@dataclasses.dataclass(frozen=True)
class Options(DeviceOptions):
    """The plan, and how its models compute."""

    config: str = required("FILE", "YAML file with the plan.")
    precision: str = same_field(TranslatorOptions, "precision")
    jit_compile: bool = same_field(TranslatorOptions, "jit_compile")


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.synthesize"):
        arguments = flags.parse(argv, __doc__, Options)
        options = arguments.build(Options)
        with flags.user_errors():
            plan = read_plan(options.config)
        choose_backend(options.backend, options.device)
        prepare_search(options.jit_compile)
        load("trainers.synthesis.steps").run(plan, arguments)


if __name__ == "__main__":
    end_on_interrupt()
    main()
