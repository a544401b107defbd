"""Reads files of `torch.save` without PyTorch, and without running their code.

A pickle is a program: it names functions and classes, which Python's own
unpickler would call. This one knows only the few names that make tensors, and
calls its own classes instead. Any other name is refused. A caller may admit
classes of some modules as `Plain` data: their objects are read as names and
values, and the modules are not imported.

There are two formats: the zip archive of PyTorch 1.6 and later, with
`archive/data.pkl` and a file for each storage, and the older sequence of
pickles.
"""

import functools
import io
import pathlib
import pickle
import typing
import zipfile
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from keras_transformer.base.foreign_files import check_file, named_errors, shown
from keras_transformer.base.refusals import expect

STORAGES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
# Types that plain data may name, but not call.
TYPES = ("bool", "bytes", "dict", "float", "int", "list", "str", "tuple")
DATA = "data.pkl"  # in an archive: everything but the numbers
MAX_PICKLE = 8 << 20  # bytes
MAX_CLASSES = 1000
# The older format begins with these integers, each in a pickle of its own.
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class Plain:
    """An object from a pickle whose class is not imported.

    `kind` is the module and name of the class. `state` is a dictionary of the
    object's attributes, unless the class pickles itself in another way.
    """

    kind = ""

    def __new__(cls, *_, **__):
        plain = super().__new__(cls)
        plain.state = {}
        return plain

    def __setstate__(self, state: typing.Any) -> None:
        self.state = state

    def _ignore(self, *_):
        """Does nothing: the items of a container are not kept."""

    __setitem__ = append = extend = _ignore


class _Storage(typing.NamedTuple):
    """A buffer of numbers. Tensors are views of it."""

    dtype: np.dtype
    content: bytes | bytearray


# Classes, not functions, replace PyTorch's functions: a pickle may give a
# function new attributes, but not a class.
class _Tensor(np.ndarray):
    """A view of a storage. Replaces `torch._utils._rebuild_tensor_v2`."""

    def __new__(cls, storage, offset, shape, strides, *_):
        if not isinstance(storage, _Storage):
            raise ValueError("a tensor without a storage")
        dtype, content = storage
        strides = [stride * dtype.itemsize for stride in strides]
        # NumPy refuses a view that leaves its buffer.
        tensor = super().__new__(
            cls, shape, dtype, content, offset * dtype.itemsize, strides
        )
        size = len(content)
        limit = f"a tensor of at most {size} bytes, as its storage"
        expect(tensor.nbytes <= size, limit, f"the shape {shown(shape)}")
        return tensor

    def __setstate__(self, state: typing.Any) -> None:
        raise ValueError("a tensor with a state")


class _Parameter:
    """A parameter's tensor. Replaces `torch._utils._rebuild_parameter`."""

    def __new__(cls, tensor, *_):
        return tensor


class _Dictionary(dict):
    """An `OrderedDict` whose methods a pickle cannot replace."""

    def __setstate__(self, state: typing.Any) -> None:
        """Ignores `_metadata`, which PyTorch adds to a state dict."""


KNOWN = {
    ("builtins", "set"): set,
    ("collections", "OrderedDict"): _Dictionary,
    ("torch._utils", "_rebuild_tensor"): _Tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("torch._utils", "_rebuild_parameter"): _Parameter,
}


def _load_list(count: int) -> Callable[[typing.Any], None]:
    """Makes an operation that packs the last `count` stack items in a list."""

    def load(unpickler: "_Unpickler") -> None:
        unpickler.stack[-count:] = [unpickler.stack[-count:]]

    return load


