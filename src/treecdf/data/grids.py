"""Grids of recorded values, and the cells around the values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treecdf._common.typing import Array, Bools, Ints

_SAME_CELL = 1e-6  # of a step: what is so near a point of the grid is that point


@dataclass(frozen=True)
class Cells:
    """The cells (n, d) of recorded outcomes; one without width is the outcome itself.

    An outcome was somewhere from `lower` to `upper`, one of which is infinite where nothing is recorded beyond.
    """

    value: Array  # that was recorded
    lower: Array
    upper: Array
    width: Array
    share: Array  # where in the cell the outcome was put, from 0 to 1, at random

    def take(self, rows: Ints | Bools) -> Cells:
        """The cells of some of the rows."""
        return Cells(self.value[rows], self.lower[rows], self.upper[rows], self.width[rows], self.share[rows])

    def over(self, unit: Array) -> Cells:
        """The cells of outcomes over a unit (n, 1) of each row."""
        return Cells(self.value / unit, self.lower / unit, self.upper / unit, self.width / unit, self.share)

    def of(self, outcome: int) -> Cells | None:
        """The cells of one outcome; None if it is on no grid."""
        own = slice(None), [outcome]
        return self.take(own) if self.width[own].any() else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class Grid:
    """A grid that outcomes are recorded on: origin + step times an integer; a step of 0 is no rounding."""

    origin: Array  # (d,)
    step: Array  # (d,)

    def of(self, outcome: int) -> Grid:
        """The grid of one outcome."""
        return Grid(self.origin[[outcome]], self.step[[outcome]])

    def round(self, y: Array) -> Array:
        """The recorded values of outcomes y (..., d)."""
        step = np.where(self.step > 0, self.step, 1.0)
        with np.errstate(invalid="ignore"):
            rounded = self.origin + step * np.round((y - self.origin) / step)
        return np.where((self.step > 0) & np.isfinite(y), rounded, y)

    def edge(self, y: Array) -> Array:
        """Where the cells of recorded values up to y (..., d) end and those of values above y begin."""
        step = np.where(self.step > 0, self.step, 1.0)
        with np.errstate(invalid="ignore"):
            number = np.floor((y - self.origin) / step + _SAME_CELL)
            edge = self.origin + step * (number + 0.5)
        return np.where((self.step > 0) & np.isfinite(y), edge, y)

    def edge_below(self, y: Array) -> Array:
        """Where the cells of recorded values below y (..., d) end."""
        step = np.where(self.step > 0, self.step, 1.0)
        return np.where(self.step > 0, self.edge(y - 2 * _SAME_CELL * step), y)

    def sides(self, values: Array) -> tuple[Array, Array]:
        """Lower and upper ends (..., d) of the finite cells of recorded values."""
        return values - self.step / 2, values + self.step / 2

    def cell(self, values: Array) -> tuple[Array, Array]:
        """Lower and upper ends (..., d) of the cells, infinite where nothing is recorded beyond a value.

        Everything beyond counts as this value.
        """
        return self.sides(values)

    def is_beyond(self, y: Array) -> Bools:
        """Whether outcomes y (..., d) are beyond the ends of the grid."""
        return np.zeros(np.shape(y), bool)

    def values_between(self, low: float, high: float, most: int) -> Array | None:
        """The recorded values (K,) of one outcome from low to high; None if there are more than `most`."""
        first, last = np.round((np.array([low, high]) - self.origin[0]) / self.step[0])
        return self.origin[0] + self.step[0] * np.arange(first, last + 1) if last - first < most else None

    def spread(self, y: Array, rng: np.random.Generator) -> Array:
        """Outcomes (n, d) drawn uniformly from the cells of recorded outcomes y (n, d)."""
        lower, upper = self.sides(y)
        return np.asarray(lower + (upper - lower) * rng.random(y.shape))


@dataclass(frozen=True)
class ClosedGrid(Grid):
    """A grid of one outcome that may end: there is nothing beyond its ends, infinite ones aside."""

    ends: Array  # (2,): lowest and highest value

    def of(self, outcome: int) -> Grid:
        """The grid itself."""
        return self

    def round(self, y: Array) -> Array:
        """The recorded values of outcomes y (..., 1)."""
        return np.clip(super().round(y), *self.ends)

    def edge(self, y: Array) -> Array:
        """Where the cells of recorded values up to y (..., 1) end; infinite at and beyond the ends."""
        low, high = self.ends + np.array([-1, -1]) * _SAME_CELL * self.step
        return np.where(y < low, -np.inf, np.where(y >= high, np.inf, super().edge(y)))

    def cell(self, values: Array) -> tuple[Array, Array]:
        """Lower and upper ends (..., 1) of the cells, infinite at the ends of the grid."""
        lower, upper = self.sides(values)
        return np.where(values <= self.ends[0], -np.inf, lower), np.where(values >= self.ends[1], np.inf, upper)

    def is_beyond(self, y: Array) -> Bools:
        """Whether outcomes y (..., 1) are past the cells of the ends."""
        half = self.step / 2 * (1 + _SAME_CELL)
        return np.asarray((y < self.ends[0] - half) | (y > self.ends[1] + half))


@dataclass(frozen=True)
class ListedValues:
    """The few values of one outcome, at uneven distances; the cells between them meet half-way."""

    values: Array  # (K,), ascending, at least 2

    @property
    def _edges(self) -> Array:
        """All ends (K + 1,) of the cells; the first and the last reach as far outwards as inwards."""
        middle = (self.values[1:] + self.values[:-1]) / 2
        first, last = 2 * self.values[0] - middle[0], 2 * self.values[-1] - middle[-1]
        return np.concatenate([[first], middle, [last]])

    def of(self, outcome: int) -> ListedValues:
        """The values themselves."""
        return self

    def _place(self, y: Array) -> Ints:
        """Number of the cell that each of the outcomes is in."""
        return np.searchsorted(self._edges[1:-1], y, side="left")

    def round(self, y: Array) -> Array:
        """The nearest of the values for each of the outcomes y (..., 1)."""
        return self.values[self._place(y)]

    def edge(self, y: Array) -> Array:
        """Where the cells of values up to y (..., 1) end; infinite at and beyond the ends."""
        slack = _SAME_CELL * np.diff(self.values).min()
        edges = np.concatenate([[-np.inf], self._edges[1:-1], [np.inf]])
        return edges[np.searchsorted(self.values - slack, y, side="right")]

    def edge_below(self, y: Array) -> Array:
        """Where the cells of values below y (..., 1) end."""
        return self.edge(y - 2 * _SAME_CELL * np.diff(self.values).min())

    def sides(self, values: Array) -> tuple[Array, Array]:
        """Lower and upper ends (..., 1) of the finite cells of values."""
        place = self._place(values)
        return self._edges[place], self._edges[place + 1]

    def cell(self, values: Array) -> tuple[Array, Array]:
        """Lower and upper ends (..., 1) of the cells, infinite at the first and the last value."""
        lower, upper = self.sides(values)
        return np.where(values <= self.values[0], -np.inf, lower), np.where(values >= self.values[-1], np.inf, upper)

    def is_beyond(self, y: Array) -> Bools:
        """Whether outcomes y (..., 1) are past the cells of the first and the last value."""
        return np.asarray((y < self._edges[0]) | (y > self._edges[-1]))

    def values_between(self, low: float, high: float, most: int) -> Array | None:
        """All values (K,) from low to high; None if there are more than `most`."""
        inside = self.values[(self.values >= low) & (self.values <= high)]
        return inside if len(inside) <= most else None

    def spread(self, y: Array, rng: np.random.Generator) -> Array:
        """Outcomes (n, 1) drawn uniformly from the cells of values y (n, 1)."""
        lower, upper = self.sides(y)
        return np.asarray(lower + (upper - lower) * rng.random(y.shape))

    def describe(self) -> str:
        """The values as text."""
        return ", ".join(f"{value:g}" for value in self.values)


AnyGrid = Grid | ListedValues


def cells_of(grid: AnyGrid, value: Array, y: Array, low: Array, high: Array) -> Cells:
    """The cells of recorded values (n, d), whose outcomes were placed at y (n, d), within bounds (d,)."""
    lower, upper = (np.clip(end, low, high) for end in grid.sides(value))
    width = upper - lower
    share = np.where(width > 0, (y - lower) / np.where(width > 0, width, 1.0), 0.5)
    outer = grid.cell(value)
    cells = Cells(value, lower, upper, width, np.clip(share, 0.0, 1.0))
    return replace(cells, lower=np.maximum(outer[0], low), upper=np.minimum(outer[1], high))
