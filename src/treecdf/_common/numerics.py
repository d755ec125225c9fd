"""Numbers near the limits of float64: limits of distances, and moments that do not overflow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array

FAR = 1e300  # distances are cut here, so that every finite outcome has a finite log density


class Moments(NamedTuple):
    """Weighted moments of one column (numbers) or of d columns (arrays of length d)."""

    middle: Array  # halfway between the smallest and the largest value
    mean: Array
    std: Array  # 0 for a constant column


def weighted_moments(values: Array, weight: Array) -> Moments:
    """Moments of the columns of values (n,) or (n, d) with weights (n,), finite whenever the values are.

    Values are measured from the middle of their range in units of half its length, within (-1, 1): neither the range
    nor a square overflows. (`Standardizer` measures from 0 in units of the largest value, because it adds up parts
    of rows that are not in memory together, and keeps mean and scale in these units.)
    """
    low, high = values.min(axis=0), values.max(axis=0)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    share = weight / weight.sum()
    part = (values - middle) / np.where(half > 0, half, 1.0)
    mean = share @ part
    return Moments(middle, middle + half * mean, half * np.sqrt(share @ (part - mean) ** 2))


def weighted_quantile(values: Array, weight: Array, level: float) -> float:
    """The quantile of values (n,) with weights (n,); the middle if it is between two values."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    sides = (np.searchsorted(reached, level * reached[-1], side) for side in ("left", "right"))
    lower, upper = (float(values[order[min(k, len(order) - 1)]]) for k in sides)
    return lower / 2 + upper / 2


def counted_quantiles(z: Array, levels: ArrayLike, weight: Array) -> Array:
    """Quantiles of values (n,), each repeated as often as its weight says, with linear interpolation."""
    order = np.argsort(z, kind="stable")
    reached = np.cumsum(weight[order])
    place = np.asarray(levels) * max(reached[-1] - 1, 0.0)
    low, high = (
        z[order][np.minimum(np.searchsorted(reached, at, side="right"), len(z) - 1)]
        for at in (np.floor(place), np.ceil(place))
    )
    return np.asarray(low + (place - np.floor(place)) * (high - low), dtype=np.float64)


def log_sum_exp(values: Array, axis: int = 1) -> Array:
    """Log of the sum of exponentials along an axis that is kept: SciPy's result, faster for a few rows."""
    largest = values.max(axis=axis, keepdims=True)
    is_largest = values == largest
    count = is_largest.sum(axis=axis, keepdims=True)
    rest = np.where(is_largest, 0.0, np.exp(values - largest)).sum(axis=axis, keepdims=True)
    return np.asarray(np.log1p(rest / count) + np.log(count) + largest)


def unit_of(values: Array, axis: int | tuple[int, ...]) -> Array:
    """Largest size of values along an axis that is kept, 1 where all are 0: in this unit squares are safe."""
    unit = np.abs(values).max(axis=axis, keepdims=True, initial=0.0)
    return np.where(unit == 0, 1.0, unit)


def root_mean_square(away: Array, masses: Array) -> Array:
    """Root (n,) of the mean square of distances (n, k) that have masses (k,) or (n, k)."""
    unit = unit_of(away, axis=1)
    squares = (away / unit) ** 2
    mean = squares @ masses if masses.ndim == 1 else (masses * squares).sum(axis=1)
    return unit[:, 0] * np.sqrt(mean)


def moments_of_mixture(shares: Array, means: Array, deviations: Array) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of mixtures of k parts, of which shares, means and deviations are (n, k)."""
    mean = (shares * means).sum(axis=1)
    return mean, root_mean_square(np.hypot(deviations, means - mean[:, None]), shares)
