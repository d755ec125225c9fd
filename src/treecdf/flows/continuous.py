"""Conditional distributions of outcomes that are continuous: those of a mixture of flows."""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from treecdf._common.typing import Array
from treecdf.bases.box import Support
from treecdf.flows.arguments import Rows, read_rows
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.flow import TreeFlow
from treecdf.flows.marginal import SampledMarginal
from treecdf.flows.mixture import Flow, Mixture
from treecdf.flows.moments import (
    double_exponential,
    gauss_legendre,
    moments_of_draws,
    moments_of_mixture,
    root_mean_square,
)

# Integrals over one outcome take the quantile function of a single flow at this many levels.
_N_LEVELS = 128
# Each member of a mixture has so many levels; the errors of members average out.
_N_LEVELS_OF_MEMBERS = 64
# Moments and marginals of several outcomes come from this many quasi-random points of the cube.
_N_POINTS = 512
# Rows whose quasi-random points are worked on together.
_CHUNK_ROWS = 1024


class FlowDistribution(ConditionalDistribution):
    """p(y | x) of a mixture of flows at n rows of covariates; see ConditionalDistribution for its methods.

    Parameters
    ----------
    mixture : Mixture
        The fitted flows and their weights.
    x : array of shape (n, q)
        Covariates as the flows see them.
    n_threads : int, default 1
        Threads that share the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> d = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2).predict_distribution(x)
    >>> type(d).__name__, d.weights.shape[0]
    ('FlowDistribution', 80)
    """

    def __init__(self, mixture: Mixture, x: Array, n_threads: int = 1) -> None:
        self._mixture, self._x, self._n_threads = mixture, x, n_threads

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Rows) -> FlowDistribution:
        return FlowDistribution(self._mixture, self._x[read_rows(rows, len(self))], self._n_threads)

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self._mixture.n_outcomes

    @property
    def weights(self) -> Array:
        """Weights (n, members) of the flows at each row."""
        return np.exp(self._mixture.log_weights_at(self._x))

    def quasi_sample(self) -> Array:
        """Draws (n, 512, d) made of the same quasi-random points at every row."""
        u = qmc.Sobol(self.n_outcomes, scramble=True, rng=np.random.default_rng(0)).random(_N_POINTS)
        draws = np.empty((len(self), _N_POINTS, self.n_outcomes))
        for i in range(0, len(self), _CHUNK_ROWS):
            x = self._x[i : i + _CHUNK_ROWS]
            draws[i : i + _CHUNK_ROWS] = self._mixture.draw(np.tile(u, (len(x), 1, 1)), x, self._n_threads)
        return draws

    def _logpdf(self, points: Array) -> Array:
        return self._mixture.log_prob(points, self._x, self._n_threads)

    def _pit(self, points: Array) -> Array:
        if not self._mixture.is_flow:
            raise ValueError(
                f"pit is for a single flow; this is a mixture of {len(self._mixture.members)}: see marginal(j).cdf."
            )
        return self._mixture.forward_and_log_det(points, self._x, self._n_threads)[0]

    def _icdf(self, levels: Array) -> Array:
        return self._mixture.inverse(levels[..., None], self._x, self._n_threads)[..., 0]

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        return self._mixture.draw(rng.random((len(self), n_samples, self.n_outcomes)), self._x, self._n_threads)

    def _quadrature(self) -> tuple[Array, Array]:
        levels, weights = gauss_legendre(self._n_levels)
        members = [flow.inverse(self._levels(levels), self._x)[..., 0] for flow in self._mixture.members]
        values = np.hstack(members)
        return values, (self.weights[:, :, None] * weights).reshape(values.shape)

    def _marginal(self, j: int) -> SampledMarginal:
        return SampledMarginal(self.quasi_sample()[..., j])

    def _moments(self) -> tuple[Array, Array]:
        if self.n_outcomes > 1:
            return moments_of_draws(self.quasi_sample())
        parts = [self._flow_moments(flow) for flow in self._mixture.members]
        if len(parts) == 1:
            return parts[0]
        means, deviations = (np.column_stack(part) for part in zip(*parts, strict=True))
        return moments_of_mixture(self.weights, means, deviations)

    def _flow_moments(self, flow: Flow) -> tuple[Array, Array]:
        """Mean and standard deviation (n,) of one flow of one outcome."""
        base = flow.base if isinstance(flow, TreeFlow) else None
        if isinstance(base, Support):
            mean, variance = self._box_moments(flow, base)
            return base.from_box(mean[:, None])[:, 0], np.sqrt(variance) * base.width[0]
        levels, weights = double_exponential(self._n_levels)
        quantiles = flow.inverse(self._levels(levels), self._x)[..., 0]
        mean = quantiles @ weights
        return mean, root_mean_square(quantiles - mean[:, None], weights)

    def _box_moments(self, flow: Flow, support: Support) -> tuple[Array, Array]:
        """Mean and variance (n,) on the scale of the support's box: the core by quadrature, the tails exactly."""
        low, high = float(support.low_tail[0]), float(support.high_tail[0])
        levels, weights = gauss_legendre(self._n_levels)
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
        """Levels at which each flow's quantile function is taken."""
        return _N_LEVELS if len(self._mixture.members) == 1 else _N_LEVELS_OF_MEMBERS

    def _levels(self, levels: Array) -> Array:
        """The same levels at every row, as points of the cube (n, m, 1)."""
        return np.tile(levels[:, None], (len(self), 1, 1))
