"""Readers of other systems' files: what they hold, and what is refused."""

import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.tokenization import Tokenizer
from trainers import import_model, phrasebook
from trainers.importers import find_importer, torch_pickle, yaml_files
from trainers.importers.imported import assign, check_new, new_directory
from trainers.importers.keras_h5 import read_h5
from trainers.importers.npz import holds_array, read_npz
from trainers.importers.options import Options
from trainers.importers.safetensors import read_safetensors
from trainers.importers.tensors import Tensors
from trainers.importers.torch_pickle import Plain, read_torch
from trainers.importers.vocabularies import make_tokenizer, start_name

# PyTorch --------------------------------------------------------------------


@pytest.fixture
def torch(monkeypatch):
    """Names that a pickle of PyTorch has: nothing of it is called here."""
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
    """What is pickled as a persistent id."""

    def __init__(self, *pid):
        self.pid = pid


class Call:
    """What is pickled as a call, with a state that the result is given."""

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
    """As torch.save since 1.6."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled(value))
        for key, content in {**storages, **dict(extra)}.items():
            archive.writestr(f"a/{key}", content)


def write_pickles(path, value, storages, **changes):
    """As torch.save before 1.6."""
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
    """A tensor of `NUMBERS`, or one that is none."""
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
    "negative stride": {"offset": 3, "strides": (-3, 1)},
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


def test_views_of_storages_are_refused(torch, tmp_path):
    path = tmp_path / "file.pt"
    pid = ("storage", torch.FloatStorage, "0", "cpu", 6, ("view", 0, 3))
    write_pickles(
        path, tensor_of(torch, pid=pid), {"0": (6, NUMBERS.tobytes())}
    )
    with pytest.raises(ValueError, match="not a storage of PyTorch"):
        read_torch(path)


def test_functions_get_no_state(torch, tmp_path):
    path = tmp_path / "file.pt"
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n"
    for state in (b"}", b"N}X\x01\x00\x00\x00aK\x01s\x86"):  # state, slots
        content = b"\x80\x02" + rebuild + state + b"b."
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", content)
        with pytest.raises(ValueError, match="a function with a state"):
            read_torch(path)


def test_old_files_that_do_not_fit_are_refused(torch, tmp_path):
    path = tmp_path / "file.pt"
    value = tensor_of(torch)
    two = [
        tensor_of(torch),
        tensor_of(torch, shape=(1,), strides=(1,), size=5),
    ]
    many = [tensor_of(torch, key=str(i), size=30) for i in range(9)]
    numbers = NUMBERS.tobytes()
    for message, value_, storages, changes in (
        ("neither a zip archive", value, {"0": (6, numbers)}, {"magic": 1}),
        (
            "little-endian",
            value,
            {"0": (6, numbers)},
            {"system": {"little_endian": False}},
        ),
        ("storage 0 has two sizes", two, {"0": (6, numbers)}, {}),
        ("its storages are larger than the file", many, {}, {}),
        ("larger than the file", tensor_of(torch, size=10**6), {}, {}),
        ("list of storages", value, {"0": (6, numbers)}, {"keys": ["1"]}),
        ("truncated: storage 0", value, {"0": (5, numbers)}, {}),
        ("truncated: storage 0", value, {"0": (6, numbers[:-1])}, {}),
        ("a storage where there is none", value, {}, {"system": value}),
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
    with warnings.catch_warnings(action="ignore"):  # zipfile's own
        write_archive(path, tensor_of(torch), data)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("a/data/0", NUMBERS.tobytes())
    with pytest.raises(ValueError, match="files twice"):
        read_torch(path)
    write_archive(path, tensor_of(torch), data)
    monkeypatch.setattr(torch_pickle, "MOST_PICKLE", 10)
    with pytest.raises(ValueError, match="at most 10 bytes of data.pkl"):
        read_torch(path)


def test_names_of_version_2_and_of_modules_below_are_known(tmp_path):
    path = tmp_path / "file.pt"
    for content, is_read in (
        (b"c__builtin__\nset\n]\x85R.", True),
        (b"cbuiltins\nint\n.", True),
        (b"cmine.below\nKind\n.", True),
        (b"cminer\nKind\n.", False),
        (b"cbuiltins\neval\n.", False),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02" + content)
        if is_read:
            found = read_torch(path, plain=("mine",))
            assert found == set() or issubclass(found, Plain)
        else:
            with pytest.raises(ValueError, match="would run code"):
                read_torch(path, plain=("mine",))


# safetensors ------------------------------------------------------------------


def entry(**changes):
    values = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {**values, **changes}


HEADERS = {
    "a gap": ({"a": entry(data_offsets=[4, 12])}, "expected a at byte 0"),
    "an overlap": (
        {"a": entry(), "b": entry(data_offsets=[4, 12])},
        "expected b at byte 8",
    ),
    "too long": ({"a": entry(shape=[4], data_offsets=[0, 16])}, "12 bytes"),
    "names twice": (b'{"a": 1, "a": 2}', "a name occurs twice"),
    "a list": ([], "is no JSON object"),
    "nested": (b"[" * 100_000, "not JSON"),
    "negative": ({"a": entry(shape=[-1, -2])}, "expected for a a dtype"),
    "no numbers": ({"a": entry(shape=[2.0])}, "expected for a a dtype"),
    "other bytes": ({"a": entry(shape=[3])}, "expected for a a dtype"),
    "no dtype": ({"a": entry(dtype="F8")}, "expected for a a dtype"),
    "offsets": ({"a": entry(data_offsets=[0, 8, 9])}, "expected for a a dtype"),
    "no entry": ({"a": 3}, "expected for a a dtype"),
    "no shape": ({"a": entry(shape=2)}, "expected for a a dtype"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_do_not_fit_are_refused(tmp_path, name):
    header, message = HEADERS[name]
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 12)
    with pytest.raises(ValueError, match=message):
        read_safetensors(path)


# The others -------------------------------------------------------------------


def test_tensors_are_taken_once_as_float32():
    arrays = {"a": np.ones(2, np.float16), "b": np.ones(2, np.int32)}
    tensors = Tensors(arrays, "file")
    assert tensors.take("a", (2,)).dtype == np.float32
    with pytest.raises(ValueError, match="file: no tensor a"):
        tensors.take("a", (2,))
    with pytest.raises(ValueError, match="expected floats in b"):
        tensors.take("b", (2,))


def test_weights_must_be_those_of_the_model():
    def weights():
        return {"a.b": tf.Variable([0.0, 0.0]), "c": tf.Variable(0.0)}

    found = weights()
    assign(found, {"a/b": np.array([1.0, 2.0]), "c": np.array(3.0)})
    assert found["a.b"].numpy().tolist() == [1.0, 2.0] and found["c"] == 3.0
    for arrays, message in (
        ({"a/b": np.zeros(2)}, "lacks c"),
        ({"a/b": np.zeros(2), "c": np.zeros(()), "d": 0.0}, "has more .* d"),
        ({"a/b": np.zeros((2, 1)), "c": np.zeros(())}, "a.b: expected the sh"),
        ({"a/b": np.zeros(2), "c": np.array(np.inf)}, "c is not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            assign(weights(), arrays)


def test_a_directory_appears_whole_with_usual_permissions(tmp_path):
    with new_directory(tmp_path / "a/b") as directory:
        (directory / "file").touch()
        assert os.listdir(tmp_path / "a") == [directory.name]
    usual = tmp_path / "usual"
    usual.mkdir()
    assert (tmp_path / "a/b").stat().st_mode == usual.stat().st_mode
    assert os.listdir(tmp_path / "a") == ["b"]
    assert check_new(usual) == usual  # it is empty
    for path in (tmp_path / "a", tmp_path / "a/b/file"):
        with pytest.raises(ValueError, match="does not exist yet"):
            check_new(path)


def test_hdf5_is_refused_if_it_is_larger_than_its_file(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.zeros(2000), compression="gzip")
    with pytest.raises(ValueError, match="not compressed"):
        read_h5(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (10**8,), "f4")  # nothing is written of it
    with pytest.raises(ValueError, match="a is larger than the file"):
        read_h5(path)
    with pytest.raises(FileNotFoundError):
        read_h5(tmp_path / "none.h5")


def test_npz_keeps_the_order_of_axes(tmp_path):
    path = tmp_path / "model.npz"
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, c=array, f=np.asfortranarray(array))
    found = read_npz(path)
    np.testing.assert_array_equal(found["c"], array)
    np.testing.assert_array_equal(found["f"], array)
    assert holds_array(path, "c") and not holds_array(path, "d")
    path.write_bytes(b"no archive")
    assert not holds_array(path, "c")


def test_npz_headers_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    content = (tmp_path / "a.npy").read_bytes()
    for changed, message in (
        (content[:-8], "expected 24 bytes. Received: 16"),
        (content.replace(b"\x01\x00", b"\x03\x00", 1), "unknown version"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", changed)
        with pytest.raises(ValueError, match=message):
            read_npz(path)


def test_options_are_of_their_types():
    options = Options({"heads": 4, "flag": 1, "empty": None}, "file", "--")
    assert options.get("heads", 8) == 4 and options.get("none", 8) == 8
    assert options.get("empty", 8) == 8 and "empty" not in options
    with pytest.raises(ValueError, match="file: --flag=1 cannot be imported"):
        options.check({"flag": (False, True)})
    options.check({"none": (False,)})
    with pytest.raises(ValueError, match="--none=None cannot|--none=True"):
        Options({"none": True}, "file", "--").check({"none": (False,)})


def test_yaml_is_options_or_strings(tmp_path, monkeypatch):
    path = tmp_path / "file.yml"
    path.write_text("yes: 1\n2: 0x10\n")
    assert yaml_files.read_strings(path) == {"yes": "1", "2": "0x10"}
    assert yaml_files.read_options(path) == {True: 1, 2: 16}
    options, strings = yaml_files.read_options, yaml_files.read_strings
    for read, content, message in (
        (options, b"\xff\xfe\x00", "not UTF-8"),
        (options, b"- 1\n- 2\n", "expected options by name. Received: list"),
        (strings, b"a: {b: c}\n", "expected strings by strings"),
        (strings, b"a: [", "not YAML"),
        (options, b"!!python/object/apply:os.system [ls]", "not YAML"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(path)
    monkeypatch.setattr(yaml_files, "MOST_BYTES", 2)
    with pytest.raises(ValueError, match="at most 2 bytes"):
        yaml_files.read_options(path)


@pytest.fixture(scope="module")
def model_bytes():
    pairs = phrasebook.make_split("train", 300)
    return Tokenizer.train((line for p in pairs for line in p), 90).model_bytes


def test_tables_that_do_not_fit_are_refused(model_bytes):
    table = ["<pad>", "<s>", "</s>", "<unk>", "a", "b"]
    for content, names, message in (
        (b"", table, "a SentencePiece model without pieces"),
        (b"none", table, "not a SentencePiece model"),
        (model_bytes, [*table, "a"], "its table has a subword twice"),
    ):
        with pytest.raises(ValueError, match=f"spm: {message}"):
            make_tokenizer(content, names, "spm", False)


def test_start_has_a_name_of_its_own():
    assert start_name(["a"]) == "<s>"
    assert start_name(["<s>", "<start>"]) == "<start of output>"


def test_a_source_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="expected a directory that holds"):
        find_importer(tmp_path / "none")
    with pytest.raises(ValueError, match="one of the formats huggingface"):
        find_importer(tmp_path)
    for argv in (["--source=a"], ["--workdir=a"]):
        with pytest.raises(SystemExit) as status:
            import_model.main(argv)
        assert status.value.code == 2
        assert "=DIR. Received: no " in capsys.readouterr().err
