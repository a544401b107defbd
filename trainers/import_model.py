"""Makes a work directory of a model that another system has trained.

    python -m trainers.import_model --source=DIR --workdir=DIR
    python -m trainers.import_model --source=hf://OWNER/NAME --workdir=DIR

DIR of --source, or the repository on the Hugging Face Hub (extra hub), holds
one of these, as it was published:

huggingface   a Marian model of Hugging Face, such as OPUS-MT's: config.json,
              model.safetensors or pytorch_model.bin, source.spm, target.spm,
              vocab.json, generation_config.json
marian        a Marian model: .npz, decoder.yml; vocab.spm, or vocab.yml with
              source.spm and target.spm, as in packages of OPUS-MT
opennmt_tf    a run of OpenNMT-tf 2: ckpt-*.index, model_description.py,
              data.yml and the files that it names
fairseq       a model of fairseq: checkpoint_best.pt, dict.*.txt, the
              SentencePiece model

Then trainers.translate, trainers.evaluate, savedmodel.export and the rest work
with --workdir as with a model that was trained here. Nothing in the files is
run. docs/pretrained.md lists the files and possible differences.
"""

import dataclasses

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.fields import Fields, hp, required
from keras_transformer.hub import find_model
from keras_transformer.importers import IMPORTERS, read_model


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The import."""

    source: str = required(
        "DIR",
        "Directory of the model to import, or hf://OWNER/NAME[@REVISION].",
    )
    workdir: str = required("DIR", "Work directory to create.")
    format: str | None = hp(
        None,
        "Format of the source. Default: recognized by its files.",
        choices=IMPORTERS,
    )
    source_language: str | None = hp(
        None, "Source language code, e.g. en. Default: from the model's files."
    )
    target_language: str | None = hp(
        None, "Target language code, e.g. de. Default: from the model's files."
    )


def import_model(options: Options) -> list[str]:
    """Makes the work directory; returns lines that describe it.

    Raises:
        ValueError: The source is no model that can be imported, or the work
            directory exists.
        OSError: A file cannot be read or written.
    """
    imported = load("keras_transformer.importers.imported")
    importing = load("trainers.run.importing")
    importing.check_new(options.workdir)
    source = find_model(options.source)
    format_name, model = read_model(source, options.format)
    model = _with_languages(model, options)
    importing.write_workdir(model, options.workdir)
    config = model.config
    size = sum(array.size for array in model.weights.values())
    return [
        f"{options.workdir}: {size:,} parameters, {config.num_layers} +"
        f" {config.decoder_depth} layers, vocabulary {config.vocab_size:,},"
        f" from {options.source} ({format_name})",
        *imported.describe_tables(model.tokenizer),
        *model.notes,
    ]


def _with_languages(model, options):
    """A model with the languages of the flags, else of its files."""
    names = ("source_language", "target_language")
    given = {
        name: value
        for name in names
        if (value := getattr(options, name)) is not None
    }
    model = model._replace(**given)
    language = model.source_language
    if given or not language or language != model.target_language:
        return model
    # Files of test data, PREFIX.gem and PREFIX.gem, would be the same.
    note = (
        f"both languages are {language}: here they are named source and target,"
        " unless --source_language and --target_language say otherwise"
    )
    notes = [*model.notes, note]
    return model._replace(source_language="", target_language="", notes=notes)


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.import_model"):
        options = flags.parse(argv, __doc__, Options).build(Options)
        with flags.user_errors():
            lines = import_model(options)
        flags.show(*lines)


if __name__ == "__main__":
    main()
