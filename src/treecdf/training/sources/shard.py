"""Rows in pieces: shards that one kernel call works on, in blocks that stay together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf._kernels.rows import arrange, descend, label
from treecdf.bases.protocol import Base
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.blocks import one_in
from treecdf.data.scaling import Standardizer

_MOST_BYTES = 2**29  # of work space for rows that are not in memory themselves
Call = tuple[str, tuple[Any, ...]]  # a method of every shard, and its arguments


class Transform(Protocol):
    """What `Shard.apply` moves the rows with."""

    def forward_and_log_det(self, u: Array, x: Array) -> tuple[Array, Array]:
        """Return the images of u (n, m, d) and the log-determinants (n, m)."""
        ...


class Space(Protocol):
    """Where arrays are if not in memory."""

    def put(self, name: str, rows: slice, values: NDArray[Any]) -> NDArray[Any]:
        """Keep the values of some rows; return them as they are kept."""
        ...

    def release(self, rows: slice) -> None:
        """Nobody looks at some of the rows now."""
        ...


class Shard:
    """A slice of the rows and its place in the tree that is being grown.

    x (m, q), u (m, d), weight (m,); first: the number of its first row. `order` lists the rows that are still in a
    growing node, node by node; those of node k are order[start[k]:start[k + 1]].
    """

    def __init__(self, x: Array, u: Array, weight: Array, first: int, space: Space | None = None) -> None:
        self.x, self.u, self.weight = x, u, weight
        self.log_density = np.zeros(len(x))
        self._first, self._space = first, space
        self._kept, self._kept_at, self._at = (self.u, self.log_density), 0, 0
        self._order: Ints = np.empty(0, np.int64)
        self._start: Ints = np.zeros(1, np.int64)
        self._split: tuple[Ints, Array, Basis] | None = None
        self._sorted: tuple[Array, Array, Array] | None = None
        self._is_sorted = self._is_labelled = False
        self._trees: tuple[NDArray[Any], ...] = ()

    def run(self, calls: Sequence[Call]) -> Any:
        """Call one method after the other; return what the last one does."""
        result = None
        for name, args in calls:
            result = getattr(self, name)(*args)
        return result

    def begin_tree(self, subsample: float, state: dict[str, Any] | None) -> float:
        """Put all rows, or a random share of them, into the root; return their weight.

        `state` is that of a PCG64 which has a number for every row of all shards.
        """
        chosen = np.arange(len(self.x))
        if state is not None:
            stream: Any = np.random.PCG64()
            stream.state = state
            stream.advance(self._first)
            chosen = chosen[np.random.Generator(stream).random(len(chosen)) < subsample]
        self._sort(chosen, np.array([0, len(chosen)]))
        return float(self.weight[chosen].sum())

    def arrange(self, axis: Ints, cut: Array, basis: Basis) -> None:
        """Label the rows left or right of their nodes' cuts, with the features of a basis; done when first needed."""
        if self._split is not None and not basis.has_features_of(self._split[2]):
            self._sorted, self._is_sorted = None, False
        self._split, self._is_labelled = (axis, cut, basis), False

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Sort the rows into the nodes of the next level."""
        order, start = np.empty_like(self._order), np.empty(n_next + 1, np.int64)
        descend(self.u, self._order, self._start, axis, cut, child, order, start)
        self._sort(order, start)

    def _sort(self, order: Ints, start: Ints) -> None:
        self._order, self._start = self._put("order", order), start
        self._is_sorted = self._is_labelled = False

    def encode(self, bins: Bins) -> None:
        """Put the covariates into bins, for passes of x-trees."""
        state, place = np.zeros((3, len(self.x), 1)), np.zeros(len(self.x), np.int64)
        if self._is_late(32):
            state, place = self._put("state", state), self._put("place", place)
        self._trees = self._put("codes", bins.codes(self.x)), state, place

    def sums(
        self, kernel: Callable[..., None], view: str, args: tuple[Any, ...], shapes: Sequence[tuple[int, ...]]
    ) -> list[Array]:
        """What a pass adds up to."""
        outputs = [np.zeros(shape) for shape in shapes]
        self.add(kernel, view, args, outputs)
        return outputs

    def add(self, kernel: Callable[..., None], view: str, args: tuple[Any, ...], outputs: Sequence[Array]) -> None:
        """Run a pass that adds to its outputs."""
        kernel(*self._arrays(view), *args, *outputs)

    def column(self, j: int, step: int) -> tuple[Array, Array]:
        """Values of a covariate and weights, of about one row in `step`."""
        chosen = one_in(step, self._first, len(self.x))
        return self.x[chosen, j], self.weight[chosen]

    def node_rows(self, node: int) -> tuple[Array, Array, Array]:
        """Features, labels and weights of the arranged rows of a node."""
        sorted_x, weight, left, start = self._arrays("node")
        here = slice(start[node], start[node + 1])
        return sorted_x[:, here].T, left[here], weight[here]

    def apply(self, transform: Transform) -> tuple[float, float]:
        """Move the rows forward; weighted sum of the log-determinants and largest log density."""
        moved, log_det = transform.forward_and_log_det(self.u[:, None, :], self.x)
        self._at = 1 - self._kept_at  # the kept ones are not overwritten
        self.u = self._put(f"u{self._at}", moved[:, 0, :])
        self.log_density = self._put(f"log_density{self._at}", self.log_density + log_det[:, 0])
        return float(self.weight @ log_det[:, 0]), float(self.log_density.max(initial=-np.inf))

    def keep(self) -> None:
        """Remember where the rows are now."""
        self._kept, self._kept_at = (self.u, self.log_density), self._at

    def restore(self) -> None:
        """Put the rows back where `keep` saw them last."""
        (self.u, self.log_density), self._at = self._kept, self._kept_at

    def densities(self) -> Array:
        """Log density (m,) of the rows in the cube, by the trees so far."""
        return self.log_density

    def rest(self) -> None:
        """Let go of what can be made again."""
        if self._sorted is not None and self._is_late(8 * (len(self._sorted[0]) + 2)):
            self._sorted, self._is_sorted, self._is_labelled = None, False, False

    def _is_late(self, row_bytes: int) -> bool:
        """Whether the shards up to here would take too much memory, so that this one has to do without."""
        return row_bytes * (self._first + len(self.x)) > _MOST_BYTES

    def _arrays(self, view: str) -> tuple[NDArray[Any], ...]:
        """The leading arguments of a pass: of the level's rows, of rows in node order with labels, of x-trees."""
        if view == "level":
            return self.x, self.u, self.weight, self._order, self._start
        if view == "trees":
            codes, state, place = self._trees
            return codes, self.u, self.weight, self._order, self._start, state, place
        return *self._in_order(), self._start

    def _in_order(self) -> tuple[Array, Array, Array]:
        """Features (p, m), weights (m,) and labels (m,) of the rows in node order."""
        assert self._split is not None
        axis, cut, basis = self._split
        if self._sorted is None:
            self._sorted = np.empty((len(basis), len(self.x))), np.empty(len(self.x)), np.empty(len(self.x))
        sorted_x, weight, left = self._sorted
        if not self._is_sorted:
            arrange(self.x, self._order, self._start, *basis.arrays, sorted_x)
        if not self._is_labelled:
            label(self.u, self.weight, self._order, self._start, axis, cut, weight, left)
        self._is_sorted = self._is_labelled = True
        return self._sorted

    def _put(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        rows = slice(self._first, self._first + len(self.x))
        return values if self._space is None else self._space.put(name, rows, values)


class Block:
    """Consecutive rows that stay together: a table x (m, q), y (m, d), weight (m,) at first, then shards.

    first: the number of its first row; rows: the numbers of all.
    """

    def __init__(self, x: Array, y: Array, weight: Array, first: int, space: Space | None = None) -> None:
        self.x, self.y, self.weight = x, y, weight
        self.rows, self._space = range(first, first + len(x)), space
        self.shards: list[Shard] = []

    def __len__(self) -> int:
        return len(self.x)

    @property
    def is_in_memory(self) -> bool:
        """Whether threads may work on any of its shards at any time."""
        return self._space is None

    def cut(self, shard_rows: int) -> Block:
        """Make shards of a table whose y are in the cube already."""
        first, slices = self.rows.start, [slice(i, i + shard_rows) for i in range(0, len(self.x), shard_rows)]
        self.shards = [Shard(self.x[s], self.y[s], self.weight[s], first + s.start, self._space) for s in slices]
        return self

    def table(self, task: Callable[..., Any], *args: Any) -> Any:
        """task(x, y, weight, *args)"""
        return task(self.x, self.y, self.weight, *args)

    def every(self, step: int) -> tuple[Array, Array]:
        """Outcomes and weights of every step-th row."""
        chosen = slice(-self.rows.start % step, None, step)
        return self.y[chosen].copy(), self.weight[chosen].copy()

    def locate(self, standardize: Standardizer, base: Base, shard_rows: int) -> tuple[int, float, float, float]:
        """Standardise x, bring y into the box and cut what is inside into shards.

        Return the number of rows inside, the weight of all rows and of those inside, and the weighted sum of the
        log-determinants.
        """
        z = standardize(self.x)
        v, log_det = base.to_box(self.y[:, None, :], base.parameters(z))
        inside, u = base.inside(v)[:, 0], np.clip(v[:, 0], 1e-300, 1.0)
        total, log_density = float(self.weight.sum()), float(self.weight @ log_det[:, 0])
        self.x, self.y, self.weight = (
            self._put(name, part[inside]) for name, part in (("x", z), ("u0", u), ("weight", self.weight))
        )
        self.cut(shard_rows)
        return len(self.x), total, float(self.weight.sum()), log_density

    def _put(self, name: str, values: Array) -> Array:
        rows = slice(self.rows.start, self.rows.start + len(values))
        return values if self._space is None else self._space.put(name, rows, values)

    def visit(self, task: Callable[[Shard], Any]) -> list[Any]:
        """Do something with every shard, one after the other."""
        results = []
        for shard in self.shards:
            results.append(task(shard))
            if not self.is_in_memory:
                shard.rest()
        self.release()
        return results

    def release(self) -> None:
        """Nobody looks at the rows now."""
        if self._space is not None:
            self._space.release(slice(self.rows.start, self.rows.stop))
