"""Which bases are worth training on a large table: small ones of each kind, learnt from few rows, are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from treecdf._common.typing import Ints
from treecdf.bases.components import ComponentLearner
from treecdf.bases.conditional import Conditional
from treecdf.data.table import Table
from treecdf.training.boosting import LeftOut, fit_conditional_flows
from treecdf.training.context import TrainingContext
from treecdf.training.settings import Recipe

USUAL = "flow"  # the kind that is trained unless another one is ahead of it
_ROWS, _FOLDS = 3000, 2  # that the kinds are compared on
_FEWEST_ROWS = 100  # of each of these folds, or there is no contest
# Nats a row that the usual kind may be behind the best one to be trained. It has most parts, takes most time and gains
# least by more rows: where its means are what matters it is far ahead on few rows already (ADR 51).
_USUAL_BEHIND = 0.005
_BEHIND = 0.03  # the same of the other kinds beside it
_BEHIND_OTHERS = 0.05  # the same without it, which leaves time for them (ADR 51)
_AHEAD = 0.02  # nats a row that the usual kind has to be ahead where only one is trained


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
        if min(np.bincount(left_out.fold, minlength=_FOLDS)) < _FEWEST_ROWS:
            return [USUAL, *(name for name in self.kinds if name != USUAL)]  # nobody knows: groups are too large
        recipe, scores = replace(recipe, max_trees=0), dict[str, float]()
        for name, learner in self.kinds.items():
            fitted = fit_conditional_flows(recipe, learner(*few.x.shape), few, left_out, rng, TrainingContext())
            assert fitted.left_out is not None
            scores[name] = float(np.average(fitted.left_out, weights=few.weight))
            base = fitted.flows[0].base
            if isinstance(base, Conditional):  # the others need not choose again
                recipe = replace(recipe, transform=base.transform)
        return chosen(scores, self.only_best)


def chosen(scores: Mapping[str, float], only_best: bool) -> list[str]:
    """The kinds that are worth training, the first of them to begin with, from mean log densities of left-out rows."""
    others = sorted((name for name in scores if name != USUAL), key=lambda name: -scores[name])
    lead = scores[USUAL] - scores[others[0]]
    if only_best:
        return [USUAL] if lead > _AHEAD else others[:1]
    has_usual = lead >= -_USUAL_BEHIND
    least = max(scores.values()) - (_BEHIND if has_usual else _BEHIND_OTHERS)
    return [USUAL] * has_usual + [name for name in others if scores[name] >= least]
