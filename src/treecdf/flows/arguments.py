"""The one place where every kind of distribution checks what it is asked: levels, outcomes, rows, numbers of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecdf._common.typing import Array, Bools, Ints
from treecdf._common.validation import check_setting, is_int

# What chooses rows of a distribution: as in an array of one axis.
Rows: TypeAlias = int | np.integer | slice | Sequence[int] | Sequence[bool] | NDArray[np.integer] | Bools


def read_points(y: ArrayLike, n: int, d: int) -> tuple[Array, tuple[int, ...]]:
    """Outcomes as (n, m, d) without NaN, and the shape (n,) or (n, m) of one answer for each."""
    values = np.asarray(y, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError("y contains NaN.")
    if values.ndim and len(values) == n:
        if d == 1 and values.ndim == 1:
            return values[:, None, None], (n,)
        if d == 1 and values.ndim == 2:
            return np.ascontiguousarray(values)[:, :, None], values.shape
        if d > 1 and values.ndim == 2 and values.shape[1] == d:
            return np.ascontiguousarray(values)[:, None, :], (n,)
        if d > 1 and values.ndim == 3 and values.shape[2] == d:
            return np.ascontiguousarray(values), values.shape[:2]
    expected = f"({n},) or ({n}, m)" if d == 1 else f"({n}, {d}) or ({n}, m, {d})"
    raise ValueError(f"Expected y of shape {expected}; got {values.shape}.")


def read_truth(y: ArrayLike, n: int) -> Array:
    """Finite outcomes (n, 1), one for each row of a distribution of one outcome."""
    if np.shape(y) not in ((n,), (n, 1)):
        raise ValueError(f"Expected y of shape ({n},), one outcome for each row; got {np.shape(y)}.")
    truth = read_points(y, n, 1)[0][:, 0]
    if np.isinf(truth).any():
        raise ValueError(f"y contains infinity in row {int(np.argmax(np.isinf(truth)))}: expected finite numbers.")
    return truth


def read_levels(p: ArrayLike, n: int) -> tuple[Array, bool]:
    """Levels (n, m) of quantiles, and whether a single one was given."""
    levels = np.asarray(p, dtype=np.float64)
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError("Expected levels between 0 and 1.")
    if levels.ndim > 2 or (levels.ndim == 2 and len(levels) != n):
        raise ValueError(f"Expected levels of shape (m,) or ({n}, m); got {levels.shape}.")
    shape = (n, levels.shape[-1] if levels.ndim else 1)
    return np.array(np.broadcast_to(np.atleast_1d(levels), shape)), levels.ndim == 0


def interval_levels(level: float) -> list[float]:
    """Levels of the two ends of the central interval that holds `level` of the probability."""
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1; got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]


def read_n_samples(n_samples: int) -> int:
    """The number of draws at each row, an integer of at least 0."""
    is_valid = is_int(n_samples) and n_samples >= 0
    check_setting("n_samples", n_samples, is_valid, "an integer of at least 0")
    return int(n_samples)


def read_outcome(j: int, d: int) -> int:
    """The number of one of d outcomes; negative ones count from the last."""
    if not is_int(j):
        raise TypeError(f"Expected the number of an outcome, an integer below {d}; got {j!r}.")
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
    """Complain about a question that only one outcome can answer."""
    if d > 1:
        raise ValueError(f"{name} is for one outcome; this distribution has {d}: see marginal.")
