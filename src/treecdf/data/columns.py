"""Covariates as people have them (frames, categories, gaps) as a matrix of numbers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from treecdf._common.typing import Array

Column = NDArray[Any]  # numbers with NaN for gaps, or names of levels with None for gaps
_GAP = ""  # the level of a category's gaps: no other level is empty
_MOST_INDICATORS = 16  # levels with an indicator of their own
_PRIOR_ROWS = 10.0  # rows the mean of all outcomes counts for in the mean of a level
_N_FOLDS = 5  # for means of levels


@dataclass(frozen=True)
class Number:
    """A column of numbers; a gap gets the median, and an indicator if training rows had gaps."""

    median: float
    has_gaps: bool

    @staticmethod
    def fit(column: Column) -> Number:
        """From training values (n,)."""
        gaps = np.isnan(column)
        return Number(float(np.median(column[~gaps])) if not gaps.all() else 0.0, bool(gaps.any()))

    @property
    def width(self) -> int:
        """Columns it becomes."""
        return 1 + self.has_gaps

    def __call__(self, column: Column) -> Array:
        """Values (n,) as numbers (n, width)."""
        gaps = np.isnan(column)
        filled = np.where(gaps, self.median, column)
        return np.column_stack([filled, gaps]) if self.has_gaps else filled[:, None]


@dataclass(frozen=True)
class Category:
    """A column of names: indicators of the common levels, and mean outcomes of all of them if there are many.

    A level that training rows did not have has no indicator and the mean of all rows.
    """

    levels: tuple[str, ...]  # most common first
    n_indicators: int
    means: Array  # (levels + 1, d or 0), standardised; the last row is for other levels

    @staticmethod
    def fit(column: Column, z: Array, weight: Array) -> Category:
        """From training values (n,), standardised outcomes z (n, d) and weights (n,)."""
        names, place = np.unique(_named(column), return_inverse=True)
        order = np.argsort(-np.bincount(place, weight), kind="stable")
        levels = tuple(str(name) for name in names[order])
        # Of two levels one indicator says it all.
        n_indicators = 1 if len(levels) <= 2 else min(len(levels), _MOST_INDICATORS)
        has_means = len(levels) > _MOST_INDICATORS
        means = _means_of_levels(np.argsort(order)[place], len(levels), z, weight) if has_means else np.empty((0, 0))
        return Category(levels, n_indicators, means)

    @property
    def width(self) -> int:
        """Columns it becomes."""
        return self.n_indicators + self.means.shape[1]

    def cross_fit(self, column: Column, z: Array, weight: Array, fold: NDArray[np.int64]) -> Array:
        """Numbers (n, width) of the training rows: each gets means of levels that are taken without its own fold."""
        numbers, code = self(column), self._codes(column)
        if self.means.size:
            for f in range(_N_FOLDS):
                own = fold == f
                others = _means_of_levels(code[~own], len(self.levels), z[~own], weight[~own])
                numbers[own, self.n_indicators :] = others[code[own]]
        return numbers

    def __call__(self, column: Column) -> Array:
        """Names (n,) as numbers (n, width)."""
        code = self._codes(column)
        indicators = (code[:, None] == np.arange(self.n_indicators)).astype(np.float64)
        return np.hstack([indicators, self.means[code]]) if self.means.size else indicators

    def _codes(self, column: Column) -> NDArray[np.int64]:
        """Place of each name among the levels; their number for names that are not among them."""
        known = {level: k for k, level in enumerate(self.levels)}
        names, place = np.unique(_named(column), return_inverse=True)
        return np.array([known.get(str(name), len(known)) for name in names], np.int64)[place]


def _named(column: Column) -> NDArray[Any]:
    """Names (n,) with the gaps' own name, as text."""
    return np.array([_GAP if name is None else name for name in column], dtype=np.str_)


def _means_of_levels(code: NDArray[np.int64], n_levels: int, z: Array, weight: Array) -> Array:
    """Means (levels + 1, d) of standardised outcomes z (n, d), drawn towards 0, the mean of all of them."""
    total = np.bincount(code, weight, minlength=n_levels + 1)
    sums = [np.bincount(code, weight * column, minlength=n_levels + 1) for column in z.T]
    return np.column_stack([column / (total + _PRIOR_ROWS) for column in sums])


