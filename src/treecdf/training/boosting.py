"""Algorithm 1: stages of trees, each grown on the residuals of the last, stopped early and rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np

from treecdf._common.steps import FORGETFUL, Steps
from treecdf._common.typing import Ints
from treecdf.bases.box import Support
from treecdf.bases.conditional import Conditional
from treecdf.bases.learners.protocol import Learner
from treecdf.bases.protocol import Base
from treecdf.bases.student import Student
from treecdf.data.blocks import ends_of_outcomes, sum_of_weights
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table
from treecdf.flows.flow import TreeFlow
from treecdf.flows.results import Fitted, History
from treecdf.flows.tree import TreeSequence
from treecdf.training.classifiers import NodeClassifier
from treecdf.training.growing.grower import TreeGrower
from treecdf.training.growing.located import Fold, Streamed, average, locate
from treecdf.training.settings import Growth, Recipe
from treecdf.training.sources.operations import CountRows, EveryNth
from treecdf.training.sources.rows import Rows, Source, map_tables

# A row this much denser than the uniform (per outcome) is an atom at the resolution of float64. Every stage has its
# share of the room up to there: outcomes that come again and again would otherwise use it up in the first.
_LARGEST_LOG_DENSITY = 30.0


def fit_flow(
    recipe: Recipe,
    train: Table,
    validation: Table | None,
    rng: np.random.Generator,
    pool: Executor | None = None,
    report: Callable[[History, float], None] = lambda history, score: None,
    steps: Steps = FORGETFUL,
) -> Fitted:
    """Train a flow on an unconditional base; `left_out` are the validation rows."""
    standardize = Standardizer.fit(train.x, train.weight)
    base: Base
    if recipe.base == "student":
        base = Student.fit(train.y, train.weight, recipe.rotation)
    else:
        base = Support.fit(train.y, train.weight, recipe.bounds, recipe.rotation)
    located = [locate(rows, standardize, base) for rows in (train, validation) if rows is not None]
    fold = Fold(*located)
    return _fit_trees(recipe, standardize, base, [fold], rng, pool, report, steps)


def fit_streamed_flow(
    recipe: Recipe,
    open_sources: Callable[[Executor | None], AbstractContextManager[tuple[Source, Source | None]]],
    rng: np.random.Generator,
    pool: Executor | None = None,
    report: Callable[[History, float], None] = lambda history, score: None,
    steps: Steps = FORGETFUL,
) -> Fitted:
    """As `fit_flow`, on sources of tables of training and validation rows; `left_out` is the mean of the latter.

    A table that is in memory gives the same flow, up to the rounding of sums of weights that are no whole numbers.
    """
    with open_sources(pool) as (train, validation):
        return _fit_sources(recipe, train, validation, rng, report, steps)


def _fit_sources(
    recipe: Recipe,
    train: Source,
    validation: Source | None,
    rng: np.random.Generator,
    report: Callable[[History, float], None],
    steps: Steps,
) -> Fitted:
    standardize = Standardizer.fit_blocks(partial(map_tables, train))
    weights = map_tables(train, sum_of_weights)
    n = sum(train.ask_blocks(CountRows()))
    base: Base
    if recipe.base == "student":
        parts = train.ask_blocks(EveryNth(Student.step(n)))
        base = Student.fit(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    else:
        smallest, largest = zip(*map_tables(train, ends_of_outcomes), strict=True)
        base = Support.around(np.min(smallest, axis=0), np.max(largest, axis=0), sum(weights), recipe.bounds)
    fold = Fold(*(Streamed.locate(rows, standardize, base) for rows in (train, validation) if rows is not None))
    return _fit_trees(recipe, standardize, base, [fold], rng, None, report, steps)


def fit_conditional_flows(
    recipe: Recipe,
    learners: Sequence[Learner],
    table: Table,
    fold: Ints,
    validation: Table | None,
    is_stopped: bool,
    rng: np.random.Generator,
    pool: Executor | None = None,
    report: Callable[[History, float], None] = lambda history, score: None,
    steps: Steps = FORGETFUL,
) -> Fitted:
    """Train a flow for each fold (n,) of the rows, stopped by the fold, all on one conditional base of one outcome.

    With a validation table there is one flow, stopped by that; `left_out` then are its rows, else all rows. One that
    is not to be stopped grows on all rows.
    """
    standardize = Standardizer.fit(table.x, table.weight)
    z = standardize(table.x)
    base, parameters = Conditional.cross_fit(learners, z, table.y, table.weight, recipe.bounds[0], fold, rng, steps)
    rows = locate(table, standardize, base, parameters)
    if validation is not None:
        folds = [Fold(rows, locate(validation, standardize, base))]
    elif not is_stopped:
        folds = [Fold(rows)]
    else:
        folds = [Fold(rows.take(fold != f), rows.take(fold == f)) for f in range(int(fold.max()) + 1)]
    fitted = _fit_trees(recipe, standardize, base, folds, rng, pool, report, steps)
    flows = fitted.flows if any(len(block) for flow in fitted.flows for block in flow.blocks) else fitted.flows[:1]
    left_out = fitted.left_out
    if validation is None and left_out is not None:
        left_out = np.empty(len(table))
        left_out[np.argsort(fold, kind="stable")] = fitted.left_out
    return replace(fitted, flows=flows, left_out=left_out)


def _fit_trees(
    recipe: Recipe,
    standardize: Standardizer,
    base: Base,
    folds: Sequence[Fold],
    rng: np.random.Generator,
    pool: Executor | None,
    report: Callable[[History, float], None],
    steps: Steps,
) -> Fitted:
    """Grow the trees of every fold; the history, and the score it reports, are in the outcomes' own unit."""
    rows = [(fold.train.rows(pool), None if fold.validation is None else fold.validation.rows(pool)) for fold in folds]
    held_out = [fold.validation for fold in folds if fold.validation is not None]
    train_base, _ = average([fold.train for fold in folds])
    val_base, val_share = average(held_out) if held_out else (np.nan, 1.0)

    def tell(history: History) -> None:
        report(history, val_base + val_share * history.validation[-1])

    blocks, history = boost(rows, recipe, rng, tell, steps)
    history.train = [train_base + value for value in history.train]
    history.validation = [val_base + val_share * value for value in history.validation]
    score = max((value for value, kept in zip(history.validation, history.kept, strict=True) if kept), default=val_base)
    left_out = [
        fold.validation.left_out(validation, score)
        for fold, (_, validation) in zip(folds, rows, strict=True)
        if fold.validation is not None and validation is not None
    ]
    flows = tuple(TreeFlow(standardize, base, tuple(of_fold)) for of_fold in blocks)
    return Fitted(flows, history, np.concatenate(left_out) if left_out else None, not steps.is_cut_short)


