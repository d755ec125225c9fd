"""Which bases are worth training on a large table: small ones of each kind, learnt from few rows, are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from treecdf._common.typing import Ints
from treecdf.bases.components import ComponentLearner
from treecdf.data.table import Table
from treecdf.training.boosting import LeftOut, fit_conditional_flows
from treecdf.training.context import TrainingContext
from treecdf.training.settings import Recipe

USUAL = "flow"  # the kind that is trained unless another one is ahead of it
_ROWS, _FOLDS = 5000, 2  # that the kinds are compared on
# Nats a row by which another kind has to be ahead of the usual one: that has most parts and takes most time, and gains
# least by more rows, but where its means are what matters it is far ahead on few rows already (ADR 51).
_AHEAD = 0.005
_BEHIND = 0.02  # nats a row that a kind may be behind the best one to be trained, too (ADR 51)


@dataclass(frozen=True)
class Contest:
    """The kinds of bases that are compared, each as a learner of n rows of q covariates, and how many are trained."""

    kinds: Mapping[str, Callable[[int, int], ComponentLearner]]
    only_best: bool

    def winners(self, recipe: Recipe, table: Table, fold: Ints) -> list[str]:
        """The kinds that are worth training on a table of one outcome, first the one that others are weighed against.

        A generator of its own draws the rows, so that what is trained does not depend on what lost.
        """
        rng = np.random.default_rng(0)
        seen = np.sort(rng.permutation(len(table))[:_ROWS])
        few, left_out = table.take(seen), LeftOut(fold[seen] % _FOLDS, None, True)
        recipe, scores = replace(recipe, max_trees=0), dict[str, float]()
        for name, learner in self.kinds.items():
            fitted = fit_conditional_flows(recipe, learner(*few.x.shape), few, left_out, rng, TrainingContext())
            assert fitted.left_out is not None
            scores[name] = float(np.average(fitted.left_out, weights=few.weight))
        import os; os.environ.get("SHOW") and print("   contest", scores)
        return chosen(scores, self.only_best)


def chosen(scores: Mapping[str, float], only_best: bool) -> list[str]:
    """The kinds that are worth training, the first of them to begin with, from mean log densities of left-out rows."""
    best = max(scores.values())
    if scores[USUAL] >= best - _AHEAD:
        found = [USUAL]
    else:
        found = [max(scores, key=lambda name: scores[name])]
    if only_best:
        return found
    return found + [name for name in scores if name not in (USUAL, *found) and scores[name] >= best - _BEHIND]
