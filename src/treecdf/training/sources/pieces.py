"""A table in pieces: frames or arrays of consecutive rows, from files and Dask collections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Bools, Bound, Ints, Units
from treecdf.data.blocks import one_in
from treecdf.data.reading import Schema, learn_columns
from treecdf.data.recording import atom_labels
from treecdf.data.table import Table, check_bounds, read_outcomes, read_table
from treecdf.data.units import copies_of, keyed, units_of_content, units_of_groups
from treecdf.training.sources.rows import Source

if TYPE_CHECKING:
    import pandas

Columns = tuple[Array, Array, Array]  # x (m, q), y (m, d), weight (m,)
Given: TypeAlias = "pandas.DataFrame | pandas.Series | NDArray[np.generic]"  # as files and collections have it
Piece: TypeAlias = "tuple[Given, Given, Given | None, Given | None]"  # X, y, weights and groups of some rows
Opened = contextlib.AbstractContextManager[tuple[Source, Source | None]]
_MOST_COPIES = 8  # of a row in a piece that are in a sample together
Place = tuple[int, Ints]  # number of a piece's first row; rows set aside, counted from it among those with a weight


class Pieces(Protocol):
    """A table in pieces of consecutive rows, which are the same whenever they are read."""

    def sizes(self) -> Ints:
        """Rows of every piece, and how many of them have a weight above zero, (pieces, 2)."""
        ...

    def whole(self) -> Piece:
        """All rows as one piece in memory."""
        ...

    def chosen(self, pick: Pick, firsts: Sequence[int]) -> list[Piece]:
        """The rows of every piece that are in a sample; the pieces begin with the rows `firsts`."""
        ...

    def sample(self, firsts: Sequence[int], step: int) -> list[Piece]:
        """About one in `step` rows of every piece; the pieces begin with the rows `firsts`."""
        ...

    def units(self, reader: PieceReader) -> list[Units]:
        """Units (m,) of the rows of every piece that have a weight above zero."""
        ...

    def sources(self, reader: PieceReader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows, and those set aside, of which every piece has sizes (pieces, 2)."""
        ...


