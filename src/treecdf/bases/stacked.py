"""Components around predictions of the mean: regressors say where they are, boosted trees say how sure they are.

There is one component for the stack of the mean learners and one for each of the best of them; log scales and weights
are functions of x, boosted on the likelihood. Training rows only ever see predictions of models that were fitted
without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treecdf._common.steps import Steps
from treecdf._common.typing import Array
from treecdf._kernels.tails import T5
from treecdf.bases.components import Learnt, choose_tail, make_loss
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, boost_scores
from treecdf.bases.learners.protocol import Learner
from treecdf.bases.linear_scale import LinearScale
from treecdf.bases.mean import Mean, TrainingRows

_START_OF_SCALE = 0.7  # times the error of a component: where boosting of its log scale begins
_START_OF_STACK = 1.5  # logit of the stack's weight where boosting begins, 0 for the others: it is the best guess
_WORTH_MORE = 5.0  # nats, all rows together, that what is less simple has to gain on left-out rows, which choose it
_WORTH_A_LENGTH = 0.5  # nats more of it for each length scale of a process
_LINEAR = ("linear", "lasso")  # learners that may do without others
_RATE_OF_LOOK = 0.3  # learning rate of a first look at tails and scales
_ROUNDS_OF_LOOK = 20  # rounds of it at most
_PATIENCE_OF_LOOK = 4

Trend = tuple[LinearScale, Array]  # of log scales: for new rows, and the training rows' out-of-fold values (n,)


@dataclass(frozen=True)
class Stack:
    """The mean learners in the order they are tried, and how scales and weights are boosted."""

    learners: Sequence[Learner]
    scales: BoostingSettings

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The components around the learners' predictions, or one around a linear mean if more adds next to nothing."""
        mean, location = Mean.cross_fit(self.learners, rows, step, rng, steps)
        trends = [(LinearScale.constant(rows.x.shape[1]), np.zeros(len(rows.y)))]
        linear = LinearScale.cross_fit(rows, rows.y - location[:, 0])
        if linear[0].has_slopes:
            trends.append(linear)
        boosting = _Boosting(mean, location, rows, floor, rng, steps)
        simple = self._simple(boosting, trends)
        look = replace(self.scales, rate=_RATE_OF_LOOK, max_rounds=_ROUNDS_OF_LOOK, patience=_PATIENCE_OF_LOOK)
        first = _cheapest([boosting.run(look, boosting.start(), trend, T5) for trend in trends])
        if any(one.loss < first.loss for one in simple):
            return _cheapest(simple).learnt()
        full = boosting.run(self.scales, first.moved(), first.trend, first.tail)
        # Length scales of a process are tuned on all rows: left-out ones gain by that what new ones do not.
        price = _WORTH_A_LENGTH * rows.x.shape[1] / full.weight if any(map(_is_process, mean.names)) else 0.0
        return _cheapest([*simple, replace(full, loss=full.loss + price)]).learnt()

    def _simple(self, boosting: _Boosting, trends: Sequence[Trend]) -> list[_Boosted]:
        """Linear means alone, with scales that are not boosted; none if other learners are clearly better.

        Others are no candidates: a process, which was tuned on all rows, looks better on left-out ones than it is.
        """
        settings = replace(self.scales, max_rounds=0)
        parts = [boosting.only(k) for k, j in enumerate(boosting.mean.components) if boosting.mean.names[j] in _LINEAR]
        return [part.run(settings, part.start(), trend, T5) for trend in trends for part in parts]


