"""Reads files of `torch.save` without PyTorch, and executes no code of them.

A pickle is a program: it names functions and classes, which Python's own
unpickler would call. This one knows by name the few that make tensors, and has
its own in their place; whatever else a pickle names is refused before it is
used. Classes of some modules may be admitted as `Plain` data: their objects
become names and values, and nothing of those modules is imported.

Two formats: the zip archive of PyTorch 1.6 and later (`archive/data.pkl`, and
a file for each storage), and the older sequence of pickles.
"""

import io
import math
import os
import pathlib
import pickle
import typing
import zipfile
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from trainers.importers.files import check_file, shown

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
# Types that plain data may name, but not use.
TYPES = ("bool", "bytes", "dict", "float", "int", "list", "str", "tuple")
DATA = "data.pkl"  # in an archive: everything but the numbers
MAX_PICKLE = 8 << 20  # bytes
MAX_ENTRIES = 100_000  # files of an archive
MAX_CLASSES = 1000
MAX_ITEMS = 1000  # of a tuple, including the tuples in it
MAX_AXES = 32
# The older format begins with these integers, each in a pickle of its own.
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class _StorageType(typing.NamedTuple):
    """Stands for `torch.FloatStorage` and the like."""

    dtype: np.dtype


class Plain:
    """An object of a class that is not imported, as its pickle describes it.

    Attributes:
        kind: Module and name of the class.
        arguments: The arguments of the call that would have made it.
        state: Its attributes: a dictionary, unless the class has a format of
            its own.
    """

    kind = ""

    def __new__(cls, *arguments, **names):
        plain = super().__new__(cls)
        plain.arguments = arguments
        plain.state = names
        return plain

    def __init__(self, *arguments, **names):
        """Does nothing: `__new__` keeps the arguments."""

    def __setstate__(self, state):
        self.state = state

    def __hash__(self):
        return id(self)

    # An enumeration or a container of another module may be filled.
    def __setitem__(self, key, value):
        self._contents()[key] = value

    def append(self, value):
        """Adds an item, as the pickle of a list does."""
        contents = self._contents()
        contents[len(contents)] = value

    def extend(self, values):
        """Adds items, as the pickle of a list does."""
        for value in values:
            self.append(value)

    def _contents(self):
        return self.__dict__.setdefault("contents", {})


class _Storage(typing.NamedTuple):
    """Numbers that tensors are views of."""

    numbers: np.ndarray


class _Tensor(np.ndarray):
    """An array that a pickle cannot give another state."""

    def __setstate__(self, state):
        raise ValueError("a tensor with a state")


class _Dictionary(dict):
    """An `OrderedDict` that a pickle cannot give other methods."""

    def __setstate__(self, state):
        """Ignores `_metadata`, which PyTorch adds to weights by name."""


# Python's own unpickler, not its twin in C: it keeps the values that a pickle
# numbers in a dictionary, not in an array as long as the largest number, and
# its operations can be extended.
class _Unpickler(pickle._Unpickler):
    """Builds tensors and plain data, and nothing else.

    A tuple of two equal tuples, each of two equal tuples, and so on, is short
    in a pickle, but its hash would take years. So the items of tuples are
    counted, including the tuples in them.

    Args:
        file: Binary file that holds the pickle.
        read_storage: Function of dtype, key and number of elements.
        plain: Modules whose classes become `Plain`.
    """

    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, file, read_storage, plain=()):
        super().__init__(file, encoding="utf-8")
        self._read_storage = read_storage
        self._plain = plain
        self._classes: dict[tuple[str, str], type] = {}
        self._sizes: dict[int, int] = {}  # of tuples, by `id`

    def _count_items(self):
        """Refuses the tuple on the stack if it has too many items."""
        made = self.stack[-1]
        size = sum(
            self._sizes.get(id(item), 0) + 1 if type(item) is tuple else 1
            for item in made
        )
        if size > MAX_ITEMS:
            raise ValueError(f"expected at most {MAX_ITEMS} items in a tuple")
        self._sizes[id(made)] = size

    def find_class(self, module, name):
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        if module == "torch" and name in STORAGES:
            return _StorageType(STORAGES[name])
        is_type = module == "builtins" and name in TYPES
        if is_type or module.partition(".")[0] in self._plain:
            if (module, name) not in self._classes:
                kind = {"kind": f"{module}.{name}"}
                self._classes[module, name] = type(name, (Plain,), kind)
            if len(self._classes) > MAX_CLASSES:
                raise ValueError(f"it names more than {MAX_CLASSES} classes")
            return self._classes[module, name]
        raise ValueError(
            "its pickle would run code: expected tensors and plain data only."
            f" Received: {module}.{name}"
        )

    def persistent_load(self, pid):
        if (
            not isinstance(pid, tuple)
            or len(pid) not in (5, 6)
            or pid[0] != "storage"
            or not isinstance(pid[1], _StorageType)
            or not isinstance(pid[2], str)
            or type(pid[4]) is not int
            or pid[4] < 0
            or (len(pid) == 6 and pid[5] is not None)
        ):
            raise ValueError(f"not a storage of PyTorch: {shown(pid)}")
        return self._read_storage(pid[1].dtype, pid[2], pid[4])


