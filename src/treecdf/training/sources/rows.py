"""Sums over all rows, wherever these are: the grower asks a source and never accesses a single row.

Rows are cut into shards of fixed size; a pass runs a kernel on every shard and adds up the results, in the order of
the shards of a block; the sum of all blocks is that of their first half and their second half, and so on down. So the
result depends neither on the number of threads nor on where the blocks are: in memory, in files, or on other machines,
which add up the halves that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain, islice
from typing import Literal, Protocol, TypeVar, TypeVarTuple

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.bases.protocol import Base
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.blocks import block_slices, sum_over_blocks
from treecdf.data.scaling import Standardizer
from treecdf.training.sources import operations as ops
from treecdf.training.sources.operations import BlockOperation, BlockSums, SeveralSums, ShardOperation, Sums
from treecdf.training.sources.shard import Block, ForwardMap, GeneratorState, Kernel, LocatedBlock, Shapes, Shard

SHARD_ROWS = 16_384  # rows of a shard: few enough for the processor's cache, many enough to hide the cost of a call
SAMPLE_ROWS = 2**20  # tables with more rows have their quantiles taken from a sample of about so many
PartialSums = tuple[range, list[Array]]  # the numbers of some blocks, and the sums over their rows
Args = TypeVarTuple("Args")
R = TypeVar("R")
T = TypeVar("T")


class Source(Protocol):
    """Blocks of rows, wherever they are.

    The operations `before` return nothing; they run on a shard right before the last one, in one visit.
    """

    def ask_shards(self, before: Sequence[ShardOperation[None]], last: ShardOperation[R]) -> list[R]:
        """What the last operation returns for each shard, in order."""
        ...

    def sum_shards(self, before: Sequence[ShardOperation[None]], last: Sums | SeveralSums) -> list[PartialSums]:
        """Sums of what the last operation returns for each shard; few consecutive parts that cover all blocks."""
        ...

    def sum_blocks(self, before: Sequence[ShardOperation[None]], last: BlockSums) -> list[PartialSums]:
        """As `sum_shards`, where the shards of a block add to the same arrays one after the other."""
        ...

    def ask_blocks(self, operation: BlockOperation[R]) -> list[R]:
        """What an operation returns for each block, in order."""
        ...


class Local:
    """Blocks on this machine; threads work on shards of blocks in memory, and on whole blocks elsewhere."""

    def __init__(
        self, blocks: Sequence[Block], pool: Executor | None = None, first: int = 0, n_blocks: int | None = None
    ) -> None:
        """Some of `n_blocks` blocks, from number `first` on; by default they are all there are."""
        self._blocks, self._pool = blocks, pool
        self._first, self._n_blocks = first, len(blocks) if n_blocks is None else n_blocks
        # Small tables are one shard, and ask for sums tens of thousands of times: they need no parts to add up.
        shards = blocks[0].shards if len(blocks) == 1 and blocks[0].is_in_memory else []
        self._only_shard = shards[0] if len(shards) == 1 else None

    def ask_shards(self, before: Sequence[ShardOperation[None]], last: ShardOperation[R]) -> list[R]:
        """What the last operation returns for each shard, in order."""
        return list(self._map_shards(_one_after_the_other(before, last)))

    def sum_shards(self, before: Sequence[ShardOperation[None]], last: Sums | SeveralSums) -> list[PartialSums]:
        """Sums of what the last operation returns for each shard; few consecutive parts that cover all blocks."""
        task = _one_after_the_other(before, last)
        if self._only_shard is not None:
            return [(range(self._first, self._first + 1), task(self._only_shard))]
        outputs = self._map_shards(task)
        return self._by_halves(add_up(islice(outputs, len(block.shards))) for block in self._blocks)

    def sum_blocks(self, before: Sequence[ShardOperation[None]], last: BlockSums) -> list[PartialSums]:
        """As `sum_shards`, where the shards of a block add to the same arrays one after the other."""

        def one(block: Block) -> list[Array]:
            sums = [np.zeros(shape) for shape in last.shapes]

            def add(shard: Shard) -> None:
                for operation in before:
                    operation.run(shard)
                last.run(shard, sums)

            block.map_shards(add)
            return sums

        return self._by_halves(self._map(one, self._blocks))

    def _by_halves(self, sums: Iterable[list[Array]]) -> list[PartialSums]:
        """Sums over the blocks, added up as far as halves of all blocks are here."""
        return add_halves(((range(k, k + 1), part) for k, part in enumerate(sums, self._first)), self._n_blocks)

    def ask_blocks(self, operation: BlockOperation[R]) -> list[R]:
        """What an operation returns for each block, in order."""

        def one(block: Block) -> R:
            result = operation.run(block)
            block.drop_from_memory()
            return result

        return list(self._map(one, self._blocks))

    def _map_shards(self, task: Callable[[Shard], R]) -> Iterator[R]:
        if self._pool is not None and all(block.is_in_memory for block in self._blocks):
            return self._map(task, [shard for block in self._blocks for shard in block.shards])
        return chain.from_iterable(self._map(lambda block: block.map_shards(task), self._blocks))

    def _map(self, task: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """What the task returns for each part, in order; by the threads of the pool if there is one."""
        return map(task, parts) if self._pool is None or len(parts) == 1 else self._pool.map(task, parts)


def _one_after_the_other(before: Sequence[ShardOperation[None]], last: ShardOperation[R]) -> Callable[[Shard], R]:
    """A function that runs all operations on a shard and returns what the last one does."""
    if not before:
        return last.run

    def task(shard: Shard) -> R:
        for operation in before:
            operation.run(shard)
        return last.run(shard)

    return task


def add_up(parts: Iterator[list[Array]]) -> list[Array]:
    """Sums of the outputs of each part, in order; the first part's arrays are used up."""
    totals = next(parts)
    for outputs in parts:
        for total, output in zip(totals, outputs, strict=True):
            total += output
    return totals


