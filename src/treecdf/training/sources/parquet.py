"""Parquet files as a table in pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from treecdf._common.typing import Ints
from treecdf.training.sources.pieces import Opened, Piece, Place, Reader
from treecdf.training.sources.spill import spilled

_BATCH_ROWS = 65_536


class ParquetPieces:
    """The rows of a Parquet file or of a directory of them, in the order of the files' names."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        outcomes: str | Sequence[str],
        covariates: Sequence[str] | None,
        weight: str | None,
        directory: str | None,
    ) -> None:
        try:
            import pandas  # noqa: F401
            import pyarrow.dataset
        except ImportError:
            raise ImportError("fit_parquet needs pyarrow and pandas: pip install 'treecdf[dask]'.") from None
        self._dataset = pyarrow.dataset.dataset(os.fspath(path), format="parquet")
        self._outcomes = [outcomes] if isinstance(outcomes, str) else list(outcomes)
        self._weight, self._directory = weight, directory
        taken = {*self._outcomes, weight}
        names = _columns(self._dataset.schema)
        self._covariates = [name for name in names if name not in taken] if covariates is None else list(covariates)
        unknown = [name for name in (*self._outcomes, *self._covariates) if name not in names]
        if unknown or (weight is not None and weight not in names):
            raise ValueError(f"Expected columns of the files: {', '.join(names)}; got {(*unknown, weight)[0]!r}.")

    def map(self, task: Callable[..., Any], each: Iterable[Any], *args: Any) -> list[Any]:
        """What task(X, y, weight, one of `each`, *args) returns for every piece."""
        return [task(*piece, one, *args) for piece, one in zip(self._read(), each, strict=False)]

    def sources(self, reader: Reader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows and those set aside, in files of their own."""
        pieces = (reader(*piece, place) for piece, place in zip(self._read(), places, strict=True))
        return spilled(pieces, sizes, self._directory, pool)

    def _read(self) -> Iterator[Piece]:
        weight = [] if self._weight is None else [self._weight]
        batches = self._dataset.to_batches(
            columns=[*self._covariates, *self._outcomes, *weight],
            batch_size=_BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
        )
        for batch in batches:
            if len(batch):
                frame = batch.to_pandas(ignore_metadata=True)
                given = None if self._weight is None else frame[self._weight].to_numpy()
                yield frame[self._covariates], frame[self._outcomes], given


def _columns(schema: Any) -> list[str]:
    """Names of the columns; an index that pandas wrote is none."""
    indices = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name not in indices]