@dataclass(frozen=True)
class Pick:
    """A random sample of the rows, drawn by their contents or groups, so that their order does not matter.

    Groups are in it completely or not at all; so are up to 8 copies of a row in a piece. Of more copies, which occur if
    outcomes and covariates have few values, a share is in it; otherwise a sample could have all rows with one outcome
    and none with another.
    """

    share: float  # of the rows, between 0 and 1
    key: int  # below 2^64; another one gives another sample

    def __call__(self, X: Given, y: Given, weight: Given | None, groups: Given | None, first: int) -> Piece:
        """The rows of a piece that are in the sample and have a weight; the piece begins with row `first`."""
        mask = self.mask(X, y, groups, first)
        chosen = np.flatnonzero(mask if weight is None else mask & (np.asarray(weight) > 0))
        weight, groups = (None if part is None else np.asarray(part)[chosen] for part in (weight, groups))
        return take(X, chosen), take(y, chosen), weight, groups

    def mask(self, X: Given, y: Given, groups: Given | None, first: int) -> Bools:
        """Whether rows (m,) are in the sample; the piece begins with row `first`."""
        if not len(X):
            return np.zeros(0, bool)
        with naming_rows(first, len(X)):
            if groups is not None:
                return self._draw(units_of_groups(groups, len(X))) < self.share
            units = units_of_content(learn_columns(X)[1], read_outcomes(y))
        nth, count = copies_of(units)
        reached = self.share * nth + self._draw(units, first)
        return np.where(
            count <= _MOST_COPIES, self._draw(units) < self.share, np.floor(reached + self.share) > np.floor(reached)
        )

    def _draw(self, units: Units, salt: int = 0) -> Array:
        """A number between 0 and 1 for each unit (n,)."""
        return (keyed(units, (self.key + salt) % 2**64) >> np.uint64(11)) / 2.0**53  # float64 has these exactly


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces by the schema of the columns, and divides them into training and validation rows."""

    schema: Schema
    bounds: Sequence[Bound]  # of each outcome
    without: Pick | None = None  # rows that are left aside
    atoms: Array = field(default_factory=lambda: np.empty(0))  # (K,): rows with these outcomes are left aside, too
    link: tuple[int, tuple[int, ...]] | None = None  # an outcome, and those that are covariates; None: all outcomes

    def units(self, X: Given, y: Given, weight: Given | None, groups: Given | None, first: int) -> Units:
        """Units (m,) of the rows that have a weight; the piece begins with row `first`."""
        table = self._table(X, y, weight, groups, first)
        return np.empty(0, np.uint64) if table is None else table.unit

    def __call__(
        self, X: Given, y: Given, weight: Given | None, groups: Given | None, place: Place
    ) -> tuple[Columns, Columns]:
        """The training rows and those set aside, each x (m, q), y (m, d) and weight (m,)."""
        first, aside = place
        table = self._table(X, y, weight, groups, first)
        if table is None:
            width, d = (0, len(self.bounds)) if self.link is None else (len(self.link[1]), 1)
            nothing = np.empty((0, self.schema.covariates.width + width)), np.empty((0, d)), np.empty(0)
            return nothing, nothing
        check_bounds(table, self.bounds, "y")
        if self.link is not None:
            table = table.link(*self.link)
        chosen = np.zeros(len(table), bool)
        chosen[aside] = True
        train, held_out = table.take(~chosen), table.take(chosen)
        return (train.x, train.y, train.weight), (held_out.x, held_out.y, held_out.weight)

    def _table(self, X: Given, y: Given, weight: Given | None, groups: Given | None, first: int) -> Table | None:
        """The rows of a piece, counted from the first of all; None if none has a weight."""
        if self.without is not None:
            weight = _weights_of(~self.without.mask(X, y, groups, first), weight)
        if len(self.atoms):
            with naming_rows(first, len(X)):
                weight = _weights_of(atom_labels(read_outcomes(y)[:, 0], self.atoms) == 0, weight)
        if not count_rows(X, y, weight)[1]:
            return None
        with naming_rows(first, len(X)):
            table = read_table(self.schema, X, y, weight, groups, is_piece=True)
        return replace(table, number=table.number + first)


def _weights_of(mask: Bools, weight: Given | None) -> Array:
    """Weights (m,), 0 of the rows that are not in the mask (m,)."""
    return np.where(mask, 1.0 if weight is None else np.asarray(weight, np.float64), 0.0)


@contextlib.contextmanager
def naming_rows(first: int, n: int) -> Iterator[None]:
    """Within this block error messages name the n rows of the piece, of which `first` is the first."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In rows {first} to {first + n - 1}, counted from {first}: {error}") from None


def count_rows(X: Given, y: Given, weight: Given | None) -> tuple[int, int]:
    """Rows of a piece, and how many of them have a weight above zero."""
    if len(X) != len(y) or (weight is not None and len(weight) != len(X)):
        raise ValueError(
            f"A piece of X has {len(X)} rows, the same piece of y has {len(y)}: they must be divided in the same way."
        )
    return len(X), len(X) if weight is None else count_weights(weight)


def count_weights(weight: Given) -> int:
    """How many weights are above zero."""
    return int((np.asarray(weight) > 0).sum())


def take_rows(X: Given, y: Given, weight: Given | None, groups: Given | None, first: int, step: int) -> Piece:
    """About one in `step` rows of a piece that begins with row `first`."""
    chosen = np.flatnonzero(one_in(step, first, len(X)))
    weight, groups = (None if part is None else np.asarray(part)[chosen] for part in (weight, groups))
    return take(X, chosen), take(y, chosen), weight, groups


def take(part: Any, rows: Ints | slice) -> Any:
    """Some rows of a frame, a series or an array."""
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def joined(pieces: Sequence[Piece]) -> Piece:
    """The rows of all pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    X, y, weight, groups = (_concatenated(parts) for parts in zip(*pieces, strict=True))
    return X, y, weight, groups


def _concatenated(parts: Sequence[Any]) -> Any:
    """Frames, series or arrays one after the other, None if there are none; levels of categories are those of all."""
    if parts[0] is None:
        return None
    if not hasattr(parts[0], "iloc"):
        return np.concatenate(parts)
    import pandas

    whole = pandas.concat(parts, ignore_index=True)
    for name in getattr(whole, "columns", ()):
        columns = [part[name] for part in parts]
        if all(isinstance(c.dtype, pandas.CategoricalDtype) for c in columns) and not hasattr(whole[name], "cat"):
            levels = dict.fromkeys(level for column in columns for level in column.cat.categories)
            whole[name] = pandas.Categorical(whole[name], categories=list(levels))
    return whole
