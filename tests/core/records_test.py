"""Files of users' own data: ten of each form, five of them broken."""

import dataclasses
import gzip
import json
import logging
import pathlib

import numpy as np
import pyarrow as pa
import pytest
from commands import fails, write_pairs
from pyarrow import parquet

from keras_transformer.data.files import records, tmx
from trainers import prepare, wmt
from trainers.datasets.dataset import CorpusConfig, find_dataset, read_split
from trainers.run.data_config import DataConfig

PAIRS = [("the dog", "der Hund"), ('say "no"', "sag „nein“")]
NESTED = [{"translation": {"en": s, "de": t}} for s, t in PAIRS]
HEAD = '<?xml version="1.0" encoding="UTF-8"?><tmx version="1.4"><body>\n'
TEXT = 'en\tde\nthe dog\tder Hund\nsay "no"\tsag „nein“\n'


def unit(**texts):
    """Makes a unit of TMX. The texts are XML."""
    variants = (
        f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for code, text in texts.items()
    )
    return f"<tu>{''.join(variants)}</tu>\n"


UNITS = "".join(unit(en=source, de=target) for source, target in PAIRS)
MEMORY = f"{HEAD}{UNITS}</body></tmx>"


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


def rows(values, schema=None):
    return pa.Table.from_pylist(values, schema)


def flat(pairs=PAIRS, names=("en", "de")):
    return [dict(zip(names, pair, strict=True)) for pair in pairs]


def texts_of(offsets, data):
    """Makes two texts from offsets, which may be wrong."""
    buffer = pa.py_buffer(np.array(offsets, "<i4").tobytes())
    return pa.StringArray.from_buffers(2, buffer, pa.py_buffer(data))


