"""The format of model files, shared by writer and reader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf.bases.learners import BoostedMean, GaussianProcess, Neighbours, Network, Polynomial
from treecdf.flows.tree import NODE
from treecdf.persist.checks.models import CHECKS
from treecdf.training.classifiers import MLP, BoostedTrees, Constant, Logistic
from treecdf.training.settings import Stage

VERSION = 6  # of the format: to be raised whenever a part gains or loses a field, or a number changes its meaning
# Settings that may be among the parameters; the estimator checks them.
_SETTINGS = (
    *(Stage, Constant, Logistic, MLP, BoostedTrees),
    *(Polynomial, GaussianProcess, BoostedMean, Network, Neighbours),
)
REGISTRY: dict[str, Any] = {part.__name__: part for part in (*CHECKS, *_SETTINGS)}
_PLAIN = {"float64": "f8", "float32": "f4", "int64": "i8", "int32": "i4", "uint8": "u1", "bool": "?"}
DTYPES = {name: np.dtype("<" + code) for name, code in _PLAIN.items()} | {"node": NODE.newbyteorder("<")}
_MOST_PACKED = 8  # times smaller: a model that deflates better is stored as it is, and a reader need not believe more
_SMALL = 1 << 16  # bytes that a file may hold in any case
_FEW_ITEMS = 50_000  # items of the JSON, and texts or columns that are pieces of an array, that a file may have anyhow
_BYTES_OF_ITEM = 32  # bytes of the file for each further item of the JSON
_BYTES_OF_PIECE = 8  # bytes of the file for each further piece of an array


def may_hold(size: int, sizes: Mapping[str, int]) -> bool:
    """Whether a file of `size` bytes may contain entries with these uncompressed sizes, by name."""
    text = sizes.get("model.json", 0)
    return text <= size + _SMALL and sum(sizes.values()) <= _MOST_PACKED * size + _SMALL


def most_items(size: int) -> int:
    """Most items of the JSON in a file of this size; each takes a few bytes there and a hundred in memory."""
    return _FEW_ITEMS + size // _BYTES_OF_ITEM


def most_pieces(size: int) -> int:
    """Most pieces in a file of this size; each takes a hundred bytes in memory."""
    return _FEW_ITEMS + size // _BYTES_OF_PIECE


def checksum(data: bytes | NDArray[Any]) -> str:
    """SHA-256 of bytes or of the bytes of an array, in hexadecimal digits."""
    return hashlib.sha256(data if isinstance(data, bytes) else data.view(np.uint8).data).hexdigest()


def own_version() -> str:
    """The version of this treecdf; "unknown" if it is not installed."""
    try:
        return version_of("treecdf")
    except PackageNotFoundError:
        return "unknown"
