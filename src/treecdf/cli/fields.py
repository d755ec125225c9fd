"""Fields of text as values: plain decimal numbers, or names of the levels of a category."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treecdf._common.typing import Array, Bools, Ints
from treecdf.cli.terminal import quoted
from treecdf.data.dates import looks_like_dates, parse_dates

# Fields that mean a missing value, spaces around them aside: the same as those of pandas.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# A plain decimal number. A leading zero as in 01 is a sign of a code, not of a number.
_NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# The same with a comma before its decimals.
_WITH_COMMA = r"^([+-]?(?:0|[1-9][0-9]*)?),([0-9]+(?:[eE][+-]?[0-9]+)?)$"
# A number in a dress: thousands set apart, a sign of percent or of a currency, a comma before its decimals.
_DRESSED = r"^[+-]?[$€£¥]? ?[+-]?[0-9]{1,3}(?:[,' ]?[0-9]{3})*(?:[.,][0-9]+)? ?[%$€£¥]?$"
_DRESS = r"[,' %$€£¥]"
# Infinity in words: no number that can be used, but no name of a category either.
_INFINITY = r"[+-]?(?:[iI]nf|INF)(?:inity|INITY)?"
# A whole number, which keeps all of its digits.
_WHOLE = r"-?(?:0|[1-9][0-9]*)"


class Kind(Enum):
    """How the fields of a column are read."""

    NUMBER = auto()
    """Plain decimal numbers, some of which may be missing."""
    WEIGHT = auto()
    """Plain decimal numbers, none of which may be missing."""
    DATE = auto()
    """Dates, some of which may be missing."""
    TEXT = auto()
    """Names of a category's levels, exactly as written."""
    CODE = auto()
    """Names of a category's levels that are numbers: 3.0 is the level 3 and 0.50 is 0.5, as they are in Python."""
    LEVELS = auto()
    """A category to be learnt: CODE if every field is a plain number, else TEXT."""
    ANY = auto()
    """A covariate to be learnt: NUMBER if every field is a plain number, DATE if all are dates, else TEXT."""
    AS_IT_IS = auto()
    """Text that is only carried over, exactly as written, also where others mean a missing value."""


def kind_of_levels(levels: Sequence[str]) -> Kind:
    """How fields of a category with these levels are read: CODE if all of them are numbers, in their shortest form."""
    known = [level for level in levels if level]
    are_codes = all(re.fullmatch(_NUMBER, level) and _code(level) == level for level in known)
    return Kind.CODE if known and are_codes else Kind.TEXT


@dataclass(frozen=True)
class Place:
    """Where the fields of a column stand in the file, for messages, and how its numbers are written."""

    file: str
    name: str
    lines: Ints  # (n,): on which the rows begin
    has_commas: bool = False  # whether a number may have a comma before its decimals

    def line(self, row: int) -> int:
        """The line of a row."""
        return int(self.lines[row])

    def complaint(self, row: int, expected: str, got: str) -> ValueError:
        """What was expected at a row, and what came."""
        where = f"{self.file}, line {self.line(row)}, column {quoted(self.name)}"
        return ValueError(f"{where}: expected {expected}; got {quoted(got)}")


def read_column(text: pa.ChunkedArray, kind: Kind, place: Place) -> Array | np.ndarray:
    """Text (n,) as numbers with NaN for what is missing, or as names of levels or dates with None."""
    if kind is Kind.AS_IT_IS:
        return _names(text)
    bare = pc.utf8_trim_whitespace(text)
    if place.has_commas:
        bare = pc.replace_substring_regex(bare, _WITH_COMMA, r"\1.\2")
    missing = pc.is_in(bare, value_set=pa.array(MISSING, pa.large_string()))
    number = pc.match_substring_regex(bare, f"^(?:{_NUMBER})$")
    if kind is Kind.LEVELS:
        kind = Kind.CODE if _all(pc.or_(missing, number)) else Kind.TEXT
    if kind is Kind.ANY:
        kind = _learnt_kind(text, bare, missing, number, place)
    if kind in (Kind.NUMBER, Kind.WEIGHT):
        return _numbers(bare, missing, number, kind is Kind.WEIGHT, place)
    if kind is Kind.CODE:
        text = pc.if_else(number, bare, text)
    if kind is Kind.DATE:
        text = bare
    names = _names(pc.if_else(missing, pa.scalar(None, pa.large_string()), text))
    if kind is Kind.CODE:
        codes = {name: _code(name) for name in set(names.tolist()) if name is not None and re.fullmatch(_NUMBER, name)}
        names[:] = [codes.get(name, name) for name in names.tolist()]
    if kind is Kind.DATE:
        _check_dates(names, place)
    return names


def _learnt_kind(
    text: pa.ChunkedArray, bare: pa.ChunkedArray, missing: pa.ChunkedArray, number: pa.ChunkedArray, place: Place
) -> Kind:
    """The kind of a covariate, from all of its fields."""
    may_be = pc.or_(number, pc.match_substring_regex(bare, f"^(?:{_INFINITY})$"))
    if _all(pc.or_(missing, may_be)):
        return Kind.NUMBER
    if looks_like_dates(_names(pc.if_else(missing, pa.scalar(None, pa.large_string()), bare))):
        return Kind.DATE
    _tell_if_almost_numbers(text, missing, number, place)
    return Kind.TEXT


def _check_dates(names: np.ndarray, place: Place) -> None:
    """Complain about the first field that is no date."""
    if parse_dates(names) is None:
        row = next(k for k, name in enumerate(names.tolist()) if parse_dates(names[k : k + 1]) is None)
        raise place.complaint(row, "a date or time such as 2026-01-31 or 2026-01-31 12:30", names[row])


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
    text: pa.ChunkedArray, missing: pa.ChunkedArray, number: pa.ChunkedArray, place: Place
) -> None:
    """Tell the user why a column of mostly numbers is a category: it may be a typing error."""
    n_numbers, n_known = pc.sum(number).as_py(), len(text) - pc.sum(missing).as_py()
    if 2 * n_numbers > n_known:
        row = _first_false(pc.or_(missing, number))
        print(
            f"treecdf: column {quoted(place.name)} is read as a category: {n_known - n_numbers} of {n_known} values "
            f"are no plain numbers, the first on line {place.line(row)}: {quoted(text[row].as_py())}",
            file=sys.stderr,
        )
        return
    dressed = pc.and_(pc.match_substring_regex(text, _DRESSED), pc.match_substring_regex(text, _DRESS))
    if pc.any(dressed).as_py() and _all(pc.or_(missing, pc.or_(number, dressed))):
        row = int(pc.index(dressed, True).as_py())
        print(
            f"treecdf: column {quoted(place.name)} is read as a category, but its values look like numbers in another "
            f"dress, the first on line {place.line(row)}: {quoted(text[row].as_py())}; write 1234.5 for 1,234.5 or "
            "$1234.5",
            file=sys.stderr,
        )


def _first_false(true: pa.ChunkedArray) -> int:
    """The first row that is false."""
    return int(pc.index(true, False).as_py())


def _numbers(
    bare: pa.ChunkedArray, missing: pa.ChunkedArray, number: pa.ChunkedArray, must_be_known: bool, place: Place
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
