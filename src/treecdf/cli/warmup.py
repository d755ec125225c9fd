"""Compile every kernel by using it once."""

from __future__ import annotations

import numpy as np

from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.training.classifiers import MLP, BoostedTrees, Logistic
from treecdf.training.settings import Stage


def warm_up() -> None:
    """Fit tiny models and use them: the default, one for few values, and one with each built-in node classifier."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 2)), rng.normal(size=64)
    classifiers = (Logistic(), Logistic(basis="hinges"), MLP(), BoostedTrees())
    stages = [Stage(classifier, max_depth=2) for classifier in classifiers]
    on_grid = TreeFlowRegressor(effort="fast", max_trees=1, resolution=0.5)
    for model in (TreeFlowRegressor(max_trees=1), on_grid, TreeFlowRegressor(base="box", stages=stages, max_trees=1)):
        model.set_params(validation_fraction=0, random_state=0).fit(x, y)
        model.log_prob(x, y)
        model.sample(x, n_samples=1, random_state=0)
        distribution = model.predict_distribution(x[:2])
        distribution.mean()
        distribution.median()
        distribution.crps(y[:2])
        distribution.icdf(np.linspace(0.1, 0.9, 9))
