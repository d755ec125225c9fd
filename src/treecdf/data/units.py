"""Rows that belong together: copies of a row, and rows of a group, are on the same side of every division.

Each row has a unit, a number made of its content or of its group. Folds and validation rows are drawn from the units
and never from row numbers, so that they do not depend on the order of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array, Column, Ints, Units

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MISSING = b"\x00missing"  # no name of a level begins like this


def units_of_content(columns: Sequence[Column], y: Array) -> Units:
    """Units (n,) made of the covariates, columns (n,) of numbers or names, and the outcomes y (n, d)."""
    units = np.zeros(len(y), np.uint64)
    for column in (*columns, *y.T):
        units = _mixed(units + _ODD) ^ _numbers_of(column)
    return _mixed(units)


def units_of_ranks(columns: Sequence[Column], y: Array) -> Units:
    """Units (n,) made of the ranks of all values in their columns, for rows that are all at hand.

    Another unit of measurement, or another order of the covariates, gives the same ones.
    """
    units = np.zeros(len(y), np.uint64)
    for column in columns:
        units = units + _mixed(_ranks(column) + _ODD)
    for column in y.T:
        units = _mixed(units + _ODD) ^ _mixed(_ranks(column))
    return _mixed(units)


def _ranks(column: Column) -> Units:
    """Ranks (n,) of numbers, equal ones sharing theirs; names have the number that stands for them."""
    if column.dtype.kind not in "fM":
        return _numbers_of(column)
    return np.unique(column, return_inverse=True)[1].astype(np.uint64)


def copies_of(units: Units) -> tuple[Ints, Ints]:
    """For rows with units (n,): the number of each row among its copies, from 0 on, and the number of copies."""
    order = np.argsort(units, kind="stable")
    ascending = units[order]
    begins = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
    sizes = np.diff(np.append(begins, len(units)))
    nth, count = np.empty(len(units), np.int64), np.empty(len(units), np.int64)
    nth[order], count[order] = np.arange(len(units)) - np.repeat(begins, sizes), np.repeat(sizes, sizes)
    return nth, count


def units_of_groups(groups: ArrayLike, n: int) -> Units:
    """Units (n,) made of the groups that n rows belong to: numbers or names; every row needs one."""
    refuse_name(groups, "groups")
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"Expected groups of shape ({n},); got {labels.shape}.")
    names = np.array([_name(label) for label in labels.tolist()], dtype=object)
    missing = np.flatnonzero(names == None)  # noqa: E711  element by element
    if len(missing):
        raise ValueError(f"The group of row {missing[0]} is missing: every row needs one.")
    return _mixed(_numbers_of(names))


def refuse_name(given: object, name: str) -> None:
    """Raise a ValueError if the name of a column was passed where its values are needed."""
    if isinstance(given, str):
        raise ValueError(
            f"Expected {name} to have a value for each row; got {given!r}: pass X[{given!r}] if it is one."
        )


def check_groups(units: Units) -> None:
    """Raise a ValueError if all rows (n,) are of one group."""
    if (units == units[0]).all():
        raise ValueError("All rows are of one group: at least 2 groups are required.")


def _name(label: object) -> str | None:
    """A group's name as text; 3, 3.0 and "3" are the same group."""
    if label is None or label != label or type(label).__name__ in ("NAType", "NaTType"):
        return None
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _numbers_of(column: Column) -> Units:
    """A number (n,) for each value: equal values have equal ones."""
    if column.dtype.kind == "f":
        values = np.where(np.isnan(column), np.nan, column + 0.0)  # one NaN, and no zero below zero
        return _mixed(np.ascontiguousarray(values).view(np.uint64))
    if column.dtype.kind == "M":
        return _mixed(column.astype(np.int64).view(np.uint64))
    digest = {name: _digest(_MISSING if name is None else name.encode()) for name in set(column.tolist())}
    return np.array([digest[name] for name in column.tolist()], np.uint64)


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _mixed(units: Units) -> Units:
    """A one-to-one mix of all bits (the finaliser of splitmix64)."""
    units = (units ^ (units >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    units = (units ^ (units >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return units ^ (units >> np.uint64(31))


# Copies


def order_of_content(content: Units, rank: Units, weight: Array) -> tuple[Ints, Ints]:
    """An order (n,) of the rows by rank and content, and the place (m,) where each distinct row begins in it.

    Copies follow one another, the lightest first, so that the sum of their weights does not depend on the given order.
    """
    order = np.lexsort((weight, content, rank))
    is_new = (content[order][1:] != content[order][:-1]) | (rank[order][1:] != rank[order][:-1])
    return order, np.flatnonzero(np.append(True, is_new))


# Divisions


def draw_folds(units: Units, n_folds: int, rng: np.random.Generator) -> Ints:
    """A fold (n,) for each row, of at most n_folds of about equal size; rows of one unit have the same."""
    rank, place = _shuffled(units, rng)
    return (rank * min(n_folds, len(rank)) // len(rank))[place]


def set_aside(units: Units, fraction: float, n_members: int, rng: np.random.Generator) -> list[Ints]:
    """Rows that each member sets aside, in order: a fraction of the units, each unit about equally often."""
    rank, place = _shuffled(units, rng)
    n = len(rank)
    count = min(max(1, round(fraction * n)), n - 1)
    return [np.flatnonzero(((rank - j * count) % n < count)[place]) for j in range(n_members)]


def _shuffled(units: Units, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Ranks of the distinct units in a random order, and the index (n,) among them of each row's unit.

    The order is that of a keyed hash of each unit, so that adding a row hardly changes the ranks of the others.
    """
    distinct, place = np.unique(units, return_inverse=True)
    key = rng.integers(2**64, dtype=np.uint64)
    rank = np.empty(len(distinct), np.int64)
    rank[np.argsort(keyed(distinct, key))] = np.arange(len(distinct))
    return rank, place


def keyed(units: Units, key: int | np.uint64) -> Units:
    """A one-to-one hash of units (n,) with a key below 2^64, which behaves like random numbers."""
    return _mixed(units ^ np.uint64(key))
