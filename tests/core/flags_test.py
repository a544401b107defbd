"""Flags are generated from dataclass fields, with clear error messages."""

import dataclasses
import io
import logging
import os
import pydoc
import re
import sys

import numpy as np
import pytest
from absl import logging as absl_logging
from commands import fails

import keras_transformer as kt
from keras_transformer.base.fields import (
    Fields,
    check_values,
    hp,
    kinds_of,
    rules_of,
)
from keras_transformer.commands import flags
from keras_transformer.config import (
    DecodingConfig,
    LengthConfig,
    TransformerConfig,
    preset,
)
from trainers.run.data_config import DataConfig
from trainers.run.training_config import TrainingConfig

SECTIONS = (TransformerConfig, DecodingConfig, DataConfig, TrainingConfig)


class Meal(Fields):
    """What is eaten."""

    dish: str = hp("soup", "The dish.", choices=("soup", "stew"))
    spoons: int = hp(1, "How many spoons.", low=1)
    salt: float = hp(0.5, "Share of salt.", low=0.0, below=1.0)
    hot: bool = hp(True, "Whether it is hot.")
    vegan: bool | None = hp(None, "Whether it is vegan; left out: unknown.")
    guests: tuple[str, ...] = hp((), "Who comes.")
    minutes: int | None = hp(7, "How long.", low=1)
    drink: str | None = hp(None, "What is drunk.")
    pepper: float = hp(0.0, "Grains of pepper.")

    def __post_init__(self):
        super().__post_init__()


def read(*argv):
    return flags.parse(argv, "Eats.", Meal).build(Meal)


def eat(argv):
    with flags.exit_status("eat"):
        read(*argv)


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_are_the_fields_own(section):
    assert flags.parse([], "", *SECTIONS).build(section) == section()


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(d_key=7, dropout=1e-7, pre_norm=True),
        TransformerConfig(share_embeddings="none", activation="gelu"),
        DecodingConfig(beam_size=1, sampling=True),
        DataConfig(dataset="files", train_files=("a b", "c=d")),
        TrainingConfig(jit_compile=False, train_minutes=0.1),
        Meal("stew", 3, 0.25, False, True, ("Ann", "Bob"), None, "x", -2.5),
        Meal(drink="none"),
        Meal(spoons=2**63 - 1, salt=1 / 3),
        Meal(guests=("Ann, the cook", "Bob")),
        Meal(guests=("a\\", "b\\,", "\\\\,c\\\\", r"d\.\\")),
    ],
)
def test_config_to_flags_to_config_is_identity(config):
    section = type(config)
    arguments = flags.parse(flags.to_flags(config), "", section)
    assert arguments.build(section) == config


def test_spellings():
    assert read("--nohot", "--vegan") == Meal(hot=False, vegan=True)
    assert read("--hot=false", "--vegan=none") == Meal(hot=False, vegan=None)
    assert read("--guests=Ann,Bob").guests == ("Ann", "Bob")
    assert read("--guests=").guests == ()
    assert (
        read("--minutes=none") == read("--minutes=None") == Meal(minutes=None)
    )
    assert read("--salt", "1e-3").salt == 0.001
    assert read("--drink=none").drink == "none"
    home = os.path.expanduser("~")
    assert read("--drink=~/a,~/b").drink == f"{home}/a,{home}/b"
    assert read("--drink=a ~/b").drink == "a ~/b"
    assert read("--guests=~/Ann").guests == (f"{home}/Ann",)
    assert read("--drink=").drink is None


def test_command_line_beats_flag_file_beats_base_beats_default(tmp_path):
    path = tmp_path / "meal.flags"
    path.write_text("# how it is\n// served\n\n--spoons=5\n--salt=0.1\n")
    hyphens = tmp_path / "run.flags"
    hyphens.write_text(f"--train-steps=5\n--flagfile={path}.2\n")
    (tmp_path / "meal.flags.2").write_text("--nojit-compile\n--init-from=a-b\n")
    argv = [f"--flagfile={hyphens}", "--log-steps", "7"]
    assert flags.parse(argv, "", TrainingConfig).given == {
        "train_steps": 5,
        "jit_compile": False,
        "init_from": "a-b",
        "log_steps": 7,
    }
    argv = ["--salt=0.2", f"--flagfile={path}"]  # the order does not matter
    arguments = flags.parse(argv, "", Meal)
    meal = arguments.build(Meal, spoons=3, salt=0.9, dish="stew")
    assert meal == Meal(dish="stew", spoons=5, salt=0.2)
    argv = ["--flagfile", str(path), "--spoons=6"]
    assert flags.parse(argv, "", Meal).build(Meal).spoons == 6
    argv = ["--spoons=7", f"-flagfile={path}"]
    assert flags.parse(argv, "", Meal).build(Meal).spoons == 7


