"""Dask collections: as a table in pieces for a fit, and lazily, partition by partition, for predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed
from dask.delayed import Delayed
from distributed import Client, get_client

from treecdf._common.typing import Ints, Units
from treecdf.data.blocks import block_slices
from treecdf.data.table import is_dask
from treecdf.training.sources.dask_rows import DaskRows
from treecdf.training.sources.dask_sites import assemble
from treecdf.training.sources.pieces import Opened, Pick, Piece, PieceReader, Place, count_rows, joined, take_rows
from treecdf.training.sources.rows import Source
from treecdf.training.sources.spill import spilled


class DaskPieces:
    """Partitions of Dask DataFrames or chunks of Dask Arrays; X, y, weights and groups are divided in the same way."""

    def __init__(self, X: object, y: object, sample_weight: object = None, groups: object = None) -> None:
        others = {"sample_weight": sample_weight, "groups": groups}
        given = {"y": y} | {name: part for name, part in others.items() if part is not None}
        for name, part in given.items():
            if not is_dask(part):
                raise TypeError(f"Expected {name} to be a Dask collection as X is; got {type(part).__name__}.")
        parts = [partitions(part) for part in (X, *given.values())]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(
                f"X, {', '.join(given)} have {', '.join(str(len(p)) for p in parts)} partitions: expected one number."
            )
        places = {name: k for k, name in enumerate(("X", *given))}
        chosen = [places.get(name) for name in ("X", "y", "sample_weight", "groups")]
        self._pieces = [tuple(None if k is None else piece[k] for k in chosen) for piece in zip(*parts, strict=True)]

    def sizes(self) -> Ints:
        """Rows of every piece, and how many of them have a weight above zero, (pieces, 2)."""
        lazy = delayed(count_rows, pure=False)
        with _reachable(current_client()):
            return np.array(dask.compute(*(lazy(*piece[:3]) for piece in self._pieces)), dtype=np.int64).reshape(-1, 2)

    def whole(self) -> Piece:
        """All rows as one piece in memory."""
        with _reachable(current_client()):
            return joined(list(dask.compute(*self._pieces)))

    def chosen(self, pick: Pick, firsts: Sequence[int]) -> list[Piece]:
        """The rows of every piece that are in a sample; the pieces begin with the row numbers `firsts`."""
        return self._each(pick, firsts)

    def sample(self, firsts: Sequence[int], step: int) -> list[Piece]:
        """About one in `step` rows of every piece; the pieces begin with the rows `firsts`."""
        return self._each(take_rows, firsts, step)

    def _each(self, task: Callable[..., Piece], firsts: Sequence[int], *args: int) -> list[Piece]:
        """The results of a task for every piece, the number of its first row and its other arguments."""
        lazy = delayed(task, pure=False)
        pieces = zip(self._pieces, firsts, strict=True)
        with _reachable(current_client()):
            return list(dask.compute(*(lazy(*piece, first, *args) for piece, first in pieces)))

    def units(self, reader: PieceReader) -> list[Units]:
        """Units (m,) of the rows of every piece that have a weight above zero."""
        lazy, firsts = delayed(reader.units, pure=False), np.cumsum([0, *self.sizes()[:, 0]])
        with _reachable(current_client()):
            return list(dask.compute(*(lazy(*piece, int(k)) for piece, k in zip(self._pieces, firsts, strict=False))))

    def sources(self, reader: PieceReader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows and those set aside: on the workers of the cluster, or in files if there is no cluster."""
        read = delayed(reader, pure=False)
        tables = [
            read(*piece, (first, aside.astype(np.int32)))
            for piece, (first, aside) in zip(self._pieces, places, strict=True)
        ]
        client = current_client()
        if client is None:
            return spilled((dask.compute(table)[0] for table in tables), sizes, None, pool)
        return _on_workers(client, tables, sizes)


def current_client() -> Client | None:
    """The client of the cluster in use, or None."""
    try:
        return get_client()
    except ValueError:
        return None


@contextlib.contextmanager
def _reachable(client: Client | None) -> Iterator[None]:
    """Turn the various errors of a lost connection into one ConnectionError."""
    try:
        yield
    except (OSError, CancelledError) as error:
        if client is None or client.status == "running":
            raise
        raise ConnectionError(
            "The scheduler of the Dask cluster cannot be reached any more: the fit has ended without a model."
        ) from error


@contextlib.contextmanager
def _on_workers(client: Client, tables: Sequence[Delayed], sizes: Ints) -> Iterator[tuple[Source, Source | None]]:
    """Sources of training rows and of rows set aside, the two parts of every table of sizes (pieces, 2)."""
    # Dask adds the operators of Delayed at run time, where mypy does not see them.
    parts = [[table[k] for table in tables] for k in range(2)]  # type: ignore[index]
    lazy = [_blocks(parts[k], sizes[:, k]) for k in range(2) if sizes[:, k].any()]
    with _reachable(client):
        rows = [
            DaskRows(client, blocks, [s.start for s in block_slices(int(n))])
            for blocks, n in zip(lazy, sizes.sum(axis=0), strict=False)
        ]
        try:
            # All at once, so that a piece is read once for training and validation rows.
            futures = iter(client.compute([block for blocks in lazy for block in blocks]))
            for source, blocks in zip(rows, lazy, strict=True):
                source.open([next(futures) for _ in blocks])
            del futures  # the workers need the tables no longer
            yield rows[0], rows[1] if len(rows) > 1 else None
        finally:
            for source in rows:
                source.close()


def _blocks(tables: Sequence[Delayed], sizes: Ints) -> list[Delayed]:
    """Delayed tables of the blocks of all rows, from delayed tables of these sizes (pieces,)."""
    ends = np.cumsum(sizes)
    lazy = delayed(assemble, pure=False)
    blocks = []
    for s in block_slices(int(ends[-1])):
        inside = [k for k in range(len(tables)) if sizes[k] and ends[k] > s.start and ends[k] - sizes[k] < s.stop]
        cuts = [
            slice(max(s.start - (ends[k] - sizes[k]), 0), min(s.stop - (ends[k] - sizes[k]), sizes[k])) for k in inside
        ]
        blocks.append(lazy([tables[k] for k in inside], cuts))
    return blocks


def partitions(collection: Any) -> list[Delayed]:  # Dask has no common type of its frames and arrays
    """Delayed frames or arrays of consecutive rows, one for each partition or chunk of rows."""
    if not isinstance(collection, da.Array):
        # Optimised, columns of one frame may come in different numbers of partitions.
        return list(collection.to_delayed(optimize_graph=False))
    whole_rows = collection.rechunk({1: -1}) if collection.ndim == 2 else collection
    return list(whole_rows.to_delayed().ravel())
