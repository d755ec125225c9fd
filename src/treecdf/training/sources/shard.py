"""Rows in pieces: shards that one kernel call works on, in blocks that stay together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array, Ints
from treecdf._kernels.rows import arrange, descend, label
from treecdf.bases.protocol import Base
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.blocks import one_in
from treecdf.data.scaling import Standardizer

# Work arrays of rows in files are kept between passes as long as those of all shards take no more bytes than this.
_MOST_BYTES = 2**29

Kernel = Callable[..., None]  # compiled; adds to the arrays that are its last arguments
Shapes = Sequence[tuple[int, ...]]  # of the arrays that a kernel adds to
View = Literal["level", "node", "trees"]  # which arrays of a shard a kernel gets, see `Shard._arrays`
GeneratorState = dict[str, Any]  # of a PCG64, as NumPy gives it
T = TypeVar("T")
D = TypeVar("D", bound=np.generic)


class ForwardMap(Protocol):
    """A map that `Shard.apply` moves the rows with, such as a grown tree."""

    def forward_and_log_det(self, u: Array, x: Array) -> tuple[Array, Array]:
        """Return the images of u (n, m, d) and the log-determinants (n, m)."""
        ...


class ArrayStore(Protocol):
    """A store of the arrays of rows outside of memory."""

    def put(self, name: str, rows: slice, values: NDArray[D]) -> NDArray[D]:
        """Write the values of some rows; return an array that reads them from the store."""
        ...

    def drop_from_memory(self, rows: slice) -> None:
        """Free the memory that caches some of the rows; the store keeps their values."""
        ...


class LocatedBlock(NamedTuple):
    """Counts and sums that `Block.locate` returns for a block."""

    n_inside: int  # rows inside the box
    weight: float  # of all rows
    weight_inside: float  # of the rows inside the box
    log_det: float  # weighted sum over all rows of the base's log-determinants


class Shard:
    """A slice of the rows, and their nodes in the tree that is being grown.

    x (m, q), u (m, d), weight (m,); first: the number of its first row. `order` lists the rows that are still in a
    growing node, node by node; those of node k are order[start[k]:start[k + 1]].
    """

    def __init__(self, x: Array, u: Array, weight: Array, first: int, store: ArrayStore | None = None) -> None:
        self.x, self.u, self.weight = x, u, weight
        self.log_density = np.zeros(len(x))
        self._first, self._store = first, store
        self._kept, self._kept_at, self._at = (self.u, self.log_density), 0, 0
        self._order: Ints = np.empty(0, np.int64)
        self._start: Ints = np.zeros(1, np.int64)
        self._basis: Basis | None = None
        self._splits: dict[int, tuple[Ints, Array]] = {}  # by the number of the labels
        self._sorted: tuple[Array, Array] | None = None  # features and weights in node order
        self._labels: dict[int, Array] = {}  # in node order
        self._is_sorted, self._labelled = False, set[int]()
        self._trees: tuple[NDArray[np.generic], ...] = ()

    def begin_tree(self, subsample: float, state: GeneratorState | None) -> float:
        """Put all rows, or a random share of them, into the root; return their weight.

        `state` is that of a PCG64 which has a number for every row of all shards.
        """
        chosen = np.arange(len(self.x))
        if state is not None:
            stream = np.random.PCG64()
            setattr(stream, "state", state)  # noqa: B010  NumPy types its state more narrowly than it can be written
            stream.advance(self._first)
            chosen = chosen[np.random.Generator(stream).random(len(chosen)) < subsample]
        self._sort(chosen, np.array([0, len(chosen)]))
        return float(self.weight[chosen].sum())

    def arrange(self, axis: Ints, cut: Array, basis: Basis, labels: int = 0) -> None:
        """Label the rows left or right of their nodes' cuts, with the features of a basis; done when first needed.

        Labels of other numbers stay as they are.
        """
        if self._basis is not None and not basis.has_features_of(self._basis):
            self._drop_sorted()
        self._basis, self._splits[labels] = basis, (axis, cut)
        self._labelled.discard(labels)

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Sort the rows into the nodes of the next level; child (k, 2) says which, -1 for a leaf."""
        order, start = np.empty_like(self._order), np.empty(n_next + 1, np.int64)
        descend(self.u, self._order, self._start, axis, cut, child, order, start)
        self._sort(order, start)

    def _sort(self, order: Ints, start: Ints) -> None:
        self._order, self._start = self._put("order", order), start
        self._is_sorted = False
        self._labelled.clear()

    def encode(self, bins: Bins) -> None:
        """Put the covariates into bins, for passes of x-trees."""
        state, place = np.zeros((3, len(self.x), 1)), np.zeros(len(self.x), np.int64)
        if self._exceeds_budget(32):
            state, place = self._put("state", state), self._put("place", place)
        self._trees = self._put("codes", bins.codes(self.x)), state, place

    def sums(
        self, kernel: Kernel, view: View, args: tuple[object, ...], shapes: Shapes, labels: int = 0
    ) -> list[Array]:
        """The sums over the rows that a kernel computes, one array for each of `shapes`."""
        outputs = [np.zeros(shape) for shape in shapes]
        self.add_to(outputs, kernel, view, args, labels)
        return outputs

    def add_to(
        self, sums: Sequence[Array], kernel: Kernel, view: View, args: tuple[object, ...], labels: int = 0
    ) -> None:
        """Run a kernel that adds what the rows contribute to the sums."""
        kernel(*self._arrays(view, labels), *args, *sums)

    def column(self, j: int, step: int) -> Array:
        """Values (m,) of covariate j of about one row in `step`; the weights (m,) of these rows if j is -1."""
        chosen = one_in(step, self._first, len(self.x))
        return self.weight[chosen] if j == -1 else self.x[chosen, j]

    def node_rows(self, node: int) -> tuple[Array, Array, Array]:
        """Features (m, p), labels (m,) and weights (m,) of the arranged rows of a node."""
        sorted_x, weight, left = self._in_order(0)
        here = slice(self._start[node], self._start[node + 1])
        return sorted_x[:, here].T, left[here], weight[here]

    def apply(self, forward: ForwardMap) -> tuple[float, float]:
        """Move the rows forward; return the weighted sum of the log-determinants and the largest log density."""
        moved, log_det = forward.forward_and_log_det(self.u[:, None, :], self.x)
        self._at = 1 - self._kept_at  # the kept ones are not overwritten
        self.u = self._put(f"u{self._at}", moved[:, 0, :])
        self.log_density = self._put(f"log_density{self._at}", self.log_density + log_det[:, 0])
        return float(self.weight @ log_det[:, 0]), float(self.log_density.max(initial=-np.inf))

    def keep(self) -> None:
        """Remember where the rows are now, in place of what was kept before."""
        self._kept, self._kept_at = (self.u, self.log_density), self._at

    def restore(self) -> None:
        """Put the rows back where `keep` saw them last."""
        (self.u, self.log_density), self._at = self._kept, self._kept_at

    def drop_work_arrays(self) -> None:
        """Free the features in node order if those of all shards need too much memory; they are computed again."""
        if self._sorted is not None and self._exceeds_budget(8 * (len(self._sorted[0]) + 1 + len(self._labels))):
            self._drop_sorted()

    def _drop_sorted(self) -> None:
        """Free the features, weights and labels in node order."""
        self._sorted, self._is_sorted = None, False
        self._labels.clear()
        self._labelled.clear()

    def _exceeds_budget(self, row_bytes: int) -> bool:
        """Whether row_bytes for each row of this shard and of all before it are more than may stay in memory."""
        return row_bytes * (self._first + len(self.x)) > _MOST_BYTES

    def _arrays(self, view: View, labels: int) -> tuple[NDArray[np.generic], ...]:
        """The leading arguments of a kernel.

        "level": all rows and which are in which node; "node": features, weights and labels of the arranged rows, in
        node order; "trees": covariates in bins, and what x-trees keep of every row.
        """
        if view == "level":
            return self.x, self.u, self.weight, self._order, self._start
        if view == "trees":
            codes, state, place = self._trees
            return codes, self.u, self.weight, self._order, self._start, state, place
        return *self._in_order(labels), self._start

    def _in_order(self, labels: int) -> tuple[Array, Array, Array]:
        """Features (p, m), weights (m,) and some of the labels (m,) of the rows in node order."""
        assert self._basis is not None
        if self._sorted is None:
            self._sorted = np.empty((len(self._basis), len(self.x))), np.empty(len(self.x))
        sorted_x, weight = self._sorted
        if not self._is_sorted:
            arrange(self.x, self._order, self._start, *self._basis.arrays, sorted_x)
            self._is_sorted = True
        if labels not in self._labels:
            self._labels[labels] = np.empty(len(self.x))
        left = self._labels[labels]
        if labels not in self._labelled:
            label(self.u, self.weight, self._order, self._start, *self._splits[labels], weight, left)
            self._labelled.add(labels)
        return sorted_x, weight, left

    def _put(self, name: str, values: NDArray[D]) -> NDArray[D]:
        """The values, as they are or read from the store if there is one."""
        rows = slice(self._first, self._first + len(self.x))
        return values if self._store is None else self._store.put(name, rows, values)


