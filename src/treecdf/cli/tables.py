"""Tables that commands read: what a field means never depends on the other rows of the file.

Every field of a CSV file is text first. A model that is asked knows which of its columns are numbers and which are
categories. When a model is fitted, each column is decided once, from all of its rows.
"""

from __future__ import annotations

import contextlib
import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treecdf._common.typing import Array, Bools, Ints
from treecdf.cli.output import TABLES
from treecdf.cli.terminal import quoted

if TYPE_CHECKING:
    from pandas import DataFrame

# Fields that mean a missing value, spaces around them aside: the same as those of pandas.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# A plain decimal number. A leading zero as in 01 is a sign of a code, not of a number.
_NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Infinity in words: no number that can be used, but no name of a category either.
_INFINITY = r"[+-]?(?:[iI]nf|INF)(?:inity|INITY)?"
# A whole number, which keeps all of its digits.
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
# Rows of a CSV file that are Python objects at the same time.
_BATCH = 8192
# Names of columns that a message lists.
_MOST_LISTED = 20
# Whole fields may be longer than the 128 kB that Python's reader allows unless told otherwise.
_MOST_CHARACTERS = 2**31 - 1


class Kind(Enum):
    """How the fields of a column are read."""

    NUMBER = auto()
    """Plain decimal numbers, some of which may be missing."""
    WEIGHT = auto()
    """Plain decimal numbers, none of which may be missing."""
    TEXT = auto()
    """Names of a category's levels, exactly as written."""
    CODE = auto()
    """Names of a category's levels that are numbers: 3.0 is the level 3 and 0.50 is 0.5, as they are in Python."""
    LEVELS = auto()
    """A category to be learnt: CODE if every field is a plain number, else TEXT."""
    ANY = auto()
    """A covariate to be learnt: NUMBER if every field is a plain number, else TEXT."""


# Given the names of a table's columns, the columns to read and how; complains about those that are not there.
Choose = Callable[[Sequence[str]], Mapping[str, Kind]]


def read_file(path: Path, choose: Choose) -> DataFrame:
    """Some columns of a CSV or Parquet file; numbers are floats, names of levels are text, or None if missing.

    Parameters
    ----------
    path : Path
        A file whose name ends in .csv or .parquet. Parquet files keep the types that they have.
    choose : callable
        Gets the names of all columns and returns those to read, each with its `Kind`.

    Returns
    -------
    DataFrame
        The chosen columns of all rows.
    """
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"the table's name should end in .csv or .parquet; got {path.name}")
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    frame = _read_csv(path, choose) if path.suffix.lower() == ".csv" else _read_parquet(path, choose)
    if not len(frame):
        raise ValueError(f"{path} has no rows")
    return frame


def check_columns(known: Sequence[str], wanted: Sequence[str]) -> None:
    """Complain about the first column that is wanted and not there."""
    there = set(known)
    missing = [name for name in wanted if name not in there]
    if missing:
        more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
        listed = ", ".join(map(quoted, known[:_MOST_LISTED]))
        raise ValueError(f"there is no column {quoted(missing[0])}; the table has {listed}{more}")


def kind_of_levels(levels: Sequence[str]) -> Kind:
    """How fields of a category with these levels are read: CODE if all of them are numbers, in their shortest form."""
    known = [level for level in levels if level]
    are_codes = all(re.fullmatch(_NUMBER, level) and _code(level) == level for level in known)
    return Kind.CODE if known and are_codes else Kind.TEXT


# CSV


def _read_csv(path: Path, choose: Choose) -> DataFrame:
    """The chosen columns of a CSV file, read once."""
    import pandas as pd

    with open(path, encoding="utf-8-sig", newline="") as stream, _fields_of_any_length():
        records = _records(path, stream)
        first, header = next(records, (1, None))
        if header is None:
            raise ValueError(f"{path} is empty: expected a line with the names of the columns")
        names = _names_of_columns(f"{path}, line {first}", header)
        kinds = choose(names)
        for j, name in enumerate(names):
            if kinds.get(name) is Kind.ANY and not header[j]:
                raise ValueError(
                    f"{path}, line {first}: column {j + 1} has no name: name it, or leave it out with --drop '{name}'"
                )
        place = {name: j for j, name in enumerate(names) if name in kinds}
        text, lines = _fields(path, records, len(names), place)
    columns = {name: _column(text.pop(name), kind, _Place(path, name, lines)) for name, kind in kinds.items()}
    return pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()}, copy=False)


