"""Files written by commands: checked before the work begins, and put in place only when complete."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from treecdf._common.files import replace_file
from treecdf.cli.inputs import STANDARD
from treecdf.cli.terminal import SafeStream

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from matplotlib.figure import Figure

TABLES = (".csv", ".tsv", ".csv.gz", ".parquet")
PICTURES = (".png", ".pdf", ".svg", ".jpg")
# Characters of a result that go to the standard output at once.
_CHARACTERS = 1 << 20
# Dots per inch of pictures.
_RESOLUTION = 150
# A column of the result has this many bytes in each line.
_CELL_BYTES = 8
# Most copies of a result that are in memory at once, while it is computed and written.
_N_COPIES = 4


def check_output(path: Path, inputs: Iterable[Path | None], suffixes: Sequence[str] = ()) -> None:
    """Refuse a path that a result cannot or must not be written to; links are followed."""
    if suffixes is TABLES and str(path) == STANDARD:
        return
    if suffixes and not path.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"the output's name should end in {' or '.join(suffixes)}; got {path.name}")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise ValueError(f"there is no directory {target.parent}")
    if not os.path.lexists(target):
        if not os.access(target.parent, os.W_OK):
            raise ValueError(f"files cannot be made in the directory {target.parent}: permission denied")
        return
    if target.is_dir():
        raise ValueError(f"{path} is a directory")
    if not target.is_file():
        raise ValueError(f"{path} is a device or a pipe: the output has to be a regular file")
    for given in inputs:
        if given is not None and given.exists() and given.samefile(target):
            raise ValueError(f"{path} is the same file as the input {given}: give the output another name")


def check_memory(n_rows: int, n_draws: int, n_columns: int) -> None:
    """Refuse draws that need more memory than the machine has; columns are those of the result."""
    needed = n_rows * n_draws * n_columns * _CELL_BYTES * _N_COPIES
    there = _memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{n_draws} draws for each of {n_rows} row{'s' * (n_rows > 1)} need about {needed / 1e9:.3g} GB of memory, "
            f"and {there / 1e9:.3g} GB are there: ask for fewer draws, or for a part of the rows at a time"
        )


def _memory() -> int | None:
    """Bytes of memory that the process may have; None if the system does not say."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (AttributeError, ImportError, OSError, ValueError):
        return None
    return there if limit == resource.RLIM_INFINITY else min(there, limit)


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, with underscores appended until it differs from the taken ones."""
    taken = set(taken)
    while name in taken:
        name += "_"
    return name


def write_table(path: Path, columns: Mapping[str, NDArray[np.generic]]) -> None:
    """Write columns (n,) as CSV or Parquet, by the name of the file; on the standard output as CSV."""
    write_pieces(path, [columns])


def write_pieces(path: Path, pieces: Iterable[Mapping[str, NDArray[np.generic]]]) -> None:
    """Write pieces of a table, columns (m,) each, one below the other; see `write_table`.

    A file appears only when it is complete, and nothing is printed before the last piece was made.
    """
    if str(path) == STANDARD:
        with tempfile.TemporaryFile() as file:
            _write_csv(file, pieces, ",")
            file.seek(0)
            with io.TextIOWrapper(file, "utf-8", newline="") as text:
                while part := text.read(_CHARACTERS):
                    if isinstance(sys.stdout, SafeStream):
                        sys.stdout.write_data(part)
                    else:
                        print(part, end="")
        return

    def write(file: BinaryIO) -> None:
        name = path.name.lower()
        if name.endswith(".parquet"):
            _write_parquet(file, pieces)
        elif name.endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:  # the same bytes whenever it is
                _write_csv(cast(BinaryIO, packed), pieces, ",")
        else:
            _write_csv(file, pieces, "\t" if name.endswith(".tsv") else ",")

    replace_file(path, write)


def _write_csv(file: BinaryIO, pieces: Iterable[Mapping[str, NDArray[np.generic]]], separator: str) -> None:
    """Write pieces as CSV, with the names of the columns first."""
    import pandas as pd

    for k, columns in enumerate(pieces):
        frame = pd.DataFrame(columns)
        for name in frame.columns[[kind.kind == "M" for kind in frame.dtypes]]:
            # Each point in time by itself: pandas leaves the time of day out if all rows of a piece are at midnight.
            frame[name] = [None if pd.isna(value) else str(value) for value in frame[name]]
        frame.to_csv(file, index=False, header=k == 0, mode="wb", encoding="utf-8", sep=separator, lineterminator="\n")


def _write_parquet(file: BinaryIO, pieces: Iterable[Mapping[str, NDArray[np.generic]]]) -> None:
    """Write pieces as Parquet; all have the types of the first, and a column that was empty so far gets one later."""
    import pandas as pd
    import pyarrow as pa

    waiting: list[pa.Table] = []  # pieces with a column whose type no value has told yet
    writer = None
    try:
        for columns in pieces:
            frame = pd.DataFrame(columns)
            if writer is not None:
                writer.write_table(pa.Table.from_pandas(frame, writer.schema, preserve_index=False))
                continue
            waiting.append(pa.Table.from_pandas(frame, preserve_index=False))
            if not any(map(pa.types.is_null, waiting[-1].schema.types)):
                writer = _begin(file, waiting)
        if writer is None:
            writer = _begin(file, waiting)
    finally:
        if writer is not None:
            writer.close()


def _begin(file: BinaryIO, waiting: list[pa.Table]) -> pq.ParquetWriter:
    """A writer of Parquet that has written what was waiting, with the types of the last."""
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter(file, waiting[-1].schema)
    while waiting:
        writer.write_table(waiting.pop(0).cast(writer.schema))
    return writer


def write_picture(path: Path, figure: Figure) -> None:
    """Write a picture in the format that the name of the file says."""
    replace_file(path, lambda file: figure.savefig(file, dpi=_RESOLUTION, format=path.suffix.lower().removeprefix(".")))
