"""From frames and arrays to a validated table of float64; all errors about data are raised here."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from treecdf._common.protocols import Frame
from treecdf._common.typing import Array, Bools, Bound, Column, Ints, Units
from treecdf.data.columns import Covariates
from treecdf.data.dates import as_seconds, looks_like_dates
from treecdf.data.grids import Cells
from treecdf.data.reading import Schema, learn_columns, read_columns
from treecdf.data.units import (
    check_groups,
    order_of_content,
    refuse_name,
    units_of_content,
    units_of_groups,
    units_of_ranks,
)

# Outcomes up to here have finite log densities, quantiles, means and standard deviations under every model; means were
# NaN from about 1e306 on.
_LARGEST_OUTCOME = 1e303
# The sum of the weights of a training, which are numbers of rows. Models were NaN below sums of about 1e-18, and the
# matrix of a Gaussian process was singular from about 1e15 on; the limits keep three orders of magnitude or more.
_SMALLEST_SUM, _LARGEST_SUM = 1e-9, 1e12
_FEW_WORTH = 0.2  # of the number of rows: weights that are worth fewer rows of equal weight are told of


@dataclass(frozen=True)
class Table:
    """Covariates x (n, q), outcomes y (n, d) and weights (n,) of the rows with a weight above zero.

    number (n,) is the row number in the user's table. Rows of one unit (n,) are on the same side of every division.
    Outcomes that were recorded in cells are spread over these.
    """

    x: Array
    y: Array
    weight: Array
    number: Ints
    unit: Units
    cells: Cells | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Ints | Bools) -> Table:
        """The table of some of the rows."""
        cells = None if self.cells is None else self.cells.take(rows)
        return Table(self.x[rows], self.y[rows], self.weight[rows], self.number[rows], self.unit[rows], cells)

    def link(self, outcome: int, given: Sequence[int]) -> Table:
        """The table of one outcome, with others among the covariates."""
        x = np.ascontiguousarray(np.hstack([self.x, self.y[:, list(given)]])) if len(given) else self.x
        cells = None if self.cells is None else self.cells.of(outcome)
        return replace(self, x=x, y=self.y[:, [outcome]], cells=cells)


def learn_table(
    X: ArrayLike | Frame,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    categorical_features: Any,
    rng: np.random.Generator,
    merge: bool = True,
    weights_are: str = "counts",
    last: Array | None = None,
) -> tuple[Table, Schema]:
    """The validated table of training rows, and the schema of its columns.

    merge: copies become one row. weights_are: "counts" of rows, or "relative", which are divided by their mean. last:
    numbers (n,) that become the last covariate of the table and are no column of the schema.
    """
    names, columns, orders = learn_columns(X, categorical_features)
    if last is not None:
        columns = [*columns, last]
    rows = _align(columns, y, sample_weight, groups)
    with np.errstate(over="ignore"):  # an infinite sum is refused
        check_sum_of_weights(float(rows.weight.sum()))
    if weights_are == "relative":
        rows = replace(rows, weight=rows.weight / rows.weight.mean())
    if groups is not None:
        check_groups(rows.unit)
    if merge:
        rows = rows.merged()
    of_schema = rows.columns if last is None else rows.columns[:-1]
    covariates, x = Covariates.cross_fit(of_schema, rows.y, rows.weight, rows.unit, rng, orders)
    if last is not None:
        x = np.ascontiguousarray(np.column_stack([x, rows.columns[-1]]))
    return Table(x, rows.y, rows.weight, rows.number, rows.unit), Schema(names, covariates)


def read_table(
    schema: Schema,
    X: ArrayLike | Frame,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None = None,
    is_piece: bool = False,
) -> Table:
    """The validated table of rows with columns like those of the training rows.

    is_piece: further rows are elsewhere, so that units are computed from values and not from ranks.
    """
    rows = _align(read_columns(schema, X), y, sample_weight, groups, is_piece)
    x = schema.covariates.filled(schema.covariates(rows.columns))
    return Table(x, rows.y, rows.weight, rows.number, rows.unit)


def read_covariates(schema: Schema, X: ArrayLike | Frame) -> Array:
    """Encoded covariates (n, q) of new rows, as contiguous rows.

    They are NaN, with a warning, where nothing was learnt about a value: missing values in a column with few or none in
    the training rows, and unseen levels.
    """
    x = schema.covariates(read_columns(schema, X))
    unknown = np.isnan(x)
    if unknown.any():
        _warn_of_unknown(schema, unknown)
    return x


def _warn_of_unknown(schema: Schema, unknown: Bools) -> None:
    """Warn about columns with values, at the unknown (n, q) numbers, about which nothing was learnt."""
    names = schema.names or tuple(str(j) for j in range(schema.n_columns))
    for name, kind, place in zip(names, schema.covariates.kinds, schema.covariates.places(), strict=True):
        n = int(unknown[:, place].any(axis=1).sum())
        if n:
            what = "missing values" if kind == "number" else "missing values or levels"
            warnings.warn(
                f"Column {name} has {what} in {n} row(s) such as training rows did not have, or too few to learn from: "
                "predictions average over what the value may be.",
                UserWarning,
                stacklevel=4,
            )


@dataclass(frozen=True)
class _Aligned:
    """Columns, outcomes (n, d), weights, row numbers, units and contents (n,) of the rows that have a weight."""

    columns: list[Column]
    y: Array
    weight: Array
    number: Ints
    unit: Units
    content: Units  # equal for copies of a row, of the same group if there are groups
    rank: Units  # the same, made of ranks

    def merged(self) -> _Aligned:
        """The distinct rows, in an order that depends only on their contents; weights of copies are added up.

        A single distinct row becomes two, each with half of the weight, because training needs rows to set aside.
        """
        order, starts = order_of_content(self.content, self.rank, self.weight)
        weight = np.add.reduceat(self.weight[order], starts)
        number = np.minimum.reduceat(self.number[order], starts)
        first, unit = order[starts], self.unit[order[starts]]
        if len(first) == 1 and weight[0] >= 2:
            first, weight, number = first.repeat(2), (weight / 2).repeat(2), number.repeat(2)
            unit = np.arange(2, dtype=np.uint64)
        columns = [column[first] for column in self.columns]
        return _Aligned(columns, self.y[first], weight, number, unit, self.content[first], self.rank[first])


def _align(
    columns: Sequence[Column],
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    is_piece: bool = False,
) -> _Aligned:
    outcomes = read_outcomes(y)
    n = len(columns[0])
    if n != len(outcomes):
        raise ValueError(f"X has {n} rows and y has {len(outcomes)}: they must have the same number.")
    weight = read_weights(sample_weight, n)
    counted = np.flatnonzero(weight > 0)
    columns, outcomes = [column[counted] for column in columns], outcomes[counted]
    content = units_of_content(columns, outcomes)
    unit = rank = content if is_piece else units_of_ranks(columns, outcomes)
    if groups is not None:
        unit = units_of_groups(groups, n)[counted]
        content = content ^ unit
    return _Aligned(columns, outcomes, weight[counted], counted, unit, content, rank)


def outcome_names(y: Any, n_outcomes: int) -> tuple[str, ...]:
    """Names of the outcomes if y is a frame or a series with a name; else y, or y0, y1, ..."""
    given = list(y.columns) if hasattr(y, "columns") else [getattr(y, "name", None)]
    if len(given) == n_outcomes and all(name is not None for name in given):
        return tuple(str(name) for name in given)
    return ("y",) if n_outcomes == 1 else tuple(f"y{j}" for j in range(n_outcomes))


def read_outcomes(y: ArrayLike, n_outcomes: int | None = None) -> Array:
    """Outcomes (n, d) as float64; a one-dimensional y is one outcome."""
    if y is None:
        raise ValueError("y is missing: the model requires y to be passed, but the target y is None.")
    if isinstance(y, np.ma.MaskedArray):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    y = _durations_as_seconds(y)
    try:
        values = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, allow_nd=True, input_name="y"
        )
    except (ValueError, OverflowError) as error:
        reason = str(error).split("\n", 1)[0]  # the values themselves may follow, all of them
        raise ValueError(f"y cannot be read as numbers: {reason}") from None
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


def _durations_as_seconds(y: Any) -> Any:
    """Outcomes with durations as numbers of seconds, on every pandas; dates are refused."""
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        columns = [np.asarray(y[name].to_numpy()) for name in y.columns]
        if not any(column.dtype.kind in "mM" for column in columns):
            return y
        return np.column_stack([_durations_as_seconds(column) for column in columns])
    if not hasattr(y, "dtype"):
        return y
    values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    seconds = as_seconds(values.ravel())
    if seconds is not None:
        return seconds.reshape(values.shape)
    objects = values.flat if values.dtype.kind == "O" else ()
    are_dates = values.dtype.kind == "M" or any(isinstance(value, datetime.date) for value in objects)
    if are_dates or (values.dtype.kind in "OU" and looks_like_dates(values.ravel())):
        raise ValueError(
            "y holds dates, and an outcome is a number: take the time until or since some date. Durations are read as "
            "seconds."
        )
    return y


def read_one_for_each(given: ArrayLike, name: str, n: int) -> Array:
    """One number for each of n rows, NaN where it is masked; a single number is repeated."""
    refuse_name(given, name)
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind == "M":
        raise ValueError(f"{name} has dates, and numbers are needed, such as days since the first of them.")
    if kind == "m":
        given = np.asarray(as_seconds(np.asarray(given)))
    try:
        values = np.ma.filled(np.ma.asarray(given, dtype=np.float64), np.nan)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} cannot be read as numbers: {error}") from None
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise ValueError(f"Expected {name} of shape ({n},); got {values.shape}.")
    return np.asarray(values)


def read_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Weights (n,), ones by default; a row of weight 2 equals the row twice."""
    if sample_weight is None:
        return np.ones(n)
    weight = read_one_for_each(sample_weight, "sample_weight", n)
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
    """Raise a ValueError about the first outcome outside its bounds, or about outcomes too far apart for float64."""
    for j, (low, high) in enumerate(bounds):
        y = table.y[:, j]
        outside = (y < (-np.inf if low is None else low)) | (y > (np.inf if high is None else high))
        if outside.any():
            row = _first_of_user(table, outside)
            raise ValueError(
                f"Outcome {j} of {name} is {y[row]:g} in row {table.number[row]}, outside its bounds ({low}, {high})."
            )
    too_large: Bools = np.max(np.abs(table.y), axis=1) > _LARGEST_OUTCOME
    if too_large.any():
        row = _first_of_user(table, too_large)
        raise ValueError(f"{name} is beyond {_LARGEST_OUTCOME:g} in row {table.number[row]}: rescale it.")


