"""Fits to rows that are not all in memory: one flow from sums, or a sample's model and trees of all other rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from treecdf._common.typing import Ints, Units
from treecdf.data.columns import Category
from treecdf.data.reading import Schema
from treecdf.data.recording import is_few
from treecdf.data.table import Table, learn_table, outcome_names, read_bounds, read_table
from treecdf.flows.chain import Chain
from treecdf.flows.learnt import Learnt
from treecdf.flows.mixture import Mixture
from treecdf.flows.results import Family
from treecdf.flows.weights import equal_weights
from treecdf.training.classifiers import AnyClassifier
from treecdf.training.defaults import ROWS_OF_LARGE_MIXTURE, ROWS_OF_SAMPLE, ROWS_READ_WHOLE
from treecdf.training.ensemble import Ensemble, fit_streamed
from treecdf.training.jobs import Workers
from treecdf.training.parameters import check_together
from treecdf.training.plan import UNCONDITIONAL_NAMES, refining_recipe, streamed_recipe
from treecdf.training.settings import FitSettings, Recipe
from treecdf.training.sources.pieces import Opened, Pick, Piece, PieceReader, Pieces, joined, take
from treecdf.training.sources.rows import SAMPLE_ROWS

# A sample is drawn by this key whatever the seed, so that a fit that goes on from a checkpoint has the same.
_KEY_OF_SAMPLE = 0x5851F42D4C957F2D
_KEY_OF_HALF = 0x2545F4914F6CDD1D
# Times that a sample may be smaller or larger than it should be, and draws that are made until one is not.
_FAR_FROM_EXPECTED, _MOST_DRAWS = 4, 20
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

    def larger(self) -> Sampled:
        """With the larger sample that a boosted mixture is learnt from."""
        return replace(self, pick=replace(self.pick, share=min(1.0, ROWS_OF_LARGE_MIXTURE / self.n_rows)))

    @property
    def firsts(self) -> list[int]:
        """Number of the first row of every piece."""
        return [int(first) for first in np.cumsum([0, *self.sizes[:-1, 0]])]

    @property
    def n_rows(self) -> int:
        """Number of rows with a weight above zero."""
        return int(self.sizes[:, 1].sum())

    @property
    def expected(self) -> int:
        """About how many rows the sample has."""
        return round(self.pick.share * self.n_rows)

    def sample(self) -> Piece:
        """The rows of the sample, all with a weight above zero."""
        return joined(self.pieces.chosen(self.pick, self.firsts))

    def drawn(self) -> tuple[Sampled, Piece]:
        """The sample with its rows; of few groups it is drawn again if it is much too small or too large."""
        expected = self.expected
        for k in range(_MOST_DRAWS):
            one = replace(self, pick=replace(self.pick, key=(self.pick.key + k) % 2**64))
            rows = one.sample()
            if expected <= _FAR_FROM_EXPECTED * len(rows[0]) <= _FAR_FROM_EXPECTED**2 * expected:
                return one, rows
        raise ValueError(
            f"No sample of about {int(expected):,} of the {self.n_rows:,} rows was found that keeps groups whole: "
            "there are too few groups, or too large ones, for a table of this size."
        )

    def leaves_enough(self, n: int) -> bool:
        """Whether there are enough other rows to grow trees on if n are in the sample."""
        return self.n_rows - n >= _FEWEST_OTHERS

    def refine(
        self,
        settings: FitSettings,
        links: Sequence[tuple[Mixture, int, tuple[int, ...]]],
        reader: PieceReader,
        rng: np.random.Generator,
        workers: Workers,
    ) -> list[Ensemble]:
        """Grow trees on all rows that are not in the sample, on the sample's models of one outcome each.

        The models have seen none of these rows, so that the trees learn what they do with new ones. links: of each
        model the outcome that it is of, and the outcomes that are covariates of it. reader: of all rows. There is
        nothing in the list if too few rows are left to learn from.
        """
        units = self.pieces.units(replace(reader, without=self.pick))
        counts = np.array([len(part) for part in units])
        ends = np.cumsum([0, *counts])
        if ends[-1] < _FEWEST_OTHERS:
            return []
        fraction = settings.validation_fraction or _SHARE_LEFT_OUT

        def refined(mixture: Mixture, outcome: int, given: tuple[int, ...]) -> Ensemble:
            own = replace(reader, without=self.pick, link=(outcome, given))

            def open_sources(aside: Ints, pool: Executor | None) -> Opened:
                inside = _by_piece(aside, ends)
                n_aside = np.array([len(rows) for rows in inside])
                places = list(zip(self.firsts, inside, strict=True))
                return self.pieces.sources(own, places, np.column_stack([counts - n_aside, n_aside]), pool)

            q = reader.schema.covariates.width + len(given)
            recipe = refining_recipe(settings, [reader.bounds[outcome]], int(ends[-1]))
            learnt = Learnt.of(mixture, q)
            every = np.concatenate(units)
            return fit_streamed(recipe, open_sources, every, q, fraction, rng, workers, learnt, name="refined")

        return [refined(*link) for link in links]


def half_of(rows: Piece) -> Piece:
    """Half of some rows, drawn by their contents; groups do not stay together."""
    X, y, weight, groups = rows
    chosen = np.flatnonzero(Pick(0.5, _KEY_OF_HALF).mask(X, y, None, 0))
    weight, groups = (None if part is None else np.asarray(part)[chosen] for part in (weight, groups))
    return take(X, chosen), take(y, chosen), weight, groups


def links_of(mixture: Mixture) -> list[tuple[Mixture, int, tuple[int, ...]]]:
    """The one-outcome models that a model is made of, each with its outcome and those that are covariates of it.

    There are none if it is not made of such: a mixture of chains, or of flows of several outcomes.
    """
    if mixture.members[0].n_outcomes == 1:
        return [(mixture, 0, ())]
    chain = mixture.members[0]
    if len(mixture.members) > 1 or not isinstance(chain, Chain):
        return []
    return [(link, chain.order[k], tuple(sorted(chain.order[:k]))) for k, link in enumerate(chain.links)]


def chained(parts: Sequence[Ensemble], order: tuple[int, ...]) -> Ensemble:
    """The models of the links of a chain as one model."""
    chain = Chain(tuple(part.mixture() for part in parts), order)
    left_out = np.sum([part.families[0].left_out for part in parts], axis=0)
    family = Family(parts[0].families[0].name, (chain,), left_out, equal_weights(1))
    histories, ended = (
        tuple(item for part in parts for item in getattr(part, name)) for name in ("histories", "ended")
    )
    return Ensemble((family,), np.ones(1), histories, parts[-1].missing, ended)


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
