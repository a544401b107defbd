"""Readers of other systems' files: contents and refusals."""

import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile

import numpy as np
import pytest
from commands import fails

import keras_transformer as kt
from keras_transformer.base import foreign_files as files
from keras_transformer.base.files import check_new
from keras_transformer.importers import find_format, torch_pickle, vocabularies
from keras_transformer.importers.imported import Imported, take_arrays
from keras_transformer.importers.model_description import read_description
from keras_transformer.importers.options import Options
from keras_transformer.importers.stacks import make_config, weight_shapes
from keras_transformer.importers.tensors import (
    Tensors,
    holds_array,
    read_npz,
    read_safetensors,
)
from keras_transformer.importers.torch_pickle import Plain, read_torch
from keras_transformer.importers.vocabularies import make_tokenizer, start_name
from keras_transformer.storage import yaml_files
from keras_transformer.storage.checkpoints import named_weights
from keras_transformer.text.tokenization import Tokenizer
from trainers import import_model
from trainers.datasets import phrasebook

# PyTorch --------------------------------------------------------------------


@pytest.fixture
def torch(monkeypatch):
    """Names in a pickle of PyTorch, none of which is called here."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def rebuild(*arguments):
        raise AssertionError

    rebuild.__module__ = utils.__name__
    rebuild.__qualname__ = rebuild.__name__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    for name in ("FloatStorage", "LongStorage"):
        kind = type(name, (), {"__module__": "torch"})
        setattr(module, name, kind)
    module._utils = utils
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return module


class Storage:
    """An object that is pickled as a persistent id."""

    def __init__(self, *pid):
        self.pid = pid


class Call:
    """An object that is pickled as a call and a state for the result."""

    def __init__(self, function, *arguments, state=None):
        self.function, self.arguments = function, arguments
        self.state = state

    def __reduce__(self):
        if self.state is None:
            return self.function, self.arguments
        return self.function, self.arguments, self.state


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.pid if isinstance(value, Storage) else None


def pickled(value):
    content = io.BytesIO()
    Pickler(content, protocol=2).dump(value)
    return content.getvalue()


def write_archive(path, value, storages, extra=()):
    """Writes a file as torch.save does since 1.6."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled(value))
        for key, content in {**storages, **dict(extra)}.items():
            archive.writestr(f"a/{key}", content)


def write_pickles(path, value, storages, **changes):
    """Writes a file as torch.save did before 1.6."""
    head = {
        "magic": torch_pickle.MAGIC,
        "protocol": torch_pickle.PROTOCOL,
        "system": {"little_endian": True},
        "value": value,
        "keys": list(storages),
        **changes,
    }
    content = b"".join(pickled(part) for part in head.values())
    for size, numbers in storages.values():
        content += struct.pack("<q", size) + numbers
    path.write_bytes(content)


NUMBERS = np.arange(6, dtype="<f4")


def tensor_of(torch, offset=0, shape=(2, 3), strides=(3, 1), **options):
    """Makes a tensor of `NUMBERS`, or a wrong one."""
    pid = options.pop("pid", None) or (
        options.pop("kind", "storage"),
        torch.FloatStorage,
        options.pop("key", "0"),
        "cpu",
        options.pop("size", 6),
    )
    storage = options.pop("storage", Storage(*pid))
    return Call(
        torch._utils._rebuild_tensor_v2,
        storage,
        offset,
        shape,
        strides,
        False,
        collections.OrderedDict(),
        **options,
    )


def test_tensors_are_views_of_their_storage(torch, tmp_path):
    value = {
        "rows": tensor_of(torch),
        "columns": tensor_of(torch, shape=(3, 2), strides=(1, 3)),
        "last": tensor_of(torch, 4, (2,), (1,)),
        "none": tensor_of(torch, 0, (0, 3), (3, 1)),
        "names": {"a set"},
    }
    write_archive(
        tmp_path / "new.pt",
        value,
        {"data/0": NUMBERS.tobytes()},
        {"byteorder": b"little"}.items(),
    )
    write_pickles(tmp_path / "old.pt", value, {"0": (6, NUMBERS.tobytes())})
    for name in ("new.pt", "old.pt"):
        found = read_torch(tmp_path / name)
        rows = NUMBERS.reshape(2, 3)
        np.testing.assert_array_equal(found["rows"], rows)
        np.testing.assert_array_equal(found["columns"], rows.T)
        np.testing.assert_array_equal(found["last"], [4, 5])
        assert found["none"].shape == (0, 3)
        assert found["names"] == {"a set"}


