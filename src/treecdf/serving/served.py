"""A served model: rows and outcomes of requests in the form that its methods take, under its own column names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treecdf._common.typing import Array, Bools, Column
from treecdf.data.columns import Category, Date, Number
from treecdf.data.dates import parse_dates
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.estimators.state import schema_of
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.serving.bodies import LARGEST, read_number
from treecdf.serving.limits import Limits, Refusal, listed, shown

# What the values of a column of each kind are called in a refusal.
_EXPECTED = {"number": "a finite number or null", "date": "a date as text or null", "category": "a text or null"}


class ColumnOfRequest:
    """A column of a request, with the methods of a frame's column that are used."""

    def __init__(self, values: Column) -> None:
        self._values, self.dtype = values, values.dtype

    def to_numpy(self) -> Column:
        """The values (n,)."""
        return self._values


class TableOfRequest:
    """The columns of a request, with the methods of a frame that the model uses."""

    def __init__(self, columns: Mapping[Any, Column], n: int) -> None:
        self._columns = columns
        self.columns, self.shape = list(columns), (n, len(columns))

    def __getitem__(self, name: Any) -> ColumnOfRequest:
        return ColumnOfRequest(self._columns[name])

    def __len__(self) -> int:
        return self.shape[0]


class Served:
    """A fitted regressor under a name, and the limits of its requests.

    A model that was fitted to an array has columns without names: they are called "0", "1", ...
    """

    def __init__(self, model: TreeFlowRegressor, name: str, limits: Limits) -> None:
        # Requests run side by side, so that one of them takes one thread; others may use the model that was given.
        self.model = _copy_on_one_thread(model)
        self.name, self.limits = name, limits
        schema = schema_of(model)
        self._labels: tuple[Any, ...] = tuple(range(schema.n_columns)) if schema.names is None else schema.names
        self.columns = tuple(map(str, self._labels))
        self.kinds = schema.covariates.kinds
        self.outcomes = tuple(model.outcome_names_)
        self._encoders = schema.covariates.columns
        self._levels = [frozenset(part.levels) if isinstance(part, Category) else None for part in self._encoders]

    # Rows

    def table_of_rows(self, rows: Any) -> TableOfRequest:
        """Objects, one for each row, as a table."""
        if not isinstance(rows, list):
            raise Refusal(f"rows: expected a list of objects; got {shown(rows)}")
        self._check_count(len(rows))
        known = set(self.columns)
        for i, row in enumerate(rows):
            if not isinstance(row, dict):
                raise Refusal(f"row {i}: expected an object of columns; got {shown(row)}")
            if row.keys() != known:
                self._refuse_names(row, f"row {i}")
        return self._table({name: [row[name] for row in rows] for name in self.columns}, len(rows))

    def table_of_columns(self, columns: Any) -> TableOfRequest:
        """Lists of values, one for each column, as a table."""
        if not isinstance(columns, dict):
            raise Refusal(f"columns: expected an object with a list for each column; got {shown(columns)}")
        self._refuse_names(columns, "columns")
        n = None
        for name in self.columns:
            if not isinstance(columns[name], list):
                raise Refusal(f"column {shown(name)}: expected a list; got {shown(columns[name])}")
            n = len(columns[name]) if n is None else n
            if len(columns[name]) != n:
                raise Refusal(f"column {shown(name)} has {len(columns[name])} values and others have {n}")
        self._check_count(n or 0)
        return self._table(columns, n or 0)

    def _refuse_names(self, given: Mapping[str, Any], where: str) -> None:
        """Refuse unknown columns, and name missing ones."""
        unknown = [name for name in given if name not in self.columns]
        if unknown:
            raise Refusal(f"{where}: unknown column {shown(unknown[0])}; the model has {listed(self.columns)}")
        missing = [name for name in self.columns if name not in given]
        if missing:
            raise Refusal(f"{where}: column {shown(missing[0])} is not there (null stands for a missing value)")

    def _check_count(self, n: int) -> None:
        if not n:
            raise Refusal("expected at least one row; got none")
        if n > self.limits.rows:
            raise Refusal(f"expected at most {self.limits.rows} rows; got {n}", 413)

    def _table(self, columns: Mapping[str, list[Any]], n: int) -> TableOfRequest:
        made = {
            label: _READERS[kind](columns[name], name)
            for label, name, kind in zip(self._labels, self.columns, self.kinds, strict=True)
        }
        return TableOfRequest(made, n)

    def typical_table(self) -> TableOfRequest:
        """One row of typical values, with which the server tries the model before it reports that it is ready."""
        return self._table({name: [_typical(part)] for name, part in zip(self.columns, self._encoders, strict=True)}, 1)

    def distribution(self, table: TableOfRequest) -> ConditionalDistribution:
        """The distributions at the rows of a table."""
        frame: Any = table  # as much of one as is asked for
        found: ConditionalDistribution = self.model.predict_distribution(frame)
        return found

    def notes(self, table: TableOfRequest) -> list[str]:
        """Sentences about columns with values about which the model learnt nothing."""
        notes = []
        for label, name, part, levels in zip(self._labels, self.columns, self._encoders, self._levels, strict=True):
            n = int(_unknown(part, levels, table[label].to_numpy()).sum())
            if n:
                notes.append(
                    f"column {shown(name)} has values in {n} row(s) such as training rows did not have, or too few to "
                    "learn from: the answer averages over what they may be"
                )
        return notes

    # Outcomes

    def read_outcomes(self, given: Any, n: int) -> tuple[Array, bool]:
        """Outcomes (n, m, d), and whether each row has a single outcome instead of a list.

        An outcome is a number if the model has one outcome, else an object with all of them.
        """
        if not isinstance(given, list) or len(given) != n:
            got = f"{len(given)}" if isinstance(given, list) else shown(given)
            raise Refusal(f"outcomes: expected a list with one entry for each of {n} row(s); got {got}")
        is_single = not isinstance(given[0], list)
        entries = [[entry] if is_single else entry for entry in given]
        m = len(entries[0])
        for i, entry in enumerate(entries):
            if not isinstance(entry, list) or len(entry) != m:
                raise Refusal(f"outcomes: row {i} should have as many as row 0, all of them one or a list of them")
        if not 1 <= m <= self.limits.levels:
            raise Refusal(f"outcomes: expected 1 to {self.limits.levels} at a row; got {m}")
        points = [[self._point(one, i) for one in entry] for i, entry in enumerate(entries)]
        return np.array(points, dtype=np.float64), is_single

    def _point(self, given: Any, row: int) -> list[float]:
        """The d numbers of an outcome."""
        if isinstance(given, dict) and given.keys() == set(self.outcomes):
            return [read_number(given[name], f"outcomes, row {row}, {shown(name)}") for name in self.outcomes]
        if len(self.outcomes) > 1 or isinstance(given, dict):
            raise Refusal(f"outcomes, row {row}: expected an object with the numbers {listed(self.outcomes)}")
        return [read_number(given, f"outcomes, row {row}")]