# The ending of a file, its content, and --columns if it needs them.
GOOD = [
    ("tsv", TEXT, ()),
    ("tsv", "de\tscore\ten\r\nder Hund\t1\tthe  dog\r\n\r\n"
     "sag „nein“\t2\t say \"no\" \r\n", ()),
    ("tsv", TEXT.removeprefix("en\tde\n"), ("1", "2")),
    ("tsv", b"\xef\xbb\xbf" + TEXT.encode(), ()),
    ("tsv.gz", TEXT.replace("en\tde", "English\tGerman"),
     ("English", "German")),
    ("csv", 'en,de\nthe dog,der Hund\n"say ""no""",sag „nein“', ()),
    ("csv", '"de";"en"\r\nder Hund;the dog\r\n\r\n'
     'sag „nein“;"say\r\n""no"""\r\n', ()),
    ("csv", 'id, en, de\n1, the dog, der Hund\n2, "say ""no""", sag „nein“\n',
     ()),
    ("csv", ' "de", "en"\n"der Hund", the dog\n"sag „nein“", "say ""no"""\n',
     ()),
    ("tsv", TEXT.replace("en\tde", "en \t de"), ()),
    ("csv", "id\ten\tde\n1\tthe dog\tder Hund\n"
     '2\t"say ""no"""\tsag „nein“\n', ()),
    ("csv", '1,der Hund,the dog\n2,sag „nein“,"say ""no"""\n', ("3", "2")),
    ("csv.gz", 'sep=,\r\na,b\nthe dog,der Hund\n"say ""no""",sag „nein“\n',
     ("a", "b")),
    ("jsonl", lines(*flat()), ()),
    ("jsonl", lines(*NESTED), ()),
    ("json", "\n" + lines({"x": {"a": "the dog", "b": ["der Hund"]}, "c": 1})
     .replace('["der Hund"]', '"der\\nHund"')
     + lines({"x": {"b": "sag „nein“", "a": 'say "no"'}}), ("x.a", "x.b")),
    ("jsonl.gz", lines(*flat(names=("x.a", "b"))), ("x.a", "b")),
    ("jsonl", lines(*flat()).replace("\n", "\r\n") + "\n\n", ()),
    ("parquet", rows(flat()), ()),
    ("parquet", rows(NESTED), ()),
    ("parquet", rows([{"when": 1, **row} for row in flat(names=("a", "b"))]),
     ("a", "b")),
    ("parquet", rows(flat(), pa.schema([
        ("en", pa.dictionary(pa.int32(), pa.string())),
        ("de", pa.large_string())])), ()),
    ("parquet", rows([{"x": row} for row in flat()]), ("x.en", "x.de")),
    ("tmx", MEMORY, ()),
    ("tmx", MEMORY.replace("UTF-8", "UTF-16").encode("utf-16"), ()),
    ("tmx.gz", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">' + MEMORY.split("?>")[1]
     .replace('"en"', '"EN_us"').replace("xml:lang", "lang"), ()),
    ("tmx", HEAD + unit(de_AT="Haxe", de="der Hund", en="the\n dog")
     + unit(fr="rien", de="nichts")
     + unit(en='say <bpt i="1">&lt;b&gt;</bpt>"no"<ept i="1">x<sub>y</sub>'
            '</ept>', de="sag <hi>„nein“</hi>", en_GB="x")
     + "</body></tmx>", ()),
    ("tmx", MEMORY.replace("UTF-8", "windows-1252")
     .encode("windows-1252"), ("EN", "de")),
    ("set", rows(NESTED), ()),
    ("set", rows(flat()), ()),
    ("set", rows(flat(names=("a", "b"))), ("a", "b")),
    ("set", [rows(flat(PAIRS[:1])), rows(flat(PAIRS[1:]))], ()),
    ("arrow", rows(flat()), ()),
]  # fmt: skip
# The ending, the content, and the error after the name of the file.
BROKEN = [
    ("tsv", "a\tb\nthe dog\tder Hund\n",
     ", line 1: expected the columns en and de; .*Received: a, b$"),
    ("tsv", TEXT + "one\n", ", line 4: expected 2 columns. Received: 1"),
    ("tsv", TEXT + "a\tb\tc\n", ", line 4: expected 2 columns. Received: 3"),
    ("tsv", TEXT.encode("latin-1", "replace") + b"\xfcb\tc\n",
     ", line 4: not UTF-8 .*byte 1"),
    ("tsv", TEXT.encode("utf-16"), ": expected text in UTF-8. Received: UTF"),
    ("csv", 'en,de\na,b\n"a,b\nc,d\n', ", line 3: broken quotes"),
    ("csv", 'sep=,\nen,de\n"a"b,c\n', ", line 3: broken quotes"),
    ("csv", "en,de\nthe dog, the cat,der Hund\n", ", line 2: expected 2 col"),
    ("csv", "English;German\na;b\n",
     ", line 1: expected the columns .*Received: English, German$"),
    ("csv", "en,de\n,leer\n \n", ", line 3: expected 2 columns"),
    ("csv", b"en,de\na,\xe4\n", ", line 2: not UTF-8"),
    ("jsonl", lines(*flat()) + '{"en": "a"', ", line 3: expected JSON"),
    ("jsonl", lines(flat()), ", line 1: expected text in en and de"),
    ("jsonl", lines(*flat(), {"en": "a"}), ", line 3: expected text in en"),
    ("jsonl", lines(*flat(), {"en": "a", "de": None}), ", line 3: expected t"),
    ("jsonl", lines({"en": "\ud800", "de": "a"}), ", line 1: expected text"),
    ("parquet", b"no Parquet at all", ", row 1: "),
    ("parquet", rows(flat(names=("a", "b"))),
     ", row 1: expected the columns en and de; .*Received: a, b$"),
    ("parquet", rows([*flat(), {"en": "a"}]), ", row 3: .*'de': None"),
    ("parquet", rows([{"en": b"a", "de": b"b"}]), ", row 1: expected text"),
    ("parquet", pa.table({"en": texts_of([0, 1, 3], b"a\xff\xfe"),
                          "de": ["a", "b"]}), ", row 2: .*Invalid UTF8"),
    # Outside of the file.
    ("arrow", pa.table({"en": texts_of([0, 2**31 - 1, 3], b"abc"),
                        "de": ["a", "b"]}), ", row 1: "),
    ("tmx", MEMORY[:-60], ", line 3: expected TMX .unclosed token"),
    ("tmx", HEAD + unit(en="a", fr="b") + unit(it="c") + "</body></tmx>",
     ": expected pairs of en and de. Received: en, fr, it"),
    ("tmx", MEMORY.replace("<tmx", '<!DOCTYPE tmx [<!ENTITY a "aaa">]><tmx'),
     ", line 1: expected TMX .found the entity &a;"),
    ("tmx", HEAD + "\n<tu><tuv><seg>a</seg></tuv></tu></body></tmx>",
     ", line 3: expected TMX .found <tuv> without xml:lang"),
    ("tmx", HEAD.encode() + b"\n\n<tu>\xff</tu>",
     ", line 4: expected TMX .not well-formed"),
    ("set", {"state.json": "{}"}, ".state.json: expected _data_files"),
    ("set", {"state.json": "{"}, ".state.json: not JSON"),
    ("set", {"dataset_dict.json": "", "test/state.json": ""},
     "expected one split: .*set/test. Received: .*"),
    ("set", {"state.json": '{"_data_files": [{"filename": "x.arrow"}]}'},
     ".x.arrow, row 1: "),
    ("set", {"state.json": '{"_data_files": [{"filename": "x.arrow"}]}',
             "x.arrow": "this is no stream"}, ".x.arrow, row 1: "),
]  # fmt: skip


