"""From the outcomes to the unit cube: user's unit <-> (rotated) <-> a box the trees work in <-> the unit cube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln, stdtr, stdtrit

Array = NDArray[np.float64]
Bound = tuple[float | None, float | None]

_MARGIN = 0.1  # the box is wider than the training range by this share of its length on each side
_TAIL_SHAPE = 4.0  # survival of a tail falls like distance^-4, so that mean and variance exist
_TAIL_SCALE = 0.5  # in widths of the box
_DEGREES = (100.0, 30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0)  # of freedom; three have a mean and a variance
_T_STEPS = 20  # of expectation maximisation for each
_SMALLEST_T_SCALE = 0.1  # in half widths of the central 80 %
_LARGEST_T_FIT = 20_000  # rows
_SMALL_LEVEL = 1e-100
_FAR = 1e300  # distances are cut here, so that every finite outcome has a finite log density


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
            return np.clip((y - self.center) / self.scale, -_FAR, _FAR) @ self.matrix

    def turn_back(self, r: Array) -> Array:
        """Inverse of `turn`."""
        with np.errstate(over="ignore"):
            return self.center + self.scale * (np.clip(r, -_FAR, _FAR) @ self.matrix.T)


def length_of_constant(value: Array) -> Array:
    """A length for outcomes that have none because they are constant."""
    return np.where(value != 0, np.maximum(np.abs(value) * 1e-3, 1e-300), 1.0)


class Base(Protocol):
    """What brings outcomes into the cube before the trees: a Support, a Student or a Conditional."""

    @property
    def rotation(self) -> Rotation | None:
        """What comes first, if anything."""
        ...

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        ...

    def parameters(self, x: Array) -> Array:
        """What the base knows (n, P) of rows with standardised covariates x (n, q)."""
        ...

    def seen(self, parameters: Array) -> Array:
        """Covariates (n, k) of the trees besides x."""
        ...

    def to_box(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """Where the trees see outcomes y (n, m, d), and the log-determinants (n, m) of the base."""
        ...

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Whether the trees act on points v (..., d)."""
        ...

    def to_unit(self, v: Array) -> Array:
        """After the trees, into the unit cube."""
        ...

    def from_unit(self, u: Array) -> Array:
        """Inverse of `to_unit`."""
        ...

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Inverse of `to_box`."""
        ...


class Unconditional:
    """A base that is the same for every x: it has no parameters, and the trees see nothing of it."""

    def parameters(self, x: Array) -> Array:
        """None (n, 0)."""
        return np.empty((len(x), 0))

    def seen(self, parameters: Array) -> Array:
        """Nothing (n, 0)."""
        return parameters


class Everywhere:
    """A base that maps onto the whole cube: the trees act on every point."""

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Every point is."""
        return np.ones(v.shape[:-1], bool)

    def to_unit(self, v: Array) -> Array:
        """There is nothing left to do."""
        return v

    def from_unit(self, u: Array) -> Array:
        """There is nothing to do yet."""
        return u


