"""Fits to rows that are not all in memory: one flow from sums, or a sample's model and trees of all other rows."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Ints, Units
from treecdf.data.columns import Category
from treecdf.data.reading import Schema
from treecdf.data.recording import is_few
from treecdf.data.table import Table, learn_table, outcome_names, read_bounds, read_table
from treecdf.flows.learnt import Learnt
from treecdf.flows.mixture import Mixture
from treecdf.training.classifiers import AnyClassifier
from treecdf.training.defaults import ROWS_OF_SAMPLE, ROWS_READ_WHOLE
from treecdf.training.ensemble import Ensemble, fit_streamed
from treecdf.training.jobs import Workers
from treecdf.training.parameters import check_together
from treecdf.training.plan import UNCONDITIONAL_NAMES, refining_recipe, streamed_recipe
from treecdf.training.settings import FitSettings, Recipe
from treecdf.training.sources.pieces import Opened, Pick, Piece, PieceReader, Pieces, joined
from treecdf.training.sources.rows import SAMPLE_ROWS

# A sample is drawn by this key whatever the seed, so that a fit that goes on from a checkpoint has the same.
_KEY_OF_SAMPLE = 0x5851F42D4C957F2D
# Share of the rows that stop the trees after a sample's model if validation_fraction is 0.
_SHARE_LEFT_OUT = 0.1
# Rows besides a sample from which on trees are grown on them: fewer tell little of what the sample did not.
_FEWEST_OTHERS = 1000


@dataclass(frozen=True)
class StreamedFit:
    """A fitted flow, what was learnt of the columns, and a sample of the rows."""

    ensemble: Ensemble
    recipe: Recipe
    schema: Schema
    outcome_names: tuple[str, ...]
    sample: Table


def fit_pieces(
    settings: FitSettings, pieces: Pieces, sizes: Ints, rng: np.random.Generator, workers: Workers
) -> StreamedFit:
    """Learn names and kinds of columns, then train one flow on rows that stay where they are.

    sizes: those of the pieces (see `Pieces.sizes`).
    """
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


def is_one_flow(settings: FitSettings) -> bool:
    """Whether settings ask for one flow on an unconditional base, which sums over all rows can train."""
    return (
        settings.base in UNCONDITIONAL_NAMES
        and settings.structure in ("auto", "joint")
        and not settings.has_rotations
        and settings.atoms is None
        and (settings.resolution is None or is_few(settings.resolution))
        and not any(isinstance(kind, AnyClassifier) for kind, _ in streamed_recipe(settings, [(None, None)]).stages)
    )


@dataclass(frozen=True)
class Sampled:
    """A table in pieces of which a random sample is read into memory."""

    pieces: Pieces
    sizes: Ints  # of the pieces (see `Pieces.sizes`)
    pick: Pick

    @staticmethod
    def of(pieces: Pieces, sizes: Ints) -> Sampled:
        """With a sample of about ROWS_OF_SAMPLE of the rows that have a weight."""
        return Sampled(pieces, sizes, Pick(min(1.0, ROWS_OF_SAMPLE / int(sizes[:, 1].sum())), _KEY_OF_SAMPLE))

    @property
    def firsts(self) -> list[int]:
        """Number of the first row of every piece."""
        return [int(first) for first in np.cumsum([0, *self.sizes[:-1, 0]])]

    @property
    def n_rows(self) -> int:
        """Number of rows with a weight above zero."""
        return int(self.sizes[:, 1].sum())

    def sample(self) -> Piece:
        """The rows of the sample, all with a weight above zero."""
        return joined(self.pieces.chosen(self.pick, self.firsts))

    def has_others(self, n_sample: int) -> bool:
        """Whether enough rows are not among the n_sample ones of the sample to learn from."""
        return self.n_rows - n_sample >= _FEWEST_OTHERS

    def refine(
        self, settings: FitSettings, mixture: Mixture, schema: Schema, rng: np.random.Generator, workers: Workers
    ) -> Ensemble:
        """Grow trees on all rows that are not in the sample, on the sample's model of one outcome.

        The model has seen none of these rows, so that the trees learn what it does with new ones.
        """
        bounds = read_bounds(settings.bounds, 1)
        reader = PieceReader(schema, bounds, self.pick)
        units = self.pieces.units(reader)
        counts = np.array([len(part) for part in units])
        ends = np.cumsum([0, *counts])

        def open_sources(aside: Ints, pool: Executor | None) -> Opened:
            inside = _by_piece(aside, ends)
            n_aside = np.array([len(rows) for rows in inside])
            places = list(zip(self.firsts, inside, strict=True))
            return self.pieces.sources(reader, places, np.column_stack([counts - n_aside, n_aside]), pool)

        learnt = Learnt.of(mixture, schema.covariates.width)
        fraction = settings.validation_fraction or _SHARE_LEFT_OUT
        recipe, q = refining_recipe(settings, bounds), schema.covariates.width
        return fit_streamed(
            recipe, open_sources, np.concatenate(units), q, fraction, rng, workers, learnt, name="refined"
        )


def _learn_columns(
    settings: FitSettings, pieces: Pieces, firsts: Ints
) -> tuple[Table, Schema, tuple[str, ...], Units | None]:
    """A sample of the rows (all if there are not many), what the columns are, and the names of the outcomes.

    Last come the units of all rows, the same as in memory, None if the sample has not all of them.
    """
    step = max(1, -(-int(firsts[-1]) // SAMPLE_ROWS))
    parts = pieces.sample([int(first) for first in firsts[:-1]], step)
    X, y, weight, groups = joined(parts)
    sample, schema = learn_table(X, y, weight, groups, settings.categorical_features, np.random.default_rng(0))
    for j, part in enumerate(schema.covariates.columns):
        if isinstance(part, Category) and part.means.size:
            raise ValueError(
                f"Column {j} of X has {part.n_levels} levels: means of levels need all rows in memory. Expected at "
                f"most 16 levels in files and Dask collections of more than {ROWS_READ_WHOLE:,} rows, or numbers."
            )
    units = read_table(schema, X, y, weight, groups).unit if step == 1 else None
    return sample, schema, outcome_names(y, sample.y.shape[1]), units


def _by_piece(aside: Ints, ends: Ints) -> list[Ints]:
    """Rows set aside, counted from the first of their piece."""
    cuts = np.searchsorted(aside, ends)
    return [aside[a:b] - first for a, b, first in zip(cuts[:-1], cuts[1:], ends[:-1], strict=True)]
