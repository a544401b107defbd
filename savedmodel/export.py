"""Exports the translator of a work directory, to run without this package.

    python -m savedmodel.export --workdir=DIR --format=FORMAT --output=DIR

saved_model   TensorFlow and TensorFlow Serving; DIR/1, text in, text out
tflite        LiteRT, builtin operations only; one sentence at a time
onnx          ONNX Runtime; search and cache in one file
ctranslate2   CTranslate2, fast on CPUs

The output is reloaded in a process of its own and compared with the live
translator before it appears under its name; a failed export leaves nothing.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

from absl import logging

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.translator import Translator
from keras_transformer.vocabulary import SPECIAL_IDS
from keras_transformer.workdir import WorkDirectory
from savedmodel import ctranslate2, onnx, saved_model, tflite, verify
from savedmodel.reload import DESCRIPTION

FORMATS = {
    "saved_model": saved_model,
    "tflite": tflite,
    "onnx": onnx,
    "ctranslate2": ctranslate2,
}
PRECISIONS = ("float32", "float16", "int16", "int8")
NUM_SAMPLES = 8  # sentences that an export is verified with


@dataclasses.dataclass(frozen=True)
class ExportOptions(Fields):
    """The export."""

    workdir: str = hp("", "Directory that trainers.wmt made. Required.")
    format: str = hp("saved_model", "What to write.", choices=tuple(FORMATS))
    output: str = hp("", "Directory to make. Required.")
    overwrite: bool = hp(False, "Replace an export that is there.")
    precision: str = hp(
        "float32",
        "Of the stored weights. tflite: float32, float16, int8; ctranslate2:"
        " these and int16; others: float32.",
        choices=PRECISIONS,
    )
    version: int = hp(
        1,
        "With saved_model: the version's directory under --output; TensorFlow"
        " Serving serves the greatest.",
        low=1,
    )
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path; left out: the first of these that"
        " there is.",
    )
    max_source_length: int | None = hp(
        None,
        "Longest source in tokens, end mark included, before it is cut; left"
        " out: the longest in training. tflite computes with this length.",
        low=2,
    )
    jit_compile: bool = hp(
        False,
        "With saved_model: XLA compiles the search at each new shape."
        " TensorFlow Serving needs --xla_cpu_compilation_enabled for it.",
    )
    verify_text: str = hp(
        "", "File of sentences to verify with; none: pieces at random."
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("workdir", "output"):
            if not getattr(self, name):
                raise ValueError(f"expected --{name}=DIR. Received: no {name}")
        precisions = FORMATS[self.format].PRECISIONS
        if self.precision not in precisions:
            raise ValueError(
                f"precision must be one of {', '.join(precisions)} with format="
                f"{self.format}. Received: precision={self.precision!r}"
            )
        if self.format != "saved_model":
            for name in ("jit_compile", "version"):
                if getattr(self, name) != getattr(ExportOptions, name):
                    raise ValueError(
                        f"{name} is an option of format=saved_model."
                        f" Received: format={self.format!r}"
                    )

    @property
    def target(self):
        """The directory that appears when the export is done."""
        output = pathlib.Path(self.output)
        if self.format == "saved_model":
            return output / str(self.version)
        return output


def export(translator, options, checkpoint):
    """Writes an export and verifies it.

    Args:
        translator: The `Translator`.
        options: The `ExportOptions`.
        checkpoint: Where its weights are from, for the description.

    Returns:
        A `verify.Comparison`.

    Raises:
        CommandError: The format does not know such a model.
        ExportError: The export does not translate as the translator does.
    """
    examples = make_examples(translator)
    sentences = ["", *examples]
    if options.verify_text:
        sentences = verify.read_sentences(options.verify_text)
    with whole_directory(options.target) as directory:
        FORMATS[options.format].write(translator, directory, options, examples)
        description = describe(translator, options, checkpoint)
        path = directory / DESCRIPTION
        path.write_text(json.dumps(description, indent=2) + "\n")
        comparison = verify.compare(translator, directory, sentences)
        if not comparison.passed:
            raise verify.ExportError(f"a wrong export: {comparison}")
    return comparison


def describe(translator, options, checkpoint):
    """What `export.json` says, beside the model, for whoever runs it."""
    return {
        "format": options.format,
        "precision": options.precision,
        # From the work directory, which may be moved.
        "checkpoint": os.path.relpath(checkpoint, options.workdir),
        "max_source_length": translator.max_source_length,
        "decoding": dataclasses.asdict(translator.decoding),
    }


def make_examples(translator):
    """Sentences of random pieces, to warm up and to verify with."""
    rng = random.Random(1)
    tokenizer = translator.tokenizer
    longest = min(20, translator.max_source_length - 1)
    ids = range(len(SPECIAL_IDS), tokenizer.vocab_size)
    rows = [
        rng.choices(ids, k=rng.randint(1, longest)) for _ in range(NUM_SAMPLES)
    ]
    strings = tokenizer.decode(rows).numpy()
    return [string.decode("utf-8") for string in strings]


@contextlib.contextmanager
def whole_directory(target):
    """Makes a directory that appears under its name when it is complete.

    It is made beside the target, and removed if the block raises. What was
    there under the name before is replaced.
    """
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.unfinished")
    replaced = target.with_name(f"{target.name}.{os.getpid()}.replaced")
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        if target.exists():
            os.rename(target, replaced)
        os.rename(unfinished, target)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_target(options):
    """Raises ValueError if something is in the way that must not be lost.

    Raises:
        OSError: Nothing can be written there.
    """
    target = options.target
    path = target.absolute().parent
    there = next(p for p in (path, *path.parents) if p.exists())
    with tempfile.TemporaryFile(dir=there):
        pass
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / DESCRIPTION).is_file():
        raise ValueError(f"{target} is there, and it is no export")
    if not options.overwrite:
        raise ValueError(f"{target} is there; --overwrite would replace it")


def check_requirements(format_name):
    """Raises ValueError if an optional package is not installed."""
    requirements = FORMATS[format_name].REQUIREMENTS
    try:
        for name in requirements:
            importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            f"format={format_name} needs the extra {format_name!r}: pip install"
            f" -e '.[{format_name}]' where this project is ({error})"
        ) from error


def load_translator(arguments, options):
    """The `Translator` of the work directory, and its checkpoint's path."""
    workdir = WorkDirectory(options.workdir)
    before = workdir.read_section("decoding", DecodingConfig)
    decoding = arguments.build(DecodingConfig, **dataclasses.asdict(before))
    if decoding.sampling:
        raise ValueError("expected a search. Received: sampling=True")
    checkpoint = workdir.choose_checkpoint(options.checkpoint)
    others = {}
    if options.max_source_length is not None:
        others["max_source_length"] = options.max_source_length
    translator = Translator.load(
        options.workdir, decoding, checkpoint, **others
    )
    return translator, checkpoint


def list_files(directory):
    """Lines with the size and name of each file, largest first."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    files.sort(key=lambda path: (-path.stat().st_size, path.name))
    return [
        f"{path.stat().st_size:>12,} bytes  {path.relative_to(directory)}"
        for path in files
    ]


def main(argv=None):
    """Runs the command."""
    logging.set_verbosity(logging.ERROR)  # what goes wrong is one line
    with flags.exit_status("savedmodel.export"):
        arguments = flags.parse(argv, __doc__, ExportOptions, DecodingConfig)
        options = arguments.build(ExportOptions)
        with flags.user_errors():
            check_target(options)
            check_requirements(options.format)
            translator, checkpoint = load_translator(arguments, options)
            if options.verify_text:
                verify.read_sentences(options.verify_text)
        try:
            comparison = export(translator, options, checkpoint)
        except verify.ExportError as error:
            raise SystemExit(f"savedmodel.export: {error}") from None
    print(f"{options.target}: {options.format}, {options.precision},", end=" ")
    print(f"from {checkpoint}")
    print(*list_files(options.target), sep="\n")
    print(f"verified in a process of its own: {comparison}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
