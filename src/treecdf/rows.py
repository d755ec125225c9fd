"""Where the rows are: the grower asks this source for sums over all rows and never indexes a row itself.

Rows are cut into shards of fixed size; a pass runs a kernel on every shard, in threads, and adds up what they return in
the order of the shards. So the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from treecdf._kernels.rows import arrange, descend
from treecdf.basis import Basis
from treecdf.bins import Bins

SHARD_ROWS = 16_384

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Transform(Protocol):
    """What `Rows.apply` moves the rows with."""

    def forward_and_log_det(self, u: Array, x: Array) -> tuple[Array, Array]:
        """Return the images of u (n, m, d) and the log-determinants (n, m)."""
        ...


class Shard:
    """A slice of the rows and its place in the tree that is being grown.

    x (m, q), u (m, d), weight (m,). `order` lists the rows that are still in a growing node, node by node;
    those of node k are order[start[k]:start[k + 1]].
    """

    def __init__(self, x: Array, u: Array, weight: Array) -> None:
        self.x, self.u, self.weight = x, u, weight
        self.log_density = np.zeros(len(x))
        self.kept = (self.u, self.log_density)
        self.order: Ints = np.empty(0, np.int64)
        self.start: Ints = np.zeros(1, np.int64)
        self.sorted_x: Array = np.empty((0, len(x)))
        self.sorted_weight, self.left = np.empty(len(x)), np.empty(len(x))

    def begin_tree(self, chosen: Ints) -> None:
        """Put the chosen rows into the root."""
        self.order, self.start = chosen, np.array([0, len(chosen)])

    def arrange(self, axis: Ints, cut: Array, basis: Basis) -> None:
        """Copy the rows into node order, with the features of the basis and with their labels."""
        if len(self.sorted_x) != len(basis):
            self.sorted_x = np.empty((len(basis), len(self.x)))
        rows = (self.x, self.u, self.weight, self.order, self.start)
        arrange(*rows, axis, cut, *basis.arrays, self.sorted_x, self.sorted_weight, self.left)

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Sort the rows into the nodes of the next level."""
        order, start = np.empty_like(self.order), np.empty(n_next + 1, np.int64)
        descend(self.u, self.order, self.start, axis, cut, child, order, start)
        self.order, self.start = order, start

    def apply(self, transform: Transform) -> tuple[float, float]:
        """Move the rows forward; weighted sum of the log-determinants and largest log density."""
        moved, log_det = transform.forward_and_log_det(self.u[:, None, :], self.x)
        self.u = moved[:, 0, :]
        self.log_density = self.log_density + log_det[:, 0]
        return float(self.weight @ log_det[:, 0]), float(self.log_density.max())

    def arrays(self, view: Literal["level", "node"]) -> tuple[NDArray[Any], ...]:
        """The leading arguments of a pass: rows as they are, or arranged in node order with their labels."""
        if view == "level":
            return self.x, self.u, self.weight, self.order, self.start
        return self.sorted_x, self.sorted_weight, self.left, self.start


class Rows:
    """Rows in memory. x (n, q) standardised, u (n, d) in the unit cube, weight (n,)."""

    def __init__(self, x: Array, u: Array, weight: Array, pool: Executor | None = None) -> None:
        self.n_covariates, self.n_outcomes = x.shape[1], u.shape[1]
        self.weight = float(weight.sum())
        self._pool = pool
        self._bins: dict[int, Bins] = {}
        slices = [slice(i, i + SHARD_ROWS) for i in range(0, len(x), SHARD_ROWS)]
        self._shards = [Shard(x[s], u[s], weight[s]) for s in slices]

    def begin_tree(self, subsample: float, rng: np.random.Generator) -> float:
        """Put all rows, or a random share of them, into the root; return their weight."""
        weight = 0.0
        for shard in self._shards:
            rows = np.arange(len(shard.x))
            if subsample < 1.0:
                rows = rows[rng.random(len(rows)) < subsample]
            shard.begin_tree(rows)
            weight += shard.weight[rows].sum()
        return weight

    def arrange(self, axis: Ints, cut: Array, basis: Basis | None = None) -> None:
        """Label every row of the level left or right of its node's cut; give it the features of a basis.

        Without a basis the features are the covariates.
        """
        features = Basis.linear(self.n_covariates) if basis is None else basis
        self._each(lambda shard: shard.arrange(axis, cut, features))

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Send every row to its node of the next level; child (k, 2) says which, -1 for a leaf."""
        self._each(lambda shard: shard.descend(axis, cut, child, n_next))

    def sum(
        self,
        kernel: Callable[..., None],
        view: Literal["level", "node"],
        args: tuple[Any, ...],
        shapes: Iterable[tuple[int, ...]],
    ) -> list[Array]:
        """Run a pass on every shard and add up its outputs: one array for each of `shapes`."""
        shapes = list(shapes)

        def one(shard: Shard) -> list[Array]:
            outputs = [np.zeros(shape) for shape in shapes]
            kernel(*shard.arrays(view), *args, *outputs)
            return outputs

        totals, *rest = self._each(one)
        for outputs in rest:
            for total, output in zip(totals, outputs, strict=True):
                total += output
        return totals

    def bins(self, n_bins: int) -> Bins:
        """At most n_bins bins of each covariate, found once."""
        if n_bins not in self._bins:
            columns = [np.concatenate([shard.x[:, j] for shard in self._shards]) for j in range(self.n_covariates)]
            weight = np.concatenate([shard.weight for shard in self._shards])
            self._bins[n_bins] = Bins.fit(columns, weight, n_bins)
        return self._bins[n_bins]

    def level_rows(self) -> tuple[Ints, Ints, Array, Array]:
        """Numbers, nodes, labels and weights of all arranged rows of the level."""
        pieces, before = [], 0
        for shard in self._shards:
            count = shard.start[-1]
            node = np.repeat(np.arange(len(shard.start) - 1), np.diff(shard.start))
            pieces.append((before + shard.order[:count], node, shard.left[:count], shard.sorted_weight[:count]))
            before += len(shard.x)
        number, node, left, weight = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return number, node, left, weight

    def node_rows(self, node: int) -> tuple[Array, Array, Array]:
        """Covariates, labels and weights of the arranged rows of one node, for classifiers that want them all."""
        pieces = [
            (shard.sorted_x[:, here].T, shard.left[here], shard.sorted_weight[here])
            for shard in self._shards
            for here in [slice(shard.start[node], shard.start[node + 1])]
        ]
        x, left, weight = zip(*pieces, strict=True)
        return np.ascontiguousarray(np.concatenate(x)), np.concatenate(left), np.concatenate(weight)

    def apply(self, transform: Transform) -> tuple[float, float]:
        """Move every row forward; return the weighted mean of the log-determinants and the largest log density."""
        moved = self._each(lambda shard: shard.apply(transform))
        return sum(part for part, _ in moved) / (self.weight or 1.0), max((high for _, high in moved), default=0.0)

    def log_density(self) -> Array:
        """Log density (n,) of every row in the cube, by the trees so far."""
        return np.concatenate([shard.log_density for shard in self._shards]) if self._shards else np.empty(0)

    def keep(self) -> None:
        """Remember where the rows are now."""
        for shard in self._shards:
            shard.kept = (shard.u, shard.log_density)

    def restore(self) -> None:
        """Put the rows back where `keep` saw them last."""
        for shard in self._shards:
            shard.u, shard.log_density = shard.kept

    def _each(self, task: Callable[[Shard], Any]) -> list[Any]:
        if self._pool is None or len(self._shards) == 1:
            return [task(shard) for shard in self._shards]
        return list(self._pool.map(task, self._shards))
