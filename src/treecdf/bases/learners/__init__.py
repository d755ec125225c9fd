"""Learners of the conditional mean, each with out-of-fold predictions."""

from __future__ import annotations

from typing import cast

from treecdf.bases.learners.any_sklearn import AnyRegressor, Regressor
from treecdf.bases.learners.boosting import BoostedMean
from treecdf.bases.learners.lasso import Lasso
from treecdf.bases.learners.neighbours import Neighbours
from treecdf.bases.learners.network import Network
from treecdf.bases.learners.polynomial import Polynomial
from treecdf.bases.learners.process import GaussianProcess
from treecdf.bases.learners.protocol import Learner


def as_learner(regressor: Learner | Regressor) -> Learner:
    """The learner itself, or a scikit-learn regressor wrapped as one."""
    return cast(Learner, regressor) if hasattr(regressor, "cross_fit") else AnyRegressor(regressor)


__all__ = [
    "AnyRegressor",
    "BoostedMean",
    "GaussianProcess",
    "Lasso",
    "Learner",
    "Neighbours",
    "Network",
    "Polynomial",
    "Regressor",
    "as_learner",
]
