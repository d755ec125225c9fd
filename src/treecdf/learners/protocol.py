"""What the conditional base needs of a regressor: predictions of rows it was not trained on, and of new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Standardised covariates (n, q) -> (n, 1), the mean, or (n, 2), the mean and the log of the learner's own error.
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
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator
    ) -> tuple[Predictor, Array]:
        """A predictor for new rows, and what models that did not see a training row predict for it.

        x (n, q) and y (n,) are standardised; rows of the same fold (n,) are left out together, or each on its own
        where that has a closed form.
        """
        ...


class Cheap:
    """A learner that is always worth trying."""

    def is_worth_trying(self, errors: dict[str, float]) -> bool:
        """It is."""
        return True
