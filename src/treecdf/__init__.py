"""Learn the whole conditional distribution p(y | x) of one or several outcomes on a table."""

from treecdf.boosting import Stage
from treecdf.classifiers import MLP, BoostedTrees, Constant, Logistic
from treecdf.composition import CompositionalFlow
from treecdf.distribution import ConditionalDistribution
from treecdf.estimator import TreeFlowRegressor
from treecdf.files import ModelFileError
from treecdf.loading import load_model

__version__ = "0.1.0.dev0"

__all__ = [
    "MLP",
    "BoostedTrees",
    "CompositionalFlow",
    "ConditionalDistribution",
    "Constant",
    "Logistic",
    "ModelFileError",
    "Stage",
    "TreeFlowRegressor",
    "load_model",
]
