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

ABSENT = "-"  # not published
# For the FLOPs of attention, EOS included: typical of WMT14 with some 37,000
# subwords.
SENTENCE_LENGTH = 30


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The experiments."""

    recipes: tuple[str, ...] = hp(
        (), "Recipes to list, separated by commas. Default: all of them."
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


def row_of(
    name: str, configuration: Configuration, published: Published
) -> dict[str, str]:
    """The row of an experiment: the text of each column, by its title."""
    model, training = configuration.model, configuration.training
    rate, step = peak_learning_rate(model, training)
    flops = training_flops(
        model,
        training.train_steps,
        configuration.data.batch_tokens,
        SENTENCE_LENGTH,
    )
    layers = {model.num_layers, model.decoder_depth}
    values = {
        "recipe": name,
        "published in": published.source,
        "N": " + ".join(map(str, sorted(layers))),
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "h": model.num_heads,
        "d_k": model.key_size,
        "d_v": model.value_size,
        "norm": "pre" if model.pre_norm else "post",
        "positions": model.positions,
        "dropout": dropouts_of(model),
        "smoothing": training.label_smoothing,
        "beta_2": training.adam_beta_2,
        "10^6": f"{count_parameters(model) / 1e6:.1f}",
        "printed 10^6": printed_parameters(model, published),
        "peak lr": f"{rate:.2e}",
        "at step": f"{step:,}",
        "steps": f"{training.train_steps:,}",
        "FLOPs": f"{flops:.1e}",
        "printed FLOPs": _printed(published.flops, ".1e"),
        "hours": _printed(published.hours, "g"),
        "perplexity": _printed(published.perplexity, ".2f"),
        "BLEU": _printed(published.bleu),
        "test set": published.test_set or ABSENT,
    }
    return {title: str(value) for title, value in values.items()}


def _printed(number, spec=""):
    """A published number as text."""
    return ABSENT if number is None else format(number, spec)


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


def table(rows: list[dict[str, str]]) -> str:
    """Rows of text as an aligned Markdown table."""
    cells = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells
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
        options = flags.parse(argv, __doc__, Options).build(Options)
        flags.check_streams("stdout")
        rows = [
            row_of(name, read_recipe(name), PUBLISHED[name])
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
