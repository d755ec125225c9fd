"""Rows in temporary files: blocks whose arrays are mapped into memory only while they are used."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from itertools import repeat
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from treecdf._common.typing import Ints
from treecdf.data.blocks import block_slices
from treecdf.training.sources.pieces import Columns
from treecdf.training.sources.rows import Local
from treecdf.training.sources.shard import Block

_COLUMNS = ("x", "u0", "weight")  # names of the arrays of a table; outcomes become u
_OF_EVERY_FIT = ("order", "log_density0", "log_density1")  # arrays of one number a row that every fit writes later
_ZEROS = bytes(2**20)  # written where a system cannot reserve space
D = TypeVar("D", bound=np.generic)


class Spill:
    """Arrays of n rows in unnamed files, which vanish with the process.

    The space of a file is reserved before it is mapped, because a write to a mapped page for which the disk has no room
    kills the interpreter.
    """

    def __init__(self, n_rows: int, directory: str | None = None) -> None:
        self._n_rows, self._directory = n_rows, directory
        self._maps: dict[str, tuple[mmap.mmap, int]] = {}  # with the bytes of a row
        self._lock = threading.Lock()

    def put(self, name: str, rows: slice, values: NDArray[D]) -> NDArray[D]:
        """Write the values of some rows; return an array that reads them from the file."""
        if not values.size:
            return values
        with self._lock:
            if name not in self._maps:
                self._reserve({name: -(-values.size // (rows.stop - rows.start)) * values.itemsize})
        kept = self._view(name, rows, values.shape, values.dtype)
        kept[...] = values
        return kept

    def drop_from_memory(self, rows: slice) -> None:
        """Free the memory that caches some of the rows; the files keep their values."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return  # Windows does so when it has to
        for mapped, width in self._maps.values():
            first = -(-rows.start * width // mmap.PAGESIZE) * mmap.PAGESIZE
            last = len(mapped) if rows.stop == self._n_rows else rows.stop * width // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _view(self, name: str, rows: slice, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
        """An array of some rows that reads and writes the file."""
        mapped, width = self._maps[name]
        return np.ndarray(shape, dtype, mapped, rows.start * width)

    def _reserve(self, widths: Mapping[str, int]) -> None:
        """Make files for arrays of so many bytes a row; an error says how many are needed, and where."""
        needed = sum(widths.values()) * self._n_rows
        try:
            for name, width in widths.items():
                self._maps[name] = _mapped_file(width * self._n_rows, self._directory), width
        except OSError as error:
            place = self._directory or tempfile.gettempdir()
            reason = error.strerror or str(error)
            raise OSError(
                error.errno,
                f"Expected {needed} bytes of space for the rows of this fit; got {_free_bytes(place)} ({reason}) in",
                place,
            ) from error

    def take_in(self, first: int, columns: Columns) -> None:
        """Write rows of a table, from number `first` on."""
        rows = slice(first, first + len(columns[0]))
        if not self._maps and self._n_rows:
            x, u, weight = (part.itemsize * int(np.prod(part.shape[1:])) for part in columns)
            self._reserve({"x": x, "u0": u, "u1": u, "weight": weight, **dict.fromkeys(_OF_EVERY_FIT, 8)})
        for name, part in zip(_COLUMNS, columns, strict=True):
            self.put(name, rows, part)
        self._shapes = [part.shape[1:] for part in columns]
        self.drop_from_memory(rows)

    def local(self, pool: Executor | None) -> Local:
        """A source of all rows, in blocks."""
        blocks = []
        for s in block_slices(self._n_rows):
            shapes = [(s.stop - s.start, *shape) for shape in self._shapes]
            x, y, weight = (self._view(*pair) for pair in zip(_COLUMNS, repeat(s), shapes, repeat(np.float64)))
            blocks.append(Block(x, y, weight, s.start, self))
        return Local(blocks, pool)


def _mapped_file(size: int, directory: str | None) -> mmap.mmap:
    """A map of a new unnamed file, with disk space reserved for all of its bytes."""
    with tempfile.TemporaryFile(dir=directory) as file:
        _reserve_space(file, size)
        return mmap.mmap(file.fileno(), size)


def _reserve_space(file: BinaryIO, size: int) -> None:
    """Give a file so many bytes on the disk; OSError if there is no room."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # those of file systems that cannot reserve
                raise
    for first in range(0, size, len(_ZEROS)):
        file.write(_ZEROS[: size - first])
    file.flush()


def _free_bytes(directory: str) -> str:
    """How many bytes a directory's disk has left, in words."""
    try:
        return f"{shutil.disk_usage(directory).free} free"
    except OSError:
        return "a disk that does not answer"


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
