"""Lists the experiments of the paper and their relatives.

    python -m trainers.paper [--recipes=table3_a1,table3_c4]

Each one is a recipe, which python -m trainers.wmt --recipe=NAME --workdir=DIR
runs. The table has values computed from the recipe beside the published ones:
parameters in millions (with the recipe's vocabulary; with the vocabulary that
fits the printed count / as printed), the maximum learning rate and its step,
training FLOPs (by formula, with full batches; as printed), hours on 8 P100,
perplexity and BLEU. Three values of dropout are for sub-layers, attention and
ReLU.
"""

import dataclasses
import sys

from keras_transformer.commands import flags
from keras_transformer.fields import Fields, hp
from trainers import wmt
from trainers.experiments.formulas import (
    count_parameters,
    peak_learning_rate,
    training_flops,
)
from trainers.experiments.published import PUBLISHED, Published, cost_of
from trainers.run.config import Configuration

COLUMNS = (
    "recipe",
    "published in",
    "N",
    "d_model",
    "d_ff",
    "h",
    "d_k",
    "d_v",
    "norm",
    "positions",
    "dropout",
    "smoothing",
    "beta_2",
    "10^6",
    "printed 10^6",
    "peak lr",
    "at step",
    "steps",
    "FLOPs",
    "printed FLOPs",
    "hours",
    "perplexity",
    "BLEU",
    "test set",
)
ABSENT = "-"  # not published


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The experiments."""

    recipes: tuple[str, ...] = hp(
        (), "Recipes to list, separated by commas. Default: all of them."
    )
    sentence_length: int = hp(
        30,
        "Tokens of a sentence, EOS included, for the FLOPs of attention. The"
        " default is typical of WMT14 with some 37,000 subwords.",
        low=1,
        high=10**6,
    )

    def __post_init__(self):
        super().__post_init__()
        unknown = [name for name in self.recipes if name not in PUBLISHED]
        if unknown:
            raise ValueError(
                f"recipes must be among {', '.join(PUBLISHED)}."
                f" Received: recipes={','.join(unknown)}"
            )


def read_recipe(name: str) -> Configuration:
    """The `Configuration` of a recipe."""
    arguments, options = wmt.read_arguments(
        [f"--recipe={name}", "--workdir=none"]
    )
    return wmt.read_configuration(arguments, options.preset)


def cells_of(
    name: str,
    configuration: Configuration,
    published: Published,
    sentence_length: int,
) -> tuple[str, ...]:
    """The row of an experiment, a text for each of `COLUMNS`."""
    model, training = configuration.model, configuration.training
    rate, step = peak_learning_rate(model, training)
    flops = training_flops(
        model,
        training.train_steps,
        configuration.data.batch_tokens,
        sentence_length,
    )
    layers = {model.num_layers, model.decoder_depth}
    values = (
        name,
        published.source,
        " + ".join(map(str, sorted(layers))),
        model.d_model,
        model.d_ff,
        model.num_heads,
        model.key_size,
        model.value_size,
        "pre" if model.pre_norm else "post",
        model.positions,
        dropouts_of(model),
        training.label_smoothing,
        training.adam_beta_2,
        f"{count_parameters(model) / 1e6:.1f}",
        printed_parameters(model, published),
        f"{rate:.2e}",
        f"{step:,}",
        f"{training.train_steps:,}",
        f"{flops:.1e}",
        ABSENT if published.flops is None else f"{published.flops:.1e}",
        ABSENT if published.hours is None else f"{published.hours:g}",
        ABSENT
        if published.perplexity is None
        else f"{published.perplexity:.2f}",
        ABSENT if published.bleu is None else published.bleu,
        published.test_set or ABSENT,
    )
    return tuple(map(str, values))


def dropouts_of(model):
    """Dropout of sub-layers; also of attention and ReLU if they are on.

    >>> from keras_transformer.config import preset
    >>> dropouts_of(preset("big")), dropouts_of(preset("t2t_big"))
    ('0.3', '0.3, 0.1, 0.1')
    """
    others = (model.attention_dropout, model.activation_dropout)
    return ", ".join(
        map(str, (model.dropout, *(others if any(others) else ())))
    )


def printed_parameters(model, published):
    """Our count with the vocabulary that fits, and the printed millions."""
    if published.millions is None:
        return ABSENT
    fitting = dataclasses.replace(
        model, vocab_size=published.millions_vocab_size
    )
    return f"{count_parameters(fitting) / 1e6:.1f} / {published.millions}"


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows of text as an aligned Markdown table."""
    rows = [COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def costs() -> str:
    """The computation behind the FLOPs of Table 2."""
    lines = []
    for name in ("table3_base", "table3_big"):
        published = PUBLISHED[name]
        lines.append(
            f"{name}: {published.hours:g} hours x 8 P100 x 9.5 TFLOP/s ="
            f" {cost_of(published.hours):.2e}, printed {published.flops:.1e}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.paper"):
        argv = sys.argv[1:] if argv is None else argv
        options = flags.parse(argv, __doc__ or "", Options).build(Options)
        flags.check_streams("stdout")
        rows = [
            cells_of(
                name,
                read_recipe(name),
                PUBLISHED[name],
                options.sentence_length,
            )
            for name in options.recipes or tuple(PUBLISHED)
        ]
        flags.show(
            table(rows),
            "The FLOPs of Table 2 are time x GPUs x speed, ours count"
            " operations:",
            costs(),
        )


if __name__ == "__main__":
    main()
