"""Tables that commands read: how a field is read never depends on the other rows of the file.

Every field of a CSV file is text first. Questions read columns as the model knows them, as numbers or categories. For
a fit, the kind of each column is decided once, from all of its rows.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from treecdf.cli.csv_files import read_csv, read_csv_pieces
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Choose, Input, names_of_columns
from treecdf.cli.terminal import quoted

if TYPE_CHECKING:
    import pyarrow.parquet as pq
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


def read_pieces(given: Input, choose: Choose, n_rows: int) -> Iterator[tuple[DataFrame, float]]:
    """The same as `read_file`, n_rows rows at a time: frames, and the share of the file that was read with each.

    The kinds of all columns have to be known, but for Parquet and Excel, which have types. An Excel file is one piece.
    """
    pieces = {"csv": read_csv_pieces, "parquet": _parquet_pieces, "excel": _excel_pieces}[given.format]
    begin = 0
    for frame, share in pieces(given, choose, n_rows):
        frame.index = range(begin, begin + len(frame))
        begin += len(frame)
        if len(frame):
            yield frame, share
    if not begin:
        raise ValueError(f"{given.name} has no rows")


def _read_parquet(given: Input, choose: Choose) -> DataFrame:
    """The chosen columns of a Parquet file, with its own types."""
    ((frame, _),) = _parquet_pieces(given, choose, None)
    return frame


def _parquet_pieces(given: Input, choose: Choose, n_rows: int | None) -> Iterator[tuple[DataFrame, float]]:
    """The chosen columns of a Parquet file, with its own types, and the share of the rows that were read.

    n_rows: of a piece at most; None: all of them.
    """
    import pyarrow.parquet as pq

    try:
        with given.open() as stream:
            file = pq.ParquetFile(stream)
            schema = file.schema_arrow
            names = names_of_columns(given.name, schema.names)
            kinds = choose(_without_indices(given, schema, names))
            _refuse_nested(given, schema, kinds)
            done, total = 0, file.metadata.num_rows
            for table in [file.read(list(kinds))] if n_rows is None else _tables(file, list(kinds), n_rows):
                # Whole numbers with missing values stay whole: as floats, large ones would change.
                frame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)[list(kinds)]
                for name, kind in kinds.items():
                    is_category = kind in (Kind.TEXT, Kind.CODE, Kind.LEVELS, Kind.AS_IT_IS)
                    whole = pa.types.is_integer(schema.field(name).type)
                    if whole and frame[name].dtype == object and not is_category:
                        frame[name] = frame[name].astype(np.float64)
                done += len(frame)
                yield frame, done / max(total, 1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{given.name} cannot be read: {error}") from None


def _tables(file: pq.ParquetFile, names: list[str], n_rows: int) -> Iterator[pa.Table]:
    """Columns of a Parquet file, n_rows rows at a time."""
    for batch in file.iter_batches(n_rows, columns=names):
        yield pa.Table.from_batches([batch])


def _refuse_nested(given: Input, schema: pa.Schema, names: Iterable[str]) -> None:
    """Complain about columns that hold lists and the like."""
    for name in names:
        if pa.types.is_nested(schema.field(name).type):
            raise ValueError(
                f"{given.name}, column {quoted(name)}: expected numbers, text or truth values; got "
                f"{schema.field(name).type}"
            )


def _without_indices(given: Input, schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Names of the columns without those that pandas wrote as an index; the user is told about these."""
    indices = _indices(schema)
    for index in indices:
        if not index.startswith("__index_level_"):  # the name of an index without a name
            print(f"treecdf: {quoted(index)} is the index of the rows of {given.name}, no column", file=sys.stderr)
    return [name for name in names if name not in indices]


def _indices(schema: pa.Schema) -> list[str]:
    """Names of the columns that pandas wrote as the index of the rows."""
    written = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in written if isinstance(name, str)]


def _excel_pieces(given: Input, choose: Choose, n_rows: int) -> Iterator[tuple[DataFrame, float]]:
    """The chosen columns of an Excel file, as one piece: it is read as a whole in any case."""
    yield _read_excel(given, choose), 1.0


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
