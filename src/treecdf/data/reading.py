"""Frames and arrays as columns of numbers and of names; all errors about X are raised here.

Reading a table to fit (`learn_columns`) and reading one to predict (`read_columns`) are two functions: the first finds
out names and kinds of the columns, the second expects columns of these names and kinds.
"""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array

from treecdf._common.protocols import Frame
from treecdf._common.typing import Array, Column
from treecdf.data.columns import Covariates, Order
from treecdf.data.dates import are_ambiguous, as_dates, as_seconds

_OWNER = "treecdf"  # How messages in scikit-learn's words name the estimator.


@dataclass(frozen=True)
class Schema:
    """The names of the columns of covariates, and their encoders."""

    names: tuple[str, ...] | None  # None: an array, whose columns have no names
    covariates: Covariates

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.covariates.columns)


def learn_columns(
    X: ArrayLike | Frame, categorical_features: Any = None
) -> tuple[tuple[str, ...] | None, list[Column], list[Order]]:
    """Names of the columns (None for an array), the columns, and the orders of their levels."""
    X = opened(X)
    if is_frame(X):
        names = _names_of(X)
        _check_shape(X.shape)
        declared = _declared(categorical_features, list(X.columns))
        columns = [
            _read(_values(X[name]), f"column {text!r}", "category" if declared[j] or _is_categorical(X[name]) else None)
            for j, (name, text) in enumerate(zip(X.columns, names, strict=True))
        ]
        return names, columns, [_order(X[name]) for name in X.columns]
    values: Any = X
    if categorical_features is None and values.dtype.kind not in "OUSmM":
        columns = list(_as_numbers(values).T)
        return None, columns, [None] * len(columns)
    values = check_array(values, dtype=None, ensure_all_finite=False, estimator=_OWNER, input_name="X")
    declared = _declared(categorical_features, values.shape[1])
    columns = [_read(column, f"column {j}", "category" if declared[j] else None) for j, column in enumerate(values.T)]
    return None, columns, [None] * len(columns)


def read_columns(schema: Schema, X: ArrayLike | Frame) -> list[Column]:
    """The columns of new rows, of the same kinds as in training; columns of frames are matched by name."""
    X = opened(X)
    kinds = schema.covariates.kinds
    if is_frame(X):
        X = _in_order(schema, X, _names_of(X))
        _check_shape(X.shape)
        _check_width(schema, X.shape[1])
        return [
            _read(_values(X[name]), f"column {str(name)!r}", kind) for name, kind in zip(X.columns, kinds, strict=True)
        ]
    values: Any = X
    if schema.names is not None and schema.names != _numbered(schema.n_columns):
        _warn(f"X does not have valid feature names, but {_OWNER} was fitted with feature names")
    if values.dtype.kind not in "OUSmM" and set(kinds) <= {"number"}:
        numbers = _as_numbers(values)
        _check_width(schema, numbers.shape[1])
        return list(numbers.T)
    values = check_array(values, dtype=None, ensure_all_finite=False, estimator=_OWNER, input_name="X")
    _check_width(schema, values.shape[1])
    return [_read(column, f"column {j}", kind) for j, (column, kind) in enumerate(zip(values.T, kinds, strict=True))]


def opened(X: Any) -> Any:
    """X as a frame or an array; pyarrow Tables and LazyFrames of polars are read, sparse matrices refused."""
    if hasattr(X, "column_names") and hasattr(X, "to_pandas"):
        return X.to_pandas()
    if hasattr(X, "collect") and hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        return X.collect()
    if issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. In a pipeline let the step before make dense "
            "rows, such as OneHotEncoder(sparse_output=False), or leave out the encoder, as text columns are read as "
            "they are; else use X.toarray()."
        )
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"X is the name of a file, and a table is needed: pass pandas.read_csv({str(X)!r}) or the like."
        )
    if isinstance(X, Iterator):
        raise TypeError("X is an iterator, and a table is needed: pass list(X).")
    if isinstance(X, dict) or (isinstance(X, list | tuple) and len(X) and isinstance(X[0], dict)):
        raise TypeError("X is made of dicts, and a table is needed: pass pandas.DataFrame(X).")
    return X if is_frame(X) else _as_array(X)


def opened_outcomes(y: Any) -> Any:
    """Outcomes as they come; columns and Tables of pyarrow and LazyFrames of polars are read."""
    if hasattr(y, "to_pandas") and (hasattr(y, "column_names") or hasattr(y, "to_pylist")):
        return y.to_pandas()
    is_lazy = hasattr(y, "collect") and hasattr(y, "collect_schema") and not hasattr(y, "shape")
    return y.collect() if is_lazy else y


