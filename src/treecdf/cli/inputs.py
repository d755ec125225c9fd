"""The source of a table: a file, compressed or not, or the standard input."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from treecdf.cli.fields import Kind
from treecdf.cli.terminal import quoted

# Given the names of a table's columns, the columns to read and how; complains about those that are not there.
Choose = Callable[[Sequence[str]], Mapping[str, Kind]]
# How the name of a table that can be read ends, and the format that it says.
FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".xlsx": "excel"}
# The name that stands for the standard input or output.
STANDARD = "-"
_PACKED = b"\x1f\x8b"  # how a file that gzip packed begins
_PARQUET = b"PAR1"  # how a Parquet file begins
# Names of columns that a message lists.
_MOST_LISTED = 20


@dataclass(frozen=True)
class Input:
    """A table to read, and how the user says that it is written; None is found out."""

    path: Path
    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(f"expected --encoding such as utf-8, latin-1 or cp1252; got {self.encoding}") from None

    @property
    def is_standard(self) -> bool:
        """Whether it is the standard input."""
        return str(self.path) == STANDARD

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "standard input" if self.is_standard else str(self.path)

    @property
    def format(self) -> str:
        """The format: "csv", "parquet" or "excel"; of the standard input its first bytes say it."""
        if self.is_standard:
            return "parquet" if self._standard.startswith(_PARQUET) else "csv"
        suffixes = [suffix.lower() for suffix in self.path.suffixes[-2:]]
        if suffixes and suffixes[-1] == ".gz":
            suffixes = [suffix for suffix in suffixes[:-1] if FORMATS.get(suffix) == "csv"]
        if not suffixes or suffixes[-1] not in FORMATS:
            known = ".csv or .parquet, or .tsv, .txt, .csv.gz or .xlsx"
            raise ValueError(f"the table's name should end in {known}; got {self.path}")
        if not self.path.is_file():
            raise ValueError(f"there is no file {self.path}")
        return FORMATS[suffixes[-1]]

    def open(self) -> BinaryIO:
        """The bytes of the table, decompressed."""
        if self.is_standard:
            packed = self._standard.startswith(_PACKED)
            return io.BytesIO(gzip.decompress(self._standard) if packed else self._standard)
        if self.path.suffix.lower() == ".gz":
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    @property
    def n_bytes(self) -> int:
        """Bytes of the file, compressed or not."""
        return len(self._standard) if self.is_standard else self.path.stat().st_size

    @cached_property
    def _standard(self) -> bytes:
        """The bytes of the standard input, which can be read only once."""
        if sys.stdin is None:
            raise ValueError("there is no standard input")
        return sys.stdin.buffer.read()


def names_of_columns(where: str, header: Sequence[str]) -> list[str]:
    """Names of the columns, all different; one without a name gets the name that pandas gives it."""
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


def check_columns(known: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise a ValueError about the first wanted column that does not exist."""
    there = set(known)
    missing = [name for name in wanted if name not in there]
    if missing:
        more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
        listed = ", ".join(map(quoted, known[:_MOST_LISTED]))
        raise ValueError(f"there is no column {quoted(missing[0])}; the table has {listed}{more}")
