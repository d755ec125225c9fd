"""Frozen tree-CDFs: a sequence of grown trees as flat arrays, applied forward and inverse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf._kernels.curves import fill_masses
from treecdf._kernels.transform import LINEAR, NODE, PYTHON, forward, inverse
from treecdf.data.basis import FEATURE_BASES

_WORTH_SHARING = 16  # points at a row of x, from where on what classifiers say about it is worth keeping


@dataclass(frozen=True)
class TreeSequence:
    """Trees whose nodes share one kind of classifier.

    nodes: table of all internal nodes (dtype NODE), tree after tree, each root first.
    theta (nodes, P): parameters of the node classifiers; for scikit-learn classifiers an object array (nodes, 1).
    roots (trees + 1,): tree t has the nodes roots[t]:roots[t + 1].
    kind: kind of the classifiers and what it takes to evaluate them, see the transform's kernels: (LINEAR, place in
        FEATURE_BASES), (NETWORK, sizes of the hidden layers), (TREES, rounds, depth) or (PYTHON,).
    """

    nodes: NDArray[Any]
    theta: NDArray[Any]
    roots: NDArray[np.int64]
    kind: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.roots) - 1

    def __getitem__(self, trees: slice) -> TreeSequence:
        """A run of consecutive trees."""
        first, last, step = trees.indices(len(self))
        if step != 1:
            raise ValueError(f"Expected consecutive trees; got a step of {step}.")
        last = max(first, last)
        begin, end = self.roots[first], self.roots[last]
        nodes = self.nodes[begin:end].copy()
        for side in ("left", "right"):
            nodes[side] -= np.where(nodes[side] >= 0, begin, 0).astype(np.int32)
        return TreeSequence(nodes, self.theta[begin:end], self.roots[first : last + 1] - begin, self.kind)

    @staticmethod
    def join(parts: Sequence[TreeSequence]) -> TreeSequence:
        """One sequence of the trees of all parts, in order; of no parts, the identity."""
        if not parts:
            return TreeSequence(np.zeros(0, NODE), np.zeros((0, 1)), np.zeros(1, np.int64), np.array([LINEAR, 0]))
        tables, roots, begin = [], [np.zeros(1, np.int64)], 0
        for part in parts:
            nodes = part.nodes.copy()
            for side in ("left", "right"):
                nodes[side] += np.where(nodes[side] >= 0, begin, 0).astype(np.int32)
            tables.append(nodes)
            roots.append(part.roots[1:] + begin)
            begin += len(nodes)
        theta = np.concatenate([part.theta for part in parts])
        return TreeSequence(np.concatenate(tables), theta, np.concatenate(roots), parts[0].kind)

    def forward_and_log_det(self, u: Array, x: Array) -> tuple[Array, Array]:
        """Images of u (n, m, d) at covariates x (n, q), towards the uniform, and log-determinants (n, m)."""
        moved, log_det = u.copy(order="C"), np.zeros(u.shape[:2])
        if self.kind[0] == PYTHON:
            for tree in range(len(self)):
                self._forward_by_level(tree, moved, x, log_det)
        else:
            trees = (self.nodes, self.theta, self.roots, self.kind)
            rows, m = self._rows(u, x)
            forward(*trees, rows, m, moved.reshape(-1, u.shape[2]), log_det.reshape(-1))
        return moved, log_det

    def fill_masses(self, x: Array, first: int, masses: Array) -> None:
        """masses[first:first + nodes] <- shares of the nodes' masses of their left children, at covariates x."""
        if self.kind[0] == PYTHON:
            rate, share = self.nodes["rate"], self.nodes["left_share"]
            for i in range(len(self.nodes)):
                prob = np.asarray(self.theta[i, 0].left_prob(x))
                masses[first + i] = rate[i] * prob + (1 - rate[i]) * share[i]
        else:
            fill_masses(self.nodes, self.theta, self.roots, self.kind, self._features(x), first, masses)

    def inverse(self, u: Array, x: Array) -> Array:
        """Preimages of u (n, m, d) at covariates x (n, q)."""
        moved = u.copy(order="C")
        if self.kind[0] == PYTHON:
            for tree in reversed(range(len(self))):
                self._inverse_by_level(tree, moved, x)
        else:
            trees = (self.nodes, self.theta, self.roots, self.kind)
            rows, m = self._rows(u, x)
            inverse(*trees, rows, m, moved.reshape(-1, u.shape[2]))
        return moved

    def _rows(self, u: Array, x: Array) -> tuple[Array, int]:
        """Rows that the classifiers see, and the number of points at each; a few points at a row get a row each."""
        features, m = self._features(x), u.shape[1]
        return (features, m) if m >= _WORTH_SHARING else (np.repeat(features, m, axis=0), 1)

    def _features(self, x: Array) -> Array:
        """The arrays that the classifiers take, from covariates x (n, q)."""
        if self.kind[0] != LINEAR or self.kind[1] == 0:
            return x
        make_basis = list(FEATURE_BASES.values())[self.kind[1]]
        return make_basis(x.shape[1])(x)

    # Classifiers that are Python objects go through a tree node by node, all rows of a node at once.

    def _left_prob(self, node: int, x: Array, rows: NDArray[np.int64]) -> Array:
        """left_prob of the points (row, column) in `rows`; the classifier sees each row once."""
        distinct, back = np.unique(rows, return_inverse=True)
        return np.asarray(self.theta[node, 0].left_prob(x[distinct]))[back]

    def _walk(self, tree: int, shape: tuple[int, ...]) -> Iterator[tuple[int, dict[int, Any], Any]]:
        """Every node of a tree with the points that reach it; parents come first and set their children's points."""
        points: dict[int, Any] = {}
        first, last = self.roots[tree], self.roots[tree + 1]
        if first < last:
            points[first] = tuple(np.indices(shape[:2]).reshape(2, -1))
        for i in range(first, last):
            if i in points and len(points[i][0]):
                yield i, points, points[i]

    def _forward_by_level(self, tree: int, u: Array, x: Array, log_det: Array) -> None:
        steps = []
        for i, points, (rows, columns) in self._walk(tree, u.shape):
            node = self.nodes[i]
            left = u[rows, columns, node["axis"]] <= node["cut"]
            p = self._left_prob(i, x, rows)
            prob, share = np.where(left, p, 1 - p), np.where(left, node["left_share"], 1 - node["left_share"])
            slope = 1 + node["rate"] * (prob / share - 1)
            log_det[rows, columns] += np.log(slope)
            steps.append((rows, columns, node["axis"], np.where(left, node["lower"], node["upper"]), slope))
            points[node["left"]] = rows[left], columns[left]
            points[node["right"]] = rows[~left], columns[~left]
        for rows, columns, axis, fixed, slope in reversed(steps):
            moved = fixed + slope * (u[rows, columns, axis] - fixed)
            u[rows, columns, axis] = np.clip(moved, 1e-300, 1.0)

    def _inverse_by_level(self, tree: int, u: Array, x: Array) -> None:
        for i, points, (rows, columns) in self._walk(tree, u.shape):
            node = self.nodes[i]
            axis, lower, upper, cut = (node[name] for name in ("axis", "lower", "upper", "cut"))
            mass = node["rate"] * self._left_prob(i, x, rows) + (1 - node["rate"]) * node["left_share"]
            z = (u[rows, columns, axis] - lower) / (upper - lower)
            left = z <= mass
            u[rows, columns, axis] = np.where(
                left,
                np.clip(lower + (cut - lower) * (z / mass), 1e-300, cut),
                np.clip(upper - (upper - cut) * ((1 - z) / (1 - mass)), np.nextafter(cut, 1.0), upper),
            )
            points[node["left"]] = rows[left], columns[left]
            points[node["right"]] = rows[~left], columns[~left]


__all__ = ["NODE", "TreeSequence"]
