"""CSV files as columns of text: the separator is found, and errors name the line."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treecdf._common.typing import Ints
from treecdf.cli.fields import MISSING, Kind, Place, read_column
from treecdf.cli.inputs import Choose, Input, names_of_columns

if TYPE_CHECKING:
    from pandas import DataFrame

# What may separate fields, in order of preference.
_SEPARATORS = (",", ";", "\t", "|")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Characters from which the separator is found, and records of them after the header that must agree.
_SAMPLE, _MOST_AGREEING = 1 << 16, 20
# Rows of a CSV file that are Python objects at the same time.
_BATCH = 8192
# Whole fields may be longer than the 128 kB that Python's reader allows unless told otherwise.
_MOST_CHARACTERS = 2**31 - 1


def read_csv(given: Input, choose: Choose) -> DataFrame:
    """The chosen columns of a CSV file."""
    with _opened(given, choose) as opened:
        text, lines = _joined(opened.place, opened.batches(_BATCH))
    kinds, header, place, names = opened.kinds, opened.header, opened.place, opened.names
    for name in [name for name in kinds if kinds[name] is Kind.ANY and not header[place[name]]]:
        # A comma at the end of every line makes a last column that has neither a name nor a value.
        if place[name] == len(names) - 1 and _is_empty(text[name]):
            del kinds[name]
        else:
            raise ValueError(
                f"{given.name}, line {opened.first}: column {place[name] + 1} has no name: name it, or leave it out "
                f"with --drop '{name}'"
            )
    return opened.frame(text, lines)


def read_csv_pieces(given: Input, choose: Choose, n_rows: int) -> Iterator[tuple[DataFrame, float]]:
    """The chosen columns of a CSV file, n_rows rows at a time, each with the share of the file read so far.

    The kinds of all columns have to be known, because a piece does not show what a column of the whole file is.
    """
    with _opened(given, choose) as opened:
        for text, lines in opened.batches(n_rows):
            chunked = {name: pa.chunked_array([part]) for name, part in text.items()}
            yield opened.frame(chunked, lines), opened.share()


@dataclass(frozen=True)
class _Opened:
    """A CSV file whose header was read."""

    given: Input
    records: Iterator[tuple[int, list[str]]]
    first: int  # line of the header
    header: list[str]
    names: list[str]
    kinds: dict[str, Kind]  # of the chosen columns
    separator: str
    bytes: BinaryIO

    def share(self) -> float:
        """The share of the file that was read; of a packed one that of its packed bytes."""
        raw = getattr(self.bytes, "fileobj", self.bytes)
        return raw.tell() / max(self.given.n_bytes, 1)

    @property
    def place(self) -> dict[str, int]:
        """Places of the chosen columns."""
        return {name: j for j, name in enumerate(self.names) if name in self.kinds}

    def batches(self, n_rows: int) -> Iterator[tuple[dict[str, pa.Array], Ints]]:
        """The text of the chosen columns, n_rows rows at a time, and the lines (m,) on which these rows begin.

        There is one without rows if the file has none.
        """
        place, width = self.place, len(self.names)
        for k in itertools.count():
            rows = list(itertools.islice(self.records, n_rows))
            if k and not rows:
                return
            for line, fields in rows:
                if len(fields) != width:
                    raise ValueError(f"{self.given.name}, line {line}: {_ragged(fields, width, self.separator)}")
            text = {name: pa.array([fields[j] for _, fields in rows], pa.large_string()) for name, j in place.items()}
            yield text, np.array([line for line, _ in rows], np.int64)

    def frame(self, text: dict[str, pa.ChunkedArray], lines: Ints) -> DataFrame:
        """Text of the chosen columns, which is used up, as values; the rows begin on these lines."""
        import pandas as pd

        commas = self.separator == ";"  # where fields are separated in this way, numbers are written in this way
        places = {name: Place(self.given.name, name, lines, commas) for name in self.kinds}
        columns = {name: read_column(text.pop(name), kind, places[name]) for name, kind in self.kinds.items()}
        return pd.DataFrame({name: pd.Series(value, dtype=value.dtype) for name, value in columns.items()}, copy=False)


@contextlib.contextmanager
def _opened(given: Input, choose: Choose) -> Iterator[_Opened]:
    """A CSV file, opened and read up to the end of its header."""
    with _fields_of_any_length():
        separator = given.separator or _find_separator(given)
        with _text(given) as stream:
            records = _records(given, stream, separator)
            first, header = next(records, (1, None))
            if header is None:
                raise ValueError(f"{given.name} is empty: expected a line with the names of the columns")
            names = names_of_columns(f"{given.name}, line {first}", header)
            yield _Opened(given, records, first, header, names, dict(choose(names)), separator, stream.buffer)


def _joined(
    place: Mapping[str, int], batches: Iterable[tuple[dict[str, pa.Array], Ints]]
) -> tuple[dict[str, pa.ChunkedArray], Ints]:
    """All batches as one."""
    texts, lines = zip(*batches, strict=True)
    return {name: pa.chunked_array([text[name] for text in texts]) for name in place}, np.concatenate(lines)


def _is_empty(text: pa.ChunkedArray) -> bool:
    """Whether every field is missing."""
    missing = pc.is_in(pc.utf8_trim_whitespace(text), value_set=pa.array(MISSING, pa.large_string()))
    return bool(pc.all(missing, min_count=0).as_py())


@contextlib.contextmanager
def _text(given: Input) -> Iterator[TextIO]:
    """The text of a file; the bytes at its beginning that mark it as UTF-8 or UTF-16 are no part of it."""
    encoding = given.encoding or _marked_encoding(given)
    with given.open() as stream, io.TextIOWrapper(stream, encoding, newline="") as text:
        yield text


def _marked_encoding(given: Input) -> str:
    """UTF-16 if the file begins with its byte order mark, as Excel's "Unicode text" does; else UTF-8."""
    with given.open() as stream:
        return "utf-16" if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