def write(folder, ending, content):
    """Writes a file, or the directory of a data set. Returns its path."""
    path = folder / f"pairs.{ending}"
    if ending == "set":
        path.mkdir()
        if not isinstance(content, dict):
            tables = content if isinstance(content, list) else [content]
            names = [f"data-{i}.arrow" for i in range(len(tables))]
            for name, table in zip(names, tables, strict=True):
                write_arrow(path / name, table)
            files = [{"filename": name} for name in names]
            content = {"state.json": json.dumps({"_data_files": files})}
        for name, text in content.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
    elif ending == "arrow":
        write_arrow(path, content)
    elif isinstance(content, pa.Table):
        parquet.write_table(content, path)
    else:
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_arrow(path, table):
    """Writes a stream like `datasets`, in which each row may be a batch."""
    with pa.OSFile(str(path), "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=1)


def config(*names, columns=()):
    return DataConfig(
        dataset="files", train_files=tuple(map(str, names)), columns=columns
    )


@pytest.mark.parametrize("case", range(len(GOOD)))
def test_pairs_are_read_again_and_again(case, tmp_path):
    ending, content, columns = GOOD[case]
    data = config(write(tmp_path, ending, content), columns=columns)
    pairs = read_split(data, "train")
    assert list(pairs) == list(pairs) == PAIRS
    assert (len(pairs), pairs.sizes) == (2, [2])


@pytest.mark.parametrize(
    ("rows_of_text", "wanted"),
    [
        (["Yes, I do.;Ja", "No, never.;Nein"], ("Yes, I do.", "Ja")),
        (["Yes, I do.;Ja"], ("Yes, I do.", "Ja")),
        (["Yes;Ja, gern", "No;Nein"], ("Yes", "Ja, gern")),
        (["a\tb,c", "d\te,f,g"], ("a", "b,c")),
        (['"a;b",c', '"d;e",f'], ("a;b", "c")),
        (["the dog, der Hund", "a cat, eine Katze"], ("the dog", "der Hund")),
        (["a;b,c;d", "e;f;g"], ("a", "b,c")),
        (["\ufeffsep=;", "a,b;c", "d,e;f"], ("a,b", "c")),
        (['"sep=|"', "a,b|c;d"], ("a,b", "c;d")),
        (["a,b", "sep=,"], ("a", "b")),
    ],
)
def test_a_delimiter_is_found_without_names(rows_of_text, wanted, tmp_path):
    path = write(tmp_path, "csv", "\n".join(rows_of_text))
    assert next(records.read_records(path, ("1", "2"))) == wanted


def test_a_delimiter_that_is_not_clear_is_refused(tmp_path):
    path = write(tmp_path, "csv", "1,5;2\n3,5;4\n")
    with pytest.raises(ValueError, match="a table that ',' and ';' divide"):
        next(records.read_records(path, ("1", "2")))


TWICE = [
    ("csv", "en,de,en\na,b,c\n"),
    ("tsv", "x\ten\tde\tx\n1\ta\tb\t2\n"),
    ("jsonl", '{"en": "a", "de": "b", "en": "c"}\n'),
    ("json", '{"translation": {"en": "a", "de": "b", "en": "c"}}\n'),
    *((ending, pa.table([["a"], ["b"], ["c"]], ["en", "de", "en"]))
      for ending in ("parquet", "arrow", "set")),
    ("parquet", pa.table(
        [pa.StructArray.from_arrays([["a"], ["b"]], ["en", "en"]), ["c"]],
        ["translation", "de"])),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(TWICE)))
