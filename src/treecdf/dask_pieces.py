"""Dask collections: as a table in pieces for a fit, and lazily, partition by partition, for predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed
from numpy.typing import NDArray

from treecdf.dask_rows import DaskRows, assemble
from treecdf.settings import as_generator
from treecdf.spill import spilled
from treecdf.streaming import Opened, Place, Reader, Source
from treecdf.table import block_slices, is_dask

Ints = NDArray[np.int64]


class DaskPieces:
    """Partitions of Dask DataFrames or chunks of Dask Arrays; X, y and sample_weight are divided in the same way."""

    def __init__(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        given = {"y": y} if sample_weight is None else {"y": y, "sample_weight": sample_weight}
        for name, part in given.items():
            if not is_dask(part):
                raise TypeError(f"Expected {name} to be a Dask collection as X is; got {type(part).__name__}.")
        parts = [partitions(part) for part in (X, *given.values())]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(
                f"X, {', '.join(given)} have {', '.join(str(len(p)) for p in parts)} partitions: expected one number."
            )
        self._pieces = [(*piece, None)[:3] for piece in zip(*parts, strict=True)]

    def map(self, task: Callable[..., Any], each: Iterable[Any], *args: Any) -> list[Any]:
        """What task(X, y, weight, one of `each`, *args) returns for every piece."""
        lazy = delayed(task, pure=False)
        return list(dask.compute(*(lazy(*piece, one, *args) for piece, one in zip(self._pieces, each, strict=False))))

    def sources(self, reader: Reader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
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


def current_client() -> Any:
    """The client of the cluster in use, or None."""
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


@contextlib.contextmanager
def _on_workers(client: Any, tables: Sequence[Any], sizes: Ints) -> Iterator[tuple[Source, Source | None]]:
    """Sources of the two parts of every table, of which there are sizes (pieces, 2)."""
    lazy = [_blocks([table[k] for table in tables], sizes[:, k]) for k in range(2) if sizes[:, k].any()]
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


def _blocks(tables: Sequence[Any], sizes: Ints) -> list[Any]:
    """Delayed blocks of consecutive rows of delayed tables of these sizes."""
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


def partitions(collection: Any) -> list[Any]:
    """Delayed frames or arrays of consecutive rows."""
    if not isinstance(collection, da.Array):
        # Optimised, columns of one frame may come in different numbers of partitions.
        return list(collection.to_delayed(optimize_graph=False))
    whole_rows = collection.rechunk({1: -1}) if collection.ndim == 2 else collection
    return list(whole_rows.to_delayed().ravel())


# Predictions


class LazyDistribution:
    """p(y | x) at the rows of a Dask collection; every method gives a Dask Array, worked out partition by partition.

    Takes and returns what ConditionalDistribution does; y is divided as X is. Draws depend on the partitions.
    """

    def __init__(self, model: Any, X: Any) -> None:
        self._model, self._d = delayed(model, pure=False), model.n_outcomes_
        self._parts = partitions(X)
        self._lengths = _lengths(X, len(self._parts))

    def logpdf(self, y: Any) -> Any:
        """Log density of outcomes y."""
        return self._each("logpdf", (), partitions(y))

    def pdf(self, y: Any) -> Any:
        """Density of outcomes y."""
        return self._each("pdf", (), partitions(y))

    def cdf(self, y: Any) -> Any:
        """CDF of one outcome."""
        return self._each("cdf", (), partitions(y))

    def pit(self, y: Any) -> Any:
        """The CDF of one outcome; of several the flow's own u."""
        return self._each("pit", () if self._d == 1 else (self._d,), partitions(y))

    def icdf(self, p: Any) -> Any:
        """Quantiles of one outcome: of a number (n,), of m levels (n, m)."""
        return self._each("icdf", np.shape(p), [p] * len(self._parts))

    ppf = icdf

    def mean(self) -> Any:
        """Mean, (n,) or (n, d)."""
        return self._each("mean", self._tail)

    def std(self) -> Any:
        """Standard deviation, (n,) or (n, d)."""
        return self._each("std", self._tail)

    def median(self) -> Any:
        """Median of one outcome."""
        return self._each("median", ())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draws (n, n_samples) or (n, n_samples, d)."""
        seeds = as_generator(random_state).integers(2**63, size=(len(self._parts), 4))
        sampled = [
            delayed(_sample)(self._model, part, n_samples, seed) for part, seed in zip(self._parts, seeds, strict=True)
        ]
        return self._array(sampled, (n_samples, *self._tail))

    @property
    def _tail(self) -> tuple[int, ...]:
        return () if self._d == 1 else (self._d,)

    def _each(self, method: str, tail: tuple[int, ...], values: Sequence[Any] | None = None) -> Any:
        if values is not None and len(values) != len(self._parts):
            raise ValueError(
                f"X has {len(self._parts)} partitions and y has {len(values)}: they must be divided alike."
            )
        given = [()] * len(self._parts) if values is None else [(value,) for value in values]
        asked = [
            delayed(_ask)(self._model, method, part, tail, *args) for part, args in zip(self._parts, given, strict=True)
        ]
        return self._array(asked, tail)

    def _array(self, parts: Sequence[Any], tail: tuple[int, ...]) -> Any:
        shapes = [(length, *tail) for length in self._lengths]
        made = [da.from_delayed(part, shape, dtype=np.float64) for part, shape in zip(parts, shapes, strict=True)]
        return da.concatenate(made, allow_unknown_chunksizes=True)


def _lengths(X: Any, n: int) -> Sequence[float]:
    """Rows of every partition, NaN where only reading them would tell."""
    return X.chunks[0] if isinstance(X, da.Array) else [np.nan] * n


def _ask(model: Any, method: str, X: Any, tail: tuple[int, ...], *args: Any) -> Any:
    if not len(X):
        return np.empty((0, *tail))
    distribution = model.predict_distribution(X)
    if method in ("logpdf", "pdf", "cdf", "pit"):
        args = (np.asarray(args[0]),)
        if model.n_outcomes_ == 1:
            args = (args[0].reshape(len(args[0])),)
    return np.asarray(getattr(distribution, method)(*args))


def _sample(model: Any, X: Any, n_samples: int, seed: Any) -> Any:
    if not len(X):
        return np.empty((0, n_samples) if model.n_outcomes_ == 1 else (0, n_samples, model.n_outcomes_))
    return model.predict_distribution(X).sample(n_samples, np.random.default_rng(seed))
