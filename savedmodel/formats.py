"""The export formats: their properties, and the interface of their modules.

A new format is one file in this directory with a function `write`, one entry
of `FORMATS`, and a loader in `reload`, a file with the format's name. Nothing
here imports TensorFlow, so that wrong flags are refused before it is imported.

    write(export)

writes an `Export`, and calls `save_vocabulary` if the model's file does not
contain the vocabulary. It may raise CommandError if the format cannot hold the
model, and errors of a full disk.
"""

import dataclasses
import importlib
import importlib.util
import pathlib
import textwrap
import types
import typing

from keras_transformer.base.fields import GIVEN, Fields, hp, required
from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.translation import abilities

if typing.TYPE_CHECKING:
    from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
    from keras_transformer.translator import Translator

EXPORT_PRECISIONS = ("float32", "float16", "int16", "int8")
SEGMENTS = ".segments.model"  # see `reload.tokenizer`


@dataclasses.dataclass(frozen=True)
class Format:
    """Properties of a format, known without importing its module."""

    module: str  # the module that writes the format
    about: str  # for the help of `kt-export`
    precisions: tuple[str, ...]  # precisions of the stored weights
    # Modules that an export needs. The extra named after the format installs
    # them.
    requirements: tuple[str, ...] = ()
    # Whether an export is the directory of a version, below the output.
    has_versions: bool = False
    # Whether another program searches. Then only greedy search can be compared
    # token by token.
    own_search: bool = False
    # Whether an export also has a greedy search, which is verified, too.
    greedy_search: bool = False
    # Whether the runtime omits unknown tokens from text.
    drops_unknown: bool = False
    # Whether an export has the translator's shortlist, if there is one.
    holds_shortlist: bool = False
    # Modules that run an export but are not needed to write it. If they are
    # missing, the export is not verified, and a warning says so.
    verified_with: tuple[str, ...] = ()
    # Whether an export is a work directory, which only this package runs.
    is_workdir: bool = False


FORMATS = {
    "saved_model": Format(
        "savedmodel.saved_model",
        "TensorFlow and TensorFlow Serving; DIR/1, text in, text out",
        precisions=("float32",),
        has_versions=True,
    ),
    "tflite": Format(
        "savedmodel.tflite",
        "LiteRT, builtin operations only; one sentence at a time",
        precisions=("float32", "float16", "int8"),
        requirements=("ai_edge_litert",),
        greedy_search=True,
    ),
    "onnx": Format(
        "savedmodel.onnx",
        "ONNX Runtime; search and cache in one file",
        precisions=("float32", "float16", "int8"),
        requirements=("onnx", "onnxruntime", "tf2onnx"),
    ),
    "ctranslate2": Format(
        "savedmodel.ctranslate2",
        "CTranslate2, fast on CPUs",
        precisions=EXPORT_PRECISIONS,
        requirements=("ctranslate2",),
        own_search=True,
        holds_shortlist=True,
    ),
    "argos": Format(
        "savedmodel.argos",
        "a package that Argos Translate and LibreTranslate install",
        precisions=EXPORT_PRECISIONS,
        requirements=("babel", "ctranslate2"),
        own_search=True,
    ),
    "huggingface": Format(
        "savedmodel.huggingface",
        "a folder for transformers, and for the Hub: MarianMTModel, or"
        " M2M100 and MBartForConditionalGeneration of imported models",
        precisions=("float32", "float16"),
        own_search=True,
        drops_unknown=True,
        verified_with=("torch", "transformers"),
    ),
    "packed": Format(
        "savedmodel.packed",
        "a small work directory to give to others, for --workdir",
        precisions=("int8",),
        is_workdir=True,
    ),
}


def describe() -> str:
    """Describes each format in one or more lines, for the help."""
    return "\n".join(
        textwrap.fill(
            f"{name:14}{format.about}", 78, subsequent_indent=" " * 14
        )
        for name, format in FORMATS.items()
    )