def test_a_command_reads_the_arguments_of_its_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["eat", "--spoons=4"])
    assert flags.parse(None, "Eats.", Meal).build(Meal) == Meal(spoons=4)


@pytest.mark.parametrize(
    "argument, message",
    [
        ("--spoon=3", "Unknown command line flag 'spoon'. Did you mean"),
        ("--spoons=x", "flag --spoons=x: expected a whole number"),
        ("--spoons=0", "spoons must be at least 1. Received: spoons=0"),
        ("--minutes=x", "expected a whole number or none"),
        ("--spoons=none", "flag --spoons=none: expected a whole number"),
        ("--dish=none", "one of 'soup', 'stew'. Received: dish='none'"),
        ("--salt=nan", "must be a number"),
        ("--salt=1", "salt must be below 1.0. Received: salt=1.0"),
        ("--hot=maybe", "expected true or false"),
        ("--dish=cake", "dish must be one of 'soup', 'stew'. Received"),
        ("--spoons", "Missing value for flag --spoons"),
        ("spoons=3", "expected flags, --name=value. Received: spoons=3"),
        ("--flagfile=/no/such", "No such file or directory: '/no/such'"),
        ("--flagfile=/", "Is a directory: '/'"),
        (
            "--spoons=9223372036854775808",
            "spoons must be at most 9223372036854775807. Received: spoons=",
        ),
        ("--spoons=" + "9" * 5000, "expected a whole number"),
        ("--pepper=1e39", "pepper must be at most 3.4e+38. Received"),
        ("--pepper=1e400", "must be a number"),
        ("--drink=caf\udce9", "expected UTF-8 text"),
        ("--guests=Ann,B\udcf6b", "expected UTF-8 text"),
        ("--minutes=0", "minutes must be at least 1. Received: minutes=0"),
    ],
)
def test_errors_are_one_line_and_status_2(argument, message, capsys):
    with pytest.raises(SystemExit) as status:
        eat([argument])
    assert status.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("eat: ") and message in err
    assert "ERROR" not in err  # as absl begins some of its messages


