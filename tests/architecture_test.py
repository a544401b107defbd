"""Who may import whom: the table of ARCHITECTURE.md, held by reading code."""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("keras_transformer", "trainers", "savedmodel")

# A module imports only from rows above its own.
LIBRARY = (
    "vocabulary fields backend row_loop seeds startup locking linear"
    " permutation figures.drawing layers.traced",
    "config masking cache chunks loss flags normalization optimizer dropout"
    " data.cleaning data.buckets figures.plots figures.attention_svg"
    " padding layers.checks decoding.arguments decoding.selection",
    "schedule tokenization data.pairs moving_average layers.attention"
    " layers.feed_forward layers.embeddings layers.residual decoding.results"
    " decoding.rules",
    "metrics training workdir data.corpus data.segmentation layers"
    " decoding.greedy",
    "fit data.shards data.subword_sampling figures.saving decoding.beam"
    " decoding.sampling",
    "model decoding data.batches",
    "translator",
    "figures.attention",
)
TRAINERS = (
    "phrasebook config cluster interrupts preparation_folder progress moses"
    " published records report_page parsing.trees parsing.lexicon"
    " parsing.words importers importers.safetensors importers.torch_pickle"
    " importers.keras_h5 importers.tensors importers.vocabularies"
    " importers.npz importers.options importers.stacks importers.yaml_files",
    "strategies checkpoints budget formulas comparison optimization"
    " inheritance freezing xla"
    " parsing.config"
    " parsing.linearization parsing.grammar",
    "parsing.bracketing parsing.treebank importers.imported",
    "parsing.metric parsing.corpus importers.huggingface importers.marian"
    " importers.opennmt_tf importers.fairseq",
    "corpora",
    "evaluation preparation test_sets tuning",
    "experiment",
    "loop",
    "session",
    "translate average prepare wmt visualize report import_model",
    "evaluate paper parse parse_text score align",
    "parse_evaluate",
)
SAVEDMODEL = (
    "reload formats publishing onnx_rewrites search",
    "saved_model tflite onnx ctranslate2 huggingface verify",
    "export client",
)
# Mathematics in keras.ops, so that it runs on every backend.
ON_EVERY_BACKEND = (
    "layers layers.attention layers.feed_forward layers.embeddings"
    " layers.residual layers.traced linear normalization dropout cache chunks"
    " model loss metrics schedule masking row_loop seeds fit decoding"
    " decoding.arguments decoding.selection decoding.rules decoding.results"
    " decoding.greedy decoding.sampling decoding.beam"
)
# Read before a command's flags are checked, so that bad ones are refused at
# once.
WITHOUT_TENSORFLOW = "vocabulary fields config flags startup"


def modules():
    """Module names -> their paths."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(module):
    """What a module imports, whole module names, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module)
    return found


def rows():
    """Module names -> the number of their row, in the package's table."""
    numbers = {}
    for package, table in zip(
        PACKAGES, (LIBRARY, TRAINERS, SAVEDMODEL), strict=True
    ):
        for number, row in enumerate(table):
            for name in row.split():
                numbers[f"{package}.{name}"] = number
    return numbers


ROWS = rows()


def is_phrasebook(module):
    """Whether a module is of the phrasebook, which keeps its own order."""
    return module.startswith("trainers.phrasebook")


def place(module):
    """Package and row of a module; the phrasebook is one module."""
    if is_phrasebook(module):
        module = "trainers.phrasebook"
    package = module.partition(".")[0]
    if module in (
        *PACKAGES,
        "keras_transformer.data",
        "keras_transformer.figures",
        "trainers.parsing",
    ):
        return package, None  # holds no code that imports from a table
    assert module in ROWS, f"{module} needs a row in {__file__}"
    return package, ROWS[module]


@pytest.mark.parametrize("module", MODULES)
def test_imports_come_from_the_rows_above(module):
    package, row = place(module)
    for name in imports(module):
        other, other_row = name.partition(".")[0], None
        if other not in PACKAGES:
            assert not name.startswith("keras.src"), f"{module}: {name}"
            continue
        assert other in (package, "keras_transformer"), f"{module}: {name}"
        if name in MODULES:
            other, other_row = place(name)
        if is_phrasebook(module):
            is_command = module.endswith(".__main__")
            assert is_phrasebook(name) or is_command, f"{module}: {name}"
        elif other == package and None not in (row, other_row):
            assert other_row < row, f"{module} must not import {name}"


def test_the_reloading_of_exports_stands_alone():
    for name in imports("savedmodel.reload"):
        assert name.partition(".")[0] not in (*PACKAGES, "keras")


@pytest.mark.parametrize("name", ON_EVERY_BACKEND.split())
def test_mathematics_imports_no_tensorflow(name):
    assert "tensorflow" not in imports(f"keras_transformer.{name}")


@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW.split())
def test_what_flags_need_imports_little(name):
    allowed = {"absl", "keras_transformer", *sys.stdlib_module_names}
    found = {m.partition(".")[0] for m in imports(f"keras_transformer.{name}")}
    assert found <= allowed
