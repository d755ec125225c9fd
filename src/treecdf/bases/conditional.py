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
from scipy.optimize import nnls
from scipy.special import logsumexp

from treecdf._common.steps import FORGETFUL, Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.student import mixture_forward, mixture_inverse, mixture_loss
from treecdf.bases.learners.boosting import BoostedScores, Boosting, boost
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.learners.protocol import Learner, Predictor
from treecdf.bases.protocol import Bound, Everywhere
from treecdf.bases.transform import Transform
from treecdf.data.recording import recording_step

_POWERS = (0.5, 0.75, 1.0, 1.25, 1.5)  # of Yeo-Johnson; mean and variance exist for each
_WORTH_A_POWER, _WORTH_LOGS = 0.02, 0.2  # nats a row
_GOOD = 1.5  # learners whose error is at most so many times the stack's are components,
_MOST_COMPONENTS = 3  # and of these the best
_JUDGED_ROWS, _N_JUDGED_BINS = 1000, 10  # for logarithms, whose errors may only look more even
_RESOLVED = 0.3  # of the recording step: a smaller error cannot be told from none
_MANY_ROWS, _HUGE = 2500, 20_000  # rows from which on scales are boosted at two and four times the rate
_FLOOR = 0.4  # scales are at least this share of the outcome's recording step
_SMALLEST_LOG_SCALE = -9.0
_BROAD_SCALE = 2.0  # standard deviations of the outcome: a component for rows nobody foresaw,
_BROAD_SCALE_OF_LOGS = 1.0  # where twice as many would be orders of magnitude
_SPREAD = np.sqrt(5 / 3)  # standard deviation of a t with five degrees of freedom


@dataclass(frozen=True)
class Mean:
    """Mean learners and their non-negative stack."""

    names: tuple[str, ...]
    predictors: tuple[Predictor, ...]
    weights: Array
    components: Ints  # learners that are components of their own

    @staticmethod
    def cross_fit(
        learners: Sequence[Learner],
        x: Array,
        y: Array,
        weight: Array,
        step: float,
        fold: Ints,
        rng: np.random.Generator,
        steps: Steps = FORGETFUL,
    ) -> tuple[Mean, Array]:
        """The fitted learners, and left-out locations (n, J). A learner that has nothing to add is not tried."""
        names, predictors, outputs, errors = [], [], [], dict[str, float]()
        for learner in learners:
            if errors and not learner.is_worth_trying(errors):
                continue
            best = min(errors.values(), default=np.inf)
            fit = partial(learner.cross_fit, x, y, weight, fold, rng, best)
            predictor, output = steps.learn(rng, x.shape[1], y.shape, fit)
            names.append(learner.name)
            predictors.append(predictor)
            outputs.append(output)
            error = float(np.sqrt(weight @ (output - y) ** 2 / weight.sum()))
            errors[learner.kind] = min(error, errors.get(learner.kind, np.inf))
            if error < _RESOLVED * step:
                break
        means = np.column_stack(outputs)
        weights = _stack(means, y, weight)
        components = _components(weight @ (means - y[:, None]) ** 2, float(weight @ (means @ weights - y) ** 2))
        mean = Mean(tuple(names), tuple(predictors), weights, components)
        return mean, mean.locations(means)

    def locations(self, means: Array) -> Array:
        """Locations (n, J) of the components, the stack first, from the predictions (n, learners)."""
        return np.column_stack([means @ self.weights, means[:, self.components]])

    def __call__(self, x: Array) -> Array:
        """Locations (n, J) of the components at new rows."""
        return self.locations(np.column_stack([predictor(x) for predictor in self.predictors]))


def _components(error: Array, error_of_stack: float) -> Ints:
    """Learners that deserve a component beside the stack."""
    if len(error) == 1:
        return np.empty(0, np.int64)
    best = np.argsort(error, kind="stable")[:_MOST_COMPONENTS]
    return np.sort(best[error[best] <= _GOOD**2 * error_of_stack])


