"""Reads OpenNMT-tf's `model_description.py` without running it.

The file is a program that defines `model`, a function that makes the model. The
number of heads must be read here, since no weight's shape shows it. Besides a
docstring and imports, the file must have one of these definitions. Anything
else is refused, with its line number.

    model = lambda: CALL
    def model(): return CALL
    class NAME(MODEL), with an __init__ that only calls super().__init__(...),
                       and model = NAME

CALL makes a model of opennmt.models, or is get_model_from_catalog("NAME"). Its
arguments are literals, names in modules, or WordEmbedder(...).
"""

import ast
import pathlib
import typing

from keras_transformer.base.foreign_files import named_errors, read_text
from keras_transformer.importers.options import Options

MAX_BYTES = 1 << 16
MODULES = ("opennmt", "tensorflow", "__future__")
# Parameters of OpenNMT-tf's class Transformer, in order.
PARAMETERS = (
    "source_inputter",
    "target_inputter",
    "num_layers",
    "num_units",
    "num_heads",
    "ffn_inner_dim",
    "dropout",
    "attention_dropout",
    "ffn_dropout",
    "ffn_activation",
    "mha_bias",
    "position_encoder_class",
    "share_embeddings",
    "share_encoders",
    "maximum_relative_position",
    "attention_reduction",
    "pre_norm",
    "output_layer_bias",
)
# Defaults of the parameters that are not read from the checkpoint. source_eos
# says whether the automatic configuration ends the source with EOS.
DEFAULTS = {
    "num_heads": 8,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
    "ffn_activation": "nn.relu",
    "position_encoder_class": "layers.SinusoidalPositionEncoder",
    "source_eos": False,
}
RELATIVE = {"position_encoder_class": None}
BIG = {"num_heads": 16}
SCALING = {**BIG, "dropout": 0.3, "ffn_dropout": 0.0, "source_eos": True}
# Models of OpenNMT-tf's catalog, with the parameters that differ from DEFAULTS.
CATALOG: dict[str, dict[str, typing.Any]] = {
    "Transformer": {},
    "TransformerBase": {},
    "TransformerBaseSharedEmbeddings": {},
    "TransformerRelative": RELATIVE,
    "TransformerBaseRelative": RELATIVE,
    "TransformerBig": BIG,
    "TransformerBigSharedEmbeddings": BIG,
    "TransformerBigRelative": BIG | RELATIVE,
    "TransformerTiny": {"num_heads": 2},
    "ScalingNmtEnDe": SCALING,
    "ScalingNmtEnFr": {**SCALING, "dropout": 0.1, "attention_dropout": 0.0},
}
WITH_PARAMETERS = ("Transformer", "TransformerBase")


def read_description(path: pathlib.Path) -> Options:
    """Reads the model's parameters. Missing ones are as in `DEFAULTS`.

    A dotted name is read as its last two words, such as "nn.relu". Raises
    ValueError if the file has code other than a definition of the model.
    """
    text = read_text(path, MAX_BYTES)
    with named_errors(
        f"{path}, which has the number of heads, cannot be evaluated"
    ):
        values = _parameters(_find_call(ast.parse(text)))
    return Options(DEFAULTS | values, path)


def _find_call(module: ast.Module) -> ast.Call:
    """Finds the call that makes the model.

    In a class, it is `super().__init__(...)`, as a call of the base class.
    """
    statements = [s for s in _statements(module.body) if not _is_import(s)]
    match statements:
        case [
            ast.Assign(
                targets=[ast.Name("model")],
                value=ast.Lambda(body=ast.Call() as call),
            )
        ]:
            return call
        case [ast.FunctionDef("model", body=body, decorator_list=[])]:
            match _statements(body):
                case [ast.Return(ast.Call() as call)]:
                    return call
        case [
            ast.ClassDef(name, [base], [], body, decorator_list=[]),
            ast.Assign(targets=[ast.Name("model")], value=ast.Name(made)),
        ] if name == made:
            match _statements(body):
                case [
                    ast.FunctionDef(
                        "__init__",
                        body=[ast.Expr(ast.Call(func=called) as call)],
                        decorator_list=[],
                    )
                ] if ast.unparse(called) == "super().__init__":
                    call.func = base
                    return call
    if not statements:
        raise ValueError("it defines no `model`")
    _refuse(statements[0], "expected one definition of `model`, a call")


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Drops docstrings from statements."""
    return [
        node
        for node in body
        if not isinstance(node, ast.Expr)
        or not isinstance(node.value, ast.Constant)
    ]


def _is_import(node: ast.stmt) -> bool:
    """Returns whether a node is an import. Refuses modules not in `MODULES`."""
    match node:
        case ast.Import(names):
            modules = [alias.name for alias in names]
        case ast.ImportFrom(module, level=0):
            modules = [module or ""]
        case _:
            return False
    if any(name.partition(".")[0] not in MODULES for name in modules):
        _refuse(node)
    return True


def _parameters(call: ast.Call) -> dict[str, typing.Any]:
    """Returns the parameters of the model that a call makes."""
    model = _name(call.func).rpartition(".")[2]
    names: tuple[str, ...] = PARAMETERS if model in WITH_PARAMETERS else ()
    if model == "get_model_from_catalog":
        names = ("name",)
    if len(call.args) > len(names):
        _refuse(call, f"expected at most {len(names)} arguments")
    arguments = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        name = keyword.arg or f"**{ast.unparse(keyword.value)}"
        if name not in names or name in arguments:
            _refuse(keyword.value, f"the argument {name}")
        arguments[name] = keyword.value
    values = {name: _value(node) for name, node in arguments.items()}
    if model == "get_model_from_catalog":
        model = str(values.pop("name", ""))
    if model not in CATALOG:
        _refuse(call, f"expected one of {', '.join(CATALOG)}")
    return CATALOG[model] | values


def _value(node: ast.expr) -> typing.Any:
    """Returns the value of a literal, or a dotted name as in `_name`."""
    if isinstance(node, ast.Attribute):
        return _name(node)
    if isinstance(node, ast.Call) and _name(node).endswith("WordEmbedder"):
        return _name(node)
    try:
        return ast.literal_eval(node)
    except ValueError:
        _refuse(node)


def _name(node: ast.expr) -> str:
    """Returns the last two words of a dotted name, or of a called one."""
    if isinstance(node, ast.Call):
        node = node.func
    words = ast.unparse(node).split(".")
    if not all(map(str.isidentifier, words)):
        _refuse(node)
    return ".".join(words[-2:])


def _refuse(node: ast.AST, reason: str = "") -> typing.NoReturn:
    """Raises ValueError with the line number and text of a node."""
    text = ast.unparse(node).strip().partition("\n")[0][:60]
    line = getattr(node, "lineno", 1)
    raise ValueError(f"line {line}: {f'{reason}: ' if reason else ''}{text}")
