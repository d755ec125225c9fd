"""Settings of a training: the estimator's parameters, frozen; stages of trees; the recipe of one flow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from treecdf._common.protocols import Classifier, Clusterer, Regressor, Seed
from treecdf._common.typing import Array, Bound
from treecdf.bases.box import MARGIN
from treecdf.bases.learners.protocol import Learner
from treecdf.bases.transform import OutcomeTransform
from treecdf.training.classifiers.protocol import NodeClassifier

# Settings that do not shape the model.
_HOW_TO_RUN = ("n_jobs", "random_state", "verbose", "checkpoint", "on_interrupt")


@dataclass(frozen=True)
class Stage:
    """A run of trees with one kind of node classifier.

    Parameters
    ----------
    classifier : Constant, Logistic, MLP, BoostedTrees or a scikit-learn classifier with predict_proba
        Predicts, at every node, the probability of the left child given x.
    max_depth : int, default 6
        Levels of splits in a tree.

    Examples
    --------
    >>> from treecdf import Logistic, Stage
    >>> Stage(Logistic(), max_depth=4).max_depth
    4
    """

    classifier: NodeClassifier | Classifier
    max_depth: int = 6


@dataclass(frozen=True)
class FitSettings:
    """The parameters of a TreeFlowRegressor, checked and frozen for one fit; its docstring explains them."""

    effort: str
    structure: str
    base: str | tuple[Regressor | Learner, ...]
    stages: tuple[Stage, ...] | None
    margin: float
    bounds: Any  # as given; they can be read when the number of outcomes is known
    atoms: Any
    resolution: Any
    categorical_features: Any
    weights_are: str
    remember_rows: bool
    rotations: int | Sequence[Array] | None
    weights: str
    regions: int | str | Clusterer
    c0: float
    gamma: float
    eta: float
    penalty: str
    grid_size: int
    min_samples_node: float
    max_trees: int
    early_stopping_window: int
    validation_fraction: float
    subsample: float | None
    split_search: str
    n_jobs: int | None
    random_state: Seed
    checkpoint: str | os.PathLike[str] | None
    on_interrupt: str
    verbose: int

    @property
    def growth(self) -> Growth:
        """How trees are grown; without a `subsample` on all rows."""
        return Growth(
            c0=self.c0,
            gamma=self.gamma,
            eta=self.eta,
            penalty=self.penalty,
            grid_size=self.grid_size,
            min_samples_node=self.min_samples_node,
            split_search=self.split_search,
            subsample=1.0 if self.subsample is None else self.subsample,
        )

    @property
    def has_rotations(self) -> bool:
        """Whether flows are grown on rotated outcomes: `rotations` is neither None nor 0."""
        return self.rotations is not None and not (isinstance(self.rotations, int) and self.rotations == 0)

    def shaping(self) -> dict[str, Any]:
        """The settings on which the model depends, by name."""
        return {own.name: getattr(self, own.name) for own in fields(self) if own.name not in _HOW_TO_RUN}


@dataclass(frozen=True)
class Recipe:
    """How a flow is trained: everything except the rows and the seed."""

    stages: tuple[tuple[NodeClassifier, int], ...]  # classifier and depth
    growth: Growth
    max_trees: int
    window: int
    bounds: tuple[Bound, ...]
    rotation: Array | None = None  # orthogonal matrix (d, d)
    base: str = "box"  # or "student", "normal"
    margin: float = MARGIN  # of the box
    remember_rows: bool = True  # whether the model may hold training rows
    rows_of_tails: int | None = None  # that tails of components are compared on at most; None: all
    transform: OutcomeTransform | None = None  # of the outcome, for a conditional base; None: it is chosen
    least_gain: float = 0.0  # nats, all validation rows together, that the trees of a stage gain, or there are none
    gain_a_tree: float = 0.0  # nats a validation row that a tree has to gain, on average over a window, to go on


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
    penalty: str = "node"

    @property
    def fractions(self) -> Array:
        """Where the candidate cuts stand in a node's box of width one."""
        if self.split_search == "middle":
            return np.array([0.5])
        return np.arange(1, self.grid_size + 1) / (self.grid_size + 1)
