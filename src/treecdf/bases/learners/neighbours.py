"""The nearest rows: on large tables rows come close to one another, and no other learner remembers each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import KDTree

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.protocol import Cheap

_CLOSE = 1.0  # neighbours may be farther than the nearest by this share: several times faster
_SMALLEST_SQUARE = 1e-18  # of a distance: rows at the same place are alike


@dataclass(frozen=True)
class Neighbours(Cheap):
    """Mean of the `k` nearest rows by the inverse squares of their distances; `n_kept` rows are remembered."""

    k: int = 3
    n_kept: int = 100_000

    @property
    def kind(self) -> str:
        """Errors of its kind are alike."""
        return "neighbours"

    @property
    def name(self) -> str:
        """For people."""
        return "nearest neighbours"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedNeighbours, Array]:
        """Rows of other folds are the neighbours of a training row."""
        order = rng.permutation(len(x))
        kept = np.sort(order[weight[order] > 0][: self.n_kept])
        left_out = np.zeros(len(x))
        for f in range(int(fold.max()) + 1):
            others, here = kept[fold[kept] != f], fold == f
            if len(others):
                left_out[here] = FittedNeighbours(x[others], y[others], weight[others], self.k)(x[here])
        return FittedNeighbours(x[kept], y[kept], weight[kept], self.k), left_out


@dataclass(frozen=True)
class FittedNeighbours:
    """The rows it remembers."""

    points: Array  # (m, q)
    values: Array  # (m,)
    weight: Array  # (m,)
    k: int

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.points)

    def __call__(self, x: Array) -> Array:
        """Predictions (n,)."""
        k = min(self.k, len(self.points))
        distance, row = self._tree.query(x, k=np.arange(1, k + 1), eps=_CLOSE)
        share = self.weight[row] / np.maximum(distance**2, _SMALLEST_SQUARE)
        return np.asarray((share * self.values[row]).sum(axis=1) / share.sum(axis=1))
