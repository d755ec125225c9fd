"""Settings of a training: stages of trees, how trees grow, and the recipe of one flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treecdf._common.typing import Array
from treecdf.bases.protocol import Bound
from treecdf.training.classifiers.protocol import NodeClassifier


@dataclass(frozen=True)
class Stage:
    """A run of trees with one kind of node classifier.

    classifier: Constant, Logistic, MLP, BoostedTrees or any scikit-learn classifier with predict_proba.
    max_depth: levels of splits in a tree.
    """

    classifier: Any
    max_depth: int = 6


@dataclass(frozen=True)
class Recipe:
    """How a flow is trained; the rows and the seed are all that is missing."""

    stages: tuple[tuple[NodeClassifier, int], ...]  # classifier and depth
    growth: Growth
    max_trees: int
    window: int
    bounds: tuple[Bound, ...]
    rotation: Array | None = None  # orthogonal matrix (d, d)
    base: str = "box"  # or "student"


@dataclass(frozen=True)
class Growth:
    """How trees are grown; the names are those of TreeFlowRegressor."""

    c0: float
    gamma: float
    eta: float
    grid_size: int
    min_samples_node: float
    split_search: str
    subsample: float

    @property
    def fractions(self) -> Array:
        """Where the candidate cuts stand in a node's box of width one."""
        if self.split_search == "middle":
            return np.array([0.5])
        return np.arange(1, self.grid_size + 1) / (self.grid_size + 1)
