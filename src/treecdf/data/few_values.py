"""Outcomes of few values: grades, counts, ages, prices in steps. How they are recognised, and their possible values.

Copies of a row and weights make no difference, nor do origin and unit of the outcome (ADR 32).
"""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.data.grids import AnyGrid, ClosedGrid, ListedValues

FEWEST_ROWS = 10.0  # weight of the rows that few values can be told of
_ROWS_OF_A_VALUE = 2  # distinct rows for each value of a grid, on average
_MOST_CELLS = 100  # of the inner nine tenths of the rows
_MOST_CELLS_OF_SEVERAL = 20  # the same where there are several outcomes, whose cells take longer to integrate
_FEWEST_OCCUPIED = 0.5  # share of these cells that have a row
_MOST_LISTED = 20, 50  # values at uneven distances
_ROWS_OF_A_LISTED_VALUE = 5, 20  # distinct rows for each of these, on average
_EXPECTED = 5.0  # rows that a gap between two values has, by its neighbours, if it is no gap by chance
_EXPECTED_BEYOND = 1.0  # rows that the next value would have, going by the last two, if nothing ended there
_ROWS_OF_AN_END = 5  # that the last value needs for that
_SAME_VALUE = (
    1e-12  # of the largest values, outliers aside: outcomes that are nearer to one another differ by rounding only
)
_OFF_GRID = 1e-2  # of a step: outcomes that are farther from every point are on no grid
_MOST_CELLS_IN_ALL = 1e7  # between the smallest and the largest outcome


def find_values(y: Array, total: float, is_only: bool = True) -> AnyGrid | None:
    """The grid, or the list of values, of an outcome y (n,) of few values; None if it has many.

    y has one number for each distinct row, total is the sum of their weights; is_only: there is no other outcome.
    """
    n = len(y)
    values, count = distinct_values(y)
    if len(values) < 2 or n < _ROWS_OF_A_VALUE * len(values) or total < FEWEST_ROWS:
        return None
    step = step_of(values)
    if step > 0:
        place = np.round((values - values[0]) / step).astype(np.int64)
        few = _MOST_CELLS if is_only else _MOST_CELLS_OF_SEVERAL
        if _is_dense(place, count, few) and not (is_only and _is_list(len(values), n) and _has_gap(place, count)):
            return closed_grid(y, step)
    return ListedValues(values) if is_only and _is_list(len(values), n) else None


def _is_list(k: int, n: int) -> bool:
    """Whether n distinct rows are enough to speak of k values at uneven distances."""
    pairs = zip(_MOST_LISTED, _ROWS_OF_A_LISTED_VALUE, strict=True)
    return any(k <= most and n >= rows * k for most, rows in pairs)


def closed_grid(y: Array, step: float) -> ClosedGrid:
    """The grid of this step that contains outcomes y (n,), with ends where the counts of values suggest them."""
    place, count = np.unique(np.round((y - y.min()) / step), return_counts=True)
    origin = float(y.min())
    if len(place) == 2:  # of two values there is no third
        ends = place
    else:
        ends = np.array([_end(place, count), -_end(-place[::-1], count[::-1])])
    return ClosedGrid(np.array([origin]), np.array([step]), origin + step * ends)


def distinct_values(y: Array) -> tuple[Array, Ints]:
    """Values (K,) of outcomes y (n,), ascending, but for differences of rounding, and how often they come."""
    values, count = np.unique(y, return_counts=True)
    with np.errstate(over="ignore"):
        is_new = np.append(True, np.diff(values) > _SAME_VALUE * np.quantile(np.abs(values), 0.95))
    return values[is_new], np.add.reduceat(count, np.flatnonzero(is_new))


def step_of(values: Array) -> float:
    """The largest step that at least two distinct values (K,), ascending, are multiples of, apart from an offset; or 0.

    Only the smallest distance between two of them is tried.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.diff(values).min()
        multiples = (values - values[0]) / step
        is_grid = np.abs(multiples - np.round(multiples)).max() < _OFF_GRID and multiples[-1] < _MOST_CELLS_IN_ALL
    return float(step) if is_grid else 0.0


def _is_dense(place: Ints, count: Ints, most: int) -> bool:
    """Whether the inner nine tenths of the rows are in few cells, most of which have one."""
    below = np.cumsum(count) / count.sum()
    first, last = np.searchsorted(below, [0.05, 0.95])
    cells = place[last] - place[first] + 1
    return bool(cells <= most and last - first + 1 >= _FEWEST_OCCUPIED * cells)


def _has_gap(place: Ints, count: Ints) -> bool:
    """Whether some cell between the values is empty though its neighbours say that it should not be."""
    expected = np.sqrt(count[1:] * count[:-1])
    return bool(((np.diff(place) > 1) & (expected >= _EXPECTED)).any())


def _end(place: Array, count: Ints) -> float:
    """The first place if nothing is to be expected before it, else minus infinity.

    If counts went on as from the second value to the first, the next would be count[0]^2 / count[1] or less, as those
    of most distributions fall ever faster towards their ends.
    """
    is_next = len(place) > 1 and place[1] - place[0] == 1
    expected = count[0] ** 2 / (count[1] if is_next else 1)
    return float(place[0]) if count[0] >= _ROWS_OF_AN_END and expected >= _EXPECTED_BEYOND else -np.inf