def is_frame(X: object) -> TypeGuard[Frame]:
    """Whether X is a pandas or polars frame, or anything alike."""
    return hasattr(X, "columns") and hasattr(X, "shape") and hasattr(X, "__getitem__")


# Names of columns


def _names_of(X: Frame) -> tuple[str, ...]:
    """Names of a frame's columns as text; names that are no text (years, tuples of a MultiIndex) are written out."""
    names = tuple(str(name) for name in X.columns)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has more than one column {twice!r}: names of columns must be unique.")
    return names


def _in_order(schema: Schema, X: Frame, names: Sequence[str]) -> Frame:
    """The frame with the training columns in their order, without others."""
    wanted = schema.names
    if wanted is None:
        if all(isinstance(name, str) for name in X.columns):
            _warn(f"X has feature names, but {_OWNER} was fitted without feature names")
        return X
    if not set(wanted) <= set(names):
        raise ValueError(_mismatch(wanted, names))
    if tuple(names) == wanted:
        return X
    own_name = dict(zip(names, X.columns, strict=True))
    frame: Frame = X[[own_name[name] for name in wanted]]
    return frame


def _mismatch(wanted: Sequence[str], names: Sequence[str]) -> str:
    """The error message about a frame with other columns, in scikit-learn's words."""
    message = "The feature names should match those that were passed during fit.\n"
    for title, found in (
        ("Feature names unseen at fit time:", sorted(set(names) - set(wanted))),
        ("Feature names seen at fit time, yet now missing:", sorted(set(wanted) - set(names))),
    ):
        if found:
            more = ["- ..."] if len(found) > 5 else []
            message += "\n".join([title, *(f"- {_shown(name)}" for name in found[:5]), *more]) + "\n"
    return message


def _shown(name: str) -> str:
    """A name for a message, with control characters escaped."""
    return name if name.isprintable() else repr(name)


def _numbered(n: int) -> tuple[str, ...]:
    """The names that pandas gives to columns without names."""
    return tuple(map(str, range(n)))


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=6)


def _check_width(schema: Schema, n_columns: int) -> None:
    if n_columns != schema.n_columns:
        raise ValueError(f"X has {n_columns} features, but {_OWNER} is expecting {schema.n_columns} features as input.")


def _check_shape(shape: tuple[int, int]) -> None:
    n, q = shape
    if not n:
        raise ValueError(f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
    if not q:
        raise ValueError(f"0 feature(s) (shape={shape}) while a minimum of 1 is required.")


def _declared(categorical_features: Any, columns: int | Sequence[Any]) -> list[bool]:
    """For each column whether the user declares it as a category.

    columns: names of a frame's columns, or the number of an array's columns.
    """
    names = [] if isinstance(columns, int) else [_plain(name) for name in columns]
    q = columns if isinstance(columns, int) else len(names)
    if categorical_features is None:
        return [False] * q
    given = [_plain(part) for part in _as_list(categorical_features)]
    if given and all(isinstance(part, bool) for part in given):
        if len(given) != q:
            raise ValueError(
                f"Expected categorical_features with one boolean for each of {q} columns; got {len(given)}."
            )
        return given
    place: dict[Any, int] = {}
    if not any(isinstance(name, int) for name in names):  # numbers that are names are no positions
        place |= {j: j % q for j in range(-q, q)}
    place |= {str(name): j for j, name in enumerate(names)} | {name: j for j, name in enumerate(names)}
    unknown = [part for part in given if isinstance(part, bool) or part not in place]
    if unknown:
        raise ValueError(f"categorical_features names {unknown[0]!r}, which is no column of X.")
    chosen = {place[part] for part in given}
    return [j in chosen for j in range(q)]


def _as_list(given: Any) -> list[Any]:
    """What a user names, one or several, as a list."""
    is_one = isinstance(given, str | int | np.generic) or not hasattr(given, "__iter__")
    return [given] if is_one else list(given)


def _plain(value: Any) -> Any:
    """A number of numpy's as one of Python's."""
    return value.item() if isinstance(value, np.generic) else value


# Values


def _as_array(X: ArrayLike | Frame) -> NDArray[Any]:
    """X as an array; masked entries are missing, and rows of numbers and texts keep their types."""
    if isinstance(X, np.ma.MaskedArray):
        kind = np.float64 if X.dtype.kind in "biuf" else object
        return np.ma.filled(X.astype(kind), np.nan)
    if hasattr(getattr(X, "dtype", None), "kind"):
        return X  # type: ignore[return-value]  # scikit-learn's check says what is wrong with it
    try:
        # Objects first: numpy would give every entry as many characters as the longest text has.
        values = np.array(X, dtype=object)
        return values if any(isinstance(value, str | bytes) for value in values.flat) else np.asarray(X)
    except ValueError:
        raise ValueError("X cannot be read as a table: its rows have different lengths.") from None


def _as_numbers(X: Any) -> Array:
    """X (n, q) as float64, validated by scikit-learn except where nothing can be wrong."""
    if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size and not np.isinf(X).any():
        return np.ascontiguousarray(X)
    numbers: Array = check_array(
        X, dtype=np.float64, order="C", ensure_all_finite="allow-nan", estimator=_OWNER, input_name="X"
    )
    return numbers


def _values(column: Any) -> NDArray[Any]:
    """The values (n,) of a frame's column."""
    if getattr(column.dtype, "tz", None) is not None and hasattr(column, "dt"):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)  # else pandas makes an object of every value
    return np.asarray(column.to_numpy())