def _stack(means: Array, y: Array, weight: Array) -> Array:
    """Non-negative weights that sum to one, of the smallest squared error."""
    root = np.sqrt(weight / weight.mean())
    force = 1e3 * np.sqrt(len(y))
    a = np.vstack([means * root[:, None], np.full(means.shape[1], force)])
    weights = nnls(a, np.append(y * root, force))[0]
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))


@dataclass(frozen=True)
class Conditional(Everywhere):
    """A base whose location, scale and shape depend on x; one outcome.

    Its parameters at a row are the locations, log scales and log weights of the components, (n, 3 J), all on the
    transformed scale of the outcome.
    """

    transform: Transform
    mean: Mean
    scores: BoostedScores
    floor: float
    log_broad: float  # log weight of the broad component
    bound: tuple[float, float]  # on the transformed scale; infinite where there is none
    support: tuple[float, float]  # the same in the outcome's own unit
    range: tuple[Array, Array]  # of the covariates; beyond it by more than its length they are held
    typical: tuple[Array, Array]  # mean and scale of what the trees see
    rotation: None = None

    @staticmethod
    def cross_fit(
        learners: Sequence[Learner],
        x: Array,
        y: Array,
        weight: Array,
        bound: Bound,
        fold: Ints,
        rng: np.random.Generator,
        steps: Steps = FORGETFUL,
    ) -> tuple[Conditional, Array]:
        """The base for new rows, and the left-out parameters (n, 3 J) of the training rows x (n, q), y (n, 1)."""
        outcome = y[:, 0]
        transform = _best_transform(x, outcome, weight, 0.0 if bound[0] is None else bound[0], rng)
        g, log_slope = transform.forward(outcome)
        rise = np.exp(-np.median(log_slope)) if transform.unit > 0 else transform.scale
        step = recording_step(outcome) / rise
        mean, location = Mean.cross_fit(learners, x, g, weight, step, fold, rng, steps)
        floor = max(_SMALLEST_LOG_SCALE, np.log(_FLOOR * step) if step > 0 else -np.inf)
        features = _features(x, location)
        fit = partial(_boost_scores, location, g, features, weight, floor, fold, rng)
        scores, left_out = steps.learn(rng, features.shape[1], (len(x), 2 * location.shape[1]), fit)
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
        log_density = base.to_box(y[:, None, :], base._parameters(location, left_out))[1][:, 0]
        base = replace(base, log_broad=_broad_weight(log_density - log_slope, g, weight, _broad_scale(transform)))
        parameters = base._parameters(location, left_out)
        seen = base._moments(parameters)
        spread = seen.std(axis=0)
        return replace(base, typical=(seen.mean(axis=0), np.where(spread > 0, spread, 1.0))), parameters

    @property
    def n_outcomes(self) -> int:
        """One."""
        return 1

    def parameters(self, x: Array) -> Array:
        """Parameters (n, 3 J) at standardised covariates x (n, q)."""
        x = np.clip(x, *self.range)
        location = self.mean(x)
        return self._parameters(location, self.scores(_features(x, location)))

    def _parameters(self, location: Array, scores: Array) -> Array:
        n, n_components = location.shape
        low, high = self.bound
        location = np.clip(location, low, high)
        log_scale = np.clip(scores[:, :n_components], self.floor, 10.0)
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
        lower, upper, _ = self._forward(np.clip(ends, -1e300, 1e300), parameters)
        return np.where(np.isinf(low), 0.0, lower[:, :1]), np.where(np.isinf(high), 0.0, upper[:, 1:])


def _transformed(end: float | None, transform: Transform) -> float | None:
    return None if end is None else float(transform.forward(np.array(end))[0])


def _features(x: Array, location: Array) -> Array:
    """What scales and weights depend on: covariates, the stack, and where the other learners differ from it."""
    return np.hstack([x, location[:, :1], location[:, 1:] - location[:, :1]])