@dataclass(frozen=True)
class Support(Unconditional):
    """A box with a heavy tail beyond each end that is not a hard bound. All arrays have length d.

    The trees move points inside the box only, so a tail keeps its mass whatever the trees learn. With a rotation it
    is a box of the rotated outcomes.
    """

    low: Array
    high: Array
    low_tail: Array  # mass below the box; 0 at a hard bound
    high_tail: Array
    rotation: Rotation | None = None

    @staticmethod
    def fit(y: Array, weight: Array, bounds: Sequence[Bound], matrix: Array | None = None) -> Support:
        """From training outcomes y (n, d) of total weight n: each tail holds mass 1 / (2 (n + 1)).

        With a rotation matrix there are no hard bounds.
        """
        rotation = None if matrix is None else Rotation.fit(y, weight, matrix)
        if rotation is not None:
            y = rotation.turn(y)
        return Support.around(y.min(axis=0), y.max(axis=0), float(weight.sum()), bounds, rotation)

    @staticmethod
    def around(
        smallest: Array, largest: Array, weight: float, bounds: Sequence[Bound], rotation: Rotation | None = None
    ) -> Support:
        """From the ends (d,) of the (rotated) training outcomes and their total weight."""
        length = largest - smallest
        margin = np.where(length > 0, _MARGIN * length, length_of_constant(smallest))
        lower = np.array([np.nan if low is None else low for low, _ in bounds])
        upper = np.array([np.nan if high is None else high for _, high in bounds])
        tail = 0.5 / (weight + 1)
        return Support(
            low=np.where(np.isnan(lower), smallest - margin, lower),
            high=np.where(np.isnan(upper), largest + margin, upper),
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
        """Lengths of the box."""
        return self.high - self.low

    def to_box(self, y: Array, parameters: Array | None = None) -> tuple[Array, Array]:
        """Outcomes y (..., d) on the box's own scale, where it is (0, 1)^d; outcomes beyond it lie outside.

        The log-determinant (...) is that of the whole way y -> u without trees, -inf beyond a bound.
        """
        r = y if self.rotation is None else self.rotation.turn(y)
        with np.errstate(over="ignore"):
            v = np.clip((r - self.low) / self.width, -_FAR, _FAR)
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

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Whether points v (..., d) are inside the box on every axis."""
        return np.all((v >= 0) & (v <= 1), axis=-1)

    def to_unit(self, v: Array) -> Array:
        """Box scale v (..., d) -> the unit cube."""
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

    def tail_moments(self) -> tuple[Array, Array]:
        """First and second moments of the distance beyond the box, in a tail, on the box's scale."""
        a, s = _TAIL_SHAPE, _TAIL_SCALE
        return np.array(s / (a - 1)), np.array(2 * s**2 / ((a - 1) * (a - 2)))


@dataclass(frozen=True)
class Student(Unconditional, Everywhere):
    """Each (rotated) outcome through the CDF of a Student t: the trees act everywhere, the tails are the t's.

    All arrays have length d.
    """

    location: Array
    scale: Array
    dof: Array
    rotation: Rotation | None = None

    @staticmethod
    def fit(y: Array, weight: Array, matrix: Array | None = None) -> Student:
        """By maximum likelihood from training outcomes y (n, d)."""
        rotation = None if matrix is None else Rotation.fit(y, weight, matrix)
        r = y if rotation is None else rotation.turn(y)
        location, scale, dof = np.array([_fit_t(column, weight) for column in r.T]).T
        return Student(location, scale, dof, rotation)

    @staticmethod
    def step(n: int) -> int:
        """`fit` looks at one in so many of n rows."""
        return max(1, n // _LARGEST_T_FIT)

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return len(self.location)

    def to_box(self, y: Array, parameters: Array | None = None) -> tuple[Array, Array]:
        """CDF values of outcomes y (..., d) and the log-determinant (...)."""
        r = y if self.rotation is None else self.rotation.turn(y)
        with np.errstate(over="ignore"):
            t = np.clip((r - self.location) / self.scale, -_FAR, _FAR)
        log_det = (_t_log_density(t, self.dof) - np.log(self.scale)).sum(axis=-1)
        return stdtr(self.dof, t), log_det + (0.0 if self.rotation is None else self.rotation.log_det)

    def from_box(self, v: Array, parameters: Array | None = None) -> Array:
        """Inverse of `to_box`; 0 and 1 go to the ends of the line."""
        with np.errstate(over="ignore"):
            r = self.location + self.scale * _t_quantile(v, self.dof)
        return r if self.rotation is None else self.rotation.turn_back(r)


def _t_quantile(p: Array, dof: Array) -> Array:
    """Quantiles of the standard Student t; SciPy's own are of the wrong sign at the smallest levels."""
    with np.errstate(divide="ignore"):
        z = betaincinv(dof / 2, 0.5, 2 * np.minimum(p, _SMALL_LEVEL))
        return np.where(p < _SMALL_LEVEL, -np.sqrt(dof * (1 - z) / z), stdtrit(dof, p))


def _t_log_density(t: Array, dof: Array) -> Array:
    """Log density of the standard Student t, without overflow."""
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - np.log(dof * np.pi) / 2
    return constant - (dof + 1) * np.log(np.hypot(1.0, t / np.sqrt(dof)))


def _fit_t(y: Array, weight: Array) -> tuple[float, float, float]:
    """Location, scale and degrees of freedom of outcomes y (n,), by expectation maximisation on a grid of the last."""
    step = Student.step(len(y))
    y, share = y[::step], weight[::step] / weight[::step].sum()
    low, center, high = _quantiles(y, share, (0.1, 0.5, 0.9))
    spread = high / 2 - low / 2
    if spread == 0:
        spread = float(share @ np.abs(y - center))
    if spread == 0:
        return center, float(length_of_constant(np.array(center))), _DEGREES[0]
    z = np.clip((y - center) / spread, -1e100, 1e100)
    location, scale = 0.0, 1.0
    best = (-np.inf, location, scale, _DEGREES[0])
    for dof in _DEGREES:
        for _ in range(_T_STEPS):
            trust = share * (dof + 1) / (dof + ((z - location) / scale) ** 2)
            location = float(trust @ z / trust.sum())
            # Many equal outcomes would draw the scale to zero; resolving them is for the trees.
            scale = max(float(np.sqrt(trust @ (z - location) ** 2)), _SMALLEST_T_SCALE)
        log_lik = float(share @ _t_log_density((z - location) / scale, np.array(dof))) - np.log(scale)
        best = max(best, (log_lik, location, scale, dof))
    _, location, scale, dof = best
    return center + spread * location, spread * scale, dof


def _quantiles(y: Array, share: Array, levels: Sequence[float]) -> list[float]:
    """Weighted quantiles of y (n,)."""
    order = np.argsort(y, kind="stable")
    reached = np.searchsorted(np.cumsum(share[order]), levels)
    return [float(y[order[min(k, len(y) - 1)]]) for k in reached]
