"""Covariates on a scale that suits smooth learners: long tails are drawn in, if left-out rows say that it helps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning

from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.learners.protocol import Learner, Predictor

_SMOOTH = ("polynomial", "process")  # kinds of learners to whom the scale of a covariate matters
_SKEWED = 1.5  # skewness from which on a covariate's scale is in doubt
_FEWEST_VALUES = 20  # distinct ones of such a covariate
_N_KNOTS = 60  # of a covariate's new scale
_TRIED_ROWS = 500  # rows that the two scales are compared on
_MOST_COLUMNS = 20  # covariates up to which the comparison is by a quadratic model and a process, else by a linear one
_WORTH = 0.97  # the new scale has to have at most this share of the root mean squared error


@dataclass(frozen=True)
class Straightener:
    """Normal scores of the ranks of some covariates, linear between knots and constant beyond the training range."""

    columns: Ints  # (k,)
    knots: Array  # (k, m): values, ascending
    scores: Array  # (m,): of the standard normal distribution

    @staticmethod
    def fit(x: Array, columns: Ints) -> Straightener:
        """The scores of the ranks of some columns of covariates x (n, q)."""
        farthest = ndtri(1 - 0.5 / len(x))
        scores = np.linspace(-farthest, farthest, _N_KNOTS)
        knots = np.quantile(x[:, columns], ndtr(scores), axis=0, method="hazen").T
        return Straightener(columns, np.ascontiguousarray(knots), scores)

    def __call__(self, x: Array) -> Array:
        """Covariates (n, q), the columns in question on their new scale."""
        straight = x.copy()
        for j, knots in zip(self.columns, self.knots, strict=True):
            straight[:, j] = np.interp(x[:, j], knots, self.scores)
        return straight


@dataclass(frozen=True)
class OnNewScale:
    """A predictor that sees covariates on another scale."""

    scale: Straightener
    predictor: Predictor

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        return self.predictor(self.scale(x))


@dataclass(frozen=True)
class LearnerOnNewScale:
    """A learner that sees covariates on another scale."""

    learner: Learner
    scale: Straightener

    @property
    def kind(self) -> str:
        """The kind of the wrapped learner."""
        return self.learner.kind

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return f"{self.learner.name} of ranks"

    def is_worth_trying(self, errors: Mapping[str, float]) -> bool:
        """The answer of the wrapped learner."""
        return self.learner.is_worth_trying(errors)

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[OnNewScale, Array]:
        """The wrapped learner fitted to covariates on the new scale; see `Learner.cross_fit`."""
        predictor, left_out = self.learner.cross_fit(self.scale(x), y, weight, fold, rng, best)
        return OnNewScale(self.scale, predictor), left_out


def on_both_scales(learners: Sequence[Learner], scale: Straightener | None) -> list[Learner]:
    """The learners, and after each smooth one the same on the new scale if there is one."""
    both: list[Learner] = []
    for learner in learners:
        both.append(learner)
        if scale is not None and learner.kind in _SMOOTH:
            both.append(LearnerOnNewScale(learner, scale))
    return both


def choose_scale(x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator) -> Straightener | None:
    """The new scale of skewed columns of standardised covariates x (n, q); None if they are better as they are.

    Out-of-fold rows decide, by what smooth learners say of outcomes y (n,).
    """
    columns = _skewed_columns(x, weight)
    if not len(columns):
        return None
    scale = Straightener.fit(x, columns)
    few = np.sort(rng.permutation(len(x))[:_TRIED_ROWS])
    learners: list[Learner] = [Polynomial(1)]
    if x.shape[1] <= _MOST_COLUMNS:
        learners = [Polynomial(2), GaussianProcess(n_tuning=100, n_inducing=200, max_iter=20)]

    def error(version: Array, learner: Learner) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a learner that fails loses the comparison
            left_out = learner.cross_fit(version, y[few], weight[few], fold[few], rng)[1]
        return float(weight[few] @ (left_out - y[few]) ** 2)

    plain, new = (min(error(version, learner) for learner in learners) for version in (x[few], scale(x[few])))
    return scale if new < _WORTH**2 * plain else None


def _skewed_columns(x: Array, weight: Array) -> Ints:
    """Places of the columns of x (n, q) with long tails on one side and many values."""
    share = weight / weight.sum()
    centered = x - share @ x
    spread = np.sqrt(share @ centered**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = (share @ centered**3) / spread**3
    found = [j for j in np.flatnonzero(np.abs(skewness) > _SKEWED) if len(np.unique(x[:, j])) >= _FEWEST_VALUES]
    return np.array(found, np.int64)
