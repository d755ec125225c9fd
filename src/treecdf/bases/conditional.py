"""The conditional base: regressors say where the outcome is, boosted trees say how sure they are.

p(y | x) before the trees is a mixture of Student t distributions, one for each mean learner and one for their stack;
log scales and weights are functions of x, boosted on the likelihood. Training rows only ever see predictions of models
that were fitted without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import logsumexp

from treecdf._common.numerics import FAR
from treecdf._common.steps import PLAIN_STEPS, Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.student import mixture_forward, mixture_inverse, mixture_loss
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, boost_scores
from treecdf.bases.learners.protocol import Learner
from treecdf.bases.mean import Mean, TrainingRows
from treecdf.bases.protocol import Bound, WholeCube
from treecdf.bases.selection import choose_transform
from treecdf.bases.transform import OutcomeTransform
from treecdf.data.recording import recording_step

_FLOOR = 0.4  # scales are at least this share of the outcome's recording step
_SMALLEST_LOG_SCALE = -9.0  # scales are at least this, however exact the learners are
_LARGEST_LOG_SCALE = 10.0  # scales are at most this, whatever the trees say
_BROAD_SCALE = 2.0  # standard deviations of the outcome: scale of the component for rows that nobody foresaw
_BROAD_SCALE_OF_LOGS = 1.0  # the same after logarithms, where twice as much would be orders of magnitude
_BROAD_STEPS = 100  # of expectation maximisation
_SPREAD = np.sqrt(5 / 3)  # standard deviation of a t with five degrees of freedom
_START_OF_SCALE = 0.7  # times the error of a component: where boosting of its log scale begins
_START_OF_STACK = 1.5  # logit of the stack's weight where boosting begins, 0 for the others: it is the best guess


@dataclass(frozen=True)
class ConditionalSettings:
    """How a conditional base is trained: the mean learners in the order they are tried, and the boosting of scales."""

    learners: Sequence[Learner]
    scales: BoostingSettings


@dataclass(frozen=True)
class Conditional(WholeCube):
    """A base whose location, scale and shape depend on x; one outcome.

    Its parameters at a row are the locations, log scales and log weights of the components, (n, 3 J), all on the
    transformed scale of the outcome.
    """

    transform: OutcomeTransform
    mean: Mean
    scores: BoostedScores  # log scales and logits of the weights
    floor: float  # smallest log scale
    log_broad: float  # log weight of the broad component
    bound: tuple[float, float]  # on the transformed scale; infinite where there is none
    support: tuple[float, float]  # the same in the outcome's own unit
    range: tuple[Array, Array]  # of the covariates, three times that of the training rows; they are held at its ends
    typical: tuple[Array, Array]  # mean and scale of what the trees see
    rotation: None = None

    @staticmethod
    def cross_fit(
        settings: ConditionalSettings,
        rows: TrainingRows,
        bound: Bound,
        rng: np.random.Generator,
        steps: Steps = PLAIN_STEPS,
    ) -> tuple[Conditional, Array]:
        """The base for new rows, and the out-of-fold parameters (n, 3 J) of the training rows.

        Parameters
        ----------
        settings : ConditionalSettings
            Mean learners and how scales are boosted.
        rows : TrainingRows
            Standardised covariates (n, q), outcomes (n,), weights and folds (n,).
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
        transform = choose_transform(x, y, weight, 0.0 if bound[0] is None else bound[0], rng)
        g, log_slope = transform.forward(y)
        rise = np.exp(-np.median(log_slope)) if transform.unit > 0 else transform.scale
        step = recording_step(y) / rise
        mean, location = Mean.cross_fit(settings.learners, replace(rows, y=g), step, rng, steps)
        floor = max(_SMALLEST_LOG_SCALE, np.log(_FLOOR * step) if step > 0 else -np.inf)
        features = TrainingRows(_features(x, location), g, weight, rows.fold)
        fit = partial(_fit_scores, location, features, floor, settings.scales, rng)
        scores, left_out = steps.learn(rng, features.x.shape[1], (len(x), 2 * location.shape[1]), fit)
        low, high = (_transformed(end, transform) for end in bound)
        base = Conditional(
            transform,
            mean,
            scores,
            floor,
            log_broad=-np.inf,
            bound=(-np.inf if low is None else low, np.inf if high is None else high),
            support=(-np.inf if bound[0] is None else bound[0], np.inf if bound[1] is None else bound[1]),
            range=(2 * x.min(axis=0) - x.max(axis=0), 2 * x.max(axis=0) - x.min(axis=0)),
            typical=(np.zeros(2), np.ones(2)),
        )
        log_density = base.to_box(y[:, None, None], base._parameters(location, left_out))[1][:, 0]
        base = replace(base, log_broad=_broad_weight(log_density - log_slope, g, weight, _broad_scale(transform)))
        parameters = base._parameters(location, left_out)
        seen = base._moments(parameters)
        spread = seen.std(axis=0)
        return replace(base, typical=(seen.mean(axis=0), np.where(spread > 0, spread, 1.0))), parameters

    @property
    def n_outcomes(self) -> int:
        """1: a conditional base is of one outcome."""
        return 1

    def parameters(self, x: Array) -> Array:
        """Parameters (n, 3 J) at standardised covariates x (n, q)."""
        x = np.clip(x, *self.range)
        location = self.mean(x)
        return self._parameters(location, self.scores(_features(x, location)))

    def _parameters(self, location: Array, scores: Array) -> Array:
        """Parameters (n, 3 J) from the learners' locations (n, J - 1) and the boosted scores (n, 2 J - 2)."""
        n, n_components = location.shape
        low, high = self.bound
        location = np.clip(location, low, high)
        log_scale = np.clip(scores[:, :n_components], self.floor, _LARGEST_LOG_SCALE)
        logits = scores[:, n_components:]
        log_weight = logits - logsumexp(logits, axis=1, keepdims=True) + np.log1p(-np.exp(self.log_broad))
        broad = np.tile([np.clip(0.0, low, high), np.log(_broad_scale(self.transform)), self.log_broad], (n, 1))
        parts = (location, broad[:, :1], log_scale, broad[:, 1:2], log_weight, broad[:, 2:])
        return np.hstack(parts)

    def seen(self, parameters: Array) -> Array:
        """What the trees see of the base (n, 2): its mean and log standard deviation."""
        center, spread = self.typical
        return (self._moments(parameters) - center) / spread

    def _moments(self, parameters: Array) -> Array:
        """Mean and log standard deviation (n, 2) of the mixture on the transformed scale, bounds aside."""
        location, log_scale, log_weight = np.split(parameters, 3, axis=1)
        share = np.exp(log_weight)
        mean = (share * location).sum(axis=1)
        variance = (share * ((_SPREAD * np.exp(log_scale)) ** 2 + (location - mean[:, None]) ** 2)).sum(axis=1)
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

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Inverse of `to_box`; 0 and 1 go to the ends of the support."""
        below, above = self._beyond(parameters)
        u = np.clip(below + (1 - below - above) * v[..., 0], 0.0, 1.0)
        location, log_scale, log_weight = map(np.ascontiguousarray, np.split(parameters, 3, axis=1))
        g = np.empty(u.shape)
        mixture_inverse(np.clip(u, 1e-300, 1 - 2.0**-53), location, log_scale, log_weight, g)
        g = np.clip(np.where(u <= 0, -np.inf, np.where(u >= 1, np.inf, g)), *self.bound)
        low, high = self.support
        y = np.clip(self.transform.inverse(g), low, high)
        return np.where(v <= 0, low, np.where(v >= 1, high, y[..., None]))

    def _forward(self, g: Array, parameters: Array) -> tuple[Array, Array, Array]:
        """CDF, 1 - CDF and log density (n, m) of transformed outcomes, bounds aside."""
        location, log_scale, log_weight = map(np.ascontiguousarray, np.split(parameters, 3, axis=1))
        lower, upper, log_density = np.empty(g.shape), np.empty(g.shape), np.empty(g.shape)
        mixture_forward(np.ascontiguousarray(g), location, log_scale, log_weight, lower, upper, log_density)
        return lower, upper, log_density

    def _beyond(self, parameters: Array) -> tuple[Array | float, Array | float]:
        """Mass (n, 1) of the mixture below and above the bounds."""
        low, high = self.bound
        ends = np.tile([low, high], (len(parameters), 1))
        if np.isinf(ends).all():
            return 0.0, 0.0
        lower, upper, _ = self._forward(np.clip(ends, -FAR, FAR), parameters)
        return np.where(np.isinf(low), 0.0, lower[:, :1]), np.where(np.isinf(high), 0.0, upper[:, 1:])


def _transformed(end: float | None, transform: OutcomeTransform) -> float | None:
    """A bound on the transformed scale, None if there is none."""
    return None if end is None else float(transform.forward(np.array(end))[0])


def _features(x: Array, location: Array) -> Array:
    """What scales and weights depend on: covariates, the stack, and where the other learners differ from it."""
    return np.hstack([x, location[:, :1], location[:, 1:] - location[:, :1]])


def _fit_scores(
    location: Array, rows: TrainingRows, floor: float, settings: BoostingSettings, rng: np.random.Generator
) -> tuple[BoostedScores, Array]:
    """Boosted log scales and logits of the weights of the components at `location` (n, J), and out-of-fold ones.

    The rows have the features of `_features` and transformed outcomes.
    """
    n_components, g = location.shape[1], rows.y
    share = rows.weight / rows.weight.sum()
    start = np.zeros(2 * n_components)
    error = np.sqrt(share @ (location - g[:, None]) ** 2)
    start[:n_components] = np.maximum(np.log(np.maximum(_START_OF_SCALE * error, 1e-300)), floor)
    start[n_components] = _START_OF_STACK

    def loss(scores: Array, chosen: Ints) -> tuple[Array, Array, Array]:
        value, gradient, curvature = np.empty(len(chosen)), np.empty(scores.shape), np.empty(scores.shape)
        mixture_loss(g[chosen], location[chosen], scores, floor, value, gradient, curvature)
        return value, gradient, curvature

    return boost_scores(loss, rows.x, rows.weight, start, rows.fold, settings, rng)


def _broad_scale(transform: OutcomeTransform) -> float:
    """Scale of the broad component on the transformed scale."""
    return _BROAD_SCALE_OF_LOGS if transform.unit > 0 else _BROAD_SCALE


def _broad_weight(log_density: Array, g: Array, weight: Array, scale: float) -> float:
    """Log weight of the broad component of the highest likelihood of out-of-fold rows, by expectation maximisation.

    log_density (n,) are the rows' log densities without it, g (n,) transformed outcomes. It always takes all its steps:
    on twenty simulated tables of 500 rows they were within 3e-9 nats a row of thirty times as many. Only if the mixture
    is as broad as the component itself the weight has not settled, and then it does not matter.
    """
    t = g / scale
    log_broad = np.log(8 / (3 * np.pi * np.sqrt(5))) - 3 * np.log1p(t * t / 5) - np.log(scale)
    total = weight.sum()
    share = 1 / (total + 1)
    for _ in range(_BROAD_STEPS):
        odds = np.exp(np.clip(log_broad - log_density, -700, 700)) * share / (1 - share)
        share = float(min(max((weight @ (odds / (1 + odds)) + 0.5) / (total + 1), 1e-6), 0.5))
    return float(np.log(share))
