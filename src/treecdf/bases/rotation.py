"""Outcomes scaled and rotated before a base sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array


@dataclass(frozen=True)
class Rotation:
    """Outcomes on comparable scales, then turned: r = ((y - center) / scale) @ matrix."""

    center: Array
    scale: Array
    matrix: Array  # (d, d), orthogonal

    @staticmethod
    def fit(y: Array, weight: Array, matrix: Array) -> Rotation:
        """Scale by the (weighted) standard deviations of training outcomes y (n, d)."""
        smallest, largest = y.min(axis=0), y.max(axis=0)
        center = smallest / 2 + largest / 2
        half = largest / 2 - smallest / 2
        share = weight / weight.sum()
        parts = (y - center) / np.where(half > 0, half, 1.0)  # within (-1, 1): no square overflows
        scale = half * np.sqrt(share @ (parts - share @ parts) ** 2)
        return Rotation(center, np.where(scale > 0, scale, length_of_constant(center)), matrix)

    @property
    def log_det(self) -> float:
        """Log-determinant of `turn`; the rotation itself adds nothing."""
        return -float(np.log(self.scale).sum())

    def turn(self, y: Array) -> Array:
        """Outcomes y (..., d) as the trees of this rotation see them."""
        with np.errstate(over="ignore"):
            return np.clip((y - self.center) / self.scale, -FAR, FAR) @ self.matrix

    def turn_back(self, r: Array) -> Array:
        """Inverse of `turn`."""
        with np.errstate(over="ignore"):
            return self.center + self.scale * (np.clip(r, -FAR, FAR) @ self.matrix.T)


def length_of_constant(value: Array) -> Array:
    """A length for outcomes that have none because they are constant."""
    return np.where(value != 0, np.maximum(np.abs(value) * 1e-3, 1e-300), 1.0)
