"""Tables that commands read: what a field means never depends on the other rows of the file.

Every field of a CSV file is text first. A model that is asked knows which of its columns are numbers and which are
categories. When a model is fitted, each column is decided once, from all of its rows.
"""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from treecdf.cli.csv_files import read_csv
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Choose, Input, names_of_columns
from treecdf.cli.terminal import quoted

if TYPE_CHECKING:
    from pandas import DataFrame


def read_file(given: Input, choose: Choose) -> DataFrame:
    """Some columns of a table; numbers are floats, names of levels are text, or None if missing.

    Parameters
    ----------
    given : Input
        A CSV, Parquet or Excel file, or the standard input. Parquet and Excel files keep the types that they have.
    choose : callable
        Gets the names of all columns and returns those to read, each with its `Kind`.

    Returns
    -------
    DataFrame
        The chosen columns of all rows; its index has the rows' numbers in the file, counted from 0.
    """
    readers = {"csv": read_csv, "parquet": _read_parquet, "excel": _read_excel}
    frame = readers[given.format](given, choose)
    if not len(frame):
        raise ValueError(f"{given.name} has no rows")
    return frame


def _read_parquet(given: Input, choose: Choose) -> DataFrame:
    """The chosen columns of a Parquet file, with its own types."""
    import pyarrow.parquet as pq

    try:
        with given.open() as stream:
            table = pq.ParquetFile(stream).read()
        # Whole numbers with missing values stay whole: as floats, large ones would change.
        frame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{given.name} cannot be read: {error}") from None
    names = names_of_columns(given.name, [str(name) for name in frame.columns])
    types = {name: field.type for name, field in zip(names, table.schema, strict=True)}
    frame.columns = names
    for index in _indices(table.schema):
        if not index.startswith("__index_level_"):  # the name of an index without a name
            print(f"treecdf: {quoted(index)} is the index of the rows of {given.name}, no column", file=sys.stderr)
        frame = frame.drop(columns=index)
    kinds = choose(list(frame.columns))
    frame = frame[list(kinds)].reset_index(drop=True)
    for name, kind in kinds.items():
        if pa.types.is_nested(types[name]):
            raise ValueError(
                f"{given.name}, column {quoted(name)}: expected numbers, text or truth values; got {types[name]}"
            )
        is_category = kind in (Kind.TEXT, Kind.CODE, Kind.LEVELS, Kind.AS_IT_IS)
        if pa.types.is_integer(types[name]) and frame[name].dtype == object and not is_category:
            frame[name] = frame[name].astype(np.float64)
    return frame


def _indices(schema: pa.Schema) -> list[str]:
    """Names of the columns that pandas wrote as the index of the rows."""
    written = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in written if isinstance(name, str)]


def _read_excel(given: Input, choose: Choose) -> DataFrame:
    """The chosen columns of the first sheet of an Excel file, with the types of its cells."""
    import pandas as pd

    try:
        with given.open() as stream:
            frame = pd.read_excel(stream, header=None, engine="openpyxl")
    except ImportError:
        raise ImportError(f"{given.name} needs openpyxl: pip install openpyxl, or save it as CSV") from None
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{given.name} cannot be read: {error}") from None
    if frame.empty:
        raise ValueError(f"{given.name} is empty: expected a row with the names of the columns")
    header = ["" if pd.isna(name) else str(name) for name in frame.iloc[0]]
    names = names_of_columns(given.name, header)
    frame = frame.iloc[1:].reset_index(drop=True)
    frame.columns = pd.Index(names)
    return frame[list(choose(names))].infer_objects()
