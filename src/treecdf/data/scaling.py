"""Covariates on a common scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array
from treecdf.data.blocks import block_slices, sum_of_weights

_LARGEST_Z = 1e9  # covariates this many standard deviations away say "far" and nothing more
# each(task, *args) runs task(x, y, weight, *args) on all blocks of rows and gives the list of what it returned, which
# may be anything; x (m, q) are the covariates of a block, y (m, d) its outcomes, weight (m,) its weights.
EachBlock = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Standardizer:
    """Covariates scaled to mean 0 and standard deviation 1 of the (weighted) training rows.

    Columns that were constant in training become 0 for all rows, because nothing was learnt about them.
    """

    unit: Array  # (q,): largest absolute value; keeps the sums from overflowing
    mean: Array  # (q,), in units
    scale: Array  # (q,), in units; infinite for constants

    @staticmethod
    def fit(x: Array, weight: Array) -> Standardizer:
        """Mean and scale of training covariates x (n, q), weighted."""
        slices = block_slices(len(x))
        return Standardizer.fit_blocks(lambda task, *args: [task(x[s], x[s, :0], weight[s], *args) for s in slices])

    @staticmethod
    def fit_blocks(each: EachBlock) -> Standardizer:
        """Mean and scale from rows in blocks, which may be elsewhere: it passes over them four times."""
        total = sum(each(sum_of_weights))
        smallest, largest = (np.array(ends) for ends in zip(*each(_ends), strict=True))
        smallest, largest = smallest.min(axis=0), largest.max(axis=0)
        unit = np.maximum(np.abs(smallest), np.abs(largest))
        unit[unit == 0] = 1.0
        mean = np.asarray(sum(each(_part_of_mean, total, unit)))
        scale = np.sqrt(sum(each(_part_of_variance, total, unit, mean)))
        scale[(smallest == largest) | (scale == 0)] = np.inf
        return Standardizer(unit, mean, scale)

    def __call__(self, x: Array) -> Array:
        """Standardised covariates (n, q) of covariates x (n, q), rows next to each other in memory."""
        with np.errstate(over="ignore"):
            z = np.clip(x / self.unit, -FAR, FAR)
        z -= self.mean
        with np.errstate(over="ignore"):
            z /= self.scale
        return np.clip(z, -_LARGEST_Z, _LARGEST_Z, out=z)


def _ends(x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Smallest and largest covariates (q,) of a block."""
    return x.min(axis=0), x.max(axis=0)


def _part_of_mean(x: Array, y: Array, weight: Array, total: float, unit: Array) -> Array:
    """What a block adds to the means (q,), in units."""
    return (weight / total) @ (x / unit)


def _part_of_variance(x: Array, y: Array, weight: Array, total: float, unit: Array, mean: Array) -> Array:
    """What a block adds to the variances (q,), in units."""
    return (weight / total) @ (x / unit - mean) ** 2
