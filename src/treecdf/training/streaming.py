"""Fits to rows that are not all in memory: what is learnt of the columns, which rows stop the flow, and the flow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecdf._common.typing import Ints, Units
from treecdf.data.columns import Category
from treecdf.data.reading import Schema, is_frame
from treecdf.data.recording import is_few
from treecdf.data.table import Table, learn_table, outcome_names, read_bounds, read_table
from treecdf.training.classifiers import AnyClassifier
from treecdf.training.ensemble import Ensemble, fit_streamed
from treecdf.training.jobs import Workers
from treecdf.training.parameters import check_together
from treecdf.training.plan import streamed_recipe
from treecdf.training.settings import FitSettings, Recipe
from treecdf.training.sources.pieces import Opened, PieceReader, Pieces
from treecdf.training.sources.rows import SAMPLE_ROWS


@dataclass(frozen=True)
class StreamedFit:
    """A fitted flow, what was learnt of the columns, and a sample of the rows."""

    ensemble: Ensemble
    recipe: Recipe
    schema: Schema
    outcome_names: tuple[str, ...]
    sample: Table


def fit_pieces(settings: FitSettings, pieces: Pieces, rng: np.random.Generator, workers: Workers) -> StreamedFit:
    """Learn names and kinds of columns, then train one flow on rows that stay where they are."""
    check_streamable(settings)
    sizes = pieces.sizes()
    firsts, ends = np.cumsum([[0, 0], *sizes], axis=0).T
    if ends[-1] < 2:
        raise ValueError(f"Found {ends[-1]} row(s) (n_samples = {ends[-1]}): at least 2 are required.")
    sample, schema, names, units = _learn_columns(settings, pieces, firsts)
    bounds = read_bounds(settings.bounds, len(names))
    check_together(settings, bounds)
    reader = PieceReader(schema, bounds)

    def open_sources(aside: Ints, pool: Executor | None) -> Opened:
        inside = _by_piece(aside, ends)
        n_aside = np.array([len(rows) for rows in inside])
        places = list(zip(map(int, firsts[:-1]), inside, strict=True))
        return pieces.sources(reader, places, np.column_stack([sizes[:, 1] - n_aside, n_aside]), pool)

    recipe, fraction = streamed_recipe(settings, bounds), settings.validation_fraction
    if units is None:
        units = np.concatenate(pieces.units(reader)) if fraction > 0 else np.empty(0, np.uint64)
    ensemble = fit_streamed(recipe, open_sources, units, schema.covariates.width, fraction, rng, workers)
    return StreamedFit(ensemble, recipe, schema, names, sample)


def check_streamable(settings: FitSettings) -> None:
    """Complain about settings that need all rows in memory."""
    wanted = {
        "base": settings.base in ("auto", "unconditional", "box", "student"),
        "structure": settings.structure in ("auto", "joint"),
        "rotations": not settings.has_rotations,
        "atoms": settings.atoms is None,
        "resolution": settings.resolution is None or is_few(settings.resolution),
        "checkpoint": settings.checkpoint is None,
    }
    possible = {"base": "'auto', 'unconditional', 'box' or 'student'", "structure": "'auto' or 'joint'"}
    for name, is_possible in wanted.items():
        if not is_possible:
            raise ValueError(
                f"{name}={getattr(settings, name)!r} needs all rows in memory: expected "
                f"{possible.get(name, 'None')} for files and Dask collections, or a sample of the rows in memory."
            )
    for classifier, _ in streamed_recipe(settings, [(None, None)]).stages:
        if isinstance(classifier, AnyClassifier):
            raise ValueError(
                f"{type(classifier.estimator).__name__} needs all rows of a node in memory: expected Constant, "
                "Logistic, MLP or BoostedTrees in the stages."
            )


def _learn_columns(
    settings: FitSettings, pieces: Pieces, firsts: Ints
) -> tuple[Table, Schema, tuple[str, ...], Units | None]:
    """A sample of the rows (all if there are not many), what the columns are, and the names of the outcomes.

    Last come the units of all rows, the same as in memory, None if the sample has not all of them.
    """
    step = max(1, -(-int(firsts[-1]) // SAMPLE_ROWS))
    parts = pieces.sample([int(first) for first in firsts[:-1]], step)
    X, y, weight, groups = (_concatenate(values) for values in zip(*parts, strict=True))
    sample, schema = learn_table(X, y, weight, groups, settings.categorical_features, np.random.default_rng(0))
    for j, part in enumerate(schema.covariates.columns):
        if isinstance(part, Category) and part.means.size:
            raise ValueError(
                f"Column {j} of X has {part.n_levels} levels: means of levels need all rows in memory. Expected at "
                "most 16 levels in files and Dask collections, or numbers."
            )
    units = read_table(schema, X, y, weight, groups).unit if step == 1 else None
    return sample, schema, outcome_names(y, sample.y.shape[1]), units


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
