"""How the columns of a table become numbers: numbers with missing values, and categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints

# A column as it was read (see `reading`): float64 with NaN where a value is missing, or an object array of the names
# of levels with None where one is missing.
Column = NDArray[Any]

_MOST_INDICATORS = 16  # Levels with an indicator of their own; categories with more levels also get mean outcomes.
_PRIOR_ROWS = 10.0  # The mean of all outcomes counts for so many rows in the mean of a level.
_N_FOLDS = 5  # Folds for the out-of-fold means of levels.


@dataclass(frozen=True)
class Number:
    """A column of numbers; a missing value gets the median, and an indicator if training rows had missing values."""

    median: float
    has_gaps: bool

    @staticmethod
    def fit(column: Column) -> Number:
        """From training values (n,)."""
        gaps = np.isnan(column)
        return Number(float(np.median(column[~gaps])) if not gaps.all() else 0.0, bool(gaps.any()))

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return 1 + self.has_gaps

    def __call__(self, column: Column) -> Array:
        """Values (n,) as numbers (n, width)."""
        gaps = np.isnan(column)
        filled = np.where(gaps, self.median, column)
        return np.column_stack([filled, gaps]) if self.has_gaps else filled[:, None]


@dataclass(frozen=True)
class Category:
    """A column of names: indicators of the common levels, and mean outcomes of all of them if there are many.

    A missing value is a level of its own if training rows had any. A level that training rows did not have has no
    indicator and the mean of all rows.
    """

    levels: tuple[str, ...]  # most common first
    missing_place: int  # place of the missing values among the levels, most common first; -1 if there were none
    n_indicators: int
    means: Array  # (n_levels + 1, d or 0), standardised; the last row is for other levels

    @staticmethod
    def fit(column: Column, z: Array, weight: Array) -> Category:
        """From training values (n,), standardised outcomes z (n, d) and weights (n,)."""
        total: Counter[str | None] = Counter()
        for name, own in zip(column.tolist(), weight.tolist(), strict=True):
            total[name] += own
        names = sorted(total, key=lambda name: (name is not None, name or ""))
        names.sort(key=lambda name: -total[name])  # ties stay in alphabetical order
        missing_place = names.index(None) if None in total else -1
        levels = tuple(name for name in names if name is not None)
        # Of two levels one indicator says it all.
        n_indicators = 1 if len(names) <= 2 else min(len(names), _MOST_INDICATORS)
        category = Category(levels, missing_place, n_indicators, np.empty((0, 0)))
        if len(names) <= _MOST_INDICATORS:
            return category
        means = _means_of_levels(category.codes(column), len(names), z, weight)
        return Category(levels, missing_place, n_indicators, means)

    @property
    def n_levels(self) -> int:
        """Number of levels, the missing values counted as one."""
        return len(self.levels) + (self.missing_place >= 0)

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return self.n_indicators + self.means.shape[1]

    def cross_fit(self, column: Column, z: Array, weight: Array, fold: Ints) -> Array:
        """Numbers (n, width) of the training rows; the means of levels are out-of-fold."""
        numbers, code = self(column), self.codes(column)
        if self.means.size:
            for f in range(_N_FOLDS):
                own = fold == f
                others = _means_of_levels(code[~own], self.n_levels, z[~own], weight[~own])
                numbers[own, self.n_indicators :] = others[code[own]]
        return numbers

    def __call__(self, column: Column) -> Array:
        """Names (n,) as numbers (n, width)."""
        code = self.codes(column)
        indicators = (code[:, None] == np.arange(self.n_indicators)).astype(np.float64)
        return np.hstack([indicators, self.means[code]]) if self.means.size else indicators

    def codes(self, column: Column) -> Ints:
        """Place (n,) of each name among the levels; `n_levels` for names that are not among them."""
        unknown, missing = self.n_levels, self.missing_place
        code: dict[str | None, int] = {None: missing if missing >= 0 else unknown}
        code |= {level: k + (0 <= missing <= k) for k, level in enumerate(self.levels)}
        return np.array([code.get(name, unknown) for name in column.tolist()], np.int64)


def _means_of_levels(code: Ints, n_levels: int, z: Array, weight: Array) -> Array:
    """Means (levels + 1, d) of standardised outcomes z (n, d), drawn towards 0, the mean of all of them."""
    total = np.bincount(code, weight, minlength=n_levels + 1)
    sums = [np.bincount(code, weight * column, minlength=n_levels + 1) for column in z.T]
    return np.column_stack([column / (total + _PRIOR_ROWS) for column in sums])


def _standardised(y: Array, weight: Array) -> Array:
    """Outcomes (n, d) of mean 0 and standard deviation 1."""
    share = weight / weight.sum()
    unit = np.abs(y).max(axis=0)
    part = y / np.where(unit > 0, unit, 1.0)  # squares of large numbers overflow
    part -= share @ part
    spread = np.sqrt(share @ part**2)
    return part / np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class Covariates:
    """How each column of the user's table becomes numbers."""

    columns: tuple[Number | Category, ...]

    @staticmethod
    def cross_fit(
        columns: Sequence[Column], y: Array, weight: Array, rng: np.random.Generator
    ) -> tuple[Covariates, Array]:
        """The encoders, and the training rows (n, k), from columns (n,), outcomes y (n, d) and weights (n,)."""
        z = _standardised(y, weight)
        made = tuple(Number.fit(c) if c.dtype.kind == "f" else Category.fit(c, z, weight) for c in columns)
        covariates = Covariates(made)
        if not any(isinstance(part, Category) and part.means.size for part in made):
            return covariates, covariates(columns)
        fold = rng.permutation(len(y)) % _N_FOLDS
        parts = [
            part.cross_fit(column, z, weight, fold) if isinstance(part, Category) else part(column)
            for part, column in zip(made, columns, strict=True)
        ]
        return covariates, np.ascontiguousarray(np.hstack(parts))

    def __call__(self, columns: Sequence[Column]) -> Array:
        """Numbers (n, k) of columns (n,), rows next to each other in memory."""
        parts = [part(column) for part, column in zip(self.columns, columns, strict=True)]
        return np.ascontiguousarray(np.hstack(parts))

    @property
    def width(self) -> int:
        """k, the number of columns that all encoders return together."""
        return sum(part.width for part in self.columns)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each column is taken for: "number" or "category"."""
        return tuple("number" if isinstance(part, Number) else "category" for part in self.columns)

    def places(self) -> list[slice]:
        """Which of the k numbers each column has become."""
        ends = np.cumsum([part.width for part in self.columns])
        return [slice(int(end - part.width), int(end)) for end, part in zip(ends, self.columns, strict=True)]
