"""The model's distributions and the true outcomes, one outcome at a time."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf.data.table import outcome_names as names_of_outcomes
from treecdf.data.table import read_outcomes
from treecdf.flows.distribution import ConditionalDistribution


class Model(Protocol):
    """A fitted model that predicts distributions."""

    def predict_distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """The conditional distributions at covariates X (n, q)."""
        ...


def predict(model: Model, X: ArrayLike) -> ConditionalDistribution:
    """Conditional distributions at the rows of X."""
    if not hasattr(model, "predict_distribution"):
        raise TypeError(
            f"Expected a model with predict_distribution; got {type(model).__name__}. Of a pipeline pass the last step "
            "and what the others make of X: pipe[-1], pipe[:-1].transform(X)."
        )
    return model.predict_distribution(X)


def choose(outcome: int | None, n_outcomes: int) -> int:
    """Number of the outcome to show; with several the user has to say which."""
    if outcome is None:
        if n_outcomes > 1:
            raise ValueError(f"This picture is of one outcome and the model has {n_outcomes}: pass outcome=0, ....")
        return 0
    if not isinstance(outcome, (int, np.integer)) or not 0 <= outcome < n_outcomes:
        raise ValueError(f"Expected outcome to be a number from 0 to {n_outcomes - 1}; got {outcome!r}.")
    return int(outcome)


def one_outcome(distribution: ConditionalDistribution, outcome: int | None) -> ConditionalDistribution:
    """Distributions of one outcome: exact ones, or draws if the model has several."""
    j = choose(outcome, distribution.n_outcomes)
    return distribution if distribution.n_outcomes == 1 else distribution.marginal(j)


def truth(y: ArrayLike, outcome: int | None, distribution: ConditionalDistribution) -> Array:
    """True outcomes (n,) of the rows of a distribution, in the order of its rows."""
    values = read_outcomes(y, distribution.n_outcomes)
    if len(values) != len(distribution):
        raise ValueError(f"X has {len(distribution)} rows and y has {len(values)}: they must have the same number.")
    return values[:, choose(outcome, distribution.n_outcomes)]


def outcome_names(model: Model, y: ArrayLike | None, n_outcomes: int) -> list[str]:
    """Names of the outcomes: those of y if it is a frame or a series, else those of the model's training rows."""
    learnt = getattr(model, "outcome_names_", None)
    if learnt is None or getattr(y, "columns", None) is not None or getattr(y, "name", None) is not None:
        return list(names_of_outcomes(y, n_outcomes))
    return list(learnt)
