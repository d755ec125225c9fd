"""From a model to JSON and arrays, and to a zip of them."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treecdf.persist.checks.values import ModelFileError
from treecdf.persist.format import DTYPES, REGISTRY, checksum


class ForeignPartError(ModelFileError):
    """A value that holds parts of other libraries."""


class Writer:
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
        if type(part) is not REGISTRY.get(name):
            raise _foreign(where, name)
        own = {field.name: self.value(getattr(part, field.name), f"{where}.{field.name}") for field in fields(part)}
        self.objects.append([name, own])
        return {"object": len(self.objects) - 1}

    def _array(self, array: NDArray[Any], where: str) -> Any:
        if array.dtype.kind in "OU" and array.ndim == 1 and all(isinstance(item, str) for item in array):
            return {"names": self.value(tuple(array.tolist()), where)}
        name = next((name for name, dtype in DTYPES.items() if dtype == array.dtype.newbyteorder("<")), None)
        if name is None:
            inside = type(array.flat[0]).__name__ if array.dtype == object and array.size else f"{array.dtype} numbers"
            raise _foreign(where, inside)
        order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self.arrays.append([name, list(array.shape), order])
        flat = array.ravel(order=order)
        self.pools.setdefault(name, []).append(flat.astype(DTYPES[name], copy=False))
        return {"array": len(self.arrays) - 1}


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)


def _is_column(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.float64 and item.ndim == 1


def _foreign(where: str, what: str) -> ForeignPartError:
    return ForeignPartError(f"{where} holds {what}, which is not one of treecdf's own parts.")


def as_text(document: dict[str, Any], writer: Writer) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The JSON, with the checksums of the numbers, and the numbers."""
    pools = {name: np.concatenate(parts) for name, parts in writer.pools.items()}
    sums = {name: [len(pool), checksum(pool)] for name, pool in pools.items()}
    document = {**document, "pools": sums, "arrays": writer.arrays, "objects": writer.objects}
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode(), pools


def zipped(entries: Mapping[str, bytes], how: int) -> bytes:
    """A zip of named entries, deflated or stored."""
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
