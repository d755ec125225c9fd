"""Rows in files: blocks whose arrays are mapped into memory only while somebody works on them."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Ints
from treecdf.data.blocks import block_slices
from treecdf.training.sources.pieces import Columns
from treecdf.training.sources.rows import Local
from treecdf.training.sources.shard import Block

_COLUMNS = ("x", "u0", "weight")  # outcomes become u


class Spill:
    """Arrays of n rows in files without a name, which vanish with the process."""

    def __init__(self, n_rows: int, directory: str | None = None) -> None:
        self._n_rows, self._directory = n_rows, directory
        self._maps: dict[str, tuple[mmap.mmap, int]] = {}  # with the bytes of a row
        self._lock = threading.Lock()

    def put(self, name: str, rows: slice, values: NDArray[Any]) -> NDArray[Any]:
        """Keep the values of some rows; return them as they are kept."""
        if not values.size:
            return values
        with self._lock:
            if name not in self._maps:
                width = -(-values.size // (rows.stop - rows.start)) * values.itemsize
                self._maps[name] = self._open(width * self._n_rows), width
        kept = self._view(name, rows, values.shape, values.dtype)
        kept[...] = values
        return kept

    def drop_from_memory(self, rows: slice) -> None:
        """Give back the memory that holds some of the rows; the files keep them."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return  # Windows does so when it has to
        for mapped, width in self._maps.values():
            first = -(-rows.start * width // mmap.PAGESIZE) * mmap.PAGESIZE
            last = len(mapped) if rows.stop == self._n_rows else rows.stop * width // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _view(self, name: str, rows: slice, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        mapped, width = self._maps[name]
        return np.ndarray(shape, dtype, mapped, rows.start * width)

    def _open(self, size: int) -> mmap.mmap:
        with tempfile.TemporaryFile(dir=self._directory) as file:
            file.truncate(size)
            return mmap.mmap(file.fileno(), size)

    def take_in(self, first: int, columns: Columns) -> None:
        """Keep rows of a table, from number `first` on."""
        rows = slice(first, first + len(columns[0]))
        for name, part in zip(_COLUMNS, columns, strict=True):
            self.put(name, rows, part)
        self._widths = [part.shape[1:] for part in columns]
        self.drop_from_memory(rows)

    def local(self, pool: Executor | None) -> Local:
        """All rows, in blocks."""
        blocks = []
        for s in block_slices(self._n_rows):
            shapes = [(s.stop - s.start, *width) for width in self._widths]
            x, y, weight = (self._view(*pair) for pair in zip(_COLUMNS, repeat(s), shapes, repeat(np.float64)))
            blocks.append(Block(x, y, weight, s.start, self))
        return Local(blocks, pool)


@contextlib.contextmanager
def spilled(
    pieces: Iterable[tuple[Columns, Columns]], sizes: Ints, directory: str | None, pool: Executor | None
) -> Iterator[tuple[Local, Local | None]]:
    """Sources of training rows and of rows set aside, of which there are sizes (pieces, 2)."""
    train, held_out = (Spill(int(n), directory) for n in sizes.sum(axis=0))
    for first, parts in zip(np.cumsum(sizes, axis=0) - sizes, pieces, strict=True):
        train.take_in(int(first[0]), parts[0])
        held_out.take_in(int(first[1]), parts[1])
    yield train.local(pool), held_out.local(pool) if sizes[:, 1].any() else None
