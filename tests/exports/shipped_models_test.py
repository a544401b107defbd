"""The package's models translate as recorded, by each engine and export.

tests/fixtures/record_box.py records. The sentences were written for this test.
"""

import json
import pathlib
import re

import pytest
from commands import fails
from later import later

from keras_transformer.storage import box, card
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation.requests import Request
from keras_transformer.translator import Translator
from savedmodel import export, verify
from savedmodel.formats import FORMATS

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "box_translations.json").read_text("utf-8"))
REFUSED = {
    ("huggingface", "en-xx"): "format=huggingface needs pre_norm=False",
    ("huggingface", "xx-en"): "the vocabulary of an imported model",
    ("argos", "en-xx"): "format=argos needs one target_language",
    ("argos", "xx-en"): "format=argos needs no tokens of languages",
}
LARGEST = 15 * 2**20  # bytes of all models


def test_there_is_a_record_of_each_model():
    names = {pathlib.Path(path).name for path in box.find()}
    assert names == {*RECORDED} == {"en-xx", "xx-en"}
    directions = {
        name: {(source, target) for source, target, *_ in rows}
        for name, rows in RECORDED.items()
    }
    for name, found in directions.items():
        assert found == {*languages_of(name).pairs}
    for name, number in (("en-xx", 240), ("xx-en", 42)):
        assert 0.9 * number < len(RECORDED[name]) <= number


def test_they_are_small_and_have_cards():
    files = [path for path in box.BOX.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    for name in RECORDED:
        own = card.read_card(WorkDirectory(box.BOX / name))
        assert all(vars(own.facts).values())
        assert all(c.license and c.copyright for c in own.data)
        measured = {score.direction for score in own.scores}
        assert measured == {"-".join(p) for p in languages_of(name).pairs}
        assert (box.BOX / name / card.NOTICE).is_file()


def test_the_readme_quotes_a_translation():
    readme = (FIXTURES.parents[1] / "README.md").read_text("utf-8")
    sentence = re.search(r'echo "(.*)" \| kt-translate --target', readme)[1]
    [found] = Translator.load(target_language="de").translate([sentence])
    assert f"prints `{found}`" in " ".join(readme.split())


def languages_of(name):
    return WorkDirectory(box.BOX / name).read_languages()


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("engine", ["native", *later("backend", "ctranslate2")])
def test_an_engine_translates_as_recorded(name, engine):
    translator = Translator.load(box.BOX / name, engine=engine)
    requests = [
        Request(text, direction=translator.languages.direction(*pair))
        for *pair, text, _ in RECORDED[name]
    ]
    expected = [translation for *_, translation in RECORDED[name]]
    assert translator.translate(requests) == expected


@pytest.mark.slow("format")
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("format", [f for f in FORMATS if f != "packed"])
def test_an_export_translates_as_recorded(name, format, tmp_path, capsys):
    argv = [f"--workdir={box.BOX / name}", f"--output={tmp_path / 'out'}"]
    argv += [f"--format={format}", "--precision=float32", "--verify=none"]
    if (format, name) in REFUSED:
        assert REFUSED[format, name] in fails(export.main, argv, capsys)
        return
    export.main(argv)
    tags = languages_of(name).tags
    rows = RECORDED[name][::7]  # of all directions
    found = verify.run(
        tmp_path / "out",
        [
            f"{tags[target]} {text}"
            if tags
            else {
                "text": text,
                "source_language": source,
                "target_language": target,
            }
            for source, target, text, _ in rows
        ],
    )["translations"]
    same = sum(
        one["text"] == row[-1] for one, row in zip(found, rows, strict=True)
    )
    # Another program's search weighs lengths otherwise.
    least = 0.8 if FORMATS[format].own_search else 1
    assert same >= least * len(rows)
