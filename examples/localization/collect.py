"""Collects the translated messages of Debian packages as sentence pairs.

    python examples/localization/collect.py --packages=packages.txt \
        --languages=de --valid=wget --test=nano,dpkg --output=messages

A package is what `apt-get download` knows (no rights needed), or a .deb file;
with --installed, what `dpkg -L` lists. OUTPUT/catalogs/PACKAGE has its
catalogues, and its licence: translations have that of their program.
OUTPUT/LANGUAGE has the pairs of train, valid and test, of .en and .LANGUAGE.

A package is in one set only, a pair is in one of them, once. Pairs of the test
packages whose message is in training, too, are not in test but in `known`, for
each package; `known.memory` is what a translation memory answers. Texts are in
sentences, if both sides have as many.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import tqdm

from keras_transformer.data.files.tmx import LeftOut
from keras_transformer.documents.catalogues import read_mo

SETS = ("train", "valid", "test")
SENTENCE_END = re.compile(r"(?<=[^\W\d_]{2}[.!?])\s+(?=[^\W\d_a-z])")
LICENCE = "copyright"
WANTED = re.compile(rf"\.mo$|/{LICENCE}$")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        problem = done.stderr.decode(errors="replace").strip()
        sys.exit(f"collect.py: {' '.join(map(str, command))}: {problem}")
    return done.stdout


def members(package, downloads):
    """Yields path and content of a package's files; a link's is its target."""
    archive = pathlib.Path(package)
    if archive.suffix != ".deb":
        archive = download(package, downloads)
    command = ["dpkg-deb", "--fsys-tarfile", archive]
    try:
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE) as unpacked,
            tarfile.open(fileobj=unpacked.stdout, mode="r|") as files,
        ):
            for file in files:
                if file.issym():
                    yield file.name, file.linkname
                elif file.isfile() and WANTED.search(file.name):
                    yield file.name, files.extractfile(file).read()
    except tarfile.TarError as error:
        sys.exit(f"collect.py: {archive}: {error}. Delete it, and try again")


def download(package, folder):
    """The path of a package's archive, which is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob(f"{package}_*.deb")):
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            run("apt-get", "download", "--quiet", package, cwd=unfinished)
            [archive] = pathlib.Path(unfinished).glob("*.deb")
            archive.rename(folder / archive.name)
    return max(folder.glob(f"{package}_*.deb"))


def is_installed(package):
    """Whether dpkg knows the files of a package."""
    command = ["dpkg", "-L", package]
    return not subprocess.run(command, capture_output=True).returncode


def installed_members(package):
    """The same of an installed package."""
    listed = run("dpkg", "-L", package).decode().splitlines()
    for name in [*listed, f"/usr/share/doc/{package}/{LICENCE}"]:
        path = pathlib.Path(name)
        if WANTED.search(name) and path.is_file():
            yield name, path.read_bytes()


def keep_catalogs(package, folder, downloads, languages, installed):
    """Writes the catalogues of a package and its licence, once."""
    done = folder / "languages"
    if done.exists() and {*languages} <= {*done.read_text().split()}:
        return
    codes = "|".join(map(re.escape, languages))
    is_wanted = re.compile(rf"[/_.-](?:{codes})(?:_[A-Z]{{2}})?[/.].*mo$")
    found, licence = {}, b""
    package_files = (
        installed_members(package) if installed else members(package, downloads)
    )
    for path, content in package_files:
        name = path.removeprefix(".").strip("/")
        if name == f"usr/share/doc/{folder.name}" and isinstance(content, str):
            package = pathlib.Path(content).name  # which has its papers
            for other, text in members(package, downloads):
                if other.endswith(f"usr/share/doc/{package}/copyright"):
                    licence = text
        elif re.fullmatch(r"usr/share/doc/[^/]+/copyright", name):
            licence = content
        elif is_wanted.search(name) and isinstance(content, bytes):
            found[name] = content
    if not licence:
        sys.exit(f"collect.py: {package}: expected a file {LICENCE}")
    found[LICENCE], found[done.name] = licence, " ".join(languages).encode()
    for name, content in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def pairs_of(folder, language):
    """Yields the messages of a package and their translations."""
    for path in sorted(folder.glob("**/*.mo")):
        try:
            for _, texts in read_mo(path, ("en", language)):
                if not isinstance(texts, LeftOut):
                    yield from sentences_of(texts["en"], texts[language])
        except ValueError as error:
            print(f"collect.py: left out: {error}", file=sys.stderr)


