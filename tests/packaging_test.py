"""The package as `pip install .` leaves it: complete, away from the clone."""

import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import keras_transformer as kt

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("keras_transformer", "trainers", "savedmodel")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the clone, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"  # setuptools writes into its directory
    sources.mkdir()
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            sources / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*PIP, *command, f"--wheel-dir={folder}", str(sources)], check=True
    )
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel, installed into an empty directory."""
    folder = tmp_path_factory.mktemp("installed")
    command = ["install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run(
        [*PIP, *command, f"--target={folder}", str(wheel)], check=True
    )
    return folder


def run(installed, elsewhere, *arguments):
    """A Python process far from the clone, with the installed package."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=elsewhere,
        env={"PYTHONPATH": str(installed), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_wheel_has_every_file_of_the_packages(wheel):
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert found == expected
    assert "keras_transformer/py.typed" in found


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    assert f"\nVersion: {kt.__version__}\n" in metadata
    for extra in ("client", "ctranslate2", "onnx", "tflite", "test"):
        assert f"Provides-Extra: {extra}\n" in metadata
    assert re.search(r"\n# keras_transformer\n", metadata)  # README


def test_a_command_finds_its_recipes_elsewhere(installed, tmp_path):
    """An unknown recipe ends at once, with a line that lists those found."""
    command = ["-m", "trainers.wmt", "--recipe=x", f"--workdir={tmp_path}/r"]
    process = run(installed, tmp_path, *command)
    assert process.returncode == 2, process.stderr
    assert process.stderr.count("\n") == 1
    for path in ROOT.glob("trainers/configs/*.flags"):
        of_parsers = path.stem.startswith("parse")
        assert (path.stem in process.stderr) != of_parsers


def test_the_installed_package_is_used(installed, tmp_path):
    script = "import keras_transformer as k; print(k.__file__, k.__version__)"
    process = run(installed, tmp_path, "-c", script)
    path = str(installed / "keras_transformer" / "__init__.py")
    assert process.stdout.split() == [path, kt.__version__], process.stderr
