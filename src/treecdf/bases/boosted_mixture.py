"""A boosted mixture: locations, log scales and weights of K components are all functions of x, boosted together.

Nothing ties the components to a mean, so that they can follow modes that move, part and cross. How many there are,
their tail and the rounds of boosting are chosen by the likelihood of left-out rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treecdf._common.steps import Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.tails import T5
from treecdf.bases.components import Learnt, choose_tail, make_loss
from treecdf.bases.learners.boosting import BoostedScores, BoostingSettings, boost_scores
from treecdf.bases.mean import TrainingRows

_START_OF_SCALE = 0.7  # times the spread of the outcomes over the root of K: where the scales begin
_LOOK_ROUNDS = 40  # rounds of that comparison at most
_LOOK_RATE = 0.2  # its learning rate
_LOOK_PATIENCE = 5


@dataclass(frozen=True)
class MixtureBoosting:
    """Numbers of components to choose from, and how their scores are boosted."""

    counts: tuple[int, ...]
    settings: BoostingSettings
    n_look: int = 2000  # rows that numbers of components are compared on
    tail: int = T5  # under which they are boosted

    def look(self, rows: TrainingRows, floor: float, rng: np.random.Generator) -> tuple[MixtureBoosting, float, Ints]:
        """The learner with the best number of components and its tail on few rows and rounds.

        Its mean negative log-likelihood, and the rows (m,) that it is of, come with it.
        """
        chosen = np.sort(rng.permutation(len(rows.y))[: self.n_look])
        ends = None if rows.ends is None else rows.ends[chosen]
        few = TrainingRows(rows.x[chosen], rows.y[chosen], rows.weight[chosen], rows.fold[chosen] % 2, ends=ends)
        settings = replace(self.settings, rate=_LOOK_RATE, max_rounds=_LOOK_ROUNDS, patience=_LOOK_PATIENCE)
        found = []
        for n_components in self.counts:
            _, left_out = _boost(few, n_components, self.tail, floor, settings, rng)
            tail, _, loss = choose_tail(few.observed, left_out, few.weight, floor, self.tail)
            found.append((loss, n_components, tail))
        loss, n_components, tail = min(found)
        return replace(self, counts=(n_components,), tail=tail), loss, chosen

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The components, boosted; if there are several numbers of them a look chooses one, and their tail."""
        decided = self if len(self.counts) == 1 else self.look(rows, floor, rng)[0]
        (n_components,) = decided.counts
        fit = partial(_boost, rows, n_components, decided.tail, floor, self.settings, rng)
        scores, left_out = steps.learn(rng, rows.x.shape[1], (len(rows.x), 3 * n_components), fit)
        tail, shift, _ = choose_tail(rows.observed, left_out, rows.weight, floor, decided.tail, rows.n_tails)
        left_out[:, :n_components] += shift
        return Learnt(BoostedMixture(scores.moved(shift, n_components)), left_out, tail)


@dataclass(frozen=True)
class BoostedMixture:
    """Boosted scores of the components of a mixture."""

    scores: BoostedScores

    @property
    def n_components(self) -> int:
        """K, the number of components."""
        return len(self.scores.start) // 3

    @property
    def is_line(self) -> bool:
        """False: locations bend."""
        return False

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 K) at standardised covariates x (n, q)."""
        return self.scores(x)

    def describe(self) -> Iterator[str]:
        """How many components left-out rows chose."""
        yield f"boosted mixture: the likelihood of left-out rows chose {self.n_components} components"


def _boost(
    rows: TrainingRows, n_components: int, tail: int, floor: float, settings: BoostingSettings, rng: np.random.Generator
) -> tuple[BoostedScores, Array]:
    """Boosted scores of K components that begin at quantiles of the outcomes, and out-of-fold ones (n, 3 K)."""
    start = start_of_mixture(rows, n_components, floor)
    loss = make_loss(rows.observed, None, tail, floor)
    return boost_scores(loss, rows.x, rows.weight, start, rows.fold, settings, rng)


def start_of_mixture(rows: TrainingRows, n_components: int, floor: float) -> Array:
    """Scores (3 K,) to begin with: locations are quantiles of the outcomes, scales cover them, weights are equal."""
    levels = (np.arange(n_components) + 0.5) / n_components
    location = _weighted_quantiles(rows.y, rows.weight, levels)
    spread = np.sqrt(rows.weight @ (rows.y - np.average(rows.y, weights=rows.weight)) ** 2 / rows.weight.sum())
    log_scale = max(np.log(max(_START_OF_SCALE * spread / np.sqrt(n_components), 1e-300)), floor)
    return np.concatenate([np.full(n_components, log_scale), np.zeros(n_components), location])


def _weighted_quantiles(y: Array, weight: Array, levels: Array) -> Array:
    """Quantiles of outcomes y (n,) at these levels."""
    order = np.argsort(y, kind="stable")
    mass = np.cumsum(weight[order]) - weight[order] / 2
    return np.interp(levels * weight.sum(), mass, y[order])
