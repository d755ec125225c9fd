"""What the conditional base needs of a regressor: predictions of rows it was not trained on, and of new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from treecdf._common.typing import Array, Ints

# Standardised covariates (n, q) -> predictions (n,)
Predictor = Callable[[Array], Array]


class Learner(Protocol):
    """Learns the mean of one outcome."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def kind(self) -> str:
        """Learners of one kind make similar errors."""
        ...

    def is_worth_trying(self, errors: dict[str, float]) -> bool:
        """Whether to train it, given the left-out errors of the kinds before it."""
        ...

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[Predictor, Array]:
        """A predictor for new rows, and predictions (n,) of training rows by models that did not see their fold.

        x (n, q) and y (n,) are standardised. Rows of the same fold (n,) are left out together, not one by one: n
        predictions without one row each, seen side by side, tell the outcome of every row. `best` is the error of the
        best learner so far: one that is far behind may give up.
        """
        ...


class Cheap:
    """A learner that is always worth trying."""

    def is_worth_trying(self, errors: dict[str, float]) -> bool:
        """It is."""
        return True
