"""Reads OpenNMT-tf's `model_description.py`, and runs nothing of it.

The file is a program, which defines `model`: called without arguments, this
makes the model. The number of heads is in no shape, so it must not be guessed:
the model is evaluated for the part of Python below; anything else is
refused, with its line.

    a module        docstring; imports from opennmt and tensorflow; definitions,
                    of which each name has one
    a definition    NAME = VALUE
                    NAME = lambda: CALL
                    def NAME(): return CALL
                    class NAME(BASE), empty or with an __init__(self) that only
                    calls super().__init__ or super(NAME, self).__init__
    CALL            of a name above, a model of opennmt.models with literal
                    arguments, or get_model_from_catalog("NAME")
    VALUE           a literal, a name above, tf.nn.relu, WordEmbedder(...)
"""

import ast
import contextlib
import pathlib
import typing

from keras_transformer.importers.files import named_errors, read_text
from keras_transformer.importers.options import Options

MAX_BYTES = 1 << 16
MODULES = ("opennmt", "tensorflow", "__future__")
# Parameters of its class Transformer, in their order.
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
# Defaults of the parameters that are not read from the checkpoint; source_eos:
# whether the automatic configuration ends the source with EOS.
DEFAULTS = {
    "num_heads": 8,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
    "ffn_activation": "tensorflow.nn.relu",
    "position_encoder_class": "opennmt.layers.SinusoidalPositionEncoder",
    "source_eos": False,
}
RELATIVE = {"position_encoder_class": None}
BIG = {"num_heads": 16}
SCALING = {**BIG, "dropout": 0.3, "ffn_dropout": 0.0, "source_eos": True}
# Models of its catalog, with the parameters that differ from the defaults.
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
PACKAGES = (
    "opennmt.models",
    "opennmt.models.catalog",
    "opennmt.models.transformer",
)
EMBEDDERS = (
    "opennmt.inputters.WordEmbedder",
    "opennmt.inputters.text_inputter.WordEmbedder",
)


class _Name(str):
    """The full name of something in an imported module."""


def read_description(path: pathlib.Path) -> Options:
    """The parameters of the model, as in `DEFAULTS`; others as they are given.

    Values other than literals and None are full names: "tensorflow.nn.relu".

    Raises:
        ValueError: It is not Python, or cannot be evaluated.
        OSError: It cannot be read.
    """
    text = read_text(path, MAX_BYTES)
    with named_errors(
        f"{path}, which has the number of heads, cannot be evaluated"
    ):
        module = _Module(ast.parse(text))
        if "model" not in module.names:
            raise ValueError("it defines no `model`")
        values = module.make(ast.Call(ast.Name("model"), [], []))
    return Options(DEFAULTS | values, path)