def test_what_is_logged_is_a_plain_line(monkeypatch, capsys):
    """Lines come from the library, and from absl in the commands."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with flags.exit_status("eat"):
        logging.getLogger("keras_transformer.soup").info("making %s", "soup")
        absl_logging.warning("%s: no salt", "soup")
    assert capsys.readouterr().err == "making soup\nsoup: no salt\n"


@pytest.mark.parametrize(
    "field, value, expected",
    [
        ("spoons", "2", "a whole number"),
        ("spoons", None, "a whole number"),
        ("salt", float("inf"), "a number"),
        ("hot", 1, "true or false"),
        ("guests", ["Ann"], "a list of texts"),
        ("guests", ("Ann", 5), "a list of texts"),
        ("minutes", True, "a whole number, or None"),
    ],
)
def test_a_value_of_another_type_is_refused(field, value, expected):
    with pytest.raises(ValueError) as error:
        Meal(**{field: value})
    assert str(error.value) == (
        f"{field} must be {expected}. Received: {field}={value!r}"
    )


def test_numbers_of_numpy_are_numbers():
    meal = Meal(spoons=np.int64(2), salt=np.float32(0.5))
    assert meal == Meal(spoons=2, salt=0.5)


def test_a_flag_file_must_be_text(tmp_path, capsys):
    path = tmp_path / "model.bin"
    path.write_bytes(b"--spoons=3\n\xff\xfe")
    for argv in ([f"--flagfile={path}"], ["--flagfile", str(path)]):
        assert fails(eat, argv, capsys) == (
            "eat: a flag file must be UTF-8 text, one flag a line. Received:"
            f" {path} (invalid start byte, byte 11)\n"
        )


@pytest.mark.parametrize("section", SECTIONS)
def test_no_number_is_too_great_to_be_refused(section):
    """Each number field gets a number too large for any storage."""
    for name, (kind, _) in kinds_of(section).items():
        for value in {int: [10**30, -(10**30)], float: [1e39]}.get(kind, []):
            with pytest.raises(ValueError, match=f"Received: {name}="):
                check_values(section, **{name: value})


@pytest.mark.parametrize(
    "section, slip",
    [
        (DecodingConfig, {"extra_length": 10**9}),
        (DecodingConfig, {"min_length": 10**9}),
        (DecodingConfig, {"beam_size": 10**9}),
        (DecodingConfig, {"length_penalty": 60.0}),
        (DecodingConfig, {"temperature": 1e9}),
        (TransformerConfig, {"vocab_size": 10**12}),
        (TransformerConfig, {"d_model": 10**8}),
        (TransformerConfig, {"num_layers": 10**6}),
        (TransformerConfig, {"d_key": 10**8}),
        (TrainingConfig, {"train_steps": 2**63}),
        (TrainingConfig, {"seed": 2**32}),
    ],
)
def test_slips_of_the_keyboard_are_refused(section, slip):
    ((name, value),) = slip.items()
    with pytest.raises(ValueError, match=f"at most .*: {name}={value}"):
        section(**slip)


@pytest.mark.parametrize("section", SECTIONS)
def test_help_of_a_configuration_lists_its_fields(section):
    text = " ".join(pydoc.plain(pydoc.render_doc(section)).split())
    text = text.replace("| ", "")
    for field in dataclasses.fields(section):
        assert f"{field.name}: {field.metadata['help']}" in text
        assert f"Default: {field.default!r}." in text
        assert rules_of(field) in text
        if field.metadata["choices"] is not None:
            choices = ", ".join(map(repr, field.metadata["choices"]))
            assert f"One of {choices}." in text


@pytest.mark.parametrize(
    "error, status, line",
    [
        (ValueError("two\nlines"), 2, "two lines"),
        (OSError(2, "No such file", "soup"), 2, "No such file: 'soup'"),
        (OSError(28, "No space left", "soup"), 1, "No space left: 'soup'"),
        (flags.RunError("burnt"), 1, "burnt"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_command_ends_with_a_line_and_a_status(error, status, line, capsys):
    def burn(_):
        with flags.exit_status("eat"), flags.user_errors():
            raise error

    assert fails(burn, [], capsys, status) == f"eat: {line}\n"


def test_our_own_errors_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        with flags.exit_status("eat"), flags.user_errors():
            raise ZeroDivisionError


def help_of(argv, capsys, *sections):
    with pytest.raises(SystemExit) as status:
        flags.parse(argv, "Eats.", *sections)
    assert status.value.code == 0
    return capsys.readouterr().out


def test_help_explains_every_flag(capsys):
    text = " ".join(help_of(["--helpfull"], capsys, *SECTIONS).split())
    for section in SECTIONS:
        for field in dataclasses.fields(section):
            assert field.name in text
            assert f"{field.metadata['help']} {rules_of(field)}".strip() in text


def test_short_help_version_and_hyphens(capsys):
    out = help_of(["--help"], capsys, *SECTIONS)
    assert help_of(["-h"], capsys, *SECTIONS) == out
    version = help_of(["--version"], capsys, Meal)
    assert version == f"keras-transformer-nmt {kt.__version__}\n"
    argv = ["--train-steps=7", "--nojit-compile", "--init_from=a-b=c-d"]
    found = flags.parse(argv, "", TrainingConfig).given
    assert found == {
        "train_steps": 7,
        "jit_compile": False,
        "init_from": "a-b=c-d",
    }


def test_help_shows_the_common_flags_and_says_how_many_there_are(capsys):
    out = help_of(["--help"], capsys, *SECTIONS)
    fields = [f for section in SECTIONS for f in dataclasses.fields(section)]
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", out, re.MULTILINE)
    assert shown == [f.name for f in fields if f.metadata["common"]]
    assert 0 < len(shown) < len(fields)
    assert out.endswith(f"\n--helpfull shows all {len(fields)} flags.\n")
    # Few are all shown.
    usage = flags.usage("Eats.", Meal)
    assert help_of(["--help"], capsys, Meal) == usage + "\n"


@pytest.fixture
def output(monkeypatch):
    """Replaces standard output."""
    return lambda file: monkeypatch.setattr(sys, "stdout", file)


def test_a_full_output_is_one_line(output, capsys):
    def show(_):
        with flags.exit_status("eat"):
            flags.show("soup")

    with open("/dev/full", "w") as full:
        output(full)
        err = fails(show, [], capsys, code=1)
        full.write("what Python still holds at its exit")
    assert err == "eat: standard output: No space left on device\n"


def test_output_is_there_at_once_in_any_encoding(output):
    written = io.BytesIO()
    with io.TextIOWrapper(written, "latin-1") as file:
        output(file)
        flags.show("Soße", "für \u20ac 3")
        assert written.getvalue() == b"So\xdfe\nf\xfcr \\u20ac 3\n"
    output(io.StringIO())  # which has no encoding
    flags.show("Soße \u20ac")
    assert sys.stdout.getvalue() == "Soße \u20ac\n"


def test_an_output_that_is_closed(output, monkeypatch):
    flags.check_streams("stdin", "stdout")
    output(None)
    flags.show("soup")
    for word in (None, io.StringIO()):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", None)
            patch.setattr(sys, "stdout", word)
            with pytest.raises(SystemExit) as status, flags.exit_status("eat"):
                raise flags.CommandError("burnt")
        assert status.value.code == 2
    assert word.getvalue() == "eat: burnt\n"
    flags.check_streams("stdin")
    expected = "^expected an open stdout. It is closed$"
    with pytest.raises(flags.RunError, match=expected):
        flags.check_streams("stdin", "stdout")


def test_an_output_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold").write_text("mine")
    (tmp_path / "link").symlink_to("gold")
    (tmp_path / "dangling").symlink_to("new")
    (tmp_path / "folder").mkdir()
    (tmp_path / "away").symlink_to("/proc/new")
    pipe = os.pipe()
    special = f"/proc/self/fd/{pipe[1]}"  # which no file can be made beside
    for path in ("gold", "new", "a/b/new", "dangling", special):
        flags.check_output(path, ["none"])
    for descriptor in pipe:
        os.close(descriptor)
    for path, inputs, message in (
        ("gold", ["none", "gold"], "that the command reads. Received: output="),
        ("link", ["gold"], "Received: output='link', which is 'gold'"),
        ("folder", [], "output='folder' is a directory"),
        ("gold/new", [], "cannot be written: .*/gold: Not a directory"),
        ("/proc/no/new", [], "cannot be written: /proc: No such file"),
        ("away", [], "output='away' cannot be written: /proc: No such file"),
    ):
        with pytest.raises(ValueError, match=message):
            flags.check_output(path, inputs)
    assert (tmp_path / "gold").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 5


def test_help_ends_well_if_nobody_reads_it(monkeypatch, capsys):
    """With `| head`, there is no error now or when Python exits."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as status:
            with flags.exit_status("eat"):
                flags.parse(["--help"], "Eats.", *SECTIONS)
        assert status.value.code == 0
        closed.write("what Python still holds at its exit")
    assert capsys.readouterr().err == ""


