"""Node classifiers: given x, is the outcome in the left or in the right child?"""

from treecdf.classifiers.linear import Constant, Logistic
from treecdf.classifiers.mlp import MLP
from treecdf.classifiers.protocol import Moments, NodeClassifier, NodeFits, Splits
from treecdf.classifiers.sklearn import AnyClassifier, as_node_classifier
from treecdf.classifiers.trees import BoostedTrees

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
