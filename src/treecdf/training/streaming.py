"""Fits to rows that are not all in memory: what is learnt of the columns, which rows stop the flow, and the flow."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from treecdf._common.steps import Steps
from treecdf._common.typing import Ints
from treecdf.data.columns import Category, Covariates, is_frame, read_columns
from treecdf.data.table import Table, outcome_names, read_bounds, read_outcomes, read_weights
from treecdf.training.classifiers import AnyClassifier
from treecdf.training.ensemble import Ensemble, fit_streamed
from treecdf.training.jobs import Report
from treecdf.training.parameters import check_base
from treecdf.training.plan import has_no_rotations, streamed_recipe
from treecdf.training.sources.pieces import Opened, Pieces, Reader
from treecdf.training.sources.rows import SAMPLE_ROWS


def fit_pieces(
    model: Any, pieces: Pieces, rng: np.random.Generator, report: Report, steps: Steps
) -> tuple[Ensemble, Table]:
    """Fit a TreeFlowRegressor, which learns names and kinds of columns; return the flow and a sample of the rows."""
    check_streamable(model)
    sizes = pieces.sizes()
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


def _learn_columns(model: Any, pieces: Pieces, firsts: Ints) -> Table:
    """Names and kinds of columns, gaps and levels, from all rows or from a sample of many; return the sample."""
    step = max(1, -(-int(firsts[-1]) // SAMPLE_ROWS))
    parts = pieces.sample([int(first) for first in firsts[:-1]], step)
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