HOSTILE_TENSORS = {
    "other persistent id": {"kind": "module"},
    "no type": {"pid": ("storage", None, "0", "cpu", 6)},
    "size is no number": {"size": 6.0},
    "negative size": {"size": -6},
    "no storage": {"storage": [0.0]},
    "larger storage": {"size": 7},
    "smaller storage": {"size": 5},
    "missing storage": {"key": "1"},
    "ranks differ": {"shape": (6,)},
    "negative stride": {"strides": (-3, 1)},
    "400 digits": {"shape": (10**400, 10**400), "strides": (0, 0)},
    "many axes": {"shape": (1,) * 99, "strides": (0,) * 99},
    "negative offset": {"offset": -1},
    "beyond its storage": {"offset": 1},
    "more than its storage": {"shape": (7, 3), "strides": (0, 1)},
    "a state": {"state": {"a": 1}},
}


@pytest.mark.parametrize("name", HOSTILE_TENSORS)
def test_a_tensor_that_is_none_is_refused(torch, tmp_path, name):
    path = tmp_path / "file.pt"
    value = tensor_of(torch, **HOSTILE_TENSORS[name])
    write_archive(path, {"a": value}, {"data/0": NUMBERS.tobytes()})
    with pytest.raises(ValueError, match=r"^\S*file.pt: "):
        read_torch(path)


@pytest.fixture
def read_pickle(tmp_path):
    """Reads an archive of PyTorch that has this pickle."""

    def read(content, **options):
        path = tmp_path / "file.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", content)
        return read_torch(path, **options)

    return read


def nested_pairs(levels):
    """Pickles a pair of two equal pairs of two equal pairs, and so on."""
    made = b"]"  # a list, then only tuples over it
    return made + b"".join(
        b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(levels)
    )


HOSTILE_PICKLES = {
    "a key": b"}K\x01" + nested_pairs(60)[1:] + b"K\x01s.",
    "members": b"c__builtin__\nset\n]K\x01" + nested_pairs(60)[1:] + b"a\x85R.",
    "a persistent id": nested_pairs(9) + b"Q.",
    "classes": b"".join(b"cargparse\nA%d\n" % i for i in range(1100)) + b".",
    "a frozen set": b"(K\x01" + nested_pairs(60)[1:] + b"\x91.",
    "memory": b"\x8e" + b"\xff" * 7 + b"\x7fa.",
    "an array of bytes": b"\x96" + b"\0" * 4 + b"\xff\0\0\0a.",
    "a class with a state": b"cargparse\nA\n}X\x01\0\0\0aK\x01sb.",
}


@pytest.mark.parametrize("name", HOSTILE_PICKLES)
def test_pickles_of_endless_values_are_refused(read_pickle, name):
    with pytest.raises(ValueError, match=r"^\S*file.pt: ") as error:
        read_pickle(b"\x80\x04" + HOSTILE_PICKLES[name], plain=("argparse",))
    assert len(str(error.value)) < 500


def test_pairs_of_pairs_are_lists_without_a_hash(read_pickle):
    content = b"cargparse\nNamespace\n)\x81}X\x01\0\0\0a"
    content += nested_pairs(60) + b"sb."
    value = read_pickle(content, plain=("argparse",)).state["a"]
    for _ in range(60):
        value, other = value
        assert value is other
    assert value == []


def test_pickled_dictionaries_keep_their_methods(read_pickle):
    state = b"ccollections\nOrderedDict\n)R}X\x05\0\0\0itemsK\x01sb."
    number = b"}r\xf0\xff\xff\xff."  # a value with the number 4 billion
    for content in (state, number):
        assert list(read_pickle(b"\x80\x02" + content).items()) == []


def test_functions_get_no_state(torch, read_pickle):
    rebuild = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
    for state in (b"}", b"N}X\x01\x00\x00\x00aK\x01s\x86"):  # state, slots
        with pytest.raises(ValueError, match="__setstate__"):
            read_pickle(rebuild + state + b"b.")


