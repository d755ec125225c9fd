"""Node classifiers: given x, the probability that the outcome is in the left child."""

from __future__ import annotations

from treecdf.training.classifiers.any_sklearn import AnyClassifier, as_node_classifier
from treecdf.training.classifiers.boosted_trees import BoostedTrees
from treecdf.training.classifiers.linear import Constant, Logistic
from treecdf.training.classifiers.mlp import MLP
from treecdf.training.classifiers.protocol import Moments, NodeClassifier, NodeFits, Splits

__all__ = [
    "MLP",
    "AnyClassifier",
    "BoostedTrees",
    "Constant",
    "Logistic",
    "Moments",
    "NodeClassifier",
    "NodeFits",
    "Splits",
    "as_node_classifier",
]
