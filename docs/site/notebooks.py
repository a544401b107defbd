"""Runs a notebook and stores its outputs; makes a page of a notebook.

    python docs/site/notebooks.py examples/annotated_transformer.ipynb

Figures are stored as SVG, which Jupyter would store as pixels. That of a cell
with the tag "picture NAME.svg" becomes docs/NAME.svg, too, for other pages. The
sources are stored as a checksum, so that a test finds outputs of other sources.
The page folds code with the tag "hide-input"; its first line is "# @title ...".
`docs/site/hooks.py` adds the page to the site; it runs nothing.
"""

import ast
import contextlib
import hashlib
import html
import io
import json
import pathlib
import re
import sys
import time
import typing
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parents[2]
# Of a file of the repository; in Colab, only such links work.
ADDRESS = re.compile(
    r"\]\(https://(?:github\.com|raw\.githubusercontent\.com)/keras-transformer-nmt"
    r"/keras-transformer-nmt/(?:blob/)?HEAD/([^)?]*)(?:\?[^)]*)?\)"
)
PICTURE = re.compile(r"picture (?P<name>\w+\.svg)")


def load(path: pathlib.Path) -> dict[str, typing.Any]:
    """A notebook, whose format is https://nbformat.readthedocs.io."""
    return json.loads(path.read_text("utf-8"))


def checksum(notebook: dict[str, typing.Any]) -> str:
    """SHA-256 of the code."""
    sources = [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


# ---- Outputs -----------------------------------------------------------------


def run(path: pathlib.Path) -> None:
    """Runs the code cells, and stores their outputs in the file."""
    import matplotlib

    from keras_transformer.base.files import write_atomically

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = path.stem  # the same file each time
    notebook, variables, number = load(path), {}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            start, used = time.perf_counter(), time.process_time()
            cell["outputs"] = outputs_of("".join(cell["source"]), variables)
            cell["execution_count"] = number
            for tag in cell["metadata"].get("tags", ()):
                if picture := PICTURE.fullmatch(tag):
                    svg = "".join(cell["outputs"][-1]["data"]["image/svg+xml"])
                    write_atomically(ROOT / "docs" / picture["name"], svg)
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = number
            seconds = time.perf_counter() - start
            used = time.process_time() - used
            took = f"{seconds:.1f} s, {used:.1f} s of CPU time"
            print(f"cell {number}: {took}", file=sys.stderr)
    notebook["metadata"]["sources"] = checksum(notebook)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    write_atomically(path, text + "\n")


def outputs_of(
    source: str, variables: dict[str, typing.Any]
) -> list[dict[str, typing.Any]]:
    """Runs a cell: what it prints, and the value of its last expression."""
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), variables)
        if last is not None:
            value = eval(compile(last, "<cell>", "eval"), variables)
    outputs: list[dict[str, typing.Any]] = []
    if text := printed.getvalue():
        lines = text.splitlines(keepends=True)
        outputs += [{"output_type": "stream", "name": "stdout", "text": lines}]
    if value is not None:
        data = {kind: text.splitlines(True) for kind, text in shown(value)}
        outputs.append(
            {"output_type": "execute_result", "metadata": {}, "data": data}
        )
    return outputs


def shown(value: typing.Any) -> typing.Iterator[tuple[str, str]]:
    """A value as the kinds of text that notebooks show."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    from keras_transformer.figures.saving import NO_METADATA

    if isinstance(value, Figure):
        file = io.StringIO()
        value.savefig(file, format="svg", metadata=NO_METADATA[".svg"], dpi=144)
        svg = file.getvalue()
        yield "image/svg+xml", svg[svg.index("<svg") :]
        titles = filter(None, (axes.get_title() for axes in value.axes))
        yield "text/plain", "Figure: " + "; ".join(titles)
        plt.close(value)
    elif hasattr(value, "_repr_html_"):
        yield "text/html", value._repr_html_()
        yield "text/plain", f"<{type(value).__name__}>"
    else:
        yield "text/plain", repr(value)


# ---- The page ----------------------------------------------------------------


def page(path: pathlib.Path) -> dict[str, str]:
    """Addresses -> the page of a notebook, and the files that it shows."""
    name, texts = path.stem, []
    files: dict[str, str] = {}
    for cell in load(path)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = source.replace("<details>", "<details markdown>")
            texts.append(ADDRESS.sub(r"](../\1)", source))
            continue
        texts.append(page_of_code(source, cell["metadata"].get("tags", ())))
        for output in cell["outputs"]:
            texts.append(page_of_output(output, name, files))
    files[f"{name}.md"] = "\n\n".join(texts) + "\n"
    return files


def page_of_code(source: str, tags: Sequence[str]) -> str:
    """Markdown for the code of a cell, folded if a tag says so."""
    if "hide-input" not in tags:
        return f"```python\n{source}\n```"
    title, _, code = source.partition("\n")
    title = title.removeprefix("# @title ")
    return (
        f'<details class="code" markdown>\n<summary>{title}</summary>\n\n'
        f"```python\n{code}\n```\n\n</details>"
    )


def page_of_output(
    output: dict[str, typing.Any], name: str, files: dict[str, str]
) -> str:
    """Markdown for an output; adds the file that it shows."""
    data = output.get("data", {"text/plain": output.get("text")})
    text = "".join(data["text/plain"])
    if "image/svg+xml" in data:
        address = f"{name}/{len(files) + 1}.svg"
        files[address] = "".join(data["image/svg+xml"])
        return f"![{text}]({address}){{ .picture }}"
    if "text/html" in data:
        address = f"{name}/{len(files) + 1}.html"
        frame = "".join(data["text/html"])
        [inner] = re.findall(r'srcdoc="([^"]*)"', frame)
        files[address] = html.unescape(inner)
        # mkdocs changes no links in HTML: the page will be NAME/index.html.
        inside = address.removeprefix(f"{name}/")
        return frame.replace(f'srcdoc="{inner}"', f'src="{inside}"')
    return f"``` {{ .text .output }}\n{text.rstrip()}\n```"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        run(pathlib.Path(argument))
