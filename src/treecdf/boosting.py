"""Algorithm 1: stages of trees, each grown on the residuals of the last, stopped early and rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treecdf.classifiers import NodeClassifier
from treecdf.grower import Growth, TreeGrower
from treecdf.rows import Rows
from treecdf.tree import TreeSequence

# A row this much denser than the uniform (per outcome) is an atom at the resolution of float64.
_LARGEST_LOG_DENSITY = 30.0


@dataclass(frozen=True)
class Stage:
    """A run of trees with one kind of node classifier.

    classifier: Constant, Logistic, MLP or any scikit-learn classifier with predict_proba.
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


def boost(
    train: Rows,
    validation: Rows | None,
    stages: Sequence[tuple[NodeClassifier, int]],
    growth: Growth,
    *,
    max_trees: int,
    window: int,
    rng: np.random.Generator,
    report: Callable[[History], None] = lambda history: None,
) -> tuple[list[TreeSequence], History]:
    """Grow the stages' trees; return one sequence, perhaps empty, for each stage, and the history.

    Log-likelihoods are those of the outcomes in the cube. Without validation rows every stage grows max_trees.
    """
    history = History()
    blocks = []
    train_score = validation_score = 0.0
    for number, (classifier, max_depth) in enumerate(stages):
        trees: list[TreeSequence] = []
        scores, train_scores = [validation_score], [train_score]
        best = 0
        for rows in (train, validation):
            if rows is not None:
                rows.keep()
        for k in range(1, max_trees + 1):
            tree = TreeGrower(train, classifier, max_depth, growth, rng).grow()
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
            if validation is not None and k >= window and scores[k] <= scores[k - window]:
                break
        for dropped in range(best, len(trees)):
            history.kept[len(history.kept) - len(trees) + dropped] = False
        for rows in (train, validation):
            if rows is not None:
                rows.restore()
        train_score, validation_score = train_scores[best], scores[best]
        blocks.append(TreeSequence.join(trees[:best]))
    return blocks, history