def test_old_files_that_do_not_fit_are_refused(torch, tmp_path):
    path = tmp_path / "file.pt"
    value = tensor_of(torch)
    two = [value, tensor_of(torch, shape=(1,), strides=(1,), size=5)]
    many = [tensor_of(torch, key=str(i), size=30) for i in range(9)]
    view = ("storage", torch.FloatStorage, "0", "cpu", 6, ("view", 0, 3))
    numbers = NUMBERS.tobytes()
    stored = {"0": (6, numbers)}
    big_endian = {"system": {"little_endian": False}}
    for message, value_, storages, changes in (
        ("neither a zip archive", value, stored, {"magic": 1}),
        ("little-endian", value, stored, big_endian),
        ("not a storage", two, stored, {}),
        ("not a storage of PyTorch", tensor_of(torch, pid=view), stored, {}),
        ("its storages are larger than the file", many, {}, {}),
        ("larger than the file", tensor_of(torch, size=10**6), {}, {}),
        ("list of storages", value, stored, {"keys": ["1"]}),
        ("truncated: storage 0", value, {"0": (5, numbers)}, {}),
        ("truncated: storage 0", value, {"0": (6, numbers[:-1])}, {}),
        ("no attribute 'get'", value, {}, {"system": value}),
    ):
        write_pickles(path, value_, storages, **changes)
        with pytest.raises(ValueError, match=message):
            read_torch(path)


def test_archives_that_do_not_fit_are_refused(torch, tmp_path, monkeypatch):
    path = tmp_path / "file.pt"
    data = {"data/0": NUMBERS.tobytes()}
    write_archive(path, tensor_of(torch), data, {"byteorder": b"big"}.items())
    with pytest.raises(ValueError, match="little-endian"):
        read_torch(path)
    write_archive(path, tensor_of(torch), data)
    intact = path.read_bytes()
    at = intact.index(b"PK\x01\x02")  # the first entry of the directory
    encrypted = intact[: at + 8] + b"\1" + intact[at + 9 :]
    path.write_bytes(encrypted)
    with pytest.raises(ValueError, match="is encrypted"):
        read_torch(path)
    larger = [("data/1", bytes(1000))]
    write_archive(path, tensor_of(torch), data, larger)
    content = path.read_bytes()
    at, size = content.index(b"PK\x01\x02"), struct.pack("<I", 3000)
    # Two sizes, of the bytes in the archive and of the file.
    path.write_bytes(content[: at + 20] + size * 2 + content[at + 28 :])
    with pytest.raises(ValueError, match="Received: 4,024 bytes of files in"):
        read_torch(path)
    path.write_bytes(intact)
    monkeypatch.setattr(torch_pickle, "MAX_PICKLE", 10)
    with pytest.raises(ValueError, match="at most 10 bytes of data.pkl"):
        read_torch(path)


def test_names_of_version_2_and_of_modules_below_are_known(read_pickle):
    def read(content):
        return read_pickle(b"\x80\x02" + content, plain=("mine",))

    assert read(b"c__builtin__\nset\n]\x85R.") == set()
    for name in (b"builtins\nint", b"mine.below\nKind"):
        assert issubclass(read(b"c" + name + b"\n."), Plain)
    for name in (b"miner\nKind", b"builtins\neval"):
        with pytest.raises(ValueError, match="would run code"):
            read(b"c" + name + b"\n.")


# safetensors ------------------------------------------------------------------


def entry(**changes):
    values = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {**values, **changes}


# The library checks them, but for the kinds of numbers that are read.
HEADERS = {
    "invalid offset for tensor `b`": {
        "a": entry(),
        "b": entry(data_offsets=[4, 12]),
    },
    "file not fully covered": {"a": entry()},
    "invalid JSON in header": b"[" * 100_000,
    "invalid value: integer `-1`": {"a": entry(shape=[-1, -2])},
    "invalid shape, data type, or": {"a": entry(shape=[3])},
    "overflow": {"a": entry(shape=[2**62, 2**62])},
    "Received: F8_E4M3": {
        "a": entry(dtype="F8_E4M3", shape=[12], data_offsets=[0, 12])
    },
}


@pytest.mark.parametrize("message", HEADERS)
def test_headers_that_do_not_fit_are_refused(tmp_path, message):
    header = HEADERS[message]
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 12)
    with pytest.raises(ValueError, match=f"{path}: truncated or.*{message}"):
        read_safetensors(path)