def test_a_name_that_is_there_twice_is_refused(case, tmp_path):
    ending, content = TWICE[case]
    path = write(tmp_path, ending, content)
    place = r"(/data-0.arrow)?, (line|row) 1: "
    with pytest.raises(ValueError, match=f"^{path}{place}") as error:
        read_split(config(path), "train")
    told = ("once", "twice", "duplicate field names")
    assert any(word in str(error.value) for word in told)


@pytest.mark.parametrize(
    "files",
    [
        [], ["x"], [{}], 5, {"filename": "x.arrow"},
        *([{"filename": name}] for name in (
            "/etc/passwd", "../x.arrow", "a/x.arrow", "x.txt", "x.arrow\0",
            "", ".", "..", 5, None, ["x.arrow"], ".arrow/",
        )),
    ],
)  # fmt: skip
def test_a_data_set_names_files_of_its_own(files, tmp_path):
    state = json.dumps({"_data_files": files})
    path = write(tmp_path, "set", {"state.json": state})
    with pytest.raises(ValueError, match=f"^{path}/state.json: expected _data"):
        read_split(config(path), "train")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("<seg>", "<seg>a<seg>x</seg>", 2),
        ("<tu>", "<tu><tu></tu>", 2),
        ("<seg>", "<seg><tu></tu>", 2),
        ("<body>", "<body><seg>x</seg>", 1),
        ("<seg>", "<seg><ph><seg>x</seg></ph>", 2),
        ("</tu>", "<seg>x</seg></tu>", 2),
    ],
)
def test_parts_of_a_memory_stand_in_their_places(before, after, line, tmp_path):
    path = write(tmp_path, "tmx", MEMORY.replace(before, after))
    message = f"^{path}, line {line}: expected TMX .found <.*> outside of its"
    with pytest.raises(ValueError, match=message):
        read_split(config(path), "train")


@pytest.mark.parametrize("case", range(len(BROKEN)))
def test_an_error_names_the_file_and_the_place(case, tmp_path):
    ending, content, message = BROKEN[case]
    path = write(tmp_path, ending, content)
    pattern = message if message[0] == "e" else f"^{path}{message}"
    with pytest.raises((ValueError, OSError), match=pattern) as error:
        read_split(config(path), "train")
    assert "\n" not in str(error.value)


def test_forms_and_prefixes_are_one_corpus_after_the_other(tmp_path):
    prefix = write_pairs(tmp_path / "more", [("a", "b")] * 3)
    first = write(tmp_path, "csv", GOOD[5][1])
    second = write(tmp_path, "tmx", MEMORY)
    data = config(first, prefix, second)
    pairs = read_split(data, "train")
    assert list(pairs) == [*PAIRS, *[("a", "b")] * 3, *PAIRS]
    assert pairs.sizes == [2, 3, 2]
    found = find_dataset("files").find_files(data, "train")
    assert [file.name for file in found] == [
        *("pairs.csv", "more.en", "more.de", "pairs.tmx")
    ]