def boost(
    folds: Sequence[tuple[Rows, Rows | None]],
    recipe: Recipe,
    rng: np.random.Generator,
    report: Callable[[History], None] = lambda history: None,
    steps: Steps = FORGETFUL,
) -> tuple[list[list[TreeSequence]], History]:
    """Grow the stages' trees for pairs of training and validation rows, one tree for each pair at a time.

    Return for each pair one sequence, perhaps empty, for each stage. The folds stop together, by the mean over all
    validation rows: no fold's own noise decides it. Log-likelihoods are those of the outcomes in the cube. Without
    validation rows every stage grows max_trees.
    """
    history = History()
    blocks: list[list[TreeSequence]] = [[] for _ in folds]
    learning = [train for train, _ in folds]
    everywhere = [rows for pair in folds for rows in pair if rows is not None]
    stopped = folds[0][1] is not None
    train_score = validation_score = 0.0
    for number, (classifier, max_depth) in enumerate(recipe.stages):
        rounds: list[list[TreeSequence]] = []
        scores, train_scores = [validation_score], [train_score]
        best = 0
        for rows in everywhere:
            rows.keep()
        for k in range(1, recipe.max_trees + 1):
            trees = steps.grow(
                rng, number, learning, partial(_grow, learning, classifier, max_depth, recipe.growth, rng)
            )
            if not any(len(tree) for tree in trees):
                break
            rounds.append(trees)
            gained, densest = _apply(trees, learning)
            train_scores.append(train_scores[-1] + gained)
            if stopped:
                scores.append(scores[-1] + _apply(trees, [rows for _, rows in folds if rows is not None])[0])
            else:
                scores.append(train_scores[-1])
            history.stage.append(number)
            history.train.append(train_scores[-1])
            history.validation.append(scores[-1] if stopped else np.nan)
            history.kept.append(True)
            report(history)
            if scores[k] > scores[best]:
                best = k
                for rows in everywhere:
                    rows.keep()
            room = _LARGEST_LOG_DENSITY * folds[0][0].n_outcomes * (number + 1) / len(recipe.stages)
            if densest > room:
                break
            if stopped and k >= recipe.window and scores[k] <= scores[k - recipe.window]:
                break
        for dropped in range(best, len(rounds)):
            history.kept[len(history.kept) - len(rounds) + dropped] = False
        for rows in everywhere:
            rows.restore()
        train_score, validation_score = train_scores[best], scores[best]
        for f, of_fold in enumerate(blocks):
            of_fold.append(TreeSequence.join([trees[f] for trees in rounds[:best] if len(trees[f])]))
    return blocks, history


def _grow(
    rows: Sequence[Rows], classifier: NodeClassifier, max_depth: int, growth: Growth, rng: np.random.Generator
) -> list[TreeSequence]:
    return [TreeGrower(part, classifier, max_depth, growth, rng).grow() for part in rows]


def _apply(trees: Sequence[TreeSequence], rows: Sequence[Rows]) -> tuple[float, float]:
    """Move each fold's rows by its tree; mean log-determinant over all rows and the largest log density."""
    moved = [part.apply(tree) for tree, part in zip(trees, rows, strict=True)]
    weight = np.array([part.weight for part in rows])
    total = weight.sum()
    gained = float(weight @ [mean for mean, _ in moved] / total) if total > 0 else 0.0
    return gained, max(densest for _, densest in moved)