# The unpickler in Python, not the one in C: its operations can be replaced, and
# its memo is a dictionary, not an array as long as the largest index in it.
class _Unpickler(pickle._Unpickler):
    """An unpickler that builds only tensors and plain data.

    Tuples are read as lists, which have no hash: hashing a pair of two equal
    pairs, each of two equal pairs, and so on, would take years.

    `read_storage` takes the key, dtype and number of elements of a storage.
    """

    stack: list[typing.Any]
    dispatch = pickle._Unpickler.dispatch | {
        pickle.TUPLE[0]: pickle._Unpickler.dispatch[pickle.LIST[0]],
        pickle.TUPLE1[0]: _load_list(1),
        pickle.TUPLE2[0]: _load_list(2),
        pickle.TUPLE3[0]: _load_list(3),
    }

    def __init__(
        self,
        file: typing.BinaryIO,
        read_storage: Callable[[str, np.dtype, int], bytes | bytearray],
        plain: Sequence[str],
    ):
        super().__init__(file, encoding="utf-8")
        self._read_storage = read_storage
        self._plain = plain
        self._classes: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> typing.Any:
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        if module == "torch" and name in STORAGES:
            return name
        is_type = module == "builtins" and name in TYPES
        if is_type or module.partition(".")[0] in self._plain:
            kind = f"{module}.{name}"
            if kind not in self._classes:
                is_allowed = len(self._classes) < MAX_CLASSES
                expect(is_allowed, f"at most {MAX_CLASSES} classes")
                self._classes[kind] = type(name, (Plain,), {"kind": kind})
            return self._classes[kind]
        raise ValueError(
            "its pickle would run code: expected tensors and plain data only."
            f" Received: {module}.{name}"
        )

    def persistent_load(self, pid: typing.Any) -> _Storage:
        match pid:
            case ["storage", kind, str(key), _, int(size), *view] if (
                kind in STORAGES and view in ([], [None])
            ):
                dtype = STORAGES[kind]
                content = self._read_storage(key, dtype, size)
                if len(content) == size * dtype.itemsize:
                    return _Storage(dtype, content)
        raise ValueError(f"not a storage of PyTorch: {shown(pid)}")


def read_torch(path: pathlib.Path, plain: Sequence[str] = ()) -> typing.Any:
    """Reads a file of `torch.save` as NumPy arrays in plain containers.

    Classes of the modules in `plain`, such as "argparse", are read as `Plain`
    data and not imported. Raises ValueError for other classes and functions,
    and for corrupt files.
    """
    check_file(path)
    read = _read_archive if zipfile.is_zipfile(path) else _read_pickles
    # A pickle that misuses the classes above may raise nearly any error, but
    # runs no code.
    with named_errors(path):
        return read(path, plain)


def _read_archive(path: pathlib.Path, plain: Sequence[str]) -> typing.Any:
    """Reads the zip format.

    Refuses compressed files: `torch.save` does not write them, and they could
    be zip bombs.
    """
    with zipfile.ZipFile(path) as archive:
        files = archive.infolist()
        total = sum(file.file_size for file in files)
        size = path.stat().st_size
        if total > size or any(file.compress_type for file in files):
            raise ValueError(
                "expected an archive without compression, as torch.save writes"
                f" it. Received: {total:,} bytes of files in {size:,}"
            )
        names = archive.namelist()
        folder = min(names, default="").partition("/")[0]
        order = f"{folder}/byteorder"
        if order in names and archive.read(order).strip() != b"little":
            raise ValueError("expected little-endian numbers")
        size = archive.getinfo(f"{folder}/{DATA}").file_size
        expect(size <= MAX_PICKLE, f"at most {MAX_PICKLE} bytes of {DATA}")

        @functools.cache
        def read_storage(key: str, *_: typing.Any) -> bytes:
            return archive.read(f"{folder}/data/{key}")

        data = io.BytesIO(archive.read(f"{folder}/{DATA}"))
        return _Unpickler(data, read_storage, plain).load()


def _read_pickles(path: pathlib.Path, plain: Sequence[str]) -> typing.Any:
    """Reads the format from before PyTorch 1.6: pickles, then the numbers."""
    storages: dict[str, bytearray] = {}
    itemsizes: dict[str, int] = {}
    limit = path.stat().st_size

    def read_storage(key: str, dtype: np.dtype, size: int) -> bytearray:
        itemsizes[key] = dtype.itemsize
        if key not in storages:
            num_bytes = size * dtype.itemsize
            if num_bytes > limit - sum(map(len, storages.values())):
                raise ValueError("its storages are larger than the file")
            storages[key] = bytearray(num_bytes)  # filled below
        return storages[key]

    with path.open("rb") as file:
        data = io.BytesIO(file.read(MAX_PICKLE))

        def unpickle():
            return _Unpickler(data, read_storage, plain).load()

        if [unpickle(), unpickle()] != [MAGIC, PROTOCOL]:
            raise ValueError("neither a zip archive nor pickles of torch.save")
        expect(unpickle().get("little_endian"), "little-endian numbers")
        found = unpickle()
        keys = unpickle()
        if sorted(keys) != sorted(storages):
            raise ValueError("its list of storages does not match its tensors")
        file.seek(data.tell())
        for key in keys:
            size = itemsizes[key] * int.from_bytes(file.read(8), "little")
            content = storages[key]
            if size != len(content) or file.readinto(content) < size:
                raise ValueError(f"truncated: storage {key}")
    return found
