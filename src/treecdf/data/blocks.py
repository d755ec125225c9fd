"""Blocks of consecutive rows, and sums over them that do not depend on where the rows are."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array, Bools

BLOCK_ROWS = 131_072  # rows that stay together; sums are over blocks, in order
_MOST_BLOCKS = 512  # blocks at most; with more rows blocks are larger


def block_slices(n: int) -> list[slice]:
    """Where blocks of n rows begin and end; it depends on n alone, never on where the rows are."""
    size = BLOCK_ROWS
    while n > size * _MOST_BLOCKS:
        size *= 2
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def sum_over_blocks(weight: Array, values: Array | None = None) -> float:
    """Sum of weights (n,), or of weights times values (n,), block by block."""
    # From Python 3.12 on `sum` adds floats, but not numpy's, with a correction: all sources add up floats.
    if values is None:
        return sum((float(weight[s].sum()) for s in block_slices(len(weight))), 0.0)
    return sum((float(weight[s] @ values[s]) for s in block_slices(len(weight))), 0.0)


# Tasks of a block: functions of its covariates x (m, q), outcomes y (m, d) and weights (m,)


def sum_of_weights(x: Array, y: Array, weight: Array) -> float:
    """Sum of the weights of a block."""
    return float(weight.sum())


def ends_of_outcomes(x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Smallest and largest outcomes (d,) of a block."""
    return y.min(axis=0), y.max(axis=0)


def one_in(step: int, first: int, m: int) -> Bools:
    """Which of m rows from number `first` on are taken if about one in `step` is; only the row number matters."""
    if step == 1:
        return np.ones(m, bool)
    mixed = np.arange(first, first + m, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.asarray(mixed % np.uint64(step) == 0)
