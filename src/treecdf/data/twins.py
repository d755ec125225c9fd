"""Rows that share covariates more often than by chance: perhaps they belong together."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array, Bools, Units
from treecdf.data.recording import recording_step
from treecdf.data.units import units_of_content

_MOST_ROWS = 20_000  # rows that are looked at; they are in the order of their content, which is a random one
_MOST_COLUMNS = 64  # columns up to which some may be left out
_MOST_LEFT_OUT = 3  # columns in which rows of a group may differ
_MANY = 0.3  # share of the rows with a twin that is worth a note
_ASKED_ROWS = 500  # rows whose nearest others are looked for
_CHUNK_ROWS = 50  # of them at a time, to bound memory
_CROWD = 30  # the distance to the nearest of so many rows is what is usual around a row
_NEAR_COPY = 0.005  # of it: what is nearer is a copy with some noise; by chance 14 % of the rows on a curve are so near
_ASKED_NEIGHBOURS = 3000  # rows that are asked what the nearest others tell
_ASKED_FIRST = 1000  # the same if what their answer is compared with is at least twice as much as
_DOUBTFUL = 0.05  # what may be chance: the answers of 3,000 rows have a standard error of .014, of 1,000 of .025
_ASKED_IN_DOUBT = 12_000  # the same if the first answer is above what it is compared with, but not by so much (ADR 49)
_SMALLEST_ERROR = 1e-3  # standard deviations of the outcome that are added to errors before logarithms are taken
_BY_CHANCE = 0.1  # twins of a row that chance would give, at most: more are no sign of groups


def note_on_twins(x: Array) -> tuple[str, ...]:
    """A note for the summary if many rows of x (n, q) share all, or nearly all, covariates with another row."""
    x = x[:_MOST_ROWS]
    q = x.shape[1]
    chance = np.array([_chance(column) for column in x.T])
    varied = [len(np.unique(column)) for column in x.T]
    # A sum over the columns, so that leaving one out is to take its part away.
    nothing = np.empty((len(x), 0))
    parts = [units_of_content([column, np.full(len(x), float(j))], nothing) for j, column in enumerate(x.T)]
    content: Units = np.asarray(np.sum(parts, axis=0, dtype=np.uint64))
    rest = list(range(q))
    for k in range(1 + min(_MOST_LEFT_OUT, q - 1)):
        if k:
            if q > _MOST_COLUMNS:
                break
            worst = max(rest, key=lambda j: (_share_of_twins(content - parts[j]), varied[j]))
            rest.remove(worst)
            content = content - parts[worst]
        share = _share_of_twins(content)
        if share >= _MANY and len(x) * np.prod(chance[rest]) <= _BY_CHANCE:
            which = "all covariates" if k == 0 else f"all but {k} of {q} columns of covariates"
            return (
                f"note: {share:.0%} of the rows share {which} with another row; if such rows belong together (one "
                "person, one place), pass groups= to fit, or intervals for new ones will be too narrow",
            )
    return ()


def note_on_near_copies(x: Array, y: Array) -> tuple[str, ...]:
    """A note for the summary if many rows of x (n, q) and y (n, d) are nearly copies of another row."""
    table = np.hstack([x[:_MOST_ROWS], y[:_MOST_ROWS]])
    if len(table) <= _CROWD:
        return ()
    unit = np.abs(table).max(axis=0)
    table = table / np.where(unit > 0, unit, 1.0)  # squares of large numbers overflow
    spread = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(spread > 1e-12, spread, np.inf)
    share = float(np.mean(_is_near_copy(table)))
    if share < _MANY:
        return ()
    return (
        f"note: {share:.0%} of the rows are another row but for very little, outcomes included; if they are the same "
        "thing measured again, pass groups= to fit, or intervals for new ones will be too narrow",
    )


def do_near_rows_tell(x: Array, y: Array, share: float, least: float) -> bool:
    """Whether `worth_of_near_rows` is more than `least`; if it seems so, but not clearly, more rows are asked."""
    worth = worth_of_near_rows(x, y, share, _ASKED_FIRST if least >= 2 * _DOUBTFUL else _ASKED_NEIGHBOURS)
    if least < worth < least + _DOUBTFUL:
        worth = worth_of_near_rows(x, y, share, _ASKED_IN_DOUBT)
    return worth > least


def worth_of_near_rows(x: Array, y: Array, share: float, n_asked: int = _ASKED_NEIGHBOURS) -> float:
    """How much better the nearest of all rows predicts outcomes y (n, d) than the nearest of a share of them.

    It is the mean difference of the logarithms of the errors over the first n_asked rows, of covariates x (n, q), at
    most a fifth of all. Rows must be in random order.
    """
    x, y = _standardised(x), _standardised(y)
    n_asked = min(n_asked, len(x) // 5)
    points, values, n_fewer = x[n_asked:], y[n_asked:], round(share * (len(x) - n_asked))
    # Squared distances up to the row's own length, which does not change their order, as one product
    asked = np.column_stack([-2 * x[:n_asked], np.ones(n_asked)]).astype(np.float32)
    others = np.column_stack([points, (points**2).sum(axis=1)]).astype(np.float32).T
    nearest = np.empty((2, n_asked), np.int64)
    for i in range(0, n_asked, _CHUNK_ROWS):
        squared = asked[i : i + _CHUNK_ROWS] @ others
        for k, m in enumerate((n_fewer, len(points))):
            nearest[k, i : i + len(squared)] = squared[:, :m].argmin(axis=1)
    of_fewer, of_all = np.log(np.abs(values[nearest] - y[:n_asked]) + _SMALLEST_ERROR)
    return float((of_fewer - of_all).mean())


def _standardised(values: Array) -> Array:
    """Columns (n, k) with mean 0 and standard deviation 1, missing values at 0; a constant column is 0."""
    missing, known = np.isnan(values), np.nan_to_num(values)
    unit = np.abs(known).max(axis=0)
    known = known / np.where(unit > 0, unit, 1.0)  # squares of large numbers overflow
    count = np.maximum((~missing).sum(axis=0), 1)
    known = np.where(missing, 0.0, known - known.sum(axis=0) / count)
    spread = np.sqrt((known**2).sum(axis=0) / count)
    return np.asarray(known / np.where(spread > 1e-12, spread, np.inf))


def _is_near_copy(table: Array) -> Bools:
    """Which of some rows of a table (n, k) are far nearer to another row than is usual, without being exact copies."""
    asked = table[:_ASKED_ROWS]
    found = np.empty(len(asked), bool)
    length = (table**2).sum(axis=1)
    for i in range(0, len(asked), _CHUNK_ROWS):
        rows = asked[i : i + _CHUNK_ROWS]
        squared = length - 2 * rows @ table.T  # up to the row's own length, which does not change the order
        near = np.argpartition(squared, _CROWD, axis=1)[:, : _CROWD + 1]
        distance = np.sort(np.sqrt(((table[near] - rows[:, None]) ** 2).sum(axis=2)), axis=1)
        nearest, usual = distance[:, 1], distance[:, -1]
        found[i : i + _CHUNK_ROWS] = (nearest > 0) & (nearest < _NEAR_COPY * usual)
    return found


def _chance(column: Array) -> float:
    """Probability that two rows have the same value in a column by chance; nearly 0 for numbers on no grid."""
    if recording_step(column) == 0 and len(np.unique(column)) > 2:
        return 1 / len(column) ** 2
    _, count = np.unique(column, return_counts=True)
    return float(((count / len(column)) ** 2).sum())


def _share_of_twins(content: Units) -> float:
    """Share of the rows (n,) whose content is that of another row."""
    _, place, count = np.unique(content, return_inverse=True, return_counts=True)
    return float((count[place] > 1).mean())
