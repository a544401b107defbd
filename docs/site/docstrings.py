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


def complete(cls: griffe.Class) -> None:
    """Gives a configuration the defaults and the docstring of its fields.

    Griffe does not run code, but `Fields` writes them when it is imported.
    """
    fields = [
        attribute
        for attribute in cls.attributes.values()
        if str(attribute.value).startswith("hp(")
    ]
    if not fields:
        return
    section = getattr(importlib.import_module(cls.module.path), cls.name)
    cls.docstring = griffe.Docstring(inspect.getdoc(section), parent=cls)
    for attribute in fields:
        field = section.__dataclass_fields__[attribute.name]
        attribute.value = repr(field.default)


def translated(docstring: str) -> str:
    """A docstring with examples in fences, and call arguments as a section."""
    docstring = docstring.replace(
        "\nCall arguments:\n", "\nOther Parameters: Call arguments\n"
    )
    example = r"(?m)^>>> .*(?:\n(?!$).*)*"
    return re.sub(example, r"```pycon\n\g<0>\n```", docstring)
