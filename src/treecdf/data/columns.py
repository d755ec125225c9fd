"""Encoders of the columns of a table: numbers with missing values, dates, and categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treecdf._common.numerics import weighted_quantile
from treecdf._common.typing import Array, Bools, Column, Ints, Units
from treecdf.data.units import draw_folds

_MOST_INDICATORS = 16  # Levels with an indicator of their own; categories with more levels also get mean outcomes.
_PRIOR_ROWS = (0.2, 200.0)  # The mean of all outcomes counts for at least and at most so many rows in that of a level.
_RIDGE_ROWS = 1.0  # Rows that the prior of slopes counts for.
_MOST_COLUMNS_A_ROW = 0.2  # With more other columns for each row, means of levels do not allow for these.
Order = tuple[str, ...] | None  # The levels of a column in their order; None if they have none.
_N_FOLDS = 5  # Folds for the out-of-fold means of levels.
# Rows with a missing value, or their share of all rows, from which on is learnt what it means: from fewer no learner
# finds that the outcome is less certain there (400 rows, 90 % intervals: 10 gaps cover .67, 20 gaps .71, 40 gaps .89).
_FEWEST_GAPS, _FEWEST_SHARE_OF_GAPS = 30.0, 0.1


@dataclass(frozen=True)
class Number:
    """Encoder of a column of numbers.

    Missing values get the median and an indicator if enough training rows had missing values. Otherwise nothing can be
    learnt about them: they stay NaN, and bases average over the values that they may have.
    """

    median: float
    has_gaps: bool

    @staticmethod
    def fit(column: Column, weight: Array) -> Number:
        """The encoder of training values (n,) with weights (n,)."""
        known = ~np.isnan(column)
        if not known.any():
            return Number(0.0, True)
        return Number(weighted_quantile(column[known], weight[known], 0.5), _learns_gaps(known, weight))

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return 1 + self.has_gaps

    @property
    def typical(self) -> Array:
        """Numbers (width,) that can replace those of a missing value."""
        return np.array([self.median, 0.0])[: self.width]

    def __call__(self, column: Column) -> Array:
        """Values (n,) as numbers (n, width)."""
        if not self.has_gaps:
            return column[:, None]
        gaps = np.isnan(column)
        return np.column_stack([np.where(gaps, self.median, column), gaps])


@dataclass(frozen=True)
class Date:
    """Encoder of a column of points in time: days since the earliest training row, and calendar parts that vary.

    Missing values get medians and an indicator if enough training rows had missing values, else they stay NaN.
    """

    first: int  # the earliest point in time of the training rows, in microseconds since 1970
    parts: tuple[str, ...]  # "days", then those of "month", "weekday" and "hour" that vary
    medians: Array  # of the parts
    has_gaps: bool

    @staticmethod
    def fit(column: Column, weight: Array) -> Date:
        """The encoder of training values (n,) with weights (n,)."""
        known = ~np.isnat(column)
        if not known.any():
            return Date(0, ("days",), np.zeros(1), True)
        has_gaps = _learns_gaps(known, weight)
        column, weight = column[known], weight[known]
        first = int(column.min().astype(np.int64))
        is_one_day = len(np.unique(column.astype("M8[D]"))) == 1  # then days and hours say the same
        others = ("month", "weekday") if is_one_day else ("month", "weekday", "hour")
        varied = [name for name in others if len(np.unique(_part(name, column, first))) > 1]
        parts = ("days", *varied)
        medians = np.array([weighted_quantile(_part(name, column, first), weight, 0.5) for name in parts])
        return Date(first, parts, medians, has_gaps)

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return len(self.parts) + self.has_gaps

    @property
    def typical(self) -> Array:
        """Numbers (width,) that can replace those of a missing value."""
        return np.append(self.medians, 0.0)[: self.width]

    def __call__(self, column: Column) -> Array:
        """Points in time (n,) as numbers (n, width)."""
        gaps = np.isnat(column)
        known = np.where(gaps, np.datetime64(self.first, "us"), column)
        numbers = np.column_stack([_part(name, known, self.first) for name in self.parts])
        numbers = np.where(gaps[:, None], self.medians if self.has_gaps else np.nan, numbers)
        return np.column_stack([numbers, gaps]) if self.has_gaps else numbers

    def __str__(self) -> str:
        """The encoder's columns in words, for the summary."""
        first = np.datetime64(self.first, "us").astype("M8[s]")
        return ", ".join([f"days since {str(first).replace('T', ' ').removesuffix(' 00:00:00')}", *self.parts[1:]])