def add_halves(parts: Iterable[PartialSums], n_blocks: int) -> list[PartialSums]:
    """Add up consecutive parts as far as they are the two halves of a part of n_blocks blocks."""
    found: list[PartialSums] = []
    for part in parts:
        found.append(part)
        while (
            len(found) > 1
            and found[-2][0].stop == found[-1][0].start
            and _are_halves(found[-2][0], found[-1][0], n_blocks)
        ):
            (left, sums), (right, others) = found[-2:]
            found[-2:] = [(range(left.start, right.stop), add_up(iter([sums, others])))]
    return found


def sum_of_all(parts: Sequence[PartialSums]) -> list[Array]:
    """The sums over all blocks, from parts that cover them in order."""
    if len(parts) == 1:
        return parts[0][1]
    ((_, sums),) = add_halves(parts, parts[-1][0].stop)
    return sums


def _are_halves(left: range, right: range, n_blocks: int) -> bool:
    """Whether two ranges of blocks are the first and second half of one that halving n_blocks leads to."""
    low, high = 0, n_blocks
    while True:
        middle = (low + high + 1) // 2
        if (low, high) == (left.start, right.stop):
            return left.stop == right.start == middle
        if right.stop <= middle:
            high = middle
        elif left.start >= middle:
            low = middle
        else:
            return False


def map_tables(source: Source, task: Callable[[Array, Array, Array, *Args], R], *args: *Args) -> list[R]:
    """What task(x, y, weight, *args) returns for the table of each block."""
    return source.ask_blocks(ops.OfTable(task, args))


def locate_blocks(source: Source, standardize: Standardizer, base: Base) -> LocatedBlock:
    """Turn tables into shards of rows in the box; return the counts and sums over all blocks."""
    parts = source.ask_blocks(ops.Locate(standardize, base, SHARD_ROWS))
    n, total, inside, log_det = (sum(values) for values in zip(*parts, strict=True))
    return LocatedBlock(int(n), total, inside, log_det)


