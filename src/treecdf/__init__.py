"""Learn the whole conditional distribution p(y | x) of one or several outcomes on a table."""

from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.persist.files import ModelFileError
from treecdf.training.classifiers import MLP, BoostedTrees, Constant, Logistic
from treecdf.training.settings import Stage

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
