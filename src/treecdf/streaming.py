"""Fits to rows that are not all in memory: what is learnt of the columns, which rows stop the flow, and the flow.

The rows come in pieces, frames or arrays of consecutive rows, as files and Dask collections have them.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treecdf.classifiers import AnyClassifier
from treecdf.covariates import Category, Covariates, is_frame, read_columns
from treecdf.ensemble import Ensemble, fit_streamed
from treecdf.parameters import check_base
from treecdf.plan import has_no_rotations, streamed_recipe
from treecdf.rows import SAMPLE_ROWS, Source
from treecdf.shard import one_in
from treecdf.steps import Steps
from treecdf.table import Table, check_bounds, outcome_names, read_bounds, read_outcomes, read_table, read_weights
from treecdf.workers import Report

Array = NDArray[np.float64]
Columns = tuple[Array, Array, Array]  # x (m, q), y (m, d), weight (m,)
Ints = NDArray[np.int64]
Piece = tuple[Any, Any, Any]  # X, y and sample_weight (or None) of consecutive rows
Opened = contextlib.AbstractContextManager[tuple[Source, Source | None]]
Place = tuple[int, Ints]  # number of a piece's first row; rows set aside, counted from it among those with a weight


class Pieces(Protocol):
    """A table in pieces."""

    def map(self, task: Callable[..., Any], each: Iterable[Any], *args: Any) -> list[Any]:
        """What task(X, y, weight, one of `each`, *args) returns for every piece."""
        ...

    def sources(self, reader: Reader, places: Sequence[Place], sizes: Ints, pool: Executor | None) -> Opened:
        """Training rows, and those set aside, of which every piece has sizes (pieces, 2)."""
        ...


@dataclass(frozen=True)
class Reader:
    """Reads pieces as the model has learnt to, and divides them into training and validation rows."""

    model: Any  # knows the columns
    bounds: Sequence[Any]

    def __call__(self, X: Any, y: Any, weight: Any, place: Place) -> tuple[Columns, Columns]:
        """The training rows and those set aside."""
        first, aside = place
        if not count_rows(X, y, weight, None)[1]:
            q, d = sum(part.width for part in self.model.covariates_.columns), self.model.n_outcomes_
            nothing = np.empty((0, q)), np.empty((0, d)), np.empty(0)
            return nothing, nothing
        try:
            table = read_table(self.model, X, y, weight)
        except ValueError as error:
            raise ValueError(f"In rows {first} to {first + len(X) - 1}, counted from {first}: {error}") from None
        table = Table(table.x, table.y, table.weight, table.number + first)
        check_bounds(table, self.bounds, "y")
        chosen = np.zeros(len(table), bool)
        chosen[aside] = True
        train, held_out = table.take(~chosen), table.take(chosen)
        return (train.x, train.y, train.weight), (held_out.x, held_out.y, held_out.weight)


def fit_pieces(
    model: Any, pieces: Pieces, rng: np.random.Generator, report: Report, steps: Steps
) -> tuple[Ensemble, Table]:
    """Fit a TreeFlowRegressor, which learns names and kinds of columns; return the flow and a sample of the rows."""
    check_streamable(model)
    sizes = np.array(pieces.map(count_rows, repeat(None)), dtype=np.int64).reshape(-1, 2)
    firsts, ends = np.cumsum([[0, 0], *sizes], axis=0).T
    if ends[-1] < 2:
        raise ValueError(f"Found {ends[-1]} row(s) (n_samples = {ends[-1]}): at least 2 are required.")
    sample = _learn_columns(model, pieces, firsts)
    bounds = read_bounds(model.bounds, model.n_outcomes_)
    check_base(model, bounds)
    reader = Reader(_bare(model), bounds)

    def open_sources(aside: Ints, pool: Executor | None) -> Opened:
        inside = _by_piece(aside, ends)
        n_aside = np.array([len(rows) for rows in inside])
        places = list(zip(map(int, firsts[:-1]), inside, strict=True))
        return pieces.sources(reader, places, np.column_stack([sizes[:, 1] - n_aside, n_aside]), pool)

    recipe = streamed_recipe(model, bounds)
    ensemble = fit_streamed(
        recipe, open_sources, int(ends[-1]), model.validation_fraction, rng, model._n_threads(), report, steps
    )
    return ensemble, sample


def check_streamable(model: Any) -> None:
    """Complain about settings that need all rows in memory."""
    wanted = {
        "base": isinstance(model.base, str) and model.base in ("auto", "box", "student"),
        "structure": model.structure in ("auto", "joint"),
        "rotations": has_no_rotations(model.rotations),
        "atoms": model.atoms is None,
        "resolution": model.resolution is None,
        "checkpoint": model.checkpoint is None,
    }
    possible = {"base": "'auto', 'box' or 'student'", "structure": "'auto' or 'joint'"}
    for name, is_possible in wanted.items():
        if not is_possible:
            raise ValueError(
                f"{name}={getattr(model, name)!r} needs all rows in memory: expected {possible.get(name, 'None')} for "
                "files and Dask collections, or a sample of the rows in an array or a frame."
            )
    for classifier, _ in streamed_recipe(model, [(None, None)]).stages:
        if isinstance(classifier, AnyClassifier):
            raise ValueError(
                f"{type(classifier.estimator).__name__} needs all rows of a node in memory: expected Constant, "
                "Logistic, MLP or BoostedTrees in the stages."
            )


def count_rows(X: Any, y: Any, weight: Any, _: None) -> tuple[int, int]:
    """Rows of a piece, and how many of them have a weight."""
    if len(X) != len(y) or (weight is not None and len(weight) != len(X)):
        raise ValueError(
            f"A piece of X has {len(X)} rows, the same piece of y has {len(y)}: they must be divided in the same way."
        )
    return len(X), len(X) if weight is None else int((np.asarray(weight) > 0).sum())


def take_rows(X: Any, y: Any, weight: Any, first: int, step: int) -> Piece:
    """About one in `step` rows of a piece that begins with row `first`."""
    chosen = np.flatnonzero(one_in(step, first, len(X)))
    return _take(X, chosen), _take(y, chosen), None if weight is None else np.asarray(weight)[chosen]


def _take(part: Any, rows: Ints) -> Any:
    return part.iloc[rows] if hasattr(part, "iloc") else np.asarray(part)[rows]


def _learn_columns(model: Any, pieces: Pieces, firsts: Ints) -> Table:
    """Names and kinds of columns, gaps and levels, from all rows or from a sample of many; return the sample."""
    step = max(1, -(-int(firsts[-1]) // SAMPLE_ROWS))
    parts = pieces.map(take_rows, [int(first) for first in firsts[:-1]], step)
    X, y, weight = (_concatenate(values) for values in zip(*parts, strict=True))
    columns = read_columns(model, X, model.categorical_features, reset=True)
    outcomes = read_outcomes(y)
    weights = read_weights(weight, len(outcomes))
    model.n_outcomes_ = outcomes.shape[1]
    model.outcome_names_ = outcome_names(y, model.n_outcomes_)
    counted = np.flatnonzero(weights > 0)
    columns, outcomes, weights = [column[counted] for column in columns], outcomes[counted], weights[counted]
    model.covariates_, x = Covariates.cross_fit(columns, outcomes, weights, np.random.default_rng(0))
    for j, part in enumerate(model.covariates_.columns):
        if isinstance(part, Category) and part.means.size:
            raise ValueError(
                f"Column {j} of X has {len(part.levels)} levels: means of levels need all rows in memory. Expected at "
                "most 16 levels in files and Dask collections, or numbers."
            )
    return Table(x, outcomes, weights, counted)


def _concatenate(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    if is_frame(parts[0]) or hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts, ignore_index=True)
    return np.concatenate(parts)


def _by_piece(aside: Ints, ends: Ints) -> list[Ints]:
    """Rows set aside, counted from the first of their piece."""
    cuts = np.searchsorted(aside, ends)
    return [aside[a:b] - first for a, b, first in zip(cuts[:-1], cuts[1:], ends[:-1], strict=True)]


def _bare(model: Any) -> Any:
    """A copy that reads tables, without what earlier fits left behind."""
    bare = copy.copy(model)
    known = ("n_features_in_", "feature_names_in_", "n_outcomes_", "covariates_", *model.get_params(deep=False))
    for name in list(vars(bare)):
        if name not in known:
            delattr(bare, name)
    return bare