def _boost_scores(
    location: Array, g: Array, features: Array, weight: Array, floor: float, fold: Ints, rng: np.random.Generator
) -> tuple[BoostedScores, Array]:
    """Log scales and logits of the weights of the components (n, J) at `location`."""
    n, n_components = location.shape
    share = weight / weight.sum()
    start = np.zeros(2 * n_components)
    error = np.sqrt(share @ (location - g[:, None]) ** 2)
    start[:n_components] = np.maximum(np.log(np.maximum(0.7 * error, 1e-300)), floor)
    start[n_components] = 1.5  # the stack is the best guess

    def loss(scores: Array, rows: Ints) -> tuple[Array, Array, Array]:
        value, gradient, curvature = np.empty(len(rows)), np.empty(scores.shape), np.empty(scores.shape)
        mixture_loss(g[rows], location[rows], scores, floor, value, gradient, curvature)
        return value, gradient, curvature

    rate = 0.05 if n <= _MANY_ROWS else 0.1 if n <= _HUGE else 0.2
    settings = Boosting(max_depth=3, rate=rate, max_rounds=600, subsample=0.5, n_bins=64)
    return boost(loss, features, weight, start, fold, settings, rng)


def _broad_scale(transform: Transform) -> float:
    return _BROAD_SCALE_OF_LOGS if transform.unit > 0 else _BROAD_SCALE


def _broad_weight(log_density: Array, g: Array, weight: Array, scale: float) -> float:
    """Log weight of the broad component of the highest likelihood of left-out rows, by expectation maximisation."""
    t = g / scale
    log_broad = np.log(8 / (3 * np.pi * np.sqrt(5))) - 3 * np.log1p(t * t / 5) - np.log(scale)
    total = weight.sum()
    share = 1 / (total + 1)
    for _ in range(100):
        odds = np.exp(np.clip(log_broad - log_density, -700, 700)) * share / (1 - share)
        share = float(min(max((weight @ (odds / (1 + odds)) + 0.5) / (total + 1), 1e-6), 0.5))
    return float(np.log(share))


def _best_transform(x: Array, y: Array, weight: Array, origin: float, rng: np.random.Generator) -> Transform:
    """The one under which a quadratic model with normal errors explains left-out rows best."""
    rows = rng.permutation(len(x))[:2000]
    quadratic = Polynomial(2 if Polynomial(2).n_features(x.shape[1]) <= 500 else 1)
    candidates = [Transform.fit(y, weight, power) for power in _POWERS]
    logarithm = Transform.fit_log(y, weight, origin)
    if logarithm is not None:
        candidates.append(logarithm)
    scores = []
    for transform in candidates:
        g, log_slope = transform.forward(y)
        left_out = quadratic.cross_fit(x[rows], g[rows], weight[rows], np.arange(len(rows)) % 5, rng)[1]
        share = weight[rows] / weight[rows].sum()
        error = max(float(share @ (g[rows] - left_out) ** 2), 1e-12)
        scores.append(float(share @ log_slope[rows]) - np.log(error) / 2)
    powers, plain = scores[: len(_POWERS)], _POWERS.index(1.0)
    best = int(np.argmax(powers))
    chosen = candidates[best if powers[best] > powers[plain] + _WORTH_A_POWER else plain]
    if logarithm is not None and scores[-1] > max(powers) + _WORTH_LOGS:
        few = rows[:_JUDGED_ROWS]
        return max(chosen, logarithm, key=lambda transform: _judge(transform, x[few], y[few], weight[few]))
    return chosen


def _judge(transform: Transform, x: Array, y: Array, weight: Array) -> float:
    """Log-likelihood of left-out rows under a Gaussian process whose errors depend on its prediction."""
    g, log_slope = transform.forward(y)
    process = GaussianProcess(n_tuning=150, n_inducing=300, max_iter=30)
    prediction = process.cross_fit(x, g, weight, np.arange(len(x)) % 5, np.random.default_rng(0))[1]
    errors = np.array_split((g - prediction)[np.argsort(prediction)], _N_JUDGED_BINS)
    log_errors = [np.log(max(float(np.mean(part**2)), 1e-12)) / 2 for part in errors if len(part)]
    return float(np.mean(log_slope) - np.mean(log_errors))
