"""Files that commands write: checked before the work begins, put in place only when they are whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from treecdf._common.files import replace_file
from treecdf.cli.inputs import STANDARD
from treecdf.cli.terminal import SafeStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = (".csv", ".tsv", ".csv.gz", ".parquet")
PICTURES = (".png", ".pdf", ".svg", ".jpg")
# Dots per inch of pictures.
_RESOLUTION = 150
# A column of the result has this many bytes in each line.
_CELL_BYTES = 8
# Most copies of a result that are in memory at once, while it is computed and written.
_N_COPIES = 4


def check_output(path: Path, inputs: Iterable[Path | None], suffixes: Sequence[str] = ()) -> None:
    """Refuse a place that a result cannot or must not be written to; links are followed."""
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
    """Refuse draws for which this machine has not enough memory; columns are those of the result."""
    needed = n_rows * n_draws * n_columns * _CELL_BYTES * _N_COPIES
    there = _memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{n_draws} draws for each of {n_rows} rows need about {needed / 1e9:.3g} GB of memory, and "
            f"{there / 1e9:.3g} GB are there: ask for fewer draws, or for a part of the rows at a time"
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
    """The name, with as many underscores behind it as make it different from those that are taken."""
    taken = set(taken)
    while name in taken:
        name += "_"
    return name


def write_table(path: Path, columns: Mapping[str, NDArray[np.generic]]) -> None:
    """Write columns (n,) as CSV or Parquet, as the name of the file says; as CSV to the standard output."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    if str(path) == STANDARD:
        text = frame.to_csv(index=False, lineterminator="\n")
        if isinstance(sys.stdout, SafeStream):
            sys.stdout.write_data(text)
        else:
            print(text, end="")
        return

    def write(file: BinaryIO) -> None:
        name = path.name.lower()
        if name.endswith(".parquet"):
            frame.to_parquet(file, index=False)
            return
        packed = {"method": "gzip", "mtime": 0} if name.endswith(".gz") else None  # the same bytes whenever it is
        separator = "\t" if name.endswith(".tsv") else ","
        frame.to_csv(file, index=False, mode="wb", encoding="utf-8", sep=separator, compression=packed)

    replace_file(path, write)


def write_picture(path: Path, figure: Figure) -> None:
    """Write a picture in the format that the name of the file says."""
    replace_file(path, lambda file: figure.savefig(file, dpi=_RESOLUTION, format=path.suffix.lower().removeprefix(".")))