def _describe_precisions():
    """Describes the precisions that formats can store."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, format in FORMATS.items():
        found.setdefault(format.precisions, []).append(name)
    return "; ".join(
        f"{', '.join(names)}: {', '.join(precisions)}"
        for precisions, names in found.items()
    )


class ExportOptions(Fields):
    """The export."""

    workdir: str = hp(
        "",
        "Directory that kt-train made. Default: the package's model of"
        " --source_language and --target_language.",
        common=True,
    )
    source_language: str | None = hp(
        None,
        "Language that the package's model translates from.",
        excludes={"workdir": GIVEN},
    )
    target_language: str | None = hp(
        None,
        "Language that the package's model translates into.",
        excludes={"workdir": GIVEN},
    )
    format: str = hp(
        "saved_model", "Export format.", choices=tuple(FORMATS), common=True
    )
    output: str = required("DIR", "Directory to make.")
    overwrite: bool = hp(False, "Replace an existing export.", common=True)
    precision: str = hp(
        "default",
        f"Precision of the stored weights. {_describe_precisions()}. Default:"
        " the first of the format's.",
        choices=("default", *EXPORT_PRECISIONS),
    )
    version: int = hp(
        1,
        "saved_model: the version's directory under --output; TensorFlow"
        " Serving serves the highest one. argos: the package's version.",
        low=1,
        needs={"format": ("saved_model", "argos")},
    )
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path. Default: the first of these that"
        " exists.",
    )
    max_source_length: int | None = hp(
        None,
        "Maximum length of a source in tokens, EOS included; longer ones are"
        " truncated. Default: the maximum in training. tflite computes with"
        " this length.",
        low=2,
    )
    jit_compile: bool = hp(
        False,
        "XLA compiles the search at each new shape. TensorFlow Serving needs"
        " --xla_cpu_compilation_enabled for it.",
        needs={"format": "saved_model"},
    )
    verify: str = hp(
        "quick",
        "How the export is verified, by a process without this package. quick:"
        " 4 short sentences; full: 32 sentences, also by tflite's greedy"
        " search; none: it is not run.",
        choices=("full", "quick", "none"),
        common=True,
    )
    verify_text: str = hp(
        "",
        "File of sentences to verify with. Default: random entries of the"
        " vocabulary.",
        needs={"verify": ("full", "quick")},
    )

    def __post_init__(self):
        super().__post_init__()
        if self.precision == "default":
            first, *_ = FORMATS[self.format].precisions
            object.__setattr__(self, "precision", first)
        check_precision(self.format, self.precision)

    @property
    def target(self) -> pathlib.Path:
        """The directory of the finished export."""
        output = pathlib.Path(self.output)
        if FORMATS[self.format].has_versions:
            return output / str(self.version)
        return output


class Export(typing.NamedTuple):
    """What a format's module writes, and where."""

    translator: "Translator"
    directory: pathlib.Path  # an empty directory to write to
    options: ExportOptions  # with a precision that the format has
    # The content of `export.json`, for formats with metadata of their own.
    description: dict[str, typing.Any]
    examples: list[str]  # sentences for warm-up requests, none of them blank


def save_vocabulary(
    tokenizer: "Tokenizer | TokenizerPair", directory: pathlib.Path
) -> None:
    """Writes the files of a vocabulary that `reload.tokenizer` reads."""
    for name, of_side in tokenizer.files.items():
        path = directory / name
        of_side.save(path)
        if of_side.has_table or of_side.has_case_marks:
            path.with_suffix(SEGMENTS).write_bytes(of_side.segmenting_bytes)


def load_exporter(name: str) -> types.ModuleType:
    """Imports the module of a format."""
    return importlib.import_module(FORMATS[name].module)


def check_precision(name: str, precision: str) -> None:
    """Raises ValueError unless a format can store weights in a precision."""
    precisions = FORMATS[name].precisions
    expect(
        precision in precisions,
        f"precision={' or '.join(precisions)} with format={name}",
        f"{precision=}",
    )


def check_requirements(name: str) -> None:
    """Raises ValueError unless the packages of a format are installed."""
    modules = missing(FORMATS[name].requirements)
    expect(
        not modules,
        f"the extra {name!r} for format={name}: {flags.how_to_install(name)}",
        f"no module {modules}",
    )


def check_model(
    name: str,
    config: TransformerConfig,
    decoding: DecodingConfig,
    language_tokens: str = "",
) -> None:
    """Raises CommandError unless a format can hold a model and its search.

    `language_tokens` is as in `Languages`.
    """
    records: list[typing.Any] = [config, decoding]
    if language_tokens and name == "huggingface":
        del records[0]  # the model came from transformers
    with flags.user_errors():
        abilities.check(f"format={name}", *records)


def missing(modules: tuple[str, ...]) -> list[str]:
    """Finds the modules that are not installed."""
    return [m for m in modules if importlib.util.find_spec(m) is None]
