"""Scores for model selection that mean the same whatever the model's settings are.

`score` of a model is the mean log density. Its unit depends on `atoms` and `resolution`: a log probability at an atom,
the log of a cell's probability over its width on a grid. So it must not be compared between models that differ in
these. The continuous ranked probability score (CRPS) is in the unit of the outcome for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecdf.data.table import read_outcomes, read_weights
from treecdf.estimators.pipelines import predict_distribution

__all__ = ["crps_scorer"]


def crps_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Minus the mean CRPS of a fitted model: a scorer for `GridSearchCV` and `cross_val_score`.

    Parameters
    ----------
    estimator : TreeFlowRegressor, or Pipeline or search with one inside
        The fitted model.
    X : array or frame of shape (n, q)
        Covariates.
    y : array, series or frame of shape (n,) or (n, d)
        Outcomes.
    sample_weight : array of shape (n,), default None
        Weights of the rows. None: all 1.

    Returns
    -------
    float
        In the unit of the outcome, greater is better; of several outcomes the mean of their scores.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from treecdf import TreeFlowRegressor
    >>> from treecdf.metrics import crps_scorer
    >>> x = np.linspace(-1, 1, 90)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0)
    >>> cross_val_score(model, x, x[:, 0] ** 2, scoring=crps_scorer, cv=3).shape
    (3,)
    """
    distribution = predict_distribution(estimator, X)
    truth = read_outcomes(y, distribution.n_outcomes)
    crps = np.mean([distribution.marginal(j).crps(column) for j, column in enumerate(truth.T)], axis=0)
    return -float(np.average(crps, weights=read_weights(sample_weight, len(crps))))
