"""Covariates as arrays or frames: their columns, names and typical values, whatever they are kept in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array, Ints

# A frame of pandas or of polars; neither need be installed.
Frame: TypeAlias = Any
# One of its columns: an array of pandas, a series of polars, or a column of an array.
Column: TypeAlias = Any


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
        """Column j as floats, None if it holds names."""
        return np.asarray(self._columns[j], dtype=np.float64) if _is_number(self._columns[j]) else None

    def places(self, j: int) -> Array:
        """Where the rows are on the axis of column j: its numbers, or the places of its names in `levels`."""
        numbers = self.numbers(j)
        if numbers is not None:
            return numbers
        names = np.asarray(self._columns[j]).astype(str)
        place = {name: k for k, (name, _) in enumerate(self._levels(j))}
        return np.array([place.get(name, np.nan) for name in names], dtype=np.float64)

    def grid(self, j: int, n_grid: int) -> tuple[Array | list[str], Column]:
        """Values that column j runs over, to show, and to put into the column.

        Few numbers, and names, are taken as they are; many are spaced equally over their range.
        """
        numbers = self.numbers(j)
        if numbers is None:
            levels = self._levels(j)
            return [name for name, _ in levels], self._columns[j][np.array([row for _, row in levels])]
        values = np.unique(numbers[np.isfinite(numbers)])
        if len(values) > n_grid:
            values = np.linspace(values[0], values[-1], n_grid)
        return values, values

    def take(self, rows: Ints) -> list[Column]:
        """Columns of some of the rows."""
        return [column[rows] for column in self._columns]

    def typical(self, m: int, fixed: Mapping[int | str, float | str]) -> list[Column]:
        """Columns of m equal rows: medians and commonest names, but for what is fixed."""
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
        """Column j of m equal rows: a given value, else the median or the commonest name."""
        numbers = self.numbers(j)
        if numbers is not None:
            return np.full(m, np.nanmedian(numbers) if value is None else value, dtype=np.float64)
        names = np.asarray(self._columns[j]).astype(str)
        if value is None:
            known, count = np.unique(names, return_counts=True)
            value = known[np.argmax(count)]
        rows = np.flatnonzero(names == str(value))
        if not len(rows):
            raise ValueError(f"Expected {self.names[j]} to be one of its values in X; got {value!r}.")
        return self._columns[j][np.full(m, rows[0])]

    def _levels(self, j: int) -> list[tuple[str, int]]:
        """Names in column j, gaps left out, each with a row that has it."""
        values = np.asarray(self._columns[j], dtype=object)
        rows = [i for i, value in enumerate(values) if value is not None and value == value]
        names, first = np.unique([str(values[i]) for i in rows], return_index=True)
        return [(str(name), rows[k]) for name, k in zip(names, first, strict=True)]


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
