"""Parquet files as a table in pieces."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treecdf._common.typing import Ints, Units
from treecdf.training.sources.pieces import Opened, Pick, Piece, PieceReader, Place, count_weights, take_rows
from treecdf.training.sources.spill import spilled

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.dataset
    import pyarrow.fs

_PIECE_ROWS = 65_536  # rows of a piece: a frame of them and its copies are small beside the model's work space
_FOOTER_END = 8  # bytes at the end of a Parquet file: length of the footer, and the letters PAR1


class ParquetPieces:
    """The rows of a Parquet file or of a directory of them, in the order of the files' names.

    Directories named `column=value` are columns, too (Hive partitions). A column whose type differs between files has
    the type that holds all values, such as float64 for int64 and float64; where there is none, or where text meets
    numbers, the files are refused. A column that a file does not have is missing in all its rows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        outcomes: str | Sequence[str],
        covariates: Sequence[str] | None,
        weight: str | None,
        groups: str | None,
        directory: str | None,
    ) -> None:
        try:
            import pandas  # noqa: F401
            import pyarrow.dataset
        except ImportError:
            raise ImportError("fit_parquet needs pyarrow and pandas: pip install 'treecdf[dask]'.") from None
        plain = pyarrow.dataset.dataset(os.fspath(path), format="parquet")
        if not plain.files:
            raise ValueError(f"Expected Parquet files in {os.fspath(path)!r}; found none.")
        schemas = {fragment.path: fragment.physical_schema for fragment in plain.get_fragments()}
        keys = [] if plain.files == [os.fspath(path)] else _partition_keys(path, plain.files, _names(schemas.values()))
        names = [*_names(schemas.values()), *(field.name for field in keys)]
        self._outcomes = [outcomes] if isinstance(outcomes, str) else list(outcomes)
        self._weight, self._groups, self._directory = weight, groups, directory
        taken = {*self._outcomes, weight, groups}
        self.covariates = [name for name in names if name not in taken] if covariates is None else list(covariates)
        used = [*self._outcomes, *self.covariates, *self._besides]
        unknown = [name for name in used if name not in names]
        if unknown:
            raise ValueError(f"Expected columns of the files: {', '.join(names)}; got {unknown[0]!r}.")
        self._schema = pyarrow.schema([*_unified(schemas, used), *keys])
        hive = pyarrow.dataset.partitioning(pyarrow.schema(keys), flavor="hive") if keys else None
        dataset = pyarrow.dataset.dataset(os.fspath(path), self._schema, format="parquet", partitioning=hive)
        self._files = [_File.open(fragment, dataset.filesystem) for fragment in dataset.get_fragments()]
        self._read_already: list[Piece] = []

    def sizes(self) -> Ints:
        """Rows of every piece, and how many of them have a weight above zero, (pieces, 2).

        Without weights the counts come from the files' footers; with weights only their column is read.
        """
        if self._weight is not None:
            weights = (frame[self._weight].to_numpy() for frame in self._frames([self._weight]))
            counts = [(len(weight), count_weights(weight)) for weight in weights]
            return np.array(counts, dtype=np.int64).reshape(-1, 2)
        n = sum(file.n_rows for file in self._files)
        rows = np.diff([*range(0, n, _PIECE_ROWS), n])
        return np.column_stack([rows, rows])

    def whole(self) -> Piece:
        """All rows as one piece in memory."""
        batches = [batch for file in self._files for batch in file.batches(self._schema, self._used)]
        return self._piece(_frame(batches))

    def chosen(self, pick: Pick, firsts: Sequence[int]) -> list[Piece]:
        """The rows of every piece that are in a sample; the pieces begin with the rows `firsts`."""
        return [pick(*piece, first) for piece, first in zip(self._pieces(), firsts, strict=True)]

    def sample(self, firsts: Sequence[int], step: int) -> list[Piece]:
        """About one in `step` rows of every piece; the pieces begin with the rows `firsts`."""
        found = [take_rows(*piece, first, step) for piece, first in zip(self._pieces(), firsts, strict=True)]
        if step == 1:  # so all rows are in memory now, and nobody needs to read them again
            self._read_already = list(found)
        return found

    def units(self, reader: PieceReader) -> list[Units]:
        """Units (m,) of the rows of every piece that have a weight above zero."""
        firsts, found = 0, []
        for piece in self._read_already or self._pieces():
            found.append(reader.units(*piece, firsts))
            firsts += len(piece[0])
        return found

    def sources(self, reader: PieceReader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows and those set aside, in files of their own."""
        pieces = (reader(*piece, place) for piece, place in zip(self._handed_out(), places, strict=True))
        return spilled(pieces, sizes, self._directory, pool)

    def _handed_out(self) -> Iterator[Piece]:
        """All pieces; pieces in memory are handed out once and then forgotten, to free memory."""
        if not self._read_already:
            yield from self._pieces()
        while self._read_already:
            yield self._read_already.pop(0)

    def _pieces(self) -> Iterator[Piece]:
        """Covariates, outcomes, weights and groups of consecutive rows."""
        return map(self._piece, self._frames(self._used))

    def _piece(self, frame: pandas.DataFrame) -> Piece:
        """Covariates, outcomes, weights and groups of the rows of a frame."""
        weight, groups = (None if name is None else frame[name].to_numpy() for name in (self._weight, self._groups))
        return frame[self.covariates], frame[self._outcomes], weight, groups

    @property
    def _used(self) -> list[str]:
        """Names of all columns that are read, each once."""
        return list(dict.fromkeys([*self.covariates, *self._outcomes, *self._besides]))

    @property
    def _besides(self) -> list[str]:
        """Names of the columns of weights and groups, as far as there are such."""
        return [name for name in (self._weight, self._groups) if name is not None]

    def _frames(self, columns: Sequence[str]) -> Iterator[pandas.DataFrame]:
        """Columns of all rows, _PIECE_ROWS at a time whatever the files and their row groups; the last may be fewer."""
        waiting: list[pyarrow.RecordBatch] = []
        missing = _PIECE_ROWS
        for file in self._files:
            for batch in file.batches(self._schema, columns):
                while len(batch):
                    waiting.append(batch.slice(0, missing))
                    batch, missing = batch.slice(missing), missing - len(waiting[-1])
                    if not missing:
                        yield _frame(waiting)
                        waiting, missing = [], _PIECE_ROWS
        if waiting:
            yield _frame(waiting)


@dataclass(frozen=True)
class _File:
    """A Parquet file, with marks by which a change since it was opened is noticed."""

    fragment: pyarrow.dataset.ParquetFileFragment
    filesystem: pyarrow.fs.FileSystem
    n_rows: int
    stamp: tuple[int, int | None, int]

    @staticmethod
    def open(fragment: pyarrow.dataset.ParquetFileFragment, filesystem: pyarrow.fs.FileSystem) -> _File:
        """The file of a fragment as it is now."""
        stamp = _stamp(filesystem, fragment.path)
        return _File(fragment, filesystem, fragment.count_rows(), stamp)

    def batches(self, schema: pyarrow.Schema, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Columns of consecutive rows, of the types of the schema."""
        import pyarrow

        self._check()
        try:
            yield from self.fragment.to_batches(
                schema, columns=list(columns), batch_size=_PIECE_ROWS, batch_readahead=1, fragment_readahead=1
            )
        except (pyarrow.ArrowException, OSError) as error:
            self._check()
            raise ValueError(f"{self.fragment.path} cannot be read: {error}") from error
        self._check()

    def _check(self) -> None:
        """Raise an error if the file has changed since it was opened."""
        if _stamp(self.filesystem, self.fragment.path) != self.stamp:
            raise ValueError(
                f"{self.fragment.path} was changed by somebody: expected the same rows from begin to end of a fit."
            )


def _stamp(filesystem: pyarrow.fs.FileSystem, path: str) -> tuple[int, int | None, int]:
    """Bytes, time of change and checksum of the footer, which has counts and offsets and mostly ranges of values."""
    with filesystem.open_input_file(path) as file:
        size = file.size()
        end = file.read_at(_FOOTER_END, max(size - _FOOTER_END, 0))
        length = min(int.from_bytes(end[:4], "little") + _FOOTER_END, size)
        footer = file.read_at(length, size - length)
    return size, filesystem.get_file_info(path).mtime_ns, zlib.crc32(footer)


def _frame(batches: Sequence[pyarrow.RecordBatch]) -> pandas.DataFrame:
    """One frame of all batches."""
    import pyarrow

    return pyarrow.Table.from_batches(batches).unify_dictionaries().to_pandas(ignore_metadata=True)


def _names(schemas: Iterable[pyarrow.Schema]) -> list[str]:
    """Names of the columns of all files, in the order in which they come; an index that pandas wrote is none."""
    names: dict[str, None] = {}
    indices: set[str] = set()
    for schema in schemas:
        written = (schema.pandas_metadata or {}).get("index_columns", [])
        indices.update(name for name in written if isinstance(name, str))
        names.update(dict.fromkeys(schema.names))
    return [name for name in names if name not in indices]


def _partition_keys(path: str | os.PathLike[str], files: Sequence[str], columns: Sequence[str]) -> list[pyarrow.Field]:
    """Columns in the names of directories below the path, as far as the files have none of that name.

    One whose values are all whole numbers is int64, any other is text.
    """
    import pyarrow.dataset

    segments = [segment for file in files for segment in file.split("/")[:-1] if "=" in segment]
    possible = [name for name in dict.fromkeys(s.partition("=")[0] for s in segments) if name not in columns]
    texts = pyarrow.schema([(name, pyarrow.string()) for name in possible])
    dataset = pyarrow.dataset.dataset(os.fspath(path), texts, format="parquet", partitioning="hive")
    values: dict[str, list[str]] = {}
    for fragment in dataset.get_fragments():
        for name, value in pyarrow.dataset.get_partition_keys(fragment.partition_expression).items():
            values.setdefault(name, []).extend([] if value is None else [value])
    return [
        pyarrow.field(name, pyarrow.int64() if all(map(_is_whole_number, values[name])) else pyarrow.string())
        for name in possible
        if name in values
    ]


def _is_whole_number(text: str) -> bool:
    """Whether a text is how int64 prints a number, so that "01" stays text."""
    return text.lstrip("-").isdecimal() and str(int(text)) == text and abs(int(text)) < 2**63


def _unified(schemas: Mapping[str, pyarrow.Schema], names: Sequence[str]) -> list[pyarrow.Field]:
    """The named columns, as far as files have them, each with a type that holds the values of all files."""
    import pyarrow

    found: dict[str, tuple[pyarrow.DataType, str]] = {}  # with the first file that has such a column
    for path, schema in schemas.items():
        for name in names:
            if name not in schema.names:
                continue
            type_ = schema.field(name).type
            known, first = found.get(name, (type_, path))
            merged = type_ if type_ == known else _common_type(known, type_)
            if merged is None:
                raise ValueError(
                    f"Expected one type of column {name!r} in all files; got {known} in {first} and {type_} in {path}."
                )
            found[name] = merged, first
    # Without any value, a column is one of missing numbers.
    types = {name: pyarrow.float64() if pyarrow.types.is_null(t) else t for name, (t, _) in found.items()}
    return [pyarrow.field(name, types[name]) for name in types]


def _common_type(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType | None:
    """A type that holds the values of both; None if there is none, or if text would become bytes."""
    import pyarrow

    schemas = [pyarrow.schema([("column", type_)]) for type_ in (one, other)]
    try:
        merged = pyarrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pyarrow.ArrowException:
        return None
    has_null = pyarrow.types.is_null(one) or pyarrow.types.is_null(other)
    return None if pyarrow.types.is_binary(merged) and not has_null else merged