class _Module:
    """The definitions of a module.

    A function that returns a call, and a class that calls its base, are this
    call.

    Attributes:
        names: Values by name: a literal, a `_Name`, or an `ast.Call`.
    """

    def __init__(self, tree: ast.Module):
        self.names: dict[str, typing.Any] = {}
        for statement in _without_docstrings(tree.body):
            self._define(statement)

    def make(self, call: ast.Call) -> dict[str, typing.Any]:
        """Parameters of the model that a call makes."""
        function = self._evaluate(call.func)
        if isinstance(function, ast.Call):
            if call.args or call.keywords:
                _refuse(call, "expected no arguments")
            return self.make(function)
        if isinstance(function, _Name):
            package, _, name = function.rpartition(".")
            if package in PACKAGES and name == "get_model_from_catalog":
                given = self._bind(call, ("name",)).get("name")
                if isinstance(given, str) and given in CATALOG:
                    return CATALOG[given]
            elif package in PACKAGES and name in CATALOG:
                names = PARAMETERS if name in WITH_PARAMETERS else ()
                return CATALOG[name] | self._bind(call, names)
        _refuse(call, f"expected one of {', '.join(CATALOG)}")

    def _bind(self, call, names):
        """Arguments by the names of parameters."""
        if len(call.args) > len(names):
            _refuse(call, f"expected at most {len(names)} arguments")
        values = {
            name: self._evaluate(node)
            for name, node in zip(names, call.args, strict=False)
        }
        for keyword in call.keywords:
            if keyword.arg not in names or keyword.arg in values:
                stated = keyword.arg or f"**{ast.unparse(keyword.value)}"
                _refuse(keyword.value, f"the argument {stated}")
            values[keyword.arg] = self._evaluate(keyword.value)
        return values

    def _evaluate(self, node):
        """The value of an expression, as in `names`."""
        match node:
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Attribute(value=owner, attr=attribute):
                name = self._evaluate(owner)
                if isinstance(name, _Name):
                    return _Name(f"{name}.{attribute}")
            case ast.Call(func=function):
                name = self._evaluate(function)
                if isinstance(name, _Name) and name in EMBEDDERS:
                    self._bind(node, ("embedding_size", "dropout"))
                    return name
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self._evaluate, items))
            case ast.Constant() | ast.UnaryOp():
                with contextlib.suppress(ValueError):
                    return ast.literal_eval(node)
        _refuse(node)

    def _define(self, node):
        """Adds the names that a statement of the module defines."""
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    root = alias.name.partition(".")[0]
                    full = alias.name if alias.asname else root
                    self._import(node, alias.asname or root, full)
            case ast.ImportFrom(module=module, names=aliases, level=0):
                for alias in aliases:
                    full = f"{module}.{alias.name}"
                    self._import(node, alias.asname or alias.name, full)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Lambda(args=arguments, body=ast.Call() as call),
            ) if not ast.unparse(arguments):
                self._set(node, name, call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._set(node, name, self._evaluate(value))
            case ast.FunctionDef(name=name):
                match _statement_of(node, ""):
                    case ast.Return(value=ast.Call() as call):
                        self._set(node, name, call)
                    case other:
                        _refuse(other)
            case ast.ClassDef(
                name=name, bases=[base], keywords=[], decorator_list=[]
            ):
                self._set(node, name, _call_of_base(node, base))
            case _:
                _refuse(node)

    def _import(self, node, name, full):
        if full.partition(".")[0] not in MODULES or full.endswith("*"):
            _refuse(node)
        self._set(node, name, _Name(full))

    def _set(self, node, name, value):
        is_same = isinstance(value, _Name) and self.names.get(name) == value
        if name in self.names and not is_same:
            _refuse(node, f"another definition of {name}")
        self.names[name] = value


def _call_of_base(node, base):
    """The call of its base that makes an object of a class."""
    match _without_docstrings(node.body):
        case []:
            return ast.copy_location(ast.Call(base, [], []), node)
        case [ast.FunctionDef(name="__init__") as function]:
            statement = _statement_of(function, "self")
            match statement:
                case ast.Expr(value=ast.Call(func=called) as call):
                    if ast.unparse(called) in (
                        "super().__init__",
                        f"super({node.name}, self).__init__",
                    ):
                        call.func = base
                        return call
            _refuse(statement)
        case [*_, other]:
            _refuse(other)


def _statement_of(function, parameters):
    """The one statement of a plain function."""
    body = _without_docstrings(function.body)
    if (
        len(body) != 1
        or ast.unparse(function.args) != parameters
        or function.decorator_list
        or function.returns
    ):
        _refuse(function)
    return body[0]


def _without_docstrings(body):
    """Statements but those that do nothing."""

    def does_something(node):
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
        return True

    return list(filter(does_something, body))


def _refuse(node, reason="") -> typing.NoReturn:
    """Raises ValueError with the line of a node."""
    text = ast.unparse(node).strip().partition("\n")[0][:60]
    line = getattr(node, "lineno", 1)
    raise ValueError(f"line {line}: {f'{reason}: ' if reason else ''}{text}")