def _learns_gaps(known: Bools, weight: Array) -> bool:
    """Whether enough training rows of weights (n,) have a missing value; known (n,) is true where there is a value."""
    gaps = float(weight[~known].sum())
    return gaps > 0 and gaps >= min(_FEWEST_GAPS, _FEWEST_SHARE_OF_GAPS * float(weight.sum()))


def _part(name: str, column: NDArray[np.datetime64], first: int) -> Array:
    """A part of points in time (n,) as a number: days since `first`, month 1 to 12, weekday 0 (Monday) to 6, hour."""
    if name == "days":
        return np.asarray((column - np.datetime64(first, "us")) / np.timedelta64(1, "D"), np.float64)
    if name == "month":
        return (column.astype("M8[M]").astype(np.int64) % 12 + 1).astype(np.float64)
    day = column.astype("M8[D]")
    if name == "weekday":
        return ((day.astype(np.int64) + 3) % 7).astype(np.float64)  # 1970 began on a Thursday
    return np.asarray((column - day) / np.timedelta64(1, "h"), np.float64)


@dataclass(frozen=True)
class Category:
    """Encoder of a category: indicators of the common levels, and mean outcomes of all levels if there are many.

    Missing values are a level if enough training rows had some. A level that training rows did not have is NaN in all
    columns: bases average over the levels that it may be.
    """

    levels: tuple[str, ...]  # most common first
    missing_place: int  # place of the missing values among the levels, most common first; -1 if there were none
    n_indicators: int
    means: Array  # (n_levels + 1, d or 0), standardised; the last row is for other levels

    @staticmethod
    def fit(column: Column, z: Array, weight: Array, others: Array) -> Category:
        """The encoder of training values and weights (n,), given outcomes z (n, d) and other columns (n, k)."""
        total: Counter[str | None] = Counter()
        for name, own in zip(column.tolist(), weight.tolist(), strict=True):
            total[name] += own
        if not _learns_gaps(np.array([name is not None for name in column.tolist()]), weight):
            total.pop(None, None)
        names = sorted(total, key=lambda name: (name is not None, name or ""))
        names.sort(key=lambda name: -total[name])  # ties stay in alphabetical order
        missing_place = names.index(None) if None in total else -1
        levels = tuple(name for name in names if name is not None)
        # Of two levels one indicator says it all.
        n_indicators = 1 if len(names) <= 2 else min(len(names), _MOST_INDICATORS)
        category = Category(levels, missing_place, n_indicators, np.empty((0, 0)))
        if len(names) <= _MOST_INDICATORS:
            return category
        means = _means_of_levels(category.codes(column), len(names), _allowing_for(others, z, weight), weight)
        return Category(levels, missing_place, n_indicators, means)

    @property
    def n_levels(self) -> int:
        """Number of levels; missing values count as one."""
        return len(self.levels) + (self.missing_place >= 0)

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return self.n_indicators + self.means.shape[1]

    @property
    def typical(self) -> Array:
        """Numbers (width,) that can replace those of a missing value: no common level, and the overall mean."""
        return np.append(np.zeros(self.n_indicators), self.means[-1:])

    def cross_fit(self, column: Column, z: Array, weight: Array, fold: Ints, others: Array) -> Array:
        """Numbers (n, width) of the training rows; the means of levels are out-of-fold."""
        numbers, code = self(column), self.codes(column)
        if self.means.size:
            for f in range(_N_FOLDS):
                own, learns = fold == f, fold != f
                rest = _allowing_for(others[learns], z[learns], weight[learns])
                means = _means_of_levels(code[learns], self.n_levels, rest, weight[learns])
                numbers[own, self.n_indicators : self.n_indicators + means.shape[1]] = means[code[own]]
        return numbers

    def __call__(self, column: Column) -> Array:
        """Encoded values (n, width) of names (n,)."""
        code = self.codes(column)
        indicators = (code[:, None] == np.arange(self.n_indicators)).astype(np.float64)
        numbers = np.hstack([indicators, self.means[code]]) if self.means.size else indicators
        numbers[code == self.n_levels] = np.nan
        return numbers

    def codes(self, column: Column) -> Ints:
        """Number (n,) of the level of each name; `n_levels` for unknown names."""
        unknown, missing = self.n_levels, self.missing_place
        code: dict[str | None, int] = {None: missing if missing >= 0 else unknown}
        code |= {level: k + (0 <= missing <= k) for k, level in enumerate(self.levels)}
        return np.array([code.get(name, unknown) for name in column.tolist()], np.int64)


