"""The nearest rows: on large tables rows come close to one another, and no other learner remembers each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import KDTree

from treecdf._common.telling import each_fold
from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.protocol import AlwaysTried

_CLOSE = 1.0  # neighbours may be farther than the nearest by this share: eight times faster in ten dimensions (ADR 18)
_SMALLEST_SQUARE = 1e-18  # squared distances are at least this: rows at the same place share the weight


@dataclass(frozen=True)
class Neighbours(AlwaysTried):
    """Mean of near rows, weighted by the inverse squares of their distances.

    The model, and its file, hold training rows with their outcomes.

    Parameters
    ----------
    k : int, default 3
        Neighbours of each row.
    n_kept : int, default 100_000
        Training rows that are remembered at most, a random sample if there are more.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-2, 2, 100)[:, None]
    >>> fold = np.arange(100) % 5
    >>> predict, left_out = Neighbours().cross_fit(x, x[:, 0] ** 2, np.ones(100), fold, np.random.default_rng(0))
    >>> left_out.shape
    (100,)
    >>> bool(abs(predict(np.array([[1.0]]))[0] - 1.0) < 0.1)
    True
    """

    k: int = 3
    n_kept: int = 100_000

    @property
    def holds_rows(self) -> bool:
        """True: the fitted learner holds training rows."""
        return True

    @property
    def kind(self) -> str:
        """The word "neighbours"."""
        return "neighbours"

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return "nearest neighbours"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedNeighbours, Array]:
        """The rows to remember, and predictions (n,) by rows of other folds; see `Learner.cross_fit`."""
        order = rng.permutation(len(x))
        kept = np.sort(order[weight[order] > 0][: self.n_kept])
        left_out = np.zeros(len(x))
        for f in each_fold(int(fold.max()) + 1):
            others, here = kept[fold[kept] != f], fold == f
            if len(others):
                left_out[here] = FittedNeighbours(x[others], y[others], weight[others], self.k)(x[here])
        return FittedNeighbours(x[kept], y[kept], weight[kept], self.k), left_out


@dataclass(frozen=True)
class FittedNeighbours:
    """Training rows that predictions are means of."""

    points: Array  # (m, q)
    values: Array  # (m,)
    weight: Array  # (m,)
    k: int

    @cached_property
    def _tree(self) -> KDTree:
        """The rows as a k-d tree, built when it is first needed."""
        return KDTree(self.points)

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        k = min(self.k, len(self.points))
        distance, row = self._tree.query(x, k=np.arange(1, k + 1), eps=_CLOSE)
        share = self.weight[row] / np.maximum(distance**2, _SMALLEST_SQUARE)
        return np.asarray((share * self.values[row]).sum(axis=1) / share.sum(axis=1))
