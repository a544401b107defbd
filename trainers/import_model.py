"""Makes a work directory from a model that another system has trained.

    kt-import --source=DIR --workdir=DIR
    kt-import --source=hf://OWNER/NAME --workdir=DIR

--source is a directory, or a repository on the Hugging Face Hub (extra hub). It
contains one of these, as published:

huggingface   a Marian model of Hugging Face, such as OPUS-MT's: config.json,
              model.safetensors or pytorch_model.bin, source.spm, target.spm,
              vocab.json, generation_config.json
m2m100        a multilingual model of Hugging Face: M2M-100, NLLB-200,
              SMaLL-100, mBART; with all languages, or only the ones in
              --source_language, --target_language or --keep_languages
marian        a Marian model: .npz, decoder.yml; vocab.spm, or vocab.yml with
              source.spm and target.spm, as in packages of OPUS-MT
opennmt_tf    a run of OpenNMT-tf 2: ckpt-*.index, model_description.py,
              data.yml and the files that it names
fairseq       a model of fairseq: checkpoint_best.pt, dict.*.txt, the
              SentencePiece model

kt-translate, kt-evaluate, kt-export and the other commands then use --workdir
like that of a model trained here. No code in the files is run.
docs/pretrained.md lists the files and possible differences.
"""

from keras_transformer.base.fields import GIVEN, Fields, hp, required
from keras_transformer.commands import flags
from keras_transformer.importers import IMPORTERS
from trainers.importing import workdir as importing


class ImportModelOptions(Fields):
    """The import."""

    source: str = required(
        "DIR",
        "Directory of the model to import, or hf://OWNER/NAME[@REVISION].",
    )
    workdir: str = required("DIR", "Work directory to create.")
    format: str | None = hp(
        None,
        "Format of the source. Default: recognized by its files.",
        choices=tuple(IMPORTERS),
        common=True,
    )
    source_language: str | None = hp(
        None, "Source language code, e.g. en. Default: from the model's files."
    )
    target_language: str | None = hp(
        None, "Target language code, e.g. de. Default: from the model's files."
    )
    keep_languages: str | None = hp(
        None,
        "Languages, separated by commas, between which a multilingual model is"
        " to translate. Default: all.",
        excludes={"source_language": GIVEN, "target_language": GIVEN},
    )
    vocabulary_from: tuple[str, ...] = hp(
        (),
        "Text files, also .gz, or patterns such as 'corpus.*'. A multilingual"
        " model keeps only the part of its vocabulary that they need.",
    )


@flags.command("kt-import", __doc__, ImportModelOptions)
def main(arguments: flags.Arguments) -> None:
    options = arguments.build(ImportModelOptions)
    importing.run(**vars(options))


if __name__ == "__main__":
    main()
