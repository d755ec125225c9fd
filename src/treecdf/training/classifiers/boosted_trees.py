"""A few small boosted trees on the covariates as node classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logit

from treecdf._common.typing import Array, Bools, Ints
from treecdf._common.validation import check_setting, is_int, is_real
from treecdf._kernels.node_trees import begin_round, next_level, next_level_of_one_side, reached
from treecdf._kernels.splits import best_splits, sums_of_children
from treecdf._kernels.transform import TREES
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.training.classifiers.protocol import NodeFits, Splits
from treecdf.training.sources.rows import Rows

_SEARCH_WIDTH = 32  # most features of the score test, which must stay cheap beside the trees


@dataclass(frozen=True)
class BoostedTrees:
    """A node classifier of a few small trees on binned covariates, boosted by Newton's method.

    Parameters
    ----------
    rounds : int, default 3
        Trees at a node.
    max_depth : int, default 3
        Levels of splits in each tree.
    learning_rate : float, default 0.5
        Share of a Newton step that a tree takes.
    n_bins : int, default 64
        Most quantile bins of a covariate; missing values have one more.
    min_rows : float, default 5
        Least weight of the rows in a leaf.
    ridge : float, default 1.0
        L2 penalty of a leaf's step.

    Examples
    --------
    >>> from treecdf import BoostedTrees, Stage
    >>> Stage(BoostedTrees(rounds=5), max_depth=3).classifier.rounds
    5
    """

    rounds: int = 3
    max_depth: int = 3
    learning_rate: float = 0.5
    n_bins: int = 64
    min_rows: float = 5
    ridge: float = 1.0

    def __post_init__(self) -> None:
        rules = {
            "rounds": (is_int(self.rounds) and 1 <= self.rounds <= 1000, "an integer from 1 to 1000"),
            "max_depth": (is_int(self.max_depth) and 1 <= self.max_depth <= 10, "an integer from 1 to 10"),
            "learning_rate": (is_real(self.learning_rate) and 0 < self.learning_rate <= 1, "a number in (0, 1]"),
            "n_bins": (is_int(self.n_bins) and 2 <= self.n_bins <= 255, "an integer from 2 to 255"),
            "min_rows": (is_real(self.min_rows) and self.min_rows >= 1, "a number of at least 1"),
            "ridge": (is_real(self.ridge) and self.ridge > 0, "a number above 0"),
        }
        for name, (is_valid, expected) in rules.items():
            check_setting(name, getattr(self, name), is_valid, expected)

    def kind(self, q: int) -> tuple[int, ...]:
        """(TREES, rounds, depth)."""
        return TREES, self.rounds, self.max_depth

    def search_basis(self, q: int) -> Basis:
        """Hinges of the covariates, fewer per covariate if there are many; a single candidate split is fitted.

        Fitting the second best split as well did not improve the likelihood.
        """
        return replace(Basis.hinges(q, max_width=_SEARCH_WIDTH), n_candidates=1)

    def fit_basis(self, q: int) -> Basis:
        """No features: the trees see bins of the covariates."""
        return Basis.empty()

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Packed trees theta (k, P) of all nodes, which grow side by side, one tree at each node in a round.

        Of two siblings the lighter one's rows are added up, and the other has the rest of the parent's sums, if there
        is more than one block of rows: wherever these are, so that the rounding is the same.
        """
        bins = rows.bins(self.n_bins)
        k, q, n_leaves = len(splits.axis), rows.n_covariates, 2**self.max_depth
        split, learns = (splits.axis, splits.cut), splits.has_both
        start = logit(splits.share)
        column, cut, missing_left = np.full((3, self.rounds, k, n_leaves - 1), -1)
        leaf = np.zeros((self.rounds, k, n_leaves))
        last, last_level = np.empty(0), self.max_depth - 1
        before = tree = (column[0], cut[0], missing_left[0])
        for t in range(self.rounds):
            before, tree = tree, (column[t], cut[t], missing_left[t])
            for level in range(self.max_depth):
                shape = (k * 2**level, q, bins.n_bins + 1, 3)
                if level == 0:
                    (sums,) = rows.add(begin_round, (*split, learns, start, last_level, *before, last), [shape])
                elif not rows.are_many:
                    (sums,) = rows.add(next_level, (learns, level - 1, *tree), [shape])
                else:
                    side = _lighter_children(sums, level - 1, *tree)
                    args = learns, level - 1, *tree, side
                    (light,) = rows.add(next_level_of_one_side, args, [(k * 2 ** (level - 1), *shape[1:])])
                    sums = _both_children(sums, light, side)
                best_splits(sums, 2**level, np.arange(q), float(self.min_rows), float(self.ridge), *tree)
            gradient, hessian, _ = sums_of_children(sums, *tree).T
            last = self.learning_rate * (-gradient / (hessian + self.ridge))
            leaf[t] = last.reshape(k, n_leaves)
        log_lik = np.full(k, np.nan)
        if splits.has_rivals:
            (log_lik,) = rows.add(reached, (*split, learns, last_level, *tree, last), [(k,)])
        return NodeFits(_packed(start, bins, column, cut, missing_left, leaf), log_lik)


def _lighter_children(sums: Array, level: int, column: Ints, cut: Ints, missing_left: Ints) -> Ints:
    """Whether the right child (1) or the left one (0) of each node of a level has less weight, by their histograms."""
    here = slice(2**level - 1, 2 ** (level + 1) - 1)
    axis, last, missing = (part[:, here].ravel() for part in (column, cut, missing_left))
    weight = sums[np.arange(len(sums)), np.maximum(axis, 0), :, 2]
    is_left = np.arange(sums.shape[2]) <= last[:, None]
    is_left[:, 0] = missing == 1
    is_left[axis < 0] = True
    left = (weight * is_left).sum(axis=1)
    return (weight.sum(axis=1) - left < left).astype(np.int64)


def _both_children(sums: Array, light: Array, side: Ints) -> Array:
    """Histograms (2 k, ...) of all children from those of their k parents and of the children on the given sides."""
    children = np.empty((2 * len(sums), *sums.shape[1:]))
    at = 2 * np.arange(len(sums)) + side
    children[at] = light
    rest = sums - light
    np.maximum(rest[..., 1:], 0.0, out=rest[..., 1:])  # rounding must not leave a negative Hessian or weight
    children[at ^ 1] = rest
    return children


def _packed(start: Array, bins: Bins, column: Ints, cut: Ints, missing_left: Ints, leaf: Array) -> Array:
    """Parameters (k, P) of the nodes as the transform's kernels read them, with thresholds in place of bins."""
    rounds, k, _ = leaf.shape
    split = column >= 0
    threshold = np.full(column.shape, np.inf)
    threshold[split] = bins.edges[column[split], cut[split] - 1]
    inner = np.stack([np.where(split, column, 0), threshold, missing_left], axis=-1)
    trees = np.concatenate([inner.reshape(rounds, k, -1), _filled(leaf, split)], axis=2)
    return np.column_stack([start, trees.transpose(1, 0, 2).reshape(k, -1)])


def _filled(leaf: Array, split: Bools) -> Array:
    """Leaves (..., 2^D) with all those below a node that is not split, (..., 2^D - 1), equal to the leftmost."""
    filled = leaf.copy()
    depth = leaf.shape[-1].bit_length() - 1
    for level in reversed(range(depth)):
        here = split[..., 2**level - 1 : 2 ** (level + 1) - 1]
        halves = filled.reshape(*here.shape, 2, -1)
        halves[..., 1, :] = np.where(here[..., None], halves[..., 1, :], halves[..., 0, :])
    return filled