def test_each_split_may_have_columns_of_its_own(tmp_path):
    files = {}
    names = ("train", "en,de"), ("valid", "English,German"), ("test", "a,b")
    for split, head in names:
        path = tmp_path / f"{split}.csv"
        path.write_text(f"{head}\n{split},{split.upper()}\n")
        files[f"{split}_files"] = (str(path),)
    data = DataConfig(
        dataset="files",
        valid_columns=("English", "German"),
        test_columns=("b", "a"),
        **files,
    )
    assert [list(read_split(data, split)) for split, _ in names] == [
        [("train", "TRAIN")],
        [("valid", "VALID")],
        [("TEST", "test")],
    ]
    other = dataclasses.replace(
        data, columns=("a", "b"), test_columns=(), train_files=("x",)
    )
    assert list(read_split(other, "test")) == [("test", "TEST")]
    assert list(read_split(other, "valid")) == [("valid", "VALID")]


def test_units_without_a_language_are_counted(tmp_path, caplog):
    content = HEAD + UNITS + unit(en="alone") + "</body></tmx>"
    path = write(tmp_path, "tmx", content)
    with caplog.at_level(logging.WARNING):
        assert len(read_split(config(path), "train")) == 2
    assert caplog.messages == [
        f"{path}: 2 pairs, left out: 1 without one of the languages"
    ]


def test_blank_sentences_stay_and_are_counted_as_such(tmp_path):
    path = write(tmp_path, "tsv", "en\tde\n\tleer\n\nvoll\t \n")
    assert list(read_split(config(path), "train")) == [
        ("", "leer"),
        ("voll", ""),
    ]


def test_a_memory_is_read_piece_by_piece(tmp_path, monkeypatch):
    """Units arrive before the file ends, wherever it is divided."""
    path = write(tmp_path, "tmx", MEMORY.replace("</tmx>", "<broken"))
    monkeypatch.setattr(tmx, "CHUNK", 7)
    units = tmx.read_tmx(path, ("en", "de"))
    texts = {"en": "the dog", "de": "der Hund"}
    assert next(units) == (f"{path}, line 2", texts)
    assert next(units)[1]["en"] == PAIRS[1][0]
    with pytest.raises(ValueError, match="line 4: expected TMX"):
        next(units)


def test_nothing_outside_a_memory_is_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for declaration in (
        f'<!DOCTYPE tmx [<!ENTITY x SYSTEM "{tmp_path}/secret">]>',
        f'<!DOCTYPE tmx SYSTEM "{tmp_path}/secret">',
        '<!DOCTYPE tmx [<!ENTITY % x "y"> %x;]>',
    ):
        text = f"{declaration}<tmx><body>{unit(en='&x;', de='b')}</body></tmx>"
        path = write(tmp_path, "tmx", text)
        with pytest.raises(ValueError, match="found the entity &x;"):
            read_split(config(path), "train")


@pytest.mark.parametrize(
    ("ending", "content", "columns"),
    [
        ("tsv", "\n" + TEXT.removeprefix("en\tde\n"), ("1", "2")),
        ("tsv", TEXT.replace("the dog", "the\rdog"), ()),
        ("csv", '\nen,de\nthe dog,der Hund\n"say ""no""",sag „nein“', ()),
    ],
)
def test_white_space_is_no_row_and_no_end(ending, content, columns, tmp_path):
    path = write(tmp_path, ending, content)
    found = records.read_records(path, columns or ("en", "de"))
    assert list(found) == PAIRS


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_a_long_field_is_no_broken_one(ending, tmp_path):
    long = "a" * 200_000
    content = f"en{',' if ending == 'csv' else chr(9)}de\n"
    content += content.replace("en", long)
    path = write(tmp_path, ending, content)
    assert list(records.read_records(path, ("en", "de"))) == [(long, "de")]


def test_columns_are_two_of_files():
    for columns in (("a",), ("a", "b", "c"), ("0", "1"), ("a", "a")):
        with pytest.raises(ValueError, match="columns, two names"):
            config("x.csv", columns=columns)
    with pytest.raises(ValueError, match="columns needs dataset=files or pre"):
        CorpusConfig(columns=("a", "b"))


def test_several_target_languages_need_prefixes():
    files = {"dataset": "files", "train_files": ("x.csv",)}
    with pytest.raises(ValueError, match="expected prefixes, .*x.csv"):
        CorpusConfig(**files, target_language="de,fr")


