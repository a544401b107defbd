"""Completes the documentation site, whose pages are mostly those of docs/.

The hooks add pages from elsewhere in the repository, one of them a notebook,
make links that work on GitHub work on the site, turn equations into MathML,
keep words of code in one line, and generate the reference from the code. They
import neither Keras nor TensorFlow.
"""

import ast
import contextlib
import html
import importlib
import pathlib
import posixpath
import re
import textwrap
import tomllib
from collections.abc import Iterator
from unittest import mock

import notebooks
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from keras_transformer.commands import flags

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SCRIPTS = {  # module -> console script
    entry.partition(":")[0]: name
    for name, entry in PROJECT["project"]["scripts"].items()
}
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
NOTEBOOK = "examples/annotated_transformer.ipynb"
NOTEBOOK_PAGE = "annotated_transformer.md"
COMMANDS = "reference/commands/index.md"
EXPORTS = {  # the public names of savedmodel, by module
    "savedmodel.export": ["export", "Source"],
    "savedmodel.verify": ["compare", "run", "Comparison", "ExportError"],
}


# ---- What mkdocs calls -------------------------------------------------------


def on_config(config: MkDocsConfig) -> None:
    """Completes the navigation."""
    titles = {
        title: pages for part in config.nav for title, pages in part.items()
    }
    listed = set(re.findall(r"'([\w/]+\.md)'", str(config.nav)))
    found = {path.name for path in (ROOT / "docs").glob("*.md")}
    titles["Guides"] += sorted(found - listed)
    titles["Project"].append({"Repository": REPOSITORY})
    titles["Reference"] = [
        {"Commands": list(command_pages())},
        {"Python": list(python_pages())},
    ]
    icon = {"icon": "fontawesome/brands/git-alt", "link": REPOSITORY}
    config.extra["social"] = [icon]
    order = ("Start", "Guides", "Results", "Reference", "Project")
    config.nav = [{title: titles[title]} for title in order]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages that are not in docs/."""
    for path, uri in PAGES.items():
        source = str(ROOT / path)
        files.append(File.generated(config, uri, abs_src_path=source))
    generated = command_pages() | python_pages()
    for uri, text in (generated | notebooks.page(ROOT / NOTEBOOK)).items():
        files.append(File.generated(config, uri, content=text))


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Makes links between files of the repository links between pages.

    A link to a file that has no page leads to the repository.
    """
    here = page.file.src_uri
    if here == NOTEBOOK_PAGE:
        page.meta["search"] = {"boost": 0.5}
    elif here.startswith(("reference/", "project/")) and here != COMMANDS:
        page.meta["search"] = {"boost": 0.01}  # guides are found first
    pages = PAGES | {NOTEBOOK: NOTEBOOK_PAGE}
    homes = {uri: path for path, uri in pages.items()}
    folder = posixpath.dirname(homes.get(here, f"docs/{here}"))

    def replace(match: re.Match) -> str:
        text, link, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, link))
        uri = pages.get(path)
        if path.startswith("docs/"):
            uri = path.removeprefix("docs/")
        if not (ROOT / path).exists():
            pass  # mkdocs names it
        elif uri is None:
            link = f"{REPOSITORY}/blob/HEAD/{path}"
        else:
            link = posixpath.relpath(uri, posixpath.dirname(here) or ".")
            if text.endswith(".md"):
                text = title_of(ROOT / path)
        return f"{text}]({link}{anchor})"

    # Python-Markdown nests what is indented by 4 spaces, GitHub by 3, too.
    markdown = re.sub(r"(?m)^ {3}(?=\S)", "    ", markdown)
    # On GitHub, "[1] [title](address)" is text and a link.
    markdown = re.sub(r"\] (?=\[[^]]*\]\()", "]&#32;", markdown)
    link = r"([\w/.]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)"
    return re.sub(link, replace, markdown)


def on_page_content(text: str, **_) -> str:
    """Turns equations into MathML; browsers do not break words of code.

    `arithmatex` marks the equations. Words with a hyphen are marked here.
    """

    def mark(code: re.Match) -> str:
        word = r"<[^>]*>|[^\s<>]*-[^\s<>]*"
        return re.sub(word, mark_word, code[0])

    def mark_word(found: re.Match) -> str:
        word = found[0]
        fits = not word.startswith("<") and len(word) <= 40  # on a phone
        return f'<span class="word">{word}</span>' if fits else word

    def replace(match: re.Match) -> str:
        tag, latex = match["tag"], html.unescape(match["latex"])
        display = "inline" if tag == "span" else "block"
        return f"<{tag}>{convert(latex, display=display)}</{tag}>"

    marked = r'<(?P<tag>span|div) class="arithmatex">\\[(\[]'
    marked += r"(?P<latex>.*?)\\[)\]]</(?P=tag)>"
    text = re.sub(marked, replace, text, flags=re.DOTALL)
    return re.sub(r"<code.*?</code>", mark, text, flags=re.DOTALL)


