"""The model's distributions and the true outcomes, one outcome at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf.data.table import outcome_names as names_of_outcomes
from treecdf.data.table import read_outcomes
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.recorded import RecordedDistribution

_MOST_VALUES = 60  # of a grid, up to which each is shown
# A fitted model that predicts distributions, or a pipeline or search with one inside.
Model: TypeAlias = Any
# Of several outcomes the one to show: its name or its number.
Outcome: TypeAlias = int | str | None


def choose(outcome: Outcome, distribution: ConditionalDistribution) -> int:
    """Number of the outcome to show; with several outcomes the user has to name one."""
    n_outcomes = distribution.n_outcomes
    if outcome is None:
        if n_outcomes > 1:
            names = ", ".join(map(repr, distribution.outcome_names))
            raise ValueError(f"This picture is of one outcome and the model has {n_outcomes}: pass outcome=, {names}.")
        return 0
    if isinstance(outcome, str) and outcome in distribution.outcome_names:
        return distribution.outcome_names.index(outcome)
    if not isinstance(outcome, (int, np.integer)) or not 0 <= outcome < n_outcomes:
        known = f"a name of an outcome or a number from 0 to {n_outcomes - 1}"
        raise ValueError(f"Expected outcome to be {known}; got {outcome!r}.")
    return int(outcome)


def one_outcome(distribution: ConditionalDistribution, outcome: Outcome) -> ConditionalDistribution:
    """The distributions of one outcome; of several outcomes its marginals."""
    j = choose(outcome, distribution)
    return distribution if distribution.n_outcomes == 1 else distribution.marginal(j)


def values_of(one: ConditionalDistribution, tail: float) -> Array | None:
    """The values (m,) of an outcome on a grid, less a share `tail` of the probability on each side.

    None if the outcome is on no grid, or if there are too many values.
    """
    if not isinstance(one, RecordedDistribution):
        return None
    ends = one.icdf([tail, 1 - tail])
    return one.values_between(float(ends.min()), float(ends.max()), _MOST_VALUES)


def truth(y: ArrayLike, outcome: Outcome, distribution: ConditionalDistribution) -> Array:
    """True outcomes (n,) of the rows of a distribution, in the order of its rows."""
    values = read_outcomes(y, distribution.n_outcomes)
    if len(values) != len(distribution):
        raise ValueError(f"X has {len(distribution)} rows and y has {len(values)}: they must have the same number.")
    return values[:, choose(outcome, distribution)]


def outcome_names(model: Model, y: ArrayLike | None, n_outcomes: int) -> list[str]:
    """Names of the outcomes: those of y if it is a frame or a series, else those of the model's training rows."""
    learnt = getattr(model, "outcome_names_", None)
    if learnt is None or getattr(y, "columns", None) is not None or getattr(y, "name", None) is not None:
        return list(names_of_outcomes(y, n_outcomes))
    return list(learnt)
