"""The conditional base: a mixture of Student t or normal components whose parameters depend on x.

Density, CDF, quantiles, bounds and tails are written here once; what gives locations, log scales and weights at x, and
how it is learnt, is in `stacked`, `boosted_mixture` and `network_mixture`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from treecdf._common.numerics import FAR, log_sum_exp, moments_of_mixture
from treecdf._common.random import child
from treecdf._common.steps import PLAIN_STEPS, Steps
from treecdf._common.telling import part
from treecdf._common.typing import Array, Ints
from treecdf._kernels.mixtures import mixture_densities, mixture_forward, mixture_inverse
from treecdf._kernels.outcomes import component_moments
from treecdf._kernels.tails import T3, T5
from treecdf.bases.components import ComponentLearner, Components
from treecdf.bases.mean import TrainingRows
from treecdf.bases.protocol import Bound, WholeCube
from treecdf.bases.reach import Reach, widened
from treecdf.bases.selection import choose_transform
from treecdf.bases.straightening import choose_scale
from treecdf.bases.tail_nodes import nodes_of_tail
from treecdf.bases.transform import OutcomeTransform
from treecdf.bases.versions import averaged, padded
from treecdf.data.recording import recording_step

_FLOOR = 0.4  # scales are at least this share of the outcome's recording step
_FLOOR_OF_CELLS = 0.02  # the same where likelihoods are those of cells, which no spike makes more likely
_SMALLEST_LOG_SCALE = -9.0  # scales are at least this, however exact the learners are
_LARGEST_LOG_SCALE = 10.0  # scales are at most this, whatever the trees say
_BROAD_SCALE = 2.0  # standard deviations of the outcome: scale of the component for rows that nobody foresaw
_BROAD_SCALE_OF_LOGS = 1.0  # the same after logarithms, where twice as much would be orders of magnitude
_SMALLEST_MASS = 1e-300  # of a cell, whose logarithm stays finite
_NUMBERS_AT_ONCE = 2**16  # in rows with missing values that are worked on together: each has 64 versions
_WORTH_OF_BROAD = 1.0  # nats of all rows together that more weight of the broad component has to gain
_WIDEST = 0.95  # quantile of the training rows' standard deviations that `widest` is
# Standard deviation of each tail at scale 1, as the trees see it; t with 1 and 2 degrees of freedom have none.
_SPREAD = np.array([3.0, 2.0, np.sqrt(3), np.sqrt(5 / 3), np.sqrt(5 / 4), 1.0])
# Where the CDF of a component is looked at, in scales from its location: even steps, then a growing distance
_STEPS = np.concatenate([np.arange(0.35, 2.0, 0.35), 2.1 * 1.55 ** np.arange(11)])
_KNOTS = np.concatenate([-_STEPS[::-1], [0.0], _STEPS])


@dataclass(frozen=True)
class Conditional(WholeCube):
    """A base whose location, scale and shape depend on x; one outcome.

    Its parameters at a row are the locations, log scales and log weights of the components, (n, 3 J), all on the
    transformed scale of the outcome.
    """

    transform: OutcomeTransform
    components: Components
    tail: int  # of all components but the broad one
    floor: float  # smallest log scale
    log_broad: float  # log weight of the broad component
    bound: tuple[float, float]  # on the transformed scale; infinite where there is none
    support: tuple[float, float]  # the same in the outcome's own unit
    range: tuple[Array, Array]  # of the covariates, three times that of the training rows; they are held at its ends
    typical: tuple[Array, Array]  # mean and scale of what the trees see
    reach: Reach  # of the training rows
    widest: float  # log scale of a component as wide as most training rows' distributions are at most
    rotation: None = None

    @staticmethod
    def cross_fit(
        learner: ComponentLearner,
        rows: TrainingRows,
        bound: Bound,
        rng: np.random.Generator,
        steps: Steps = PLAIN_STEPS,
    ) -> tuple[Conditional, Array]:
        """The base for new rows, and the out-of-fold parameters (n, 3 J) of the training rows.

        Parameters
        ----------
        learner : ComponentLearner
            What learns the components.
        rows : TrainingRows
            Standardised covariates (n, q), outcomes (n,), weights and folds (n,), and ends of cells if there are.
        bound : pair of float or None
            Hard bounds of the outcome, None where there is none.
        rng : numpy.random.Generator
            The only source of randomness.
        steps : Steps, optional
            What runs the learners and the boosting; it may keep what they gave, or stop.

        Returns
        -------
        base : Conditional
            For new rows.
        parameters : array of shape (n, 3 J)
            Of the training rows, by models that did not see their fold.
        """
        x, y, weight = rows.x, rows.y, rows.weight
        later = child(rng)  # for what follows the steps: a fit that goes on does not know every state between them
        with part("scales of covariates and outcome", 0.0, 0.1):
            rows = replace(rows, scale=choose_scale(x, y, weight, rows.fold, rng))
            transform = rows.transform or choose_transform(rows, 0.0 if bound[0] is None else bound[0], rng)
        g, log_slope = transform.forward(y)
        rise = np.exp(-np.median(log_slope)) if transform.unit > 0 else transform.scale
        step = recording_step(y) / rise
        ends = None if rows.ends is None else transform.forward(rows.ends)[0]
        floor = smallest_log_scale(step, is_cell=ends is not None)
        with part("", 0.1, 1.0):
            learnt = learner.cross_fit(replace(rows, y=g, ends=ends), step, floor, rng, steps)
        low, high = (_transformed(end, transform) for end in bound)
        base = Conditional(
            transform,
            learnt.model,
            learnt.tail,
            floor,
            log_broad=-np.inf,
            bound=(-np.inf if low is None else low, np.inf if high is None else high),
            support=(-np.inf if bound[0] is None else bound[0], np.inf if bound[1] is None else bound[1]),
            range=(2 * x.min(axis=0) - x.max(axis=0), 2 * x.max(axis=0) - x.min(axis=0)),
            typical=(np.zeros(2), np.ones(2)),
            reach=Reach.nowhere(x.shape[1]),
            widest=0.0,
        )
        own, broad = base._parameters(learnt.left_out), np.log(_broad_scale(transform))
        if ends is None:
            log_density = base.to_box(y[:, None, None], own)[1][:, 0] - log_slope
            log_broad = _log_density_of_broad(g, broad)
        else:
            log_density = base._log_mass(ends, own)
            log_broad = base._log_mass(ends, np.tile([0.0, broad, 0.0], (len(g), 1)))
        base = replace(base, log_broad=_broad_weight(log_density, log_broad, weight))
        parameters = base._parameters(learnt.left_out)
        seen = base._moments(parameters)
        spread = seen.std(axis=0)
        base = replace(base, typical=(seen.mean(axis=0), np.where(spread > 0, spread, 1.0)))
        unit = np.array([np.exp(np.median(seen[:, 1])), 1.0])
        reach = Reach.fit(x, lambda z: base._moments(base._known(z)) / unit, later, rows.may_be_held)
        widest = float(np.quantile(seen[:, 1], _WIDEST)) - float(np.log(_SPREAD[base.tail]))
        return replace(base, reach=reach, widest=widest), parameters

    @property
    def n_outcomes(self) -> int:
        """1: a conditional base is of one outcome."""
        return 1

    def parameters(self, x: Array) -> Array:
        """Parameters (n, 3 J + 3) at standardised covariates x (n, q), NaN where they are missing.

        They are less certain beyond the reach of the training rows. A row with missing values has a mixture of rows in
        which remembered ones take their place; if there is one, all rows have as many components as it has.
        """
        missing = np.isnan(x).any(axis=1)
        if not missing.any():
            return self._widened(self._known(x), x)
        incomplete, at_once = x[missing], max(1, _NUMBERS_AT_ONCE // x.shape[1])
        found = np.concatenate(
            [self._averaged(incomplete[i : i + at_once]) for i in range(0, len(incomplete), at_once)]
        )
        parameters = np.empty((len(x), found.shape[1]))
        parameters[missing] = found
        if not missing.all():
            parameters[~missing] = padded(self.parameters(x[~missing]), found.shape[1] // 3)
        return parameters

    def _averaged(self, x: Array) -> Array:
        """Parameters of mixtures of versions of rows x (n, q) with missing values; see `averaged`."""
        versions, caution, has_level = self.reach.filled(x)
        n, k, q = versions.shape
        each = self._known(versions.reshape(-1, q)).reshape(n, k, -1)
        found = averaged(each, caution, has_level, 1 / _SPREAD[self.tail])
        n_locations = found.shape[1] // 3
        found[:, :n_locations] = np.clip(found[:, :n_locations], *self.bound)
        return self._widened(found, x)

    def _known(self, x: Array) -> Array:
        """Parameters (n, 3 J + 3) at covariates x (n, q) without missing values, wherever they are."""
        return self._parameters(self.components(np.clip(x, *self.range)))

    def _widened(self, parameters: Array, x: Array) -> Array:
        """Parameters at covariates x (n, q): wider beyond the reach of the training rows."""
        middle, log_unit = float(np.clip(0.0, *self.bound)), -float(np.log(_SPREAD[self.tail]))
        return widened(parameters, self.reach.excess(x), self.widest, middle, log_unit, self.components.is_line)

    @property
    def knows_rows(self) -> bool:
        """True: `novelty` is known."""
        return True

    def novelty(self, x: Array) -> Array:
        """How far (n,) standardised covariates x (n, q) are beyond the training rows; see `Reach.excess`."""
        return self.reach.excess(x)

    def _parameters(self, scores: Array) -> Array:
        """Parameters (n, 3 J + 3) from the components' scores (n, 3 J), the broad component last."""
        log_scale, logits, location = thirds(scores)
        low, high = self.bound
        location = np.clip(location, low, high)
        log_scale = np.clip(log_scale, self.floor, _LARGEST_LOG_SCALE)
        log_weight = logits - log_sum_exp(logits) + np.log1p(-np.exp(self.log_broad))
        middle, width = np.clip(0.0, low, high), np.log(_broad_scale(self.transform))
        broad = np.tile([middle, width, self.log_broad], (len(scores), 1))
        return np.hstack([location, broad[:, :1], log_scale, broad[:, 1:2], log_weight, broad[:, 2:]])

    @property
    def _is_unbounded(self) -> bool:
        """Whether there is no bound at either end."""
        return self.bound[0] == -np.inf and self.bound[1] == np.inf

    def _tails(self, parameters: Array) -> Ints:
        """The components' tails (J + 1,); the broad one is always a t, so that every outcome is possible."""
        return _tails(self.tail, parameters.shape[1] // 3)

    def seen(self, parameters: Array) -> Array:
        """What the trees see of the base (n, 2): its mean and log standard deviation."""
        center, spread = self.typical
        return (self._moments(parameters) - center) / spread

    def _moments(self, parameters: Array) -> Array:
        """Mean and log standard deviation (n, 2) of the mixture on the transformed scale, bounds aside."""
        location, log_scale, log_weight = thirds(parameters)
        share = np.exp(log_weight)
        mean = (share * location).sum(axis=1)
        variance = (
            share * ((_SPREAD[self._tails(parameters)] * np.exp(log_scale)) ** 2 + (location - mean[:, None]) ** 2)
        ).sum(axis=1)
        return np.column_stack([mean, np.log(variance) / 2])

    def to_box(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """CDF values of outcomes y (n, m, 1) and the log-determinants (n, m)."""
        g, log_slope = self.transform.forward(y[..., 0])
        lower, upper, log_density = self._forward(g, parameters)
        below, above = self._beyond(parameters)
        mass = 1 - below - above
        with np.errstate(divide="ignore"):
            inside = np.where((g >= self.bound[0]) & (g <= self.bound[1]), 0.0, -np.inf)
            log_det = log_density + log_slope - np.log(mass) + inside
        # From the nearer side: a difference of numbers close to one has few digits.
        v = np.where(lower <= upper, (lower - below) / mass, 1 - (upper - above) / mass)
        return np.clip(v, 0.0, 1.0)[..., None], log_det

    def to_box_and_density(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """CDF values and densities (n, m) of outcomes y (n, m); what `to_box` gives, faster."""
        g, slope = self.transform.forward_and_slope(y)
        lower, upper, density = self._by(mixture_densities, g, parameters)
        if self._is_unbounded:
            v = np.where(lower <= upper, lower, 1 - upper)
            return np.minimum(np.maximum(v, 0.0), 1.0), density * slope
        below, above = self._beyond(parameters)
        mass = 1 - below - above
        inside = (g >= self.bound[0]) & (g <= self.bound[1])
        v = np.where(lower <= upper, (lower - below) / mass, 1 - (upper - above) / mass)
        return np.clip(v, 0.0, 1.0), np.where(inside, density * slope / mass, 0.0)

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Inverse of `to_box`; 0 and 1 go to the ends of the support."""
        below, above = self._beyond(parameters)
        u = np.clip(below + (1 - below - above) * v[..., 0], 0.0, 1.0)
        location, log_scale, log_weight = map(np.ascontiguousarray, thirds(parameters))
        g = np.empty(u.shape)
        u_inside, order = np.clip(u, 1e-300, 1 - 2.0**-53), np.argsort(u, axis=1)
        mixture_inverse(u_inside, order, location, log_scale, log_weight, self._tails(parameters), g)
        g = np.clip(np.where(u <= 0, -np.inf, np.where(u >= 1, np.inf, g)), *self.bound)
        low, high = self.support
        y = np.clip(self.transform.inverse(g), low, high)
        return np.where(v <= 0, low, np.where(v >= 1, high, y[..., None]))

    def knots(self, parameters: Array) -> Array:
        """Finite outcomes (n, k) around the locations of the components, in steps of their scales."""
        location, log_scale, _ = thirds(parameters)
        g = np.clip(location[..., None] + np.exp(log_scale)[..., None] * _KNOTS, *self.bound)
        return np.clip(self.transform.inverse(g.reshape(len(g), -1)), *np.clip(self.support, -FAR, FAR))

    def moments(self, parameters: Array) -> tuple[Array, Array] | None:
        """Mean and standard deviation (n,) in the outcome's unit; None with bounds or very heavy tails.

        With a transform they are sums over nodes of each component.
        """
        transform = self.transform
        if np.isfinite(self.bound).any() or self.tail < T3:
            return None
        if transform.power == 1 and transform.unit == 0:
            mean, log_std = self._moments(parameters).T
            return transform.center + transform.scale * mean, transform.scale * np.exp(log_std)
        location, log_scale, log_weight = thirds(parameters)
        means, deviations = np.empty(location.shape), np.empty(location.shape)
        for j, tail in enumerate(self._tails(parameters)):
            own = np.empty(len(location)), np.empty(len(location))
            at, nodes = (location[:, j].copy(), log_scale[:, j].copy()), nodes_of_tail(int(tail))
            component_moments(*at, *nodes, *transform.numbers, *own)
            means[:, j], deviations[:, j] = own
        return moments_of_mixture(np.exp(log_weight), means, deviations)

    def _forward(self, g: Array, parameters: Array) -> tuple[Array, Array, Array]:
        """CDF, 1 - CDF and log density (n, m) of transformed outcomes, bounds aside."""
        return self._by(mixture_forward, g, parameters)

    def _by(self, kernel: Callable[..., None], g: Array, parameters: Array) -> tuple[Array, Array, Array]:
        """Three arrays (n, m) that a kernel of mixtures makes of transformed outcomes."""
        location, log_scale, log_weight = map(np.ascontiguousarray, thirds(parameters))
        found = np.empty(g.shape), np.empty(g.shape), np.empty(g.shape)
        kernel(np.ascontiguousarray(g), location, log_scale, log_weight, self._tails(parameters), *found)
        return found

    def _log_mass(self, ends: Array, parameters: Array) -> Array:
        """Log probabilities (n,) of cells with these ends (n, 2), on the transformed scale."""
        lower, upper, _ = self._forward(ends, parameters)
        below, above = self._beyond(parameters)
        mass = np.where(lower[:, 0] <= 0.5, lower[:, 1] - lower[:, 0], upper[:, 0] - upper[:, 1])
        return np.asarray(np.log(np.maximum(mass, _SMALLEST_MASS)) - np.log(1 - np.ravel(below + above)))

    def _beyond(self, parameters: Array) -> tuple[Array | float, Array | float]:
        """Mass (n, 1) of the mixture below and above the bounds."""
        if self._is_unbounded:
            return 0.0, 0.0
        low, high = self.bound
        ends = np.tile([low, high], (len(parameters), 1))
        lower, upper, _ = self._forward(np.clip(ends, -FAR, FAR), parameters)
        return np.where(np.isinf(low), 0.0, lower[:, :1]), np.where(np.isinf(high), 0.0, upper[:, 1:])


def thirds(parameters: Array) -> tuple[Array, Array, Array]:
    """The three parts (n, J) of parameters or scores (n, 3 J)."""
    n_components = parameters.shape[1] // 3
    return (
        parameters[:, :n_components],
        parameters[:, n_components : 2 * n_components],
        parameters[:, 2 * n_components :],
    )


@cache
def _tails(tail: int, n_components: int) -> Ints:
    """Tails (J,) of components of which the last is the broad one."""
    return np.append(np.full(n_components - 1, tail), T5)


def smallest_log_scale(step: float, is_cell: bool = False) -> float:
    """The smallest log scale of components for outcomes recorded in steps of this size, 0 if there is none."""
    floor = _FLOOR_OF_CELLS if is_cell else _FLOOR
    return max(_SMALLEST_LOG_SCALE, float(np.log(floor * step)) if step > 0 else -np.inf)


def _transformed(end: float | None, transform: OutcomeTransform) -> float | None:
    """A bound on the transformed scale, None if there is none."""
    return None if end is None else float(transform.forward(np.array(end))[0])


def _broad_scale(transform: OutcomeTransform) -> float:
    """Scale of the broad component on the transformed scale."""
    return _BROAD_SCALE_OF_LOGS if transform.unit > 0 else _BROAD_SCALE


def _log_density_of_broad(g: Array, log_scale: float) -> Array:
    """Log densities (n,) of transformed outcomes g (n,) by the broad component, a t with 5 degrees of freedom."""
    t = g / np.exp(log_scale)
    return np.asarray(np.log(8 / (3 * np.pi * np.sqrt(5))) - 3 * np.log1p(t * t / 5) - log_scale)


def _broad_weight(log_density: Array, log_broad: Array, weight: Array) -> float:
    """Log weight of the broad component: the smallest that out-of-fold rows find nearly as likely as the best one.

    log_density (n,) are the rows' log densities without it, log_broad (n,) those by it alone. Their likelihood is
    concave in the weight. It is flat where the component is hardly broader than the others, and a weight that nothing
    asks for would still be most of the variance.
    """
    total = weight.sum()
    ratio = np.exp(np.clip(log_broad - log_density, -700, 700))

    def gain(share: float) -> float:
        return float(weight @ np.log1p(share * (ratio - 1)))

    low, high = 0.5 / (total + 1), 0.5
    best = minimize_scalar(lambda log_share: -gain(np.exp(log_share)), bounds=np.log([low, high]), method="bounded").x
    enough = gain(np.exp(best)) - _WORTH_OF_BROAD
    if gain(low) >= enough:
        return float(np.log(low))
    return float(brentq(lambda log_share: gain(np.exp(log_share)) - enough, np.log(low), best))
