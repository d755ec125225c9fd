"""Outcomes scaled and rotated before a base sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treecdf._common.numerics import FAR, weighted_moments
from treecdf._common.typing import Array


@dataclass(frozen=True)
class Rotation:
    """Outcomes on comparable scales, then rotated: r = ((y - center) / scale) @ matrix."""

    center: Array  # (d,): the middle of the training range
    scale: Array  # (d,): standard deviations of the training outcomes
    matrix: Array  # (d, d), orthogonal

    @staticmethod
    def fit(y: Array, weight: Array, matrix: Array) -> Rotation:
        """The rotation by `matrix` (d, d), scaled by the weighted standard deviations of training outcomes y (n, d)."""
        moments = weighted_moments(y, weight)
        scale = np.where(moments.std > 0, moments.std, length_of_constant(moments.middle))
        return Rotation(moments.middle, scale, matrix)

    @property
    def log_det(self) -> float:
        """Log-determinant of `turn`, the same everywhere: that of the scales, for an orthogonal matrix adds 0."""
        return -float(np.log(self.scale).sum())

    def turn(self, y: Array) -> Array:
        """Rotated outcomes (..., d) of outcomes y (..., d)."""
        with np.errstate(over="ignore"):
            return np.clip((y - self.center) / self.scale, -FAR, FAR) @ self.matrix

    def turn_back(self, r: Array) -> Array:
        """Outcomes (..., d) of rotated outcomes r (..., d): the inverse of `turn`."""
        with np.errstate(over="ignore"):
            return self.center + self.scale * (np.clip(r, -FAR, FAR) @ self.matrix.T)


def length_of_constant(value: Array) -> Array:
    """A positive length for each constant outcome: a thousandth of its size, or 1 if it is 0."""
    return np.where(value != 0, np.maximum(np.abs(value) * 1e-3, 1e-300), 1.0)