def test_tensors_of_every_float_are_read(tmp_path):
    """The bytes are written by hand, as the format's description has them."""
    header = json.dumps(
        {
            "b": entry(dtype="BF16", shape=[2, 1], data_offsets=[8, 12]),
            "a": entry(),
            "none": entry(shape=[], data_offsets=[12, 16]),
            "__metadata__": {"format": "pt"},
        }
    ).encode()
    path = tmp_path / "model.safetensors"
    numbers = struct.pack("<2f", 1.5, -2.0) + b"\x80\x3f\x00\xc0"
    numbers += struct.pack("<f", 4.0)
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    found = read_safetensors(path)
    assert {n: a.astype("f4").tolist() for n, a in found.items()} == {
        "a": [1.5, -2.0],
        "b": [[1.0], [-2.0]],
        "none": 4.0,
    }


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match=r"needs yaml: pip .*\[import\]"):
        yaml_files.read_strings(tmp_path / "x")


# The others -------------------------------------------------------------------


def device(path):
    path.symlink_to("/dev/zero")


def directory(path):
    path.mkdir()


def sparse(path):
    path.touch()
    os.truncate(path, (16 << 30) + 1)


READERS = (
    files.read_json,
    files.read_text,
    read_npz,
    read_safetensors,
    read_torch,
    read_description,
    yaml_files.read_options,
    yaml_files.read_strings,
)


@pytest.mark.parametrize("make", [os.mkfifo, device, directory, sparse])
def test_what_is_no_file_is_not_opened(tmp_path, make):
    make(tmp_path / "file")
    for read in READERS:
        with pytest.raises(ValueError, match="expected (a file|at most)"):
            read(tmp_path / "file")
    assert not holds_array(tmp_path / "file", "a")


def test_values_in_messages_are_short():
    assert files.shown(10**400) == "a number of 1329 bits"
    assert files.shown("a\nb") == "'a\\nb'"
    pair = (1, 1)
    for _ in range(100):
        pair = (pair, pair)
    for value in (pair, [pair], 10**5000, [10**5000], "a" * 10**6, {"a": pair}):
        assert len(files.shown(value)) < 200_000


def test_numbers_that_are_too_large_are_refused():
    large = {"a": 10**400, "b": -(10**400), "c": 10**39, "d": 2**63}
    options = Options(large, "file")
    for name, default in (("a", 1), ("b", 1), ("a", 1.0), ("c", 1.0), ("d", 1)):
        with pytest.raises(ValueError, match=f"^file: {name}=.* is not within"):
            options.get(name, default)
    options = Options({"a": 2**63 - 1, "b": 3}, "file")
    assert options.get("a", 1) == 2**63 - 1
    assert isinstance(options.get("b", 1.0), float)


def test_sections_are_options():
    options = Options({"a": {"b": 2}, "c": 5}, "file")
    assert options.section("a").need("b", int) == 2
    assert "b" not in options.section("none")
    with pytest.raises(ValueError, match="file: a: b=2 is not text"):
        options.section("a").need("b", str)
    with pytest.raises(ValueError, match="file: c=5 is not options by name"):
        options.section("c")


@pytest.mark.parametrize("shape", [(), (3,), (3, 0), (0, 3), (1, 2, 3)])
def test_a_matrix_has_two_axes(shape):
    tensors = Tensors({"a": np.zeros(shape)}, "file")
    with pytest.raises(ValueError, match="file: expected a matrix a. Received"):
        tensors.matrix_shape("a")
    assert Tensors({"a": np.zeros((2, 3))}, "").matrix_shape("a") == (2, 3)


SIDES = [vocabularies.Side(["a"] * 9, list(range(9)), b"", None)] * 2


def test_layers_are_not_without_number():
    fields = {"d_model": 8, "num_heads": 2}
    config = make_config("file", SIDES, num_layers=256, **fields)
    assert config.num_layers == 256
    for name in ("num_layers", "num_decoder_layers"):
        with pytest.raises(ValueError, match="file: expected at most 256 lay"):
            make_config("file", SIDES, **fields, **{name: 257})