def test_help_spells_types_and_defaults_as_flags_do():
    lines = flags.usage("Eats.", Meal).splitlines()
    assert [line.strip() for line in lines if line.startswith("  --")] == [
        "--dish=(soup|stew; default soup)",
        "--spoons=(a whole number; default 1)",
        "--salt=(a number; default 0.5)",
        "--[no]hot  (default true)",
        "--[no]vegan  (default none)",
        "--guests=(a comma-separated list)",
        "--minutes=(a whole number; default 7)",
        "--drink=(text)",
        "--pepper=(a number; default 0.0)",
        "--flagfile=PATH",
    ]
    text = flags.usage("", TransformerConfig)
    assert "--d_key=(a whole number; default none)\n" in text


def test_defaults_are_the_papers_numbers():
    """Table 3, rows "base" and "big", sec. 5.4 and sec. 6.1."""
    base = dict(
        vocab_size=37000,
        d_model=512,
        d_ff=2048,
        num_heads=8,
        num_layers=6,
        num_decoder_layers=None,
        d_key=None,
        d_value=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pre_norm=False,
    )
    big = base | dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)
    tiny = base | dict(
        d_model=128, d_ff=256, num_heads=4, num_layers=4, dropout=0.3
    )
    decoding = dict(
        beam_size=4,
        length_penalty=0.6,
        extra_length=50,
        min_length=0,
        sampling=False,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    for config, expected in (
        (TransformerConfig(), base),
        (preset("base"), base),
        (preset("big"), big),
        (preset("tiny"), tiny),
        (preset("big", dropout=0.1), big | {"dropout": 0.1}),
        (DecodingConfig(), decoding),
    ):
        found = dataclasses.asdict(config)
        assert {name: found[name] for name in expected} == expected


def test_sizes_that_are_left_out_follow_from_others():
    for given, sizes in (
        ({"num_heads": 4, "d_value": 24}, (16, 24)),
        ({"num_heads": 4, "d_key": 24}, (24, 16)),
        ({"num_heads": 3, "d_key": 5, "d_value": 7}, (5, 7)),
    ):
        config = TransformerConfig(d_model=64, **given)
        assert (config.key_size, config.value_size) == sizes
    assert TransformerConfig(num_layers=2).decoder_depth == 2
    assert TransformerConfig(num_decoder_layers=3).decoder_depth == 3


@pytest.mark.parametrize(
    "section, values",
    [
        (TransformerConfig, {"vocab_size": 4}),  # special tokens alone
        (TransformerConfig, {"d_model": 9, "num_heads": 1}),
        (TransformerConfig, {"d_model": 10, "num_heads": 3, "d_key": 2}),
        (TransformerConfig, {"d_model": 10, "num_heads": 3, "d_value": 2}),
        (DecodingConfig, {"top_p": 0.0}),
        (DecodingConfig, {"temperature": 0.0}),
        (LengthConfig, {"max_length": 1}),  # EOS alone
    ],
)
def test_what_no_model_and_no_search_can_have(section, values):
    name, value = next(iter(values.items()))
    with pytest.raises(ValueError, match=f"Received: {name}={value}"):
        section(**values)


def test_no_two_sections_share_a_flag():
    names = [f.name for s in SECTIONS for f in dataclasses.fields(s)]
    assert len(names) == len(set(names))
