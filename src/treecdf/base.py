"""The outcome's support: user's unit <-> a box the trees work in <-> the unit cube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bound = tuple[float | None, float | None]

_MARGIN = 0.1  # the box is wider than the training range by this share of its length on each side
_TAIL_SHAPE = 4.0  # survival of a tail falls like distance^-4, so that mean and variance exist
_TAIL_SCALE = 0.5  # in widths of the box
_FAR = 1e300  # distances are cut here, so that every finite outcome has a finite log density


@dataclass(frozen=True)
class Support:
    """A box with a heavy tail beyond each end that is not a hard bound. All arrays have length d.

    The trees move points inside the box only, so a tail keeps its mass whatever the trees learn.
    """

    low: Array
    high: Array
    low_tail: Array  # mass below the box; 0 at a hard bound
    high_tail: Array

    @staticmethod
    def fit(y: Array, weight: Array, bounds: Sequence[Bound]) -> Support:
        """From training outcomes y (n, d) of total weight n: each tail holds mass 1 / (2 (n + 1))."""
        smallest, largest = y.min(axis=0), y.max(axis=0)
        length = largest - smallest
        # A constant outcome has no length.
        fallback = np.where(smallest != 0, np.maximum(np.abs(smallest) * 1e-3, 1e-300), 1.0)
        margin = np.where(length > 0, _MARGIN * length, fallback)
        lower = np.array([np.nan if low is None else low for low, _ in bounds])
        upper = np.array([np.nan if high is None else high for _, high in bounds])
        tail = 0.5 / (weight.sum() + 1)
        return Support(
            low=np.where(np.isnan(lower), smallest - margin, lower),
            high=np.where(np.isnan(upper), largest + margin, upper),
            low_tail=np.where(np.isnan(lower), tail, 0.0),
            high_tail=np.where(np.isnan(upper), tail, 0.0),
        )

    @property
    def width(self) -> Array:
        """Lengths of the box."""
        return self.high - self.low

    def to_box(self, y: Array) -> Array:
        """Outcomes y (..., d) on the box's own scale, where it is (0, 1)^d; outcomes beyond it lie outside."""
        with np.errstate(over="ignore"):
            return np.clip((y - self.low) / self.width, -_FAR, _FAR)

    def from_box(self, v: Array) -> Array:
        """Inverse of `to_box`."""
        # Two products, because width alone times a far v may overflow where the sum does not.
        with np.errstate(invalid="ignore", over="ignore"):
            y = np.where(np.isfinite(v), self.low * (1 - v) + self.high * v, v)
        hard_low, hard_high = np.where(self.low_tail, -np.inf, self.low), np.where(self.high_tail, np.inf, self.high)
        return np.clip(y, hard_low, hard_high)  # a bound holds to the last bit

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Whether points v (..., d) are inside the box on every axis."""
        return np.all((v >= 0) & (v <= 1), axis=-1)

    def to_unit(self, v: Array) -> tuple[Array, Array]:
        """Box scale v (..., d) -> the unit cube, with the log-determinant (...) of y -> u, -inf beyond a bound."""
        core = 1 - self.low_tail - self.high_tail
        beyond = np.maximum(np.maximum(-v, v - 1), 0.0)
        tail = np.where(v < 0, self.low_tail, self.high_tail)
        decay = 1 + beyond / _TAIL_SCALE
        with np.errstate(divide="ignore"):
            log_tail = np.log(tail * (_TAIL_SHAPE / _TAIL_SCALE)) - (_TAIL_SHAPE + 1) * np.log(decay)
            mass = tail * decay**-_TAIL_SHAPE
        u = np.where(v < 0, mass, np.where(v > 1, 1 - mass, self.low_tail + core * v))
        log_det = np.where(beyond > 0, log_tail, np.log(core)) - np.log(self.width)
        return u, log_det.sum(axis=-1)

    def from_unit(self, u: Array) -> Array:
        """Inverse of `to_unit`; 0 and 1 go to the ends of the support."""
        core = 1 - self.low_tail - self.high_tail
        with np.errstate(divide="ignore", invalid="ignore"):
            below = -_TAIL_SCALE * ((self.low_tail / u) ** (1 / _TAIL_SHAPE) - 1)
            above = 1 + _TAIL_SCALE * ((self.high_tail / (1 - u)) ** (1 / _TAIL_SHAPE) - 1)
            middle = np.clip((u - self.low_tail) / core, 0.0, 1.0)
        return np.where(u < self.low_tail, below, np.where(1 - u < self.high_tail, above, middle))

    def tail_moments(self) -> tuple[Array, Array]:
        """First and second moments of the distance beyond the box, in a tail, on the box's scale."""
        a, s = _TAIL_SHAPE, _TAIL_SCALE
        return np.array(s / (a - 1)), np.array(2 * s**2 / ((a - 1) * (a - 2)))
