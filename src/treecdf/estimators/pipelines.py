"""Distributions of a model inside scikit-learn's pipelines and searches, which pass on `predict` only."""

from __future__ import annotations

from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from treecdf.flows.distribution import ConditionalDistribution


def predict_distribution(model: Any, X: Any) -> ConditionalDistribution:
    """The conditional distributions p(y | x) of a fitted model, pipeline or search.

    Parameters
    ----------
    model : TreeFlowRegressor, Pipeline that ends in one, or search such as GridSearchCV of either
        The fitted model.
    X : array or frame of shape (n, q)
        Covariates as the model, or the pipeline's first step, takes them.

    Returns
    -------
    ConditionalDistribution
        With densities, CDF, quantiles, draws and moments.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from treecdf import TreeFlowRegressor, predict_distribution
    >>> x = np.linspace(0, 1, 60)[:, None]
    >>> pipe = make_pipeline(StandardScaler(), TreeFlowRegressor(effort="fast", max_trees=5, random_state=0))
    >>> predict_distribution(pipe.fit(x, x[:, 0] ** 2), x[:3]).interval(0.8)[0].shape
    (3,)
    """
    if hasattr(model, "predict_distribution"):
        found: ConditionalDistribution = model.predict_distribution(X)
        return found
    if hasattr(model, "best_estimator_"):
        return predict_distribution(model.best_estimator_, X)
    if isinstance(model, Pipeline):
        return predict_distribution(model.steps[-1][1], model[:-1].transform(X) if len(model) > 1 else X)
    if isinstance(model, TransformedTargetRegressor):
        raise TypeError(
            "A TransformedTargetRegressor changes predictions, not distributions: fit the model without it, which "
            "chooses a scale for y by itself, and takes bounds=(0, None) for positive outcomes."
        )
    raise TypeError(
        f"Expected a model with predict_distribution, a pipeline that ends in one, or a fitted search; got "
        f"{type(model).__name__}."
    )
