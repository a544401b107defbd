"""Draws the attention of a model, its positions and its learning rate.

    python -m trainers.visualize --workdir=DIR --text="A sentence." \
        [--reference="Its translation."] --output=attention.html

The page has the attention of every layer and head, for the sentence and its
translation, or the reference. It is one file that works without a network. An
output that ends with .svg, .png or .pdf is a figure of one layer, as in Figures
3 to 5 of the paper; it needs the extra `figures`. --export=DIR draws from a
SavedModel instead of a work directory.

    python -m trainers.visualize --workdir=DIR --plot=learning_rate \
        --output=learning_rate.svg
"""

import dataclasses
import json
import pathlib
import typing

from absl import logging

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load_tensorflow
from keras_transformer.config import (
    PRESETS,
    DecodingConfig,
    TransformerConfig,
    check_position_limit,
    preset,
)
from keras_transformer.data.languages import tags_of
from keras_transformer.fields import Fields, hp, required, unhandled
from keras_transformer.figures import saving
from trainers.run.config import TrainingConfig

if typing.TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_transformer.figures.attention import AttentionFigure

SIGNATURE = "attention_maps"  # of savedmodel/saved_model.py
LENGTHS = ("extra_length", "max_output_length")  # a reference has them, too
POINTS = 500  # of the curve of a learning rate
ATTENTION = ("plot", "attention")  # that many options belong to


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The figure."""

    workdir: str = hp("", "Directory that trainers.wmt made.")
    export: str = hp(
        "",
        "Instead of --workdir: a SavedModel that savedmodel.export wrote.",
        option_of=ATTENTION,
    )
    preset: str = hp(
        "",
        "Instead of --workdir, with --plot: a preset, with the recipe of base"
        " in the paper.",
        choices=("", *PRESETS),
    )
    output: str = required(
        "FILE", "File to write: .html (attention only), .svg, .png or .pdf."
    )
    plot: str = hp(
        "attention",
        "The plot to draw.",
        choices=("attention", "positional_encoding", "learning_rate"),
    )
    text: str = hp(
        "", "The sentence. Required for attention.", option_of=ATTENTION
    )
    reference: str = hp(
        "",
        "A translation to force. Default: the model's own.",
        option_of=ATTENTION,
    )
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path. Default: the first of these that"
        " exists.",
        option_of=ATTENTION,
    )
    kind: str = hp(
        "encoder",
        "In a figure: encoder or decoder self-attention, or cross, from the"
        " decoder to the encoder.",
        choices=("encoder", "decoder", "cross"),
        option_of=ATTENTION,
    )
    layer: int | None = hp(
        None,
        "In a figure: the layer, from 1 on. Default: the last.",
        low=1,
        option_of=ATTENTION,
    )
    heads: tuple[str, ...] = hp(
        (),
        "In a figure: numbers of heads from 1 on, separated by commas. Default:"
        " all.",
        option_of=ATTENTION,
    )
    token: int | None = hp(
        None,
        "In a figure: the only token to draw, from 1 on. Default: all.",
        low=1,
        option_of=ATTENTION,
    )
    view: str = hp(
        "lines",
        "In a figure: lines, or heat_map, the mean over the heads.",
        choices=("lines", "heat_map"),
        option_of=ATTENTION,
    )
    length: int = hp(
        100,
        "With --plot=positional_encoding: number of positions.",
        low=1,
        option_of=("plot", "positional_encoding"),
    )

    def __post_init__(self):
        super().__post_init__()
        is_plot = self.plot != "attention"
        other = "preset" if is_plot else "export"
        if self.preset and not is_plot:
            raise ValueError(
                "preset is an option of --plot=positional_encoding or"
                f" learning_rate. Received: preset={self.preset}"
            )
        if bool(self.workdir) == bool(getattr(self, other)):
            raise ValueError(
                f"plot={self.plot} needs either --workdir or --{other}."
                f" Received: workdir={self.workdir!r},"
                f" {other}={getattr(self, other)!r}"
            )
        if is_plot:
            saving.suffix_of(self.output, saving.SUFFIXES)
            return
        if not self.text.strip() or self.reference.isspace():
            raise ValueError(
                "expected --text=SENTENCE, with a word in it, and a word in"
                f" reference, too. Received: text={self.text!r},"
                f" reference={self.reference!r}"
            )
        if self.export and self.checkpoint:
            raise ValueError(
                "checkpoint is an option of --workdir."
                f" Received: checkpoint={self.checkpoint}"
            )
        suffix = saving.suffix_of(self.output, (".html", *saving.SUFFIXES))
        choice = self.choice()
        if suffix == ".html" and choice:
            raise ValueError(
                f"{min(choice)} is an option of .svg, .png and .pdf."
                f" Received: output={self.output!r}"
            )

    def choice(self) -> dict[str, typing.Any]:
        """The arguments of `AttentionFigure.save` that are given."""
        if not all(head.isdecimal() for head in self.heads):
            raise ValueError(
                "heads must be whole numbers, separated by commas."
                f" Received: heads={','.join(self.heads)}"
            )
        choice = {
            "kind": self.kind,
            "layer": self.layer,
            "heads": [int(head) for head in self.heads],
            "token": self.token,
            "view": self.view,
        }
        return {
            name: value
            for name, value in choice.items()
            if getattr(self, name) != getattr(type(self), name)
        }


def figure_of_workdir(
    options: Options, arguments: flags.Arguments
) -> "AttentionFigure":
    """The attention of the model in a work directory.

    Raises:
        ValueError, OSError: The work directory or the sentence cannot be used.
        RunError: The model's logits are not finite.
    """
    # Not at the top: they import TensorFlow; see `main`.
    from keras_transformer.figures.attention import attention_figure
    from keras_transformer.translator import Translator
    from keras_transformer.workdir import WorkDirectory

    workdir = WorkDirectory(options.workdir)
    before = workdir.read_section("decoding", DecodingConfig)
    decoding = arguments.build(DecodingConfig, **dataclasses.asdict(before))
    data = workdir.read_config().get("data", {})
    target = data.get("target_language", "")
    tags = tags_of(target)
    translator = Translator.load(options.workdir, decoding, options.checkpoint)
    languages = {tag: language for language, tag in tags.items()}
    target = languages.get(options.text.split()[0], target)
    try:
        return attention_figure(
            translator.with_source_tags(list(tags.values())),
            options.text,
            options.reference or None,
            (data.get("source_language"), target or None),
        )
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error


def figure_of_export(
    path: str, text: str, reference: str = ""
) -> "AttentionFigure":
    """The attention of an exported SavedModel.

    Args:
        path: The --output of `savedmodel.export`, or a version below it.
        text: The sentence.
        reference: A translation to force; empty for the model's own.

    Raises:
        ValueError: It is not such an export.
        OSError: It cannot be read.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the tokenizer's operations)

    from keras_transformer.figures.attention import AttentionFigure

    directory = find_export(path)
    signatures = tf.saved_model.load(str(directory)).signatures
    if SIGNATURE not in signatures:
        raise ValueError(
            f"expected an export with the signature {SIGNATURE}, which"
            " savedmodel.export writes since 0.2: export it again. Received:"
            f" {directory}, with {', '.join(sorted(signatures))}"
        )
    found = {
        name: value.numpy()[0]
        for name, value in signatures[SIGNATURE](
            text=tf.constant([text]), reference=tf.constant([reference])
        ).items()
    }
    description = json.loads((directory / "export.json").read_text("utf-8"))
    source_pieces, target_pieces = (
        [piece.decode() for piece in found[f"{side}_pieces"] if piece]
        for side in ("source", "target")
    )
    if not target_pieces:
        raise ValueError(
            "the translation has no token to show the attention of. Received:"
            f" text={text!r}"
        )
    notes = []
    if found["truncated"]:
        which = "The source or the reference" if reference else "The source"
        notes = [f"{which} is truncated: the figure shows its beginning."]
        logging.warning("%s", notes[0])
    return AttentionFigure(
        text,
        reference or found["translation"].decode(),
        source_pieces,
        target_pieces,
        {
            "encoder": found["encoder_attention"],
            "decoder": found["decoder_attention"],
            "cross": found["attention"],
        },
        (description["source_language"], description["target_language"]),
        bool(reference),
        notes,
    )


