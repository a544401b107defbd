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
                    calls the one of BASE, by super() or by name
    CALL            of a name above, a model of opennmt.models with literal
                    arguments, or get_model_from_catalog("NAME")
    VALUE           a literal, a name above, tf.nn.relu, WordEmbedder(...)
"""

import ast
import builtins
import pathlib
import typing

from trainers.importers.files import read_text
from trainers.importers.options import Options

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
    try:
        module = _Module(ast.parse(text))
        if "model" not in module.names:
            raise ValueError("it defines no `model`")
        values = module.make(module.names["model"], None, module.tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"{path}, which has the number of heads, cannot be evaluated:"
            f" {reason}"
        ) from None
    return Options(DEFAULTS | values, path)


class _Module:
    """The definitions of a module.

    Attributes:
        tree: The module.
        names: Values by name: a literal, a `_Name`, or the node of a lambda, a
            function or a class.
    """

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.names: dict[str, typing.Any] = {}
        for statement in _without_docstrings(tree.body):
            self._define(statement)

    def make(self, function, call, where) -> dict[str, typing.Any]:
        """Parameters of the model that a function or class makes.

        Args:
            function: As in `names`.
            call: (positional, keyword) arguments as nodes, or None.
            where: Node for messages.
        """
        if isinstance(function, _Name):
            return self._make_known(function, call or ([], []), where)
        if call is not None and any(call):
            _refuse(where, "expected no arguments")
        if isinstance(function, ast.ClassDef):
            return self._make_class(function)
        if isinstance(function, ast.FunctionDef):
            match _without_docstrings(function.body):
                case [ast.Return(value=ast.Call() as made)]:
                    return self._make_call(made)
                case [other, *_]:
                    _refuse(other)
            _refuse(function)
        if isinstance(function, ast.Lambda):
            return self._make_call(function.body)
        _refuse(where, "expected a function or a class that makes a model")

    def _make_call(self, node):
        """Parameters of the model that an expression makes."""
        if not isinstance(node, ast.Call):
            _refuse(node)
        call = node.args, node.keywords
        return self.make(self._evaluate(node.func), call, node)

    def _make_known(self, name, call, where):
        """Parameters of a model of OpenNMT-tf's own classes."""
        package, _, last = name.rpartition(".")
        if package in PACKAGES and last == "get_model_from_catalog":
            values = self._bind(call, ("name",), where)
            found = values.get("name")
            if not isinstance(found, str) or found not in CATALOG:
                _refuse(where, f"expected one of {', '.join(CATALOG)}")
            return CATALOG[found]
        if package not in PACKAGES or last not in CATALOG:
            _refuse(where, f"expected one of {', '.join(CATALOG)}")
        names = PARAMETERS if last in WITH_PARAMETERS else ()
        return CATALOG[last] | self._bind(call, names, where)

    def _make_class(self, node):
        """Parameters of the model that a class of the module is."""
        base = self._evaluate(node.bases[0])
        functions = _without_docstrings(node.body)
        if not functions:
            return self.make(base, None, node)
        (function,) = functions
        first = function.args.args[0].arg
        if first in (*self.names, "super"):
            _refuse(function)
        match _without_docstrings(function.body):
            case [ast.Expr(value=ast.Call(func=ast.Attribute() as f) as call)]:
                pass
            case [*_, other]:
                _refuse(other)
            case _:
                _refuse(function)
        arguments = call.args
        match f:
            case ast.Attribute(
                value=ast.Call(
                    func=ast.Name(id="super"), args=given, keywords=[]
                ),
                attr="__init__",
            ):
                names = [getattr(argument, "id", None) for argument in given]
                if names and names not in (
                    [node.name, first],
                    ["__class__", first],
                ):
                    _refuse(call)
            case ast.Attribute(value=owner, attr="__init__"):
                match arguments:
                    case [ast.Name(id=name), *arguments] if name == first:
                        pass
                    case _:
                        _refuse(call)
                if self._evaluate(owner) != base:
                    _refuse(call)
            case _:
                _refuse(call)
        return self.make(base, (arguments, call.keywords), call)

    def _bind(self, call, names, where):
        """Arguments by the names of parameters."""
        positional, keywords = call
        if len(positional) > len(names):
            _refuse(where, f"expected at most {len(names)} arguments")
        values = {
            name: self._evaluate(node)
            for name, node in zip(names, positional, strict=False)
        }
        for keyword in keywords:
            if keyword.arg not in names or keyword.arg in values:
                stated = keyword.arg or f"**{ast.unparse(keyword.value)}"
                _refuse(keyword.value, f"the argument {stated}")
            values[keyword.arg] = self._evaluate(keyword.value)
        return values

    def _evaluate(self, node):
        """The value of an expression, as in `names`."""
        match node:
            case ast.Constant(value=value) if _is_literal(value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                if _is_literal(value) and type(value) in (int, float):
                    return -value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self._evaluate, items))
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Attribute(value=owner, attr=attribute):
                name = self._evaluate(owner)
                if isinstance(name, _Name):
                    return _Name(f"{name}.{attribute}")
            case ast.Call(func=function, args=args, keywords=keywords):
                name = self._evaluate(function)
                if isinstance(name, _Name) and name in EMBEDDERS:
                    names = "embedding_size", "dropout"
                    self._bind((args, keywords), names, node)
                    return name
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
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Lambda):
                    _check_arguments(value, 0)
                else:
                    value = self._evaluate(value)
                self._set(node, name, value)
            case ast.FunctionDef():
                _check_arguments(node, 0)
                self._set(node, node.name, node)
            case ast.ClassDef(
                bases=[base], keywords=[], decorator_list=[], body=body
            ) if not getattr(node, "type_params", []):
                if not isinstance(self._evaluate(base), (_Name, ast.ClassDef)):
                    _refuse(base)
                self._set(node, node.name, node)
                for number, part in enumerate(_without_docstrings(body)):
                    if number or getattr(part, "name", None) != "__init__":
                        _refuse(part)
                    _check_arguments(part, 1)
            case _:
                _refuse(node)

    def _import(self, node, name, full):
        if full.partition(".")[0] not in MODULES or full.endswith("*"):
            _refuse(node)
        self._set(node, name, _Name(full))

    def _set(self, node, name, value):
        is_same = isinstance(value, _Name) and self.names.get(name) == value
        if hasattr(builtins, name) or (name in self.names and not is_same):
            _refuse(node, f"another definition of {name}")
        self.names[name] = value


def _check_arguments(node, count):
    """Refuses anything but a plain function of so many parameters."""
    arguments = node.args if hasattr(node, "args") else None
    if (
        not isinstance(node, (ast.FunctionDef, ast.Lambda))
        or len(arguments.args) != count
        or len(list(ast.iter_child_nodes(arguments))) != count
        or any(argument.annotation for argument in arguments.args)
        or getattr(node, "decorator_list", [])
        or getattr(node, "returns", None)
        or getattr(node, "type_params", [])
    ):
        _refuse(node)


def _without_docstrings(body):
    """Statements but those that do nothing."""
    return [
        node
        for node in body
        if not isinstance(node, ast.Pass)
        and not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
    ]


def _is_literal(value):
    """Whether a constant can be an argument."""
    if type(value) is int:
        return value.bit_length() < 64
    return value is None or type(value) in (bool, float, str)


def _refuse(node, reason="") -> typing.NoReturn:
    """Raises ValueError with the line of a node."""
    text = ast.unparse(node).strip().partition("\n")[0][:60]
    line = getattr(node, "lineno", 1)
    raise ValueError(f"line {line}: {f'{reason}: ' if reason else ''}{text}")
