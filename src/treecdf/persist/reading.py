"""From a zip to JSON and arrays, and to values; nothing in it is believed before it is looked at."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf.persist.checks.models import ModelFileError, expect
from treecdf.persist.format import DTYPES, REGISTRY, VERSION, checksum, is_honest, own_version

_MOST_ENTRIES = 16
_MOST_DIRECTORY = 4096  # bytes
_MOST_DIMENSIONS = 4
_MOST_OF_NOTHING = 10**6  # largest side of an array without elements
_DEEPEST = 12  # lists within lists
_END = struct.Struct("<4s4H2LH")  # of a zip
_CHUNK = 1 << 18


def open_zip(data: bytes) -> zipfile.ZipFile:
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
    expect(is_honest(sizes, len(data)), "entries that can be so small when deflated")
    return archive


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    expect(name in archive.namelist(), f"an entry {name}; this is another zip, or damaged")
    return archive.read(name)


def read_document(archive: zipfile.ZipFile, names: Sequence[str], most: int) -> dict[str, Any]:
    """The JSON, if it is whole and of our version."""
    text = _content(archive, "model.json")
    expect(
        _content(archive, "model.sha256") == checksum(text).encode(), "the checksum of model.json; the file is damaged"
    )
    expect(sum(map(text.count, (b"[", b"{", b","))) + text.count(b'"') // 2 <= most, "fewer parts for its size")
    document = json.loads(text, parse_constant=_no_constant)
    expect(
        isinstance(document, dict) and document.get("format") in names, f"the format {' or '.join(map(repr, names))}"
    )
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


def field_of(document: dict[str, Any], name: str, kind: type) -> Any:
    """What the JSON has under a name, if it is of this kind."""
    expect(isinstance(document.get(name), kind), f"{name!r} in model.json")
    return document[name]


def read_arrays(archive: zipfile.ZipFile, document: dict[str, Any]) -> list[NDArray[Any]]:
    """All arrays: pieces of the pools, in order and without gaps."""
    declared = field_of(document, "pools", dict)
    names = {"model.json", "model.sha256", *(f"{name}.bin" for name in declared)}
    expect(set(archive.namelist()) == names, "the entries that model.json names")
    pools = {name: _pool(archive, name, value) for name, value in declared.items()}
    used, arrays = dict.fromkeys(pools, 0), []
    for spec in field_of(document, "arrays", list):
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
    expect(name in DTYPES, f"a dtype among {', '.join(DTYPES)}; got {name!r:.40}")
    expect(isinstance(declared, list) and len(declared) == 2, "numbers as [length, checksum]")
    length, told = declared
    entry, dtype = archive.getinfo(f"{name}.bin"), DTYPES[name]
    expect(type(length) is int and entry.file_size == length * dtype.itemsize, f"{length!r:.40} numbers {name}")
    pool = np.empty(length, dtype)
    _fill(archive, entry, pool.view(np.uint8))
    expect(told == checksum(pool), f"the checksum of {name}.bin; the file is damaged")
    expect(name != "bool" or (pool.view(np.uint8) <= 1).all(), "booleans to be 0 or 1")
    return pool.astype(dtype.newbyteorder("="), copy=False)


def _fill(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: NDArray[np.uint8]) -> None:
    begin = 0
    with archive.open(entry) as file:
        while piece := file.read(_CHUNK):
            target[begin : begin + len(piece)] = np.frombuffer(piece, np.uint8)
            begin += len(piece)
    expect(begin == len(target), f"{len(target)} bytes in {entry.filename}; the file is cut off")


class Reader:
    """Turns JSON into values; a part refers to parts before it only, so there are no circles."""

    def __init__(self, arrays: list[NDArray[Any]], most_pieces: int) -> None:
        self.arrays, self.most_pieces = arrays, most_pieces
        self.objects: list[Any] = []

    def add(self, part: Any) -> None:
        """Make one more part, of a class in the registry."""
        expect(isinstance(part, list) and len(part) == 2, "parts as [class, fields]")
        name, own = part
        expect(isinstance(name, str) and name in REGISTRY, f"a part this treecdf knows; got {name!r:.60}")
        expect(isinstance(own, dict), f"fields of {name}")
        known = {field.name for field in fields(REGISTRY[name])}
        expect(own.keys() <= known, f"only fields that {name} has")
        self.objects.append(REGISTRY[name](**{key: self.value(value) for key, value in own.items()}))

    def value(self, item: Any, depth: int = 0) -> Any:
        """A value from its JSON; see `Writer.value`."""
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
