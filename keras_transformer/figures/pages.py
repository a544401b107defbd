"""Renders Jinja templates as HTML pages, each complete in one file."""

import functools
import typing

import jinja2

from keras_transformer.text.writing import direction, printable


def render_page(package: str, template: str, **values: typing.Any) -> str:
    """Renders a page from a template in a package.

    Every value is escaped, and data from `tojson` cannot end a script. A
    missing value is an error. All templates may include this package's
    `theme.css`.
    """
    page = _environment(package).get_template(template).render(values)
    return printable(page)


@functools.cache
def _environment(package):
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader(name, ".")
                for name in (package, "keras_transformer.figures")
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["direction"] = direction
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