def _standardised(y: Array, weight: Array) -> Array:
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
        """From training columns (n,), outcomes y (n, d) and weights; and the numbers (n, k) of the training rows."""
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
        """Numbers (n, k), rows next to each other in memory."""
        parts = [part(column) for part, column in zip(self.columns, columns, strict=True)]
        return np.ascontiguousarray(np.hstack(parts))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each column is taken for: "number" or "category"."""
        return tuple("number" if isinstance(part, Number) else "category" for part in self.columns)

    def places(self) -> list[slice]:
        """Where the numbers of each column are."""
        ends = np.cumsum([part.width for part in self.columns])
        return [slice(int(end - part.width), int(end)) for end, part in zip(ends, self.columns, strict=True)]


# Reading


def read_columns(model: BaseEstimator, X: ArrayLike, categorical_features: Any, *, reset: bool) -> list[Column]:
    """The columns of a frame or an array, each of numbers or of names; the model remembers or checks their names."""
    read = _columns_of_frame if is_frame(X) else _columns_of_array
    return read(model, X, categorical_features, reset)


def _columns_of_frame(model: BaseEstimator, X: Any, categorical_features: Any, reset: bool) -> list[Column]:
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has more than one column {twice!r}: names of columns must be unique.")
    if not reset:
        X = _in_order(model, X, names)
    validate_data(model, X, skip_check_array=True, reset=reset)
    _check_shape(X.shape)
    declared, kinds = _declared(categorical_features, len(names), names), _kinds(model, len(names), reset)
    return [
        _read(X[name].to_numpy(), f"column {str(name)!r}", declared[j] or _is_categorical(X[name]), kinds[j])
        for j, name in enumerate(X.columns)
    ]


def is_frame(X: Any) -> bool:
    """Whether it is a pandas or polars frame, or anything alike."""
    return hasattr(X, "columns") and hasattr(X, "shape") and hasattr(X, "__getitem__")


def _in_order(model: BaseEstimator, X: Any, names: Sequence[str]) -> Any:
    """The frame with the columns of the training frame in their order."""
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is None or set(wanted) != set(names):
        return X  # scikit-learn's own check says what is missing
    place = {name: number for name, number in zip(names, X.columns, strict=True)}
    return X[[place[name] for name in wanted]]


def _columns_of_array(model: BaseEstimator, X: ArrayLike, categorical_features: Any, reset: bool) -> list[Column]:
    given = np.asarray(X) if isinstance(X, (list, tuple)) else X
    is_numeric = categorical_features is None and getattr(getattr(given, "dtype", None), "kind", "f") not in "OUS"
    if is_numeric and (reset or set(model.covariates_.kinds) <= {"number"}):
        values = validate_data(model, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite="allow-nan")
        return list(values.T)
    values = validate_data(model, X, reset=reset, dtype=None, ensure_all_finite=False)
    q = values.shape[1]
    declared, kinds = _declared(categorical_features, q, None), _kinds(model, q, reset)
    return [_read(values[:, j], f"column {j}", declared[j], kinds[j]) for j in range(q)]


def _kinds(model: BaseEstimator, q: int, reset: bool) -> Sequence[str | None]:
    """What training columns were, None if this is training."""
    return [None] * q if reset else model.covariates_.kinds


def _check_shape(shape: tuple[int, int]) -> None:
    n, q = shape
    if not n:
        raise ValueError(f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
    if not q:
        raise ValueError(f"0 feature(s) (shape={shape}) while a minimum of 1 is required.")


def _declared(categorical_features: Any, q: int, names: Sequence[str] | None) -> list[bool]:
    """Which columns the user calls categories."""
    if categorical_features is None:
        return [False] * q
    given = list(np.atleast_1d(np.asarray(categorical_features)))
    if len(given) == q and all(isinstance(part, (bool, np.bool_)) for part in given):
        return [bool(part) for part in given]
    place = {name: j for j, name in enumerate(names or [])} | {j: j for j in range(-q, q)}
    unknown = [part for part in given if _plain(part) not in place]
    if unknown:
        raise ValueError(f"categorical_features names {_plain(unknown[0])!r}, which is no column of X.")
    chosen = {place[_plain(part)] % q for part in given}
    return [j in chosen for j in range(q)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _is_categorical(column: Any) -> bool:
    dtype = str(column.dtype)
    return dtype == "category" or dtype.startswith(("Categorical", "Enum"))


def _read(values: NDArray[Any], where: str, is_category: bool, kind: str | None) -> Column:
    """A column as numbers or names, as its dtype says, or as `kind` says that training rows were."""
    if values.dtype.kind in "mM" or (values.dtype.kind == "O" and any(_is_date(value) for value in values)):
        raise ValueError(
            f"{where} of X holds dates: turn them into numbers first, for example days since a date, month, weekday."
        )
    if kind == "category" or (kind is None and is_category):
        return _names(values)
    numbers = _numbers(values)
    if numbers is None:
        if kind == "number":
            raise ValueError(f"{where} of X had numbers when the model was fitted; got {_first_name(values)!r}.")
        return _names(values)
    if np.isinf(numbers).any():
        raise ValueError(f"{where} of X contains infinity: covariates must be finite or missing.")
    return numbers


def _is_date(value: Any) -> bool:
    return isinstance(value, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64))


def _is_gap(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )


def _numbers(values: NDArray[Any]) -> Array | None:
    """Values as float64, NaN for gaps; None if some are no numbers."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: covariates must be real numbers or names.")
    if values.dtype.kind != "O" or not all(_is_gap(v) or isinstance(v, (Real, Decimal, np.bool_)) for v in values):
        return None
    return np.array([np.nan if _is_gap(value) else float(value) for value in values])


def _names(values: NDArray[Any]) -> Column:
    """Values as names of levels, None for gaps. 3, 3.0 and "3" are the same level."""
    return np.array([_name(value) for value in values], dtype=object)


def _name(value: Any) -> str | None:
    if _is_gap(value):
        return None
    if isinstance(value, (dict, list, set, tuple, np.ndarray)):
        raise TypeError(f"A covariate's argument must be a string or a real number; got {value!r}.")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value) or " "


def _first_name(values: NDArray[Any]) -> Any:
    return _plain(next(v for v in values if not _is_gap(v) and not isinstance(v, (Real, Decimal, np.bool_))))