def _copy_on_one_thread(model: TreeFlowRegressor) -> TreeFlowRegressor:
    """The same fitted model, whose predictions take one thread."""
    copy = type(model)(**{**model.get_params(deep=False), "n_jobs": 1})
    copy.__dict__ = {**vars(model), **vars(copy)}
    return copy


def _typical(part: Number | Date | Category) -> Any:
    """A typical value of a column, as JSON."""
    if isinstance(part, Number):
        return part.median
    if isinstance(part, Date):
        return str(np.datetime64(part.first, "us").astype("M8[s]"))
    return part.levels[0] if part.levels else None


def _unknown(part: Number | Date | Category, levels: frozenset[str] | None, column: Column) -> Bools:
    """Where (n,) nothing was learnt about a value: missing values and levels that training rows did not have."""
    if isinstance(part, Category):
        known = levels or frozenset()
        return np.array([part.missing_place < 0 if name is None else name not in known for name in column.tolist()])
    if part.has_gaps:
        return np.zeros(len(column), dtype=bool)
    return np.isnan(column) if isinstance(part, Number) else np.array([value is None for value in column.tolist()])


# Values of a column, by its kind


def _refuse_value(kind: str, name: str, row: int, value: Any) -> Refusal:
    return Refusal(f"row {row}, column {shown(name)}: expected {_EXPECTED[kind]}; got {shown(value)}")


def _read_numbers(values: Sequence[Any], name: str) -> Column:
    """Numbers, of which true and false are 1 and 0, with NaN for null."""
    for i, value in enumerate(values):
        if value is not None and (type(value) not in (int, float, bool) or not -LARGEST <= value <= LARGEST):
            raise _refuse_value("number", name, i, value)
    return np.array([np.nan if value is None else float(value) for value in values])


def _read_names(values: Sequence[Any], name: str) -> Column:
    """Names of levels: 3 and 3.0 are the level "3", as in training."""
    names = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        if isinstance(value, list | dict) or (isinstance(value, float) and not abs(value) <= LARGEST):
            raise _refuse_value("category", name, i, value)
        is_whole = isinstance(value, float) and value.is_integer()
        names[i] = None if value is None else str(int(value)) if is_whole else str(value)
    return names


def _read_dates(values: Sequence[Any], name: str) -> Column:
    """Dates as they were written, all of them readable and of one form."""
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        column[i] = value
        if value is not None and (type(value) is not str or parse_dates(column[i : i + 1]) is None):
            raise _refuse_value("date", name, i, value)
    if any(value is not None for value in values) and parse_dates(column) is None:
        raise Refusal(f"column {shown(name)}: expected dates or times of day; got both")
    return column


_READERS = {"number": _read_numbers, "category": _read_names, "date": _read_dates}