class Rows:
    """Rows of a source, by default in memory: x (n, q) standardised, u (n, d) in the unit cube, weight (n,).

    Operations that return nothing wait for the next one that returns something, so that a block is visited once for
    all.
    """

    def __init__(self, x: Array, u: Array, weight: Array, pool: Executor | None = None) -> None:
        blocks = [Block(x[s], u[s], weight[s], s.start).cut(SHARD_ROWS) for s in block_slices(len(x))]
        self._begin(Local(blocks, pool), (len(x), x.shape[1], u.shape[1]), sum_over_blocks(weight))

    @staticmethod
    def of(source: Source, shape: tuple[int, int, int], weight: float) -> Rows:
        """The rows of any source; shape: n, q and d; weight: the sum over all rows."""
        rows = Rows.__new__(Rows)
        rows._begin(source, shape, weight)
        return rows

    def _begin(self, source: Source, shape: tuple[int, int, int], weight: float) -> None:
        self._source, self.weight = source, weight
        self.n_rows, self.n_covariates, self.n_outcomes = shape
        self.are_many = len(block_slices(self.n_rows)) > 1  # than fit into one block
        self._waiting: list[ShardOperation[None]] = []
        self._bins: dict[int, Bins] = {}
        self._encoded = 0

    def begin_tree(self, subsample: float, rng: np.random.Generator) -> float:
        """Put all rows, or a random share of them, into the root; return their weight."""
        state = _reserve(rng, self.n_rows) if subsample < 1.0 else None
        return sum(self._ask(ops.BeginTree(subsample, state)))

    def arrange(self, axis: Ints, cut: Array, basis: Basis | None = None, labels: int = 0) -> None:
        """Label every row of the level left or right of its node's cut; give it the features of a basis.

        Without a basis the features are the covariates. Labels of other numbers stay.
        """
        basis = Basis.linear(self.n_covariates) if basis is None else basis
        self._waiting.append(ops.Arrange(axis, cut, basis, labels))

    def descend(self, axis: Ints, cut: Array, child: Ints, n_next: int) -> None:
        """Send every row to its node of the next level; child (k, 2) says which, -1 for a leaf."""
        self._waiting.append(ops.Descend(axis, cut, child, n_next))

    def sum(
        self, kernel: Kernel, view: Literal["level", "node"], args: tuple[object, ...], shapes: Shapes
    ) -> list[Array]:
        """Run a kernel on every shard and add up its outputs: one array for each of `shapes`."""
        return sum_of_all(self._source.sum_shards(self._take_waiting(), Sums(kernel, view, args, shapes)))

    def sum_together(self, requests: Sequence[Sums]) -> list[list[Array]]:
        """The sums of each request, in one pass for all."""
        last = requests[0] if len(requests) == 1 else SeveralSums(tuple(requests))
        sums = iter(sum_of_all(self._source.sum_shards(self._take_waiting(), last)))
        return [[next(sums) for _ in request.shapes] for request in requests]

    def add(self, kernel: Kernel, args: tuple[object, ...], shapes: Shapes) -> list[Array]:
        """Run a kernel of x-trees as `sum` does.

        Histograms are larger than a shard, so all shards of a block add to the same one.
        """
        return sum_of_all(self._source.sum_blocks(self._take_waiting(), BlockSums(kernel, args, shapes)))

    def bins(self, n_bins: int) -> Bins:
        """At most n_bins bins of each covariate, found once; `add` then sees the covariates in them."""
        if n_bins not in self._bins:
            step = -(-self.n_rows // SAMPLE_ROWS)
            weight = np.concatenate(self._ask(ops.Column(-1, step)))
            columns = (np.concatenate(self._ask(ops.Column(j, step))) for j in range(self.n_covariates))
            self._bins[n_bins] = Bins.fit(((values, weight) for values in columns), n_bins)
        if n_bins != self._encoded:
            self._waiting.append(ops.Encode(self._bins[n_bins]))
            self._encoded = n_bins
        return self._bins[n_bins]

    def node_rows(self, node: int) -> tuple[Array, Array, Array]:
        """Features (m, p), labels (m,) and weights (m,) of the arranged rows of one node."""
        x, left, weight = zip(*self._ask(ops.NodeRows(node)), strict=True)
        return np.ascontiguousarray(np.concatenate(x)), np.concatenate(left), np.concatenate(weight)

    def apply(self, forward: ForwardMap) -> tuple[float, float]:
        """Move every row forward; return the weighted mean of the log-determinants and the largest log density."""
        moved = self._ask(ops.Apply(forward))
        return sum(part for part, _ in moved) / (self.weight or 1.0), max((high for _, high in moved), default=0.0)

    def log_density(self) -> Array:
        """Log density (n,) of every row in the cube, by the trees so far."""
        return np.concatenate([np.empty(0), *self._ask(ops.Densities())])

    def keep(self) -> None:
        """Remember where the rows are now, in place of what was kept before."""
        self._waiting.append(ops.Keep())

    def restore(self) -> None:
        """Put the rows back where `keep` saw them last."""
        self._waiting.append(ops.Restore())

    def _ask(self, operation: ShardOperation[R]) -> list[R]:
        """What an operation returns for each shard, after the waiting operations."""
        return self._source.ask_shards(self._take_waiting(), operation)

    def _take_waiting(self) -> list[ShardOperation[None]]:
        """The waiting operations, which are then no longer waiting."""
        waiting, self._waiting = self._waiting, []
        return waiting


def _reserve(rng: np.random.Generator, n: int) -> GeneratorState:
    """State of a PCG64 from which every shard takes its own of n numbers; rng continues after these."""
    generator = rng.bit_generator
    if not isinstance(generator, np.random.PCG64):
        raise TypeError(f"Expected a generator with PCG64; got one with {type(generator).__name__}.")
    before = generator.state
    generator.advance(n)
    after = generator.state
    after["has_uint32"], after["uinteger"] = before["has_uint32"], before["uinteger"]
    generator.state = after
    return dict(before)
