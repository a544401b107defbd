"""The package after `pip install .`: complete, outside the clone."""

import email
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import keras_transformer as kt

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("keras_transformer", "trainers", "savedmodel")
DISTRIBUTION = "keras-transformer-nmt"
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


def test_the_constraints_of_the_image_fit_the_project():
    """Each package of the project's image has one version, within bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line[0] != "#")
    versions = {canonicalize_name(name): v for name, v in pinned.items()}
    needed = [*project["dependencies"], *extras["ctranslate2"]]
    for text in [*needed, *extras["serve"], *extras["documents"]]:
        required = Requirement(text)
        if required.name != DISTRIBUTION:
            name = canonicalize_name(required.name)
            assert versions[name] in required.specifier, text


def run(installed, elsewhere, *arguments):
    """Runs Python outside the clone, with the installed package."""
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
        if path.is_file()
        and path.suffix != ".pyc"
        and (path.suffix != ".md" or "box" in path.parts)
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert found == expected
    assert "keras_transformer/py.typed" in found


@pytest.fixture(scope="module")
def metadata(wheel):
    """The wheel's METADATA, which has the form of an e-mail."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith("/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_metadata(metadata, wheel):
    assert (
        wheel.name == f"keras_transformer_nmt-{kt.__version__}-py3-none-any.whl"
    )
    assert metadata["Name"] == DISTRIBUTION
    assert metadata["Version"] == kt.__version__
    assert metadata["License-Expression"] == "Apache-2.0 AND MPL-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    for version in ("3.11", "3.12", "3.13"):
        classifier = f"Programming Language :: Python :: {version}"
        assert classifier in metadata.get_all("Classifier")
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    names = {"Repository", "Documentation", "Changelog", "Issues", "Paper"}
    assert urls.keys() == names
    for name in names - {"Paper"}:
        assert urls[name].startswith(urls["Repository"])
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'repository-code: "{urls["Repository"]}"' in citation


def test_extra_of_the_tests_has_every_package_of_the_others(metadata):
    """Except large ones, those of devices, and Beam (another protobuf)."""
    required = metadata.get_all("Requires-Dist")
    [own] = [
        line
        for line in required
        if line.startswith(DISTRIBUTION) and line.endswith('"test"')
    ]
    names, condition = re.fullmatch(
        rf"{DISTRIBUTION}\[(.+)\]; (.+)", own
    ).groups()
    assert condition == 'extra == "test"'
    extras = set(metadata.get_all("Provides-Extra"))
    assert set(names.split(",")) == extras - {
        "test",
        "notebook",
        "beam",
        "ja",
        "ko",
        "gpu",
        "jax-cuda",
        "jax-tpu",
    }


def test_readme_of_the_index_depends_on_no_other_file(metadata):
    """Its links and images point to README's at this version."""
    description = metadata.get_payload()
    assert description.startswith("# keras_transformer\n")
    assert metadata["Description-Content-Type"] == "text/markdown"
    repository = project()["urls"]["Repository"]
    found = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", description)
    paths = set()
    for image, link in found:
        assert link.startswith("https://"), link
        if link.startswith(repository):
            page = "raw" if image else "blob"
            start = f"{repository}/{page}/v{kt.__version__}/"
            assert link.startswith(start), link
            paths.add(link.removeprefix(start).partition("#")[0])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = re.findall(r"\]\((?!https://)([^)#]+)", readme)
    assert paths == set(relative) and len(paths) > 10
    assert all((ROOT / path).exists() for path in paths)


def project():
    """Returns the section `project` of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def test_requirements_of_jax_are_those_of_the_project():
    """TensorFlow is left out, and JAX is that of the extra `jax`."""
    lines = (ROOT / "requirements-jax.txt").read_text("utf-8").splitlines()
    required = [line for line in lines if not line.startswith("#")]
    dependencies = project()["dependencies"]
    expected = [x for x in dependencies if not x.startswith("tensorflow")]
    [jax] = project()["optional-dependencies"]["jax"]
    assert len(expected) < len(dependencies)
    assert sorted(required) == sorted([*expected, jax])


def test_what_is_to_be_installed_exists():
    """Pages and messages name this distribution and its extras."""
    extras = project()["optional-dependencies"]
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    for package in PACKAGES:
        paths += (ROOT / package).rglob("*.py")
    named = set()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for name, extra in re.findall(
            r"pip install '([^'[]*)\[([\w-]+)\]", text
        ):
            assert name in (DISTRIBUTION, "."), path  # "." in a clone
            named.add(extra)
        for extra in re.findall(r'how_to_install\("(\w+)"\)', text):
            named.add(extra)
        assert "pip install -e '." not in text, path
    assert named <= extras.keys()
    assert len(named) > 4


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