class Block:
    """Consecutive rows that stay together: a table x (m, q), y (m, d), weight (m,) at first, then shards.

    first: the number of its first row; rows: the numbers of all.
    """

    def __init__(self, x: Array, y: Array, weight: Array, first: int, store: ArrayStore | None = None) -> None:
        self.x, self.y, self.weight = x, y, weight
        self.rows, self._store = range(first, first + len(x)), store
        self.shards: list[Shard] = []

    def __len__(self) -> int:
        return len(self.x)

    @property
    def is_in_memory(self) -> bool:
        """Whether all arrays are in memory, so that threads may work on any shards at the same time."""
        return self._store is None

    def cut(self, shard_rows: int) -> Block:
        """Make shards of a table whose y are in the unit cube already; return the block."""
        first, slices = self.rows.start, [slice(i, i + shard_rows) for i in range(0, len(self.x), shard_rows)]
        self.shards = [Shard(self.x[s], self.y[s], self.weight[s], first + s.start, self._store) for s in slices]
        return self

    def every_nth(self, step: int) -> tuple[Array, Array]:
        """Copies of the outcomes (m, d) and weights (m,) of the rows whose number is a multiple of `step`."""
        chosen = slice(-self.rows.start % step, None, step)
        return self.y[chosen].copy(), self.weight[chosen].copy()

    def locate(self, standardize: Standardizer, base: Base, shard_rows: int) -> LocatedBlock:
        """Standardise x, bring y into the box and cut the rows inside into shards; return counts and sums."""
        z = standardize(self.x)
        v, log_det = np.empty((len(z), 1, base.n_outcomes)), np.empty((len(z), 1))
        for first in range(0, len(z), shard_rows):  # the parameters of a base may be many
            own = slice(first, first + shard_rows)
            v[own], log_det[own] = base.to_box(self.y[own, None, :], base.parameters(z[own]))
        inside, u = base.inside(v)[:, 0], np.clip(v[:, 0], 1e-300, 1.0)
        total, log_density = float(self.weight.sum()), float(self.weight @ log_det[:, 0])
        self.x, self.y, self.weight = (
            self._put(name, part[inside]) for name, part in (("x", z), ("u0", u), ("weight", self.weight))
        )
        self.cut(shard_rows)
        return LocatedBlock(len(self.x), total, float(self.weight.sum()), log_density)

    def _put(self, name: str, values: Array) -> Array:
        """The values, as they are or read from the store if there is one."""
        rows = slice(self.rows.start, self.rows.start + len(values))
        return values if self._store is None else self._store.put(name, rows, values)

    def map_shards(self, task: Callable[[Shard], T]) -> list[T]:
        """What the task returns for every shard, one after the other; memory of rows in a store is freed again."""
        results = []
        for shard in self.shards:
            results.append(task(shard))
            if not self.is_in_memory:
                shard.drop_work_arrays()
        self.drop_from_memory()
        return results

    def drop_from_memory(self) -> None:
        """Free the memory of rows that a store keeps; rows that are only in memory stay."""
        if self._store is not None:
            self._store.drop_from_memory(slice(self.rows.start, self.rows.stop))