def _count_after(handle):
    """An operation that makes a tuple, and then counts its items."""

    def handle_and_count(self):
        handle(self)
        self._count_items()

    return handle_and_count


for _operation in (
    pickle.TUPLE,
    pickle.TUPLE1,
    pickle.TUPLE2,
    pickle.TUPLE3,
):
    _load = _Unpickler.dispatch[_operation[0]]
    _Unpickler.dispatch[_operation[0]] = _count_after(_load)


def read_torch(
    path: str | os.PathLike, plain: Sequence[str] = ()
) -> typing.Any:
    """The contents of a file of `torch.save`: arrays in plain containers.

    Args:
        path: The file.
        plain: Names of top-level modules whose classes are read as `Plain`
            data: `("argparse", "omegaconf")`. None of it is imported.

    Raises:
        ValueError: It is not such a file, is corrupt, or names anything that is
            neither a tensor nor plain data.
        OSError: It cannot be read.
    """
    path = pathlib.Path(path)
    check_file(path)
    read = _read_archive if zipfile.is_zipfile(path) else _read_pickles
    try:
        return read(path, plain)
    except OSError:
        raise
    # A corrupt pickle may raise nearly anything, and so may a pickle that
    # misuses the stand-ins; none of it has run code.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: {reason}") from None


def _read_archive(path, plain):
    """Reads the zip format."""
    with zipfile.ZipFile(path) as archive:
        entries = _checked_entries(archive, path.stat().st_size)
        folder = min(entries, default="").partition("/")[0]
        if f"{folder}/{DATA}" not in entries:
            raise ValueError(f"no file of torch.save: it has no {DATA}")
        order = entries.get(f"{folder}/byteorder")
        if order is not None and archive.read(order).strip() != b"little":
            raise ValueError("expected little-endian numbers")
        if entries[f"{folder}/{DATA}"].file_size > MAX_PICKLE:
            raise ValueError(f"expected at most {MAX_PICKLE} bytes of {DATA}")
        storages: dict[str, _Storage] = {}

        def read_storage(dtype, key, size):
            if key not in storages:
                content = archive.read(entries[f"{folder}/data/{key}"])
                storages[key] = _Storage(np.frombuffer(content, np.uint8))
            return _typed(storages[key], dtype, size)

        data = io.BytesIO(archive.read(f"{folder}/{DATA}"))
        return _Unpickler(data, read_storage, plain).load()


def _checked_entries(archive, size):
    """The files of an archive by name: none compressed, none twice.

    `torch.save` compresses nothing, so the archive is as large as the data in
    it, and no file of it can be a zip bomb.
    """
    infos = archive.infolist()
    entries = {info.filename: info for info in infos}
    if len(entries) < len(infos) or len(infos) > MAX_ENTRIES:
        raise ValueError("its archive has files twice, or too many")
    for info in infos:
        if (
            info.compress_type != zipfile.ZIP_STORED
            or info.file_size != info.compress_size
            or info.flag_bits & 1  # encrypted
        ):
            raise ValueError(
                "expected an archive without compression, as torch.save"
                f" writes it. Received: {info.filename!r}, {info.file_size:,}"
                f" bytes in {info.compress_size:,}"
            )
    total = sum(info.file_size for info in infos)
    if total > size:
        raise ValueError(
            f"the files of its archive overlap: {total:,} bytes in {size:,}"
        )
    return entries