def test_tensors_are_taken_once_as_float32():
    arrays = {"a": np.ones(2, np.float16), "b": np.ones(2, np.int32)}
    arrays["c"] = np.zeros(2, "f4,f4")
    tensors = Tensors(arrays, "file")
    assert tensors.take("a", (2,)).dtype == np.float32
    with pytest.raises(ValueError, match="file: no tensor a"):
        tensors.take("a", (2,))
    for name in ("b", "c"):
        with pytest.raises(ValueError, match=f"expected floats in {name}"):
            tensors.take(name, (2,))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pre_norm": True, "attention_bias": True, "num_decoder_layers": 1},
        {"positions": "learned", "max_positions": 9, "embedding_norm": True},
        {"source_vocab_size": 9, "logits_bias": True},
        {"share_embeddings": "none", "logits_bias": True, "pre_norm": True},
        {"positions": "relative", "max_relative_position": 3},
    ],
)
def test_shapes_of_weights_are_those_of_the_model(changes):
    sizes = {"d_model": 8, "d_ff": 12, "num_heads": 2, "num_layers": 2}
    config = kt.TransformerConfig(vocab_size=11, **sizes, **changes)
    expected = named_weights(kt.Transformer(config))
    assert {
        path.replace("/", "."): shape
        for path, shape in weight_shapes(config).items()
    } == {name: tuple(weight.shape) for name, weight in expected.items()}


def test_weights_must_be_those_of_the_model():
    config = kt.TransformerConfig(7, d_model=8, d_ff=12, num_layers=1)
    path = "encoder/layer_0/self_attention/query/kernel"

    def taken(**changes):
        weights = {
            path: np.full(shape, 0.5, np.float16)
            for path, shape in weight_shapes(config).items()
        }
        weights |= changes
        weights = {p: w for p, w in weights.items() if w is not None}
        imported = Imported(config, weights, None, kt.DecodingConfig(), 9)
        found = dict(take_arrays(imported))
        assert not imported.weights
        return found[path.replace("/", ".")]

    array = taken()
    assert array.dtype == np.float32 and (array == 0.5).all()
    for changes, message in (
        ({path: None}, f"the weights of the model. Received: {path}"),
        ({"other": np.zeros(2)}, "Received: other"),
        ({path: np.zeros((8, 9))}, r"the shape \(8, 8\)"),
        ({path: np.full((8, 8), np.inf)}, "query.kernel: expected finite"),
    ):
        with pytest.raises(ValueError, match=message):
            taken(**changes)


def test_a_work_directory_is_new_or_empty(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert check_new(tmp_path / "a/b") == tmp_path / "a/b"
    for path in (tmp_path / "a", tmp_path / "file"):
        with pytest.raises(ValueError, match="does not exist yet"):
            check_new(path)


def test_npz_keeps_the_order_of_axes(tmp_path):
    path = tmp_path / "model.npz"
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, c=array, f=np.asfortranarray(array))
    for found in read_npz(path).values():
        np.testing.assert_array_equal(found, array)
    assert holds_array(path, "c") and not holds_array(path, "d")
    path.write_bytes(b"no archive")
    assert not holds_array(path, "c")


def test_npz_headers_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    content = (tmp_path / "a.npy").read_bytes()
    longer = b"(3,), }" + b" " * 12, b"(99999999999999,), }"
    for changed, message in (
        (content[:-8], "expected 24 bytes got 16"),
        (content.replace(b"(3,)", b"(9,)"), "expected 72 bytes got 24"),
        (content.replace(b"\x01\x00", b"\x04\x00", 1), "format version"),
        (content.replace(b"<f8", b"|O8"), "allow_pickle=False"),
        (content.replace(b"{'descr': '<f8'", b"{'descr': [[[[["), path),
        (content[:10] + b"(" * 118 + content[128:], path),
        (content[:8] + b"\xff\xff" + b"[" * 65535, path),
        (content.replace(*longer), path),
        (b"text", "expected tensors by name"),
    ):
        assert changed != content
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", changed)
        with pytest.raises(ValueError, match=str(message)):
            read_npz(path)


def test_options_are_of_their_types():
    options = Options({"heads": 4, "flag": 1, "empty": None}, "file", "--")
    assert options.get("heads", 8) == 4 and options.get("none", 8) == 8
    assert options.get("empty", 8) == 8 and "empty" not in options
    with pytest.raises(ValueError, match="file: --flag=1 cannot be imported"):
        options.check({"flag": (False, True)})
    options.check({"none": (False,)})
    with pytest.raises(ValueError, match="--none=True cannot be imported"):
        Options({"none": True}, "file", "--").check({"none": (False,)})


def nested_mappings(first, form):
    """Makes ten values of ten values each, and so on, 29 times."""
    levels = (
        f"a{i}: &a{i} " + form.format(", ".join([f"*a{i - 1}"] * 10))
        for i in range(1, 30)
    )
    return "\n".join([f"a0: &a0 {first}", *levels]).encode()


