"""Dates, times and periods as points in time, whatever a table holds them as: numpy's types, objects or text.

Points in time are datetime64[us] without a time zone; those that have one are taken in UTC. A period counts as its
beginning, a time of day as that time on 1970-01-01. Durations are numbers of seconds.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array

_TIME = r"(?P<time>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)"
_ZONE = r" ?(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?)"
_CLOCK = rf"(?:[T ]{_TIME}(?:{_ZONE})?)?"
_NAME = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
# A day with or without a time, in one of four ways in which day and month cannot be mistaken for one another.
_DAYS = [
    re.compile(form + _CLOCK, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",  # 2026-01-31
        r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",  # 31.01.2026: with points the day is first
        rf"(?P<day>\d{{1,2}})(?P<mark>[- ]){_NAME}(?P=mark)(?P<year>\d{{4}})",  # 31 Jan 2026
        rf"{_NAME} (?P<day>\d{{1,2}}),? (?P<year>\d{{4}})",  # January 31, 2026
    )
]
_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
# A month, a quarter, or a time of day.
_MONTH = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})")
_QUARTER = re.compile(r"(?P<year>\d{4})-?Q(?P<quarter>[1-4])")
_TIME_OF_DAY = re.compile(_TIME)
# Day and month, or month and day: nobody can tell.
_AMBIGUOUS = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(?:\d{2}|\d{4})(?: .*)?")
_SECOND = np.timedelta64(1, "s")


def as_dates(values: NDArray[Any]) -> NDArray[np.datetime64] | None:
    """Points in time (n,) of values (n,) that all are dates, times or periods or missing; None if they are not."""
    if values.dtype.kind == "M":
        return values.astype("M8[us]")
    if values.dtype.kind == "U":
        values = values.astype(object)
    if values.dtype.kind != "O":
        return None
    known = [value for value in values.tolist() if not _is_missing(value)]
    if not known:
        return None
    if isinstance(known[0], str):
        return parse_dates(values)
    if not all(_is_point(value) for value in known):
        return None
    points = [np.datetime64("NaT") if _is_missing(value) else _point(value) for value in values.tolist()]
    return np.array(points, dtype="M8[us]")


def as_seconds(values: NDArray[Any]) -> Array | None:
    """Seconds (n,) of values (n,) that all are durations or missing; None if they are not."""
    if values.dtype.kind == "m":
        return np.where(np.isnat(values), np.nan, values / _SECOND)
    if values.dtype.kind != "O":
        return None
    known = [value for value in values.tolist() if not _is_missing(value)]
    if not known or not all(isinstance(value, datetime.timedelta | np.timedelta64) for value in known):
        return None
    return np.array([np.nan if _is_missing(value) else value / _SECOND for value in values.tolist()], np.float64)


def as_days(values: Any) -> Any:
    """Dates as days since 1970 and durations as days, NaN where they are missing; anything else as it is."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        array = array - np.datetime64(0, "s")
    seconds = as_seconds(array)
    return values if seconds is None else seconds / 86400


def looks_like_dates(values: NDArray[Any]) -> bool:
    """Whether texts (n,) are dates, times or periods, apart from missing ones."""
    return any(isinstance(value, str) for value in values.tolist()) and parse_dates(values) is not None


def parse_dates(values: NDArray[Any]) -> NDArray[np.datetime64] | None:
    """Points in time (n,) of texts (n,), None for missing ones; None if some text is no date.

    Dates are written 2026-01-31, 2026/01/31, 31.01.2026, 31 Jan 2026 or January 31, 2026, with a time such as 12:30,
    12:30:05 or 12:30:05.25 and a time zone such as Z or +02:00 if need be; months 2026-01, quarters 2026Q1 and times of
    day 12:30 are read too.
    """
    texts = {value for value in values.tolist() if not _is_missing(value)}
    point = _parsed(texts)
    if point is None:
        return None
    nothing = np.datetime64("NaT", "us")
    return np.array([nothing if _is_missing(value) else point[value] for value in values.tolist()], dtype="M8[us]")


def are_ambiguous(values: NDArray[Any]) -> bool:
    """Whether texts (n,) look like dates in which day and month cannot be told apart."""
    known = [value for value in values.tolist() if not _is_missing(value)]
    return bool(known) and all(isinstance(value, str) and _AMBIGUOUS.fullmatch(value.strip()) for value in known)


def _parsed(texts: Iterable[Any]) -> dict[str, np.datetime64] | None:
    """The point in time that each text stands for; None if one is no date, or times of day stand among dates."""
    point: dict[str, np.datetime64] = {}
    forms = set()
    for text in texts:
        found = _read(text.strip()) if isinstance(text, str) else None
        if found is None:
            return None
        forms.add(found[0])
        if len(forms) > 1:
            return None
        point[text] = found[1]
    return point


def _read(text: str) -> tuple[str, np.datetime64] | None:
    """Whether a text is a "date" or a "time" of day, and the point in time; None if it is neither."""
    is_time = False
    if match := next(filter(None, (form.fullmatch(text) for form in _DAYS)), None):
        parts = match.groupdict()
        month = int(parts["month"]) if "month" in parts else 1 + _NAMES.index(parts["name"].lower()[:3])
        day, time, zone = f"{parts['year']}-{month:02}-{int(parts['day']):02}", parts["time"], parts["zone"]
    elif match := _MONTH.fullmatch(text):
        day, time, zone = f"{match['year']}-{match['month']}-01", None, None
    elif match := _QUARTER.fullmatch(text):
        day, time, zone = f"{match['year']}-{3 * int(match['quarter']) - 2:02}-01", None, None
    elif match := _TIME_OF_DAY.fullmatch(text):
        day, time, zone, is_time = "1970-01-01", match["time"], None, True
    else:
        return None
    clock, _, fraction = (time or "00:00").replace(",", ".").partition(".")
    try:
        point = np.datetime64(f"{day}T{clock}" + (f".{fraction[:6]}" if fraction else ""), "us")
    except ValueError:  # such as 2026-02-30
        return None
    return "time" if is_time else "date", point - _offset(zone)


def _offset(zone: str | None) -> np.timedelta64:
    """How far the clocks of a time zone are ahead of UTC."""
    if zone is None or zone.upper() in ("Z", "UTC"):
        return np.timedelta64(0, "m")
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = 60 * int(digits[:2]) + int(digits[2:])
    return np.timedelta64(-minutes if zone[0] == "-" else minutes, "m")


def _is_missing(value: object) -> bool:
    is_nat = isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nat or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _is_point(value: object) -> bool:
    return isinstance(value, datetime.date | datetime.time | np.datetime64) or hasattr(value, "to_timestamp")


def _point(value: Any) -> np.datetime64:
    """The point in time of a date, a time of day or a period, as Python, numpy or pandas hold it."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date(1970, 1, 1), value.replace(tzinfo=None))
    elif hasattr(value, "to_timestamp"):  # a Period
        value = value.to_timestamp()
    elif isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, datetime.datetime):
        # pandas' timestamps are of this kind too, and may have nanoseconds.
        value = datetime.datetime.combine(value.date(), value.time())
    return np.datetime64(value, "us")
