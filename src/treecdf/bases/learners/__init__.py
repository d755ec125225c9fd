"""Learners of the conditional mean, each with predictions of rows it was not trained on."""

from __future__ import annotations

from typing import Any

from treecdf.bases.learners.any_sklearn import AnyRegressor
from treecdf.bases.learners.boosting import BoostedMean
from treecdf.bases.learners.neighbours import Neighbours
from treecdf.bases.learners.network import Network
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.learners.protocol import Learner

_MANY_ROWS = 2500  # from here on trees are deeper and networks are tried
_CROWDED = 5000  # rows from which on neighbours are asked
_HUGE = 20_000  # rows from which on trees learn faster
_MOST_FEATURES = 600  # of a polynomial
_MOST_COVARIATES = 64  # of a Gaussian process
_MOST_DIRECTIONS = 20  # in which to look for neighbours; with more, none is near


def as_learner(regressor: Any) -> Learner:
    """A learner of ours, or any scikit-learn regressor."""
    return regressor if hasattr(regressor, "cross_fit") else AnyRegressor(regressor)


def default_learners(n: int, q: int, effort: str) -> list[Learner]:
    """What is tried on n rows of q covariates, the cheap and the decisive first."""
    degrees = (1, 2) if effort == "fast" else (1, 2, 3)
    learners: list[Learner] = [
        Polynomial(d) for d in degrees if d == 1 or Polynomial(d).n_features(q) <= min(_MOST_FEATURES, 2 * n)
    ]
    neighbours = [Neighbours()] if n > _CROWDED and q <= _MOST_DIRECTIONS else []
    if effort == "fast":
        if q <= _MOST_COVARIATES:
            learners.append(GaussianProcess(n_tuning=150, n_inducing=300, max_iter=30))
        return [*learners, BoostedMean(4 if n <= _MANY_ROWS else 6, rate=0.2, max_rounds=100), *neighbours]
    if q <= _MOST_COVARIATES:
        learners.append(GaussianProcess(n_inducing=1000 if n <= 1000 else 500))
    if n <= _MANY_ROWS:
        learners += [BoostedMean(3), BoostedMean(5)]
    else:
        rate = 0.1 if n <= _HUGE else 0.15
        learners += [BoostedMean(8, rate), BoostedMean(5, rate)]
    if n > _MANY_ROWS and n > 20 * q:
        learners.append(Network())
    return [*learners, *neighbours]


__all__ = [
    "AnyRegressor",
    "BoostedMean",
    "GaussianProcess",
    "Learner",
    "Neighbours",
    "Network",
    "Polynomial",
    "as_learner",
    "default_learners",
]
