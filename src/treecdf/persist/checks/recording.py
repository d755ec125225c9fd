"""Checks of the encoders of columns and of how outcomes were recorded."""

from __future__ import annotations

import numpy as np

from treecdf.bases.atoms import Atoms, TiltedScores
from treecdf.bases.learners.boosting import BoostedScores
from treecdf.data.columns import Category, Covariates, Date, Number, Ordered
from treecdf.data.recording import ClosedGrid, Grid, ListedValues
from treecdf.data.scaling import Standardizer
from treecdf.persist.checks.values import Check, Visit, expect, expect_array, expect_number, expect_texts, expect_tuple

_LARGEST_SCORE = 1e9  # of slopes, offsets and covariates: scores stay finite


def _covariates(part: Covariates, n_columns: int, visit: Visit) -> None:
    expect_tuple(part.columns, "columns", n_columns)
    for column in part.columns:
        visit(column, 1, Number, Date, Category, Ordered)


def _number(part: Number, q: int, visit: Visit) -> None:
    expect_number(part.median, "median")
    expect(type(part.has_gaps) is bool, "has_gaps to be true or false")


def _date(part: Date, q: int, visit: Visit) -> None:
    expect(type(part.first) is int and abs(part.first) < 2**62, "a first date")
    expect_texts(part.parts, "parts")
    expect(part.parts[:1] == ("days",), "days among the parts of a date")
    known = ("month", "weekday", "hour")
    expect(set(part.parts[1:]) <= set(known) and len(set(part.parts)) == len(part.parts), "known parts of a date")
    expect_array(part.medians, "medians", (len(part.parts),))
    expect(type(part.has_gaps) is bool, "has_gaps to be true or false")


def _category(part: Category, q: int, visit: Visit) -> None:
    expect_texts(part.levels, "levels")
    expect(len(set(part.levels)) == len(part.levels), "levels that differ")
    expect(type(part.n_indicators) is int, "a number of indicators")
    expect(type(part.missing_place) is int, "a place of missing values")
    expect(-1 <= part.missing_place <= len(part.levels), "a place of missing values among the levels")
    expect(1 <= part.n_indicators <= max(1, part.n_levels), "indicators of levels")
    if isinstance(part.means, np.ndarray) and part.means.size:
        expect_array(part.means, "means", (part.n_levels + 1, -1))
    else:
        expect_array(part.means, "means", (0, 0))


def _ordered(part: Ordered, q: int, visit: Visit) -> None:
    _category(part, q, visit)
    expect_texts(part.order, "order")
    expect_number(part.median, "median")


def _atoms(part: Atoms, q: int, visit: Visit) -> None:
    expect_array(part.values, "values", (-1,))
    expect(len(part.values) > 0 and (np.diff(part.values) > 0).all(), "atoms in order")
    visit(part.standardize, q, Standardizer)
    visit(part.scores, q, BoostedScores, TiltedScores)
    expect(len(part.scores.start) == len(part.values) + 1, "scores of no atom and of each")


def _tilted_scores(part: TiltedScores, q: int, visit: Visit) -> None:
    visit(part.trees, q, BoostedScores)
    n_scores = len(part.trees.start)
    expect_array(part.slopes, "slopes", (q, n_scores), low=-_LARGEST_SCORE, high=_LARGEST_SCORE)
    expect_array(part.offset, "offset", (n_scores,), low=-_LARGEST_SCORE, high=_LARGEST_SCORE)
    expect_array(part.ends, "ends", (2, q), low=-_LARGEST_SCORE, high=_LARGEST_SCORE)


def _grid(part: Grid, d: int, visit: Visit) -> None:
    expect_array(part.origin, "origin", (d,))
    expect_array(part.step, "step", (d,), low=0.0)


def _closed_grid(part: ClosedGrid, d: int, visit: Visit) -> None:
    expect(d == 1, "a grid with ends of one outcome")
    _grid(part, d, visit)
    expect(part.step[0] > 0, "a step above 0")
    ends = part.ends
    is_pair = isinstance(ends, np.ndarray) and ends.dtype == np.float64 and ends.shape == (2,)
    expect(is_pair and ends[0] < ends[1], "ends of a grid in order")


def _listed_values(part: ListedValues, d: int, visit: Visit) -> None:
    expect(d == 1, "values of one outcome")
    expect_array(part.values, "values", (-1,))
    expect(len(part.values) >= 2 and (np.diff(part.values) > 0).all(), "at least two values in order")


CHECKS: dict[type, Check] = {
    Covariates: _covariates,
    Number: _number,
    Date: _date,
    Category: _category,
    Ordered: _ordered,
    Atoms: _atoms,
    TiltedScores: _tilted_scores,
    Grid: _grid,
    ClosedGrid: _closed_grid,
    ListedValues: _listed_values,
}
