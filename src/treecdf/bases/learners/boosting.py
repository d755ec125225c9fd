"""Boosted histogram trees of several outputs under any smooth loss, the folds in lockstep.

Every training row is scored by the trees of the fold it was left out of, and the number of rounds is where the loss of
all rows so scored is smallest: no fold's own noise decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from treecdf._common.telling import tell
from treecdf._common.typing import Array, Bools, Ints
from treecdf._kernels.binned_trees import add_trees
from treecdf._kernels.histogram import grow
from treecdf.bases.learners.screening import most_correlated
from treecdf.data.binning import Bins, Codes

_ROUNDS_AT_HALF = 5.0  # over the rate: after so many rounds about half is done, for the line of progress
_JUDGED_AFTER = 10  # rounds at a rate of 1 (so 100 at 0.1) after which trees that are far behind give up
_FAR_BEHIND = 1.5  # trees whose error is this many times another learner's have nothing to add to it
_CLEARLY_BEATEN = 0.9  # trees have lost if the error of the Gaussian process is at most this share of theirs
_FEWEST_COLUMNS = 4  # on average each tree sees so many covariates, or all if there are fewer
Tree = tuple[Ints, Ints, Ints, Array]  # column, cut, missing_left, leaf
# Loss (m,), gradient (m, K) and positive curvature (m, K) of rows (m,) at their scores (m, K)
Loss = Callable[[Array, Ints], tuple[Array, Array, Array]]


@dataclass(frozen=True)
class BoostingSettings:
    """How trees are boosted.

    Parameters
    ----------
    max_depth : int
        Levels of splits of a tree.
    rate : float
        Learning rate.
    max_rounds : int
        Trees of each fold at most.
    min_rows : int, default 5
        Weight of the rows of a leaf at least.
    ridge : float, default 1.0
        Penalty of squared leaf values.
    subsample : float, default 0.8
        Share of the rows that each tree sees.
    column_fraction : float, default 0.65
        Share of the covariates that each tree sees.
    patience : int, default 20
        Rounds without a smaller out-of-fold loss after which boosting ends.
    n_bins : int, default 64
        Bins of each covariate at most, up to 254.
    max_columns : int, default 100
        Covariates that the trees of a fold see at most: those most correlated with the first gradient of its rows.
    """

    max_depth: int
    rate: float
    max_rounds: int
    min_rows: int = 5
    ridge: float = 1.0
    subsample: float = 0.8
    column_fraction: float = 0.65
    patience: int = 20
    n_bins: int = 64
    max_columns: int = 100


@dataclass(frozen=True)
class BoostedScores:
    """K scores as functions of covariates: the mean of the folds' models. Arrays have a tree on the first axis."""

    bins: Bins
    start: Array  # (K,)
    rate: float  # learning rate over number of folds
    column: Ints
    cut: Ints
    missing_left: Ints
    leaf: Array

    def __call__(self, x: Array) -> Array:
        """Scores (n, K) of covariates x (n, q)."""
        scores = np.tile(self.start, (len(x), 1))
        used, nodes = self._packed
        add_trees(self.bins.codes(x, used), *nodes, self.leaf, self.rate, scores)
        return scores

    def moved(self, shift: float, n_first: int) -> BoostedScores:
        """The same with `shift` added to the first scores."""
        start = self.start.copy()
        start[:n_first] += shift
        return replace(self, start=start)

    @cached_property
    def _packed(self) -> tuple[Ints, tuple[Ints, Codes, Codes]]:
        """The covariates that are used, few of a wide table, and the inner nodes for `add_trees`; made once."""
        used = np.unique(np.append(self.column[self.column >= 0], 0))
        return used, packed_nodes(self.column, self.cut, self.missing_left)


def packed_nodes(column: Ints, cut: Ints, missing_left: Ints) -> tuple[Ints, Codes, Codes]:
    """Inner nodes of trees as `add_trees` reads them: column, first and last of the bins that go left.

    Bin 0 holds the missing rows. Where there is no split all bins go left.
    """
    is_split = column >= 0
    first = np.where(is_split & (missing_left == 0), 1, 0)
    last = np.where(is_split, np.clip(cut, 0, 255), 255)
    return np.where(is_split, column, 0), first.astype(np.uint8), last.astype(np.uint8)


def boost_scores(
    loss: Loss,
    x: Array,
    weight: Array,
    start: Array,
    fold: Ints,
    settings: BoostingSettings,
    rng: np.random.Generator,
    give_up: float = np.inf,
) -> tuple[BoostedScores, Array]:
    """Boost scores of covariates x (n, q) from `start` (K,): the model of new rows, and out-of-fold scores (n, K).

    It gives up if the mean loss is above `give_up` after some rounds. To end at `max_rounds` is no failure: the rounds
    of the smallest out-of-fold loss are kept in any case.
    """
    n, n_folds = len(x), int(fold.max()) + 1
    judged = round(_JUDGED_AFTER / settings.rate)
    bins = Bins.fit(((column, weight) for column in x.T), settings.n_bins)
    codes = bins.codes(x)
    everyone = np.arange(n)
    own = fold, everyone
    scores = np.tile(start, (n_folds, n, 1))
    columns = _screened(loss, x, weight, start, fold, settings.max_columns)
    trees: list[Tree] = []
    best, best_round, best_scores = float(weight @ loss(scores[own], everyone)[0]), 0, scores[own]
    for k in range(1, settings.max_rounds + 1):
        tell(f"round {k} of {n_folds} folds", k / (k + _ROUNDS_AT_HALF / settings.rate))
        for f in range(n_folds):
            trees.append(_grow(loss, codes, columns[f], weight, fold != f, scores[f], settings, rng))
        left_out = scores[own]
        value = float(weight @ loss(left_out, everyone)[0])
        if value < best:
            best, best_round, best_scores = value, k, left_out
        if k - best_round >= settings.patience or (k == judged and best > give_up * weight.sum()):
            break
    kept = [_empty_tree(settings.max_depth, len(start)), *trees[: best_round * n_folds]]
    column, cut, missing_left, leaf = (np.concatenate(parts)[1:] for parts in zip(*kept, strict=True))
    return BoostedScores(bins, start, settings.rate / n_folds, column, cut, missing_left, leaf), best_scores