def title_of(path: pathlib.Path) -> str:
    """The title of a page, which links show in place of its file's name."""
    first = path.read_text("utf-8").partition("\n")[0]
    return first.removeprefix("# ")


# ---- The reference of the commands -------------------------------------------


def command_pages() -> dict[str, str]:
    """Addresses -> a list of the commands; pages with the flags of one."""
    lines = ["# All commands", "", "| command | |", "|---|---|"]
    for name in SCRIPTS:
        code = (ROOT / f"{name.replace('.', '/')}.py").read_text("utf-8")
        first = str(ast.get_docstring(ast.parse(code))).partition("\n")[0]
        lines.append(f"| [{SCRIPTS[name]}]({name}.md) | {first} |")
    lines += [
        "",
        "`--help` of a command shows its common flags, `--helpfull` all.",
    ]
    pages = {
        f"reference/commands/{name}.md": command_page(name) for name in SCRIPTS
    }
    return {COMMANDS: "\n".join(lines) + "\n"} | pages


def command_page(name: str) -> str:
    """The page of a command: what its `--helpfull` says."""
    asked: list = []

    def parse(argv, description, *sections):
        asked.extend([description, *sections])
        raise SystemExit

    with mock.patch.object(flags, "parse", parse):
        with contextlib.suppress(SystemExit):
            importlib.import_module(name).main([])
    description, *sections = asked
    lines = [f"# {SCRIPTS[name]}"]
    for paragraph in description.strip().split("\n\n"):
        is_table = re.search(r"\S {2,}\S", paragraph)
        indent = "    " if is_table else ""
        lines += ["", textwrap.indent(paragraph, indent)]
    for section in sections:
        lines += flags_of(section)
    return "\n".join(lines) + "\n"


def flags_of(section: type) -> Iterator[str]:
    """The lines of a page on the flags of one dataclass."""
    _, *lines = flags.usage("", section).splitlines()
    for line in lines[: lines.index("Reading flags from a file")]:
        head = re.fullmatch(r"  --(\[no\])?(\w+)[= ]+\((.*)\)", line)
        if head:
            no, name, values = head.groups()
            yield f"\n### `--{no or ''}{name}` {{ #{name} }}\n"
            yield f"{values.replace('|', ' | ')}\n{{ .values }}\n"
        elif line and not line.startswith(" "):
            yield f"\n## {line.rstrip('.')}"
        else:
            yield line.strip()


# ---- The reference of the Python names ---------------------------------------


def imported(path: str) -> Iterator[tuple[str, str]]:
    """`(module, name)` of each name that a file imports from a module."""
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield str(node.module), alias.name


def public_names() -> dict[str, list[str]]:
    """Modules -> the names that users import from them."""
    found: dict[str, list[str]] = {}
    for module, name in imported("keras_transformer/__init__.pyi"):
        found.setdefault(f"keras_transformer.{module}", []).append(name)
    layers = imported("keras_transformer/layers/__init__.py")
    found["keras_transformer.layers"] = [name for _, name in layers]
    return found | EXPORTS


def python_pages() -> dict[str, str]:
    """Addresses -> pages with the public names of one part of the library."""
    pages: dict[str, str] = {}
    links: dict[str, list[str]] = {}
    for module, names in sorted(public_names().items()):
        package, part, *_ = module.split(".")
        if package == "savedmodel":
            part = "exports"
        uri = f"reference/python/{part}.md"
        text = pages.get(uri, f"# {part.capitalize()}\n")
        options = f"    options:\n        members: {names}\n"
        pages[uri] = f"{text}\n::: {module}\n{options}"
        link = f"- [{part.capitalize()}]({part}.md):"
        links.setdefault(link, []).extend(
            f"[{name}][{module}.{name}]" for name in names
        )
    overview = ["# Overview\n\n::: keras_transformer"]
    overview += ["    options:\n        members: []\n"]
    overview += [f"{link} {', '.join(links[link])}" for link in links]
    return {"reference/python/index.md": "\n".join(overview), **pages}
