"""For mkdocstrings: what its parser of docstrings does not know of ours."""

import importlib
import inspect
import re
import typing

import griffe


class DocstringsExtension(griffe.Extension):
    """Translates our docstrings into those that griffe reads."""

    def on_object(self, *, obj: griffe.Object, **kwargs: typing.Any) -> None:
        """Called by griffe for each object that it has read."""
        if obj.is_class:
            complete(obj)
        if obj.docstring:
            obj.docstring.value = translated(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: typing.Any) -> None:
        """Called by griffe for the package, which is no object to it."""
        self.on_object(obj=pkg)


def complete(cls: griffe.Class) -> None:
    """Gives a configuration the defaults and the docstring of its fields.

    Griffe does not run code, but `Fields` writes them when it is imported.
    """
    fields = [
        p
        for p in cls.parameters
        if str(p.default).startswith(("hp(", "required("))
    ]
    if fields:
        section = getattr(importlib.import_module(cls.module.path), cls.name)
        cls.docstring.value = inspect.getdoc(section)
    for parameter in fields:
        field = section.__dataclass_fields__[parameter.name]
        parameter.default = repr(field.default)


def translated(docstring: str) -> str:
    """A docstring with fences around examples, and other sections known."""
    docstring = docstring.replace(
        "\nCall arguments:\n", "\nOther Parameters: Call arguments\n"
    )
    # A table of words, such as the legend of shapes, is not a paragraph.
    docstring = re.sub(r"(?m):\n(?= {4}\S+ {2,}\S)", ":\n\n", docstring)
    example = r"(?m)^>>> .*(?:\n(?!$).*)*"
    return re.sub(example, r"```pycon\n\g<0>\n```", docstring)
