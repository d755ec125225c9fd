"""What the conditional base needs of a regressor: predictions of rows it was not trained on, and of new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from treecdf._common.typing import Array, Ints

# Standardised covariates (n, q) -> predictions (n,)
Predictor = Callable[[Array], Array]


class Learner(Protocol):
    """A learner of the conditional mean of one outcome; any object with these four members may be passed as `base=`."""

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        ...

    @property
    def kind(self) -> str:
        """A word that learners of the same kind share, such as "trees": `is_worth_trying` looks errors up by it."""
        ...

    def is_worth_trying(self, errors: Mapping[str, float]) -> bool:
        """Whether to train it, given the smallest out-of-fold root mean squared error so far of each kind."""
        ...

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[Predictor, Array]:
        """Train on all rows, and once without each fold.

        Rows of the same fold are left out together, not one by one: n predictions without one row each, seen side by
        side, tell the outcome of every row.

        Parameters
        ----------
        x : array of shape (n, q)
            Standardised covariates.
        y : array of shape (n,)
            Standardised outcomes.
        weight : array of shape (n,)
            Weights of the rows.
        fold : array of shape (n,)
            Number of each row's fold, 0, 1, ...
        rng : numpy.random.Generator
            The only source of randomness.
        best : float, default inf
            Out-of-fold root mean squared error of the best learner so far; one that is far behind may give up.

        Returns
        -------
        predictor : callable
            Predictions (m,) of new rows (m, q).
        left_out : array of shape (n,)
            Out-of-fold predictions of the training rows.
        """
        ...


class AlwaysTried:
    """Mixin of learners that are worth trying whatever the errors of the others are."""

    def is_worth_trying(self, errors: Mapping[str, float]) -> bool:
        """True, whatever the errors of other learners."""
        return True