@contextlib.contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Let Python's reader of CSV take fields of any length."""
    before = csv.field_size_limit(_MOST_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _records(path: Path, stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank: the line that each begins on, counted from 1 as editors do, and its fields."""
    reader = csv.reader(stream, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields and not (len(fields) == 1 and fields[0].isspace()):
                yield line, fields
            line = reader.line_num + 1
    except UnicodeDecodeError:
        raise ValueError(_where_not_utf8(path)) from None
    except csv.Error as error:
        if "end of data" in str(error):
            raise ValueError(f"{path}, line {line}: a field begins with a quote that is never closed") from None
        row = f" of the row that begins on line {line}" if reader.line_num > line else ""
        raise ValueError(
            f"{path}, line {reader.line_num}{row}: expected a comma after a quoted field, and quotes inside of it twice"
        ) from None


def _where_not_utf8(path: Path) -> str:
    """The complaint about a file that is no UTF-8, with the line of the first byte that is not."""
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = 1 + len(re.findall(rb"\r\n|\r|\n", data[: error.start]))
        field = 1 + re.split(rb"[\r\n]", data[: error.start])[-1].count(b",")
        byte = data[error.start]
        return f"{path}, line {line}, about field {field}: expected UTF-8; got the byte 0x{byte:02x}: save it as UTF-8"
    return f"{path} changed while it was read"


def _names_of_columns(where: str, header: Sequence[str]) -> list[str]:
    """Names of the columns, all different; one without a name gets that which pandas gives it."""
    names = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
    first: dict[str, int] = {}
    for j, name in enumerate(names):
        if name in first:
            raise ValueError(
                f"{where}: expected different names of columns; got {quoted(name)} for columns "
                f"{first[name] + 1} and {j + 1}"
            )
        first[name] = j
    return names


def _fields(
    path: Path, records: Iterator[tuple[int, list[str]]], width: int, place: Mapping[str, int]
) -> tuple[dict[str, pa.ChunkedArray], Ints]:
    """The text of the columns at these places, and the lines (n,) on which the rows begin."""
    chunks: dict[str, list[pa.Array]] = {name: [] for name in place}
    batch: list[list[str]] = []
    lines: list[Ints] = []
    numbers: list[int] = []

    def put_away() -> None:
        for name, j in place.items():
            chunks[name].append(pa.array([fields[j] for fields in batch], pa.large_string()))
        lines.append(np.array(numbers, np.int64))
        batch.clear()
        numbers.clear()

    for line, fields in records:
        if len(fields) != width:
            comma = ": it ends with a comma" if len(fields) > width and not fields[-1] else ""
            raise ValueError(
                f"{path}, line {line}: expected {width} field{'s' * (width > 1)}, as in the header; got "
                f"{len(fields)}{comma}"
            )
        batch.append(fields)
        numbers.append(line)
        if len(batch) == _BATCH:
            put_away()
    put_away()
    return {name: pa.chunked_array(parts) for name, parts in chunks.items()}, np.concatenate(lines)


# From text to values


class _Place:
    """Where the fields of a column stand in the file, for messages."""

    def __init__(self, path: Path, name: str, lines: Ints) -> None:
        self._path, self.name, self._lines = path, name, lines

    def line(self, row: int) -> int:
        """The line of a row."""
        return int(self._lines[row])

    def complaint(self, row: int, expected: str, got: str) -> ValueError:
        """What was expected at a row, and what came."""
        where = f"{self._path}, line {self.line(row)}, column {quoted(self.name)}"
        return ValueError(f"{where}: expected {expected}; got {quoted(got)}")


def _column(text: pa.ChunkedArray, kind: Kind, place: _Place) -> Array | np.ndarray:
    """Text (n,) as numbers with NaN for what is missing, or as names of levels with None."""
    bare = pc.utf8_trim_whitespace(text)
    missing = pc.is_in(bare, value_set=pa.array(MISSING, pa.large_string()))
    number = pc.match_substring_regex(bare, f"^(?:{_NUMBER})$")
    if kind is Kind.LEVELS:
        kind = Kind.CODE if _all(pc.or_(missing, number)) else Kind.TEXT
    if kind is Kind.ANY:
        may_be = pc.or_(number, pc.match_substring_regex(bare, f"^(?:{_INFINITY})$"))
        kind = Kind.NUMBER if _all(pc.or_(missing, may_be)) else Kind.TEXT
        if kind is Kind.TEXT:
            _tell_if_almost_numbers(text, missing, number, place)
    if kind in (Kind.NUMBER, Kind.WEIGHT):
        return _numbers(bare, missing, number, kind is Kind.WEIGHT, place)
    if kind is Kind.CODE:
        text = pc.if_else(number, bare, text)
    names = _names(pc.if_else(missing, pa.scalar(None, pa.large_string()), text))
    if kind is Kind.CODE:
        codes = {name: _code(name) for name in set(names.tolist()) if name is not None and re.fullmatch(_NUMBER, name)}
        names[:] = [codes.get(name, name) for name in names.tolist()]
    return names


def _code(number: str) -> str:
    """The name of a level that is a plain number, however it is written: the name that the number has in Python."""
    if re.fullmatch(_WHOLE, number):
        return str(int(number)) if len(number) < 4000 else number
    value = float(number)
    return str(int(value)) if value.is_integer() else str(value)


def _all(true: pa.ChunkedArray) -> bool:
    """Whether all are true."""
    return bool(pc.all(true, min_count=0).as_py())


def _tell_if_almost_numbers(
    text: pa.ChunkedArray, missing: pa.ChunkedArray, number: pa.ChunkedArray, place: _Place
) -> None:
    """Say why a column that is mostly numbers is taken for a category: a slip of the pen should be seen."""
    n_numbers, n_known = pc.sum(number).as_py(), len(text) - pc.sum(missing).as_py()
    if 2 * n_numbers > n_known:
        row = _first_false(pc.or_(missing, number))
        print(
            f"treecdf: column {quoted(place.name)} is read as a category: {n_known - n_numbers} of {n_known} values "
            f"are no plain numbers, the first on line {place.line(row)}: {quoted(text[row].as_py())}",
            file=sys.stderr,
        )


def _first_false(true: pa.ChunkedArray) -> int:
    """The first row that is false."""
    return int(pc.index(true, False).as_py())


def _numbers(
    bare: pa.ChunkedArray, missing: pa.ChunkedArray, number: pa.ChunkedArray, must_be_known: bool, place: _Place
) -> Array:
    """Text without spaces around it as numbers (n,), NaN where it is missing."""
    fine = number if must_be_known else pc.or_(missing, number)
    if not _all(fine):
        row = _first_false(fine)
        expected = "a plain number such as 12, -0.5 or 1e5" + ("" if must_be_known else ", or a missing value")
        raise place.complaint(row, expected, bare[row].as_py())
    known = pc.if_else(missing, "nan", bare)
    values = np.fromiter((float(field) for chunk in known.chunks for field in chunk.to_pylist()), float, len(known))
    too_large: Bools = np.isinf(values)
    if too_large.any():
        row = int(too_large.argmax())
        raise place.complaint(row, "a number below 1.8e308", bare[row].as_py())
    return values


def _names(text: pa.ChunkedArray) -> np.ndarray:
    """Text as Python objects (n,), None where it is missing; rows with the same text share one."""
    encoded = text.combine_chunks().dictionary_encode()
    names = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return names[encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)]


# Parquet


def _read_parquet(path: Path, choose: Choose) -> DataFrame:
    """The chosen columns of a Parquet file, with its own types."""
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
        # Whole numbers with missing values stay whole: as floats, large ones would change.
        frame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    names = _names_of_columns(str(path), [str(name) for name in frame.columns])
    types = {name: field.type for name, field in zip(names, table.schema, strict=True)}
    frame.columns = names
    for index in _indices(table.schema):
        if not index.startswith("__index_level_"):  # the name of an index without a name
            print(f"treecdf: {quoted(index)} is the index of the rows of {path}, no column", file=sys.stderr)
        frame = frame.drop(columns=index)
    kinds = choose(list(frame.columns))
    frame = frame[list(kinds)].reset_index(drop=True)
    for name, kind in kinds.items():
        if pa.types.is_nested(types[name]):
            raise ValueError(
                f"{path}, column {quoted(name)}: expected numbers, text or truth values; got {types[name]}"
            )
        is_category = kind in (Kind.TEXT, Kind.CODE, Kind.LEVELS)
        if pa.types.is_integer(types[name]) and frame[name].dtype == object and not is_category:
            frame[name] = frame[name].astype(np.float64)
    return frame


def _indices(schema: pa.Schema) -> list[str]:
    """Names of the columns that pandas wrote as the index of the rows."""
    written = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in written if isinstance(name, str)]