def test_commands_read_them(tmp_path, capsys):
    """Training checks all of its files first; preparation is resumed."""
    path = write(tmp_path, "csv", "a,b\n" + "the dog,der Hund\n" * 3)
    bad = write(tmp_path, "jsonl", "[1]\n")
    argv = ["--dataset=files", f"--train_files={path}", "--columns=a,b"]
    wrong = [*argv, f"--valid_files={bad}", "--workdir=new"]
    error = fails(wmt.main, wrong, capsys)
    assert "pairs.jsonl, line 1: expected text in a and b" in error
    output = tmp_path / "prepared"
    argv = [*argv, f"--output={output}", "--vocab_size=20", "--workers=1"]
    prepare.main(argv)
    assert "3 pairs read" in capsys.readouterr().out
    prepare.main(argv)
    assert "is finished already" in capsys.readouterr().out
    error = fails(prepare.main, [*argv, "--columns=1,2"], capsys)
    assert "columns was 'a,b' and is '1,2'" in error


def test_a_missing_file_and_a_missing_package_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="^No such file: nowhere.csv$"):
        read_split(config("nowhere.csv"), "train")
    path = write(tmp_path, "parquet", rows(flat()))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow: .*\[parquet\]"):
        next(records.read_records(pathlib.Path(path), ("en", "de")))


@pytest.mark.parametrize(
    ("charset", "segment", "text"),
    [
        ("UTF8", "é", "é"),
        ("shift_jis", "あ", "あ"),
        ("utf-8", "a<ph>&lt;br/&gt;</ph>b", "a b"),
        ("utf-8", "a<ph/>, <ph>{1}</ph>b", "a, b"),
        ("utf-8", "H<bpt>x</bpt>2<ept>x</ept>O<ph>&lt;/b&gt;</ph>h", "H2Oh"),
        ("utf-8", "中<ph/>文", "中文"),
        ("utf-8", r"a<it pos='begin'>{\tab}</it>b<it>{\i </it>c", "a bc"),
        ("utf-8", r"a<bpt>{\b\line </bpt>b<ept>}</ept>c", "a bc"),
        ("utf-8", r"a<bpt>{\pard </bpt>b<ept>&lt;/w:p></ept>c", "ab c"),
        ("utf-8", "a<it/>b<it>{1}</it>. <hi>c</hi>d<ut>\t</ut>e", "a b. cd e"),
        (
            "utf-8",
            "A.<ph/>B!<it>&lt;br></it>C 3.<ph/>4 .<ph/>",
            "A. B! C 3.4 .",
        ),
        ("utf-8", "中<it>&lt;br></it>文", "中文"),
    ],
)
def test_charsets_and_codes_of_a_memory(charset, segment, text, tmp_path):
    path = tmp_path / "A.TMX"
    content = f"{HEAD}{unit(en=segment, de='x')}</body></tmx>"
    content = content.replace('"UTF-8"', f'"{charset}"')
    path.write_bytes(content.encode(charset))
    assert list(records.read_records(path, ["en", "de"])) == [(text, "x")]


def test_many_codes_in_a_segment_take_linear_time():
    """In quadratic time, they would take minutes."""
    assert len(tmx.joined(["ab", None] * 200_000)) == 600_000 - 1


def test_folders_and_patterns_are_files(tmp_path):
    (tmp_path / "a.d").mkdir()
    pairs = {"1.ndjson": lines(*NESTED), "2.TAB": TEXT, "README": "a"}
    for name, text in pairs.items():
        (tmp_path / "a.d" / name).write_text(text)
    for name, number in (("a.d", 2), ("*.d/*", 2), ("a.d/[12].n*", 1)):
        files = records.find_record_files(str(tmp_path / name))
        assert [file.name for file in files] == ["1.ndjson", "2.TAB"][:number]
        read = [list(records.read_records(f, ["en", "de"])) for f in files]
        assert read == [PAIRS] * number
    assert records.find_record_files(str(tmp_path / "a")) == []
    with pytest.raises(FileNotFoundError, match="No such file"):
        records.find_record_files(str(tmp_path / "*.x"))
