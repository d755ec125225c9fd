"""Any scikit-learn regressor as a mean learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from treecdf._common.protocols import Regressor
from treecdf._common.telling import each_fold
from treecdf._common.typing import Array, Ints
from treecdf.bases.learners.protocol import AlwaysTried


@dataclass(frozen=True)
class AnyRegressor(AlwaysTried):
    """A scikit-learn regressor, fitted once without each fold; predictions of new rows are the mean of these models.

    Parameters
    ----------
    regressor : scikit-learn regressor
        It is cloned, never changed. If it has a `random_state` of None, every clone gets a seed.
    """

    regressor: Regressor

    @property
    def kind(self) -> str:
        """The regressor with its parameters as text, so that each regressor is a kind of its own."""
        return repr(self.regressor)

    @property
    def name(self) -> str:
        """The name of the regressor's class."""
        return type(self.regressor).__name__

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[MeanOfFolds, Array]:
        """The folds' models, and out-of-fold predictions (n,); see `Learner.cross_fit`."""
        models, left_out = [], np.empty(len(x))
        for f in each_fold(int(fold.max()) + 1):
            here, others = fold == f, fold != f
            model = clone(self.regressor)
            if model.get_params().get("random_state", 0) is None:
                model.set_params(random_state=int(rng.integers(2**31)))
            weights = {"sample_weight": weight[others]} if has_fit_parameter(model, "sample_weight") else {}
            models.append(model.fit(x[others], y[others], **weights))
            left_out[here] = np.ravel(model.predict(x[here]))
        return MeanOfFolds(tuple(models)), left_out


@dataclass(frozen=True)
class MeanOfFolds:
    """Mean prediction of fitted regressors, one for each fold."""

    models: tuple[Regressor, ...]

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q)."""
        return np.mean([np.ravel(model.predict(x)) for model in self.models], axis=0)
