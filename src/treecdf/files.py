"""Model files: a zip of one JSON document, which says how the parts hang together, and of plain numbers.

    model.json     format, version, where the arrays are, the parts of the model, its parameters
    model.sha256   checksum of model.json, which has those of the numbers
    float64.bin    all arrays of this dtype one after the other, little-endian; the same for other dtypes

Nothing in a file is ever run: parts are frozen dataclasses of the registry below, written field by field, and numbers
are read as numbers. A part that several others share is written once and comes back as one object. What a file declares
is bounded by its size before anything is allocated, and a model is checked (see `checks`) before it is handed out,
because kernels do not check what they index.

To make a new class part of model files, give it a line in `checks.CHECKS`, with a function that checks it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import secrets
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treecdf.boosting import Stage
from treecdf.checks import CHECKS, ModelFileError, check_fitted, expect
from treecdf.classifiers import MLP, BoostedTrees, Constant, Logistic
from treecdf.ensemble import Family
from treecdf.learners import BoostedMean, GaussianProcess, Network, Polynomial
from treecdf.tree import NODE

FORMAT = "treecdf model"
VERSION = 1

# Settings that may be among the parameters; the estimator checks them.
_SETTINGS = (Stage, Constant, Logistic, MLP, BoostedTrees, Polynomial, GaussianProcess, BoostedMean, Network)
_REGISTRY: dict[str, Any] = {part.__name__: part for part in (*CHECKS, *_SETTINGS)}
_PLAIN = {"float64": "f8", "float32": "f4", "int64": "i8", "int32": "i4", "uint8": "u1", "bool": "?"}
_DTYPES = {name: np.dtype("<" + code) for name, code in _PLAIN.items()} | {"node": NODE.newbyteorder("<")}

_MOST_LEFT_OUT = 10_000  # rows whose log densities are kept; of more only the mean, for `summary`
_MOST_PACKED = 8  # times smaller: a model that deflates better is stored as it is, and a reader need not believe more
_SMALL = 1 << 16  # bytes for which a reader does not care
_FEW_ITEMS, _BYTES_OF_ITEM = 50_000, 32  # items of the JSON: so many, and one more for so many bytes of the file
_BYTES_OF_PIECE = 8  # the same for texts and columns that are pieces of an array
_MOST_ENTRIES = 16
_MOST_DIRECTORY = 4096  # bytes
_MOST_DIMENSIONS = 4
_MOST_OF_NOTHING = 10**6  # largest side of an array without elements
_DEEPEST = 12  # lists within lists
_END = struct.Struct("<4s4H2LH")  # of a zip
_CHUNK = 1 << 18


def write_model(path: str | os.PathLike[str], parameters: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Write parameters and fitted attributes; a file that is there already is replaced at once or not at all."""
    shorter = {name: _shortened(value) if name == "families_" else value for name, value in fitted.items()}
    kept = {name: _parameter(name, value) for name, value in parameters.items()}
    sections = {"parameters": kept, "fitted": shorter}
    try:
        data = packed(FORMAT, sections, zipfile.ZIP_DEFLATED)
    except ForeignPartError as error:
        advice = "Use skops or joblib for models with parts of other libraries."
        raise ModelFileError(f"The model cannot be saved: {error} {advice}") from None
    check_fitted(shorter)
    put_in_place(Path(path), data)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the checked fitted attributes in a file."""
    data = Path(path).read_bytes()
    with refusing(path):
        parameters, fitted = unpacked(data, FORMAT, ("parameters", "fitted"))
        check_fitted(fitted)
    return parameters, fitted


class ForeignPartError(ModelFileError):
    """A value that holds parts of other libraries."""


def packed(name: str, sections: Mapping[str, Mapping[str, Any]], how: int) -> bytes:
    """A file of the format of this name: sections of named values, deflated or stored."""
    writer = _Writer()
    document: dict[str, Any] = {"format": name, "version": VERSION, "written_by": own_version()}
    for section, values in sections.items():
        document[section] = {key: writer.value(value, key) for key, value in values.items()}
    text, pools = _text(document, writer)
    entries = {"model.json": text, "model.sha256": _checksum(text).encode()}
    entries |= {f"{name}.bin": pool.tobytes() for name, pool in pools.items()}
    data = _zip(entries, how)
    sizes = {name: len(content) for name, content in entries.items()}
    is_honest = _is_honest(sizes, len(data)) and writer.n_pieces <= _most_pieces(len(data))
    return data if is_honest else _zip(entries, zipfile.ZIP_STORED)


def unpacked(data: bytes, name: str, sections: Sequence[str]) -> list[dict[str, Any]]:
    """The sections of a file; what is in them is not checked yet."""
    archive = _open(data)
    document = _document(archive, name, _FEW_ITEMS + len(data) // _BYTES_OF_ITEM)
    reader = _Reader(_arrays(archive, document), _most_pieces(len(data)))
    for part in _field(document, "objects", list):
        reader.add(part)
    return [
        {key: reader.value(value) for key, value in _field(document, section, dict).items()} for section in sections
    ]


def fingerprint(value: Any, name: str) -> str:
    """Checksum of a value that a file could hold; equal values have the same."""
    writer = _Writer()
    text, _ = _text({"value": writer.value(value, name)}, writer)
    return _checksum(text)


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong with the contents of a file is a ModelFileError."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {error}") from None
    except Exception as error:  # no list of what hostile data may cause is complete
        what = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: it is damaged ({what}).") from error


def own_version() -> str:
    """Of this treecdf."""
    try:
        return version_of("treecdf")
    except PackageNotFoundError:
        return "unknown"


# From a model to JSON and arrays


class _Writer:
    """Turns values into JSON, and sets arrays and parts aside, each of them once."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.arrays: list[Any] = []
        self.pools: dict[str, list[NDArray[Any]]] = {}
        self.n_pieces = 0
        self._seen: dict[int, Any] = {}
        self._alive: list[Any] = []  # so that no two parts have one id

    def value(self, item: Any, where: str) -> Any:
        """JSON of a value; whatever is not a plain number, string or None is an object of one key, its kind."""
        if item is None or isinstance(item, str):
            return item
        if isinstance(item, bool | np.bool_):
            return bool(item)
        if isinstance(item, int | np.integer):
            return int(item)
        if isinstance(item, float | np.floating):
            return float(item) if math.isfinite(item) else {"float": repr(float(item))}
        if type(item) is tuple and len(item) > 1 and all(map(_is_column, item)):
            return {"columns": self._pieces(item, where)}
        if type(item) is tuple and item and all(isinstance(part, str) for part in item):
            return {"texts": self._pieces([_as_bytes(part) for part in item], where)}
        if type(item) in (list, tuple):
            parts = [self.value(part, f"{where}[{k}]") for k, part in enumerate(item)]
            return {type(item).__name__: parts}
        if type(item) is dict and all(isinstance(key, str) for key in item):
            return {"dict": {key: self.value(part, f"{where}[{key!r}]") for key, part in item.items()}}
        if id(item) not in self._seen:
            reference = self._array(item, where) if isinstance(item, np.ndarray) else self._part(item, where)
            self._seen[id(item)] = reference
            self._alive.append(item)
        return self._seen[id(item)]

    def _pieces(self, pieces: Sequence[NDArray[Any]], where: str) -> Any:
        """Many small arrays as one array of their lengths and one of them all."""
        self.n_pieces += len(pieces)
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        return [self.value(lengths, where), self.value(np.concatenate(pieces), where)]

    def _part(self, part: Any, where: str) -> Any:
        name = type(part).__name__
        if type(part) is not _REGISTRY.get(name):
            raise _foreign(where, name)
        own = {field.name: self.value(getattr(part, field.name), f"{where}.{field.name}") for field in fields(part)}
        self.objects.append([name, own])
        return {"object": len(self.objects) - 1}

    def _array(self, array: NDArray[Any], where: str) -> Any:
        if array.dtype.kind in "OU" and array.ndim == 1 and all(isinstance(item, str) for item in array):
            return {"names": self.value(tuple(array.tolist()), where)}
        name = next((name for name, dtype in _DTYPES.items() if dtype == array.dtype.newbyteorder("<")), None)
        if name is None:
            inside = type(array.flat[0]).__name__ if array.dtype == object and array.size else f"{array.dtype} numbers"
            raise _foreign(where, inside)
        order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self.arrays.append([name, list(array.shape), order])
        flat = array.ravel(order=order)
        self.pools.setdefault(name, []).append(flat.astype(_DTYPES[name], copy=False))
        return {"array": len(self.arrays) - 1}


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)


