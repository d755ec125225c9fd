"""Where the rows are: the grower asks this source for sums over all rows and never indexes a row itself.

Rows are cut into shards of fixed size; a pass runs a kernel on every shard and adds up what they return, in the order
of the shards of a block; the sum of all blocks is that of their first half and their second half, and so on down. So
the result depends neither on the number of threads nor on where the blocks are: in memory, in files, on other machines,
which add up the halves they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain, islice
from typing import Any, Literal, Protocol

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.bases.protocol import Base
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.blocks import block_slices, sum_over_blocks
from treecdf.data.scaling import Standardizer
from treecdf.training.sources.shard import Block, Call, Shard, Transform

SHARD_ROWS = 16_384
SAMPLE_ROWS = 2**20  # from so many rows on, quantiles are those of a sample
Sums = list[Array]
Part = tuple[range, Sums]  # of the blocks with these numbers


class Source(Protocol):
    """Blocks of rows, wherever they are. `calls` are made on every shard one after the other."""

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """What the last call returns, shard by shard."""
        ...

    def totals(self, calls: Sequence[Call]) -> list[Part]:
        """What the last call, `sums`, adds up to, in few parts, each shard's outputs being added to the total."""
        ...

    def carried(self, calls: Sequence[Call], shapes: Sequence[tuple[int, ...]]) -> list[Part]:
        """What the last call, `add`, adds up to, in few parts, each shard adding to the outputs of a block itself."""
        ...

    def blocks(self, name: str, *args: Any) -> list[Any]:
        """What a method of every block returns."""
        ...


