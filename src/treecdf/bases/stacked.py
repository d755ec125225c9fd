"""Components around predictions of the mean: regressors say where they are, boosted trees say how sure they are.

There is one component for the stack of the mean learners and one for each of the best of them; log scales and weights
are functions of x, boosted on the likelihood. If left-out rows say that it helps they also depend on how near the
nearest training rows are and what they say, and the nearest row's outcome has a component of its own (ADR 31). Training
rows only ever see predictions of models that were fitted without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treecdf._common.steps import Steps
from treecdf._common.telling import part
from treecdf._common.typing import Array, Ints
from treecdf._kernels.tails import T5
from treecdf.bases.components import Learnt, choose_tail, make_loss
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, boost_scores
from treecdf.bases.learners.neighbours import FittedNeighbours
from treecdf.bases.learners.polynomial import FittedPolynomial
from treecdf.bases.learners.process import FittedProcess
from treecdf.bases.learners.protocol import Learner
from treecdf.bases.linear_scale import LinearScale
from treecdf.bases.mean import Mean, TrainingRows
from treecdf.bases.nearness import N_FEATURES, Nearby, Nearness
from treecdf.bases.reach import relevance_of
from treecdf.bases.straightening import OnNewScale

_SHARE_OF_MEAN = 0.6  # of the time that a stack takes, roughly, for the line of progress
_START_OF_SCALE = 0.7  # times the error of a component: where boosting of its log scale begins
_START_OF_STACK = 1.5  # logit of the stack's weight where boosting begins, 0 for the others: it is the best guess
_START_OF_NEAREST = 0.1  # quantile of the errors of the nearest row: where boosting of its log scale begins
_LOGIT_OF_NEAREST = -1.0  # logit of its weight there
_WORTH_IT = 0.002  # nats a row that nearness has to gain at the first look, and that covariates have to
_SURE = 2.0  # standard errors that the gain has to be besides
_ROWS_OF_METRIC = 300  # rows on which covariates are shuffled to see what they do to the stack
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
    n_remembered: int = 0  # training rows that are remembered for their nearness at most; 0: it is not looked at
    n_look: int | None = None  # rows of first looks at most; None: all rows

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The components around the learners' predictions, and around the nearest row if that helps.

        There is one around a constant or a linear mean if more adds next to nothing.
        """
        with part("", 0.0, _SHARE_OF_MEAN):
            mean, location = Mean.cross_fit(self.learners, rows, step, rng, steps)
        trends = [(LinearScale.constant(rows.x.shape[1]), np.zeros(len(rows.y)))]
        linear = LinearScale.cross_fit(rows, rows.y - location[:, 0])
        if linear[0].has_slopes:
            trends.append(linear)
        boosting = _Boosting(mean, location, None, rows, floor, rng, steps)
        simple = self._simple(boosting, trends)
        look = replace(self.scales, rate=_RATE_OF_LOOK, max_rounds=_ROUNDS_OF_LOOK, patience=_PATIENCE_OF_LOOK)
        seen = self._seen(rows)
        few = boosting if seen is None else boosting.take(seen)
        with part("tails and slopes of the components", _SHARE_OF_MEAN, _SHARE_OF_MEAN + 0.2):
            looks = [few.run(look, few.start(), _taken(trend, seen), T5) for trend in trends]
        first = _cheapest(looks)
        trend = trends[[one is first for one in looks].index(True)]
        boosting, first = self._nearer(boosting, few, seen, first, look)
        constant = simple[0]
        if any(one.loss_at(seen, rows.weight) < first.loss for one in simple):
            return _cheapest(simple).unless_chance(constant, rows.weight).learnt()
        with part("scales and weights of the components", _SHARE_OF_MEAN + 0.2, 1.0):
            full = boosting.run(self.scales, first.moved(), trend, first.tail)
        # Length scales of a process are tuned on all rows: left-out ones gain by that what new ones do not.
        price = _WORTH_A_LENGTH * rows.x.shape[1] / full.weight if any(map(_is_process, mean.names)) else 0.0
        best = _cheapest([*simple, replace(full, loss=full.loss + price)])
        return best.unless_chance(constant, rows.weight).learnt()

    def _seen(self, rows: TrainingRows) -> Ints | None:
        """The numbers (m,) of the rows used in quick looks; None: all."""
        if self.n_look is None or len(rows.y) <= self.n_look:
            return None
        return np.sort(np.random.default_rng(0).permutation(len(rows.y))[: self.n_look])

    def _nearer(
        self, boosting: _Boosting, few: _Boosting, seen: Ints | None, without: _Boosted, look: BoostingSettings
    ) -> tuple[_Boosting, _Boosted]:
        """The boosting and its first look, with the nearness of training rows if that surely helps.

        few: the boosting of the rows (m,) that are `seen` in looks; None: all.
        """
        best, chosen = without, boosting
        rows, most = boosting.rows, self.n_remembered
        for metric in _metrics(boosting.mean, rows) if most else ():
            near = Nearness.cross_fit(rows, metric, most, seen)
            nearer = replace(few, near=near)
            # A generator of its own: without nearness the base is the same as if nobody had looked.
            second = nearer.run(look, nearer.start(), without.trend, T5, np.random.default_rng(0))
            if second.loss < best.loss and second.is_surely_better(without, few.rows.weight):
                best, chosen = second, replace(boosting, near=near)
        if seen is not None and chosen.near is not None:
            chosen = replace(chosen, near=Nearness.cross_fit(rows, chosen.near[0].metric, most))
        return chosen, best

    def _simple(self, boosting: _Boosting, trends: Sequence[Trend]) -> list[_Boosted]:
        """A constant alone, and linear means alone unless other learners are clearly better; nothing is boosted.

        Others are no candidates: a process, which was tuned on all rows, looks better on left-out ones than it is.
        """
        settings = replace(self.scales, max_rounds=0)
        parts = [boosting.only(k) for k, j in enumerate(boosting.mean.components) if boosting.mean.names[j] in _LINEAR]
        mean, location = Mean.constant(boosting.rows)
        parts.insert(0, replace(boosting, mean=mean, means=location))
        return [part.run(settings, part.start(), trend, T5) for trend in trends for part in parts]


