"""Lists the commands: `python -m keras_transformer`."""

import ast
import pathlib

from keras_transformer.commands import flags


def main() -> None:
    """Writes the name of each installed command, and what it does.

    Raises CommandError if the package is not installed.
    """
    lines = [f"Commands of {flags.DISTRIBUTION}; each has --help:"]
    commands = flags.find_installed().entry_points
    root = pathlib.Path(__file__).parents[1]
    for command in commands.select(group="console_scripts"):
        path = root / f"{command.module.replace('.', '/')}.py"
        tree = ast.parse(path.read_text("utf-8"))  # importing takes long
        first, *_ = (ast.get_docstring(tree) or "").splitlines()
        lines.append(f"  {command.name:24}{first}")
    flags.show(*lines)


if __name__ == "__main__":
    with flags.exit_status("keras_transformer"):
        main()
