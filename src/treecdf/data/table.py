"""From frames and arrays to a validated table of float64; every complaint about data is made here."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from treecdf._common.protocols import Frame
from treecdf._common.typing import Array, Bools, Bound, Ints
from treecdf.data.columns import Column, Covariates
from treecdf.data.reading import Schema, learn_columns, read_columns

# Outcomes up to here have finite log densities, quantiles, means and standard deviations under every model; means were
# NaN from about 1e306 on.
_LARGEST_OUTCOME = 1e303
# The sum of the weights of a training, which are numbers of rows. Models were NaN below sums of about 1e-18, and the
# matrix of a Gaussian process was singular from about 1e15 on; the limits keep three orders of magnitude or more.
_SMALLEST_SUM, _LARGEST_SUM = 1e-9, 1e12


@dataclass(frozen=True)
class Table:
    """Covariates x (n, q), outcomes y (n, d), weights (n,); rows of no weight are left out.

    number (n,) counts the rows as the user does.
    """

    x: Array
    y: Array
    weight: Array
    number: Ints

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints | Bools) -> Table:
        """The table of some of the rows."""
        return Table(self.x[rows], self.y[rows], self.weight[rows], self.number[rows])


def learn_table(
    X: ArrayLike | Frame,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    categorical_features: Any,
    rng: np.random.Generator,
) -> tuple[Table, Schema]:
    """The validated table of training rows, and what is learnt of its columns."""
    names, columns = learn_columns(X, categorical_features)
    rows = _align(columns, y, sample_weight)
    with np.errstate(over="ignore"):  # an infinite sum is refused
        check_sum_of_weights(float(rows.weight.sum()))
    covariates, x = Covariates.cross_fit(rows.columns, rows.y, rows.weight, rng)
    return Table(x, rows.y, rows.weight, rows.number), Schema(names, covariates)


def read_table(schema: Schema, X: ArrayLike | Frame, y: ArrayLike, sample_weight: ArrayLike | None) -> Table:
    """The validated table of rows with columns like those of the training rows."""
    rows = _align(read_columns(schema, X), y, sample_weight)
    return Table(schema.covariates(rows.columns), rows.y, rows.weight, rows.number)


def read_covariates(schema: Schema, X: ArrayLike | Frame) -> Array:
    """Covariates (n, q) as the fitted model sees them, rows next to each other in memory."""
    return schema.covariates(read_columns(schema, X))


@dataclass(frozen=True)
class _Aligned:
    """Columns, outcomes (n, d), weights (n,) and row numbers (n,) of the rows that have a weight."""

    columns: list[Column]
    y: Array
    weight: Array
    number: Ints


def _align(columns: Sequence[Column], y: ArrayLike, sample_weight: ArrayLike | None) -> _Aligned:
    outcomes = read_outcomes(y)
    n = len(columns[0])
    if n != len(outcomes):
        raise ValueError(f"X has {n} rows and y has {len(outcomes)}: they must have the same number.")
    weight = read_weights(sample_weight, n)
    counted = np.flatnonzero(weight > 0)
    return _Aligned([column[counted] for column in columns], outcomes[counted], weight[counted], counted)


def outcome_names(y: Any, n_outcomes: int) -> tuple[str, ...]:
    """Names of the outcomes if y is a frame or a series with a name; else y, or y0, y1, ..."""
    given = list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]
    if len(given) == n_outcomes and all(name is not None for name in given):
        return tuple(str(name) for name in given)
    return ("y",) if n_outcomes == 1 else tuple(f"y{j}" for j in range(n_outcomes))


def read_outcomes(y: ArrayLike, n_outcomes: int | None = None) -> Array:
    """Outcomes (n, d) as float64; a flat y is one outcome."""
    if y is None:
        raise ValueError("y is missing: the model requires y to be passed, but the target y is None.")
    if isinstance(y, np.ma.MaskedArray):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    try:
        values = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, allow_nd=True, input_name="y"
        )
    except (ValueError, OverflowError) as error:
        raise ValueError(f"y cannot be read as numbers: {error}") from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"Expected y of shape (n,) or (n, outcomes); got {values.shape}.")
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        where = f"row {row}" + (f", outcome {column}" if values.shape[1] > 1 else "")
        kind = "NaN" if np.isnan(values[row, column]) else "infinity"
        raise ValueError(f"y contains {kind} in {where}: outcomes must be finite numbers.")
    if n_outcomes is not None and values.shape[1] != n_outcomes:
        raise ValueError(f"Expected y with {n_outcomes} outcome(s); got {values.shape[1]}.")
    return np.ascontiguousarray(values)


def read_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Weights (n,), ones by default; they count rows, so a row of weight 2 equals the row twice."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weight = np.ma.filled(np.ma.asarray(sample_weight, dtype=np.float64), np.nan)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"sample_weight cannot be read as numbers: {error}") from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise ValueError(f"Expected sample_weight of shape ({n},); got {weight.shape}.")
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.argmin(np.isfinite(weight) & (weight >= 0)))
        raise ValueError(f"sample_weight of row {row} is {weight[row]}: weights must be finite and not negative.")
    if not weight.any():
        raise ValueError("All sample weights are zero: there is nothing to learn from.")
    return weight


def read_bounds(bounds: Any, n_outcomes: int) -> list[Bound]:
    """`bounds` as one (low, high) pair for each outcome; an infinite end is no bound."""
    if bounds is None:
        return [(None, None)] * n_outcomes
    pairs = list(bounds) if isinstance(bounds, (list, tuple, np.ndarray)) else [bounds]
    if len(pairs) == 2 and all(end is None or np.isscalar(end) for end in pairs):
        pairs = [tuple(pairs)] * n_outcomes
    if len(pairs) != n_outcomes:
        raise ValueError(f"Expected bounds for {n_outcomes} outcome(s); got {len(pairs)}.")
    return [_read_pair(pair) for pair in pairs]


def _read_pair(pair: Any) -> Bound:
    if pair is None:
        return None, None
    try:
        low, high = (None if end is None or np.isinf(end) else float(end) for end in pair)
    except (TypeError, ValueError):
        raise ValueError(f"Expected bounds (low, high), numbers or None; got {pair!r}.") from None
    given = [end for end in (low, high) if end is not None]
    if not (np.isfinite(given).all() and (len(given) < 2 or 0 < given[1] / 2 - given[0] / 2 < 8e307)):
        raise ValueError(f"Expected bounds (low, high) with low < high, less than 1e308 apart; got {pair!r}.")
    return low, high


def check_bounds(table: Table, bounds: Sequence[Bound], name: str) -> None:
    """Complain about the first outcome outside its bounds, or about outcomes too far apart for float64."""
    for j, (low, high) in enumerate(bounds):
        y = table.y[:, j]
        outside = (y < (-np.inf if low is None else low)) | (y > (np.inf if high is None else high))
        if outside.any():
            row = int(np.argmax(outside))
            raise ValueError(
                f"Outcome {j} of {name} is {y[row]:g} in row {table.number[row]}, outside its bounds ({low}, {high})."
            )
    if (np.abs(table.y) > _LARGEST_OUTCOME).any():
        row = int(np.argmax((np.abs(table.y) > _LARGEST_OUTCOME).any(axis=1)))
        raise ValueError(f"{name} is beyond {_LARGEST_OUTCOME:g} in row {table.number[row]}: rescale it.")


def check_size(table: Table, atoms: int = 0) -> None:
    """Complain about too few rows, of which atoms are not counted."""
    if len(table) < 2:
        besides = f" besides {atoms} atom(s)" if atoms else ""
        raise ValueError(f"Found {len(table)} row(s){besides} (n_samples = {len(table)}): at least 2 are required.")


def check_sum_of_weights(total: float) -> None:
    """Complain about weights whose sum is too small or too large to compute with."""
    if not _SMALLEST_SUM <= total <= _LARGEST_SUM:
        raise ValueError(
            f"The sample weights add up to {total:g}. They count as numbers of rows, so their sum has to be between "
            f"{_SMALLEST_SUM:g} and {_LARGEST_SUM:g}; divide them by their mean if only their ratios matter."
        )


def check_counts(table: Table, min_samples_node: float) -> None:
    """Warn about weights that cannot be counts."""
    total = table.weight.sum()
    fewest = min(min_samples_node, len(table)) * (1 - 1e-9)  # weights of mean one add up to the rows but for rounding
    if total < fewest and not (table.weight == 1).all():
        warnings.warn(
            f"The sample weights add up to {total:g} for {len(table)} rows. They count as numbers of rows, so "
            f"no node reaches min_samples_node={min_samples_node:g}; multiply them if that is not meant.",
            UserWarning,
            stacklevel=3,
        )


def is_dask(part: object) -> bool:
    """Whether it is a Dask collection."""
    return hasattr(part, "__dask_graph__")


def has_repeats(y: Array) -> bool:
    """Whether more than half of the rows of outcomes y (n, d) have a twin."""
    _, count = np.unique(y, axis=0, return_counts=True)
    return bool(count[count > 1].sum() > len(y) / 2)
