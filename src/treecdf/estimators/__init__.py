"""The public estimators, with scikit-learn's interface, and how they come back from files."""

from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor

__all__ = ["CompositionalFlow", "TreeFlowRegressor", "load_model"]
