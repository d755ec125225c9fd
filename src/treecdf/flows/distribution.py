"""The conditional distributions at some rows of covariates, as one object."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import qmc

from treecdf._common.random import as_generator
from treecdf._common.typing import Array
from treecdf.bases.box import Support
from treecdf.data.table import read_outcomes
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Flow, Mixture

# Moments and CRPS of one outcome integrate the quantile function of every member at this many levels; mean and CRPS
# are then within 0.005 standard deviations of the exact ones, the standard deviation within 1 %.
_N_LEVELS = 128
_N_LEVELS_OF_MEMBERS = 64  # of several, whose errors average out
# Moments of several outcomes come from this many quasi-random points of the cube.
_N_POINTS = 512


class ConditionalDistribution:
    """p(y | x) at n rows of covariates; slicing takes rows.

    One outcome: logpdf, pdf and cdf take y of shape (n,), or (n, m) for m points at each row, and return the same
    shape; cdf and icdf are exact. Several outcomes: y is (n, d) or (n, m, d).
    """

    def __init__(self, mixture: Mixture, x: Array, n_threads: int = 1) -> None:
        self._mixture, self._x, self._n_threads = mixture, x, n_threads

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Any) -> ConditionalDistribution:
        x = self._x[rows]
        return ConditionalDistribution(self._mixture, x[None, :] if x.ndim == 1 else x, self._n_threads)

    def __repr__(self) -> str:
        return f"ConditionalDistribution({len(self)} rows, {self.n_outcomes} outcome(s))"

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self._mixture.n_outcomes

    @property
    def weights(self) -> Array:
        """Weights (n, members) of the flows at each row."""
        return np.exp(self._mixture.log_weights_at(self._x))

    # Densities and the flow itself

    def logpdf(self, y: ArrayLike) -> Array:
        """Exact log density in the outcome's own unit."""
        points, shape = self._points(y)
        return self._mixture.log_prob(points, self._x, self._n_threads).reshape(shape)

    def pdf(self, y: ArrayLike) -> Array:
        """Exact density in the outcome's own unit, infinite where it is beyond the range of float64."""
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(y))

    def pit(self, y: ArrayLike) -> Array:
        """The flow's own u: independent uniforms if the model is right. One outcome: the CDF.

        A mixture of flows of several outcomes has no such u.
        """
        points, shape = self._points(y)
        if not self._mixture.is_flow:
            raise ValueError(
                f"pit is for a single flow; this is a mixture of {len(self._mixture.members)}: see marginal(j).cdf."
            )
        u = self._mixture.forward_and_log_det(points, self._x, self._n_threads)[0]
        return u.reshape(shape if self.n_outcomes == 1 else (*shape, self.n_outcomes))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws: (n, n_samples) for one outcome, (n, n_samples, d) for several."""
        rng = as_generator(random_state)
        u = rng.random((len(self), n_samples, self.n_outcomes))
        y = self._mixture.draw(u, self._x, self._n_threads)
        return y[..., 0] if self.n_outcomes == 1 else y

    # Exact for one outcome

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y), exactly."""
        self._one_outcome("cdf")
        return self.pit(y)

    def icdf(self, p: ArrayLike) -> Array:
        """Quantiles, exactly: (n,) for a scalar level, (n, m) for m levels, or levels (n, m) row by row."""
        self._one_outcome("icdf")
        levels, is_scalar = self._read_levels(p)
        y = self._mixture.inverse(levels[..., None], self._x, self._n_threads)[..., 0]
        order = np.argsort(levels, axis=1)  # in which rounding must not let quantiles descend
        np.put_along_axis(y, order, np.maximum.accumulate(np.take_along_axis(y, order, 1), axis=1), 1)
        return y[:, 0] if is_scalar else y

    ppf = icdf

    def median(self) -> Array:
        """The 50 % quantile."""
        return self.icdf(0.5)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Ends of the central interval that holds `level` of the probability."""
        if not 0 < level < 1:
            raise ValueError(f"Expected a level between 0 and 1; got {level}.")
        low, high = self.icdf([(1 - level) / 2, (1 + level) / 2]).T
        return low, high

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of outcomes y (n,), lower is better; see the module for accuracy."""
        self._one_outcome("crps")
        truth = read_outcomes(y, 1)
        if len(truth) != len(self):
            raise ValueError(f"Expected y with {len(self)} rows; got {len(truth)}.")
        return crps_of_atoms(*self.quadrature(), truth)

    def quadrature(self) -> tuple[Array, Array]:
        """Values (n, k) of one outcome and masses (n, k) that stand for the distribution in integrals."""
        self._one_outcome("quadrature")
        levels, weights = _gauss_legendre(self._n_levels)
        members = [flow.inverse(self._levels(levels), self._x)[..., 0] for flow in self._mixture.members]
        return np.hstack(members), (self.weights[:, :, None] * weights).reshape(len(self), -1)

    # Moments

    def mean(self) -> Array:
        """Conditional mean, (n,) or (n, d)."""
        if self.n_outcomes > 1:
            draws, unit = self._quasi_sample_in_units()
            return draws.mean(axis=1) * unit
        return self._moments[0]

    def std(self) -> Array:
        """Conditional standard deviation of each outcome, (n,) or (n, d)."""
        if self.n_outcomes > 1:
            draws, unit = self._quasi_sample_in_units()
            return draws.std(axis=1) * unit
        return self._moments[1]

    def var(self) -> Array:
        """Conditional variance of each outcome, (n,) or (n, d)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.std() ** 2

    def marginal(self, j: int) -> SampledMarginal:
        """Distribution of outcome j alone, from quasi-random draws of the joint one."""
        if not -self.n_outcomes <= j < self.n_outcomes:
            raise IndexError(f"Expected an outcome below {self.n_outcomes}; got {j}.")
        return SampledMarginal(self._quasi_sample(_N_POINTS)[..., j])

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of one outcome."""
        parts = [self._flow_moments(flow) for flow in self._mixture.members]
        if len(parts) == 1:
            return parts[0]
        means, deviations = (np.column_stack(part) for part in zip(*parts, strict=True))
        share = self.weights
        mean = (share * means).sum(axis=1)
        spread = np.hypot(deviations, means - mean[:, None])
        unit = spread.max(axis=1, keepdims=True)
        unit[unit == 0] = 1.0
        return mean, unit[:, 0] * np.sqrt((share * (spread / unit) ** 2).sum(axis=1))

    def _flow_moments(self, flow: Flow) -> tuple[Array, Array]:
        """Mean and standard deviation of one flow of one outcome."""
        base = flow.base if isinstance(flow, TreeFlow) else None
        if isinstance(base, Support):
            mean, variance = self._box_moments(flow, base)
            return base.from_box(mean[:, None])[:, 0], np.sqrt(variance) * base.width[0]
        levels, weights = _double_exponential(self._n_levels)
        quantiles = flow.inverse(self._levels(levels), self._x)[..., 0]
        mean = quantiles @ weights
        away = quantiles - mean[:, None]
        unit = np.abs(away).max(axis=1, keepdims=True)
        unit[unit == 0] = 1.0
        return mean, unit[:, 0] * np.sqrt((away / unit) ** 2 @ weights)

    def _box_moments(self, flow: Flow, support: Support) -> tuple[Array, Array]:
        """Mean and variance of one outcome on the scale of the support's box: core by quadrature, tails exactly."""
        low, high = float(support.low_tail[0]), float(support.high_tail[0])
        levels, weights = _gauss_legendre(self._n_levels)
        quantiles = flow.inverse(self._levels(low + (1 - low - high) * levels), self._x)
        core = support.to_box(quantiles)[0][..., 0]
        first, second = support.tail_moments()
        mean = (1 - low - high) * core @ weights - low * first + high * (1 + first)
        variance = (1 - low - high) * (core - mean[:, None]) ** 2 @ weights
        variance += low * (second + 2 * first * mean + mean**2)
        variance += high * (second + 2 * first * (1 - mean) + (1 - mean) ** 2)
        return mean, variance

    @property
    def _n_levels(self) -> int:
        return _N_LEVELS if len(self._mixture.members) == 1 else _N_LEVELS_OF_MEMBERS

    def _levels(self, levels: Array) -> Array:
        """The same levels at every row, as points of the cube (n, m, 1)."""
        return np.tile(levels[:, None], (len(self), 1, 1))

    def _quasi_sample(self, m: int) -> Array:
        u = qmc.Sobol(self.n_outcomes, scramble=True, rng=np.random.default_rng(0)).random(m)
        draws = np.empty((len(self), m, self.n_outcomes))
        for i in range(0, len(self), 1024):
            x = self._x[i : i + 1024]
            draws[i : i + 1024] = self._mixture.draw(np.tile(u, (len(x), 1, 1)), x, self._n_threads)
        return draws

    def _quasi_sample_in_units(self) -> tuple[Array, Array]:
        """Draws and a unit (d,) of each outcome, in which their squares neither overflow nor vanish."""
        draws = self._quasi_sample(_N_POINTS)
        unit = np.abs(draws).max(axis=(0, 1))
        unit[unit == 0] = 1.0
        return draws / unit, unit

    # Arguments

    def _one_outcome(self, name: str) -> None:
        if self.n_outcomes > 1:
            raise ValueError(f"{name} is for one outcome; this distribution has {self.n_outcomes}: see marginal.")

    def _read_levels(self, p: ArrayLike) -> tuple[Array, bool]:
        """Levels (n, m), and whether a single one was given."""
        levels = np.asarray(p, dtype=np.float64)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError("Expected levels between 0 and 1.")
        if levels.ndim > 2 or (levels.ndim == 2 and len(levels) != len(self)):
            raise ValueError(f"Expected levels of shape (m,) or ({len(self)}, m); got {levels.shape}.")
        shape = (len(self), levels.shape[-1] if levels.ndim else 1)
        return np.array(np.broadcast_to(np.atleast_1d(levels), shape)), levels.ndim == 0

    def _points(self, y: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        """Outcomes as (n, m, d), and the shape the answer should have."""
        values = np.asarray(y, dtype=np.float64)
        n, d = len(self), self.n_outcomes
        if np.isnan(values).any():
            raise ValueError("y contains NaN.")
        if values.ndim and len(values) == n:
            if d == 1 and values.ndim == 1:
                return values[:, None, None], (n,)
            if d == 1 and values.ndim == 2:
                return np.ascontiguousarray(values)[:, :, None], values.shape
            if d > 1 and values.ndim == 2 and values.shape[1] == d:
                return np.ascontiguousarray(values)[:, None, :], (n,)
            if d > 1 and values.ndim == 3 and values.shape[2] == d:
                return np.ascontiguousarray(values), values.shape[:2]
        expected = f"({n},) or ({n}, m)" if d == 1 else f"({n}, {d}) or ({n}, m, {d})"
        raise ValueError(f"Expected y of shape {expected}; got {values.shape}.")


class SampledMarginal:
    """One outcome of a joint distribution, known through draws (n, m): an approximation."""

    def __init__(self, draws: Array) -> None:
        self._draws = np.sort(draws, axis=1)

    def __len__(self) -> int:
        return len(self._draws)

    def cdf(self, y: ArrayLike) -> Array:
        """Share of the draws at or below y (n,)."""
        values = np.asarray(y, dtype=np.float64)
        if values.shape != (len(self),):
            raise ValueError(f"Expected y of shape ({len(self)},); got {values.shape}.")
        return (self._draws <= values[:, None]).mean(axis=1)

    def icdf(self, p: ArrayLike) -> Array:
        """Quantiles of the draws: (n,) for a scalar level, (n, m) for m levels."""
        return np.moveaxis(np.quantile(self._draws, np.asarray(p, dtype=np.float64), axis=1), -1, 0)

    ppf = icdf

    def mean(self) -> Array:
        """Mean of the draws."""
        return self._draws.mean(axis=1)

    def var(self) -> Array:
        """Variance of the draws."""
        return self._draws.var(axis=1)

    def std(self) -> Array:
        """Standard deviation of the draws."""
        return self._draws.std(axis=1)

    def median(self) -> Array:
        """Median of the draws."""
        return self.icdf(0.5)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Ends of the central interval that holds `level` of the draws."""
        low, high = self.icdf([(1 - level) / 2, (1 + level) / 2]).T
        return low, high


def crps_of_atoms(atoms: Array, mass: Array, truth: Array) -> Array:
    """CRPS (n,) of distributions that sit on atoms (n, k) with masses (n, k), at outcomes truth (n, 1)."""
    order = np.argsort(atoms, axis=1)
    atoms, mass = np.take_along_axis(atoms, order, 1), np.take_along_axis(mass, order, 1)
    middle = np.cumsum(mass, axis=1) - mass / 2
    return 2 * (mass * (middle - (truth <= atoms)) * (truth - atoms)).sum(axis=1)


def _gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


def _double_exponential(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) on (0, 1) that crowd at its ends, where quantiles of heavy tails run away."""
    s = np.linspace(-2.9, 2.9, n)
    nodes = expit(np.pi * np.sinh(s))
    weights = np.cosh(s) * nodes * (1 - nodes)
    return nodes, weights / weights.sum()