def _is_categorical(column: Any) -> bool:
    dtype = str(column.dtype)
    return dtype == "category" or dtype.startswith(("Categorical", "Enum"))


def _order(column: Any) -> Order:
    """The levels of a frame's column in their order, None if they have none."""
    if not getattr(column.dtype, "ordered", False):
        return None
    return tuple(str(_name(_plain(level), "an order")) for level in column.dtype.categories)


def _read(values: NDArray[Any], where: str, kind: str | None) -> Column:
    """A column as numbers, dates or names: of the given kind, or of the kind that fits its values if that is None."""
    if values.ndim > 1:  # such as the structs of polars
        _name(values[0], where)
    if kind == "category":
        return _names(values, where)
    if kind != "number":
        dates = as_dates(values)
        if dates is not None:
            return dates
    if kind == "date":
        return _missing_dates(values, where)
    numbers = as_seconds(values)
    if numbers is None:
        numbers = _numbers(values, where)
    if numbers is None:
        if kind == "number":
            raise ValueError(f"{where} of X had numbers when the model was fitted; got {_first_name(values)!r}.")
        return _names_of_levels(values, where)
    if np.isinf(numbers).any():
        raise ValueError(f"{where} of X contains infinity: covariates must be finite or missing.")
    return numbers


def _missing_dates(values: NDArray[Any], where: str) -> Column:
    """A column whose dates are all missing; complains if there are other values."""
    for value in values.tolist():
        if not _is_gap(value) and as_dates(np.array([value], dtype=object)) is None:
            raise ValueError(f"{where} of X had dates when the model was fitted; got {value!r}.")
    if not all(_is_gap(value) for value in values.tolist()):
        raise ValueError(f"{where} of X had dates when the model was fitted; got dates mixed with times of day.")
    return np.full(len(values), np.datetime64("NaT"), dtype="M8[us]")


def _names_of_levels(values: NDArray[Any], where: str) -> Column:
    """A column of names that is to be learnt; complains about dates among them."""
    if values.dtype.kind == "O":
        date = next((value for value in values.tolist() if _is_date(value)), None)
        if date is not None:
            raise ValueError(f"{where} of X holds dates and other values: got {date!r} beside {_first_name(values)!r}.")
    if are_ambiguous(values):
        _warn(
            f"{where} of X looks like dates in which day and month cannot be told apart, and is read as a category: "
            "write them as 2026-01-31 if they are."
        )
    return _names(values, where)


def _is_date(value: object) -> bool:
    return isinstance(value, datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64)


def _is_gap(value: object) -> bool:
    """Whether a value is missing: None, NaN, or pandas' NA and NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real | Decimal | np.bool_)


def _numbers(values: NDArray[Any], where: str) -> Array | None:
    """Values as float64, NaN for missing ones; None if some are no numbers."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: covariates must be real numbers or names.")
    if values.dtype.kind != "O" or not all(_is_gap(value) or _is_number(value) for value in values):
        return None
    try:
        return np.array([np.nan if _is_gap(value) else float(value) for value in values])
    except OverflowError:
        raise ValueError(f"{where} of X holds an integer beyond the range of float64: rescale it.") from None


def _names(values: NDArray[Any], where: str) -> Column:
    """Values as names of levels, None for missing ones. 3, 3.0 and "3" are the same level."""
    names = np.empty(len(values), dtype=object)
    names[:] = [_name(value, where) for value in values]
    return names


def _name(value: Any, where: str) -> str | None:
    if _is_gap(value):
        return None
    if isinstance(value, dict | list | set | tuple | np.ndarray):
        raise TypeError(f"A covariate's argument must be a string or a real number; got {value!r} in {where} of X.")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _first_name(values: NDArray[Any]) -> Any:
    """The first value that is neither a number nor a date, or else not a number."""
    others = [value for value in values if not _is_gap(value) and not _is_number(value)]
    return _plain(next((value for value in others if not _is_date(value)), others[0]))
