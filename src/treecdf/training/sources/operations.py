"""All operations on rows: one class for each, with its arguments and result.

A source runs operations on its shards and blocks wherever they are. On a cluster they are sent to the workers, so they
hold no rows. Each class declares how long its change of the rows matters (`lasts`) and which earlier changes it makes
irrelevant (`ends`): rows that are lost with a worker are read again, and only changes that still matter are repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Generic, TypeVar

from treecdf._common.typing import Array, Ints
from treecdf.bases.protocol import Base
from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.scaling import Standardizer
from treecdf.training.sources.shard import Block, ForwardMap, GeneratorState, Kernel, LocatedBlock, Shapes, Shard, View

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Span(IntEnum):
    """How long a change of the rows matters; a longer span has a larger number."""

    NONE = 0  # the rows stay as they are
    LEVEL = 1  # until the rows go down to the next level of the tree
    TREE = 2  # until the next tree begins
    FIT = 3  # until the end of the fit


class Operation:
    """What all operations declare: how long their change matters, and the span of the changes that they end."""

    __slots__ = ()
    lasts: ClassVar[Span] = Span.NONE
    ends: ClassVar[Span] = Span.NONE


# On every shard


class ShardOperation(Operation, ABC, Generic[R_co]):
    """An operation on one shard, which returns R_co."""

    __slots__ = ()

    @abstractmethod
    def run(self, shard: Shard) -> R_co:
        """What the operation returns for a shard."""


@dataclass(frozen=True, slots=True)
class BeginTree(ShardOperation[float]):
    """Put all rows, or a random share `subsample` of them, into the root; return their weight."""

    lasts, ends = Span.TREE, Span.TREE
    subsample: float
    state: GeneratorState | None

    def run(self, shard: Shard) -> float:
        """The weight of the rows in the root."""
        return shard.begin_tree(self.subsample, self.state)


@dataclass(frozen=True, slots=True)
class Arrange(ShardOperation[None]):
    """Label the rows left or right of their nodes' cuts (k,) on axes (k,), with the features of a basis.

    Rows may have several labels at a time, by different cuts; `labels` is the number of these.
    """

    lasts = Span.LEVEL
    axis: Ints
    cut: Array
    basis: Basis
    labels: int = 0

    def run(self, shard: Shard) -> None:
        """Label the rows of a shard."""
        shard.arrange(self.axis, self.cut, self.basis, self.labels)


@dataclass(frozen=True, slots=True)
class Descend(ShardOperation[None]):
    """Sort the rows into the n_next nodes of the next level; child (k, 2) says which, -1 for a leaf."""

    lasts, ends = Span.TREE, Span.LEVEL
    axis: Ints
    cut: Array
    child: Ints
    n_next: int

    def run(self, shard: Shard) -> None:
        """Sort the rows of a shard."""
        shard.descend(self.axis, self.cut, self.child, self.n_next)


@dataclass(frozen=True, slots=True)
class Encode(ShardOperation[None]):
    """Put the covariates into bins, for passes of x-trees."""

    lasts = Span.FIT
    bins: Bins

    def run(self, shard: Shard) -> None:
        """Encode the covariates of a shard."""
        shard.encode(self.bins)


@dataclass(frozen=True, slots=True)
class Sums(ShardOperation[list[Array]]):
    """Run a kernel on a view of the rows, with some of their labels; its sums, one array for each of `shapes`."""

    kernel: Kernel
    view: View
    args: tuple[object, ...]
    shapes: Shapes
    labels: int = 0

    def run(self, shard: Shard) -> list[Array]:
        """The sums over a shard."""
        return shard.sums(self.kernel, self.view, self.args, self.shapes, self.labels)


@dataclass(frozen=True, slots=True)
class SeveralSums(ShardOperation[list[Array]]):
    """Several sums in one visit of the rows, one after the other in the result."""

    parts: tuple[Sums, ...]

    def run(self, shard: Shard) -> list[Array]:
        """The sums over a shard."""
        return [total for part in self.parts for total in part.run(shard)]


@dataclass(frozen=True, slots=True)
class Column(ShardOperation[Array]):
    """Values (m,) of covariate j of about one row in `step`; the weights (m,) of these rows if j is -1."""

    j: int
    step: int

    def run(self, shard: Shard) -> Array:
        """The values of a shard."""
        return shard.column(self.j, self.step)


@dataclass(frozen=True, slots=True)
class NodeRows(ShardOperation[tuple[Array, Array, Array]]):
    """Features (m, p), labels (m,) and weights (m,) of the arranged rows of a node."""

    node: int

    def run(self, shard: Shard) -> tuple[Array, Array, Array]:
        """The rows of a shard that are in the node."""
        return shard.node_rows(self.node)


@dataclass(frozen=True, slots=True)
class Apply(ShardOperation[tuple[float, float]]):
    """Move the rows forward; return the weighted sum of the log-determinants and the largest log density."""

    lasts, ends = Span.FIT, Span.TREE
    forward: ForwardMap

    def run(self, shard: Shard) -> tuple[float, float]:
        """The sum and the largest value of a shard."""
        return shard.apply(self.forward)


@dataclass(frozen=True, slots=True)
class Keep(ShardOperation[None]):
    """Remember where the rows are now, in place of what was kept before."""

    lasts = Span.FIT

    def run(self, shard: Shard) -> None:
        """Remember where the rows of a shard are."""
        shard.keep()


@dataclass(frozen=True, slots=True)
class Restore(ShardOperation[None]):
    """Put the rows back where the last `Keep` saw them."""

    lasts, ends = Span.FIT, Span.TREE

    def run(self, shard: Shard) -> None:
        """Put the rows of a shard back."""
        shard.restore()


@dataclass(frozen=True, slots=True)
class Densities(ShardOperation[Array]):
    """Log density (m,) of the rows in the cube, by the trees so far."""

    def run(self, shard: Shard) -> Array:
        """The log densities of a shard."""
        return shard.log_density


# On the shards of a block, one after the other


@dataclass(frozen=True, slots=True)
class BlockSums(Operation):
    """Run a kernel of x-trees that adds to sums of these shapes, which all shards of a block share.

    The kernel writes the gradients and places that x-trees keep of every row, too.
    """

    lasts = Span.LEVEL
    kernel: Kernel
    args: tuple[object, ...]
    shapes: Shapes

    def run(self, shard: Shard, sums: Sequence[Array]) -> None:
        """Add what a shard contributes to the sums of its block."""
        shard.add_to(sums, self.kernel, "trees", self.args)


# On every block


class BlockOperation(Operation, ABC, Generic[R_co]):
    """An operation on one block of rows, which returns R_co."""

    __slots__ = ()

    @abstractmethod
    def run(self, block: Block) -> R_co:
        """What the operation returns for a block."""


@dataclass(frozen=True, slots=True)
class CountRows(BlockOperation[int]):
    """The number of rows of a block."""

    def run(self, block: Block) -> int:
        """The number of rows."""
        return len(block)


@dataclass(frozen=True, slots=True)
class EveryNth(BlockOperation[tuple[Array, Array]]):
    """Outcomes (m, d) and weights (m,) of every step-th row of all blocks."""

    step: int

    def run(self, block: Block) -> tuple[Array, Array]:
        """The outcomes and weights of a block."""
        return block.every_nth(self.step)


@dataclass(frozen=True, slots=True)
class OfTable(BlockOperation[R_co]):
    """What task(x, y, weight, *args) returns for the covariates, outcomes and weights of a block."""

    task: Callable[..., R_co]
    args: tuple[object, ...] = ()

    def run(self, block: Block) -> R_co:
        """What the task returns for a block."""
        return self.task(block.x, block.y, block.weight, *self.args)


@dataclass(frozen=True, slots=True)
class Locate(BlockOperation[LocatedBlock]):
    """Standardise the covariates, bring the outcomes into the box and cut what is inside into shards."""

    lasts = Span.FIT
    standardize: Standardizer
    base: Base
    shard_rows: int

    def run(self, block: Block) -> LocatedBlock:
        """Counts and sums of a block."""
        return block.locate(self.standardize, self.base, self.shard_rows)


@dataclass(frozen=True, slots=True)
class Cut(BlockOperation[None]):
    """Cut tables whose outcomes are in the unit cube already into shards."""

    lasts = Span.FIT
    shard_rows: int

    def run(self, block: Block) -> None:
        """Cut a block."""
        block.cut(self.shard_rows)
