"""Version and long description; all other metadata is in pyproject.toml.

A package index shows README without the repository around it, so links into the
repository become links to the files of this version on its web page.
"""

import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).parent


def read(name):
    return (HERE / name).read_text(encoding="utf-8")


def with_absolute_links(markdown, repository, tag):
    """Markdown whose links and images do not depend on where it is shown."""

    def absolute(match):
        image, words, path = match.groups()
        page = "raw" if image else "blob"
        return f"{image}[{words}]({repository}/{page}/{tag}/{path})"

    relative = r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)"
    return re.sub(relative, absolute, markdown)


[VERSION] = re.findall(
    r'^__version__ = "(.+?)"', read("keras_transformer/__init__.py"), re.M
)
# By a pattern: Python 3.10 has no tomllib, and pip then says which is needed.
[REPOSITORY] = re.findall(
    r'^Repository = "(.+?)"', read("pyproject.toml"), re.M
)

setup(
    version=VERSION,
    long_description=with_absolute_links(
        read("README.md"), REPOSITORY, f"v{VERSION}"
    ),
    long_description_content_type="text/markdown",
)