@dataclass(frozen=True)
class Ordered(Category):
    """Encoder of a category with ordered levels: their ranks are a further column beside those of the category.

    A missing value or unknown level gets the median rank of the training rows, if these had such values.
    """

    order: tuple[str, ...]
    median: float

    @staticmethod
    def of(category: Category, order: Sequence[str], column: Column, weight: Array) -> Ordered:
        """The encoder of a category with the order of its levels, from training values (n,) and weights (n,)."""
        made = Ordered(
            category.levels, category.missing_place, category.n_indicators, category.means, tuple(order), np.nan
        )
        place = made.places(column)
        known = ~np.isnan(place)
        return replace(made, median=weighted_quantile(place[known], weight[known], 0.5) if known.any() else 0.0)

    @property
    def width(self) -> int:
        """Number of columns that the encoder returns."""
        return super().width + 1

    @property
    def typical(self) -> Array:
        """Numbers (width,) that can replace those of a missing value."""
        return np.append(super().typical, self.median)

    def places(self, column: Column) -> Array:
        """Rank (n,) of each name; NaN for missing values and for names without a rank."""
        place = {name: float(k) for k, name in enumerate(self.order)}
        return np.array([place.get(name, np.nan) for name in column.tolist()])

    def __call__(self, column: Column) -> Array:
        """Names (n,) as numbers (n, width)."""
        numbers, place = super().__call__(column), self.places(column)
        is_known = ~np.isnan(numbers[:, 0])
        return np.column_stack([numbers, np.where(np.isnan(place) & is_known, self.median, place)])


def _means_of_levels(code: Ints, n_levels: int, z: Array, weight: Array) -> Array:
    """Means (levels + 1, d) of outcomes z (n, d) by level, shrunk towards 0, the overall mean.

    They are shrunk as in a model of random effects: the more, the more outcomes vary within levels and the less the
    levels differ from one another.
    """
    total = np.bincount(code, weight, minlength=n_levels + 1)
    sums = np.column_stack([np.bincount(code, weight * column, minlength=n_levels + 1) for column in z.T])
    plain = sums / np.maximum(total, 1e-300)[:, None]
    within = weight @ (z - plain[code]) ** 2 / max(total.sum() - (total > 0).sum(), 1.0)
    size = total.sum() - (total**2).sum() / total.sum()
    between = np.maximum(total @ plain**2 - ((total > 0).sum() - 1) * within, 0.0) / max(float(size), 1e-300)
    prior = np.clip(within / np.maximum(between, 1e-300), *_PRIOR_ROWS)
    return sums / (total[:, None] + prior)


def _allowing_for(others: Array, z: Array, weight: Array) -> Array:
    """Residuals (n, d) of outcomes z after a linear regression on other columns (n, k), with mean 0."""
    share = weight / weight.sum()
    z = z - share @ z
    if others.shape[1] > _MOST_COLUMNS_A_ROW * len(z):
        return z
    unit = np.abs(others).max(axis=0)
    others = others / np.where(unit > 0, unit, 1.0)  # squares of large numbers overflow
    centered = others - share @ others
    spread = np.sqrt(share @ centered**2)
    centered = centered / np.where(spread > 0, spread, np.inf)
    gram = centered.T @ (weight[:, None] * centered) + _RIDGE_ROWS * np.eye(others.shape[1])
    return z - centered @ np.linalg.solve(gram, centered.T @ (weight[:, None] * z))


