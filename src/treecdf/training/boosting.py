"""Algorithm 1: stages of trees, each grown on the residuals of the last, with early stopping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from treecdf._common.telling import part, share_done
from treecdf._common.typing import Ints
from treecdf.bases.box import Support
from treecdf.bases.components import ComponentLearner
from treecdf.bases.conditional import Conditional
from treecdf.bases.mean import TrainingRows
from treecdf.bases.protocol import Base
from treecdf.bases.student import DEGREES, NORMAL, Student
from treecdf.data.blocks import ends_of_outcomes, sum_of_weights
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table
from treecdf.flows.flow import TreeFlow
from treecdf.flows.results import Fitted, History
from treecdf.flows.tree import TreeSequence
from treecdf.training.context import News, TrainingContext
from treecdf.training.growing.grower import TreeGrower
from treecdf.training.growing.located import FoldRows, Streamed, average, locate
from treecdf.training.settings import Recipe
from treecdf.training.sources.operations import CountRows, EveryNth
from treecdf.training.sources.rows import Rows, Source, map_tables

# A row this much denser than the uniform (per outcome) is an atom at the resolution of float64. Every stage has its
# share of the room up to there: outcomes that come again and again would otherwise use it up in the first.
_LARGEST_LOG_DENSITY = 30.0
# For the line of progress: share of the time that a conditional base takes, and trees after which a stage is half done.
_SHARE_OF_BASE = 0.7
_TREES_AT_HALF = 20

DEGREES_OF_BASES = {"student": DEGREES, "normal": (NORMAL,)}  # of freedom that these bases may have


@dataclass(frozen=True)
class LeftOut:
    """The validation rows of early stopping: given ones, else each fold (n,) in turn, or none if not `stops`."""

    fold: Ints
    validation: Table | None
    stops: bool


def fit_flow(
    recipe: Recipe, train: Table, validation: Table | None, rng: np.random.Generator, context: TrainingContext
) -> Fitted:
    """Train a flow on an unconditional base; `left_out` of the result are log densities of the validation rows."""
    standardize = Standardizer.fit(train.x, train.weight)
    base: Base
    if recipe.base in DEGREES_OF_BASES:
        base = Student.fit(train.y, train.weight, recipe.rotation, DEGREES_OF_BASES[recipe.base])
    else:
        base = Support.fit(train.y, train.weight, recipe.bounds, recipe.rotation, recipe.margin)
    located = [locate(rows, standardize, base) for rows in (train, validation) if rows is not None]
    return _fit_trees(recipe, standardize, base, [FoldRows(*located)], rng, context)


def fit_streamed_flow(
    recipe: Recipe,
    open_sources: Callable[[Executor | None], AbstractContextManager[tuple[Source, Source | None]]],
    given: tuple[Standardizer, Base] | None,
    rng: np.random.Generator,
    context: TrainingContext,
) -> Fitted:
    """Train a flow as `fit_flow` does, on sources of tables; `left_out` of the result is a mean over validation rows.

    A table in memory gives the same flow, up to the rounding of sums of weights that are not whole numbers. given:
    scales of the covariates and base, if they are known beforehand; else both are learnt.
    """
    with open_sources(context.pool) as (train, validation):
        if given is None:
            given = Standardizer.fit_blocks(partial(map_tables, train)), _streamed_base(recipe, train)
        standardize, base = given
        fold = FoldRows(*(Streamed.locate(rows, standardize, base) for rows in (train, validation) if rows is not None))
        return _fit_trees(recipe, standardize, base, [fold], rng, replace(context, pool=None))


def _streamed_base(recipe: Recipe, train: Source) -> Base:
    """The unconditional base of a recipe, from sums over blocks or from a sample of the rows."""
    if recipe.base in DEGREES_OF_BASES:
        n = sum(train.ask_blocks(CountRows()))
        parts = train.ask_blocks(EveryNth(Student.step(n)))
        y, weight = (np.concatenate(values) for values in zip(*parts, strict=True))
        return Student.fit(y, weight, degrees=DEGREES_OF_BASES[recipe.base])
    weights = map_tables(train, sum_of_weights)
    smallest, largest = zip(*map_tables(train, ends_of_outcomes), strict=True)
    ends = np.min(smallest, axis=0), np.max(largest, axis=0)
    return Support.around(*ends, sum(weights), recipe.bounds, margin=recipe.margin)


def fit_conditional_flows(
    recipe: Recipe,
    learner: ComponentLearner,
    table: Table,
    left_out: LeftOut,
    rng: np.random.Generator,
    context: TrainingContext,
) -> Fitted:
    """Train a flow for each fold of the rows, stopped by this fold, all on one conditional base of one outcome.

    With given validation rows there is one flow, stopped by these. `left_out` of the result are log densities of the
    validation rows if they were given, else of all rows. A flow without early stopping is grown on all rows.
    """
    fold, validation = left_out.fold, left_out.validation
    standardize = Standardizer.fit(table.x, table.weight)
    z = standardize(table.x)
    known = TrainingRows.of(table, z, fold, recipe.remember_rows)
    training_rows = replace(known, n_tails=recipe.rows_of_tails, transform=recipe.transform)
    share_of_base = _SHARE_OF_BASE if recipe.max_trees else 1.0
    with part("base", 0.0, share_of_base):
        base, parameters = Conditional.cross_fit(learner, training_rows, recipe.bounds[0], rng, context.steps)
    rows = locate(table, standardize, base, parameters, by_cell=True)
    if validation is not None:
        folds = [FoldRows(rows, locate(validation, standardize, base, by_cell=True))]
    elif not left_out.stops:
        folds = [FoldRows(rows)]
    else:
        folds = [FoldRows(rows.take(fold != f), rows.take(fold == f)) for f in range(int(fold.max()) + 1)]
    with part("", share_of_base, 1.0):
        fitted = _fit_trees(recipe, standardize, base, folds, rng, context)
    flows = fitted.flows if any(len(stage) for flow in fitted.flows for stage in flow.stages) else fitted.flows[:1]
    log_density = fitted.left_out
    if validation is None and log_density is not None:
        log_density = np.empty(len(table))
        log_density[np.argsort(fold, kind="stable")] = fitted.left_out
    return replace(fitted, flows=flows, left_out=log_density)


@dataclass(frozen=True)
class Units:
    """Converts mean log-likelihoods in the cube to those of outcomes in the user's unit."""

    train: float = 0.0  # mean log density of training rows by the base
    validation: float = 0.0
    inside: float = 1.0  # share of the validation rows' weight that the trees move