def find_export(path: str) -> pathlib.Path:
    """The directory of a SavedModel: `path`, or the latest version below it.

    The latest version has the highest number, as in TensorFlow Serving.

    Raises:
        ValueError: There is none.
    """
    below = pathlib.Path(path).glob("*")
    versions = [directory for directory in below if directory.name.isdecimal()]
    versions.sort(key=lambda directory: int(directory.name), reverse=True)
    for directory in (pathlib.Path(path), *versions):
        files = (directory / name for name in ("saved_model.pb", "export.json"))
        if all(file.is_file() for file in files):
            return directory
    raise ValueError(
        "expected a SavedModel that savedmodel.export wrote."
        f" Received: export={path!r}"
    )


def plot_positional_encoding(
    options: Options, model: TransformerConfig
) -> "Figure":
    """The vectors that are added to the embeddings (sec. 3.5).

    Raises:
        CommandError: There are none, or they are unknown, or too few.
    """
    import numpy as np

    from keras_transformer.figures.plots import matrix_plot
    from keras_transformer.layers import positional_encoding
    from keras_transformer.translator import Translator

    with flags.user_errors():
        if model.positions == "relative" or (
            model.positions == "learned" and options.preset
        ):
            raise ValueError(
                "expected sinusoidal positions, or learned ones of a --workdir."
                f" Received: positions={model.positions!r}"
            )
        check_position_limit(model, length=options.length)
        if model.positions == "learned":
            trained = Translator.load(options.workdir).model
            table = np.asarray(trained.source_input.positions.table)
            rows = table[: options.length]
        elif model.positions == "sinusoidal":
            rows = np.asarray(
                positional_encoding(
                    options.length,
                    model.d_model,
                    start=model.first_position,
                    sinusoids=model.sinusoids,
                )
            )
        else:
            raise unhandled(positions=model.positions)
    return matrix_plot(
        rows,
        label=f"{model.positions.capitalize()} positions",
        x_label=f"dimension of d_model = {model.d_model}",
        y_label="position",
    )


