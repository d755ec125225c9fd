"""Algorithm 2: grow one tree, level by level, all nodes of a level at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf.flows.tree import NODE, TreeSequence
from treecdf.training.classifiers.protocol import NodeClassifier, NodeFits, Splits
from treecdf.training.growing.splitting import MIN_WIDTH, Candidates, fit_best, promising
from treecdf.training.settings import Growth
from treecdf.training.sources.rows import Rows


class TreeGrower:
    """Grows one tree of at most max_depth levels on the rows; `grow` may be called once."""

    def __init__(
        self,
        rows: Rows,
        classifier: NodeClassifier,
        max_depth: int,
        growth: Growth,
        rng: np.random.Generator,
    ) -> None:
        self.rows, self.classifier, self.max_depth = rows, classifier, max_depth
        self.growth, self.rng = growth, rng
        self._tables: list[NDArray] = []
        self._thetas: list[NDArray] = []
        self._n_nodes = 0

    def grow(self) -> TreeSequence:
        """The grown tree, as arrays that nothing changes again; empty if the rows have too little weight."""
        rows, growth = self.rows, self.growth
        weight = rows.begin_tree(growth.subsample, self.rng)
        n_roots = 1 if weight >= growth.min_samples_node else 0
        lower, upper = np.zeros((n_roots, rows.n_outcomes)), np.ones((n_roots, rows.n_outcomes))
        for depth in range(self.max_depth):
            if not len(lower):
                break
            splits, fits = self._split(lower, upper)
            child, lower, upper = self._add_level(depth, splits, fits, lower, upper)
            rows.descend(splits.axis, splits.cut, child, len(lower))
        return self._freeze()

    def _split(self, lower: Array, upper: Array) -> tuple[Splits, NodeFits]:
        """The best split of every node of a level, with boxes lower, upper (k, d), and its fitted classifier."""
        growth = self.growth
        basis = self.classifier.search_basis(self.rows.n_covariates)
        candidates = Candidates.collect(self.rows, lower, upper, growth.fractions, growth.eta, basis, growth.penalty)
        if growth.split_search == "score":
            choices = promising(candidates, basis)
        else:
            k, d, s = candidates.cuts.shape
            choices = np.repeat(np.arange(d * s)[:, None], k, axis=1)
        return fit_best(candidates, choices, self.rows, self.classifier, self.rng)

    def _add_level(
        self, depth: int, splits: Splits, fits: NodeFits, lower: Array, upper: Array
    ) -> tuple[Ints, Array, Array]:
        """Add the nodes of a level to the tree.

        Return the numbers (k, 2) of their children in the next level, -1 for a leaf, and the boxes of the children.
        """
        k = len(splits.axis)
        at = (np.arange(k), splits.axis)
        boxes_lower, boxes_upper = np.repeat(lower, 2, axis=0), np.repeat(upper, 2, axis=0)
        boxes_upper[2 * at[0], splits.axis] = splits.cut
        boxes_lower[2 * at[0] + 1, splits.axis] = splits.cut
        weight = np.column_stack([splits.left_weight, splits.right_weight]).ravel()
        grows = (weight >= self.growth.min_samples_node) & ((boxes_upper - boxes_lower).max(axis=1) >= MIN_WIDTH)
        if depth + 1 == self.max_depth:
            grows[:] = False
        child = np.where(grows, np.cumsum(grows) - 1, -1).reshape(k, 2)

        nodes = np.zeros(k, NODE)
        nodes["axis"], nodes["cut"], nodes["depth"] = splits.axis, splits.cut, depth
        nodes["lower"], nodes["upper"] = lower[at], upper[at]
        nodes["left_share"], nodes["rate"] = splits.left_share, self._rate(lower, upper)
        first_child = self._n_nodes + k
        nodes["left"] = np.where(child[:, 0] >= 0, first_child + child[:, 0], -1)
        nodes["right"] = np.where(child[:, 1] >= 0, first_child + child[:, 1], -1)
        self._tables.append(nodes)
        self._thetas.append(fits.theta)
        self._n_nodes += k
        return child, boxes_lower[grows], boxes_upper[grows]

    def _rate(self, lower: Array, upper: Array) -> Array:
        """Learning rates (k,) of boxes: c(A) = c0 (1 - log2 mu(A))^(-gamma), where mu is the volume."""
        log_volume = np.log2(upper - lower).sum(axis=1)
        return self.growth.c0 * (1 - log_volume) ** -self.growth.gamma

    def _freeze(self) -> TreeSequence:
        """The levels so far as a sequence of one tree, or of none."""
        if not self._tables:
            return TreeSequence.join([])
        return TreeSequence(
            np.concatenate(self._tables),
            np.concatenate(self._thetas),
            np.array([0, self._n_nodes]),
            np.array(self.classifier.kind(self.rows.n_covariates), dtype=np.int64),
        )