def _first_of_user(table: Table, where: Bools) -> int:
    """Place in the table of the row with the smallest number in the user's table where a mask (n,) is true."""
    places = np.flatnonzero(where)
    return int(places[np.argmin(table.number[places])])


def check_size(table: Table, atoms: int = 0) -> None:
    """Raise a ValueError about too few rows; rows at atoms do not count."""
    if len(table) < 2:
        besides = f" besides {atoms} atom(s)" if atoms else ""
        raise ValueError(f"Found {len(table)} row(s){besides} (n_samples = {len(table)}): at least 2 are required.")


def check_sum_of_weights(total: float) -> None:
    """Complain about weights whose sum is too small or too large to compute with."""
    if not _SMALLEST_SUM <= total <= _LARGEST_SUM:
        raise ValueError(
            f"The sample weights add up to {total:g}. They count as numbers of rows, so their sum has to be between "
            f"{_SMALLEST_SUM:g} and {_LARGEST_SUM:g}; set weights_are='relative' if only their ratios matter."
        )


def check_counts(table: Table, min_samples_node: float) -> None:
    """Warn about weights that cannot be counts of rows."""
    total = table.weight.sum()
    fewest = min(min_samples_node, len(table)) * (1 - 1e-9)  # weights of mean one add up to the rows but for rounding
    if total < fewest and not (table.weight == 1).all():
        warnings.warn(
            f"The sample weights add up to {total:g} for {len(table)} rows. They count as numbers of rows, so "
            f"no node reaches min_samples_node={min_samples_node:g}; weights_are='relative' makes their mean 1.",
            UserWarning,
            stacklevel=3,
        )


def note_on_weights(table: Table) -> tuple[str, ...]:
    """A sentence for the summary if few rows have most of the weight."""
    share = table.weight / table.weight.sum()
    worth = 1 / float(share @ share)
    if worth >= _FEW_WORTH * len(table):
        return ()
    return (
        f"note: few of the {len(table):,} rows have most of the weight: they are worth {worth:,.0f} row(s) of equal "
        "weight. Weights count as rows that were seen; if they were not, intervals are too narrow",
    )


def is_dask(part: object) -> bool:
    """Whether an object is a Dask collection."""
    return hasattr(part, "__dask_graph__")


def has_repeats(y: Array) -> bool:
    """Whether more than half of the rows of outcomes y (n, d) have an exact copy."""
    _, count = np.unique(y, axis=0, return_counts=True)
    return bool(count[count > 1].sum() > len(y) / 2)