def _fit_trees(
    recipe: Recipe,
    standardize: Standardizer,
    base: Base,
    folds: Sequence[FoldRows],
    rng: np.random.Generator,
    context: TrainingContext,
) -> Fitted:
    """Grow the trees of every fold; the history and the reported score are in the outcomes' own unit."""
    pool = context.pool
    rows = [(fold.train.rows(pool), None if fold.validation is None else fold.validation.rows(pool)) for fold in folds]
    held_out = [fold.validation for fold in folds if fold.validation is not None]
    train_base, _ = average([fold.train for fold in folds])
    units = Units(train_base, *(average(held_out) if held_out else (np.nan, 1.0)))
    stages, history = boost(rows, recipe, rng, context, units)
    kept = (value for value, kept in zip(history.validation, history.kept, strict=True) if kept)
    score = max(kept, default=units.validation)
    left_out = [
        fold.validation.left_out(validation, score)
        for fold, (_, validation) in zip(folds, rows, strict=True)
        if fold.validation is not None and validation is not None
    ]
    flows = tuple(TreeFlow(standardize, base, tuple(of_fold)) for of_fold in stages)
    return Fitted(flows, history, np.concatenate(left_out) if left_out else None, not context.steps.was_interrupted)


def boost(
    folds: Sequence[tuple[Rows, Rows | None]],
    recipe: Recipe,
    rng: np.random.Generator,
    context: TrainingContext | None = None,
    units: Units | None = None,
) -> tuple[list[list[TreeSequence]], History]:
    """Grow the stages' trees for pairs of training and validation rows, one tree for each pair at a time.

    Returns one sequence of trees, perhaps empty, for each pair and stage. All folds stop at the same round, by the mean
    over all validation rows, which is less noisy than each fold by itself. Without validation rows every stage grows
    max_trees.
    """
    booster = _Booster(folds, recipe, rng, context or TrainingContext(), units or Units())
    for number in range(len(recipe.stages)):
        booster.run_stage(number)
    return booster.stages, booster.history


