"""Mixtures of tree flows of one outcome as one function: flows that share a base go through their trees together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Bools, Ints
from treecdf._kernels.curves import fill_lines, fill_slopes, mix_ascending, mix_points, unmix_points
from treecdf._kernels.levels import BLOCK, solve_levels
from treecdf.flows.flow import ABOVE_ZERO, BELOW_ONE, TreeFlow
from treecdf.flows.tree import TreeSequence

_MOST_KNOTS = 128  # outcomes at which a mixture is looked at first
_ROWS_OF_MASSES = 64  # rows whose masses are worked out together: they stay in the cache
MANY = 8  # points at a row, from where on it pays to sort them, and to know all leaves


@dataclass(frozen=True)
class Leaves:
    """Trees of one outcome as what `fill_lines` and the kernels after it read; see there."""

    left: Ints  # (nodes,)
    right: Ints
    roots: Ints  # (trees + 1,)
    first: Ints  # (trees + 1,)
    low: Array  # (leaves,)
    high: Array

    @staticmethod
    def of(stages: Sequence[TreeSequence]) -> Leaves:
        """The trees of all stages, one after the other."""
        left: list[int] = []
        right: list[int] = []
        roots, first, ends = [0], [0], [np.zeros((0, 2))]
        for stage in stages:
            begin = len(left)
            for root, end in pairwise(stage.roots.tolist()):
                children, leaves = _leaves_from_left(stage.nodes[root:end], root, begin + root, first[-1])
                left += children[0]
                right += children[1]
                roots.append(begin + end)
                first.append(first[-1] + len(leaves))
                ends.append(leaves)
        low, high = np.concatenate(ends).T
        left_, right_, roots_, first_ = (np.array(part, np.int64) for part in (left, right, roots, first))
        return Leaves(left_, right_, roots_, first_, np.ascontiguousarray(low), np.ascontiguousarray(high))


def _leaves_from_left(
    nodes: NDArray[Any], root: int, first_node: int, first_leaf: int
) -> tuple[tuple[list[int], list[int]], Array]:
    """Left and right children of the nodes of a tree, and the ends (leaves, 2) of its leaves, from left to right.

    Its nodes and leaves are counted from first_node and first_leaf on; in the table of its stage it begins at `root`.
    """
    children: dict[str, list[int]] = {side: [0] * len(nodes) for side in ("left", "right")}
    ends: list[tuple[float, float]] = []
    waiting = [("left", -1, root if len(nodes) else -1, 0.0, 1.0)]  # parts of the tree that are still to come
    while waiting:
        side, parent, node, low, high = waiting.pop()
        if parent >= 0:
            children[side][parent] = node - root + first_node if node >= 0 else -1 - first_leaf - len(ends)
        if node < 0:
            ends.append((low, high))
        else:
            own = nodes[node - root]
            waiting.append(("right", node - root, int(own["right"]), float(own["cut"]), high))
            waiting.append(("left", node - root, int(own["left"]), low, float(own["cut"])))
    return (children["left"], children["right"]), np.array(ends)


@dataclass(frozen=True)
class Bundle:
    """Tree flows that share a base, their trees in one table."""

    flow: TreeFlow  # the first of them: all have its base and its scale of the covariates
    members: Ints  # (k,): their numbers in the mixture
    stages: tuple[TreeSequence, ...]
    leaves: Leaves
    ends: Ints  # (k + 1,): flow j has the trees ends[j]:ends[j + 1]

    @staticmethod
    def of(flows: Sequence[TreeFlow], members: Sequence[int]) -> Bundle:
        """The bundle of flows that have these numbers in their mixture."""
        stages = tuple(stage for flow in flows for stage in flow.stages)
        counts = [sum(len(stage) for stage in flow.stages) for flow in flows]
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Bundle(flows[0], np.array(members), stages, Leaves.of(stages), ends)

    @property
    def has_trees(self) -> bool:
        """Whether there are trees that move points."""
        return len(self.leaves.left) > 0

    def lines(self, z: Array) -> Array:
        """What trees are at covariates z (n, q) of theirs: a line in each leaf, (n, leaves, 2); see `fill_lines`."""
        lines = np.empty((len(z), len(self.leaves.low), 2))
        for begin in range(0, len(z), _ROWS_OF_MASSES):
            rows = slice(begin, begin + _ROWS_OF_MASSES)
            fill_lines(*self._trees(z[rows]), lines[rows])
        return lines

    def _trees(self, z: Array) -> tuple[Array | Ints, ...]:
        """All trees at few covariates z (n, q), as `fill_lines` and `fill_slopes` read them."""
        leaves, first = self.leaves, 0
        masses = np.empty((len(leaves.left), len(z)))
        for stage in self.stages:
            stage.fill_masses(z, first, masses)
            first += len(stage.nodes)
        return leaves.left, leaves.right, leaves.roots, leaves.first, leaves.low, leaves.high, masses

    def quantiles(self, levels: Array, shares: Array, z: Array, parameters: Array) -> Array:
        """Outcomes (n, m) where the mixture of the flows, of shares (n, flows), reaches levels (n, m).

        At rows with covariates z of the trees and parameters of the base, which all flows share: levels go back
        through the trees alone.
        """
        v = self.flow.base.from_unit(levels[..., None])
        if self.has_trees:
            moved, leaves = np.full((len(v), levels.shape[1]), 0.5), self.leaves
            slopes = np.ones((len(leaves.low), BLOCK))
            for begin in range(0, len(v), BLOCK):
                rows = slice(begin, begin + BLOCK)
                fill_slopes(*self._trees(z[rows]), slopes)
                own, few = np.zeros((levels.shape[1], BLOCK)), np.zeros((len(self.members), BLOCK))
                own[:, : len(v[rows])], few[:, : len(v[rows])] = v[rows, :, 0].T, shares[rows].T
                solve_levels(leaves.first, leaves.low, leaves.high, self.ends, slopes, few, len(v[rows]), own)
                moved[rows] = own[:, : len(v[rows])].T
            v = np.where(self.flow.base.inside(v)[..., None], moved[..., None], v)
        return self.flow.base.from_box(v, parameters)[..., 0]

    def draw(self, u: Array, numbers: Ints, z: Array, parameters: Array) -> Array:
        """Draws (n, m) made of uniforms u (n, m), each by the flow of its number in the bundle, numbers (n, m).

        At rows with covariates z of the trees and parameters of the base; what `TreeFlow.draw` gives, for many draws
        at a row faster.
        """
        v = self.flow.base.from_unit(np.clip(u, ABOVE_ZERO, BELOW_ONE)[..., None])
        if self.has_trees:
            leaves, moved = self.leaves, np.ascontiguousarray(v[..., 0])
            unmix_points(leaves.first, leaves.low, self.ends, self.lines(z), numbers, moved)
            v = np.where(self.flow.base.inside(v)[..., None], np.minimum(moved, BELOW_ONE)[..., None], v)
        return self.flow.base.from_box(v, parameters)[..., 0]


def bundles_of(members: Sequence[TreeFlow]) -> tuple[Bundle, ...]:
    """The members of a mixture of one outcome, in groups that share a base."""
    groups: dict[int, list[int]] = {}
    for j, flow in enumerate(members):
        groups.setdefault(id(flow.base), []).append(j)
    return tuple(Bundle.of([members[j] for j in own], own) for own in groups.values())


@dataclass(frozen=True)
class Part:
    """A bundle at n rows: what its base and its classifiers said there."""

    bundle: Bundle
    parameters: Array  # (n, P), of the base
    lines: Array  # (N, leaves, 2), of n rows or more
    rows: Ints  # (n,): its rows there
    weight: Array  # (n,): of all its flows together
    shares: Array  # (n, k): of each of them, of sum one

    @staticmethod
    def of(bundle: Bundle, z: Array, parameters: Array, weights: Array) -> Part:
        """The bundle at rows where the members of the mixture have weights (n, members)."""
        own = weights[:, bundle.members]
        weight = own.sum(axis=1)
        shares = np.where(weight[:, None] > 0, own / np.where(weight > 0, weight, 1.0)[:, None], 1 / own.shape[1])
        return Part(bundle, parameters, bundle.lines(z), np.arange(len(z)), weight, np.ascontiguousarray(shares))

    def take(self, rows: Ints | Bools | slice) -> Part:
        """The same at some of the rows."""
        return replace(
            self,
            parameters=self.parameters[rows],
            rows=self.rows[rows],
            weight=self.weight[rows],
            shares=self.shares[rows],
        )

    def add(self, y: Array, is_ascending: bool, cdf: Array, density: Array) -> None:
        """Add its weighted CDF and density at outcomes y (n, m) to those (n, m) of the mixture."""
        bundle, base = self.bundle, self.bundle.flow.base
        v, steep = base.to_box_and_density(y, self.parameters)
        if bundle.has_trees:
            mixed, slopes, leaves = np.empty(v.shape), np.empty(v.shape), bundle.leaves
            at = (bundle.ends, self.lines, self.rows, self.shares, v, mixed, slopes)
            if is_ascending:
                mix_ascending(leaves.first, leaves.low, *at)
            else:
                mix_points(leaves.first, leaves.low, leaves.high, *at)
            v, steep = mixed, steep * slopes
        cdf += self.weight[:, None] * base.to_unit(v[..., None])[..., 0]
        density += self.weight[:, None] * np.where(np.isinf(y), 0.0, steep)


@dataclass(frozen=True)
class MixtureAtRows:
    """A mixture of tree flows of one outcome at n rows of covariates."""

    parts: tuple[Part, ...]

    def take(self, rows: Ints | Bools | slice) -> MixtureAtRows:
        """The same at some of the rows."""
        return MixtureAtRows(tuple(part.take(rows) for part in self.parts))

    def cdf_and_density(self, y: Array, is_ascending: bool = False) -> tuple[Array, Array]:
        """CDF and density (n, m) at outcomes y (n, m); many that ascend at each row go faster."""
        cdf, density = np.zeros(y.shape), np.zeros(y.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in self.parts:
                part.add(y, is_ascending, cdf, density)
        return np.minimum(cdf, 1.0), density

    def ask(self, y: Array, rows: Bools | slice) -> tuple[Array, Array]:
        """CDF and density at outcomes that ascend at each of some rows; what `Curve.trace` asks."""
        return (self if isinstance(rows, slice) else self.take(rows)).cdf_and_density(y, is_ascending=True)

    def ask_any(self, y: Array, rows: Ints) -> tuple[Array, Array]:
        """CDF and density at outcomes y (k, m) of some rows, in any order."""
        is_all = len(rows) == len(self.parts[0].rows)  # rows are never asked for twice
        own = self if is_all else self.take(rows)
        if y.shape[1] < MANY or not any(part.bundle.has_trees for part in self.parts):
            return own.cdf_and_density(y)
        order = np.argsort(y, axis=1)
        found = np.empty((2, *y.shape))
        for values, ascending in zip(found, own.cdf_and_density(np.take_along_axis(y, order, 1), True), strict=True):
            np.put_along_axis(values, order, ascending, 1)
        return found[0], found[1]

    def knots(self, most: int = _MOST_KNOTS) -> Array:
        """Outcomes (n, k) that ascend and outline the distribution at each row, the far tails included.

        They are those of the bases; if these are more than `most`, evenly chosen ones.
        """
        found: dict[object, Array] = {}
        for part in self.parts:
            base = part.bundle.flow.base
            key = id(base) if part.parameters.shape[1] else type(base)  # boxes of all folds are about the same
            if key not in found:
                found[key] = base.knots(part.parameters)
        points = np.sort(np.hstack(list(found.values())), axis=1)
        if points.shape[1] <= most:
            return points
        return np.ascontiguousarray(points[:, np.linspace(0, points.shape[1] - 1, most).astype(np.int64)])