def _standardised(y: Array, weight: Array) -> Array:
    """Outcomes (n, d) of mean 0 and standard deviation 1."""
    share = weight / weight.sum()
    unit = np.abs(y).max(axis=0)
    part = y / np.where(unit > 0, unit, 1.0)  # squares of large numbers overflow
    part -= share @ part
    spread = np.sqrt(share @ part**2)
    return part / np.where(spread > 0, spread, 1.0)


def _fit_simple(column: Column, weight: Array) -> Number | Date:
    """The encoder of a column of numbers or dates."""
    return Number.fit(column, weight) if column.dtype.kind == "f" else Date.fit(column, weight)


def _fit_levels(column: Column, order: Order, z: Array, weight: Array, others: Array) -> Category:
    """The encoder of a column of names, whose levels may have an order."""
    category = Category.fit(column, z, weight, others)
    # Of two levels the one indicator says the order too.
    return category if order is None or category.n_levels <= 2 else Ordered.of(category, order, column, weight)


@dataclass(frozen=True)
class Covariates:
    """The encoders of the columns of the user's table."""

    columns: tuple[Number | Date | Category, ...]

    @staticmethod
    def cross_fit(
        columns: Sequence[Column],
        y: Array,
        weight: Array,
        unit: Units,
        rng: np.random.Generator,
        orders: Sequence[Order] | None = None,
    ) -> tuple[Covariates, Array]:
        """The encoders, and the training rows (n, k), from columns (n,), outcomes y (n, d), weights and units (n,).

        orders: the levels of each column in their order, None where they have none.
        """
        orders = [None] * len(columns) if orders is None else orders
        z = _standardised(y, weight)
        simple = {j: _fit_simple(column, weight) for j, column in enumerate(columns) if column.dtype.kind in "fM"}
        others = np.hstack([np.zeros((len(y), 0)), *(np.nan_to_num(part(columns[j])) for j, part in simple.items())])
        made = tuple(
            simple[j] if j in simple else _fit_levels(column, order, z, weight, others)
            for j, (column, order) in enumerate(zip(columns, orders, strict=True))
        )
        covariates = Covariates(made)
        if not any(isinstance(part, Category) and part.means.size for part in made):
            return covariates, covariates.filled(covariates(columns))
        fold = draw_folds(unit, _N_FOLDS, rng)
        parts = [
            part.cross_fit(column, z, weight, fold, others) if isinstance(part, Category) else part(column)
            for part, column in zip(made, columns, strict=True)
        ]
        return covariates, covariates.filled(np.ascontiguousarray(np.hstack(parts)))

    def __call__(self, columns: Sequence[Column]) -> Array:
        """Encoded columns (n, k) of columns (n,), as contiguous rows; NaN where nothing was learnt about a value.

        These are missing values in columns that had few or none in the training rows, and unseen levels.
        """
        parts = [part(column) for part, column in zip(self.columns, columns, strict=True)]
        return np.ascontiguousarray(np.hstack(parts))

    @property
    def width(self) -> int:
        """k, the number of columns that all encoders return together."""
        return sum(part.width for part in self.columns)

    def filled(self, x: Array) -> Array:
        """The encoded columns x (n, k) with typical numbers in place of NaN."""
        return np.where(np.isnan(x), np.concatenate([part.typical for part in self.columns]), x)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each column: "number", "date" or "category"."""
        names = {Number: "number", Date: "date"}
        return tuple(names.get(type(part), "category") for part in self.columns)

    def places(self) -> list[slice]:
        """For each column of the table the slice of the k encoded columns that belong to it."""
        ends = np.cumsum([part.width for part in self.columns])
        return [slice(int(end - part.width), int(end)) for end, part in zip(ends, self.columns, strict=True)]