def _screened(loss: Loss, x: Array, weight: Array, start: Array, fold: Ints, most: int) -> list[Ints]:
    """The columns of x (n, q) that each fold's trees see: of many those that would change some score most."""
    n_folds, q = int(fold.max()) + 1, x.shape[1]
    if q <= most:
        return [np.arange(q)] * n_folds
    gradient = loss(np.tile(start, (len(x), 1)), np.arange(len(x)))[1]
    found = []
    for others in (fold != f for f in range(n_folds)):
        each = [most_correlated(x[others], part[others], weight[others], most) for part in gradient.T]
        found.append(np.unique(np.concatenate(each)))
    return found


def _empty_tree(depth: int, n_outputs: int) -> Tree:
    """The arrays of one tree, all 0."""
    column, cut, missing_left = (np.zeros((1, 2**depth - 1), np.int64) for _ in range(3))
    return column, cut, missing_left, np.zeros((1, 2**depth, n_outputs))


def _grow(
    loss: Loss,
    codes: Codes,
    columns: Ints,
    weight: Array,
    learns: Bools,
    scores: Array,
    settings: BoostingSettings,
    rng: np.random.Generator,
) -> Tree:
    """A tree grown on a sample of the rows that learn (n,) and of the columns; it is added to all scores (n, K)."""
    n, q = len(scores), len(columns)
    rows = np.flatnonzero(learns & (rng.random(n) < settings.subsample))
    columns = columns[np.sort(rng.choice(q, max(1, round(settings.column_fraction * q)), replace=False))]
    _, gradient, curvature = loss(scores[rows], rows)
    own = weight[rows]
    gradient *= own[:, None]
    curvature *= own[:, None]
    tree = _empty_tree(settings.max_depth, scores.shape[1])
    args = (columns, settings.n_bins, float(settings.min_rows), float(settings.ridge))
    grow(codes, rows, gradient, curvature, own, *args, *(part[0] for part in tree))
    add_trees(codes, *packed_nodes(*tree[:3]), tree[3], settings.rate, scores)
    return tree


@dataclass(frozen=True)
class BoostedMean:
    """Boosted trees under squared error.

    Parameters
    ----------
    max_depth : int
        Levels of splits of a tree.
    rate : float, default 0.05
        Learning rate.
    max_rounds : int, default 1000
        Trees of each fold at most; boosting ends earlier if 20 rounds did not lower the out-of-fold error.
    n_bins : int, default 254
        Bins of each covariate at most, from 2 to 254; with fewer it is faster and sees less.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sign(x[:, 0])
    >>> learner = BoostedMean(2, rate=0.3, max_rounds=50)
    >>> predict, left_out = learner.cross_fit(x, y, np.ones(200), np.arange(200) % 5, np.random.default_rng(0))
    >>> left_out.shape
    (200,)
    >>> bool(np.mean((left_out - y) ** 2) < 0.1)
    True
    """

    max_depth: int
    rate: float = 0.05
    max_rounds: int = 1000
    n_bins: int = 254

    def is_worth_trying(self, errors: Mapping[str, float]) -> bool:
        """False if other trees were clearly beaten by the Gaussian process."""
        return errors.get("trees", 0.0) < errors.get("process", np.inf) / _CLEARLY_BEATEN

    @property
    def kind(self) -> str:
        """The word "trees"."""
        return "trees"

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return f"trees of depth {self.max_depth}"

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FirstScore, Array]:
        """The mean of the folds' models, and out-of-fold predictions (n,); see `Learner.cross_fit`."""

        def squared_error(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
            residual = scores - y[rows, None]
            return residual[:, 0] ** 2 / 2, residual, np.ones_like(residual)

        fraction = max(0.65, min(1.0, _FEWEST_COLUMNS / x.shape[1]))
        settings = BoostingSettings(
            self.max_depth, self.rate, self.max_rounds, min_rows=3, column_fraction=fraction, n_bins=self.n_bins
        )
        give_up = (_FAR_BEHIND * best) ** 2 / 2
        scores, left_out = boost_scores(squared_error, x, weight, np.zeros(1), fold, settings, rng, give_up)
        return FirstScore(scores), left_out[:, 0]


@dataclass(frozen=True)
class FirstScore:
    """Scores of one output as predictions."""

    scores: BoostedScores

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        return self.scores(x)[:, 0]