@dataclass(frozen=True)
class _Boosted:
    """Boosted scores of components whose locations are known, and the tail that suits them best."""

    mean: Mean
    trend: Trend
    scores: BoostedScores
    left_out: Array  # (n, 3 J), with the shift
    tail: int
    shift: float  # to be added to the log scales with this tail
    loss: float  # mean negative log-likelihood of left-out rows
    weight: float  # of all rows

    def moved(self) -> Array:
        """Scores (2 J,) that boosting began with, and the shift."""
        start = self.scores.start
        return start + self.shift * (np.arange(len(start)) < len(start) // 2)

    def learnt(self) -> Learnt:
        """The components as a base needs them."""
        scores = self.scores.moved(self.shift, len(self.scores.start) // 2)
        return Learnt(Stacked(self.mean, self.trend[0], scores), self.left_out, self.tail)


def _cheapest(found: Sequence[_Boosted]) -> _Boosted:
    """The one of the smallest loss, of candidates of which each has to be better than simpler ones by some nats."""
    best = found[0]
    for one in found[1:]:
        if one.loss < best.loss - _WORTH_MORE / one.weight:
            best = one
    return best


@dataclass(frozen=True)
class _Boosting:
    """Boosting of log scales and logits of the weights of the components at `location` (n, J)."""

    mean: Mean
    location: Array
    rows: TrainingRows
    floor: float
    rng: np.random.Generator
    steps: Steps

    def only(self, k: int) -> _Boosting:
        """The same with one component, the one that the k-th of the best learners has."""
        return replace(self, mean=self.mean.only(int(self.mean.components[k])), location=self.location[:, [1 + k]])

    def start(self) -> Array:
        """Log scales and logits (2 J,) where boosting begins."""
        n_components = self.location.shape[1]
        share = self.rows.weight / self.rows.weight.sum()
        start = np.zeros(2 * n_components)
        error = np.sqrt(share @ (self.location - self.rows.y[:, None]) ** 2)
        start[:n_components] = np.maximum(np.log(np.maximum(_START_OF_SCALE * error, 1e-300)), self.floor)
        start[n_components] = _START_OF_STACK
        return start

    def run(self, settings: BoostingSettings, start: Array, trend: Trend, tail: int) -> _Boosted:
        """Boost under a tail, from `start` (2 J,); all log scales of a row are relative to the trend."""
        rows, n_components, relative = self.rows, self.location.shape[1], trend[1]
        features = _features(rows.x, self.location)
        loss = make_loss(rows.y, self.location, tail, self.floor, relative)
        fit = partial(boost_scores, loss, features, rows.weight, start, rows.fold, settings, self.rng)
        scores, found = self.steps.learn(self.rng, features.shape[1], (len(rows.x), 2 * n_components), fit)
        left_out = np.hstack([found, self.location])
        left_out[:, :n_components] += relative[:, None]
        tail, shift, value = choose_tail(rows.y, left_out, rows.weight, self.floor, tail)
        left_out[:, :n_components] += shift
        return _Boosted(self.mean, trend, scores, left_out, tail, shift, value, float(rows.weight.sum()))


@dataclass(frozen=True)
class Stacked:
    """Fitted mean learners, and boosted log scales and logits of the weights of their components."""

    mean: Mean
    trend: LinearScale  # of all log scales, to which the scores are added
    scores: BoostedScores

    @property
    def n_components(self) -> int:
        """J, the number of components."""
        return 1 + len(self.mean.components)

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 J) at standardised covariates x (n, q)."""
        location = self.mean(x)
        scores = np.hstack([self.scores(_features(x, location)), location])
        scores[:, : self.n_components] += self.trend(x)[:, None]
        return scores

    def describe(self) -> Iterator[str]:
        """The stack's weights, and the number of components."""
        stack = sorted(zip(self.mean.weights, self.mean.names, strict=True), reverse=True)
        yield "stack of regressors for the mean: " + ", ".join(
            f"{name} {weight:.0%}" for weight, name in stack if weight >= 0.005
        )


def _is_process(name: str) -> bool:
    return name.startswith("Gaussian process")


def _features(x: Array, location: Array) -> Array:
    """What scales and weights depend on: covariates, the stack, and where the other learners differ from it."""
    return np.hstack([x, location[:, :1], location[:, 1:] - location[:, :1]])
