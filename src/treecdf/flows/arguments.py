"""Checks of the arguments of all kinds of distributions: levels, outcomes, rows, numbers of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecdf._common.typing import Array, Bools, Ints
from treecdf._common.validation import check_setting, is_int

# What chooses rows of a distribution: as in an array of one axis.
Rows: TypeAlias = int | np.integer | slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | Bools


def read_points(y: ArrayLike, n: int, d: int, is_grid: bool = False) -> tuple[Array, tuple[int, ...]]:
    """Outcomes as (n, m, d) without NaN, and the shape (n,) or (n, m) of one answer for each.

    One outcome for all rows is a number, or d numbers; m outcomes for all rows have the shape (m,) or (m, d) if
    `is_grid`, and (1, m) or (1, m, d) in any case.
    """
    values = _as_numbers(y, "y")
    if np.isnan(values).any():
        raise ValueError("y contains NaN.")
    point = () if d == 1 else (d,)  # the shape of one outcome
    is_of_points = values.shape[values.ndim - len(point) :] == point
    n_axes = values.ndim - len(point)
    if is_of_points and not is_grid and n_axes == 0:
        return np.broadcast_to(values.reshape(1, 1, d), (n, 1, d)), (n,)
    if is_of_points and not is_grid and n_axes in (1, 2) and len(values) == n:
        m = 1 if n_axes == 1 else values.shape[1]
        return np.ascontiguousarray(values).reshape(n, m, d), values.shape[:n_axes]
    is_row = n_axes == 2 and len(values) == 1  # one row of outcomes, for all rows
    if is_of_points and (is_row or (n_axes == 1 and (is_grid or n == 1))):
        m = values.shape[n_axes - 1]
        return np.tile(values.reshape(1, m, d), (n, 1, 1)), (n, m)
    raise ValueError(f"Expected y {_expected_shapes(n, point, is_grid)}; got {values.shape}.")


def _as_numbers(given: ArrayLike, name: str) -> Array:
    """What the user gave as float64."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} cannot be read as numbers: {error}") from None


def _expected_shapes(n: int, point: tuple[int, ...], is_grid: bool) -> str:
    """The shapes that outcomes may have, in words."""
    own = "".join(f", {size}" for size in point)
    if is_grid:
        return f"of shape (m{own or ','}), the same outcomes for all rows"
    one = f"{point[0]} numbers" if point else "a number"
    return f"of shape ({n}{own or ','}) or ({n}, m{own}), or {one} for all rows, or (m{own or ','}) with grid=True"


def read_truth(y: ArrayLike, n: int) -> Array:
    """Finite outcomes (n, 1), one for each row of a distribution of one outcome, or one for all."""
    if np.shape(y) not in ((), (n,), (n, 1)):
        raise ValueError(f"Expected y of shape ({n},), one outcome for each row; got {np.shape(y)}.")
    truth = read_points(y, n, 1)[0][:, 0]
    if np.isinf(truth).any():
        raise ValueError(f"y contains infinity in row {int(np.argmax(np.isinf(truth)))}: expected finite numbers.")
    return truth


def read_levels(p: ArrayLike, n: int) -> tuple[Array, bool]:
    """Levels (n, m) of quantiles, and whether a single one was given."""
    levels = _as_numbers(p, "levels")
    wrong = ~((levels >= 0) & (levels <= 1))
    if wrong.any():
        first = levels[wrong].flat[0]
        hint = f": {first:g} % is {first / 100:g}" if 1 < first <= 100 else ""
        raise ValueError(f"Expected levels between 0 and 1; got {first:g}{hint}.")
    if levels.ndim > 2 or (levels.ndim == 2 and len(levels) != n):
        raise ValueError(f"Expected levels of shape (m,) or ({n}, m); got {levels.shape}.")
    shape = (n, levels.shape[-1] if levels.ndim else 1)
    return np.array(np.broadcast_to(np.atleast_1d(levels), shape)), levels.ndim == 0


def interval_levels(level: ArrayLike) -> Array:
    """Levels (2,) of the ends of a central interval with probability `level`, or (2, k) for k levels."""
    inside = np.asarray(level, dtype=np.float64)
    if inside.ndim > 1 or not ((inside > 0) & (inside < 1)).all():
        raise ValueError(f"Expected a level between 0 and 1, or several; got {level!r}.")
    return np.stack([(1 - inside) / 2, (1 + inside) / 2])


def read_n_samples(n_samples: int) -> int:
    """The number of draws at each row, an integer of at least 0."""
    is_valid = is_int(n_samples) and n_samples >= 0
    check_setting("n_samples", n_samples, is_valid, "an integer of at least 0")
    return int(n_samples)


def read_outcome(j: int | str, names: Sequence[str]) -> int:
    """The number of one of the outcomes that have these names; negative numbers count from the last."""
    d = len(names)
    if isinstance(j, str):
        if j not in names:
            raise ValueError(f"Expected an outcome among {', '.join(map(repr, names))}; got {j!r}.")
        return list(names).index(j)
    if not is_int(j):
        raise TypeError(f"Expected the name of an outcome, or its number, an integer below {d}; got {j!r}.")
    if not -d <= j < d:
        raise IndexError(f"Expected an outcome below {d}; got {j}.")
    return int(j) % d


def read_rows(rows: Rows, n: int) -> Ints:
    """Numbers (k,) of the chosen rows of n; a single number chooses one row."""
    chosen = np.atleast_1d(np.arange(n)[rows])
    if rows is None or chosen.ndim != 1:
        raise IndexError(f"Expected rows as in an array of one axis, such as 3, [0, 2] or a mask; got {rows!r}.")
    return chosen


def expect_one_outcome(name: str, d: int) -> None:
    """Raise a ValueError if a method for one outcome is called on a distribution of several."""
    if d > 1:
        raise ValueError(f"{name} is for one outcome; this distribution has {d}: see marginal.")