def _metrics(mean: Mean, rows: TrainingRows) -> Iterator[Array]:
    """What the covariates may count (q,) in distances: all the same, or by what they do to the stack."""
    q = rows.x.shape[1]
    yield np.ones(q)
    rng = np.random.default_rng(0)  # of its own: what comes after does not depend on it
    sample = rows.x[np.sort(rng.permutation(len(rows.x))[:_ROWS_OF_METRIC])]
    relevance = relevance_of(sample, lambda x: mean(x)[:, :1], rng)
    if q > 1 and relevance.any():
        yield relevance / relevance.max()


@dataclass(frozen=True)
class _Boosted:
    """Boosted scores of components whose locations are known, and the tail that suits them best."""

    mean: Mean
    near: Nearness | None
    trend: Trend
    scores: BoostedScores
    left_out: Array  # (n, 3 J), with the shift
    tail: int
    shift: float  # to be added to the log scales with this tail
    loss: float  # mean negative log-likelihood of left-out rows
    each: Array  # (n,): negative log-likelihood of each
    weight: float  # of all rows

    def loss_at(self, seen: Ints | None, weight: Array) -> float:
        """The loss of some rows (m,) only, of which all have weights (n,); None: of all."""
        return self.loss if seen is None else float(np.average(self.each[seen], weights=weight[seen]))

    def is_surely_better(self, other: _Boosted, weight: Array) -> bool:
        """Whether rows of this weight (n,) are more likely than by the other, and not by chance."""
        gain = other.each - self.each
        mean = float(weight @ gain / self.weight)
        error = float(np.sqrt(weight @ (gain - mean) ** 2)) / self.weight
        return mean > max(_WORTH_IT, _SURE * error)

    def unless_chance(self, constant: _Boosted, weight: Array) -> _Boosted:
        """This, or the constant if covariates may be no more than noise."""
        return self if self.is_surely_better(constant, weight) else constant

    def moved(self) -> Array:
        """Scores (2 J,) that boosting began with, and the shift."""
        start = self.scores.start
        return start + self.shift * (np.arange(len(start)) < len(start) // 2)

    def learnt(self) -> Learnt:
        """The components in the form that a base takes."""
        scores = self.scores.moved(self.shift, len(self.scores.start) // 2)
        return Learnt(Stacked(self.mean, self.trend[0], scores, self.near), self.left_out, self.tail)


def _taken(trend: Trend, seen: Ints | None) -> Trend:
    """A trend of some rows (m,) only; None: of all."""
    return trend if seen is None else (trend[0], trend[1][seen])


def _cheapest(found: Sequence[_Boosted]) -> _Boosted:
    """The candidate with the smallest loss; each candidate has to be better than simpler ones by some nats."""
    best = found[0]
    for one in found[1:]:
        if one.loss < best.loss - _WORTH_MORE / one.weight:
            best = one
    return best


@dataclass(frozen=True)
class _Boosting:
    """Boosting of log scales and logits of the weights of components: around means (n, J), and the nearest row."""

    mean: Mean
    means: Array
    near: tuple[Nearness, Nearby] | None  # for new rows, and of the training rows, out of fold
    rows: TrainingRows
    floor: float
    rng: np.random.Generator
    steps: Steps

    @property
    def _nearby(self) -> Nearby | None:
        return None if self.near is None else self.near[1]

    def only(self, k: int) -> _Boosting:
        """The same with one component, the one that the k-th of the best learners has."""
        return replace(self, mean=self.mean.only(int(self.mean.components[k])), means=self.means[:, [1 + k]])

    def take(self, seen: Ints) -> _Boosting:
        """The same of some rows (m,) only, without nearness."""
        return replace(self, means=self.means[seen], near=None, rows=self.rows.take(seen))

    def start(self) -> Array:
        """Log scales and logits (2 J,) where boosting begins."""
        nearby = self._nearby
        location = _locations(self.means, nearby)
        n_components = location.shape[1]
        share = self.rows.weight / self.rows.weight.sum()
        start = np.zeros(2 * n_components)
        error = _START_OF_SCALE * np.sqrt(share @ (location - self.rows.y[:, None]) ** 2)
        start[n_components] = _START_OF_STACK
        if nearby is not None:
            # It is worth a component where the nearest row is nearly right; a wide one would narrow down slowly.
            error[-1] = np.quantile(np.abs(nearby.value - self.rows.y), _START_OF_NEAREST)
            start[-1] = _LOGIT_OF_NEAREST
        start[:n_components] = np.maximum(np.log(np.maximum(error, 1e-300)), self.floor)
        return start

    def run(
        self,
        settings: BoostingSettings,
        start: Array,
        trend: Trend,
        tail: int,
        own: np.random.Generator | None = None,
    ) -> _Boosted:
        """Boost under a tail, from `start` (2 J,); all log scales of a row are relative to the trend.

        With a generator of its `own` it leaves that of the fit, whose state a checkpoint keeps, as it is.
        """
        rows, location, relative = self.rows, _locations(self.means, self._nearby), trend[1]
        features, n_components = _features(rows.x, self.means, self._nearby), location.shape[1]
        loss = make_loss(rows.observed, location, tail, self.floor, relative)
        fit = partial(boost_scores, loss, features, rows.weight, start, rows.fold, settings, own or self.rng)
        scores, found = self.steps.learn(self.rng, features.shape[1], (len(features), 2 * n_components), fit)
        left_out = np.hstack([found, location])
        left_out[:, :n_components] += relative[:, None]
        tail, shift, value = choose_tail(rows.observed, left_out, rows.weight, self.floor, tail, rows.n_tails)
        left_out[:, :n_components] += shift
        of_rows = make_loss(rows.observed, location, tail, self.floor)
        each = of_rows(left_out[:, : 2 * n_components].copy(), np.arange(len(location)))[0]
        near = None if self.near is None else self.near[0]
        total = float(rows.weight.sum())
        return _Boosted(self.mean, near, trend, scores, left_out, tail, shift, value, each, total)


@dataclass(frozen=True)
class Stacked:
    """Fitted mean learners, and boosted log scales and logits of the weights of their components."""

    mean: Mean
    trend: LinearScale  # of all log scales, to which the scores are added
    scores: BoostedScores
    near: Nearness | None = None  # the rows whose nearness scales and weights see

    @property
    def n_components(self) -> int:
        """J, the number of components."""
        return 1 + len(self.mean.components) + (self.near is not None)

    @property
    def is_line(self) -> bool:
        """Whether the only location is linear in the covariates, also beyond the training rows."""
        lines = [isinstance(part, FittedPolynomial) and part.degree == 1 for part in self.mean.predictors]
        return all(lines) and self.n_components == 1

    def n_features(self, q: int) -> int:
        """Columns that scales and weights depend on, of q covariates."""
        return q + 1 + len(self.mean.components) + (0 if self.near is None else N_FEATURES)

    def n_held(self) -> tuple[int, int]:
        """How many training rows it holds with their outcomes, and of how many it holds covariates only."""
        parts = [part.predictor if isinstance(part, OnNewScale) else part for part in self.mean.predictors]
        with_outcomes = 0 if self.near is None else len(self.near.points)
        with_outcomes += sum(len(part.points) for part in parts if isinstance(part, FittedNeighbours))
        return with_outcomes, sum(len(part.inducing) for part in parts if isinstance(part, FittedProcess))

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 J) at standardised covariates x (n, q)."""
        means, nearby = self.mean(x), None if self.near is None else self.near(x)
        scores = np.hstack([self.scores(_features(x, means, nearby)), _locations(means, nearby)])
        scores[:, : self.n_components] += self.trend(x)[:, None]
        return scores

    def describe(self) -> Iterator[str]:
        """The stack's weights, and whether scales see how near training rows are."""
        stack = sorted(zip(self.mean.weights, self.mean.names, strict=True), reverse=True)
        yield "stack of regressors for the mean: " + ", ".join(
            f"{name} {weight:.0%}" for weight, name in stack if weight >= 0.005
        )
        if self.near is not None:
            yield f"scales and weights see how near the nearest of {len(self.near.points):,} training rows are"


def _is_process(name: str) -> bool:
    return name.startswith("Gaussian process")


def _locations(means: Array, nearby: Nearby | None) -> Array:
    """Locations (n, J) of the components: means (n, .), the stack first, then the nearest row's outcome."""
    return means if nearby is None else np.column_stack([means, nearby.value])


def _features(x: Array, means: Array, nearby: Nearby | None) -> Array:
    """What scales and weights depend on: covariates, the stack, where the others differ from it, and nearness."""
    columns = [x, means[:, :1], means[:, 1:] - means[:, :1]]
    return np.hstack(columns if nearby is None else [*columns, nearby.features(means[:, 0])])
