"""A table in pieces: frames or arrays of consecutive rows, as files and Dask collections have them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from treecdf._common.typing import Array, Bound, Ints
from treecdf.data.blocks import one_in
from treecdf.data.reading import Schema
from treecdf.data.table import Table, check_bounds, read_table
from treecdf.training.sources.rows import Source

Columns = tuple[Array, Array, Array]  # x (m, q), y (m, d), weight (m,)
Piece = tuple[Any, Any, Any]  # X, y and sample_weight (or None) of consecutive rows
Opened = contextlib.AbstractContextManager[tuple[Source, Source | None]]
Place = tuple[int, Ints]  # number of a piece's first row; rows set aside, counted from it among those with a weight


class Pieces(Protocol):
    """A table in pieces."""

    def map(self, task: Callable[..., Any], each: Iterable[Any], *args: Any) -> list[Any]:
        """What task(X, y, weight, one of `each`, *args) returns for every piece."""
        ...

    def sources(self, reader: Reader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows, and those set aside, of which every piece has sizes (pieces, 2)."""
        ...


@dataclass(frozen=True)
class Reader:
    """Reads pieces by what is known of the columns, and divides them into training and validation rows."""

    schema: Schema
    bounds: Sequence[Bound]  # of each outcome

    def __call__(self, X: Any, y: Any, weight: Any, place: Place) -> tuple[Columns, Columns]:
        """The training rows and those set aside."""
        first, aside = place
        if not count_rows(X, y, weight, None)[1]:
            nothing = np.empty((0, self.schema.covariates.width)), np.empty((0, len(self.bounds))), np.empty(0)
            return nothing, nothing
        try:
            table = read_table(self.schema, X, y, weight)
        except ValueError as error:
            raise ValueError(f"In rows {first} to {first + len(X) - 1}, counted from {first}: {error}") from None
        table = Table(table.x, table.y, table.weight, table.number + first)
        check_bounds(table, self.bounds, "y")
        chosen = np.zeros(len(table), bool)
        chosen[aside] = True
        train, held_out = table.take(~chosen), table.take(chosen)
        return (train.x, train.y, train.weight), (held_out.x, held_out.y, held_out.weight)


def count_rows(X: Any, y: Any, weight: Any, _: None) -> tuple[int, int]:
    """Rows of a piece, and how many of them have a weight."""
    if len(X) != len(y) or (weight is not None and len(weight) != len(X)):
        raise ValueError(
            f"A piece of X has {len(X)} rows, the same piece of y has {len(y)}: they must be divided in the same way."
        )
    return len(X), len(X) if weight is None else int((np.asarray(weight) > 0).sum())


def take_rows(X: Any, y: Any, weight: Any, first: int, step: int) -> Piece:
    """About one in `step` rows of a piece that begins with row `first`."""
    chosen = np.flatnonzero(one_in(step, first, len(X)))
    return _take(X, chosen), _take(y, chosen), None if weight is None else np.asarray(weight)[chosen]


def _take(part: Any, rows: Ints) -> Any:
    return part.iloc[rows] if hasattr(part, "iloc") else np.asarray(part)[rows]
