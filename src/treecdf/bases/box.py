"""From the outcomes to the unit cube: user's unit <-> (rotated) <-> a box the trees work in <-> the unit cube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array, Bools
from treecdf.bases.protocol import Bound, Unconditional
from treecdf.bases.rotation import Rotation, length_of_constant

MARGIN = 0.1  # the box is wider than the training range by this share of its length on each side
_TAIL_SHAPE = 4.0  # survival of a tail falls like distance^-4, so that mean and variance exist
_TAIL_SCALE = 0.5  # length scale of a tail, in widths of the box


@dataclass(frozen=True)
class Support(Unconditional):
    """A box with a heavy tail beyond each end that is not a hard bound. All arrays have length d.

    The trees move points inside the box only, so a tail keeps its mass whatever the trees learn. With a rotation it
    is a box of the rotated outcomes.
    """

    low: Array  # ends of the box
    high: Array
    low_tail: Array  # mass below the box; 0 at a hard bound
    high_tail: Array  # mass above the box; 0 at a hard bound
    rotation: Rotation | None = None

    @staticmethod
    def fit(
        y: Array, weight: Array, bounds: Sequence[Bound], matrix: Array | None = None, margin: float = MARGIN
    ) -> Support:
        """The box of training outcomes y (n, d); each tail holds mass 1 / (2 (n + 1)), n the sum of the weights.

        It is wider than the training range by `margin` of its length on each side. With a rotation matrix (d, d) there
        are no hard bounds.
        """
        rotation = None if matrix is None else Rotation.fit(y, weight, matrix)
        if rotation is not None:
            y = rotation.turn(y)
        return Support.around(y.min(axis=0), y.max(axis=0), float(weight.sum()), bounds, rotation, margin)

    @staticmethod
    def around(
        smallest: Array,
        largest: Array,
        weight: float,
        bounds: Sequence[Bound],
        rotation: Rotation | None = None,
        margin: float = MARGIN,
    ) -> Support:
        """The box around the smallest and largest (rotated) training outcomes (d,), given their total weight."""
        length = largest - smallest
        beyond = np.where(length > 0, margin * length, length_of_constant(smallest))
        lower = np.array([np.nan if low is None else low for low, _ in bounds])
        upper = np.array([np.nan if high is None else high for _, high in bounds])
        tail = 0.5 / (weight + 1)
        return Support(
            low=np.where(np.isnan(lower), smallest - beyond, lower),
            high=np.where(np.isnan(upper), largest + beyond, upper),
            low_tail=np.where(np.isnan(lower), tail, 0.0),
            high_tail=np.where(np.isnan(upper), tail, 0.0),
            rotation=rotation,
        )

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return len(self.low)

    @property
    def width(self) -> Array:
        """Lengths (d,) of the box."""
        return self.high - self.low

    def to_box(self, y: Array, parameters: Array | None = None) -> tuple[Array, Array]:
        """Outcomes y (..., d) on the box's own scale, where it is (0, 1)^d; outcomes beyond it lie outside.

        The log-determinant (...) is that of the whole way y -> u without trees, -inf beyond a bound.
        """
        r = y if self.rotation is None else self.rotation.turn(y)
        with np.errstate(over="ignore"):
            v = np.clip((r - self.low) / self.width, -FAR, FAR)
        beyond = np.maximum(np.maximum(-v, v - 1), 0.0)
        tail = np.where(v < 0, self.low_tail, self.high_tail)
        with np.errstate(divide="ignore"):
            log_tail = np.log(tail * (_TAIL_SHAPE / _TAIL_SCALE)) - (_TAIL_SHAPE + 1) * np.log1p(beyond / _TAIL_SCALE)
        log_core = np.log(1 - self.low_tail - self.high_tail)
        log_det = (np.where(beyond > 0, log_tail, log_core) - np.log(self.width)).sum(axis=-1)
        return v, log_det + (0.0 if self.rotation is None else self.rotation.log_det)

    def from_box(self, v: Array, parameters: Array | None = None) -> Array:
        """Inverse of `to_box`."""
        # Two products, because width alone times a far v may overflow where the sum does not.
        with np.errstate(invalid="ignore", over="ignore"):
            r = np.where(np.isfinite(v), self.low * (1 - v) + self.high * v, v)
        if self.rotation is not None:
            return self.rotation.turn_back(r)
        hard_low, hard_high = np.where(self.low_tail, -np.inf, self.low), np.where(self.high_tail, np.inf, self.high)
        return np.clip(r, hard_low, hard_high)  # a bound holds to the last bit

    def inside(self, v: Array) -> Bools:
        """Whether points v (..., d) are inside the box on every axis, of shape (...)."""
        return np.all((v >= 0) & (v <= 1), axis=-1)

    def to_unit(self, v: Array) -> Array:
        """Points (..., d) of the unit cube, from points v (..., d) on the box's scale."""
        tail = np.where(v < 0, self.low_tail, self.high_tail)
        mass = tail * (1 + np.maximum(np.maximum(-v, v - 1), 0.0) / _TAIL_SCALE) ** -_TAIL_SHAPE
        core = 1 - self.low_tail - self.high_tail
        return np.where(v < 0, mass, np.where(v > 1, 1 - mass, self.low_tail + core * v))

    def from_unit(self, u: Array) -> Array:
        """Inverse of `to_unit`; 0 and 1 go to the ends of the support."""
        core = 1 - self.low_tail - self.high_tail
        with np.errstate(divide="ignore", invalid="ignore"):
            below = -_TAIL_SCALE * ((self.low_tail / u) ** (1 / _TAIL_SHAPE) - 1)
            above = 1 + _TAIL_SCALE * ((self.high_tail / (1 - u)) ** (1 / _TAIL_SHAPE) - 1)
            middle = np.clip((u - self.low_tail) / core, 0.0, 1.0)
        return np.where(u < self.low_tail, below, np.where(1 - u < self.high_tail, above, middle))
