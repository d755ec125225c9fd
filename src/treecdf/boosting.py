"""Algorithm 1: stages of trees, each grown on the residuals of the last, stopped early and rolled back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf.base import Base, Bound, Student, Support
from treecdf.classifiers import NodeClassifier
from treecdf.flow import TreeFlow
from treecdf.grower import Growth, TreeGrower
from treecdf.rows import Rows
from treecdf.table import Standardizer, Table
from treecdf.tree import TreeSequence

# A row this much denser than the uniform (per outcome) is an atom at the resolution of float64.
_LARGEST_LOG_DENSITY = 30.0


@dataclass(frozen=True)
class Stage:
    """A run of trees with one kind of node classifier.

    classifier: Constant, Logistic, MLP, BoostedTrees or any scikit-learn classifier with predict_proba.
    max_depth: levels of splits in a tree.
    """

    classifier: Any
    max_depth: int = 6


@dataclass
class History:
    """Mean log-likelihood after every tree that was grown, also those rolled back."""

    stage: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Recipe:
    """How a flow is trained; the rows and the seed are all that is missing."""

    stages: tuple[tuple[NodeClassifier, int], ...]  # classifier and depth
    growth: Growth
    max_trees: int
    window: int
    bounds: tuple[Bound, ...]
    rotation: NDArray[np.float64] | None = None  # orthogonal matrix (d, d)
    base: str = "box"


def fit_flow(
    recipe: Recipe,
    train: Table,
    validation: Table | None,
    rng: np.random.Generator,
    pool: Executor | None = None,
    report: Callable[[History, float], None] = lambda history, score: None,
) -> tuple[TreeFlow, History]:
    """Train a flow; its history, and the validation score it reports, are in the outcomes' own unit."""
    standardize = Standardizer.fit(train.x, train.weight)
    base: Base
    if recipe.base == "student":
        base = Student.fit(train.y, train.weight, recipe.rotation)
    else:
        base = Support.fit(train.y, train.weight, recipe.bounds, recipe.rotation)
    train_rows, train_base, _ = _rows(train, standardize, base, pool)
    val_rows, val_base, val_share = None, np.nan, 1.0
    if validation is not None:
        val_rows, val_base, val_share = _rows(validation, standardize, base, pool)

    def tell(history: History) -> None:
        report(history, val_base + val_share * history.validation[-1])

    blocks, history = boost(train_rows, val_rows, recipe, rng, tell)
    history.train = [train_base + value for value in history.train]
    history.validation = [val_base + val_share * value for value in history.validation]
    return TreeFlow(standardize, base, tuple(blocks)), history


def _rows(table: Table, standardize: Standardizer, base: Base, pool: Executor | None) -> tuple[Rows, float, float]:
    """The table's rows inside the box, the base's mean log density of all rows, and the weight share inside."""
    v, log_det = base.to_box(table.y)
    inside = base.inside(v)
    total = table.weight.sum()
    base_log_lik = float(table.weight @ log_det / total)
    if not inside.all():
        table, v = table.take(inside), v[inside]
    rows = Rows(standardize(table.x), np.clip(v, 1e-300, 1.0), table.weight, pool)
    return rows, base_log_lik, rows.weight / total


def boost(
    train: Rows,
    validation: Rows | None,
    recipe: Recipe,
    rng: np.random.Generator,
    report: Callable[[History], None] = lambda history: None,
) -> tuple[list[TreeSequence], History]:
    """Grow the stages' trees; return one sequence, perhaps empty, for each stage, and the history.

    Log-likelihoods are those of the outcomes in the cube. Without validation rows every stage grows max_trees.
    """
    history = History()
    blocks = []
    train_score = validation_score = 0.0
    for number, (classifier, max_depth) in enumerate(recipe.stages):
        trees: list[TreeSequence] = []
        scores, train_scores = [validation_score], [train_score]
        best = 0
        for rows in (train, validation):
            if rows is not None:
                rows.keep()
        for k in range(1, recipe.max_trees + 1):
            tree = TreeGrower(train, classifier, max_depth, recipe.growth, rng).grow()
            if not len(tree):
                break
            trees.append(tree)
            gained, densest = train.apply(tree)
            train_scores.append(train_scores[-1] + gained)
            if validation is None:
                scores.append(train_scores[-1])
            else:
                scores.append(scores[-1] + validation.apply(tree)[0])
            history.stage.append(number)
            history.train.append(train_scores[-1])
            history.validation.append(np.nan if validation is None else scores[-1])
            history.kept.append(True)
            report(history)
            if scores[k] > scores[best]:
                best = k
                for rows in (train, validation):
                    if rows is not None:
                        rows.keep()
            if densest > _LARGEST_LOG_DENSITY * train.n_outcomes:
                break
            if validation is not None and k >= recipe.window and scores[k] <= scores[k - recipe.window]:
                break
        for dropped in range(best, len(trees)):
            history.kept[len(history.kept) - len(trees) + dropped] = False
        for rows in (train, validation):
            if rows is not None:
                rows.restore()
        train_score, validation_score = train_scores[best], scores[best]
        blocks.append(TreeSequence.join(trees[:best]))
    return blocks, history
