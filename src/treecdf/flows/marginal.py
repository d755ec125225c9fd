"""One outcome of a joint distribution: its CDF, averaged over the outcomes that it depends on.

In a chain an outcome has an exact conditional distribution given those before it. Its marginal is the mean of these
over nodes, which represent the outcomes before it. The first outcome of a chain needs no average and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit
from scipy.stats import qmc

from treecdf._common.typing import Array, Bools
from treecdf.data.units import units_of_content
from treecdf.flows.arguments import Rows, read_rows
from treecdf.flows.chain import Chain
from treecdf.flows.curve import ROUGH, STEEP, Curve
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.flow import Conditions
from treecdf.flows.mixture import Flow, Mixture, take
from treecdf.flows.moments import gauss_legendre, moments_of_draws, moments_of_mixture

# Nodes that stand for one outcome before, in moments and in CDFs: levels that crowd at 0 and 1, for heavy tails.
_N_NODES_OF_ONE = 64
_N_NODES_OF_CDF = 96
# Nodes that stand for several outcomes before: quasi-random points of the cube.
_N_NODES_OF_MORE = 512
# Draws that stand for a flow of all outcomes at once, which has no conditional distributions.
_N_DRAWS = 2048
# Points of the grid on which a marginal's CDF is kept, before it is refined.
_N_POINTS = 192
# Levels of the quadrature.
_N_LEVELS = 128
_END = 3.9  # logits of the levels go to sinh of this: levels of 2e-11


class Part(Protocol):
    """One outcome of one member of a mixture at n rows."""

    def ask(self, y: Array, rows: Bools | slice) -> tuple[Array, Array]:
        """CDF and density (n, m) at outcomes y (n, m) that ascend at each of the rows."""
        ...

    def points(self) -> Array:
        """Outcomes (n, k) that outline the distribution."""
        ...


@dataclass(frozen=True)
class Conditionals:
    """Distributions of an outcome given those before it, at m nodes of each row."""

    link: Mixture
    given: Array  # (n m, q + k): covariates, and the outcomes before
    shares: Array  # (n, m): weights of the nodes, of sum one
    known: Conditions

    @staticmethod
    def of(
        chain: Chain, x: Array, j: int, m: int = _N_NODES_OF_ONE, known_of_x: Conditions | None = None
    ) -> Conditionals:
        """Outcome j of a chain at covariates x (n, q); a single outcome before it is represented by m nodes.

        `known_of_x`, if given, has the parameters of the first link's bases at x.
        """
        k = chain.order.index(j)
        first = {} if known_of_x is None else known_of_x
        before, shares = _nodes(chain, x, k, m, first)
        given = chain.covariates(x, k, before)
        known: Conditions = {} if k else first
        for flow in chain.links[k].tree_flows():
            flow.condition(given, known)
        return Conditionals(chain.links[k], given, shares, known)

    def ask(self, y: Array, rows: Bools | slice) -> tuple[Array, Array]:
        """CDF and density (n, m) at outcomes y (n, m) that ascend at each of the rows."""
        m = self.shares.shape[1]
        chosen = np.arange(len(self.given)).reshape(-1, m)[rows].ravel()
        both = self.link.cdf_and_density(np.repeat(y, m, axis=0), self.given[chosen], take(self.known, chosen))
        cdf, density = (_mean_over_nodes(values, self.shares[rows]) for values in both)
        return cdf, density

    def points(self) -> Array:
        """Knots of all nodes, thinned out."""
        n = len(self.shares)
        pooled = np.sort(self.link.at(self.given, self.known).knots().reshape(n, -1), axis=1)
        chosen = np.linspace(0, pooled.shape[1] - 1, min(_N_POINTS, pooled.shape[1])).astype(np.int64)
        return pooled[:, chosen]

    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation (n,), combined from those at the nodes."""
        mean, std = self.link.moments(self.given, self.known, passes=ROUGH)
        return moments_of_mixture(self.shares, mean.reshape(self.shares.shape), std.reshape(self.shares.shape))


@dataclass(frozen=True)
class Draws:
    """Draws (n, m) of an outcome, ascending at each row."""

    values: Array

    def ask(self, y: Array, rows: Bools | slice) -> tuple[Array, Array]:
        """CDF and density (n, m) at outcomes y (n, m): straight lines between the draws."""
        levels = (np.arange(self.values.shape[1]) + 0.5) / self.values.shape[1]
        own = self.values[rows]
        cdf = np.stack([np.interp(at, draws, levels, 0.0, 1.0) for at, draws in zip(y, own, strict=True)])
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.diff(cdf, axis=1) / np.diff(y, axis=1)
        return cdf, np.pad(np.nan_to_num(slope, posinf=0.0), ((0, 0), (0, 1)))

    def points(self) -> Array:
        """Some of the draws, the outermost among them."""
        return self.values[:, np.linspace(0, self.values.shape[1] - 1, _N_POINTS).astype(np.int64)]


def part_of(member: Flow, x: Array, j: int) -> Part:
    """Outcome j of a member of a mixture at covariates x (n, q)."""
    if isinstance(member, Chain):
        return Conditionals.of(member, x, j, _N_NODES_OF_CDF)
    return Draws(np.sort(_draws(member, x)[..., j], axis=1))


def marginal_curve(mixture: Mixture, x: Array, j: int) -> Curve:
    """CDF and density of outcome j on a grid at each row of x."""
    parts = [part_of(member, x, j) for member in mixture.members]
    weights = np.exp(mixture.log_weights_at(x))

    def ask(y: Array, rows: Bools | slice) -> tuple[Array, Array]:
        cdf, density = np.zeros(y.shape), np.zeros(y.shape)
        for part, weight in zip(parts, weights[rows].T, strict=True):
            own = part.ask(y, rows)
            cdf += weight[:, None] * own[0]
            density += weight[:, None] * own[1]
        return np.minimum(cdf, 1.0), density

    return Curve.trace(ask, np.hstack([part.points() for part in parts]), STEEP)