def _is_column(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.float64 and item.ndim == 1


def _foreign(where: str, what: str) -> ForeignPartError:
    return ForeignPartError(f"{where} holds {what}, which is not one of treecdf's own parts.")


def _parameter(name: str, value: Any) -> Any:
    """A generator and a checkpoint have done their work and are not kept."""
    is_generator = name == "random_state" and isinstance(value, np.random.Generator | np.random.RandomState)
    return None if is_generator or name == "checkpoint" else value


def _shortened(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Families without the log densities of very many rows."""
    return tuple(
        family if len(family.left_out) <= _MOST_LEFT_OUT else replace(family, left_out=_mean(family.left_out))
        for family in families
    )


def _mean(log_density: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.isfinite(log_density)
    return np.array([log_density[known].mean() if known.any() else np.nan])


def _text(document: dict[str, Any], writer: _Writer) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The JSON, with the checksums of the numbers, and the numbers."""
    pools = {name: np.concatenate(parts) for name, parts in writer.pools.items()}
    sums = {name: [len(pool), _checksum(pool)] for name, pool in pools.items()}
    document = {**document, "pools": sums, "arrays": writer.arrays, "objects": writer.objects}
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode(), pools


def _zip(entries: Mapping[str, bytes], how: int) -> bytes:
    file = io.BytesIO()
    try:
        with zipfile.ZipFile(file, "w", how, allowZip64=False) as archive:
            for name, content in entries.items():
                info = zipfile.ZipInfo(name)  # of a fixed date: the same model is the same file
                info.external_attr = 0o644 << 16
                archive.writestr(info, content, how)
    except (zipfile.LargeZipFile, OverflowError, struct.error):
        raise ModelFileError("It cannot be written: the file would be above 2 GB.") from None
    return file.getvalue()


def _is_honest(sizes: Mapping[str, int], size: int) -> bool:
    """Whether a file of this size may hold entries of these sizes."""
    text = sizes.get("model.json", 0)
    return text <= size + _SMALL and sum(sizes.values()) <= _MOST_PACKED * size + _SMALL


def _most_pieces(size: int) -> int:
    """Pieces that a file of this size may have; each takes a hundred bytes in memory."""
    return _FEW_ITEMS + size // _BYTES_OF_PIECE


def _checksum(data: bytes | NDArray[Any]) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else data.view(np.uint8).data).hexdigest()


def put_in_place(path: Path, data: bytes) -> None:
    """Write beside the file, then put it in place."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


# From a file to a model


def _open(data: bytes) -> zipfile.ZipFile:
    """The zip, if its directory is as small as ours and its entries are not larger than they can be."""
    expect(data[:2] == b"PK", "a treecdf model file; this is something else")
    expect(len(data) >= _END.size, "the end of a zip; the file is cut off")
    mark, _, _, _, n_entries, size, _, comment = _END.unpack(data[-_END.size :])
    expect(mark == b"PK\5\6" and comment == 0, "the end of a zip; the file is cut off or damaged")
    expect(n_entries <= _MOST_ENTRIES and size <= _MOST_DIRECTORY, "a small zip directory")
    expect(data[-_END.size - 20 : -_END.size - 16] != b"PK\6\7", "a plain zip, not a zip64")
    archive = zipfile.ZipFile(io.BytesIO(data))
    entries = archive.infolist()
    expect(len({entry.filename for entry in entries}) == len(entries), "every entry once")
    expect(sum(entry.compress_size for entry in entries) <= len(data), "entries no larger than the file")
    sizes = {entry.filename: entry.file_size for entry in entries}
    expect(_is_honest(sizes, len(data)), "entries that can be so small when deflated")
    return archive


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    expect(name in archive.namelist(), f"an entry {name}; this is another zip, or damaged")
    return archive.read(name)


def _document(archive: zipfile.ZipFile, name: str, most_items: int) -> dict[str, Any]:
    """The JSON, if it is whole and of our version."""
    text = _content(archive, "model.json")
    expect(
        _content(archive, "model.sha256") == _checksum(text).encode(), "the checksum of model.json; the file is damaged"
    )
    # An item takes a few bytes here and a hundred in memory.
    expect(sum(map(text.count, (b"[", b"{", b","))) + text.count(b'"') // 2 <= most_items, "fewer parts for its size")
    document = json.loads(text, parse_constant=_no_constant)
    expect(isinstance(document, dict) and document.get("format") == name, f"the format {name!r}")
    version, writer = document.get("version"), document.get("written_by")
    expect(isinstance(version, int), "a version")
    if version != VERSION:
        advice = (
            "update treecdf" if version > VERSION else "load it with that treecdf and fit the model again with this"
        )
        raise ModelFileError(
            f"it has version {version!r} of the format, written by treecdf {writer!r:.40}, and this treecdf "
            f"{own_version()} reads version {VERSION}: {advice}."
        )
    return document


def _no_constant(name: str) -> None:
    raise ModelFileError(f"Expected plain JSON; got {name}.")


def _field(document: dict[str, Any], name: str, kind: type) -> Any:
    expect(isinstance(document.get(name), kind), f"{name!r} in model.json")
    return document[name]


def _arrays(archive: zipfile.ZipFile, document: dict[str, Any]) -> list[NDArray[Any]]:
    """All arrays: pieces of the pools, in order and without gaps."""
    declared = _field(document, "pools", dict)
    names = {"model.json", "model.sha256", *(f"{name}.bin" for name in declared)}
    expect(set(archive.namelist()) == names, "the entries that model.json names")
    pools = {name: _pool(archive, name, value) for name, value in declared.items()}
    used, arrays = dict.fromkeys(pools, 0), []
    for spec in _field(document, "arrays", list):
        expect(isinstance(spec, list) and len(spec) == 3, "arrays as [dtype, shape, order]")
        name, shape, order = spec
        expect(isinstance(name, str) and name in pools and order in ("C", "F"), "arrays of a known dtype and order")
        size, begin = _size(shape), used[name]
        expect(begin + size <= len(pools[name]), f"arrays of {len(pools[name])} numbers {name}, no more")
        arrays.append(pools[name][begin : begin + size].reshape(shape, order=order))
        used[name] = begin + size
    expect(all(used[name] == len(pool) for name, pool in pools.items()), "arrays that use all numbers")
    return arrays


def _size(shape: Any) -> int:
    expect(isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS, f"at most {_MOST_DIMENSIONS} dimensions")
    expect(all(type(side) is int and side >= 0 for side in shape), "sides of arrays to be integers of at least 0")
    size = math.prod(shape)
    expect(size > 0 or max(shape) <= _MOST_OF_NOTHING, "an empty array without a huge side")
    return size


def _pool(archive: zipfile.ZipFile, name: str, declared: Any) -> NDArray[Any]:
    """All numbers of one dtype."""
    expect(name in _DTYPES, f"a dtype among {', '.join(_DTYPES)}; got {name!r:.40}")
    expect(isinstance(declared, list) and len(declared) == 2, "numbers as [length, checksum]")
    length, checksum = declared
    entry, dtype = archive.getinfo(f"{name}.bin"), _DTYPES[name]
    expect(type(length) is int and entry.file_size == length * dtype.itemsize, f"{length!r:.40} numbers {name}")
    pool = np.empty(length, dtype)
    _fill(archive, entry, pool.view(np.uint8))
    expect(checksum == _checksum(pool), f"the checksum of {name}.bin; the file is damaged")
    expect(name != "bool" or (pool.view(np.uint8) <= 1).all(), "booleans to be 0 or 1")
    return pool.astype(dtype.newbyteorder("="), copy=False)


def _fill(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: NDArray[np.uint8]) -> None:
    begin = 0
    with archive.open(entry) as file:
        while piece := file.read(_CHUNK):
            target[begin : begin + len(piece)] = np.frombuffer(piece, np.uint8)
            begin += len(piece)
    expect(begin == len(target), f"{len(target)} bytes in {entry.filename}; the file is cut off")


class _Reader:
    """Turns JSON into values; a part refers to parts before it only, so there are no circles."""

    def __init__(self, arrays: list[NDArray[Any]], most_pieces: int) -> None:
        self.arrays, self.most_pieces = arrays, most_pieces
        self.objects: list[Any] = []

    def add(self, part: Any) -> None:
        """Make one more part, of a class in the registry."""
        expect(isinstance(part, list) and len(part) == 2, "parts as [class, fields]")
        name, own = part
        expect(isinstance(name, str) and name in _REGISTRY, f"a part this treecdf knows; got {name!r:.60}")
        expect(isinstance(own, dict), f"fields of {name}")
        known = {field.name for field in fields(_REGISTRY[name])}
        expect(own.keys() <= known, f"only fields that {name} has")
        self.objects.append(_REGISTRY[name](**{key: self.value(value) for key, value in own.items()}))

    def value(self, item: Any, depth: int = 0) -> Any:
        """A value from its JSON; see `_Writer.value`."""
        if item is None or isinstance(item, bool | int | float | str):
            return item
        expect(isinstance(item, dict) and len(item) == 1, "a value with its kind")
        expect(depth < _DEEPEST, f"at most {_DEEPEST} lists within lists")
        ((kind, content),) = item.items()
        if kind == "float":
            expect(content in ("inf", "-inf", "nan"), "a number that is not finite")
            return float(content)
        if kind in ("array", "object"):
            found = self.arrays if kind == "array" else self.objects
            expect(type(content) is int and 0 <= content < len(found), f"an {kind} that is there")
            return found[content]
        if kind == "dict":
            expect(isinstance(content, dict), "a dict")
            return {key: self.value(part, depth + 1) for key, part in content.items()}
        if kind == "names":
            names = self.value(content, depth + 1)
            expect(isinstance(names, tuple) and all(isinstance(name, str) for name in names), "names")
            return np.array(names, dtype=object)
        known = ("list", "tuple", "columns", "texts")
        expect(kind in known and isinstance(content, list), "a value of a known kind")
        parts = [self.value(part, depth + 1) for part in content]
        if kind in ("columns", "texts"):
            expect(len(parts) == 2, "pieces as [lengths, all of them]")
            pieces = self._pieces(parts[0], parts[1], np.float64 if kind == "columns" else np.uint8)
            return pieces if kind == "columns" else tuple(bytes(p).decode(errors="surrogatepass") for p in pieces)
        return parts if kind == "list" else tuple(parts)

    def _pieces(self, lengths: Any, flat: Any, dtype: type) -> tuple[NDArray[Any], ...]:
        """Small arrays that are written one after the other."""
        for array, expected in ((lengths, np.int64), (flat, dtype)):
            is_flat = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == expected
            expect(is_flat, "pieces of a flat array")
        self.most_pieces -= len(lengths)
        expect(self.most_pieces >= 0, "fewer pieces for its size")
        fits = (lengths >= 0).all() and (lengths <= len(flat)).all() and sum(lengths.tolist()) == len(flat)
        expect(fits, "pieces of these lengths")
        return tuple(np.split(flat, np.cumsum(lengths)[:-1]))
