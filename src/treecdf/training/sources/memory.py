"""A table in memory as a table in pieces: large tables are fitted in the same way as files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.protocols import Frame
from treecdf._common.typing import Array, Ints, Units
from treecdf.data.blocks import block_slices, one_in
from treecdf.data.reading import opened
from treecdf.data.table import read_weights
from treecdf.data.units import refuse_name
from treecdf.training.sources.pieces import Columns, Opened, Pick, Piece, PieceReader, Place, take
from treecdf.training.sources.rows import Local
from treecdf.training.sources.shard import Block

_PIECE_ROWS = 65_536  # rows of a piece: copies of so many are small beside the model's work space


class MemoryPieces:
    """Frames or arrays X, y and groups, and weights (n,), cut into pieces of consecutive rows."""

    def __init__(
        self, X: ArrayLike | Frame, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
    ) -> None:
        self._X = opened(X)
        outcomes: Any = y if hasattr(y, "dtype") or hasattr(y, "columns") else np.asarray(y)
        self._y, n = outcomes, len(self._X)
        if n != len(outcomes):
            raise ValueError(f"X has {n} rows and y has {len(outcomes)}: they must have the same number.")
        self._weight: Array | None = None if sample_weight is None else read_weights(sample_weight, n)
        refuse_name(groups, "groups")
        self._groups = None if groups is None else np.asarray(groups)
        if self._groups is not None and self._groups.shape != (n,):
            raise ValueError(f"Expected groups of shape ({n},); got {self._groups.shape}.")
        self._slices = [slice(first, min(first + _PIECE_ROWS, n)) for first in range(0, n, _PIECE_ROWS)]

    def sizes(self) -> Ints:
        """Rows of every piece, and how many of them have a weight above zero, (pieces, 2)."""
        rows = np.array([s.stop - s.start for s in self._slices], np.int64)
        if self._weight is None:
            return np.column_stack([rows, rows])
        return np.column_stack([rows, [np.count_nonzero(self._weight[s] > 0) for s in self._slices]])

    def whole(self) -> Piece:
        """All rows as one piece."""
        return self._X, self._y, self._weight, self._groups

    def chosen(self, pick: Pick, firsts: Sequence[int]) -> list[Piece]:
        """The rows that are in a sample, as one piece."""
        masks = [
            pick.mask(X, y, groups, first) for (X, y, _, groups), first in zip(self._pieces(), firsts, strict=True)
        ]
        mask = np.concatenate(masks)
        return [self._rows(np.flatnonzero(mask if self._weight is None else mask & (self._weight > 0)))]

    def sample(self, firsts: Sequence[int], step: int) -> list[Piece]:
        """About one in `step` rows, as one piece."""
        return [self._rows(np.flatnonzero(one_in(step, 0, len(self._X))))]

    def units(self, reader: PieceReader) -> list[Units]:
        """Units (m,) of the rows of every piece that have a weight above zero."""
        return [reader.units(*piece, s.start) for piece, s in zip(self._pieces(), self._slices, strict=True)]

    def sources(self, reader: PieceReader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows and those set aside, in memory."""
        pieces = [reader(*piece, place) for piece, place in zip(self._pieces(), places, strict=True)]
        train, held_out = (_joined([piece[k] for piece in pieces]) for k in range(2))
        return contextlib.nullcontext((_local(train, pool), _local(held_out, pool) if len(held_out[0]) else None))

    def _pieces(self) -> Iterator[Piece]:
        return map(self._rows, self._slices)

    def _rows(self, rows: slice | Ints) -> Piece:
        """Some of the rows."""
        weight, groups = (None if part is None else part[rows] for part in (self._weight, self._groups))
        return take(self._X, rows), take(self._y, rows), weight, groups


def _joined(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts."""
    x, y, weight = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return x, y, weight


def _local(columns: Columns, pool: Executor | None) -> Local:
    """A source of rows in memory, in blocks."""
    x, y, weight = columns
    return Local([Block(x[s], y[s], weight[s], s.start) for s in block_slices(len(x))], pool)