def sentences_of(*texts):
    """Pairs of sentences, or of texts if one has more of them."""
    sides = [
        [
            sentence
            for paragraph in re.split(r"\n\s*\n", text)
            for sentence in SENTENCE_END.split(" ".join(paragraph.split()))
            if sentence
        ]
        for text in texts
    ]
    if len(sides[0]) != len(sides[1]):
        sides = [[" ".join(side)] for side in sides]
    return zip(*sides, strict=True)


def is_pair(source, target):
    """Whether both sides have words, and are not the same."""
    return source != target and all(
        re.search(r"[^\W\d_]{2}", text) for text in (source, target)
    )


def write_sets(folder, language, packages):
    """Writes the pairs of a language, and a row of counts for each package."""
    memory, seen, rows = {}, set(), []
    pairs = {name: [] for name in (*SETS, "known")}
    for name in SETS:  # training first: it is the memory
        for package in packages[name]:
            found = [
                *filter(lambda p: is_pair(*p), pairs_of(package, language))
            ]
            new = [*dict.fromkeys(p for p in found if p not in seen)]
            known = []
            if name == "train":
                seen.update(new)
                for source, target in new:
                    memory.setdefault(source, target)
            else:
                known = [p for p in dict.fromkeys(found) if p[0] in memory]
                new = [pair for pair in new if pair[0] not in memory]
                seen.update(new)
            pairs[name] += new
            pairs["known"] += known if name == "test" else []
            rows.append((package.name, name, len(found), len(new), len(known)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in pairs.items():
        for side, code in enumerate(("en", language)):
            lines = (f"{pair[side]}\n" for pair in found)
            (folder / f"{name}.{code}").write_text("".join(lines), "utf-8")
    lines = (f"{memory[source]}\n" for source, _ in pairs["known"])
    (folder / "known.memory").write_text("".join(lines), "utf-8")
    head = ("package", "set", "pairs", "new", "known")
    lines = ("\t".join(map(str, row)) + "\n" for row in [head, *rows])
    (folder / "counts.tsv").write_text("".join(lines), "utf-8")
    for name in SETS:
        counts = [row[2:] for row in rows if row[1] == name]
        found, new, known = map(sum, zip(*counts, strict=True))
        print(
            f"{language} {name}: {len(counts)} packages, {found:,} pairs,"
            f" {new:,} different and new, {known:,} known from training"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--packages", required=True, help="names, or a file")
    parser.add_argument("--languages", default="de")
    parser.add_argument("--valid", required=True, help="some of the packages")
    parser.add_argument("--test", required=True, help="some of the packages")
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    given = parser.parse_args()
    names = given.packages
    if os.path.isfile(names):  # False of a list that is too long for a name
        names = pathlib.Path(names).read_text()
    languages = given.languages.split(",")
    set_of = {
        name: set_name
        for set_name in SETS[1:]
        for name in getattr(given, set_name).split(",")
    }
    names = [*dict.fromkeys(re.split(r"[\s,]+", names.strip()))]
    name_of = {
        path: pathlib.Path(path).name.partition("_")[0] for path in names
    }
    if unknown := sorted(set_of.keys() - name_of.values()):
        parser.error(
            "expected the packages of --valid and --test among --packages."
            f" Received: {', '.join(unknown)}"
        )
    if given.installed:
        installed = [name for name in names if is_installed(name)]
        print(f"{len(installed)} of {len(names)} packages are installed")
        names = installed
    packages = {name: [] for name in SETS}
    for package in tqdm.tqdm(names, "packages", disable=None):
        folder = given.output / "catalogs" / name_of[package]
        keep_catalogs(
            package,
            folder,
            given.output / "packages",
            languages,
            given.installed,
        )
        packages[set_of.get(name_of[package], "train")].append(folder)
    if empty := [name for name, folders in packages.items() if not folders]:
        parser.error(
            "expected packages for train, valid and test."
            f" Received: none for {', '.join(empty)}"
        )
    for language in languages:
        write_sets(given.output / language, language, packages)


if __name__ == "__main__":
    main()
