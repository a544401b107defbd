"""Draws the attention of a model, or the curves of its training.

    kt-visualize --workdir=DIR --text="A sentence." \
        [--reference="Its translation."] --output=attention.html

The page shows the attention of every layer and head, for the sentence and its
translation, or the reference. It is one file that works without a network. An
output that ends with .svg, .png or .pdf is a figure of one layer, as in Figures
3 to 5 of the paper, and needs the extra `figures`.

    kt-visualize --workdir=DIR --plot=training \
        --output=training.svg

The figure shows the losses, the validation score and the learning rate by step,
from the records of the run in DIR/logs.
"""

import typing

from keras_transformer.base.fields import (
    Fields,
    hp,
    required,
    same_field,
    unhandled,
)
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.figures import saving
from keras_transformer.storage import box
from trainers.figures import attention
from trainers.translating.options import (
    LanguageOptions,
    TranslatorChoice,
    TranslatorOptions,
)

LENGTHS = ("extra_length", "max_output_length")  # also limit a reference
# Search options of ensembles and glossaries, which a figure does not have.
UNUSED = ("ensemble", "glossary_mode", "glossary_bonus")
ATTENTION = {"plot": "attention"}  # what most options need


class VisualizeOptions(Fields):
    """The figure."""

    workdir: str = same_field(TranslatorOptions, "workdir")
    output: str = required(
        "FILE", "File to write: .html (attention only), .svg, .png or .pdf."
    )
    plot: str = hp(
        "attention",
        "What to draw: attention, or the curves of the training.",
        choices=("attention", "training"),
        common=True,
    )
    text: str = hp(
        "",
        "The sentence. Required for attention.",
        needs=ATTENTION,
        common=True,
    )
    reference: str = hp(
        "",
        "A translation to force. Default: the model's own.",
        needs=ATTENTION,
        common=True,
    )
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path. Default: the first of these that"
        " exists.",
        needs=ATTENTION,
    )
    kind: str = hp(
        "encoder",
        "In a figure: encoder or decoder self-attention, or cross, from the"
        " decoder to the encoder.",
        choices=("encoder", "decoder", "cross"),
        needs=ATTENTION,
    )
    layer: int | None = hp(
        None,
        "In a figure: the layer, from 1 on. Default: the last.",
        low=1,
        needs=ATTENTION,
        common=True,
    )
    heads: tuple[str, ...] = hp(
        (),
        "In a figure: numbers of heads from 1 on, separated by commas. Default:"
        " all.",
        needs=ATTENTION,
    )
    token: int | None = hp(
        None,
        "In a figure: the only token to draw, from 1 on. Default: all.",
        low=1,
        needs=ATTENTION,
    )
    view: str = hp(
        "lines",
        "In a figure: lines, or heat_map, the mean over the heads.",
        choices=("lines", "heat_map"),
        needs=ATTENTION,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.plot != "attention":
            saving.suffix_of(self.output, saving.SUFFIXES)
            expect(
                self.workdir, "--workdir=DIR with plot=training", "no workdir"
            )
            return
        expect(
            self.text.strip() and not self.reference.isspace(),
            "--text=SENTENCE, with a word in it, and a word in reference, too",
            f"{self.text=}, {self.reference=}",
        )
        suffix = saving.suffix_of(self.output, (".html", *saving.SUFFIXES))
        choice = self.choice()
        expect(
            suffix != ".html" or not choice,
            f".svg, .png or .pdf for {', '.join(choice)}",
            f"{self.output=}",
        )

    def choice(self) -> dict[str, typing.Any]:
        """Returns the arguments of `AttentionFigure.save` that are given."""
        expect(
            all(head.isdecimal() for head in self.heads),
            "heads with whole numbers, separated by commas",
            heads=",".join(self.heads),
        )
        choice = {
            name: getattr(self, name)
            for name in ("kind", "layer", "heads", "token", "view")
            if getattr(self, name) != getattr(type(self), name)
        }
        if self.heads:
            choice["heads"] = [int(head) for head in self.heads]
        return choice


def check_search(
    options: VisualizeOptions, given: typing.Collection[str]
) -> None:
    """Raises CommandError if one of the given search flags has no effect."""
    searching = [name for name in given if name not in LENGTHS]
    for names, is_wrong, why in (
        (given, options.plot != "attention", "the curves have no search"),
        (UNUSED, True, "a figure has one model and no glossary"),
        (searching, options.reference, "a reference is forced, not searched"),
    ):
        unused = [name for name in names if name in given]
        if unused and is_wrong:
            raise flags.CommandError(f"{why}. Received: {', '.join(unused)}")


def draw(
    options: VisualizeOptions,
    search: dict[str, typing.Any],
    languages: LanguageOptions,
) -> None:
    """Draws and writes the figure. `search` has the given search flags."""
    if options.plot == "attention":
        path = options.workdir
        if not path:
            with flags.user_errors():
                path = box.choose(**vars(languages))
        model = TranslatorOptions(workdir=path, checkpoint=options.checkpoint)
        attention.run(
            TranslatorChoice(model, search, languages),
            options.text,
            options.reference,
            options.output,
            options.choice(),
        )
    elif options.plot == "training":
        from trainers.figures import training  # needs matplotlib

        training.run(options.workdir, options.output)
    else:
        raise unhandled(plot=options.plot)


@flags.command(
    "kt-visualize", __doc__, VisualizeOptions, LanguageOptions, DecodingConfig
)
def main(arguments: flags.Arguments) -> None:
    """Runs the command."""
    options = arguments.build(VisualizeOptions)
    search = arguments.given_of(DecodingConfig)
    check_search(options, search)
    with flags.user_errors():
        flags.check_output(options.output)
    draw(options, search, arguments.build(LanguageOptions))
    flags.show(options.output)


if __name__ == "__main__":
    main()
