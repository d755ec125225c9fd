"""Counts of reads: the depth of samples, and compositions as whole numbers of reads of that depth.

Shares of a sample of N reads are whole numbers over N, and the log ratio of a taxon that is present to the total of
those before it is at least log(1/2 / N) when a count c stands for the values from c - 1/2 to c + 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.numerics import counted_quantiles
from treecdf._common.typing import Array, Ints

_LEVELS = np.linspace(0.0, 1.0, 101)
_MOST_DRAWN_ONE_BY_ONE = 10**9  # reads: of more, those that are drawn are as if each were put back
_LARGEST_DEPTH = 2.0**53  # counts beyond are no exact numbers


@dataclass(frozen=True)
class Depths:
    """The numbers of reads of the training samples."""

    quantiles: Array  # (101,), from the smallest depth to the largest

    @staticmethod
    def fit(depth: Array, weight: Array) -> Depths:
        """The distribution of depths (n,) of training samples with weights (n,)."""
        return Depths(counted_quantiles(depth, _LEVELS, weight))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Depths (n,) like those of the training samples."""
        return np.round(np.interp(rng.random(n), _LEVELS, self.quantiles))

    def covariate(self, depth: Array) -> Array:
        """Logs of depths (n,), held within the range of the training samples."""
        return np.log(np.clip(depth, self.quantiles[0], self.quantiles[-1]))

    def learnt(self, depth: Array) -> Array:
        """The depths (n,) to draw at: at least the smallest training depth; smaller samples are thinned afterwards."""
        return np.maximum(depth, np.ceil(self.quantiles[0]))


def floors(log_depth: Array) -> Array:
    """The smallest log ratio (n,) that a taxon of at least one read can have to the total of those before it."""
    return np.log(0.5) - log_depth


def spread(counts: Array, rng: np.random.Generator) -> Array:
    """Counts (n, taxa) without ties: those above zero are drawn uniformly from c - 1/2 to c + 1/2."""
    u = rng.random(counts.shape)
    return np.where(counts > 0, counts + 0.5 - u, 0.0)  # above c - 1/2, never it


def as_reads(shares: Array, depth: Array) -> Array:
    """Whole numbers of reads (n, taxa) nearest to shares, with sums `depth` (n,) and at least one where present.

    The remainder of rounding goes to the most abundant taxa. If there are more taxa than reads the most abundant have
    one.
    """
    order = np.argsort(-shares, axis=1, kind="stable")
    share = np.take_along_axis(shares, order, axis=1)
    rank = np.arange(shares.shape[1])
    possible = (share > 0) & (rank < depth[:, None])
    reads = np.where(possible, np.maximum(np.round(share * depth[:, None]), 1.0), 0.0)
    left = depth - reads.sum(axis=1)
    reads[:, 0] += np.maximum(left, 0.0)
    owed = np.maximum(-left, 0.0)
    for k in range(shares.shape[1]):
        taken = np.minimum(owed, np.maximum(reads[:, k] - 1, 0.0))
        reads[:, k] -= taken
        owed -= taken
        if not owed.any():
            break
    counts = np.empty_like(reads)
    np.put_along_axis(counts, order, reads, axis=1)
    return counts


def thinned(counts: Array, depth: Array, rng: np.random.Generator) -> Array:
    """Reads (n, taxa) left after drawing `depth` (n,) of them without replacement, where samples have more."""
    thin = counts.copy()
    for row in np.flatnonzero(counts.sum(axis=1) > depth):
        own: Ints = counts[row].astype(np.int64)
        if own.sum() < _MOST_DRAWN_ONE_BY_ONE:
            thin[row] = rng.multivariate_hypergeometric(own, int(depth[row]), method="marginals")
        else:
            thin[row] = rng.multinomial(int(depth[row]), own / own.sum())
    return thin


def check_depths(depth: Array) -> None:
    """Raise a ValueError about depths that are not whole numbers of reads."""
    good = (depth >= 1) & (depth <= _LARGEST_DEPTH) & (depth == np.round(depth))
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"depth of row {row} is {depth[row]:g}: depths must be whole numbers of at least 1.")
