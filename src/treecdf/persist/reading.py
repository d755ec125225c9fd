"""From the entries of a zip to JSON and arrays, and to values; everything is checked before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from treecdf.persist.archive import Archive
from treecdf.persist.checks.values import FromFile, ModelFileError, Numbers, expect
from treecdf.persist.format import DTYPES, REGISTRY, VERSION, checksum, own_version

_MOST_DIMENSIONS = 4
_MOST_OF_NOTHING = 10**6  # largest side of an array without elements
_DEEPEST = 12  # most lists within lists


def read_document(archive: Archive, names: Sequence[str], most: int) -> dict[str, FromFile]:
    """The JSON, if its checksum is right, it is of one of these formats and our version, and has few enough items."""
    text, told = archive.read("model.json"), archive.read("model.sha256")
    expect(told == checksum(text).encode(), "the checksum of model.json; the file is damaged")
    expect(sum(map(text.count, (b"[", b"{", b","))) + text.count(b'"') // 2 <= most, "fewer parts for its size")
    document = json.loads(text, parse_constant=_no_constant)
    expect(
        isinstance(document, dict) and document.get("format") in names, f"the format {' or '.join(map(repr, names))}"
    )
    version, writer = document.get("version"), document.get("written_by")
    expect(isinstance(version, int), "a version")
    if version != VERSION:
        advice = "update treecdf" if version > VERSION else "fit the model again, or load it with the older treecdf"
        raise ModelFileError(
            f"it has version {version!r:.40} of the format, written by treecdf {writer!r:.40}, and this treecdf "
            f"{own_version()} reads version {VERSION}: {advice}."
        )
    return document


def _no_constant(name: str) -> None:
    raise ModelFileError(f"Expected plain JSON; got {name}.")


def field_of(document: dict[str, FromFile], name: str, kind: type) -> FromFile:
    """The field of the JSON with this name, which must be a list or a dict as `kind` says."""
    expect(isinstance(document.get(name), kind), f"{name!r} in model.json")
    return document[name]


def read_arrays(archive: Archive, document: dict[str, FromFile]) -> list[Numbers]:
    """All arrays, which lie in the pools in their order and without gaps."""
    declared = field_of(document, "pools", dict)
    names = {"model.json", "model.sha256", *(f"{name}.bin" for name in declared)}
    expect(archive.names == names, "the entries that model.json names")
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


def _size(shape: FromFile) -> int:
    expect(isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS, f"at most {_MOST_DIMENSIONS} dimensions")
    expect(all(type(side) is int and side >= 0 for side in shape), "sides of arrays to be integers of at least 0")
    size = math.prod(shape)
    expect(size > 0 or max(shape) <= _MOST_OF_NOTHING, "an empty array without a huge side")
    return size


def _pool(archive: Archive, name: str, declared: FromFile) -> Numbers:
    """All numbers of one dtype, if their checksum is right."""
    expect(name in DTYPES, f"a dtype among {', '.join(DTYPES)}; got {name!r:.40}")
    expect(isinstance(declared, list) and len(declared) == 2, "numbers as [length, checksum]")
    length, told = declared
    entry, dtype = f"{name}.bin", DTYPES[name]
    expect(type(length) is int and archive.size(entry) == length * dtype.itemsize, f"{length!r:.40} numbers {name}")
    pool = np.empty(length, dtype)
    archive.read_into(entry, pool.view(np.uint8))
    expect(told == checksum(pool), f"the checksum of {name}.bin; the file is damaged")
    expect(name != "bool" or (pool.view(np.uint8) <= 1).all(), "booleans to be 0 or 1")
    return pool.astype(dtype.newbyteorder("="), copy=False)


class Reader:
    """Turns JSON into values; a part refers only to parts that were added before it, so there are no circles."""

    def __init__(self, arrays: list[Numbers], most_pieces: int) -> None:
        self.arrays, self.most_pieces = arrays, most_pieces
        self.objects: list[FromFile] = []

    def add(self, part: FromFile) -> None:
        """Make one more part, of a class in the registry."""
        expect(isinstance(part, list) and len(part) == 2, "parts as [class, fields]")
        name, own = part
        expect(isinstance(name, str) and name in REGISTRY, f"a part this treecdf knows; got {name!r:.60}")
        expect(isinstance(own, dict), f"fields of {name}")
        known = {field.name for field in fields(REGISTRY[name])}
        expect(own.keys() == known, f"the fields of {name}, all of them and no others")
        self.objects.append(REGISTRY[name](**{key: self.value(value) for key, value in own.items()}))

    def value(self, item: FromFile, depth: int = 0) -> FromFile:
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

    def _pieces(self, lengths: FromFile, flat: FromFile, dtype: type) -> tuple[Numbers, ...]:
        """Small arrays that stand one after the other in `flat`."""
        for array, expected in ((lengths, np.int64), (flat, dtype)):
            is_flat = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == expected
            expect(is_flat, "pieces of a flat array")
        self.most_pieces -= len(lengths)
        expect(self.most_pieces >= 0, "fewer pieces for its size")
        fits = (lengths >= 0).all() and (lengths <= len(flat)).all() and sum(lengths.tolist()) == len(flat)
        expect(fits, "pieces of these lengths")
        return tuple(np.split(flat, np.cumsum(lengths)[:-1]))