@contextlib.contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Let Python's reader of CSV take fields of any length."""
    before = csv.field_size_limit(_MOST_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _find_separator(given: Input) -> str:
    """The separator that divides the header into the most fields, as many as in the first rows; else a comma."""
    with _text(given) as stream:
        try:
            sample = stream.read(_SAMPLE)
        except UnicodeDecodeError:
            return ","  # what is wrong is told when the rows are read
    best, most = ",", (False, 1)
    for separator in _SEPARATORS:
        widths = []
        with contextlib.suppress(csv.Error):
            for fields in csv.reader(io.StringIO(sample, newline=""), delimiter=separator):
                if fields and not (len(fields) == 1 and fields[0].isspace()):
                    widths.append(len(fields))
                if len(widths) > _MOST_AGREEING:
                    break
        if len(sample) == _SAMPLE and len(widths) <= _MOST_AGREEING:
            widths = widths[:-1]  # the last record may be cut off
        if widths and widths[0] > 1 and (len(set(widths)) == 1, widths[0]) > most:
            best, most = separator, (len(set(widths)) == 1, widths[0])
    return best


def _records(given: Input, stream: TextIO, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank: the line that each begins on, counted from 1 as editors do, and its fields."""
    reader = csv.reader(stream, delimiter=separator, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields and not (len(fields) == 1 and fields[0].isspace()):
                yield line, fields
            line = reader.line_num + 1
    except UnicodeDecodeError:
        raise ValueError(_where_not_text(given, separator)) from None
    except csv.Error as error:
        if "end of data" in str(error):
            raise ValueError(f"{given.name}, line {line}: a field begins with a quote that is never closed") from None
        row = f" of the row that begins on line {line}" if reader.line_num > line else ""
        raise ValueError(
            f"{given.name}, line {reader.line_num}{row}: expected a {_NAMES.get(separator, separator)} after a quoted "
            "field, and quotes inside of it twice"
        ) from None


def _where_not_text(given: Input, separator: str) -> str:
    """The complaint about a file that is not in its encoding, with the line of the first byte that is not."""
    with given.open() as stream:
        data = stream.read()
    encoding = given.encoding or "UTF-8"
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        line = 1 + len(re.findall(rb"\r\n|\r|\n", data[: error.start]))
        field = 1 + re.split(rb"[\r\n]", data[: error.start])[-1].count(separator.encode())
        byte = data[error.start]
        return (
            f"{given.name}, line {line}, about field {field}: expected {encoding}; got the byte 0x{byte:02x}: save it "
            "as UTF-8, or say what it is with --encoding, such as latin-1, cp1252 or utf-16"
        )
    return f"{given.name} changed while it was read"


def _ragged(fields: Sequence[str], width: int, separator: str) -> str:
    """The error message about a row with more or fewer fields than the header."""
    name = _NAMES.get(separator, separator)
    end = f": it ends with a {name}" if len(fields) > width and not fields[-1] else ""
    return f"expected {width} field{'s' * (width > 1)}, as in the header; got {len(fields)}{end}"