class Local:
    """Blocks on this machine; threads work on shards of blocks in memory, and on whole blocks elsewhere."""

    def __init__(
        self, blocks: Sequence[Block], pool: Executor | None = None, first: int = 0, n_blocks: int | None = None
    ) -> None:
        """Some of `n_blocks` blocks, from number `first` on; by default they are all there are."""
        self._blocks, self._pool = blocks, pool
        self._first, self._n_blocks = first, len(blocks) if n_blocks is None else n_blocks

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """What the last call returns, shard by shard."""
        return list(self._visit(lambda shard: shard.run(calls)))

    def totals(self, calls: Sequence[Call]) -> list[Part]:
        """What the last call adds up to, in few parts."""
        outputs = self._visit(lambda shard: shard.run(calls))
        return self._parts(add_up(islice(outputs, len(block.shards))) for block in self._blocks)

    def carried(self, calls: Sequence[Call], shapes: Sequence[tuple[int, ...]]) -> list[Part]:
        """What the last call adds up to, in few parts."""

        def one(block: Block) -> Sums:
            outputs = [np.zeros(shape) for shape in shapes]
            *before, (name, args) = calls
            block.visit(lambda shard: shard.run([*before, (name, (*args, outputs))]))
            return outputs

        return self._parts(self._map(one, self._blocks))

    def _parts(self, sums: Iterable[Sums]) -> list[Part]:
        return add_halves(((range(k, k + 1), part) for k, part in enumerate(sums, self._first)), self._n_blocks)

    def blocks(self, name: str, *args: Any) -> list[Any]:
        """What a method of every block returns."""

        def one(block: Block) -> Any:
            result = getattr(block, name)(*args)
            block.release()
            return result

        return list(self._map(one, self._blocks))

    def _visit(self, task: Callable[[Shard], Any]) -> Iterator[Any]:
        if self._pool is not None and all(block.is_in_memory for block in self._blocks):
            return self._map(task, [shard for block in self._blocks for shard in block.shards])
        return chain.from_iterable(self._map(lambda block: block.visit(task), self._blocks))

    def _map(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> Iterator[Any]:
        return map(task, parts) if self._pool is None or len(parts) == 1 else self._pool.map(task, parts)


def add_up(parts: Iterator[Sums]) -> Sums:
    """Sums of the outputs of each part, in order; the first part's arrays are used up."""
    totals = next(parts)
    for outputs in parts:
        for total, output in zip(totals, outputs, strict=True):
            total += output
    return totals


def add_halves(parts: Iterable[Part], n_blocks: int) -> list[Part]:
    """Add up consecutive parts as far as they are the two halves of a part of n_blocks blocks."""
    found: list[Part] = []
    for part in parts:
        found.append(part)
        while len(found) > 1 and _are_halves(found[-2][0], found[-1][0], n_blocks):
            (left, sums), (right, others) = found[-2:]
            found[-2:] = [(range(left.start, right.stop), add_up(iter([sums, others])))]
    return found


def total(parts: Sequence[Part]) -> Sums:
    """The sums of all blocks."""
    ((_, sums),) = add_halves(parts, parts[-1][0].stop)
    return sums


def _are_halves(left: range, right: range, n_blocks: int) -> bool:
    low, high = 0, n_blocks
    while True:
        middle = (low + high + 1) // 2
        if (low, high) == (left.start, right.stop):
            return left.stop == middle
        if right.stop <= middle:
            high = middle
        elif left.start >= middle:
            low = middle
        else:
            return False


def locate_blocks(source: Source, standardize: Standardizer, base: Base) -> tuple[int, float, float, float]:
    """Turn tables into shards of rows in the box.

    Return the number of rows inside, the weight of all rows and of those inside, and the weighted sum of the base's
    log-determinants.
    """
    parts = source.blocks("locate", standardize, base, SHARD_ROWS)
    n, total, inside, log_density = (sum(values) for values in zip(*parts, strict=True))
    return n, total, inside, log_density


class Rows:
    """Rows of a source, by default in memory. x (n, q) standardised, u (n, d) in the unit cube, weight (n,).

    Calls that return nothing wait for the next one that does, so that a block is visited once for all of them.
    """

    def __init__(self, x: Array, u: Array, weight: Array, pool: Executor | None = None) -> None:
        blocks = [Block(x[s], u[s], weight[s], s.start).cut(SHARD_ROWS) for s in block_slices(len(x))]
        self._begin(Local(blocks, pool), (len(x), x.shape[1], u.shape[1]), sum_over_blocks(weight))

    @staticmethod
    def of(source: Source, shape: tuple[int, int, int], weight: float) -> Rows:
        """Rows elsewhere: n, q and d, and their total weight."""
        rows = Rows.__new__(Rows)
        rows._begin(source, shape, weight)
        return rows

    def _begin(self, source: Source, shape: tuple[int, int, int], weight: float) -> None:
        self._source, self.weight = source, weight
        self.n_rows, self.n_covariates, self.n_outcomes = shape
        self._waiting: list[Call] = []
        self._bins: dict[int, Bins] = {}
        self._encoded = 0

    def begin_tree(self, subsample: float, rng: np.random.Generator) -> float:
        """Put all rows, or a random share of them, into the root; return their weight."""
        state = _reserve(rng, self.n_rows) if subsample < 1.0 else None
        return sum(self._ask("begin_tree", subsample, state))

    def arrange(self, axis: Ints, cut: Array, basis: Basis | None = None) -> None:
        """Label every row of the level left or right of its node's cut; give it the features of a basis.

        Without a basis the features are the covariates.
        """
        self._tell("arrange", axis, cut, Basis.linear(self.n_covariates) if basis is None else basis)

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Send every row to its node of the next level; child (k, 2) says which, -1 for a leaf."""
        self._tell("descend", axis, cut, child, n_next)

    def sum(
        self,
        kernel: Callable[..., None],
        view: Literal["level", "node"],
        args: tuple[Any, ...],
        shapes: Sequence[tuple[int, ...]],
    ) -> Sums:
        """Run a pass on every shard and add up its outputs: one array for each of `shapes`."""
        return total(self._source.totals(self._calls("sums", kernel, view, args, shapes)))

    def add(self, kernel: Callable[..., None], args: tuple[Any, ...], shapes: Sequence[tuple[int, ...]]) -> Sums:
        """As `sum`, for x-trees. Their histograms are larger than a shard: one serves all shards of a block."""
        return total(self._source.carried(self._calls("add", kernel, "trees", args), shapes))

    def bins(self, n_bins: int) -> Bins:
        """At most n_bins bins of each covariate, found once; `add` then sees the covariates in them."""
        if n_bins not in self._bins:
            step = -(-self.n_rows // SAMPLE_ROWS)
            columns = (self._ask("column", j, step) for j in range(self.n_covariates))
            pairs = ((np.concatenate(values), np.concatenate(weights)) for values, weights in map(_transposed, columns))
            self._bins[n_bins] = Bins.fit(pairs, n_bins)
        if n_bins != self._encoded:
            self._tell("encode", self._bins[n_bins])
            self._encoded = n_bins
        return self._bins[n_bins]

    def node_rows(self, node: int) -> tuple[Array, Array, Array]:
        """Covariates, labels and weights of the arranged rows of one node, for classifiers that want them all."""
        x, left, weight = _transposed(self._ask("node_rows", node))
        return np.ascontiguousarray(np.concatenate(x)), np.concatenate(left), np.concatenate(weight)

    def apply(self, transform: Transform) -> tuple[float, float]:
        """Move every row forward; return the weighted mean of the log-determinants and the largest log density."""
        moved = self._ask("apply", transform)
        return sum(part for part, _ in moved) / (self.weight or 1.0), max((high for _, high in moved), default=0.0)

    def log_density(self) -> Array:
        """Log density (n,) of every row in the cube, by the trees so far."""
        return np.concatenate([np.empty(0), *self._ask("densities")])

    def keep(self) -> None:
        """Remember where the rows are now."""
        self._tell("keep")

    def restore(self) -> None:
        """Put the rows back where `keep` saw them last."""
        self._tell("restore")

    def _tell(self, name: str, *args: Any) -> None:
        self._waiting.append((name, args))

    def _ask(self, name: str, *args: Any) -> list[Any]:
        return self._source.each(self._calls(name, *args))

    def _calls(self, name: str, *args: Any) -> list[Call]:
        calls, self._waiting = [*self._waiting, (name, args)], []
        return calls


def _transposed(parts: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return zip(*parts, strict=True)


def _reserve(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """State of a PCG64 from which every shard takes its own of n numbers; it goes on as if it had drawn them."""
    generator: Any = rng.bit_generator
    before = generator.state
    generator.advance(n)
    after = generator.state
    after["has_uint32"], after["uinteger"] = before["has_uint32"], before["uinteger"]
    generator.state = after
    return dict(before)