def _read_pickles(path, plain):
    """Reads the format before PyTorch 1.6: pickles, then the numbers."""
    storages: dict[str, np.ndarray] = {}
    sizes: dict[str, tuple] = {}
    limit = path.stat().st_size

    def read_storage(dtype, key, size):
        if sizes.setdefault(key, (dtype, size)) != (dtype, size):
            raise ValueError(f"storage {key} has two sizes")
        if key not in storages:
            if size * dtype.itemsize > limit:
                raise ValueError(f"storage {key} is larger than the file")
            limit_left = limit - sum(a.nbytes for a in storages.values())
            if size * dtype.itemsize > limit_left:
                raise ValueError("its storages are larger than the file")
            storages[key] = np.zeros(size, dtype)  # filled below
        return _Storage(storages[key])

    def no_storage(*_):
        raise ValueError("a storage where there is none")

    with path.open("rb") as file:
        data = io.BytesIO(file.read(MAX_PICKLE))
        head = [_Unpickler(data, no_storage).load() for _ in range(2)]
        if head != [MAGIC, PROTOCOL]:
            raise ValueError("neither a zip archive nor pickles of torch.save")
        system = _Unpickler(data, no_storage).load()
        if not system.get("little_endian"):
            raise ValueError("expected little-endian numbers")
        found = _Unpickler(data, read_storage, plain).load()
        keys = _Unpickler(data, no_storage).load()
        if sorted(keys) != sorted(storages):
            raise ValueError("its list of storages is another")
        file.seek(data.tell())
        for key in keys:
            dtype, size = sizes[key]
            length = int.from_bytes(file.read(8), "little")
            content = file.read(size * dtype.itemsize)
            if length != size or len(content) < size * dtype.itemsize:
                raise ValueError(f"truncated: storage {key}")
            storages[key][:] = np.frombuffer(content, dtype)
    return found


def _typed(storage, dtype, size):
    """A storage of bytes as one of numbers, if it has as many."""
    numbers = storage.numbers
    if numbers.nbytes != size * dtype.itemsize:
        raise ValueError(
            f"expected a storage of {size} {dtype}."
            f" Received: {numbers.nbytes} bytes"
        )
    return _Storage(numbers.view(dtype))


def _tensor(storage, offset, shape, strides, *_):
    """A tensor as a view of its storage: torch._utils._rebuild_tensor_v2."""
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor without a storage")
    numbers = storage.numbers
    sizes = [offset, *shape, *strides]
    if not len(shape) == len(strides) <= MAX_AXES or not all(
        type(size) is int and 0 <= size < 1 << 63 for size in sizes
    ):
        raise ValueError(
            f"a tensor of shape {shown(shape)}, strides {shown(strides)}"
        )
    last = offset + sum(
        (size - 1) * stride for size, stride in zip(shape, strides, strict=True)
    )
    if math.prod(shape) and (
        last >= numbers.size or math.prod(shape) > numbers.size
    ):
        raise ValueError(
            f"a tensor of shape {shape} exceeds its storage of {numbers.size}"
        )
    if not math.prod(shape):
        return np.zeros(shape, numbers.dtype).view(_Tensor)
    view = np.lib.stride_tricks.as_strided(
        numbers[offset:],
        shape,
        [stride * numbers.itemsize for stride in strides],
        writeable=False,
    )
    return view.view(_Tensor)


def _parameter(tensor, *_):
    """A parameter as its tensor: torch._utils._rebuild_parameter."""
    return tensor


class _Call:
    """A function that a pickle can call, but not give another state."""

    __slots__ = ("_function",)

    def __init__(self, function):
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments):
        return self._function(*arguments)

    def __setattr__(self, name, value):
        raise ValueError("a function with a state")

    def __setstate__(self, state):
        raise ValueError("a function with a state")


_KNOWN = {
    ("builtins", "set"): set,
    ("collections", "OrderedDict"): _Dictionary,
    ("torch._utils", "_rebuild_tensor"): _Call(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Call(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Call(_parameter),
}
