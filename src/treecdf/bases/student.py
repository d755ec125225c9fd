"""A base that sends each outcome through the CDF of a Student t, or of the normal distribution, its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, gammaln, ndtr, ndtri, stdtr, stdtrit

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array
from treecdf.bases.protocol import Unconditional, WholeCube
from treecdf.bases.rotation import Rotation, length_of_constant

DEGREES = (100.0, 30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0)  # of freedom that are tried; with three a variance exists
NORMAL = np.inf  # degrees of freedom of the normal distribution
_FAR_OF_NORMAL = 1e150  # distances are cut here, so that their squares are finite
_T_STEPS = 20  # steps of expectation maximisation for each of these
_SMALLEST_T_SCALE = 0.1  # smallest scale, in half widths of the central 80 %
_LARGEST_T_FIT = 20_000  # rows that a fit looks at, about
_SMALL_LEVEL = 1e-100  # levels below which quantiles come from the incomplete beta function


@dataclass(frozen=True)
class Student(Unconditional, WholeCube):
    """Each (rotated) outcome goes through the CDF of a Student t, which gives the tails; the trees move every point.

    All arrays have length d.
    """

    location: Array
    scale: Array
    dof: Array
    rotation: Rotation | None = None

    @staticmethod
    def fit(y: Array, weight: Array, matrix: Array | None = None, degrees: Sequence[float] = DEGREES) -> Student:
        """The Student t of each training outcome y (n, d) by maximum likelihood, after a rotation (d, d) if given."""
        rotation = None if matrix is None else Rotation.fit(y, weight, matrix)
        r = y if rotation is None else rotation.turn(y)
        location, scale, dof = np.array([_fit_t(column, weight, degrees) for column in r.T]).T
        return Student(location, scale, dof, rotation)

    @staticmethod
    def step(n: int) -> int:
        """The number s such that `fit` looks at one in s of n rows."""
        return max(1, n // _LARGEST_T_FIT)

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return len(self.location)

    def to_box(self, y: Array, parameters: Array | None = None) -> tuple[Array, Array]:
        """CDF values of outcomes y (..., d) and the log-determinant (...)."""
        r = y if self.rotation is None else self.rotation.turn(y)
        with np.errstate(over="ignore"):
            t = np.clip((r - self.location) / self.scale, -FAR, FAR)
        log_det = (_t_log_density(t, self.dof) - np.log(self.scale)).sum(axis=-1)
        return _t_cdf(t, self.dof), log_det + (0.0 if self.rotation is None else self.rotation.log_det)

    def from_box(self, v: Array, parameters: Array | None = None) -> Array:
        """Inverse of `to_box`; 0 and 1 go to the ends of the line."""
        with np.errstate(over="ignore"):
            r = self.location + self.scale * _t_quantile(v, self.dof)
        return r if self.rotation is None else self.rotation.turn_back(r)


def _t_cdf(t: Array, dof: Array) -> Array:
    """CDF of the standard Student t."""
    return np.where(dof == NORMAL, ndtr(t), stdtr(np.minimum(dof, DEGREES[0]), t))


def _t_quantile(p: Array, dof: Array) -> Array:
    """Quantiles of the standard Student t; SciPy's own are of the wrong sign at the smallest levels."""
    is_normal, dof = dof == NORMAL, np.minimum(dof, DEGREES[0])
    with np.errstate(divide="ignore"):
        z = betaincinv(dof / 2, 0.5, 2 * np.minimum(p, _SMALL_LEVEL))
        quantile = np.where(p < _SMALL_LEVEL, -np.sqrt(dof * (1 - z) / z), stdtrit(dof, p))
    return np.where(is_normal, ndtri(p), quantile)


def _t_log_density(t: Array, dof: Array) -> Array:
    """Log density of the standard Student t, without overflow."""
    is_normal, dof = dof == NORMAL, np.minimum(dof, DEGREES[0])
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - np.log(dof * np.pi) / 2
    log_density = constant - (dof + 1) * np.log(np.hypot(1.0, t / np.sqrt(dof)))
    of_normal = -(np.clip(t, -_FAR_OF_NORMAL, _FAR_OF_NORMAL) ** 2) / 2 - np.log(2 * np.pi) / 2
    return np.where(is_normal, of_normal, log_density)


def _fit_t(y: Array, weight: Array, degrees: Sequence[float]) -> tuple[float, float, float]:
    """Location, scale and degrees of freedom of outcomes y (n,), by expectation maximisation on a grid of the last.

    It always takes all its steps, each degree beginning where the one before ended. On samples of nine
    shapes the log-likelihood was within 2e-7 nats a row of twenty times as many steps.
    """
    step = Student.step(len(y))
    y, share = y[::step], weight[::step] / weight[::step].sum()
    low, center, high = _quantiles(y, share, (0.1, 0.5, 0.9))
    spread = high / 2 - low / 2
    if spread == 0:
        spread = float(share @ np.abs(y - center))
    if spread == 0:
        return center, float(length_of_constant(np.array(center))), degrees[0]
    z = np.clip((y - center) / spread, -1e100, 1e100)
    location, scale = 0.0, 1.0
    best = (-np.inf, location, scale, degrees[0])
    for dof in degrees:
        for _ in range(_T_STEPS):
            far = ((z - location) / scale) ** 2
            trust = share if dof == NORMAL else share * (dof + 1) / (dof + far)
            location = float(trust @ z / trust.sum())
            # Many equal outcomes would draw the scale to zero; resolving them is for the trees.
            scale = max(float(np.sqrt(trust @ (z - location) ** 2)), _SMALLEST_T_SCALE)
        log_lik = float(share @ _t_log_density((z - location) / scale, np.array(dof))) - np.log(scale)
        best = max(best, (log_lik, location, scale, dof))
    _, location, scale, dof = best
    return center + spread * location, spread * scale, dof


def _quantiles(y: Array, share: Array, levels: Sequence[float]) -> list[float]:
    """Weighted quantiles of y (n,): the smallest values that a share of at least each level does not exceed.

    `np.quantile(..., weights=share, method="inverted_cdf")` divides by the sum of the shares once more. Where a level
    is met exactly that moves a quantile to the next row: it did in one of six random tables of 5 to 1500 rows, and
    would change the models on them.
    """
    order = np.argsort(y, kind="stable")
    reached = np.searchsorted(np.cumsum(share[order]), levels)
    return [float(y[order[min(k, len(y) - 1)]]) for k in reached]