def test_yaml_is_options_or_strings(tmp_path, monkeypatch):
    monkeypatch.setattr(yaml_files, "MAX_VALUES", 1000)
    path = tmp_path / "file.yml"
    path.write_text("yes: 1\n2: 0x10\n")
    assert yaml_files.read_strings(path) == {"yes": "1", "2": "0x10"}
    for text, expected in (
        ("yes: 1\n2: 0x10\n", {True: 1, 2: 16}),
        (
            "a: [1:30, -1:30.5, 010, 0, 1_0, -0o7, 0.5, 08]\nb: 2:0",
            {
                "a": ["1:30", "-1:30.5", "010", 0, 10, "-0o7", 0.5, "08"],
                "b": "2:0",
            },
        ),
        (
            "a: &a {b: 1}\nc: *a\nd: {<<: *a, e: 2}\n",
            {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}},
        ),
        ("a: [" + "1," * 900 + "]", {"a": [1] * 900}),
    ):
        path.write_text(text)
        assert yaml_files.read_options(path) == expected


EITHER = "not YAML: .* nesting depth|expected"  # by the version of libyaml
REFUSED_YAML = {
    ("read_strings", "expected strings by strings"): [
        b"a: {b: c}\n",
        *(b"a: [", b"a: *b", b"[a, b]", b"a: b\n---\na: b", b"", b"[" * 500),
    ],
    ("read_strings", f"{EITHER} strings by strings"): [b"[" * 100_000],
    ("read_strings", "not YAML"): [b"{a: b"],
    ("read_strings", "'a' occurs twice"): [b"a: b\nc: b\na: d"],
    ("read_options", "not UTF-8"): [b"\xff\xfe\x00"],
    ("read_options", "expected options by name. Received: list"): [b"- 1\n"],
    ("read_options", "not YAML"): [
        b"!!python/object/apply:os.system [ls]",
        *(b"a: !!bool x", b"a: !!int ''", b"a: !!timestamp x"),
        *(b"a: " + b"1" * 5000, b"a: *b"),
    ],
    ("read_options", "'a' occurs twice"): [b"a: 1\nb: 2\na: 1"],
    ("read_options", "'b' occurs twice"): [b"a: [{b: 1, b: 2}]"],
    ("read_options", "at most 32 levels"): [b"[" * 500],
    ("read_options", f"{EITHER} at most 32 levels"): [
        *(b"[" * 100_000, b"- " * 100_000)
    ],
    ("read_options", "contains itself"): [b"a: &b [*b]"],
    ("read_options", "at most 100000 values"): [
        b"a: [" + b"1," * 100_000 + b"]",
        nested_mappings("[1, 2]", "[{}]"),
        nested_mappings("{b: 1}", "{{<<: [{}]}}"),
    ],
    ("read_options", "at most 10000 characters"): [b"a: " + b"b" * 10_001],
}


@pytest.mark.parametrize("name, message", REFUSED_YAML)
def test_other_yaml_is_refused(tmp_path, name, message):
    path = tmp_path / "file.yml"
    for content in REFUSED_YAML[name, message]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            getattr(yaml_files, name)(path)


@pytest.fixture(scope="module")
def model_bytes():
    pairs = phrasebook.read_split("train", 300)
    return Tokenizer.train((line for p in pairs for line in p), 90).model_bytes


def test_tables_that_do_not_fit_are_refused(model_bytes, monkeypatch):
    table = ["<pad>", "<s>", "</s>", "<unk>", "a", "b"]
    for content, names, message in (
        (b"", table, "expected a SentencePiece model with pieces"),
        (b"none", table, "not a SentencePiece model"),
        (model_bytes, [*table, "a"], "its table has a subword twice"),
    ):
        with pytest.raises(ValueError, match=f"spm: {message}"):
            make_tokenizer(content, names, "spm")
    monkeypatch.setattr(vocabularies, "MAX_PIECES", 89)
    with pytest.raises(ValueError, match="at most 89 pieces. Received: 90"):
        make_tokenizer(model_bytes, table, "spm")


def test_start_has_a_name_of_its_own():
    assert start_name(["a"]) == "<s>"
    assert start_name(["<s>", "<start>"]) == "<start of output>"


def test_a_source_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="expected a directory that holds"):
        find_format(tmp_path / "none")
    with pytest.raises(ValueError, match="one of the formats huggingface"):
        find_format(tmp_path)
    for argv in (["--source=a"], ["--workdir=a"]):
        message = fails(import_model.main, argv, capsys)
        assert "=DIR. Received: no " in message
