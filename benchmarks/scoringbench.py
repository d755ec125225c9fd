"""Our entry for ScoringBench, a public comparison of probabilistic regressors, in the form of its wrappers.

Put this file beside its wrappers and register a model by name, or pass the class to its runner:

    MODELS["treecdf"] = lambda: wrapper_class()()
    MODELS["treecdf_fast"] = lambda: wrapper_class()(effort="fast")

A distribution is handed over as exact quantiles at many levels, dense in the tails, and its mean; text columns,
categories, dates and missing values stay as they are.
"""

from typing import Any

import numpy as np

# Even levels for the body, and levels that halve again and again towards both ends.
_TAIL = 0.5 ** np.arange(9, 17)
LEVELS = np.unique(np.concatenate([np.arange(1, 500) / 500, _TAIL, 1 - _TAIL]))


def wrapper_class() -> type:
    """The class of the wrapper; ScoringBench must be importable."""
    from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper

    class TreecdfWrapper(ProbabilisticWrapper):
        """TreeFlowRegressor behind the three methods that ScoringBench asks for."""

        def __init__(self, **settings: Any) -> None:
            self.settings = {"random_state": 0, "resolution": None, **settings}

        def fit(self, X: Any, y: Any) -> "TreecdfWrapper":
            from treecdf import TreeFlowRegressor

            self._set_train_range(y)
            self.model = TreeFlowRegressor(**self.settings).fit(X, np.asarray(y, dtype=float))
            return self

        def predict(self, X: Any) -> np.ndarray:
            return self.model.predict(X)

        def predict_distribution(self, X: Any) -> Any:
            found = self.model.predict_distribution(X)
            return DistributionPrediction.from_multi_quantile(
                found.icdf(LEVELS), LEVELS, found.mean(), train_range=self._y_train_range
            )

    return TreecdfWrapper
