"""Command lines from dataclasses: one flag for each field made with `hp`.

Precedence, lowest first: the field's default, the base that the command passes
(a preset, a work directory), a flag file, the command line. A flag on the
command line overrides a flag file, whatever their order. Bad input ends the
command with status 2 and one line.
"""

import contextlib
import dataclasses
import errno
import functools
import importlib.metadata
import logging
import os
import re
import signal
import sys
import tempfile
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import flags

from keras_transformer.base.fields import (
    REMOVED_FIELDS,
    TYPE_NAMES,
    Fields,
    kinds_of,
    rules_of,
)

# The spelling of None for an optional field. For text it is "", so that a file
# or a recipe may be called "none".
ABSENT = "none"
DISTRIBUTION = "keras-transformer-nmt"
FLAG_TYPE_NAMES = {**TYPE_NAMES, tuple: "a comma-separated list"}
# Flags of other systems, and their names here.
OTHER_NAMES = {"epochs": "train_steps", "batch_size": "batch_tokens"}
STANDARD_INPUT = ". Text comes by standard input: < FILE > TRANSLATION"
FEW_FLAGS = 14  # a command with no more shows them all in `--help`
# Disk errors, which are not the fault of the command.
DISK_ERRORS = (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


def with_home(text: str) -> str:
    """Replaces `~` at the start of a path, which no shell does in a flag."""
    home = os.path.expanduser("~")
    return re.sub(r"(?<![^,=])~(?=/)", lambda _: home, text)


def split_list(text: str) -> tuple[str, ...]:
    r"""Splits a text at its commas, except those written as `\,`.

    A backslash before a comma or a backslash is written as two.

    >>> split_list(r"a,b\,c,d\\,e\.")
    ('a', 'b,c', 'd\\', 'e\\.')
    """
    items = re.findall(r"(?:\\[\\,]|[^,])+", text)
    return tuple(re.sub(r"\\([\\,])", r"\1", item) for item in items)


def join_list(items: Iterable[str]) -> str:
    r"""Joins texts, so that `split_list` divides them again.

    >>> join_list(["a", "b,c", "d\\"])
    'a,b\\,c,d\\\\'
    """
    return ",".join(re.sub(r"[\\,]", r"\\\g<0>", item) for item in items)


READERS: dict[type, Callable[[str], typing.Any]] = {
    int: int,
    float: float,
    bool: flags.BooleanParser().parse,
    str: with_home,
    tuple: lambda text: tuple(map(with_home, split_list(text))),
}


def how_to_install(extra: str) -> str:
    """Returns the command that installs an extra of this project.

    >>> how_to_install("onnx")
    "pip install 'keras-transformer-nmt[onnx]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def find_installed() -> importlib.metadata.Distribution:
    """Returns this project as it is installed; else raises CommandError."""
    try:
        return importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise CommandError(f"expected pip install . ({error})") from error


class CommandError(Exception):
    """An error in the user's command or input: one line for `exit_status`."""

    status = 2  # of the process


class RunError(CommandError):
    """A failure while a correct command runs, as one line."""

    status = 1


class Arguments:
    """The flags given on a command line, to build dataclasses from.

    Attributes:
        given: All flags.
        own: Those that are not a recipe's.
    """

    def __init__(
        self,
        given: dict[str, typing.Any],
        own: dict[str, typing.Any] | None = None,
    ):
        self.given, self.own = given, given if own is None else own

    def build(self, section: type, **base: typing.Any) -> typing.Any:
        """Makes a dataclass from the given values, `base` and the defaults.

        Given values override `base`. Raises CommandError if one is invalid.
        """
        with user_errors():
            return section(**{**base, **self.given_of(section)})

    def given_of(self, section: type) -> dict[str, typing.Any]:
        """Returns the given values of a dataclass's fields, by name."""
        names = [field.name for field in dataclasses.fields(section)]
        return {n: self.given[n] for n in names if n in self.given}


def parse(
    argv: Sequence[str] | None, description: str, *sections: type
) -> Arguments:
    """Reads a command line whose flags are the fields of dataclasses.

    All fields must have different names. `argv`, by default `sys.argv[1:]`,
    excludes the program's name. `--help` and `--helpfull` end the process with
    status 0, as does a single `--version`. Raises CommandError if the command
    line is invalid.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    values = flags.FlagValues()
    for section in sections:
        _define(section, values)
    for name, value in REMOVED_FIELDS.items():
        flags.DEFINE_enum(name, value, [value], "", flag_values=values)
    if argv == ["--version"]:  # kt-export has a flag of this name
        show(f"{DISTRIBUTION} {find_installed().version}")
        raise SystemExit(0)
    for name in ("help", "helpfull"):
        short = {"help": "h"}.get(name)
        flags.DEFINE_boolean(
            name, False, "", flag_values=values, short_name=short
        )
    values.set_gnu_getopt()
    argv = _flagfiles_first(argv)
    try:
        read = values.read_flags_from_files(argv)
        named = [_with_underscores(argument, values) for argument in read]
        rest = values(["command", *named])[1:]
    except flags.Error as error:
        hint = _hint(error, values, description)
        raise CommandError(_one_line(error) + hint) from error
    except UnicodeDecodeError as error:  # absl reads flag files as text
        files = [a.partition("=")[2] for a in argv if _is_flagfile(a)]
        raise CommandError(
            "a flag file must be UTF-8 text, one flag a line."
            f" Received: {' '.join(files)} ({error.reason}, byte {error.start})"
        ) from error
    if values["help"].value or values["helpfull"].value:
        text = usage if values["helpfull"].value else short_usage
        show(text(description, *sections))
        raise SystemExit(0)
    if rest:
        raise CommandError(
            f"expected flags, --name=value. Received: {rest[0]}"
            f"{STANDARD_INPUT if 'standard input' in description else ''}"
        )
    names = [field.name for s in sections for field in dataclasses.fields(s)]
    return Arguments({n: values[n].value for n in names if values[n].present})


def command(
    name: str, description: str, *sections: type
) -> Callable[[Callable[[Arguments], None]], Callable[..., None]]:
    """Makes a decorator that turns a function into a command's main function.

    The function takes `Arguments`, which `parse` reads. The result takes
    `argv=None`, and handles errors by `exit_status`.
    """

    def decorate(run: Callable[[Arguments], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def main(argv: Sequence[str] | None = None) -> None:
            with exit_status(name):
                run(parse(argv, description, *sections))

        return main

    return decorate


def to_flags(config: Fields) -> list[str]:
    """Converts a dataclass to flags: `["--name=value", ...]`.

    >>> from keras_transformer.config import DecodingConfig
    >>> to_flags(DecodingConfig(beam_size=5))[:2]
    ['--beam_size=5', '--length_penalty=0.6']
    """
    section: type = type(config)
    return [
        f"--{name}={_spell(getattr(config, name), kind)}"
        for name, (kind, _) in kinds_of(section).items()
    ]


def usage(description: str, *sections: type) -> str:
    """Formats `--helpfull`: every flag, its type, default and meaning."""
    lines = [description.strip()]
    for section in sections:
        title = (section.__doc__ or section.__name__).strip().splitlines()[0]
        for field in dataclasses.fields(section):
            group = field.metadata["group"] or title
            lines += ["", group] if group else []
            title = ""
            lines += _explain(field, kinds_of(section)[field.name][0])
    lines += ["", "Reading flags from a file"]
    lines += ["  --flagfile=PATH", "      One flag a line; # is a comment."]
    return "\n".join(lines)


def short_usage(description: str, *sections: type) -> str:
    """Formats `--help`: the common flags, each with a sentence or two.

    For a command with at most `FEW_FLAGS` flags, this is `usage`.
    """
    kinds = {name: k for s in sections for name, (k, _) in kinds_of(s).items()}
    fields = [f for section in sections for f in dataclasses.fields(section)]
    common = [field for field in fields if field.metadata["common"]]
    if len(fields) <= FEW_FLAGS or not common:
        return usage(description, *sections)
    common.sort(key=lambda field: not field.metadata["required"])
    lines = [description.strip(), "", "Common flags"]
    for field in common:
        head, *_ = _explain(field, kinds[field.name], most_choices=8)
        lines += [head, *_indented(_beginning(field.metadata["help"]))]
    return "\n".join([*lines, "", f"--helpfull shows all {len(fields)} flags."])


def _beginning(text: str) -> str:
    """Returns the first sentences of a text, at least 30 characters.

    >>> _beginning("Pairs. Text files, one sentence a line, or tables. Or ids.")
    'Pairs. Text files, one sentence a line, or tables.'
    """
    return re.findall(r".{30,}?[.](?<!e\.g\.)(?=\s|$)|.*", text)[0]


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns bad input (ValueError, OSError) into CommandError.

    Disk errors become RunError.
    Wrap only code that reads and checks input. An error raised elsewhere is a
    bug and keeps its traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        failed = getattr(error, "errno", None) in DISK_ERRORS
        kind = RunError if failed else CommandError
        raise kind(_one_line(error)) from error


@contextlib.contextmanager
def exit_status(command: str) -> Iterator[None]:
    """Ends the process with one line and a status on CommandError or Ctrl-C.

    The line is `command: error`. The library's progress is shown meanwhile.
    """
    logging.basicConfig(format="%(message)s")
    logging.getLogger("keras_transformer").setLevel(logging.INFO)
    try:
        yield
    except CommandError as error:
        _complain(f"{command}: {error}")
        raise SystemExit(error.status) from None
    except KeyboardInterrupt:
        _complain(f"{command}: interrupted")
        raise SystemExit(128 + signal.SIGINT) from None


def _complain(line: str) -> None:
    """Writes a line to standard error, or to the output if that is closed."""
    stream = sys.stderr or sys.stdout
    if stream is not None:
        print(_encodable(line, stream), file=stream)


def check_streams(*names: str) -> None:
    """Raises RunError if a stream, such as "stdin", is closed."""
    for name in names:
        if getattr(sys, name) is None:
            raise RunError(f"expected an open {name}. It is closed")


def show(*lines: str) -> None:
    """Writes lines to standard output at once, or raises `RunError`.

    Characters that the output cannot encode are escaped. If the reader has
    closed the output, as `| head` does, no error is raised.
    """
    with output_errors():
        print_at_once(*lines)


def print_at_once(*lines: str) -> None:
    """Writes lines as `show` does, but raises OSError unchanged."""
    if sys.stdout is None:  # closed, and not needed: see `check_streams`
        return
    for line in lines:
        print(_encodable(line, sys.stdout))
    sys.stdout.flush()


def _encodable(text: str, file: typing.TextIO) -> str:
    """Escapes the characters of a text that a file cannot encode."""
    encoding = file.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextlib.contextmanager
def output_errors(file: typing.IO | None = None) -> Iterator[None]:
    """Ends its block quietly if the reader has closed the output.

    Any other OSError becomes RunError. The default is standard output.
    """
    try:
        yield
    except OSError as error:
        discard_output(file)
        if not isinstance(error, BrokenPipeError):
            raise RunError(f"standard output: {error.strerror}") from error


def discard_output(file: typing.IO | None = None) -> None:
    """Discards an output's buffer, and everything written to it later.

    Python would otherwise try to write the buffer again at exit.
    """
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), (file or sys.stdout).fileno())


def check_output(path: str, inputs: Iterable[str | os.PathLike] = ()) -> None:
    """Raises ValueError if an output file cannot be written or is an input.

    Call it before the work begins. `inputs` are the files that the command
    reads. Missing directories are allowed: they are made when the file is
    written.
    """
    for read in inputs:
        there = os.path.exists(path) and os.path.exists(read)
        if there and os.path.samefile(path, read):
            raise ValueError(
                "output must not be a file that the command reads. Received:"
                f" output={path!r}, which is {str(read)!r}"
            )
    if os.path.isdir(path):
        raise ValueError(f"output={path!r} is a directory")
    if os.path.exists(path) and not os.path.isfile(path):  # /dev/stderr
        return
    directory = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ValueError(
            f"output={path!r} cannot be written: {directory}: {error.strerror}"
        ) from error


class _FieldParser(flags.ArgumentParser):
    """Reads a flag's text as the type of a dataclass field."""

    def __init__(self, kind: type, may_be_none: bool):
        self.kind, self.may_be_none = kind, may_be_none

    def parse(self, argument: str) -> typing.Any:
        if self.may_be_none and argument.lower() == _absent(self.kind):
            return None
        try:
            argument.encode()
        except UnicodeEncodeError:  # nor could config.json hold it
            raise ValueError("expected UTF-8 text") from None
        if self.kind is tuple and _halves_a_path(argument):
            raise ValueError(r"expected \, for a comma in a path")
        try:
            return READERS[self.kind](argument)
        except ValueError:
            or_absent = f" or {_absent(self.kind)}" if self.may_be_none else ""
            raise ValueError(
                f"expected {FLAG_TYPE_NAMES[self.kind]}{or_absent}"
            ) from None


def _define(section: type, values: flags.FlagValues) -> None:
    for name, (kind, may_be_none) in kinds_of(section).items():
        parser = _FieldParser(kind, may_be_none)
        if parser.kind is bool:
            flag = flags.BooleanFlag(name, None, "")
            flag.parser = parser
            flags.DEFINE_flag(flag, values)
        else:
            flags.DEFINE(parser, name, None, "", flag_values=values)


def _absent(kind: type) -> str:
    return "" if kind is str else ABSENT


def _spell(value: typing.Any, kind: type) -> str:
    if value is None:
        return _absent(kind)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return join_list(value)
    return str(value)


def _explain(
    field: dataclasses.Field, kind: type, most_choices: int | None = None
) -> list[str]:
    """Describes one flag, with at most `most_choices` choices, as lines."""
    choices = field.metadata["choices"] or [FLAG_TYPE_NAMES[kind]]
    expected = "|".join(map(str, choices[:most_choices]))
    expected += "|..." * (len(choices) > len(choices[:most_choices]))
    default = _spell(field.default, kind)
    head = f"  --{field.name}=({expected}; default {default})"
    if kind is bool:
        head = f"  --[no]{field.name}  (default {default})"
    elif not default:
        head = f"  --{field.name}=({expected})"
    return [head, *_indented(f"{field.metadata['help']} {rules_of(field)}")]


def _indented(text: str) -> list[str]:
    text = textwrap.fill(text, 66, break_on_hyphens=False)
    return textwrap.indent(text, " " * 6).splitlines()


def _hint(
    error: flags.Error, values: flags.FlagValues, description: str
) -> str:
    """Suggests what to use instead of an unknown flag, or returns ""."""
    name = getattr(error, "flagname", "")
    if name in ("input", "output") and "standard input" in description:
        return STANDARD_INPUT
    other = OTHER_NAMES.get(name, "")
    is_meant = other in values and "Did you mean" not in str(error)
    return f". Did you mean: {other} ?" if is_meant else ""


def _flagfiles_first(argv: list[str]) -> list[str]:
    """Moves flag files to the front, so that other flags override them."""
    files, others, rest = [], [], iter(argv)
    for argument in rest:
        if argument.lstrip("-") == "flagfile" and argument.startswith("-"):
            files.append(f"--flagfile={next(rest, '')}")
        elif _is_flagfile(argument):
            files.append(argument)
        else:
            others.append(argument)
    return files + others


def _with_underscores(argument: str, values: flags.FlagValues) -> str:
    """Replaces hyphens in a flag's name: `--train-files` is known, too."""
    name = argument[2:].partition("=")[0]
    known = name.replace("-", "_")
    names = {known, known.removeprefix("no")} & {*values}
    is_flag = argument.startswith("--") and names
    return argument.replace(name, known, 1) if is_flag else argument


def _halves_a_path(text: str) -> bool:
    """Tells whether commas divide the name of a file, or of its directory."""
    path = with_home(text)
    paths = (path, os.path.dirname(path))
    return any("," in p and os.path.exists(p) for p in paths)


def _is_flagfile(argument: str) -> bool:
    return argument.startswith(("--flagfile=", "-flagfile="))


def _one_line(error: Exception) -> str:
    """Strips line breaks, "[Errno N]" and "ERROR::" from a message."""
    text = str(error).replace("ERROR:: ", "")
    if isinstance(error, OSError):
        text = text.removeprefix(f"[Errno {error.errno}] ")
    return " ".join(text.split())