def joint_moments(mixture: Mixture, x: Array, known: Conditions) -> tuple[Array, Array]:
    """Means and standard deviations (n, d) of all outcomes at rows of x, where bases have the parameters `known`."""
    means, deviations = zip(*(_moments_of_member(member, x, known) for member in mixture.members), strict=True)
    weights = np.exp(mixture.log_weights_at(x))
    parts = [
        moments_of_mixture(weights, *(np.column_stack([own[:, j] for own in values]) for values in (means, deviations)))
        for j in range(mixture.n_outcomes)
    ]
    mean, std = (np.column_stack(part) for part in zip(*parts, strict=True))
    return mean, std


def _moments_of_member(member: Flow, x: Array, known: Conditions) -> tuple[Array, Array]:
    """Means and standard deviations (n, d) of all outcomes of one member."""
    if not isinstance(member, Chain):
        return moments_of_draws(_draws(member, x))
    parts = [Conditionals.of(member, x, j, known_of_x=known).moments() for j in range(member.n_outcomes)]
    mean, std = (np.column_stack(part) for part in zip(*parts, strict=True))
    return mean, std


def _draws(member: Flow, x: Array) -> Array:
    """Draws (n, m, d) of a flow of all outcomes."""
    return member.draw(quasi_random(x, _N_DRAWS, member.n_outcomes), x)


def quasi_random(x: Array, m: int, d: int) -> Array:
    """Quasi-random points (n, m, d) of the cube, shifted at each row of x by a vector of its own.

    The shift depends on the contents of the row, not on its number, so that rows do not share their errors.
    """
    points = qmc.Sobol(d, scramble=True, rng=np.random.default_rng(0)).random(m)
    return (points + _shifts(x, d)[:, None]) % 1.0


def _nodes(chain: Chain, x: Array, k: int, m: int, known: Conditions) -> tuple[Array, Array]:
    """Outcomes before link k at nodes of each row, as (n, m, d), and weights (n, m) of the nodes; m nodes if k is 1.

    Nodes of one outcome ascend. `known` has the parameters of the first link's bases at x.
    """
    d = chain.n_outcomes
    if k == 0:
        return np.empty((len(x), 1, d)), np.ones((len(x), 1))
    if k > 1:
        before = chain.first(k).draw(quasi_random(x, _N_NODES_OF_MORE, d), x, known)
        return before, np.full(before.shape[:2], 1 / before.shape[1])
    s = 2 * _END / m * (np.arange(m) + _shifts(x, 1)) - _END
    levels = expit(np.sinh(s))
    shares = np.cosh(s) * levels * (1 - levels)
    before = np.empty((len(x), m, d))
    before[..., chain.order[0]] = chain.links[0].curve(x, known, passes=STEEP).quantiles(levels)
    return before, shares / shares.sum(axis=1, keepdims=True)


def _shifts(x: Array, d: int) -> Array:
    """Pseudo-random numbers (n, d) between 0 and 1 that are computed from the rows of x."""
    units = units_of_content(list(x.T), np.empty((len(x), 0)))
    odd = np.cumprod(np.full(d, 0x9E3779B97F4A7C15, np.uint64))  # products of odd numbers, modulo 2^64
    return ((units[:, None] * odd) >> np.uint64(11)) / 2.0**53


def _mean_over_nodes(values: Array, shares: Array) -> Array:
    """Means (n, k) of values (n m, k) over the m nodes of each row."""
    n, m = shares.shape
    return np.asarray((values.reshape(n, m, -1) * shares[..., None]).sum(axis=1))


class Marginal(ConditionalDistribution):
    """One outcome of a joint distribution at n rows, given by its CDF on a grid of some 200 points at each row.

    CDF, density, quantiles, CRPS and draws are those of the cubics between the points.

    Parameters
    ----------
    curve : Curve
        CDF and density at the points.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf.flows.curve import ROUGH, STEEP, Curve
    >>> from treecdf.flows.marginal import Marginal
    >>> y = np.tile(np.linspace(0.0, 1.0, 11), (2, 1))
    >>> d = Marginal(Curve(y, y, np.ones(y.shape)))
    >>> d.cdf([0.25, 0.5]).round(2).tolist(), d.median().round(2).tolist()
    ([0.25, 0.5], [0.5, 0.5])
    """

    def __init__(self, curve: Curve) -> None:
        self._curve = curve

    def __len__(self) -> int:
        return len(self._curve.y)

    def __getitem__(self, rows: Rows) -> Marginal:
        return Marginal(self._curve.take(read_rows(rows, len(self))))

    @property
    def n_outcomes(self) -> int:
        """1: the marginal of one outcome."""
        return 1

    def _logpdf(self, points: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._curve.at(points[..., 0])[1])

    def _pit(self, points: Array) -> Array:
        return self._curve.at(points[..., 0])[0][..., None]

    def _icdf(self, levels: Array) -> Array:
        return self._curve.quantiles(levels)

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        return self._curve.quantiles(rng.random((len(self), n_samples)))[..., None]

    def _quadrature(self) -> tuple[Array, Array]:
        levels, weights = gauss_legendre(_N_LEVELS)
        return self._icdf(np.tile(levels, (len(self), 1))), np.tile(weights, (len(self), 1))

    def _crps(self, truth: Array) -> Array:
        return self._curve.with_point(truth).crps(truth)

    def _moments(self) -> tuple[Array, Array]:
        return self._curve.moments()

    def _marginal(self, j: int) -> Marginal:
        return self
