"""A monotone transform of one outcome: standardised, and straightened if it is skewed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treecdf.base import length_of_constant

Array = NDArray[np.float64]

_FAR = 1e300


@dataclass(frozen=True)
class Transform:
    """y -> z = (y - center) / scale -> Yeo-Johnson with exponent `power`; 1 leaves z as it is."""

    center: float
    scale: float
    power: float = 1.0

    @staticmethod
    def fit(y: Array, weight: Array, power: float = 1.0) -> Transform:
        """By mean and standard deviation of training outcomes y (n,)."""
        low, high = y.min(), y.max()
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        share = weight / weight.sum()
        part = (y - middle) / (half or 1.0)
        mean = float(share @ part)
        scale = float(half * np.sqrt(share @ (part - mean) ** 2))
        return Transform(float(middle + half * mean), scale or float(length_of_constant(middle)), power)

    def forward(self, y: Array) -> tuple[Array, Array]:
        """Transformed outcomes and the logs of the derivative."""
        with np.errstate(over="ignore"):
            z = np.clip((y - self.center) / self.scale, -_FAR, _FAR)
        if self.power == 1:
            return z, np.full(z.shape, -np.log(self.scale))
        upper, lower = self.power, 2 - self.power
        log_size = np.log1p(np.abs(z))
        grown = np.where(z >= 0, _box_cox(log_size, upper), -_box_cox(log_size, lower))
        log_slope = np.where(z >= 0, upper - 1, lower - 1) * log_size
        return np.clip(grown, -_FAR, _FAR), log_slope - np.log(self.scale)

    def inverse(self, g: Array) -> Array:
        """Inverse of `forward`; infinite where g is beyond its range."""
        if self.power != 1:
            upper, lower = self.power, 2 - self.power
            g = np.where(g >= 0, _un_box_cox(np.maximum(g, 0.0), upper), -_un_box_cox(np.maximum(-g, 0.0), lower))
        with np.errstate(over="ignore"):
            return self.center + self.scale * g


def _box_cox(log_size: Array, power: float) -> Array:
    """((1 + a)^power - 1) / power, from log(1 + a)."""
    if power == 0:
        return log_size
    with np.errstate(over="ignore"):
        return np.expm1(power * log_size) / power


def _un_box_cox(g: Array, power: float) -> Array:
    if power == 0:
        with np.errstate(over="ignore"):
            return np.expm1(g)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        inside = 1 + power * g
        return np.where(inside > 0, np.expm1(np.log(np.maximum(inside, 1e-320)) / power), np.inf)
