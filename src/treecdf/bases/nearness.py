"""Nearness: distances of the nearest training rows, their outcomes, and how much these differ.

A learner of the mean averages over rows. Whether an outcome is known well because a very similar row was seen is used
here: as columns beside the covariates for the scales and weights of the conditional base, and as a location of its own,
the outcome of the nearest row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import KDTree

from treecdf._common.typing import Array, Ints
from treecdf.bases.mean import TrainingRows

N_NEAR = 5  # rows that are looked at
N_FEATURES = 4  # columns that they give
_FEW_COLUMNS = 10  # covariates up to which the search is exact
_CLOSE = 1.0  # of more, rows may be farther than the nearest by this share: four times faster in 20 dimensions (ADR 31)
_SMALLEST = 1e-9  # distances and spreads are at least this before their logarithms are taken


@dataclass(frozen=True)
class Nearby:
    """Distances and outcomes of the nearest rows of n rows."""

    log_distance: Array  # (n, 2): to the nearest and to the farthest of the rows that are looked at
    value: Array  # (n,): outcome of the nearest
    log_spread: Array  # (n,): of the outcomes of all that are looked at

    def features(self, stack: Array) -> Array:
        """Columns (n, 4) for scales and weights: distances, the nearest outcome minus the stack (n,), the spread."""
        return np.column_stack([self.log_distance, self.value - stack, self.log_spread])


@dataclass(frozen=True)
class Nearness:
    """Training rows that are remembered with their outcomes."""

    metric: Array  # (q,): what a standardised covariate counts in a distance
    points: Array  # (m, q): standardised covariates times this
    values: Array  # (m,): outcomes on the transformed scale
    smallest: Array  # (2,): smallest log distances of training rows to those of other folds

    @staticmethod
    def cross_fit(rows: TrainingRows, metric: Array, most: int, asked: Ints | None = None) -> tuple[Nearness, Nearby]:
        """The rows to remember, `most` at most, and what those of other folds say of each training row that is asked.

        Copies of a row are one row and rows of a group share a fold, so a training row never sees itself.
        """
        kept = np.arange(len(rows.x))
        if len(kept) > most:  # a generator of its own, so that what comes after does not depend on it
            kept = np.sort(np.random.default_rng(0).permutation(len(kept))[:most])
        points, anywhere = rows.x[kept] * metric, np.full(2, -np.inf)
        x, fold = (rows.x, rows.fold) if asked is None else (rows.x[asked], rows.fold[asked])
        distance, value, spread = np.empty((len(x), 2)), np.empty(len(x)), np.empty(len(x))
        for f in range(int(rows.fold.max()) + 1):
            here, others = fold == f, rows.fold[kept] != f
            found = Nearness(metric, points[others], rows.y[kept[others]], anywhere)(x[here])
            distance[here], value[here], spread[here] = found.log_distance, found.value, found.log_spread
        near = Nearness(metric, points, rows.y[kept], distance.min(axis=0))
        return near, Nearby(distance, value, spread)

    @cached_property
    def _tree(self) -> KDTree:
        """The rows as a k-d tree, built when it is first needed."""
        return KDTree(self.points)

    def __call__(self, x: Array) -> Nearby:
        """Distances and outcomes of the nearest rows at standardised covariates x (n, q).

        A copy of a training row is nearer than any row of another fold ever was, so that nothing was learnt about such
        a distance; it counts as the smallest distance seen in training.
        """
        k = min(N_NEAR, len(self.points))
        close = _CLOSE if len(self.metric) > _FEW_COLUMNS else 0.0
        distance, row = self._tree.query(x * self.metric, k=np.arange(1, k + 1), eps=close)
        ends = np.log(np.maximum(distance[:, [0, -1]], _SMALLEST))
        values = self.values[row]
        spread = np.log(np.maximum(values.std(axis=1), _SMALLEST))
        return Nearby(np.maximum(ends, self.smallest), values[:, 0], spread)