def plot_learning_rate(
    model: TransformerConfig, training: TrainingConfig
) -> "Figure":
    """The learning rate of every step of a run (eq. 3).

    A run with a time limit may end earlier.
    """
    import numpy as np

    from keras_transformer.figures.plots import Series, plot, spell
    from trainers.experiments.formulas import peak_learning_rate
    from trainers.run.optimization import make_schedule

    schedule = make_schedule(model, training)
    last = training.train_steps
    _, peak = peak_learning_rate(model, training)
    warmup = f"warmup_steps {training.updates_to_peak:,}"
    name = f"{training.schedule}, {warmup}"
    if training.schedule == "noam":
        scale = f"scale {training.learning_rate_scale:g}"
        name = f"d_model {model.d_model}, {warmup}, {scale}"
    steps = np.unique(
        np.append(np.linspace(1, last, POINTS).round(), peak)
    ).astype(int)
    # The formula counts steps from 1, Keras from 0.
    rates = np.asarray(schedule(steps - 1), float)
    points = list(zip(steps.tolist(), rates.tolist(), strict=True))
    at_peak = dict(points)[peak]
    return plot(
        [
            Series(name, points),
            Series(
                f"maximum: {spell(at_peak)} at step {peak:,}",
                [(peak, at_peak)],
                color="#e07b39",
                joined=False,
                marked=True,
            ),
        ],
        label="Learning rate by step",
        x_label="step",
        y_label="learning rate",
        x_low=0,
        y_low=0.0,
    )


def draw_attention(options: Options, arguments: flags.Arguments) -> None:
    """Writes the page, or the figure."""
    with flags.user_errors():
        if options.export:
            figure = figure_of_export(
                options.export, options.text, options.reference
            )
        else:
            figure = figure_of_workdir(options, arguments)
        figure.save(options.output, **options.choice())
    name = "reference:  " if figure.forced else "translation:"
    flags.show(f"source:      {figure.source}", f"{name} {figure.target}")


def draw_plot(options: Options) -> None:
    """Writes a plot of the model or of its recipe."""
    from keras_transformer.workdir import WorkDirectory

    model, training = preset(options.preset or "base"), TrainingConfig()
    if options.workdir:
        with flags.user_errors():
            workdir = WorkDirectory(options.workdir)
            model = workdir.read_section("model", TransformerConfig)
            training = workdir.read_section("training", TrainingConfig)
    if options.plot == "learning_rate":
        figure = plot_learning_rate(model, training)
    elif options.plot == "positional_encoding":
        figure = plot_positional_encoding(options, model)
    else:
        raise unhandled(plot=options.plot)
    with flags.user_errors():
        saving.save_figure(figure, options.output)


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.visualize"):
        arguments = flags.parse(argv, __doc__, Options, DecodingConfig)
        options = arguments.build(Options)
        decoding = {field.name for field in dataclasses.fields(DecodingConfig)}
        given = sorted(decoding & set(arguments.given))
        if given and (options.export or options.plot != "attention"):
            raise flags.CommandError(
                "an export has its own search, and a plot has none."
                f" Received: {', '.join(given)}"
            )
        searching = [name for name in given if name not in LENGTHS]
        if searching and options.reference:
            raise flags.CommandError(
                "a search has no effect on a reference, which is forced."
                f" Received: {', '.join(searching)}, reference"
            )
        with flags.user_errors():
            flags.check_output(options.output)
        # Wrong flags are refused, and help is shown, before TensorFlow is
        # imported, which takes seconds.
        load_tensorflow()
        if options.plot == "attention":
            draw_attention(options, arguments)
        else:
            draw_plot(options)
        flags.show(options.output)


if __name__ == "__main__":
    main()