class _Booster:
    """Trees, history and scores of a boosting so far; log-likelihoods are those of the outcomes in the cube."""

    def __init__(
        self,
        folds: Sequence[tuple[Rows, Rows | None]],
        recipe: Recipe,
        rng: np.random.Generator,
        context: TrainingContext,
        units: Units,
    ) -> None:
        self.recipe, self.rng, self.context, self.units = recipe, rng, context, units
        self.history = History()
        self.stages: list[list[TreeSequence]] = [[] for _ in folds]
        self.train = [train for train, _ in folds]
        self.validation = [rows for _, rows in folds if rows is not None]
        self.train_score = self.validation_score = 0.0

    def run_stage(self, number: int) -> None:
        """Grow the trees of one stage, and keep those up to the best validation score."""
        recipe = self.recipe
        rounds: list[list[TreeSequence]] = []
        train_scores, scores = [self.train_score], [self.validation_score]
        best, total = 0, sum(rows.weight for rows in self.validation) if self.validation else np.inf
        self._all_rows("keep")
        for k in range(1, recipe.max_trees + 1):
            trees = self._grow(number)
            if not any(len(tree) for tree in trees):
                break
            rounds.append(trees)
            gained, densest = _apply(trees, self.train)
            train_scores.append(train_scores[-1] + gained)
            scores.append(scores[-1] + _apply(trees, self.validation)[0] if self.validation else train_scores[-1])
            self._note(number, train_scores[-1], scores[-1])
            if scores[k] > scores[best] and recipe.least_gain <= (scores[k] - scores[0]) * total:
                best = k
                self._all_rows("keep")
            least = recipe.gain_a_tree * recipe.window
            if self.validation and k >= recipe.window and scores[k] - scores[k - recipe.window] <= least:
                break
            if densest > _LARGEST_LOG_DENSITY * self.train[0].n_outcomes * (number + 1) / len(recipe.stages):
                self.history.too_dense[-1] = k < recipe.max_trees
                break
        for dropped in range(best, len(rounds)):
            self.history.kept[len(self.history.kept) - len(rounds) + dropped] = False
        self._all_rows("restore")
        self.train_score, self.validation_score = train_scores[best], scores[best]
        for f, of_fold in enumerate(self.stages):
            of_fold.append(TreeSequence.join([trees[f] for trees in rounds[:best] if len(trees[f])]))

    def _grow(self, number: int) -> list[TreeSequence]:
        """A tree for each fold, of the stage with this number; none if the training is to end."""
        classifier, max_depth = self.recipe.stages[number]

        def grow() -> list[TreeSequence]:
            return [TreeGrower(rows, classifier, max_depth, self.recipe.growth, self.rng).grow() for rows in self.train]

        return self.context.steps.grow(self.rng, number, self.train, grow)

    def _note(self, number: int, train: float, validation: float) -> None:
        """Add a round to the history, in the outcomes' own unit, and report it."""
        history, units = self.history, self.units
        history.stage.append(number)
        history.train.append(units.train + train)
        history.validation.append(units.validation + units.inside * validation if self.validation else np.nan)
        history.kept.append(True)
        history.too_dense.append(False)
        grown = history.stage.count(number)
        stages_done = (number + grown / (grown + _TREES_AT_HALF)) / len(self.recipe.stages)
        self.context.report(News(history, history.validation[-1], done=share_done(stages_done)))

    def _all_rows(self, what: Literal["keep", "restore"]) -> None:
        """Let all rows store their positions, or return to the stored ones."""
        for rows in (*self.train, *self.validation):
            if what == "keep":
                rows.keep()
            else:
                rows.restore()


def _apply(trees: Sequence[TreeSequence], rows: Sequence[Rows]) -> tuple[float, float]:
    """Move each fold's rows by its tree; mean log-determinant over all rows and the largest log density."""
    moved = [part.apply(tree) for tree, part in zip(trees, rows, strict=True)]
    weight = np.array([part.weight for part in rows])
    total = weight.sum()
    gained = float(weight @ [mean for mean, _ in moved] / total) if total > 0 else 0.0
    return gained, max(densest for _, densest in moved)
