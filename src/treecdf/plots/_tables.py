"""Covariates as arrays or frames: their columns, names and typical values, whatever the type of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from treecdf._common.typing import Array, Ints
from treecdf.data.dates import as_dates
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.recorded import RecordedDistribution

_MOST_LEVELS = 20  # names with a place of their own
_N_MIXED = 99  # quantiles of each of the names that share a place, up to levels of this logit
_FAR_LEVEL = 9.0
_N_POINTS = 800  # at which the CDF of their mixture is taken
Dates: TypeAlias = NDArray[np.datetime64]

# A frame of pandas or of polars; neither need be installed.
Frame: TypeAlias = Any
# One of its columns: an array of pandas, a series of polars, or a column of an array.
Column: TypeAlias = Any


class Level(NamedTuple):
    """A category of a column, a row that has it, and the number of rows that have it."""

    name: str
    row: int
    n_rows: int


@dataclass(frozen=True)
class Grid:
    """Values of a column along an axis: those to show, and those (k,) to put into the column.

    Categories may share a position: `place` (k,) is the position of each value, `weight` (k,) how many rows have it,
    and `members` the categories at each position.
    """

    shown: Array | Dates | list[str]
    column: Column
    place: Ints
    weight: Array | None = None
    members: list[list[str]] = field(default_factory=list)

    def quantiles(self, distribution: ConditionalDistribution, levels: Array) -> Array:
        """Quantiles (places, m) of the distributions of the values (k,); those that share a position are mixed."""
        found = distribution.icdf(levels)
        if self.weight is None or len(self.shown) == len(self.column):
            return found
        last = len(self.shown) - 1
        together = self.place == last
        share = self.weight[together] / self.weight[together].sum()
        return np.vstack([found[~together], _mixed_quantiles(distribution[together], share, levels)])

    def mean(self, values: Array) -> Array:
        """Means (places, m) of numbers (k, m), weighted by the rows of the values that share a position."""
        if self.weight is None:
            return values
        total = np.bincount(self.place, self.weight)
        sums = [np.bincount(self.place, self.weight * column) for column in values.T]
        return np.column_stack(sums) / total[:, None]


def _mixed_quantiles(distribution: ConditionalDistribution, share: Array, levels: Array) -> Array:
    """Quantiles (m,) of the mixture of distributions with shares (k,): its exact CDF is inverted on a grid."""
    points = distribution.icdf(expit(np.linspace(-_FAR_LEVEL, _FAR_LEVEL, _N_MIXED)))
    if isinstance(distribution, RecordedDistribution):
        points = np.unique(points)
        reached = share @ distribution.cdf(points, grid=True)
        return np.asarray(points[np.minimum(np.searchsorted(reached, levels - 1e-12), len(points) - 1)])
    points = np.unique(np.quantile(points, np.linspace(0, 1, _N_POINTS)))
    return np.interp(levels, share @ distribution.cdf(points, grid=True), points)


class Covariates:
    """The covariates X (n, q) of a picture, column by column; frames stay frames of the same kind."""

    def __init__(self, model: object, X: ArrayLike) -> None:
        self._frame: Frame = X if hasattr(X, "columns") else None
        self._columns = _columns_of_frame(X) if hasattr(X, "columns") else _columns_of_array(X)
        self.names = feature_names(model, X, len(self._columns))

    def __len__(self) -> int:
        return len(self._columns[0])

    def find(self, feature: int | str) -> int:
        """Number of the column of that name or number."""
        q = len(self.names)
        if isinstance(feature, str) and feature in self.names:
            return self.names.index(feature)
        if isinstance(feature, (int, np.integer)) and -q <= feature < q:
            return int(feature) % q
        known = ", ".join(map(repr, self.names[:20]))
        raise ValueError(f"Expected feature to be a number below {q} or one of {known}; got {feature!r}.")

    def numbers(self, j: int) -> Array | None:
        """Column j as floats, None if it holds names or dates."""
        return np.asarray(self._columns[j], dtype=np.float64) if _is_number(self._columns[j]) else None

    def places(self, j: int, grid: Grid) -> Array | Dates:
        """Positions of the rows on the axis of column j: its numbers or dates, or the positions of its categories."""
        numbers, dates = self.numbers(j), self._dates(j)
        if numbers is not None:
            return numbers
        if dates is not None:
            return dates
        names = np.asarray(self._columns[j]).astype(str)
        place = {name: float(k) for k, part in enumerate(grid.members) for name in part}
        return np.array([place.get(name, np.nan) for name in names], dtype=np.float64)

    def grid(self, j: int, n_grid: int) -> Grid:
        """Values of column j along the axis.

        Few numbers or dates, and categories, are taken as they are; many numbers or dates are replaced by equally
        spaced ones. Of many categories the most common have a position each, and the others share the last one.
        """
        numbers, dates = self.numbers(j), self._dates(j)
        if numbers is None and dates is None:
            return self._grid_of_levels(j)
        values = numbers if dates is None else dates
        known = np.unique(values[~np.isnan(values)])  # type: ignore[index, arg-type]  # one of the two is there
        if len(known) > n_grid:
            whole = known if dates is None else known.astype(np.int64)
            known = np.linspace(whole[0], whole[-1], n_grid).astype(known.dtype)
        return Grid(known, known, np.arange(len(known)))

    def _grid_of_levels(self, j: int) -> Grid:
        """The most common categories of column j with a position each, and the others at one position."""
        levels = self._levels(j)
        common = sorted(levels, key=lambda level: -level.n_rows)[:_MOST_LEVELS]
        alone = [level for level in levels if level in common]
        names = {level.name for level in alone}
        others = [level for level in levels if level.name not in names]
        rows = [level.row for level in (*alone, *others)]
        place = np.r_[np.arange(len(alone)), np.full(len(others), len(alone))]
        shown = [level.name for level in alone] + [f"{len(others)} others"] * bool(others)
        members = [[level.name] for level in alone] + [[level.name for level in others]] * bool(others)
        weight = np.array([level.n_rows for level in (*alone, *others)], dtype=np.float64)
        return Grid(shown, self._columns[j][np.array(rows)], place, weight, members)

    def _dates(self, j: int) -> Dates | None:
        """Column j as points in time, None if it holds none."""
        return None if _is_number(self._columns[j]) else as_dates(np.asarray(self._columns[j]))

    def take(self, rows: Ints) -> list[Column]:
        """Columns of some of the rows."""
        return [column[rows] for column in self._columns]

    def typical(self, m: int, fixed: Mapping[int | str, float | str]) -> list[Column]:
        """Columns of m equal rows: medians and the commonest categories, except for columns with fixed values."""
        given = {self.find(name): value for name, value in fixed.items()}
        return [self._constant(j, m, given.get(j)) for j in range(len(self._columns))]

    def table(self, columns: list[Column]) -> ArrayLike:
        """What the model takes, made of columns."""
        if self._frame is not None:
            return type(self._frame)(dict(zip(self._frame.columns, columns, strict=True)))
        is_numeric = all(_is_number(column) for column in columns)
        table = np.empty((len(columns[0]), len(columns)), dtype=np.float64 if is_numeric else object)
        for j, column in enumerate(columns):
            table[:, j] = column
        return table

    def _constant(self, j: int, m: int, value: float | str | None) -> Column:
        """Column j of m equal rows: a given value, else the median or the commonest category."""
        numbers, dates = self.numbers(j), self._dates(j)
        if numbers is not None:
            return np.full(m, np.nanmedian(numbers) if value is None else value, dtype=np.float64)
        if dates is not None:
            known = np.sort(dates[~np.isnat(dates)])
            return np.full(m, known[len(known) // 2] if value is None else np.datetime64(str(value)), dtype="M8[us]")
        names = np.asarray(self._columns[j]).astype(str)
        if value is None:
            known, count = np.unique(names, return_counts=True)
            value = known[np.argmax(count)]
        rows = np.flatnonzero(names == str(value))
        if not len(rows):
            raise ValueError(f"Expected {self.names[j]} to be one of its values in X; got {value!r}.")
        return self._columns[j][np.full(m, rows[0])]

    def _levels(self, j: int) -> list[Level]:
        """Categories of column j, missing values left out, in their order if they have one."""
        values = np.asarray(self._columns[j], dtype=object)
        rows = [i for i, value in enumerate(values) if value is not None and value == value]
        names, first, count = np.unique([str(values[i]) for i in rows], return_index=True, return_counts=True)
        levels = [Level(str(name), rows[k], int(n)) for name, k, n in zip(names, first, count, strict=True)]
        dtype = self._columns[j].dtype
        if not getattr(dtype, "ordered", False):
            return levels
        place = {str(name): k for k, name in enumerate(dtype.categories)}
        return sorted(levels, key=lambda level: place[level.name])


def feature_names(model: object, X: ArrayLike | None, q: int) -> list[str]:
    """Names of the covariates: the frame's, those the model was fitted with, or x0, x1, ..."""
    names = getattr(X, "columns", getattr(model, "feature_names_in_", None))
    return [f"x{j}" for j in range(q)] if names is None else [str(name) for name in names]


def _columns_of_frame(X: Frame) -> list[Column]:
    """pandas: arrays without an index, dtypes kept; polars: series."""
    if hasattr(X, "iloc"):
        return [X.iloc[:, j].array for j in range(X.shape[1])]
    return list(X.get_columns())


def _columns_of_array(X: ArrayLike) -> list[Column]:
    """Columns of an array (n, q)."""
    values = np.asarray(X)
    if values.ndim != 2:
        raise ValueError(f"Expected X of shape (n, covariates); got {values.shape}.")
    return list(values.T)


def _is_number(column: Column) -> bool:
    """Whether a column holds numbers, not names."""
    dtype = column.dtype
    return dtype.kind in "iuf" if hasattr(dtype, "kind") else bool(dtype.is_numeric())
