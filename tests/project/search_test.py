"""The search of the documentation site, which `make docs` has built.

    python -m pytest -m npm

It needs Node.js.
"""

import pathlib
import subprocess

import pytest

pytestmark = pytest.mark.npm

ROOT = pathlib.Path(__file__).parents[2]
FIRST = {  # what is searched for -> the page that should come first
    "install": "installation/",
    "resume": "training/",
    "memory": "devices/",
    "gpu": "devices/",
    "csv": "training/",
    "excel": "training/",
    "docx": "documents/",
    "windows": "installation/",
    "bleu": "evaluation/",
    "glossary": "glossary/",
    "out of memory": "training/",
    "my bleu is 0": "evaluation/",
    "update": "installation/",
    "spreadsheet": "documents/",
}


def test_the_right_page_is_found_first():
    assert (ROOT / "build/site").exists(), "expected a site: make docs"
    found = subprocess.run(
        ["node", ROOT / "docs/site/search.js", *FIRST],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
    assert dict(zip(FIRST, found, strict=True)) == FIRST
