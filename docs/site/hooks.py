"""What the documentation site has besides the pages of docs/.

Pages from elsewhere in the repository, links that work on GitHub and here, and
the reference, which is generated from the code. Nothing here imports Keras or
TensorFlow.
"""

import ast
import contextlib
import importlib
import pathlib
import posixpath
import re
import textwrap
import tomllib
from collections.abc import Iterator
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from keras_transformer.commands import flags

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REPOSITORY = PROJECT["project"]["urls"]["Repository"]
# Files outside docs/ -> the addresses of their pages.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "BUILD_NOTES.md": "project/build_notes.md",
    "CHANGELOG.md": "project/changelog.md",
    "RELEASING.md": "project/releasing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code_of_conduct.md",
    "benchmarks/results/README.md": "project/results.md",
}
EXPORTS = {  # the public names of savedmodel, by module
    "savedmodel.export": ["export", "Source"],
    "savedmodel.verify": ["compare", "run", "Comparison", "ExportError"],
    "savedmodel.client": ["Client"],
}


# ---- What mkdocs calls -------------------------------------------------------


def on_config(config: MkDocsConfig) -> None:
    """Completes the navigation."""
    titles = {title: pages for part in config.nav for title, pages in part.items()}
    listed = set(re.findall(r"'([\w/]+\.md)'", str(config.nav)))
    found = {path.name for path in (ROOT / "docs").glob("*.md")}
    titles["Guides"] += sorted(found - listed)
    titles["Project"].append({"Repository": REPOSITORY})
    titles["Reference"] = [
        {"Commands": list(command_pages())},
        {"Python": list(python_pages())},
    ]
    order = ("Start", "Guides", "Reference", "Project")
    config.nav = [{title: titles[title]} for title in order]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages that are not in docs/."""
    for path, uri in PAGES.items():
        source = str(ROOT / path)
        files.append(File.generated(config, uri, abs_src_path=source))
    for uri, text in {**command_pages(), **python_pages()}.items():
        files.append(File.generated(config, uri, content=text))


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Makes links between files of the repository links between pages.

    A link to a file that has no page leads to the repository.
    """
    here = page.file.src_uri
    homes = {uri: path for path, uri in PAGES.items()}
    folder = posixpath.dirname(homes.get(here, f"docs/{here}"))

    def replace(match: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        uri = PAGES.get(path)
        if path.startswith("docs/"):
            uri = path.removeprefix("docs/")
        if uri:
            uri = posixpath.relpath(uri, posixpath.dirname(here) or ".")
        elif (ROOT / path).exists():
            uri = f"{REPOSITORY}/blob/HEAD/{path}"
        return match[1] + (uri or match[2])  # mkdocs names a missing file

    # On GitHub, "[1] [title](address)" is text and a link.
    markdown = re.sub(r"\] (?=\[[^]]*\]\()", "]&#32;", markdown)
    return re.sub(r"(\]\()(?!\w+:|#)([^)#\s]+)", replace, markdown)


# ---- The reference of the commands -------------------------------------------


def commands() -> Iterator[str]:
    """The modules that are commands."""
    for package in ("trainers", "savedmodel"):
        for path in sorted((ROOT / package).glob("*.py")):
            if "\ndef main(argv" in path.read_text("utf-8"):
                yield f"{package}.{path.stem}"


def command_pages() -> dict[str, str]:
    """Addresses -> pages with the flags of one command."""
    return {
        f"reference/commands/{name}.md": command_page(name)
        for name in commands()
    }


def command_page(name: str) -> str:
    """The page of a command: what its `--help` says."""
    asked: list = []

    def parse(argv, description, *sections):
        asked.extend([description, *sections])
        raise SystemExit

    with mock.patch.object(flags, "parse", parse):
        with contextlib.suppress(SystemExit):
            importlib.import_module(name).main([])
    description, *sections = asked
    lines = [f"# {name}"]
    for paragraph in description.strip().split("\n\n"):
        is_table = re.search(r"\S {2,}\S", paragraph)
        indent = "    " if is_table else ""
        lines += ["", textwrap.indent(paragraph, indent)]
    for section in sections:
        lines += flags_of(section)
    return "\n".join(lines) + "\n"


def flags_of(section: type) -> Iterator[str]:
    """The lines of a page on the flags of one dataclass."""
    _, _, title, *lines = flags.usage("", section).splitlines()
    yield f"\n## {title.rstrip('.')}"
    for line in lines[: lines.index("Reading flags from a file")]:
        head = re.fullmatch(r"  --(\[no\])?(\w+)[= ]+\((.*)\)", line)
        if head:
            no, name, values = head.groups()
            yield f"\n### `--{no or ''}{name}` {{ #{name} }}\n"
            yield f"{values.replace('|', ' | ')}\n{{ .values }}\n"
        else:
            yield line.strip()


# ---- The reference of the Python names ---------------------------------------


def public_names() -> dict[str, list[str]]:
    """Modules -> the names that users import from them."""
    found: dict[str, list[str]] = {}
    for path, package in (
        ("keras_transformer/__init__.pyi", "keras_transformer."),
        ("keras_transformer/layers/__init__.py", ""),
    ):
        for node in ast.parse((ROOT / path).read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names]
                module = f"{package}{node.module}" if package else "keras_transformer.layers"
                known = found.setdefault(module, [])
                known += [name for name in names if name not in known]
    return found | EXPORTS


def python_pages() -> dict[str, str]:
    """Addresses -> pages with the public names of one part of the library."""
    pages: dict[str, str] = {}
    for module, names in sorted(public_names().items()):
        package, part, *_ = module.split(".")
        if package == "savedmodel":
            part = "exports"
        uri = f"reference/python/{part}.md"
        text = pages.get(uri, f"# {part.capitalize()}\n")
        options = f"        members: {names}\n"
        pages[uri] = f"{text}\n::: {module}\n    options:\n{options}"
    return pages
