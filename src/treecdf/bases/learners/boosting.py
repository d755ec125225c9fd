"""Boosted histogram trees of several outputs under any smooth loss, the folds in lockstep.

Every training row is scored by the trees of the fold it was left out of, and the number of rounds is where the loss of
all rows so scored is smallest: no fold's own noise decides it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf._kernels.histogram import add_leaves, add_trees, grow
from treecdf.data.binning import bin_edges

Codes = NDArray[np.uint8]
_MANY_ROWS = 2500  # from here on bins are finer
_JUDGED_AFTER = 10  # rounds of full rate
_FAR_BEHIND = 1.5  # times the error of another learner
Tree = tuple[Ints, Ints, Ints, Array]  # column, cut, missing_left, leaf
# Loss (m,), gradient (m, K) and positive curvature (m, K) of rows (m,) at their scores (m, K)
Loss = Callable[[Array, Ints], tuple[Array, Array, Array]]


@dataclass(frozen=True)
class Binner:
    """Covariates to bins 1, 2, ... at quantiles of the training rows; 0 is for missing values."""

    edges: tuple[Array, ...]
    n_bins: int

    @staticmethod
    def fit(x: Array, weight: Array, n_bins: int) -> Binner:
        """At most n_bins bins for each column of x (n, q)."""
        return Binner(tuple(bin_edges(column, weight, n_bins) for column in x.T), n_bins)

    def __call__(self, x: Array) -> Codes:
        """Bins (q, n)."""
        codes = np.empty((x.shape[1], len(x)), np.uint8)
        for j, edges in enumerate(self.edges):
            codes[j] = np.where(np.isnan(x[:, j]), 0, np.searchsorted(edges, x[:, j]) + 1)
        return codes


@dataclass(frozen=True)
class Boosting:
    """How trees are boosted."""

    max_depth: int
    rate: float
    max_rounds: int
    min_rows: int = 5
    ridge: float = 1.0
    subsample: float = 0.8
    column_fraction: float = 0.65
    patience: int = 20
    n_bins: int = 64


@dataclass(frozen=True)
class BoostedScores:
    """The mean of the folds' models; trees on the first axis."""

    binner: Binner
    start: Array  # (K,)
    rate: float
    column: Ints
    cut: Ints
    missing_left: Ints
    leaf: Array

    def __call__(self, x: Array) -> Array:
        """Scores (n, K)."""
        scores = np.tile(self.start, (len(x), 1))
        add_trees(self.binner(x), self.column, self.cut, self.missing_left, self.leaf, self.rate, scores)
        return scores


def boost(
    loss: Loss,
    x: Array,
    weight: Array,
    start: Array,
    fold: Ints,
    settings: Boosting,
    rng: np.random.Generator,
    give_up: float = np.inf,
) -> tuple[BoostedScores, Array]:
    """Boost from scores `start` (K,): the model for new rows, and the left-out scores (n, K) of the training rows.

    It gives up if the mean loss is above `give_up` after some rounds.
    """
    n, n_folds = len(x), int(fold.max()) + 1
    judged = round(_JUDGED_AFTER / settings.rate)
    binner = Binner.fit(x, weight, settings.n_bins)
    codes = binner(x)
    everyone = np.arange(n)
    own = fold, everyone
    scores = np.tile(start, (n_folds, n, 1))
    trees: list[Tree] = []
    best, best_round, best_scores = float(weight @ loss(scores[own], everyone)[0]), 0, scores[own]
    for k in range(1, settings.max_rounds + 1):
        for f in range(n_folds):
            trees.append(_grow(loss, codes, weight, fold != f, scores[f], settings, rng))
        left_out = scores[own]
        value = float(weight @ loss(left_out, everyone)[0])
        if value < best:
            best, best_round, best_scores = value, k, left_out
        if k - best_round >= settings.patience or (k == judged and best > give_up * weight.sum()):
            break
    kept = [_empty_tree(settings.max_depth, len(start)), *trees[: best_round * n_folds]]
    column, cut, missing_left, leaf = (np.concatenate(parts)[1:] for parts in zip(*kept, strict=True))
    return BoostedScores(binner, start, settings.rate / n_folds, column, cut, missing_left, leaf), best_scores


def _empty_tree(depth: int, n_outputs: int) -> Tree:
    column, cut, missing_left = (np.zeros((1, 2**depth - 1), np.int64) for _ in range(3))
    return column, cut, missing_left, np.zeros((1, 2**depth, n_outputs))


def _grow(
    loss: Loss,
    codes: Codes,
    weight: Array,
    learns: NDArray[np.bool_],
    scores: Array,
    settings: Boosting,
    rng: np.random.Generator,
) -> Tree:
    """Grow a tree on a sample of the rows that learn, and add it to the scores (n, K) of all."""
    n, q = len(scores), len(codes)
    rows = np.flatnonzero(learns & (rng.random(n) < settings.subsample))
    columns = np.sort(rng.choice(q, max(1, round(settings.column_fraction * q)), replace=False))
    _, gradient, curvature = loss(scores[rows], rows)
    own = weight[rows]
    gradient *= own[:, None]
    curvature *= own[:, None]
    tree = _empty_tree(settings.max_depth, scores.shape[1])
    args = (columns, settings.n_bins, float(settings.min_rows), float(settings.ridge))
    place = np.zeros(len(rows), np.int64)
    grow(codes.take(rows, axis=1), np.arange(len(rows)), place, gradient, curvature, own, *args, *tree)
    add_leaves(codes, np.zeros(n, np.int64), *tree, settings.rate, scores)
    return tree


@dataclass(frozen=True)
class BoostedMean:
    """Boosted trees under squared error."""

    max_depth: int
    rate: float = 0.05
    max_rounds: int = 1000

    def is_worth_trying(self, errors: dict[str, float]) -> bool:
        """Unless other trees were clearly beaten by a smooth learner."""
        return errors.get("trees", 0.0) < errors.get("process", np.inf) / 0.9

    @property
    def kind(self) -> str:
        """Errors of its kind are alike."""
        return "trees"

    @property
    def name(self) -> str:
        """For people."""
        return f"trees of depth {self.max_depth}"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FirstScore, Array]:
        """By leaving out one fold at a time."""

        def squared_error(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
            residual = scores - y[rows, None]
            return residual[:, 0] ** 2 / 2, residual, np.ones_like(residual)

        fraction = max(0.65, min(1.0, 4 / x.shape[1]))
        settings = Boosting(
            self.max_depth,
            self.rate,
            self.max_rounds,
            min_rows=3,
            column_fraction=fraction,
            n_bins=254 if len(x) > _MANY_ROWS else 96,
        )
        give_up = (_FAR_BEHIND * best) ** 2 / 2
        scores, left_out = boost(squared_error, x, weight, np.zeros(1), fold, settings, rng, give_up)
        return FirstScore(scores), left_out[:, 0]


@dataclass(frozen=True)
class FirstScore:
    """Scores of one output as predictions."""

    scores: BoostedScores

    def __call__(self, x: Array) -> Array:
        """Predictions (n,)."""
        return self.scores(x)[:, 0]
